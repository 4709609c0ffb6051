"""`manifest.toml` of an embedding folder: the hash of each file, and texts with their vectors.

Input is a finished folder. Output is its manifest, with which the program detects a changed or damaged file, a
tokenizer that yields different ids, and a processor or library with different results. The vectors come from the stored
graph, without ONNX Runtime's optimizations.
"""

import json
from pathlib import Path

import numpy as np
import onnx

from models import GraphError, InputError
from models.inputs import MASKED
from models.manifest import FILE, FORMAT, sha256, toml, two_digits
from models.texts import VECTORS
from parity.reference import short, versions
from training.embed import Embedder

GRAPH = "model.onnx"
TOLERANCE = 1e-4  # of a component of a vector; the error of a wrong graph is a thousand times larger
DEVICES = ("cpu", "cuda")  # with the same file, which topicmill runs on both even without a manifest
# Files other than graphs that `topicmill model pull` downloads. A manifest with more files would reject the download.
FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "label_vectors.json",
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "NOTICE",
)
INTEGER_KINDS = ("MatMulInteger", "ConvInteger", "QLinearMatMul", "DynamicQuantizeLinear", "QuantizeLinear")


def write_proof(folder: Path, base: Path) -> float | None:
    """Writes the manifest of a folder made from `base`; returns the error of the optimized graph.

    This error is the largest difference from the vectors of the stored graph. Writes nothing and returns None if the
    graph is in a subfolder, is not the only graph, or computes with integers: topicmill checks such graphs itself.
    Raises `GraphError` if the error is too large.
    """
    if [path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx")] != [GRAPH]:
        return None
    graph = onnx.load(folder / GRAPH, load_external_data=False)
    if any(node.op_type in INTEGER_KINDS for node in graph.graph.node):
        return None
    embedder, plain = Embedder(folder), Embedder(folder, optimized=False)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    texts = [text for text, _ in VECTORS]
    encodings = [embedder.tokenizer.encode(text) for text in texts]
    vectors = np.concatenate([plain.raw([encoding.ids]) for encoding in encodings])
    rows = [encoding.ids for encoding in encodings]
    found = [embedder.raw(rows), *(embedder.raw([row]) for row in rows)]
    error = float(np.nan_to_num(np.abs(found[0] - vectors), nan=np.inf).max())
    error = max(error, *(float(np.abs(one - vectors[place]).max()) for place, one in enumerate(found[1:])))
    if not error <= TOLERANCE:
        raise GraphError(f"`{folder / GRAPH}`: ONNX Runtime returns vectors that are {error:.2g} off the graph's own")
    content = {
        "format": FORMAT,
        "kind": "embedding",
        "source": base.resolve().name,
        "family": config.get("model_type", "unknown"),
        "classes": [],
        "max_tokens": most_tokens(embedder, config),
        "vocab_size": int(config.get("vocab_size") or embedder.tokenizer.get_vocab_size()),
        "made_with": versions(),
        "files": {name: sha256(folder / name) for name in sorted(FILES) if (folder / name).is_file()}
        | {name: sha256(folder / name) for name in sorted({GRAPH, *outside_of(graph)})},
        "contract": {"output": embedder.output, "pad_id": int(config.get("pad_token_id") or 0), "masked": MASKED},
        "graphs": {f"{device}-fp32": graph_table(graph, device, sorted(embedder.inputs), error) for device in DEVICES},
        "vectors": [
            {
                "premise": text,
                "input_ids": encoding.ids,
                **({"token_type_ids": encoding.type_ids} if "token_type_ids" in embedder.inputs else {}),
                "logits": [short(number) for number in vector],
            }
            for text, encoding, vector in zip(texts, encodings, vectors, strict=True)
        ],
    }
    (folder / FILE).write_text(toml(content), encoding="utf-8")
    return error


def most_tokens(embedder: Embedder, config: dict) -> int:
    """Returns the maximum ids for the graph; topicmill uses fewer if another file in the folder sets a lower limit."""
    return int(embedder.head.get("max_length") or config.get("max_position_embeddings") or 512)


def outside_of(graph: onnx.ModelProto) -> set[str]:
    """Returns the names of the graph's weight files. Raises `InputError` if one is in a different folder."""
    outside = {
        entry.value
        for tensor in graph.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    if any("/" in name for name in outside):
        raise InputError(f"`{GRAPH}` has weights in a different folder: put them next to it")
    return outside


def graph_table(graph: onnx.ModelProto, device: str, inputs: list[str], error: float) -> dict:
    """Returns the manifest table for the graph on one device."""
    return {
        "file": GRAPH,
        "data": sorted(outside_of(graph)),
        "device": device,
        "precision": "fp32",
        "inputs": inputs,
        "tolerance": TOLERANCE,
        "error": two_digits(error),
        "depends_on_batch": False,
    }
