#!/usr/bin/env python3
"""Compares GLiClass in its own package with topicmill, on models with random weights and base-sized encoders.

    .venv-tools/bin/python benches/ladder/one_pass.py FOLDER [--posts 32] [--threads N] [--repeats 3]

FOLDER keeps the checkpoints and the model folders made of them. Speed does not depend on training. The package runs its
own pipeline with the fastest of its batch sizes, and topicmill runs with the faster of two token budgets. All rungs of
a shape alternate, and the shortest time of each counts. Needs what requirements/model-tools.txt lists, and the package
topicmill.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tools"), str(TOP / "benches")]
from common import texts as made_up
from rungs import timed

TOKENIZER = TOP / "models/minilm-reddit-topics/tokenizer.json"
TOKENS = ["<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>"]
NAMES = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
SHAPES = ("deberta-v2-base", "modernbert-base")
BATCHES = (1, 4, 8, 16)  # texts in a batch of the package
BUDGETS = (128, 512)  # padded tokens in a batch of topicmill: a text alone, or the default for two threads
ENGINES = (("onnxruntime", "fp32"), ("openvino", "fp32"), ("onnxruntime", "int8"), ("openvino", "bf16"))
Rung = Callable[[list[str]], list[list[float]]]


def main() -> None:
    """Prints a table for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for checkpoints and model folders")
    parser.add_argument("--posts", type=int, default=32, metavar="N", help="made-up texts of Reddit's lengths [32]")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each rung [3]")
    arguments = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": str(arguments.threads)}
    pipeline = tomllib.loads((TOP / "pipelines/sixteen-topics.toml").read_text(encoding="utf-8"))
    labels, texts = [topic["label"] for topic in pipeline["topic"]], made_up(arguments.posts)
    for shape in SHAPES:
        hf, made = arguments.folder / f"{shape}-hf", arguments.folder / f"gliclass-{shape}"
        if not made.exists():
            write_checkpoint(shape, hf)
            command = [sys.executable, TOP / "tools/model.py", hf, made, "--graphs", "cpu-fp32,cpu-int8"]
            subprocess.run(command, check=True)
        some = texts[: max(BATCHES)]
        rungs = {name: fastest(ways, some) for name, ways in ways_of(hf, made, labels, arguments.threads).items()}
        print(f"\n{shape}, {len(texts)} texts, {len(labels)} labels, {arguments.threads} threads\n", flush=True)
        compare(rungs, texts, arguments.repeats)


def write_checkpoint(shape: str, out: Path) -> None:
    """Writes a checkpoint with random weights."""
    import torch
    from gliclass import GLiClassModel, GLiClassModelConfig
    from transformers import DebertaV2Config, ModernBertConfig, PreTrainedTokenizerFast

    from parity.models import fill_weights

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER), **NAMES)
    tokenizer.add_tokens(TOKENS, special_tokens=True)
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    # Apart from the vocabulary, the encoders of deberta-v3-base and ModernBERT-base.
    if shape == "modernbert-base":
        start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
        ends = {"bos_token_id": start, "cls_token_id": start, "eos_token_id": end, "sep_token_id": end}
        encoder = ModernBertConfig(**ends, **sizes)
    else:
        distances = {"relative_attention": True, "position_buckets": 256, "max_relative_positions": -1}
        distances |= {"share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
        layers = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
        encoder = DebertaV2Config(norm_rel_ebd="layer_norm", type_vocab_size=0, **layers, **distances, **sizes)
    marks = dict(zip(("class", "text", "example"), tokenizer.convert_tokens_to_ids(TOKENS), strict=True))
    config = GLiClassModelConfig(
        encoder_config=encoder.to_dict(),
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


def ways_of(hf: Path, made: Path, labels: list[str], threads: int) -> dict[str, dict[str, Rung]]:
    """Returns the rungs, each with its batch sizes: the package in float32 and bf16, and topicmill's engines."""
    import torch
    from gliclass import GLiClassModel, ZeroShotClassificationPipeline
    from transformers import AutoTokenizer

    from topicmill import Labeler

    def run(texts: list[str], pipe: object, size: int) -> list[list[float]]:
        rows = pipe(texts, labels, batch_size=size, return_hierarchical=True)
        return [[row[label] for label in labels] for row in rows]

    torch.set_num_threads(threads)
    tokenizer, found = AutoTokenizer.from_pretrained(hf), {}
    for name, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        model = GLiClassModel.from_pretrained(hf, dtype=dtype).eval()
        pipe = ZeroShotClassificationPipeline(model, tokenizer, device="cpu", progress_bar=False)
        found[f"package {name}"] = {f"{size} texts": partial(run, pipe=pipe, size=size) for size in BATCHES}
    for engine, precision in ENGINES:
        settings = {"engine": engine, "precision": precision, "threads": threads, "background": "none"}
        labelers = {budget: Labeler(made, labels, "cpu", "multi", batch_tokens=budget, **settings) for budget in BUDGETS}
        found[f"topicmill {precision}, {engine}"] = {
            f"{budget} tokens": lambda texts, labeler=labeler.load(): labeler.scores(texts).tolist()
            for budget, labeler in labelers.items()
        }
    return found


def fastest(ways: dict[str, Rung], texts: list[str]) -> Rung:
    """Returns the fastest way; each runs once before, because OpenVINO compiles for each new shape."""
    seconds = {}
    for size, run in ways.items():
        run(texts)
        seconds[size] = timed(run, texts)[0]
    print(", ".join(f"{size}: {took:.2f} s" for size, took in seconds.items()), file=sys.stderr)
    return ways[min(seconds, key=seconds.__getitem__)]


def compare(rungs: dict[str, Rung], texts: list[str], repeats: int) -> None:
    """Runs all rungs in turn and prints a table."""
    seconds, best = {name: [] for name in rungs}, {}
    for turn in range(repeats + 1):
        for name, run in rungs.items():
            took, scores = timed(run, texts)
            best[name] = [row.index(max(row)) for row in scores]
            if turn:  # the first warms up
                seconds[name].append(took)
    first = next(iter(rungs))
    print(f"| rung | posts/s | times as fast as {first} | same best label | all seconds |\n|---|---|---|---|---|")
    for name, taken in seconds.items():
        same = sum(a == b for a, b in zip(best[name], best[first], strict=True))
        each, ratio = ", ".join(f"{took:.2f}" for took in taken), min(seconds[first]) / min(taken)
        print(f"| {name} | {len(texts) / min(taken):.2f} | {ratio:.2f} | {same} of {len(texts)} | {each} |", flush=True)


if __name__ == "__main__":
    main()
