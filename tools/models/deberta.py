"""Prepares DeBERTa-v2 for export: an attention without gathers, whose result is the same.

transformers gathers a score for each pair of tokens by the bucket of their distance, in each layer. Pairs of the same
distance are on a diagonal, so a matrix with a column for each distance only needs to be read with another row length.
`shifted` does this, B texts, H heads, W width:

| step | shape |
|---|---|
| scores of a token and a distance | [B, H, W, 2W]: column c is the distance of a key c − (W − 1) places later |
| flattened, without the first W − 1 values | [B, H, W · (2W − 1)] |
| rows of 2W − 1 values, of which the first W are kept | [B, H, W, W]: row i begins at column W − 1 − i |
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers.models.deberta_v2 import modeling_deberta_v2
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Encoder, DisentangledSelfAttention

from models.source import Source

FAMILY = "deberta-v2"
# Finite in half precision and in bf16, where the smallest float32 is infinite, and its product with 0 is NaN.
PADDING = -1e4


@contextmanager
def exportable(source: Source) -> Iterator[None]:
    """Replaces the attention of a DeBERTa-v2 source while the model is exported; other sources stay as they are."""
    config = getattr(source.config, "encoder_config", source.config)
    if config.model_type != FAMILY or not getattr(config, "relative_attention", False):
        yield
        return
    buckets = buckets_of(config, source.max_tokens)

    def attend(
        layer: DisentangledSelfAttention,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor,
        *_: object,
        rel_embeddings: torch.Tensor,
        **__: object,
    ) -> tuple[torch.Tensor, None]:
        return attended(layer, hidden_states, attention_mask, rel_embeddings, buckets), None

    originals = (DisentangledSelfAttention.forward, DebertaV2Encoder.get_attention_mask, DebertaV2Encoder.get_rel_pos)
    DisentangledSelfAttention.forward = attend
    DebertaV2Encoder.get_attention_mask = lambda _, mask: masked(mask)
    DebertaV2Encoder.get_rel_pos = lambda *_, **__: None
    try:
        yield
    finally:
        (
            DisentangledSelfAttention.forward,
            DebertaV2Encoder.get_attention_mask,
            DebertaV2Encoder.get_rel_pos,
        ) = originals


def buckets_of(config: object, most: int) -> torch.Tensor:
    """Returns the bucket of each distance from `most` down to `-most`.

    It is a table, because the formula rounds up a logarithm: an engine whose logarithm differs in the last bit would
    use a different bucket and return different logits.
    """
    distances, size = torch.arange(most, -most - 1, -1), getattr(config, "position_buckets", -1)
    if size <= 0:
        return distances
    longest = config.max_relative_positions if config.max_relative_positions > 0 else config.max_position_embeddings
    return modeling_deberta_v2.make_log_bucket_position(distances, size, longest).long()


def masked(mask: torch.Tensor) -> torch.Tensor:
    """Returns what is added to the scores [B, 1, 1, W]: padding is never attended to."""
    return (1.0 - mask[:, None, None, :].float()) * PADDING


def attended(
    layer: DisentangledSelfAttention,
    states: torch.Tensor,
    mask: torch.Tensor,
    embeddings: torch.Tensor,
    buckets: torch.Tensor,
) -> torch.Tensor:
    """Returns the attention's states [B, W, D] before its output matrix. `buckets` are those of `buckets_of`."""
    rows, width, heads = states.size(0), states.size(1), layer.num_attention_heads
    split = lambda part: part.view(part.size(0), part.size(1), heads, -1).transpose(1, 2)  # noqa: E731
    kinds = layer.pos_att_type
    scale = (layer.attention_head_size * (1 + ("c2p" in kinds) + ("p2c" in kinds))) ** -0.5
    query = split(layer.query_proj(states) * scale)
    key, value = split(layer.key_proj(states)), split(layer.value_proj(states))
    scores = query @ key.transpose(-1, -2)
    # Distances from W - 1 down to -W.
    most, embeddings = buckets.size(0) // 2, embeddings.unsqueeze(0)
    window, span = buckets[most + 1 - width : most + 1 + width], layer.pos_ebd_size
    if "c2p" in kinds:
        of_keys = split((layer.key_proj if layer.share_att_key else layer.pos_key_proj)(embeddings))
        places = window.clamp(-span, span - 1) + span
        scores = scores + shifted(query @ of_keys[:, :, places].transpose(-1, -2), width)
    if "p2c" in kinds:
        of_queries = split((layer.query_proj if layer.share_att_key else layer.pos_query_proj)(embeddings) * scale)
        places = (-window).clamp(-span, span - 1) + span
        scores = scores + shifted(key @ of_queries[:, :, places].transpose(-1, -2), width).transpose(-1, -2)
    found = (scores + mask).softmax(-1) @ value
    return found.transpose(1, 2).reshape(rows, width, -1)


def shifted(scores: torch.Tensor, width: int) -> torch.Tensor:
    """Returns the scores of pairs [B, H, W, W] from those of tokens and distances [B, H, W, 2W]."""
    flat = scores.flatten(2)[..., width - 1 : width - 1 + width * (2 * width - 1)]
    return flat.view(scores.size(0), scores.size(1), width, 2 * width - 1)[..., :width]
