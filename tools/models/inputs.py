"""The inputs of a graph: the contract between the graph builders and the programs that run the graphs.

A batch is `rows` pairs of token ids, each row padded on the right to `width`.

| input | type, shape | content |
|---|---|---|
| `input_ids` | int64 [rows, width] | the pair's ids, with special tokens |
| `token_type_ids` | int64 [rows, width] | 0 for the premise, 1 for the hypothesis, from the tokenizer |
| `lengths` | int32 [rows] | the number of real ids of a row, at least 1 |
| `attention_mask` | int64 [rows, width] | 1 for a real id, 0 for padding |
| `decoder_ids` | int64 [rows, width] | `decoder_start_id`, then the row of `input_ids` without its last id |
| `positions` | int64 [width] | 0, 1, …, width - 1, without the offset of the model's position table |
| `last` | int64 [rows] | row * width + length - 1: the index of the last real id in the flattened batch |
| `mask` | float32 [rows, 1, width] | 0 for a real id, -10000 for padding |

A graph for the CPU takes ids and lengths and computes the rest. A graph for CUDA takes all inputs, because nodes that
compute indices or shapes run on the CPU, and the GPU would wait for each. An exported graph takes the model's own
inputs: ids and attention mask.
"""

from dataclasses import dataclass

import numpy as np

MASKED = -10_000.0  # fits in float16, and its exp() is 0 in any precision


@dataclass(frozen=True)
class Input:
    """Name, element type and dimensions of one input."""

    name: str
    kind: type[np.generic]
    shape: tuple[str, ...]


INPUTS = {
    entry.name: entry
    for entry in [
        Input("input_ids", np.int64, ("rows", "width")),
        Input("token_type_ids", np.int64, ("rows", "width")),
        Input("lengths", np.int32, ("rows",)),
        Input("attention_mask", np.int64, ("rows", "width")),
        Input("decoder_ids", np.int64, ("rows", "width")),
        Input("positions", np.int64, ("width",)),
        Input("last", np.int64, ("rows",)),
        Input("mask", np.float32, ("rows", "1", "width")),
    ]
}


@dataclass(frozen=True)
class Pair:
    """One (premise, hypothesis) pair as the model reads it."""

    ids: list[int]
    type_ids: list[int]


@dataclass(frozen=True)
class Filling:
    """The properties of a batch that depend on the model's configuration."""

    pad_id: int
    decoder_start_id: int | None


def feed(names: list[str], pairs: list[Pair], filling: Filling) -> dict[str, np.ndarray]:
    """Returns the named inputs of one batch: rows in the order of the pairs, as wide as the longest."""
    lengths = np.array([len(pair.ids) for pair in pairs], np.int32)
    width = int(lengths.max())
    ids = padded([pair.ids for pair in pairs], width, filling.pad_id)
    real = np.arange(width) < lengths[:, None]
    made = {
        "input_ids": lambda: ids,
        "token_type_ids": lambda: padded([pair.type_ids for pair in pairs], width, 0),
        "lengths": lambda: lengths,
        "attention_mask": lambda: real.astype(np.int64),
        "decoder_ids": lambda: shifted(ids, filling.decoder_start_id),
        "positions": lambda: np.arange(width, dtype=np.int64),
        "last": lambda: np.arange(len(pairs), dtype=np.int64) * width + lengths - 1,
        "mask": lambda: np.where(real, 0, MASKED).astype(np.float32)[:, None, :],
    }
    return {name: made[name]() for name in names}


def padded(rows: list[list[int]], width: int, filler: int) -> np.ndarray:
    """Pads rows to one int64 array."""
    return np.array([row + [filler] * (width - len(row)) for row in rows], np.int64)


def shifted(ids: np.ndarray, start: int) -> np.ndarray:
    """Puts the start token before each row and drops the row's last id."""
    return np.concatenate([np.full((len(ids), 1), start, np.int64), ids[:, :-1]], axis=1)
