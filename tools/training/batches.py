"""Texts in groups of like length."""

from collections.abc import Iterator

GROWTH = 1.3  # on a CPU, padding costs more than another batch


def micro_batches(
    chosen: list[int] | range, ids: list[list[int]], budget: int, growth: float | None = None
) -> Iterator[list[int]]:
    """Rows sorted by length: at most `budget` padded tokens in each, and with `growth` little padding."""
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
