"""The weights of a topicmill embedding model, read back out of its ONNX graph.

In goes the folder of the model that ships; out comes the same network in torch, ready to be trained. Weights that are
stored in eight bits become what the graph computes with: the whole number times its scale. So no download is needed.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from transformers import BertConfig, BertModel

from models.errors import InputError

PREFIX = "m."


def read_shipped(folder: Path) -> BertModel:
    """The network of an embedding folder in single precision. Raises `InputError`."""
    path = folder / "model.onnx"
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        graph = onnx.load(path).graph
    except FileNotFoundError as problem:
        raise InputError(f"`{folder}` has no `{Path(problem.filename).name}`: give the folder of a model") from None
    except Exception as problem:  # protobuf raises its own kinds
        raise InputError(f"`{path}` cannot be read: {problem}") from None
    if config.get("model_type") != "bert" or "zero_shot" not in config:
        raise InputError(f"`{folder}` is no embedding model of the BERT family: give a Hugging Face folder instead")
    model = BertModel(BertConfig(**config), add_pooling_layer=False)
    wanted = dict(model.named_parameters())
    weights = weights_of(graph)
    lacking = sorted(set(wanted) - set(weights))
    if lacking:
        raise InputError(f"`{path}` lacks `{lacking[0]}`: it was not exported as the model that ships was")
    model.load_state_dict({name: torch.from_numpy(weights[name].copy()) for name in wanted}, strict=False)
    return model.eval()


def weights_of(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Weights by their names in torch. The exporter numbered the matrices of linear layers: their nodes name them."""
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
    """Names of what the graph is fed."""
    return {entry.name for entry in graph.input}
