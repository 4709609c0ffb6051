"""Reads the weights of a topicmill embedding model from its ONNX graph.

Input is the folder of the default model. Output is the same network in torch, ready for training, without a download.
Int8 weights become the numbers that the graph computes with: the integer times its scale.
"""

import json
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
    made, inputs = dict(stored), {entry.name for entry in graph.input}
    for node in graph.node:
        # A stored weight is cast, then scaled.
        if node.op_type in ("Cast", "Mul") and node.input[0] in made and node.input[0] not in inputs:
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

