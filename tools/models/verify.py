"""Whether a graph says what torch says: every graph passes here before it is written."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

from models import GraphError
from models.inputs import Pair, feed
from models.kernels import DISABLED_OPTIMIZERS, HOST_OPS
from models.source import Source, one_line
from models.texts import FILLER, HYPOTHESIS, VECTORS

# The largest error of a logit when a graph is made. In single precision sums are only made in another order; what
# fewer bits cost is told in spreads (standard deviations) of torch's own logits. Eight bits cannot be told from a
# slightly wrong graph by their error, but their graph is made from the one in single precision, which can.
FP32_ERROR = 1e-4
SPREADS = {"fp16": 0.05, "int8": 1.5}


@dataclass(frozen=True)
class Proof:
    """Pairs with the logits that torch gives each of them alone, in single precision.

    The first are those of the manifest; `logits` is [pairs, classes].
    """

    pairs: list[Pair]
    logits: np.ndarray

    def limit(self, precision: str) -> float:
        """The largest error that a graph of this precision may have."""
        return FP32_ERROR if precision == "fp32" else SPREADS[precision] * float(self.logits.std())

    def tolerance(self, precision: str, error: float) -> float:
        """What the same graph may be off where other processors round otherwise, its error here given."""
        limit = self.limit(precision)
        return limit if precision == "fp32" else min(limit, 3 * error)


def proof_of(source: Source) -> Proof:
    """The pairs of the manifest, then one of a tenth of the longest pair and one of all of it."""
    pairs = [source.pair(premise, hypothesis) for premise, hypothesis in VECTORS]
    pairs += [
        source.pair(FILLER * 200, HYPOTHESIS, limit) for limit in (source.max_tokens // 10 + 16, source.max_tokens)
    ]
    return Proof(pairs, np.concatenate([torch_logits(source, pair) for pair in pairs]))


@torch.no_grad()
def torch_logits(source: Source, pair: Pair) -> np.ndarray:
    """Logits [1, classes] of one pair alone."""
    types = {"token_type_ids": torch.tensor([pair.type_ids])} if source.has_types else {}
    return source.model(input_ids=torch.tensor([pair.ids]), **types).logits.numpy()


def open_session(path: Path, threads: int = 0) -> onnxruntime.InferenceSession:
    """The graph on the CPU, as the manifest says that it is to be loaded."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("optimization.disable_specified_optimizers", ";".join(DISABLED_OPTIMIZERS))
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def verify(source: Source, path: Path, proof: Proof, limit: float) -> float:
    """Run each pair alone, then all but the longest in one padded batch; returns the largest error.

    Raises `GraphError` where it exceeds the limit.
    """
    try:
        onnx.checker.check_model(path)
        session = open_session(path)
        error = max(batch_error(source, session, proof, batch) for batch in batches_of(len(proof.pairs)))
    except GraphError:
        raise
    except Exception as problem:  # the runtime raises its own kinds
        raise GraphError(f"{path.stem} does not run: {one_line(problem)}") from problem
    if not error <= limit:
        raise GraphError(f"{path.stem} is wrong: its logits are {error:.2g} off torch's, {limit:.2g} is allowed")
    return error


def batches_of(pairs: int) -> list[list[int]]:
    """Each pair alone, then all but the last together."""
    return [*([index] for index in range(pairs)), list(range(pairs - 1))]


def batch_error(source: Source, session: onnxruntime.InferenceSession, proof: Proof, batch: list[int]) -> float:
    """The largest difference in one batch; a value that is no number counts as infinitely wrong."""
    names = [entry.name for entry in session.get_inputs()]
    inputs = feed(names, [proof.pairs[index] for index in batch], source.filling)
    (found,) = session.run(["logits"], inputs)
    expected = proof.logits[batch]
    if found.shape != expected.shape:
        raise GraphError(f"a graph gives logits {list(found.shape)} where torch gives {list(expected.shape)}")
    return float(np.nan_to_num(np.abs(found - expected), nan=np.inf).max())


def op_counts(graph: onnx.ModelProto) -> dict[str, int]:
    """How many nodes there are of each kind, the most frequent first."""
    return dict(Counter(node.op_type for node in graph.graph.node).most_common())


def host_ops(graph: onnx.ModelProto) -> list[str]:
    """The kinds of node in the graph that a GPU would wait for."""
    return sorted(HOST_OPS.intersection(op_counts(graph)))
