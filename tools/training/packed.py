"""A BERT or MPNet encoder for a CPU: each matrix product runs once over all tokens of a step.

Input is rows of ids, or the states of a lower layer. Output is normalized vectors. Texts are grouped in blocks of
similar length, and only the attention runs per block. A few large products replace many small ones, because a
processor's bf16 units need large products; a step takes half the time of micro-batches.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import BertModel, MPNetModel

from models import InputError
from models.embedding import Embedding, read_embedding
from training.embed import GROWTH, micro_batches

Say = Callable[[str], None]
Layer = dict[str, tuple[torch.Tensor, torch.Tensor]]

BLOCK = 3000  # padded tokens in a block: attention needs memory for rows x heads x width x width
STEP = 6000  # tokens that are embedded together


FAMILIES = ("bert", "mpnet")


def read_packable(folder: Path, tokens: int) -> Embedding:
    """Reads a folder of sentence-transformers whose network `Packed` can compute. Raises `InputError`."""
    source = read_embedding(folder, tokens)
    family = source.model.config.model_type
    if family not in FAMILIES or source.pooling != "mean":
        raise InputError(
            f"`{folder}` is a {family} model with {source.pooling} pooling; use BERT or MPNet with mean pooling"
        )
    source.model.float()
    return source


@dataclass(frozen=True)
class Layout:
    """Positions of texts in the packed matrix: block by block, each text padded to the longest of its block."""

    blocks: list[list[int]]
    shapes: list[tuple[int, int]]
    real: list[torch.Tensor]
    masks: list[torch.Tensor | None]

    @property
    def sizes(self) -> list[int]:
        """Rows of the packed matrix in each block."""
        return [rows * width for rows, width in self.shapes]


def layout_of(lengths: list[int], dtype: torch.dtype, bias: Callable[[int], torch.Tensor] | None = None) -> Layout:
    """Groups texts of similar length. `bias` returns what MPNet adds to the scores [1, heads, width, width]."""
    blocks = list(micro_batches(range(len(lengths)), [range(length) for length in lengths], BLOCK, GROWTH))
    shapes = [(len(block), max(lengths[index] for index in block)) for block in blocks]
    real = [
        torch.arange(width) < torch.tensor([lengths[index] for index in block])[:, None]
        for block, (_, width) in zip(blocks, shapes, strict=True)
    ]
    masks = [None if one.all() else torch.where(one, 0.0, -1e4)[:, None, None, :] for one in real]
    if bias:
        masks = [bias(one.shape[1]) + (0.0 if mask is None else mask) for one, mask in zip(real, masks, strict=True)]
    return Layout(blocks, shapes, real, [None if mask is None else mask.to(dtype) for mask in masks])


def attention_of(layer: torch.nn.Module) -> tuple[list[torch.nn.Linear], torch.nn.Linear, torch.nn.LayerNorm]:
    """Returns a layer's attention by BERT's or MPNet's names: query, key and value; the output; its norm."""
    attention = layer.attention
    if hasattr(attention, "attn"):
        inner = attention.attn
        return [inner.q, inner.k, inner.v], inner.o, attention.LayerNorm
    inner, outer = attention.self, attention.output
    return [inner.query, inner.key, inner.value], outer.dense, outer.LayerNorm


class Packed:
    """The layers of `model`, computed in `dtype`. Gradients reach its weights, which may be float32."""

    def __init__(self, model: BertModel | MPNetModel, dtype: torch.dtype = torch.bfloat16):
        self.model, self.dtype, self.heads = model, dtype, model.config.num_attention_heads

    @torch.no_grad()
    def bias(self, width: int) -> torch.Tensor:
        """Returns MPNet's position bias [1, heads, width, width], which is not trained."""
        return self.model.encoder.compute_position_bias(torch.zeros(1, width, 1))

    def layout(self, lengths: list[int]) -> Layout:
        """Groups texts of similar length."""
        has_bias = hasattr(self.model.encoder, "compute_position_bias")
        return layout_of(lengths, self.dtype, self.bias if has_bias else None)

    def weights(self, first: int = 0, end: int | None = None) -> list[Layer]:
        """Returns the layers from `first` to before `end`, cast to `dtype`; query, key and value are one matrix."""
        cast = lambda module: (module.weight.to(self.dtype), module.bias.to(self.dtype))  # noqa: E731
        layers = []
        for layer in self.model.encoder.layer[first:end]:
            states, attended, norm = attention_of(layer)
            layers.append(
                {
                    "states": (
                        torch.cat([part.weight for part in states]).to(self.dtype),
                        torch.cat([part.bias for part in states]).to(self.dtype),
                    ),
                    "attended": cast(attended),
                    "attention_norm": cast(norm),
                    "wide": cast(layer.intermediate.dense),
                    "narrow": cast(layer.output.dense),
                    "norm": cast(layer.output.LayerNorm),
                }
            )
        return layers

    def embedded(self, ids: Sequence[list[int]]) -> tuple[torch.Tensor, Layout]:
        """Returns packed states before the first layer."""
        layout, parts = self.layout([len(row) for row in ids]), []
        for block, (count, length) in zip(layout.blocks, layout.shapes, strict=True):
            padded = torch.full((count, length), self.model.config.pad_token_id)
            for place, index in enumerate(block):
                padded[place, : len(ids[index])] = torch.tensor(ids[index])
            parts.append(self.model.embeddings(input_ids=padded).reshape(count * length, -1).to(self.dtype))
        return torch.cat(parts), layout

    def through(self, rows: torch.Tensor, layout: Layout, layers: list[Layer]) -> torch.Tensor:
        """Applies layers to packed states [tokens, D]."""
        width, epsilon = rows.shape[1], self.model.config.layer_norm_eps
        each = width // self.heads
        for layer in layers:
            parts = []
            split = functional.linear(rows, *layer["states"]).split(layout.sizes)
            for (count, length), mask, part in zip(layout.shapes, layout.masks, split, strict=True):
                query, key, value = part.view(count, length, 3, self.heads, each).permute(2, 0, 3, 1, 4)
                scores = (query * (1 / math.sqrt(each))) @ key.transpose(-1, -2)
                scores = scores if mask is None else scores + mask
                parts.append((scores.softmax(-1) @ value).transpose(1, 2).reshape(count * length, width))
            attended = functional.linear(torch.cat(parts), *layer["attended"])
            rows = functional.layer_norm(attended + rows, (width,), *layer["attention_norm"], epsilon)
            wide = functional.gelu(functional.linear(rows, *layer["wide"]))
            rows = functional.layer_norm(
                functional.linear(wide, *layer["narrow"]) + rows, (width,), *layer["norm"], epsilon
            )
        return rows

    def pooled(self, rows: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Returns the mean of the states of each text's tokens, scaled to length 1, in the order of the texts."""
        means = []
        for (count, length), real, part in zip(layout.shapes, layout.real, rows.split(layout.sizes), strict=True):
            states, of_one = part.view(count, length, -1).float(), real.float().unsqueeze(-1)
            means.append((states * of_one).sum(1) / of_one.sum(1))
        order = torch.tensor([index for block in layout.blocks for index in block]).argsort()
        return functional.normalize(torch.cat(means)[order], dim=-1)

    def upper(self, states: list[torch.Tensor], first: int) -> torch.Tensor:
        """Returns the vectors [texts, D] of texts from their states before layer `first`."""
        layout, parts = self.layout([len(state) for state in states]), []
        for block, (count, length) in zip(layout.blocks, layout.shapes, strict=True):
            part = torch.zeros(count, length, states[0].shape[1], dtype=self.dtype)
            for place, index in enumerate(block):
                part[place, : len(states[index])] = states[index]
            parts.append(part.view(count * length, -1))
        return self.pooled(self.through(torch.cat(parts), layout, self.weights(first)), layout)

    @torch.no_grad()
    def embed(
        self, ids: Sequence[list[int]], below: int = 0, say: Say = lambda _: None
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Returns the vectors [texts, D] of rows of ids, and the states of each text before layer `below`."""
        layers, width = self.weights(), self.model.config.hidden_size
        vectors, states = torch.empty(len(ids), width), [torch.empty(0)] * len(ids)
        for number, chosen in enumerate(micro_batches(range(len(ids)), ids, STEP)):
            rows, layout = self.embedded([ids[index] for index in chosen])
            rows = self.through(rows, layout, layers[:below])
            if below:
                for block, (count, length), part in zip(
                    layout.blocks, layout.shapes, rows.split(layout.sizes), strict=True
                ):
                    for place, index in enumerate(block):
                        text = chosen[index]
                        states[text] = part.view(count, length, -1)[place, : len(ids[text])].clone()
            vectors[chosen] = self.pooled(self.through(rows, layout, layers[below:]), layout)
            if number % 100 == 99:
                say(f"embedded texts of up to {len(ids[chosen[-1]])} tokens")
        return vectors, states
