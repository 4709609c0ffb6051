"""Quantizes graphs to int8 weights: one scale per column, activations scaled at run time."""

import tempfile
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from models.export import clear_notes

GLICLASS_HEADS = ("_projector/", "/scorer/", "/calibrator/")


def quantized(path: Path) -> onnx.ModelProto:
    """Returns the graph at `path` with int8 weights.

    The following remain in float32: the head, which is cheap and sensitive to errors; weights that are not matrices,
    because they have no columns to scale; and products of two activations.
    """
    graph = onnx.load(path, load_external_data=False)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        target = Path(scratch) / "int8.onnx"
        quantize_dynamic(
            path,
            target,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=left_alone(graph),
            use_external_data_format=True,
            # The type of values that shape inference cannot determine: without a default, a large graph is rejected.
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT, "MatMulConstBOnly": True},
        )
        result = onnx.load(target)
    clear_notes(result)
    return result


def left_alone(graph: onnx.ModelProto) -> list[str]:
    """Returns the names of the products that remain in float32."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.graph.initializer}
    nodes = graph.graph.node
    products = [node for node in nodes if node.op_type == "MatMul"]
    left = [node.name for node in products if node.name.endswith("/head") or ranks.get(node.input[1]) != 2]
    heads = [node.name for node in nodes if any(part in node.name for part in GLICLASS_HEADS)]
    return left + heads + [f"{name}_MatMul" for name in heads]  # the quantizer's names of converted Gemm nodes
