#!/usr/bin/env python3
"""The default model beside sentence-transformers with the same weights, in turns on one core.

    taskset -c 1 PYTHON benches/embedding/run.py TOPICMILL MODEL TEXTS FOLDER [ROUNDS]

The weights are read back out of MODEL/model.onnx into a checkpoint in FOLDER, for sentence-transformers, and with
eight-bit activations too into MODEL's copy there, for topicmill. TEXTS has a JSON object with `id` and `text` a line.
The time of sentence-transformers is that of `encode` alone, at its default batch size, the texts sorted by length
as it does; that of topicmill is the whole process: loading, embedding the labels, scoring, writing. Needs what
tools/requirements.txt lists, and sentence-transformers.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

INT8 = "model_int8.onnx"


def main() -> int:
    """Prepare once, measure in turns, print a table."""
    program, model, texts, folder = (Path(argument).resolve() for argument in sys.argv[1:5])
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 3
    torch.set_num_threads(1)
    hf, made = folder / "hf", folder / "model"
    if not (made / INT8).exists():
        weights = weights_of(model / "model.onnx")
        checkpoint(model, weights, hf)
        eight_bits(model, made)
    peer = sentence_transformer(hf, json.loads((model / "config.json").read_text())["zero_shot"]["max_length"])
    rows = [json.loads(line)["text"] for line in texts.read_text().splitlines()]

    def ours(precision: str):
        out = folder / f"{precision}.ndjson"
        where = ["--model", made, "--device", "cpu", "--precision", precision, "--threads", "1"]
        subprocess.run([program, "--quiet", "score", texts, out, "--overwrite", *where], check=True, cwd=folder)

    runs = {
        "sentence-transformers": lambda: peer.encode(rows, show_progress_bar=False),
        "topicmill, shipped file": lambda: ours("fp32"),
        "topicmill, int8 file": lambda: ours("int8"),
    }
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    first = best["sentence-transformers"]
    print("| what | s | posts/s | against sentence-transformers |\n|---|---|---|---|")
    for name, seconds in best.items():
        print(f"| {name} | {seconds:.2f} | {len(rows) / seconds:.1f} | {first / seconds:.2f} |")
    compare(folder)
    return 0


def weights_of(path: Path) -> dict[str, np.ndarray]:
    """The checkpoint's tensors: integers times their scales, products by the path of their node."""
    graph = onnx.load(path).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def scaled(name: str) -> np.ndarray:
        return stored[f"{name}_q"].astype(np.float32) * stored[f"{name}_s"]

    weights = {}
    for name, values in stored.items():
        if name.startswith("m.") and name.endswith("_q"):
            weights[name[2:-2]] = scaled(name[:-2])
        elif name.startswith("m.") and not name.endswith("_s"):
            weights[name[2:]] = values
    for node in graph.node:
        if node.op_type == "MatMul" and f"{node.input[1]}_q" in stored:
            layer = re.sub(r"^/m/|/MatMul.*$", "", node.name).replace("/", ".")
            weights[f"{layer}.weight"] = scaled(node.input[1]).T.copy()
    return weights


def checkpoint(model: Path, weights: dict[str, np.ndarray], out: Path) -> None:
    """A Hugging Face folder of the weights."""
    from transformers import BertConfig, BertModel

    told = json.loads((model / "config.json").read_text())
    left_out = ("zero_shot", "architectures", "transformers_version", "dtype", "model_type")
    config = BertConfig(**{key: value for key, value in told.items() if key not in left_out})
    bert = BertModel(config, add_pooling_layer=False)
    bert.load_state_dict({name: torch.from_numpy(values.copy()) for name, values in weights.items()})
    bert.save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(model / name, out / name)


def eight_bits(model: Path, out: Path) -> None:
    """A copy of the model's folder with a second graph, its products in int8."""
    import onnxruntime

    shutil.copytree(model, out, dirs_exist_ok=True)
    # Integers that are scaled at load are no weights yet: let the runtime work them out first.
    folded = out / "folded.onnx"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    onnxruntime.InferenceSession(model / "model.onnx", options, providers=["CPUExecutionProvider"])
    quantize_dynamic(
        folded,
        out / INT8,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT, "MatMulConstBOnly": True},
    )
    folded.unlink()


def sentence_transformer(hf: Path, max_tokens: int):
    """Mean pooling and unit length over the checkpoint."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    words = Transformer(str(hf), max_seq_length=max_tokens)
    width = words.get_embedding_dimension()
    return SentenceTransformer(modules=[words, Pooling(width, pooling_mode="mean"), Normalize()], device="cpu")


def compare(folder: Path) -> None:
    """How far the two files of topicmill are apart."""
    kinds = {}
    for name in ("fp32", "int8"):
        lines = (folder / f"{name}.ndjson").read_text().splitlines()
        kinds[name] = [list(json.loads(line)["scores"].values()) for line in lines]
    exact, rough = np.array(kinds["fp32"]), np.array(kinds["int8"])
    same = (exact.argmax(1) == rough.argmax(1)).mean()
    print(f"int8: same label on {same:.1%} of the texts, scores off by at most {np.abs(exact - rough).max():.3f}")


if __name__ == "__main__":
    sys.exit(main())
