"""Labels for frames of Dask.

>>> import dask.dataframe as dd, pandas as pd
>>> import topicmill.dask
>>> posts = dd.from_pandas(pd.DataFrame({"text": ["Bread and butter.", "Trips and hotels."]}), npartitions=2)
>>> topicmill.dask.label(posts, labels=["cooking", "travel"])["label"].compute().tolist()
['cooking', 'travel']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topicmill._labeler import Labeler, Labels


def label(
    ddf: Any,
    text: str | Sequence[str] = "text",
    *,
    model: Any = None,
    labels: Labels | None = None,
    threads: int | None = 1,
    **settings: Any,
) -> Any:
    """Adds the columns `label`, `score` and `margin` to a frame of Dask. Nothing is computed yet.

    The types of the new columns are right beforehand, and no model is loaded for them. A worker process loads the model
    once, whatever the number of partitions. Of its threads, one at a time computes, so give workers one thread each. On a
    machine with several GPUs, a worker whose name ends with a number takes the GPU of that number.

    :param ddf: A frame of Dask.
    :param text: The column of texts; several are joined with a blank line.
    :param threads: Threads that compute a batch; one, because Dask fills a machine with workers.
    :param settings: Any other setting of `Labeler`.
    :returns: The frame with all its columns, and the new ones after them.
    """
    labeler = Labeler(model=model, labels=labels, threads=threads, text=text, **settings)
    return ddf.map_partitions(labeler, meta=labeler.meta(ddf._meta))
