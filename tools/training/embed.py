"""Vectors of texts from an embedding model's own graph, as the program computes them.

Input is a model folder and texts. Output is a matrix of normalized vectors.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from models import InputError
from models.source import one_line
from training.vectors import unit

Say = Callable[[str], None]

TOKENS = 1536  # padded tokens in a batch; larger batches do not fit a core's cache
SOON = 20.0  # seconds between two progress lines
LETTERS = 20  # characters per token that are tokenized: the tokenizer truncates only after reading everything
GROWTH = 1.3  # on a CPU, padding costs more than another batch


def micro_batches(
    chosen: Sequence[int], ids: Sequence, budget: int, growth: float | None = None
) -> Iterator[list[int]]:
    """Yields batches of the chosen rows, sorted by length, with at most `budget` padded tokens each.

    With `growth`, a batch also ends before a row that is longer than the batch's shortest row by about this factor.
    """
    batch: list[int] = []
    for index in sorted(chosen, key=lambda index: len(ids[index])):
        length = len(ids[index])
        too_long = growth is not None and batch and length > growth * len(ids[batch[0]]) + 2
        if batch and (too_long or length * (len(batch) + 1) > budget):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


class Embedder:
    """An open embedding model. The constructor raises `InputError`."""

    def __init__(self, folder: Path, threads: int | None = None, optimized: bool = True):
        graph = next((path for path in (folder / "model.onnx", folder / "onnx/model.onnx") if path.is_file()), None)
        if graph is None:
            raise InputError(f"`{folder}` has no `model.onnx`: pass an embedding model folder")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = 3
        if not optimized:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            self.head = self.config["zero_shot"]
            self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self.session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
            self.output = self.head["output"]
        except Exception as problem:  # each library raises its own exceptions
            raise InputError(f"`{folder}` cannot be read as an embedding model: {one_line(problem)}") from None
        self.max_tokens = int(self.head.get("max_length") or 128)
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.max_tokens)
        self.tokenizer.encode_special_tokens = True
        self.inputs = {entry.name for entry in self.session.get_inputs()}

    def vectors(self, texts: list[str], say: Say = lambda _: None) -> np.ndarray:
        """Returns vectors [texts, D], float32."""
        cut = [text[: LETTERS * self.max_tokens] for text in texts]
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(cut)]
        vectors, done, shown = None, 0, time.monotonic()
        for batch in micro_batches(range(len(ids)), ids, TOKENS):
            found = self.raw([ids[index] for index in batch])
            if vectors is None:
                vectors = np.empty((len(ids), found.shape[1]), np.float32)
            vectors[batch] = unit(found)
            done += len(batch)
            if time.monotonic() - shown > SOON:
                shown = time.monotonic()
                say(f"read {done} of {len(ids)} texts, the shortest first")
        return np.empty((0, 0), np.float32) if vectors is None else vectors

    def raw(self, rows: list[list[int]]) -> np.ndarray:
        """Runs the graph on rows of ids, padded to the longest."""
        (found,) = self.session.run([self.output], self.feed(rows))
        return found

    def feed(self, rows: list[list[int]]) -> dict[str, np.ndarray]:
        """Returns a padded batch."""
        width = max(1, *map(len, rows)) if rows else 1
        ids = np.zeros((len(rows), width), np.int64)
        mask = np.zeros_like(ids)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
            mask[place, : len(row)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: array for name, array in feed.items() if name in self.inputs}

    def of_labels(self, texts: list[list[str]]) -> np.ndarray:
        """Returns a vector for each label: the mean of its texts' vectors, scaled to length 1."""
        flat = self.vectors([text for of_one in texts for text in of_one]).astype(np.float64)
        ends = np.cumsum([len(of_one) for of_one in texts])
        return unit(np.stack([flat[end - len(one) : end].mean(0) for end, one in zip(ends, texts, strict=True)]))
