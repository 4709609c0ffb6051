#!/usr/bin/env python3
"""Compares GLiClass in its own package with topicmill, and with an NLI model of BART-large's shape in topicmill.

    .venv-tools/bin/python benches/ladder/one_pass.py FOLDER [--nli MADE] [--texts FILE]

FOLDER keeps the checkpoints, with random weights and base-sized encoders, and the model folders made of them. Speed
does not depend on training. The package runs its own pipeline, with the fastest of its batch sizes. All rungs of a
shape alternate, and the shortest time of each counts. `products alone` multiplies matrices of the same sizes in torch,
one text at a time, and computes nothing else: a program that uses torch's products is not faster. Needs what
tools/requirements.txt lists, and the package topicmill.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tools"), str(TOP / "benches")]
TOKENIZER = TOP / "models/minilm-reddit-topics/tokenizer.json"
TOKENS = ["<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>"]
NAMES = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
SHAPES = ("deberta-v2-base", "modernbert-base", "tiny")
BATCHES = (1, 4, 8, 16)
"""Texts in a batch of the package."""
BUDGETS = (128, 512)
"""Padded tokens in a batch of topicmill: a text alone, or the default for two threads."""
ENGINES = {
    "topicmill fp32, ONNX Runtime": ("onnxruntime", "fp32"),
    "topicmill fp32, OpenVINO": ("openvino", "fp32"),
    "topicmill int8, ONNX Runtime": ("onnxruntime", "int8"),
    "topicmill bf16, OpenVINO": ("openvino", "bf16"),
}
"""Engine and precision of each rung of topicmill."""
Rung = Callable[[list[str]], list[list[float]]]


def main() -> int:
    """Prints a table for each shape, then posts/s of the NLI model."""
    arguments = parse()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": str(arguments.threads)}
    pipeline = tomllib.loads((TOP / "pipelines/sixteen-topics.toml").read_text(encoding="utf-8"))
    labels = [topic["label"] for topic in pipeline["topic"]]
    texts = read_texts(arguments)
    best = {}
    for shape in arguments.shapes:
        hf, made = folders(arguments.folder, shape)
        if arguments.make:
            continue
        rungs = rungs_of(hf, labels, texts, arguments.threads)
        for name in ENGINES:
            rungs[name] = of_topicmill(made, labels, "multi", name, arguments.threads, texts)
        print(f"\n{shape}, {len(texts)} texts, {len(labels)} labels, {arguments.threads} threads\n", flush=True)
        times = compare(rungs, texts, arguments.repeats)
        best[shape] = {name: len(texts) / seconds for name, seconds in times.items()}
    if arguments.nli and not arguments.make:
        # An even choice by length: sixteen passes for each text take long.
        some = sorted(texts, key=len)[:: max(1, len(texts) // arguments.nli_posts)]
        rungs = {
            name: of_topicmill(arguments.nli, labels, "single", name, arguments.threads, some[:1])
            for name in ENGINES
            if "fp32, ONNX" in name or "bf16" in name
        }
        print(f"\n{arguments.nli.name}, {len(some)} of these texts\n", flush=True)
        for name, seconds in compare(rungs, some, max(1, arguments.repeats - 1)).items():
            for shape, posts in best.items():
                print(f"{shape} is {posts[name] * seconds / len(some):.1f} times as fast: {name}")
    return 0


def read_texts(arguments: argparse.Namespace) -> list[str]:
    """Returns titles and bodies of a file, or made-up texts of Reddit's lengths."""
    from common import texts

    if not arguments.texts:
        return texts(arguments.posts)
    lines = arguments.texts.read_text(encoding="utf-8").splitlines()[: arguments.posts]
    rows = [json.loads(line) for line in lines]
    parts = [[row.get(name) for name in ("text", "title", "selftext")] for row in rows]
    return ["\n\n".join(part for part in row if part) for row in parts]


def folders(folder: Path, shape: str) -> tuple[Path, Path]:
    """Returns a checkpoint and the model folder made of it, both made unless they are there."""
    hf, made = folder / f"{shape}-hf", folder / f"gliclass-{shape}"
    if not made.exists():
        write_checkpoint(shape, hf)
        command = [sys.executable, TOP / "tools/model.py", hf, made, "--graphs", "cpu-fp32,cpu-int8"]
        subprocess.run(command, check=True)
    return hf, made


def write_checkpoint(shape: str, out: Path) -> None:
    """Writes a checkpoint with random weights."""
    import torch
    from gliclass import GLiClassModel, GLiClassModelConfig
    from transformers import PreTrainedTokenizerFast

    from parity.models import fill_weights

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER), **NAMES)
    tokenizer.add_tokens(TOKENS, special_tokens=True)
    marks = dict(zip(("class", "text", "example"), tokenizer.convert_tokens_to_ids(TOKENS), strict=True))
    config = GLiClassModelConfig(
        encoder_config=encoder_of(shape, tokenizer).to_dict(),
        encoder_model="random",
        vocab_size=len(tokenizer),
        **{f"{name}_token_index": index for name, index in marks.items()},
        problem_type="multi_label_classification",
        prompt_first=True,
    )
    model = GLiClassModel(config).eval()
    with torch.no_grad():
        fill_weights(model, 1)
        # Narrower: 22 layers with sharp attention would amplify the rounding of one engine to another label.
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(0.5)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def encoder_of(shape: str, tokenizer: object) -> object:
    """Returns the configuration of an encoder: that of deberta-v3-base or ModernBERT-base, apart from the vocabulary."""
    from transformers import BertConfig, DebertaV2Config, ModernBertConfig

    common = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    if shape == "tiny":
        return BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, **common)
    if shape == "modernbert-base":
        ends = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
        return ModernBertConfig(bos_token_id=ends["cls_token_id"], eos_token_id=ends["sep_token_id"], **ends, **common)
    return DebertaV2Config(
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        relative_attention=True,
        position_buckets=256,
        max_relative_positions=-1,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        **common,
    )


def rungs_of(hf: Path, labels: list[str], texts: list[str], threads: int) -> dict[str, Rung]:
    """Returns the package's pipeline in float32 and bf16, each with the fastest of its batch sizes."""
    import torch
    from gliclass import GLiClassModel, ZeroShotClassificationPipeline
    from transformers import AutoTokenizer

    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(hf)
    rungs = {}
    for name, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        model = GLiClassModel.from_pretrained(hf, dtype=dtype).eval()
        pipe = ZeroShotClassificationPipeline(model, tokenizer, device="cpu", progress_bar=False)

        def run(texts: list[str], pipe: object = pipe, size: int = 1) -> list[list[float]]:
            rows = pipe(texts, labels, batch_size=size, return_hierarchical=True)
            return [[row[label] for label in labels] for row in rows]

        run(texts[:1])  # warms up
        some = texts[: max(BATCHES)]
        seconds = {size: timed(lambda some, size=size, run=run: run(some, size=size), some)[0] for size in BATCHES}
        size = min(seconds, key=seconds.__getitem__)
        shown = ", ".join(f"{size}: {took:.2f} s" for size, took in seconds.items())
        print(f"package {name}, {len(some)} texts in batches of {shown}", file=sys.stderr)
        rungs[f"package {name}, batches of {size}"] = lambda texts, size=size, run=run: run(texts, size=size)
        lengths = {text: len(pipe.pipe.prepare_inputs([text], labels, True)["input_ids"][0]) for text in texts}
        rungs[f"products alone, {name}"] = products(model.config.encoder_config, lengths, len(labels), dtype)
    return rungs


def products(config: object, lengths: dict[str, int], labels: int, dtype: object) -> Rung:
    """Returns a rung that only computes the matrix products of an encoder's layers; its scores mean nothing."""
    import torch

    width, heads, inner = config.hidden_size, config.num_attention_heads, config.intermediate_size
    gated = config.model_type == "modernbert"
    distances = 2 * config.position_buckets if config.model_type == "deberta-v2" else 0
    drawn = lambda *shape: torch.randn(*shape).to(dtype)  # noqa: E731
    weights = [drawn(width, columns) for columns in (3 * width, width, 2 * inner if gated else inner)]
    narrow, of_distances = drawn(inner, width), drawn(heads, width // heads, distances)

    @torch.no_grad()
    def run(texts: list[str]) -> list[list[float]]:
        for text in texts:
            length = lengths[text]
            states, activated = drawn(length, width), drawn(length, inner)
            query, scores = drawn(heads, length, width // heads), drawn(heads, length, length)
            for _ in range(config.num_hidden_layers):
                for weight in weights:
                    states @ weight
                activated @ narrow
                query @ query.transpose(1, 2)
                scores @ query
                if distances:
                    query @ of_distances
                    query @ of_distances
        return [[0.0] * labels for _ in texts]

    return run


def of_topicmill(made: Path, labels: list[str], mode: str, name: str, threads: int, texts: list[str]) -> Rung:
    """Returns topicmill's rung with the faster of its budgets, as `bench autotune` chooses one."""
    from topicmill import Labeler

    engine, precision = ENGINES[name]
    settings = {"engine": engine, "precision": precision, "threads": threads, "background": "none"}
    some, seconds, rungs = texts[: max(BATCHES)], {}, {}
    for budget in BUDGETS:
        labeler = Labeler(made, labels, "cpu", mode, batch_tokens=budget, **settings).load()
        rungs[budget] = lambda texts, labeler=labeler: labeler.scores(texts).tolist()
        rungs[budget](some)  # OpenVINO compiles for each new shape
        seconds[budget] = timed(rungs[budget], some)[0]
    shown = ", ".join(f"{budget}: {took:.2f} s" for budget, took in seconds.items())
    print(f"{name}, {len(some)} texts, tokens in a batch {shown}", file=sys.stderr)
    return rungs[min(seconds, key=seconds.__getitem__)]


def compare(rungs: dict[str, Rung], texts: list[str], repeats: int) -> dict[str, float]:
    """Runs all rungs in turn, prints a table, and returns the shortest seconds of each."""
    for run in rungs.values():
        run(texts)  # warms up
    seconds, scores = {name: [] for name in rungs}, {}
    for _ in range(repeats):
        for name, run in rungs.items():
            took, scores[name] = timed(run, texts)
            seconds[name].append(took)
    times = {name: min(taken) for name, taken in seconds.items()}
    first = next(iter(times))
    print(f"| rung | posts/s | times as fast as {first} | same best label | all seconds |\n|---|---|---|---|---|")
    best = {name: [row.index(max(row)) for row in rows] for name, rows in scores.items()}
    for name, taken in times.items():
        same = sum(a == b for a, b in zip(best[name], best[first], strict=True))
        each = ", ".join(f"{took:.2f}" for took in seconds[name])
        print(f"| {name} | {len(texts) / taken:.2f} | {times[first] / taken:.2f} | {same} of {len(texts)} | {each} |")
    sys.stdout.flush()
    return times


def timed(run: Rung, texts: list[str]) -> tuple[float, list[list[float]]]:
    """Returns seconds and scores of a run."""
    start = time.perf_counter()
    scores = run(texts)
    return time.perf_counter() - start, scores


def parse() -> argparse.Namespace:
    """Returns the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for checkpoints and model folders")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES[:2], metavar="SHAPE")
    parser.add_argument("--make", action="store_true", help="only make the folders")
    parser.add_argument("--nli", type=Path, metavar="MADE", help="a model folder of tools/random_model.py's bart-large")
    parser.add_argument("--nli-posts", type=int, default=4, metavar="N", help="texts for the NLI model [4]")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="NDJSON with title and selftext [made-up texts]")
    parser.add_argument("--posts", type=int, default=32, metavar="N", help="texts [32]")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each rung [3]")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
