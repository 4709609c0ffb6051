"""Graphs of the families that are not built here: exported as they are, left for ONNX Runtime to fuse at load.

The exporter's graph computes shapes as it runs, so on CUDA some of it stays on the host.
"""

import onnx
import torch
from onnxruntime.transformers.float16 import convert_float_to_float16

from models.inputs import feed
from models.source import Source
from models.texts import VECTORS
from parity.export import exported


def build(source: Source, precision: str) -> onnx.ModelProto:
    """The classifier with the inputs that the model itself has."""
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if source.has_types else [])]
    pairs = [source.pair(premise, hypothesis) for premise, hypothesis in VECTORS]
    example = {name: torch.from_numpy(values) for name, values in feed(names, pairs, source.filling).items()}
    graph = exported(source.model, example)
    return convert_float_to_float16(graph, keep_io_types=True) if precision == "fp16" else graph
