"""The CUDA kernels of one version of ONNX Runtime, and the nodes of a graph that need them.

`cuda_kernels.txt` in this folder lists the kernels. `placement.py` makes it from the placement that the runtime
chooses. A line is a node of the loaded graph: its operator, the types of its inputs, and the types of its outputs.
"""

from collections import Counter
from pathlib import Path

import onnx
from onnx import TensorProto, helper, shape_inference

# Fusions that a session must not make: see `blocks`.
DISABLED_OPTIMIZERS = ["SkipLayerNormFusion"]

# Operators whose result the CPU needs before the GPU can continue, or that compute shapes.
HOST_OPS = frozenset({"Shape", "Size", "Range", "NonZero", "ConstantOfShape"})

LIST = Path(__file__).with_name("cuda_kernels.txt")
VERSION = "# ONNX Runtime "


def signatures(graph: onnx.ModelProto) -> Counter[str]:
    """Counts the nodes by operator and types."""
    return Counter(signature_of_each(graph).values())


def signature_of_each(graph: onnx.ModelProto) -> dict[str, str]:
    """Returns the operator and the types of each node, by name."""
    types = types_of(graph)
    found = {}
    for node in graph.graph.node:
        operator = f"{node.domain}:{node.op_type}" if node.domain else node.op_type
        given, made = ([types.get(name, "none") for name in names] for names in (node.input, node.output))
        while given and given[-1] == "none":  # trailing optional inputs that are absent
            given.pop()
        found[node.name] = f"{operator} {' '.join(given)} -> {' '.join(made)}"
    return found


def types_of(graph: onnx.ModelProto) -> dict[str, str]:
    """Returns the type of every named value."""
    numbers = {tensor.name: tensor.data_type for tensor in graph.graph.initializer}
    inferred = shape_inference.infer_shapes(without_weights(graph)).graph
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        numbers[value.name] = value.type.tensor_type.elem_type
    for node in graph.graph.node:
        for name in node.output:
            if not numbers.get(name):  # ONNX Runtime's own operators, which onnx does not know
                numbers[name] = cast_to(node) or numbers[node.input[0]]
    return {name: TensorProto.DataType.Name(number).lower() for name, number in numbers.items() if name}


def without_weights(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy with the weights as inputs, because type inference would copy the weights too."""
    constants = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in graph.graph.initializer]
    inputs = [*graph.graph.input, *constants]
    light = helper.make_graph(graph.graph.node, "types", inputs, graph.graph.output)
    return helper.make_model(light, opset_imports=graph.opset_import, ir_version=graph.ir_version)


def cast_to(node: onnx.NodeProto) -> int:
    """Returns the type that a node casts to; 0 for any other node."""
    return next((entry.i for entry in node.attribute if node.op_type == "Cast" and entry.name == "to"), 0)


def read_list(path: Path = LIST) -> tuple[str, set[str]]:
    """Returns the version of ONNX Runtime and its kernels."""
    lines = path.read_text(encoding="utf-8").splitlines()
    version = next(line.removeprefix(VERSION).split(",")[0] for line in lines if line.startswith(VERSION))
    return version, {line for line in lines if line and not line.startswith("#")}


def without_kernel(graph: onnx.ModelProto) -> list[str]:
    """Returns the nodes of a graph that have no CUDA kernel, according to the list."""
    _, kernels = read_list()
    return sorted(set(signatures(graph)) - kernels)
