"""Compares graphs with torch. A model folder is complete only when each of its graphs has been verified here."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from models import GraphError
from models.inputs import Pair, feed
from models.source import Source, one_line

# The largest logit error that is allowed when a graph is made. In float32, only the order of additions differs.
# For fewer bits, the limit is in standard deviations of torch's logits. The error of an int8 graph does not show
# whether the graph is slightly wrong, but int8 graphs are made from the float32 graph, which has been verified.
FP32_ERROR = 1e-4
SPREADS = {"fp16": 0.05, "int8": 1.5}

# Fusions that a session must not make: see `blocks`.
DISABLED_OPTIMIZERS = ["SkipLayerNormFusion"]
# Operators whose result the CPU needs before the GPU can continue, or that compute shapes.
HOST_OPS = frozenset({"Shape", "Size", "Range", "NonZero", "ConstantOfShape"})


@dataclass(frozen=True)
class Proof:
    """Pairs, and the float32 logits that torch computes for each pair alone.

    The manifest's pairs come first; `logits` is [pairs, classes].
    """

    pairs: list[Pair]
    logits: np.ndarray

    def limit(self, precision: str) -> float:
        """Returns the largest error allowed for a graph of this precision."""
        return FP32_ERROR if precision == "fp32" else SPREADS[precision] * float(self.logits.std())

    def tolerance(self, precision: str, error: float) -> float:
        """Returns the error allowed on other processors, given the graph's error on this one."""
        limit = self.limit(precision)
        return limit if precision == "fp32" else min(limit, 3 * error)


def proof_of(source: Source) -> Proof:
    """Returns the source's pairs with their logits."""
    pairs = source.proof_pairs()
    return Proof(pairs, np.concatenate([source.logits(pair) for pair in pairs]))


def open_session(path: Path, threads: int = 0) -> onnxruntime.InferenceSession:
    """Loads the graph on the CPU with the manifest's settings."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("optimization.disable_specified_optimizers", ";".join(DISABLED_OPTIMIZERS))
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def verify(source: Source, path: Path, proof: Proof, limit: float) -> float:
    """Runs each pair alone, then all but the longest in one padded batch; returns the largest error.

    Raises `GraphError` if the error exceeds the limit.
    """
    try:
        onnx.checker.check_model(path)
        session = open_session(path)
        error = max(batch_error(source, session, proof, batch) for batch in batches_of(len(proof.pairs)))
    except GraphError:
        raise
    except Exception as problem:  # the runtime raises many kinds of exceptions
        raise GraphError(f"{path.stem} does not run: {one_line(problem)}") from problem
    if not error <= limit:
        raise GraphError(f"{path.stem} is wrong: its logits are {error:.2g} off torch's; the limit is {limit:.2g}")
    return error


def batches_of(pairs: int) -> list[list[int]]:
    """Returns batches: each pair alone, then all but the last together."""
    return [*([index] for index in range(pairs)), list(range(pairs - 1))]


def batch_error(source: Source, session: onnxruntime.InferenceSession, proof: Proof, batch: list[int]) -> float:
    """Returns the largest difference in one batch; NaN counts as infinite."""
    names = [entry.name for entry in session.get_inputs()]
    inputs = feed(names, [proof.pairs[index] for index in batch], source.filling)
    (found,) = session.run(["logits"], inputs)
    expected = proof.logits[batch]
    if found.shape != expected.shape:
        raise GraphError(f"the graph returns logits {list(found.shape)}; torch returns {list(expected.shape)}")
    return float(np.nan_to_num(np.abs(found - expected), nan=np.inf).max())


def op_counts(graph: onnx.ModelProto) -> dict[str, int]:
    """Counts the nodes by operator, the most frequent first."""
    return dict(Counter(node.op_type for node in graph.graph.node).most_common())


def host_ops(graph: onnx.ModelProto) -> list[str]:
    """Returns the operators that would make a GPU wait."""
    return sorted(HOST_OPS.intersection(op_counts(graph)))
