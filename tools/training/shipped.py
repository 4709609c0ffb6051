"""Reads the weights of a topicmill embedding model from its ONNX graph.

Input is the folder of the default model. Output is the same network in torch, ready for training, without a download.
Int8 weights become the numbers that the graph computes with: the integer times its scale.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from transformers import BertConfig, BertModel

from models import InputError

PREFIX = "m."


def read_shipped(folder: Path) -> BertModel:
    """Returns the network of an embedding folder in float32. Raises `InputError`."""
    path = folder / "model.onnx"
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        graph = onnx.load(path).graph
    except FileNotFoundError as problem:
        raise InputError(f"`{folder}` has no `{Path(problem.filename).name}`: pass a model folder") from None
    except Exception as problem:  # protobuf raises its own exceptions
        raise InputError(f"`{path}` cannot be read: {problem}") from None
    if config.get("model_type") != "bert" or "zero_shot" not in config:
        raise InputError(f"`{folder}` is not an embedding model of the BERT family: pass a Hugging Face folder instead")
    model = BertModel(BertConfig(**config), add_pooling_layer=False)
    wanted = dict(model.named_parameters())
    weights = weights_of(graph)
    lacking = sorted(set(wanted) - set(weights))
    if lacking:
        raise InputError(f"`{path}` lacks `{lacking[0]}`: it was not exported like the default model")
    model.load_state_dict({name: torch.from_numpy(weights[name].copy()) for name in wanted}, strict=False)
    return model.eval()


def weights_of(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Returns weights by their torch names. The exporter only numbers matrices; the nodes have their names."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    made = dict(stored)
    for node in graph.node:
        # A stored weight is cast, then scaled.
        if node.op_type in ("Cast", "Mul") and node.input[0] in made and node.input[0] not in graph_inputs(graph):
            made[node.output[0]] = (
                made[node.input[0]].astype(np.float32)
                if node.op_type == "Cast"
                else made[node.input[0]] * made[node.input[1]]
            )
    weights = {name.removeprefix(PREFIX): array for name, array in made.items() if name.startswith(PREFIX)}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in made:
            parts = node.output[0].strip("/").split("/")  # m/encoder/layer.0/attention/self/query/MatMul_output_0
            name = ".".join(parts[1:-1])
            weights[f"{name}.weight"] = made[node.input[1]].T
    return weights


def graph_inputs(graph: onnx.GraphProto) -> set[str]:
    """Returns the names of the graph's inputs."""
    return {entry.name for entry in graph.input}


def write_shipped(model: BertModel, template: Path, out: Path) -> None:
    """Writes a folder like `template` with the weights of `model`, with matrices in int8.

    The graph is the one in `template`: each column of a matrix and each row of an embedding has one scale.
    """
    content = onnx.load(template / "model.onnx")
    graph = content.graph
    weights = {f"{PREFIX}{name}": tensor.detach().float().numpy() for name, tensor in model.named_parameters()}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1].startswith("onnx::"):
            parts = node.output[0].strip("/").split("/")
            weights[node.input[1]] = weights[".".join([parts[0], *parts[1:-1], "weight"])].T
    for tensor in graph.initializer:
        name = tensor.name.removesuffix("_q").removesuffix("_s")
        if name not in weights:
            continue
        array = weights[name]
        if tensor.name.endswith(("_q", "_s")):
            scales = np.abs(array).max(1 if "embeddings" in name else 0, keepdims=True) / 127
            scales[scales == 0] = 1
            rounded = np.rint(array / scales).astype(np.int8)
            array = rounded if tensor.name.endswith("_q") else scales.astype(np.float32)
        if list(array.shape) != list(tensor.dims):
            raise InputError(f"`{tensor.name}` has a different shape in `{template}`: train with the same base")
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
    out.mkdir(parents=True, exist_ok=True)
    onnx.save(content, out / "model.onnx")
    for name in ("LICENSE", "NOTICE", "tokenizer.json", "tokenizer_config.json"):
        if (template / name).is_file() and out != template:
            shutil.copyfile(template / name, out / name)
    config = json.loads((template / "config.json").read_text(encoding="utf-8"))
    # Label vectors that were learned with other weights no longer fit.
    config["zero_shot"].pop("label_vectors", None)
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
