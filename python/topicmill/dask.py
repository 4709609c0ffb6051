"""Labels for Dask DataFrames.

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
    """Adds the columns `label`, `score` and `margin` to a Dask DataFrame, lazily.

    The types of the new columns are known without loading a model. A worker process loads the model once, for any
    number of partitions. Only one of its threads computes at a time, so give each worker one thread. On a machine with
    several GPUs, a worker whose name ends with a number uses the GPU with that number.

    :param ddf: A Dask DataFrame.
    :param text: The text column; several columns are joined with a blank line.
    :param threads: Threads within a batch; 1 by default, because Dask runs a worker per core.
    :param settings: Any other setting of `Labeler`.
    :returns: The DataFrame with all its columns, followed by the new ones.
    """
    labeler = Labeler(model=model, labels=labels, threads=threads, text=text, **settings)
    return ddf.map_partitions(labeler, meta=labeler.meta(ddf._meta))
