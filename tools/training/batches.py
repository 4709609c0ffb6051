"""Texts in groups of like length."""

from collections.abc import Iterator


def micro_batches(chosen: list[int] | range, ids: list[list[int]], budget: int) -> Iterator[list[int]]:
    """Rows sorted by length, at most `budget` padded tokens in each."""
    batch: list[int] = []
    for index in sorted(chosen, key=lambda index: len(ids[index])):
        if batch and len(ids[index]) * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
