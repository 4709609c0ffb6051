"""Graphs without a model, each odd in one way: what a program must take, or refuse with a reason.

Each counts the tokens of a row and multiplies the number with one weight a label.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8


def write_odd(folder: Path) -> None:
    """Write every odd graph into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / "three.onnx", labels=3)
    save(folder / "thousand.onnx", labels=1000)
    save(folder / "half.onnx", labels=3, kind=TensorProto.FLOAT16)
    save(folder / "int8.onnx", labels=3, kind=TensorProto.INT8)
    save(folder / "fixed.onnx", labels=3, shape=(1, 16))
    save(folder / "flat.onnx", labels=1, flat=True)


def save(
    path: Path,
    labels: int,
    kind: int = TensorProto.FLOAT,
    shape: tuple = ("rows", "width"),
    flat: bool = False,
) -> None:
    """Write one graph with logits [rows, labels] of a type."""
    weights = np.linspace(-1, 1, labels, dtype=np.float32).reshape(1, labels)
    nodes = [
        helper.make_node("Cast", ["attention_mask"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["real", "axis"], ["count"], keepdims=1),
        helper.make_node("MatMul", ["count", "weights"], ["plain"]),
        helper.make_node("Cast", ["plain"], ["typed"], to=kind),
        helper.make_node("Squeeze", ["typed", "axis"], ["logits"])
        if flat
        else helper.make_node("Identity", ["typed"], ["logits"]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")]
    width = [] if flat else [labels]
    outputs = [helper.make_tensor_value_info("logits", kind, [shape[0], *width])]
    constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array([1]), "axis")]
    graph = helper.make_graph(nodes, "odd", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model)
    onnx.save(model, path)
