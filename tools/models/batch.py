"""Values of a batch inside a graph: inputs for CUDA, otherwise computed from ids and lengths."""

import numpy as np

from models.graph import Graph, onnx_type
from models.inputs import INPUTS, MASKED


class Batch:
    """The values of a batch that a graph builder can use. Each is created once, on first use."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.made: dict[str, str] = {}

    def input(self, name: str) -> str:
        """Returns an input of the contract."""
        if name not in self.made:
            entry = INPUTS[name]
            self.made[name] = self.graph.input(name, entry.kind, [int(d) if d == "1" else d for d in entry.shape])
        return self.made[name]

    def ids(self) -> str:
        """Token ids, int64 [rows, width]."""
        return self.input("input_ids")

    def type_ids(self) -> str:
        """Token types, int64 [rows, width]."""
        return self.input("token_type_ids")

    def lengths(self) -> str:
        """Number of real ids of each row, int32 [rows]."""
        return self.input("lengths")

    @staticmethod
    def of(device: str, graph: Graph) -> "Batch":
        """Creates the batch for a `cpu` or `cuda` graph."""
        return {"cpu": CpuBatch, "cuda": CudaBatch}[device](graph)


class CpuBatch(Batch):
    """Computes every value from ids and lengths."""

    def positions(self) -> str:
        """Positions 0, 1, …, width - 1, int64 [width]."""
        if "positions" not in self.made:
            g = self.graph
            width = g.op("Gather", g.op("Shape", self.ids()), g.integer(1))
            self.made["positions"] = g.op("Range", g.integer(0), width, g.integer(1))
        return self.made["positions"]

    def decoder_ids(self, start: int) -> str:
        """Decoder ids, int64 [rows, width]: the start token, then the row's ids without the last."""
        g = self.graph
        first = g.op("Slice", self.ids(), g.integers(0), g.integers(-1), g.integers(1))
        return g.op("Pad", first, g.integers(0, 1, 0, 0), g.integer(start))

    def mask(self) -> str:
        """Returns the attention bias added to the scores: [rows, 1, width] in the graph's precision."""
        if "mask" not in self.made:
            g = self.graph
            lengths = g.op("Unsqueeze", self.long_lengths(), g.integers(1))
            real = g.op("Less", self.positions(), lengths)
            added = g.op("Where", real, g.number(0.0), g.number(MASKED))
            self.made["mask"] = g.op("Unsqueeze", added, g.integers(1))
        return self.made["mask"]

    def last(self, values: str, size: int) -> str:  # noqa: ARG002 - CudaBatch needs `size`
        """Selects the values of each row's last real id: [rows, width, size] in, [rows, 1, size] out."""
        g = self.graph
        where = g.op("Unsqueeze", g.op("Sub", self.long_lengths(), g.integer(1)), g.integers(1))
        return g.op("Unsqueeze", g.op("GatherND", values, where, batch_dims=1), g.integers(1))

    def long_lengths(self) -> str:
        """Returns the lengths as int64."""
        if "long_lengths" not in self.made:
            self.made["long_lengths"] = self.graph.op("Cast", self.lengths(), to=onnx_type(np.int64))
        return self.made["long_lengths"]


class CudaBatch(Batch):
    """Takes every value from inputs: no node computes a shape or an index."""

    def positions(self) -> str:
        """See `CpuBatch`."""
        return self.input("positions")

    def decoder_ids(self, start: int) -> str:  # noqa: ARG002 - the caller of the graph reads `start` from the manifest
        """See `CpuBatch`."""
        return self.input("decoder_ids")

    def mask(self) -> str:
        """See `CpuBatch`."""
        if self.graph.dtype == np.float32:
            return self.input("mask")
        if "half_mask" not in self.made:
            self.made["half_mask"] = self.graph.op("Cast", self.input("mask"), to=onnx_type(self.graph.dtype))
        return self.made["half_mask"]

    def last(self, values: str, size: int) -> str:
        """See `CpuBatch`."""
        g = self.graph
        rows = g.op("Reshape", values, g.integers(-1, size))
        return g.op("Unsqueeze", g.op("Gather", rows, self.input("last"), axis=0), g.integers(1))
