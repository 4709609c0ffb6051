#!/usr/bin/env python3
"""Compares the default model with each backend of sentence-transformers on the same weights, with one thread each.

    PYTHON benches/embedding.py TOPICMILL MODEL TEXTS FOLDER [ROUNDS]

TEXTS is NDJSON with `text`, or with `title` and `selftext`. The weights are read from MODEL/model.onnx and written as a
checkpoint to FOLDER/hf. The second table counts the labels that match torch's in float32. Times are CPU seconds,
excluding loading. For sentence-transformers, this is the time in `encode`; for topicmill, it is the time to score TEXTS
minus the time to score only the first text.

Needs the packages in tools/requirements.txt and `sentence-transformers[onnx,openvino]`; missing backends are skipped.
"""

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path
from time import process_time

os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}

import numpy as np
import torch
from common import TOP, in_turns, timed

sys.path.insert(0, str(TOP / "tools"))
from training.embed import Embedder
from training.shipped import read_shipped
from training.words import read_labels

THREADS = {"INFERENCE_NUM_THREADS": "1", "NUM_STREAMS": "1"}
OURS = {"onnxruntime, fp32": ("onnxruntime", "fp32"), "openvino, fp32": ("openvino", "fp32"), "openvino, bf16": ("openvino", "bf16")}


def main() -> None:
    """Prepares once, measures in alternating rounds, and prints tables."""
    program, model, file, folder = (Path(argument).resolve() for argument in sys.argv[1:5])
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 3
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    hf = folder / "hf"
    if not hf.exists():
        read_shipped(model).save_pretrained(hf)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(model / name, hf / name)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    rows = [row["text"] if "text" in row else f"{row['title']}\n\n{row['selftext']}".strip() for row in lines]
    (folder / "texts.ndjson").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    (folder / "first.ndjson").write_text(json.dumps({"text": rows[0]}) + "\n")
    texts = [label.texts for label in read_labels(TOP / "pipelines/sixteen-topics.toml")]
    vectors = Embedder(model, 1).of_labels(texts).astype(np.float32)
    labels: dict[str, list[int]] = {}
    window = json.loads((model / "config.json").read_text())["zero_shot"]["max_length"]
    ways = {}
    for name, peer in peers(hf, window).items():
        ways[name] = lambda name=name, peer=peer: encoded(peer, rows, vectors, labels, name)
    order = [of_one[0] for of_one in texts]
    for name, (engine, precision) in OURS.items():
        where = ["--model", model, "--device", "cpu", "--precision", precision, "--threads", "1"]
        ways[f"topicmill, {name}"] = lambda name=f"topicmill, {name}", where=where, engine=engine: scored(
            [program, "--quiet", "score"], where, engine, folder, order, labels, name
        )
    in_turns(ways, rounds, len(rows))
    exact = labels["sentence-transformers, torch, float32"]
    print("\n| backend | labels equal to float32 |\n|---|---|")
    for name, found in labels.items():
        print(f"| {name} | {sum(a == b for a, b in zip(found, exact, strict=True))} of {len(rows)} |")


def peers(hf: Path, window: int) -> dict:
    """Returns the backends of sentence-transformers for the checkpoint."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import (
        Normalize,
        Pooling,
        Transformer,
    )

    def whole():
        words = Transformer(str(hf), max_seq_length=window)
        pooling = Pooling(words.get_embedding_dimension(), pooling_mode="mean")
        return SentenceTransformer(modules=[words, pooling, Normalize()], device="cpu")

    saved = hf.parent / "saved"
    if not saved.exists():
        whole().save(str(saved))
    backend = lambda name, **settings: SentenceTransformer(str(saved), backend=name, device="cpu", model_kwargs=settings)
    openvino = lambda precision: backend("openvino", export=True, ov_config=THREADS | {"INFERENCE_PRECISION_HINT": precision})
    made = {
        "torch, float32": whole,
        "torch, bfloat16": lambda: whole().bfloat16(),
        "onnx, float32": lambda: backend("onnx", export=True, provider="CPUExecutionProvider"),
        "openvino, float32": lambda: openvino("f32"),
        "openvino, bfloat16": lambda: openvino("bf16"),
    }
    found = {}
    for name, make in made.items():
        try:
            found[f"sentence-transformers, {name}"] = make()
        except Exception as problem:  # the type depends on what is missing
            print(f"skipped: {name}: {problem}", file=sys.stderr)
    return found


def encoded(peer, rows: list[str], vectors: np.ndarray, labels: dict, name: str) -> float:
    """Returns the CPU seconds of sentence-transformers; stores its labels in `labels`."""
    begun = process_time()
    found = peer.encode(rows, show_progress_bar=False, convert_to_numpy=False, convert_to_tensor=True)
    seconds = process_time() - begun
    labels[name] = (found.float().cpu().numpy() @ vectors.T).argmax(1).tolist()
    return seconds


def scored(command: list, where: list, engine: str, folder: Path, order: list, labels: dict, name: str) -> float:
    """Returns the CPU seconds of topicmill; stores its labels in `labels`."""
    out, environment = folder / "scored.ndjson", os.environ | {"TOPICMILL__CLASSIFY__ENGINE": engine}
    loading, seconds = (
        timed([*command, folder / texts, out, "--overwrite", *where], cwd=folder, env=environment)[1]
        for texts in ("first.ndjson", "texts.ndjson")
    )
    topics = tomllib.loads((TOP / "pipelines/sixteen-topics.toml").read_text(encoding="utf-8"))["topic"]
    words = {topic["slug"]: f"This text is about {topic['label']}." for topic in topics}
    scores = [json.loads(line)["scores"] for line in out.read_text().splitlines()]
    place = [order.index(words[slug]) for slug in scores[0]]
    labels[name] = [place[np.argmax(list(row.values()))] for row in scores]
    return seconds - loading


if __name__ == "__main__":
    main()
