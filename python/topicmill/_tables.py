"""Reads text from pyarrow, pandas, polars and numpy tables, and adds label columns to them.

Only numpy is imported here: a program that passes a table has already imported the table's library.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from topicmill._native import joined

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The library of a table; "numpy" for a dictionary of arrays.
Kind: TypeAlias = Literal["pyarrow", "pandas", "polars", "numpy"]


@dataclass(frozen=True)
class Computed:
    """Results of texts, one row per text; NaN for a text that was not scored."""

    #: Index of the label; -1 for none.
    codes: NDArray[np.int32]
    score: NDArray[np.float64]
    margin: NDArray[np.float64]
    #: One column per label, if requested.
    scores: NDArray[np.float32] | None
    logits: NDArray[np.float32] | None


@dataclass(frozen=True)
class Columns:
    """The columns to read and to add."""

    text: tuple[str, ...]
    reddit_text: bool
    label_scores: bool
    logits: bool
    prefix: str

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("`text` names no column: name the text column")

    def added(self, labels: list[str]) -> list[str]:
        """Returns the names of the new columns, in order."""
        names = ["label", "score", "margin"]
        if self.label_scores:
            names += [f"score_{label}" for label in labels]
        if self.logits:
            names += [f"logit_{label}" for label in labels]
        return [self.prefix + name for name in names]


def labelled(
    batch: Any,
    columns: Columns,
    labels: list[str],
    compute: Callable[[Any, bool, bool, bool], Computed],
) -> Any:
    """Returns a table with the new columns. `compute` takes texts, and whether to return scores, to return logits and
    to clean the texts."""
    kind = _kind_of(batch)
    added = _added(batch, kind, columns, labels)
    is_joined = len(columns.text) > 1
    if is_joined:
        parts = [_texts_in(_column(batch, kind, name), f"column `{name}`") for name in columns.text]
        texts = _joined(parts, columns.reddit_text)
    else:
        texts = texts_of(_column(batch, kind, columns.text[0]), f"column `{columns.text[0]}`")
    # Joined texts are already clean. Cleaning is not idempotent: `\*` becomes `*`, which is Markdown.
    cleans = columns.reddit_text and not is_joined
    computed = compute(texts, columns.label_scores, columns.logits, cleans)
    numbers: list[Any] = [computed.score, computed.margin]
    for matrix in (computed.scores, computed.logits):
        if matrix is not None:
            numbers += [np.ascontiguousarray(column) for column in matrix.T]
    return _with_columns(batch, kind, added, computed.codes, labels, numbers)


def without_rows(batch: Any, columns: Columns, labels: list[str]) -> Any:
    """Returns the table with the new columns, without its rows."""
    kind = _kind_of(batch)
    added = _added(batch, kind, columns, labels)
    numbers = [np.empty(0, np.float64)] * 2 + [np.empty(0, np.float32)] * (len(added) - 3)
    nothing = {name: values[:0] for name, values in batch.items()} if kind == "numpy" else batch[:0]
    return _with_columns(nothing, kind, added, np.empty(0, np.int32), labels, numbers)


def _added(batch: Any, kind: Kind, columns: Columns, labels: list[str]) -> list[str]:
    """Returns the names of the new columns, after checking the table."""
    names = list(batch.schema.names) if kind == "pyarrow" else list(batch if kind == "numpy" else batch.columns)
    for name in columns.text:
        if (count := names.count(name)) != 1:
            listed = ", ".join(map(str, names[:40])) or "none"
            there = "no column" if count == 0 else f"{count} columns"
            raise ValueError(f"the batch has {there} `{name}`; it has {listed}: name one with text=…")
    added = columns.added(labels)
    taken = [name for name in added if name in names]
    if taken:
        raise ValueError(
            f"the batch already has a column `{taken[0]}`: drop or rename it, or set prefix=… for the new columns"
        )
    return added


def texts_of(values: Any, place: str = "the array") -> Any:
    """Converts values for the native module: an object with the Arrow C data interface, or a sequence."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise TypeError(f"{place} has {values.ndim} dimensions: use one text per row")
        if values.dtype.kind not in "SUOT":
            raise TypeError(f"{place} has the type {values.dtype}, which is not text: use a column of strings")
        return values.tolist()
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(
        values, (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    ):
        values = pandas.Series(values)
        # pandas needs pyarrow to export a column, and guesses the type of object columns.
        is_exported = hasattr(values, "__arrow_c_stream__") and importlib.util.find_spec("pyarrow")
        if values.dtype == object or not is_exported:
            return values.astype(object).where(values.notna(), None).tolist()
    return values


def _texts_in(values: Any, place: str) -> list[str | None]:
    """Returns the texts of a column; None for a missing text."""
    values = texts_of(values, place)
    if hasattr(values, "notna"):
        # pandas marks missing texts with NaN or NA.
        values = values.astype(object).where(values.notna(), None)
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(values, method):
            values = getattr(values, method)()
    return [_text(value, row, place) for row, value in enumerate(values)]


def _text(value: Any, row: int, place: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and np.isnan(value):
        return None
    if not isinstance(value, bytes):
        raise TypeError(
            f"row {row} of {place} is of type `{type(value).__name__}`, which is not text: use a column of strings"
        )
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(
            f"the text in row {row} of {place} is not valid UTF-8: decode it with its own encoding first"
        ) from None


def _joined(columns: list[list[str | None]], reddit_text: bool) -> list[str | None]:
    """Joins the texts of several columns, row by row, with a blank line."""
    rows = zip(*columns, strict=True)
    return [joined([text for text in texts if text is not None], reddit_text) or None for texts in rows]


def _column(batch: Any, kind: Kind, name: str) -> Any:
    return batch.column(name) if kind == "pyarrow" else batch[name]


def _with_columns(batch: Any, kind: Kind, names: list[str], codes: Any, labels: list[str], numbers: list[Any]) -> Any:
    """Returns the table with new columns: the label of each row, and numbers.

    `codes` are indices into `labels`, or -1 for no label; NaN means that a row has no number."""
    label_column, named = names[0], dict(zip(names[1:], numbers, strict=True))
    if kind == "pyarrow":
        return _with_arrow_columns(batch, label_column, codes, labels, named)
    # Index -1 selects the last item.
    label = np.array([*labels, None], dtype=object)[codes]
    if kind == "pandas":
        import pandas as pd

        return batch.assign(**{label_column: pd.Series(label, index=batch.index, dtype=pandas_label_type())}, **named)
    if kind == "polars":
        import polars as pl

        new_columns = [pl.Series(label_column, label.tolist(), dtype=pl.String)]
        return batch.with_columns(
            new_columns + [pl.Series(name, values, nan_to_null=True) for name, values in named.items()]
        )
    return {**batch, label_column: label, **named}


def _with_arrow_columns(batch: Any, label_column: str, codes: Any, labels: list[str], named: dict[str, Any]) -> Any:
    import pyarrow as pa

    new = {label_column: pa.array(labels, pa.string()).take(pa.array(codes, mask=codes < 0))}
    new |= {name: pa.array(values, mask=np.isnan(values)) for name, values in named.items()}
    if isinstance(batch, pa.RecordBatch):
        schema = batch.schema
        for name, values in new.items():
            schema = schema.append(pa.field(name, values.type))
        return pa.RecordBatch.from_arrays([*batch.columns, *new.values()], schema=schema)
    for name, values in new.items():
        batch = batch.append_column(name, values)
    return batch


def pandas_label_type() -> Any:
    """Returns the type of a label column in the installed pandas."""
    import pandas as pd

    # pandas 3 introduced a string type.
    return "str" if int(pd.__version__.split(".")[0]) >= 3 else object


def _kind_of(batch: Any) -> Kind:
    pyarrow, pandas, polars = map(sys.modules.get, ("pyarrow", "pandas", "polars"))
    if pyarrow is not None and isinstance(batch, (pyarrow.Table, pyarrow.RecordBatch)):
        return "pyarrow"
    if pandas is not None and isinstance(batch, pandas.DataFrame):
        return "pandas"
    if polars is not None and isinstance(batch, polars.DataFrame):
        return "polars"
    if isinstance(batch, Mapping):
        return "numpy"
    hint = ""
    if polars is not None and isinstance(batch, polars.LazyFrame):
        hint = "; pass it to the LazyFrame's `map_batches` method, or collect it first"
    raise TypeError(
        f"`{type(batch).__module__}.{type(batch).__qualname__}` is not a supported table: use a pyarrow "
        f"Table or RecordBatch, a pandas or polars DataFrame, or a dictionary of numpy arrays{hint}"
    )
