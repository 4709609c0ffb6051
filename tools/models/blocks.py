"""The layers of BART, BERT and RoBERTa, each built from few nodes, for which ONNX Runtime has fast kernels.

R is the number of rows, W the width of the batch, D the width of the model, and F the inner width; N heads have H = D /
N numbers each. A name is the prefix of a weight's name in the checkpoint: `NAME.weight` and `NAME.bias`.

| block | in | out | nodes |
|---|---|---|---|
| `linear` | [R, W, D] | [R, W, F] | MatMul; the following node adds the bias |
| `attention` | queries and memory [R, W, D] | [R, W, D] without bias | 4 MatMul around MultiHeadAttention |
| `attention_of_one` | one query per row, memory | [R, 1, D] without bias | two products with the memory, not four |
| `feed_forward` | [R, W, D] | [R, W, D] | MatMul, BiasGelu, MatMul, `add_and_norm` |
| `add_and_norm` | values and residual [R, W, D] | [R, W, D] | Add, Add, LayerNormalization |

LayerNormalization sums in float32, even in a float16 graph. ONNX Runtime would fuse it with the preceding Add
into SkipLayerNormalization, which is slower on a CPU and, unless set to strict, less exact on CUDA. The manifest
therefore disables this fusion.
"""

from dataclasses import dataclass

import numpy as np

from models.graph import Graph


@dataclass(frozen=True)
class Projections:
    """Names of the four linear layers of an attention."""

    query: str
    key: str
    value: str
    out: str


def linear(graph: Graph, values: str, name: str) -> str:
    """Multiplies by a linear layer's weight, without its bias."""
    return graph.op("MatMul", values, graph.weight(f"{name}.weight", np.transpose, "^T"), name=name)


def biased_linear(graph: Graph, values: str, name: str) -> str:
    """Adds a linear layer, with its bias."""
    return graph.op("Add", linear(graph, values, name), graph.weight(f"{name}.bias"))


def norm(graph: Graph, values: str, name: str, epsilon: float) -> str:
    """Adds a layer normalization over the last axis."""
    weights = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
    return graph.op("LayerNormalization", values, *weights, axis=-1, epsilon=epsilon)


def add_and_norm(graph: Graph, values: str, bias: str, residual: str, name: str, epsilon: float) -> str:
    """Normalizes the sum of `values`, the bias of the linear layer `bias` that produced them, and the residual."""
    with_bias = graph.op("Add", values, graph.weight(f"{bias}.bias"))
    return norm(graph, graph.op("Add", with_bias, residual), name, epsilon)


def feed_forward(graph: Graph, values: str, up: str, down: str, norm_name: str, epsilon: float) -> str:
    """Adds two linear layers with Gelu (by erf) between them, their residual and normalization."""
    inner = graph.fused("BiasGelu", linear(graph, values, up), graph.weight(f"{up}.bias"))
    return add_and_norm(graph, linear(graph, inner, down), down, values, norm_name, epsilon)


def attention(
    graph: Graph,
    queries: str,
    memory: str,
    names: Projections,
    heads: int,
    lengths: str = "",
    causal: bool = False,
) -> str:
    """Adds attention of every row's queries over its memory.

    With `lengths`, queries attend only to the real ids of their row; a two-dimensional mask would exclude CUDA's
    fastest kernels. With `causal`, a query attends only to keys up to its own position. Padding is on the right, so
    only padding attends to padding, and no mask is needed.
    """
    bias = graph.made_weight(
        f"{names.query}+key+value.bias",
        np.concatenate([graph.tensors[f"{name}.bias"] for name in (names.query, names.key, names.value)]),
    )
    inputs = [
        linear(graph, queries, names.query),
        linear(graph, memory, names.key),
        linear(graph, memory, names.value),
        bias,
    ]
    if lengths:
        inputs.append(lengths)
    mixed = graph.fused("MultiHeadAttention", *inputs, num_heads=heads, unidirectional=int(causal))
    return linear(graph, mixed, names.out)


def attention_of_one(graph: Graph, query: str, memory: str, names: Projections, heads: int, mask: str) -> str:
    """Adds attention of one query per row, without projecting the memory onto keys and values. The result is exact.

    A head's scores are q · (M Wk)ᵀ = (q Wkᵀ) · Mᵀ, and its weighted sum is p (M Wv) = (p M) Wv. The projections are
    thus applied to the one row of the query instead of the W rows of the memory M. The key's bias adds the same number
    to every score of a head, so the softmax cancels it. The value's bias is added after the sum, because probabilities
    sum to 1. `mask` is [R, 1, W], added to the scores.
    """
    width = len(graph.tensors[f"{names.query}.bias"])
    size = width // heads
    absorbed_key = graph.weight(
        f"{names.key}.weight", lambda weight: weight.reshape(heads, size, width) * size**-0.5, "/heads"
    )
    absorbed_value = graph.weight(
        f"{names.value}.weight", lambda weight: weight.reshape(heads, size, width).transpose(0, 2, 1), "/heads^T"
    )

    by_head = graph.op("Reshape", biased_linear(graph, query, names.query), graph.integers(-1, heads, size))
    by_head = graph.op("Transpose", by_head, perm=[1, 0, 2])  # [N, R, H]
    reach = graph.op("MatMul", by_head, absorbed_key, name=f"{names.key}/heads")  # [N, R, D]
    reach = graph.op("Transpose", reach, perm=[1, 0, 2])  # [R, N, D]
    scores = graph.op("Add", graph.fused("FusedMatMul", reach, memory, transB=1), mask)  # [R, N, W]
    mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), memory)  # [R, N, D]
    mixed = graph.op("Transpose", mixed, perm=[1, 0, 2])  # [N, R, D]
    values = graph.op("MatMul", mixed, absorbed_value, name=f"{names.value}/heads")  # [N, R, H]
    values = graph.op("Reshape", graph.op("Transpose", values, perm=[1, 0, 2]), graph.integers(-1, 1, width))
    values = graph.op("Add", values, graph.weight(f"{names.value}.bias"))  # [R, 1, D]
    return linear(graph, values, names.out)


def head(graph: Graph, state: str, dense: str, out: str) -> str:
    """Adds the classification head on one state per row: [R, 1, D] in, logits [R, classes] out, all in float32."""
    state = graph.op("Squeeze", state, graph.integers(1))
    if graph.dtype != np.float32:
        state = graph.op("Cast", state, to=1)
    for name in (dense, out):
        weight = graph.full_weight(f"{name}.weight", np.transpose)
        state = graph.op("MatMul", state, weight, name=f"{name}/head")
        state = graph.op("Add", state, graph.full_weight(f"{name}.bias"))
        if name == dense:
            state = graph.op("Tanh", state)
    return state


def mean_head(graph: Graph, states: str, mask: str, out: str) -> str:
    """Adds a linear classifier on the normalized mean of the states: [R, W, D] in, logits [R, classes] out.

    The softmax of the mask is 1 / length for each real token and 0 for padding.
    """
    mean = graph.op("MatMul", graph.op("Softmax", mask, axis=-1), states)
    mean = graph.op("Squeeze", mean, graph.integers(1))
    if graph.dtype != np.float32:
        mean = graph.op("Cast", mean, to=1)
    square = graph.op("ReduceSum", graph.op("Mul", mean, mean), graph.integers(-1), keepdims=1)
    unit = graph.op("Div", mean, graph.op("Sqrt", square))
    logits = graph.op("MatMul", unit, graph.full_weight(f"{out}.weight", np.transpose), name=f"{out}/head")
    return graph.op("Add", logits, graph.full_weight(f"{out}.bias"))
