"""BERT and RoBERTa for sequence classification as an ONNX graph, built node by node from the checkpoint's weights.

R is the number of rows, W the width, D `hidden_size`. The layers are in the `blocks` module.

| part | shape | computation |
|---|---|---|
| embedding | [R, W] → [R, W, D] | token + position + type, normalized; RoBERTa has one type, added to its positions |
| layer | [R, W, D] → [R, W, D] | self-attention to real ids, feed-forward |
| last layer | [R, W, D] → [R, 1, D] | the same for the first token, the only state that the head reads |
| head | [R, 1, D] → [R, classes] | dense, tanh, dense |

The head of a BERT trained by tools/train.py reads the mean of all tokens instead. The last layer is then like the
others, and the head is one linear layer on the normalized mean.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from transformers import BertConfig, RobertaConfig

from models.batch import Batch
from models.blocks import (
    Projections,
    add_and_norm,
    attention,
    attention_of_one,
    feed_forward,
    head,
    mean_head,
    norm,
)
from models.graph import Graph
from training.mean import MEAN, POOLING

HEADS = {
    "bert": ("bert.pooler.dense", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
}


def build(
    config: BertConfig | RobertaConfig, tensors: Mapping[str, np.ndarray], device: str, precision: str
) -> onnx.ModelProto:
    """Builds the whole classifier for one device, with its weights in one precision."""
    graph = Graph(tensors, precision)
    batch = Batch.of(device, graph)
    kind = "bert" if config.model_type == "bert" else "roberta"  # XLM-RoBERTa's weights are named like RoBERTa's

    of_mean = getattr(config, POOLING, None) == MEAN
    values = embedding(graph, config, kind, batch)
    for layer in range(config.num_hidden_layers - (not of_mean)):
        name = f"{kind}.encoder.layer.{layer}"
        names = projections(name)
        mixed = attention(graph, values, values, names, config.num_attention_heads, lengths=batch.lengths())
        values = rest_of_layer(graph, config, name, mixed, values)
    if of_mean:
        logits = mean_head(graph, values, batch.mask(), "classifier")
        return graph.model(logits, len(tensors["classifier.bias"]))

    name = f"{kind}.encoder.layer.{config.num_hidden_layers - 1}"
    first = graph.op("Slice", values, graph.integers(0), graph.integers(1), graph.integers(1))
    mixed = attention_of_one(graph, first, values, projections(name), config.num_attention_heads, batch.mask())
    state = rest_of_layer(graph, config, name, mixed, first)

    dense, out = HEADS[kind]
    return graph.model(head(graph, state, dense, out), len(tensors[f"{out}.bias"]))


def embedding(graph: Graph, config: BertConfig | RobertaConfig, kind: str, batch: Batch) -> str:
    """Adds the token, position and type embeddings."""
    name = f"{kind}.embeddings"
    tokens = graph.op("Gather", graph.weight(f"{name}.word_embeddings.weight"), batch.ids())
    table = graph.tensors[f"{name}.position_embeddings.weight"]
    types = f"{name}.token_type_embeddings.weight"
    if kind == "bert":
        tokens = graph.op("Add", tokens, graph.op("Gather", graph.weight(types), batch.type_ids()))
    else:
        # RoBERTa's positions start after the padding id, and all its tokens have type 0.
        table = table[config.pad_token_id + 1 :] + graph.tensors[types][0]
    places = graph.op("Gather", graph.made_weight(f"{name}.places", table), batch.positions())
    return norm(graph, graph.op("Add", tokens, places), f"{name}.LayerNorm", config.layer_norm_eps)


def rest_of_layer(graph: Graph, config: BertConfig | RobertaConfig, name: str, mixed: str, values: str) -> str:
    """Adds the rest of a layer after its attention: the residual and the feed-forward block."""
    out, epsilon = f"{name}.attention.output", config.layer_norm_eps
    values = add_and_norm(graph, mixed, f"{out}.dense", values, f"{out}.LayerNorm", epsilon)
    up, down = f"{name}.intermediate.dense", f"{name}.output.dense"
    return feed_forward(graph, values, up, down, f"{name}.output.LayerNorm", epsilon)


def projections(name: str) -> Projections:
    """Returns the names of an attention's linear layers."""
    own = f"{name}.attention.self"
    return Projections(f"{own}.query", f"{own}.key", f"{own}.value", f"{name}.attention.output.dense")
