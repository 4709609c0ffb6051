#!/usr/bin/env python3
"""The default model beside every back end of sentence-transformers with the same weights, in turns, one thread each.

    PYTHON benches/embedding/peers.py TOPICMILL MODEL TEXTS FOLDER [ROUNDS]

TEXTS has a JSON object with `text`, or with `title` and `selftext`, a line. Each way gives a label to each text; the
table says how many are those of torch in float32. Of both sides the time counts that loading and the labels do not
take: of sentence-transformers that of `encode`, of topicmill what TEXTS takes more than its first text alone. It is
processor time, so that other work on the machine matters less. FOLDER gets the checkpoint. Needs what run.py needs,
and `sentence-transformers[onnx,openvino]`. A back end that cannot be had is left out, with a line on stderr.
"""

import json
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

from run import checkpoint, sentence_transformer, weights_of  # first, because it says how many threads there are

import numpy as np
import torch

PIPELINE = Path(__file__).resolve().parents[2] / "pipelines/sixteen-topics.toml"
TEMPLATE = "This text is about {}."
"""As in the pipeline file."""
THREADS = {"INFERENCE_NUM_THREADS": "1", "NUM_STREAMS": "1"}
PRECISIONS = ("fp32", "bf16", "int8-g32", "int8-g128")


def main() -> int:
    """Prepare once, measure in turns, print a table."""
    program, model, file, folder = (Path(argument).resolve() for argument in sys.argv[1:5])
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 3
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    hf, told = folder / "hf", json.loads((model / "config.json").read_text())["zero_shot"]
    if not hf.exists():
        checkpoint(model, weights_of(model / "model.onnx"), hf)
    rows = [text_of(json.loads(line)) for line in file.read_text().splitlines()]
    texts = folder / "texts.ndjson"
    texts.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    (folder / "first.ndjson").write_text(json.dumps({"text": rows[0]}) + "\n")
    learned = json.loads((model / "label_vectors.json").read_text())["labels"]
    labels = np.array([label["vector"] for label in learned], np.float32)
    runs = peers(hf, told["max_length"], rows, labels)
    order = [label["texts"][0] for label in learned]
    for precision in PRECISIONS:
        for engine in ("onnxruntime", "openvino") if precision == "fp32" else ("openvino",):
            runs[f"topicmill, {engine}, {precision}"] = ours(program, model, folder, engine, precision, order)
    best, said = dict.fromkeys(runs, float("inf")), {}
    for turn in range(rounds):
        for name, run in runs.items():
            seconds, said[name] = run()
            best[name] = min(best[name], seconds)
            print(f"turn {turn + 1}: {seconds:.1f} s, {name}", file=sys.stderr)
    exact = said["sentence-transformers, torch, float32"]
    fastest = min(best[name] for name in best if not name.startswith("topicmill"))
    print("| what | s | texts/s | against the fastest peer | labels as float32 |\n|---|---|---|---|---|")
    for name, seconds in best.items():
        same = sum(a == b for a, b in zip(said[name], exact, strict=True))
        print(f"| {name} | {seconds:.2f} | {len(rows) / seconds:.1f} | {fastest / seconds:.2f} | {same} of {len(rows)} |")
    return 0


def text_of(row: dict) -> str:
    """The text of a line, as the program makes it."""
    return row["text"] if "text" in row else f"{row['title']}\n\n{row['selftext']}".strip()


def peers(hf: Path, window: int, rows: list[str], labels: np.ndarray) -> dict[str, Callable]:
    """What sentence-transformers can do with the checkpoint."""
    whole = sentence_transformer(hf, window)
    made = {"torch, float32": lambda: whole, "torch, bfloat16": lambda: sentence_transformer(hf, window).bfloat16()}
    saved = hf.parent / "saved"
    if not saved.exists():
        whole.save(str(saved))

    def backend(name: str, **settings: object) -> Callable:
        from sentence_transformers import SentenceTransformer

        return lambda: SentenceTransformer(str(saved), backend=name, device="cpu", model_kwargs=settings)

    made["onnx, float32"] = backend("onnx", export=True, provider="CPUExecutionProvider")
    for precision, told in (("f32", "float32"), ("bf16", "bfloat16")):
        config = THREADS | {"INFERENCE_PRECISION_HINT": precision}
        made[f"openvino, {told}"] = backend("openvino", export=True, ov_config=config)
    try:
        from optimum.intel import OVWeightQuantizationConfig

        weights = OVWeightQuantizationConfig(bits=8)
        made["openvino, weights in int8"] = backend(
            "openvino", export=True, ov_config=THREADS, quantization_config=weights
        )
    except ImportError as problem:
        print(f"left out: {problem}", file=sys.stderr)
    runs = {}
    for name, make in made.items():
        try:
            model = make()
            model.encode(rows[:32], show_progress_bar=False)
        except Exception as problem:  # of many kinds, by what is not installed
            print(f"left out: {name}: {problem}", file=sys.stderr)
            continue
        runs[f"sentence-transformers, {name}"] = lambda model=model: encoded(model, rows, labels)
    return runs


def encoded(model, rows: list[str], labels: np.ndarray) -> tuple[float, list[int]]:
    """Seconds and labels of sentence-transformers."""
    began = time.process_time()
    vectors = model.encode(rows, show_progress_bar=False, convert_to_numpy=False, convert_to_tensor=True)
    seconds = time.process_time() - began
    return seconds, (vectors.float().cpu().numpy() @ labels.T).argmax(1).tolist()


def ours(program: Path, model: Path, folder: Path, engine: str, precision: str, order: list[str]) -> Callable:
    """Seconds and labels of topicmill."""
    topics = tomllib.loads(PIPELINE.read_text(encoding="utf-8"))["topic"]
    words = {topic["slug"]: topic["label"] for topic in topics}

    def score(texts: str) -> float:
        out = folder / "scored.ndjson"
        flags = ["--model", model, "--device", "cpu", "--engine", engine, "--precision", precision, "--threads", "1"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [program, "--quiet", "score", folder / texts, out, "--overwrite", *flags]
        subprocess.run(command, check=True, cwd=folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def run() -> tuple[float, list[int]]:
        loading, seconds = score("first.ndjson"), score("texts.ndjson")
        lines = (folder / "scored.ndjson").read_text().splitlines()
        scores = [json.loads(line)["scores"] for line in lines]
        place = [order.index(TEMPLATE.format(words[name])) for name in scores[0]]
        return seconds - loading, [place[np.argmax(list(row.values()))] for row in scores]

    return run


if __name__ == "__main__":
    sys.exit(main())
