"""Weights that lie on a grid, stored in as few bits as the grid has: the graph computes the rest when it is loaded.

In goes a graph in single precision; out comes one with the same weights. A matrix whose rows or columns are whole
numbers from -127 to 127 times a scale is stored in int8, an embedding whose groups are whole numbers from -7 to 7 times
one in half a byte. ONNX Runtime computes what follows from constants alone once, at the load: a batch takes as long as
before, and the load of six small layers 0.8 s in place of 0.3 s.
"""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GROUP = 64  # columns of an embedding that share a scale
SMALLEST = 4096  # numbers in a matrix that is worth it
GRAIN = 1e-4  # how far from the grid, in its steps, single precision may put a weight

Nodes = list[onnx.NodeProto]


def packed(model: onnx.ModelProto) -> bool:
    """Store what lies on a grid in fewer bits, in place; returns whether there was any."""
    graph, nodes, stored = model.graph, [], []
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor) if tensor.data_type == TensorProto.FLOAT else np.empty(0)
        found = pack(tensor.name, array) if array.ndim == 2 else None
        if found is None:
            stored.append(tensor)
            continue
        nodes += found[0]
        stored += found[1]
    if not nodes:
        return False
    del graph.initializer[:]
    graph.initializer.extend(stored)
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
    return True


def pack(name: str, array: np.ndarray) -> tuple[Nodes, list[onnx.TensorProto]] | None:
    """The nodes that give the weight `name`, and what they read; none where it lies on no grid."""
    if min(array.shape) < 2 or array.size < SMALLEST:
        return None
    for by_row in (True, False):
        if whole := in_whole_numbers(array if by_row else array.T, 127):
            numbers, scales = whole if by_row else (whole[0].T, whole[1].T)
            return eight_bits(name, numbers, scales)
    if array.shape[1] % GROUP == 0 and (whole := in_whole_numbers(array.reshape(-1, GROUP), 7, half)):
        return four_bits(name, whole[0].reshape(array.shape), whole[1].reshape(len(array), -1, 1))
    return None


def half(scales: np.ndarray) -> np.ndarray:
    """The nearest numbers that half precision has."""
    return scales.astype(np.float16).astype(np.float32)


def in_whole_numbers(
    rows: np.ndarray, most: int, rounded: Callable[[np.ndarray], np.ndarray] = np.asarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Whole numbers [rows, columns] from -most to most and scales [rows, 1]; none where a row is on no such grid."""
    for part in (rows[:8], rows):  # most weights are on none, and eight rows show it
        scales = rounded(np.abs(part).max(1, keepdims=True) / np.float32(most))
        scales = np.where(scales == 0, np.float32(1), scales)
        steps = part / scales
        numbers = np.rint(steps)
        if np.abs(steps - numbers).max() > GRAIN or np.abs(numbers).max() > most:
            return None
    return numbers.astype(np.int8), scales.astype(np.float32)


def eight_bits(name: str, numbers: np.ndarray, scales: np.ndarray) -> tuple[Nodes, list[onnx.TensorProto]]:
    """Numbers times scales."""
    whole = f"{name}/numbers"
    nodes = [
        helper.make_node("Cast", [whole], [f"{whole}:0"], name=f"{whole}/float", to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{whole}:0", f"{name}/scales"], [name], name=f"{name}/scaled"),
    ]
    return nodes, [constant(whole, numbers), constant(f"{name}/scales", scales)]


def four_bits(name: str, numbers: np.ndarray, scales: np.ndarray) -> tuple[Nodes, list[onnx.TensorProto]]:
    """The left half of the columns in the upper half of each byte, the right half in the lower; scales by groups."""
    left, right = np.split((numbers + 8).astype(np.uint8), 2, axis=1)
    whole, made = f"{name}/numbers", []

    def op(kind: str, *values: str, **attributes: object) -> str:
        out = f"{name}/{len(made)}:0"
        made.append(helper.make_node(kind, values, [out], name=f"{name}/{len(made)}", **attributes))
        return out

    both = op("Cast", whole, to=TensorProto.FLOAT)
    upper = op("Floor", op("Mul", both, f"{name}/sixteenth"))
    lower = op("Sub", both, op("Mul", upper, f"{name}/sixteen"))
    table = op("Sub", op("Concat", upper, lower, axis=1), f"{name}/eight")
    groups = op("Reshape", table, f"{name}/by_group")
    scaled = op("Mul", groups, op("Cast", f"{name}/scales", to=TensorProto.FLOAT))
    made.append(helper.make_node("Reshape", [scaled, f"{name}/shape"], [name], name=f"{name}/scaled"))
    return made, [
        constant(whole, left * 16 + right),
        constant(f"{name}/scales", scales.astype(np.float16)),
        constant(f"{name}/sixteenth", np.array(1 / 16, np.float32)),
        constant(f"{name}/sixteen", np.array(16, np.float32)),
        constant(f"{name}/eight", np.array(8, np.float32)),
        constant(f"{name}/by_group", np.array([len(numbers), -1, GROUP], np.int64)),
        constant(f"{name}/shape", np.array(numbers.shape, np.int64)),
    ]


def constant(name: str, array: np.ndarray) -> onnx.TensorProto:
    """A stored array."""
    return numpy_helper.from_array(np.ascontiguousarray(array), name)
