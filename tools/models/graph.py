"""An ONNX graph under construction: nodes, weights in the graph's precision, inputs.

Values are named by strings, as in ONNX. The module is independent of any model.
"""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models import InputError

OPSET = 17
IR_VERSION = 8  # the lowest that has opset 17: any ONNX Runtime that topicmill accepts reads it
CONTRIB = "com.microsoft"
PRECISIONS = {"fp32": np.float32, "fp16": np.float16}


class Graph:
    """Nodes and initializers in the order in which they were added.

    `tensors` are the model's weights by name in the Hugging Face checkpoint. The graph contains only the weights that a
    node uses.
    """

    def __init__(self, tensors: Mapping[str, np.ndarray], precision: str):
        self.tensors = tensors
        self.dtype = PRECISIONS[precision]
        self.inputs: list[onnx.ValueInfoProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def input(self, name: str, kind: type[np.generic], shape: list[str]) -> str:
        """Declares an input; its dimensions are names."""
        self.inputs.append(helper.make_tensor_value_info(name, onnx_type(kind), shape))
        return name

    def op(self, kind: str, *values: str, domain: str = "", name: str = "", **attributes: object) -> str:
        """Adds a node with one output and returns the output's name."""
        name = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, values, [f"{name}:0"], name=name, domain=domain, **attributes))
        return f"{name}:0"

    def fused(self, kind: str, *values: str, **attributes: object) -> str:
        """Adds a node with an ONNX Runtime contrib operator."""
        return self.op(kind, *values, domain=CONTRIB, **attributes)

    def weight(self, name: str, change: Callable[[np.ndarray], np.ndarray] | None = None, mark: str = "") -> str:
        """Adds a weight from the checkpoint in the graph's precision, after `change`; `mark` is appended to its
        name."""
        stored = f"{name}{mark}"
        if stored not in self.initializers:
            tensor = self.tensors[name]
            self.add_initializer(stored, (change(tensor) if change else tensor).astype(self.dtype))
        return stored

    def made_weight(self, name: str, values: np.ndarray) -> str:
        """Adds a weight computed from several weights in the checkpoint, in the graph's precision."""
        if name not in self.initializers:
            self.add_initializer(name, values.astype(self.dtype))
        return name

    def full_weight(self, name: str, change: Callable[[np.ndarray], np.ndarray] | None = None) -> str:
        """Adds a float32 weight, whatever the graph's precision."""
        stored = f"{name}.full"
        if stored not in self.initializers:
            tensor = self.tensors[name]
            self.add_initializer(stored, (change(tensor) if change else tensor).astype(np.float32))
        return stored

    def integers(self, *values: int) -> str:
        """Adds a constant int64 vector: shapes, axes, bounds."""
        return self.constant(np.array(values, np.int64))

    def integer(self, value: int) -> str:
        """Adds a scalar int64 constant."""
        return self.constant(np.array(value, np.int64))

    def number(self, value: float) -> str:
        """Adds a scalar constant in the graph's precision."""
        return self.constant(np.array(value, self.dtype))

    def constant(self, array: np.ndarray) -> str:
        """Adds a constant, stored once for all uses."""
        name = f"constant_{array.dtype}_{array.shape}_{array.tolist()}".replace(" ", "")
        if name not in self.initializers:
            self.add_initializer(name, array)
        return name

    def add_initializer(self, name: str, array: np.ndarray) -> None:
        """Stores an array under an unused name."""
        if not np.isfinite(array).all():
            raise InputError(f"the weight `{name}` has values that {array.dtype} cannot hold")
        self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)

    def model(self, output: str, classes: int) -> onnx.ModelProto:
        """Returns the finished model; `output` becomes `logits`, float32 [rows, classes]."""
        last = helper.make_node("Identity", [output], ["logits"], name="logits")
        graph = helper.make_graph(
            [*self.nodes, last],
            "topicmill",
            self.inputs,
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", classes])],
            list(self.initializers.values()),
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="topicmill")


def onnx_type(kind: type[np.generic]) -> int:
    """Returns ONNX's number for a numpy type."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(kind))
