"""Writes model folders and golden files; the entry point of this package."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.transformers.optimizer import optimize_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from models.export import OPSET, export_onnx, graph_error
from models.gliclass import read_gliclass
from models.make import make_folder
from models.source import read_source
from parity import gliclass
from parity.cases import ABOUT, DISCUSSED, LONG, POST, SIXTEEN, TEXTS, TITLE, pick, tiny_cases
from parity.models import CLASSIFIERS, TINY, Spec, level_logits, make_model, make_tokenizer, save_folder
from parity.reference import ClassifierReference, Reference, classifier_texts, versions, write_golden

# The first model puts the text after the labels and reads the text from the row's first state. The second puts the text
# before the labels and a task prompt after them, averages the states, and has a tokenizer that marks the start of a
# text. The third puts a task prompt between the labels and the text; it does not end with a space, so the text
# continues its last word.
GLICLASS = [
    gliclass.Spec("tiny-gliclass-bert", "bert", 21, graphs=["cpu-fp32", "cpu-int8"]),
    gliclass.Spec(
        "tiny-gliclass-deberta",
        "deberta",
        22,
        {"prompt_first": False, "scorer_type": "mlp", "pooling_strategy": "avg", "class_token_pooling": "average"},
        prepend="first",
        task_prompt="What is this text about?",
    ),
    gliclass.Spec("tiny-gliclass-task", "bert", 23, task_prompt="What is this text about"),
]
MAX_FOLDER_BYTES = 1_000_000
MAX_GOLDEN_BYTES = 400_000


def write_fixtures(root: Path) -> None:
    """Writes every tiny model and its golden file under `root`, replacing earlier ones."""
    torch.set_num_threads(1)  # with more threads, the order of additions differs
    for spec in TINY:
        write(spec, root, Reference, sample_batches, proof_batches, nli_golden)
    classifiers = root / "classifiers"
    write_odd(classifiers / "odd")
    for spec in CLASSIFIERS:
        reference = lambda model, folder, spec=spec: ClassifierReference(model, folder, spec)
        write(spec, classifiers, reference, lambda one: [one.batch(list(TEXTS.values()))], text_batches, text_golden)
    for spec in GLICLASS:
        write_gliclass(spec, root / "gliclass")


def write_gliclass(spec: gliclass.Spec, root: Path) -> None:
    """Writes the model folder of a GLiClass checkpoint and its golden file."""
    folder, golden_file = root / "models" / spec.name, root / "golden" / f"{spec.name}.json"
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = Path(scratch) / spec.name
        gliclass.write_checkpoint(spec, checkpoint)
        make_folder(read_gliclass(checkpoint, spec.task_prompt), folder, spec.graphs, print)
        cases = gliclass.golden(checkpoint, spec.task_prompt)
        write_golden(golden_file, {"model": spec.name, "versions": versions()}, cases)
    assert folder_bytes(folder) <= MAX_FOLDER_BYTES, f"{folder} is too large to be committed"
    assert golden_file.stat().st_size <= MAX_GOLDEN_BYTES, f"{golden_file} is too large to be committed"


def nli_golden(reference: Reference) -> dict:
    """Returns the golden cases of an NLI model; some texts are truncated to just fit its window."""
    cases = tiny_cases(reference.tokenizer.model_max_length, lambda tokens: reference.prefix(LONG, tokens))
    return {"cases": [reference.golden(case) for case in cases]}


def text_golden(reference: ClassifierReference) -> dict:
    """Returns the golden cases of a classifier, with its kind and default mode."""
    return reference.golden(classifier_texts(reference))


def text_batches(reference: ClassifierReference) -> list[dict[str, torch.Tensor]]:
    """Returns batches of different shapes."""
    return [reference.batch(texts) for texts in ([TITLE], [TITLE, POST, "", TEXTS["emoji"]], [LONG, TITLE])]


def write(spec: Spec, root: Path, refer: Callable, samples: Callable, proofs: Callable, golden_of: Callable) -> None:
    """Writes the folder and the golden file of one model and compares its graph with torch."""
    folder, golden_file = root / "models" / spec.name, root / "golden" / f"{spec.name}.json"
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = make_tokenizer(spec)
    model = make_model(spec, len(tokenizer))
    save_folder(spec, model, tokenizer, folder)
    reference = refer(model, folder)
    level_logits(model, samples(reference))
    batches = proofs(reference)
    export_onnx(model, batches[1], folder / spec.onnx_file)
    error = graph_error(model, folder / spec.onnx_file, batches)
    assert error <= spec.graph_tolerance, f"{spec.name}: the graph is {error:.1e} off torch"
    if spec.made_folder:
        write_made(spec, model, tokenizer, root)
    golden = golden_of(reference)
    cases = golden.pop("cases")
    write_golden(golden_file, {"model": spec.name, "versions": versions()} | golden, cases)
    assert folder_bytes(folder) <= MAX_FOLDER_BYTES, f"{folder} is too large to be committed"
    assert golden_file.stat().st_size <= MAX_GOLDEN_BYTES, f"{golden_file} is too large to be committed"
    print(f"{spec.name}: {folder_bytes(folder)} bytes, {len(cases)} cases, graph within {error:.1e} of torch")


def write_made(spec: Spec, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, root: Path) -> None:
    """Writes the output of `model.py`, and for an NLI model also a graph broken by the stock optimizer."""
    folder = root / "models" / spec.made_folder
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / spec.name
        save_folder(spec, model, tokenizer, source)
        model.save_pretrained(source)
        make_folder(read_source(source), folder, ["cpu-fp32", "cpu-int8"], print)
    if spec not in TINY:
        return
    # With the wrong model type, BERT instead of BART, the stock optimizer fuses some attention wrongly, and silently.
    exported, spoiled = root / "models" / spec.name / spec.onnx_file, root / "wrong" / f"{spec.name}-stock-fusion.onnx"
    heads, size = model.config.encoder_attention_heads, model.config.d_model
    optimizer = optimize_model(str(exported), model_type="bert", num_heads=heads, hidden_size=size)
    assert optimizer.get_fused_operator_statistics()["Attention"] > 0, "the stock optimizer no longer fuses attention"
    spoiled.parent.mkdir(exist_ok=True)
    for node in optimizer.model.graph.node:
        node.doc_string = ""
        node.ClearField("metadata_props")
    optimizer.save_model_to_file(str(spoiled))
    for path in [folder, spoiled.parent]:
        assert folder_bytes(path) <= MAX_FOLDER_BYTES, f"{path} is too large to be committed"


def write_odd(folder: Path) -> None:
    """Writes graphs that are each unusual in one way, and that topicmill must accept, or reject with a reason.

    Each graph multiplies the number of tokens in a row by one weight per label.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, labels, kind, shape, flat in (
        ("three", 3, TensorProto.FLOAT, ("rows", "width"), False),
        ("thousand", 1000, TensorProto.FLOAT, ("rows", "width"), False),
        ("half", 3, TensorProto.FLOAT16, ("rows", "width"), False),
        ("int8", 3, TensorProto.INT8, ("rows", "width"), False),
        ("fixed", 3, TensorProto.FLOAT, (1, 16), False),
        ("flat", 1, TensorProto.FLOAT, ("rows", "width"), True),
    ):
        weights = np.linspace(-1, 1, labels, dtype=np.float32).reshape(1, labels)
        nodes = [
            helper.make_node("Cast", ["attention_mask"], ["real"], to=TensorProto.FLOAT),
            helper.make_node("ReduceSum", ["real", "axis"], ["count"], keepdims=1),
            helper.make_node("MatMul", ["count", "weights"], ["plain"]),
            helper.make_node("Cast", ["plain"], ["typed"], to=kind),
            helper.make_node("Squeeze" if flat else "Identity", ["typed", "axis"] if flat else ["typed"], ["logits"]),
        ]
        inputs = [helper.make_tensor_value_info(one, TensorProto.INT64, shape) for one in ("input_ids", "attention_mask")]
        outputs = [helper.make_tensor_value_info("logits", kind, [shape[0], *([] if flat else [labels])])]
        constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array([1]), "axis")]
        graph = helper.make_graph(nodes, "odd", inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        onnx.save(model, folder / f"{name}.onnx")


def sample_batches(reference: Reference) -> list[dict[str, torch.Tensor]]:
    """Returns representative pairs: texts of each kind and length, each with three labels."""
    names = ["title", "one word", "post", "empty", "bart specials", "emoji", "japanese", "german"]
    texts = list(pick(TEXTS, *names).values())
    return [reference.batch(texts, ABOUT.format(label)) for label in SIXTEEN[:3]]


def proof_batches(reference: Reference) -> list[dict[str, torch.Tensor]]:
    """Returns batches of different shapes: one pair, two and five of different lengths, and two that fill a window."""
    return [
        reference.batch([TITLE], ABOUT.format("science")),
        reference.batch([TITLE, POST], ABOUT.format("science")),
        reference.batch([TITLE, POST, "", TEXTS["emoji"], TEXTS["bart specials"]], DISCUSSED.format("finance")),
        reference.batch([LONG[:500], LONG[500:1000]], ABOUT.format("technology")),
    ]


def folder_bytes(folder: Path) -> int:
    """Returns the size of all files in the folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
