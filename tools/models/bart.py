"""BART for sequence classification as an ONNX graph, built node by node from the checkpoint's weights.

R is the number of rows, W the width, D `d_model`. The layers are in the `blocks` module.

| part | shape | computation |
|---|---|---|
| embedding | [R, W] → [R, W, D] | token + position, normalized; encoder and decoder share the token table |
| encoder layer | [R, W, D] → [R, W, D] | self-attention to real ids, feed-forward |
| decoder layer | [R, W, D] → [R, W, D] | causal self-attention, attention over the encoder, feed-forward |
| last decoder layer | [R, W, D] → [R, 1, D] | the same for the last real id, the only state that the head reads |
| head | [R, 1, D] → [R, classes] | dense, tanh, dense |

The reference reads the state at a pair's last `</s>`. A pair ends with this token and has no other special token at its
end, so the state is at `length - 1`. Both attentions of the last decoder layer have one query per row, so their keys
and values are not computed.
"""

import math
from collections.abc import Mapping

import numpy as np
import onnx
from transformers import BartConfig

from models.batch import Batch
from models.blocks import Projections, add_and_norm, attention, attention_of_one, feed_forward, head, norm
from models.graph import Graph

EPSILON = 1e-5
POSITION_OFFSET = 2  # rows of the position table that BART never uses


def build(config: BartConfig, tensors: Mapping[str, np.ndarray], device: str, precision: str) -> onnx.ModelProto:
    """Builds the whole classifier for one device, with its weights in one precision."""
    graph = Graph(tensors, precision)
    batch = Batch.of(device, graph)

    encoded = embedding(graph, config, "model.encoder", batch.ids(), batch.positions())
    for layer in range(config.encoder_layers):
        encoded = encoder_layer(graph, config, f"model.encoder.layers.{layer}", encoded, batch)

    start = config.decoder_start_token_id
    decoded = embedding(graph, config, "model.decoder", batch.decoder_ids(start), batch.positions())
    for layer in range(config.decoder_layers - 1):
        decoded = decoder_layer(graph, config, f"model.decoder.layers.{layer}", decoded, encoded, batch)
    name = f"model.decoder.layers.{config.decoder_layers - 1}"
    state = last_decoder_layer(graph, config, name, decoded, encoded, batch)

    logits = head(graph, state, "classification_head.dense", "classification_head.out_proj")
    return graph.model(logits, len(tensors["classification_head.out_proj.bias"]))


def embedding(graph: Graph, config: BartConfig, name: str, ids: str, positions: str) -> str:
    """Adds the token and position embeddings of the encoder or the decoder."""
    scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
    tokens = graph.op("Gather", graph.weight("model.shared.weight", lambda weight: weight * scale), ids)
    table = graph.weight(f"{name}.embed_positions.weight", lambda weight: weight[POSITION_OFFSET:])
    placed = graph.op("Add", tokens, graph.op("Gather", table, positions))
    return norm(graph, placed, f"{name}.layernorm_embedding", EPSILON)


def encoder_layer(graph: Graph, config: BartConfig, name: str, values: str, batch: Batch) -> str:
    """Adds one encoder layer."""
    names, heads = projections(f"{name}.self_attn"), config.encoder_attention_heads
    mixed = attention(graph, values, values, names, heads, lengths=batch.lengths())
    values = add_and_norm(graph, mixed, names.out, values, f"{name}.self_attn_layer_norm", EPSILON)
    return feed_forward_of(graph, name, values)


def decoder_layer(graph: Graph, config: BartConfig, name: str, values: str, encoded: str, batch: Batch) -> str:
    """Adds one decoder layer, except the last."""
    names, heads = projections(f"{name}.self_attn"), config.decoder_attention_heads
    mixed = attention(graph, values, values, names, heads, causal=True)
    values = add_and_norm(graph, mixed, names.out, values, f"{name}.self_attn_layer_norm", EPSILON)
    names = projections(f"{name}.encoder_attn")
    mixed = attention(graph, values, encoded, names, heads, lengths=batch.lengths())
    values = add_and_norm(graph, mixed, names.out, values, f"{name}.encoder_attn_layer_norm", EPSILON)
    return feed_forward_of(graph, name, values)


def last_decoder_layer(graph: Graph, config: BartConfig, name: str, values: str, encoded: str, batch: Batch) -> str:
    """Adds the last decoder layer, for the last real id of each row."""
    heads, state = config.decoder_attention_heads, batch.last(values, config.d_model)
    for part, memory in (("self_attn", values), ("encoder_attn", encoded)):
        names = projections(f"{name}.{part}")
        mixed = attention_of_one(graph, state, memory, names, heads, batch.mask())
        state = add_and_norm(graph, mixed, names.out, state, f"{name}.{part}_layer_norm", EPSILON)
    return feed_forward_of(graph, name, state)


def feed_forward_of(graph: Graph, name: str, values: str) -> str:
    """Adds the feed-forward block of a layer."""
    return feed_forward(graph, values, f"{name}.fc1", f"{name}.fc2", f"{name}.final_layer_norm", EPSILON)


def projections(name: str) -> Projections:
    """Returns the names of an attention's linear layers."""
    return Projections(*(f"{name}.{part}_proj" for part in ("q", "k", "v", "out")))
