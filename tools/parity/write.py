"""Write model folders and golden files: the order in which everything else here is called."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from onnxruntime.transformers.optimizer import optimize_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from models.make import make_folder
from models.source import read_source
from parity.cases import ABOUT, DISCUSSED, POST, SIXTEEN, TEXTS, TITLE, Case, full_cases, pick, tiny_cases
from parity.classifiers import ClassifierReference, classifier_texts
from parity.corpus import LONG
from parity.export import export_onnx, graph_error
from parity.models import CLASSIFIERS, TINY, Spec, full_spec, level_logits, make_model, make_tokenizer, save_folder
from parity.odd import write_odd
from parity.reference import Reference, versions, write_golden

MAX_FOLDER_BYTES = 1_000_000
MAX_GOLDEN_BYTES = 400_000


def write_tiny(root: Path) -> None:
    """Write every tiny model and its golden file under `root`, in place of what was there."""
    for spec in TINY:
        folder, golden_file = write_model(spec, root, tiny_cases_of)
        assert folder_bytes(folder) <= MAX_FOLDER_BYTES, f"{folder} is too large to be committed"
        assert golden_file.stat().st_size <= MAX_GOLDEN_BYTES, f"{golden_file} is too large to be committed"


def tiny_cases_of(reference: Reference) -> list[Case]:
    """The cases of a tiny model; some texts are cut so that they just fit its window."""
    return tiny_cases(reference.tokenizer.model_max_length, lambda tokens: reference.prefix(LONG, tokens))


def write_classifiers(root: Path) -> None:
    """Write every tiny classifier and its golden file under `root`, in place of what was there."""
    torch.set_num_threads(1)
    write_odd(root / "odd")
    for spec in CLASSIFIERS:
        folder = root / "models" / spec.name
        shutil.rmtree(folder, ignore_errors=True)
        tokenizer = make_tokenizer(spec)
        model = make_model(spec, len(tokenizer))
        save_folder(spec, model, tokenizer, folder)
        reference = ClassifierReference(model, folder, spec)
        level_logits(model, [reference.batch(list(TEXTS.values()))])
        batches = [reference.batch(texts) for texts in ([TITLE], [TITLE, POST, "", TEXTS["emoji"]], [LONG, TITLE])]
        export_onnx(model, batches[1], folder / spec.onnx_file)
        error = graph_error(model, folder / spec.onnx_file, batches)
        assert error <= spec.graph_tolerance, f"{spec.name}: the graph is {error:.1e} off torch"
        if spec.made_folder:
            make_beside(spec, model, tokenizer, root / "models" / spec.made_folder)
        golden = {"model": spec.name, "versions": versions()} | reference.golden(classifier_texts(reference))
        cases = golden.pop("cases")
        lines = ",\n".join(json.dumps(case) for case in cases)
        path = root / "golden" / f"{spec.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{json.dumps(golden)[:-1]}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")
        assert folder_bytes(folder) <= MAX_FOLDER_BYTES, f"{folder} is too large to be committed"
        assert path.stat().st_size <= MAX_GOLDEN_BYTES, f"{path} is too large to be committed"
        print(f"{spec.name}: {folder_bytes(folder)} bytes, {len(cases)} cases, graph within {error:.1e} of torch")


def make_beside(spec: Spec, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write what `model.py` makes of a model."""
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / spec.name
        save_folder(spec, model, tokenizer, source)
        model.save_pretrained(source)
        make_folder(read_source(source), folder, ["cpu-fp32", "cpu-int8"], print)


def write_full(root: Path, layers: int) -> None:
    """Write the model of full size and its golden file under `root`."""
    write_model(full_spec(layers), root, lambda _: full_cases())


def write_model(spec: Spec, root: Path, cases_of: Callable[[Reference], list[Case]]) -> tuple[Path, Path]:
    """Make one model: its folder, its graph proved against torch, its golden file; returns both paths."""
    torch.set_num_threads(1)  # with more, sums are made in another order
    folder, golden_file = root / "models" / spec.name, root / "golden" / f"{spec.name}.json"
    shutil.rmtree(folder, ignore_errors=True)

    tokenizer = make_tokenizer(spec)
    model = make_model(spec, len(tokenizer))
    save_folder(spec, model, tokenizer, folder)
    reference = Reference(model, folder)
    level_logits(model, sample_batches(reference))

    batches = proof_batches(reference)
    export_onnx(model, batches[1], folder / spec.onnx_file)
    error = graph_error(model, folder / spec.onnx_file, batches)
    assert error <= spec.graph_tolerance, f"{spec.name}: the graph is {error:.1e} off torch"

    if spec.made_folder:
        write_made(spec, model, tokenizer, root)
    cases = [reference.golden(case) for case in cases_of(reference)]
    write_golden(golden_file, spec.name, cases)
    print(f"{spec.name}: {folder_bytes(folder)} bytes, {len(cases)} cases, graph within {error:.1e} of torch")
    return folder, golden_file


def write_made(spec: Spec, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, root: Path) -> None:
    """Write what `model.py` makes of the same model, and the exported graph as the stock optimizer spoils it."""
    folder, spoiled = root / "models" / spec.made_folder, root / "wrong" / f"{spec.name}-stock-fusion.onnx"
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / spec.name
        save_folder(spec, model, tokenizer, source)
        model.save_pretrained(source)
        make_folder(read_source(source), folder, ["cpu-fp32", "cpu-int8"], print)
    config = model.config
    exported = str(root / "models" / spec.name / spec.onnx_file)
    # Told that BART is a BERT, it fuses some of its attention wrongly and says nothing.
    optimizer = optimize_model(
        exported, model_type="bert", num_heads=config.encoder_attention_heads, hidden_size=config.d_model
    )
    assert optimizer.get_fused_operator_statistics()["Attention"] > 0, "the stock optimizer fuses no attention any more"
    spoiled.parent.mkdir(exist_ok=True)
    for node in optimizer.model.graph.node:
        node.doc_string = ""
        node.ClearField("metadata_props")
    optimizer.save_model_to_file(str(spoiled))
    for path in [folder, spoiled.parent]:
        assert folder_bytes(path) <= MAX_FOLDER_BYTES, f"{path} is too large to be committed"


def sample_batches(reference: Reference) -> list[dict[str, torch.Tensor]]:
    """Pairs that stand for all: texts of each kind and length, each with three labels."""
    names = ["title", "one word", "post", "empty", "bart specials", "emoji", "japanese", "german"]
    texts = list(pick(TEXTS, *names).values())
    return [reference.batch(texts, ABOUT.format(label)) for label in SIXTEEN[:3]]


def proof_batches(reference: Reference) -> list[dict[str, torch.Tensor]]:
    """Batches of unlike shapes: one pair, two and five of unlike length, two that fill a tiny model's window."""
    return [
        reference.batch([TITLE], ABOUT.format("science")),
        reference.batch([TITLE, POST], ABOUT.format("science")),
        reference.batch([TITLE, POST, "", TEXTS["emoji"], TEXTS["bart specials"]], DISCUSSED.format("finance")),
        reference.batch([LONG[:500], LONG[500:1000]], ABOUT.format("technology")),
    ]


def folder_bytes(folder: Path) -> int:
    """The size of all files in the folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
