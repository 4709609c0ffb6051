"""Tests of labelling tables."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import LABELS, texts

from topicmill import Labeler

SOME = [*texts(6), None, "  ", *texts(3, seed=8)]
IDS = list(range(10, 10 + len(SOME)))


def table() -> pa.Table:
    return pa.table({"id": IDS, "text": pa.array(SOME, pa.string())})


KINDS = {
    "pyarrow.Table": (table, lambda out: out),
    "chunks": (
        lambda: pa.concat_tables([table()[:4], table()[4:4], table()[4:]]),
        lambda out: out,
    ),
    "dictionary": (
        lambda: table().set_column(1, "text", table()["text"].dictionary_encode()),
        lambda out: out,
    ),
    "large_string": (
        lambda: table().set_column(1, "text", table()["text"].cast(pa.large_string())),
        lambda out: out,
    ),
    "pyarrow.RecordBatch": (
        lambda: table().to_batches()[0],
        lambda out: pa.Table.from_batches([out]),
    ),
    "pandas": (lambda: table().to_pandas(), pa.Table.from_pandas),
    "pandas objects": (
        lambda: table().to_pandas().astype({"text": object}),
        pa.Table.from_pandas,
    ),
    "pandas category": (
        lambda: table().to_pandas().astype({"text": "category"}),
        pa.Table.from_pandas,
    ),
    "polars": (lambda: pl.from_arrow(table()), lambda out: out.to_arrow()),
    "polars categorical": (
        lambda: pl.from_arrow(table()).cast({"text": pl.Categorical}),
        lambda out: out.to_arrow(),
    ),
    "numpy": (
        lambda: {"id": np.array(IDS), "text": np.array(SOME, object)},
        lambda out: pa.table({name: pa.array(values, from_pandas=True) for name, values in out.items()}),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_keeps_its_type_and_gets_labels(labeler, kind):
    make, read = KINDS[kind]
    batch = make()
    labeled = labeler(batch)
    assert type(labeled) is type(batch)
    out = read(labeled)
    assert out.column_names == ["id", "text", "label", "score", "margin"]
    assert out["id"].to_pylist() == IDS
    assert out["text"].to_pylist() == SOME
    scores = labeler.scores(SOME)
    for row, scored in enumerate(out.to_pylist()):
        if SOME[row] is None or not SOME[row].strip():
            assert (scored["label"], scored["score"], scored["margin"]) == (None, None, None)
        else:
            first, second = sorted(scores[row], reverse=True)[:2]
            assert scored["label"] == LABELS[scores[row].argmax()]
            assert scored["score"] == pytest.approx(first, abs=1e-6)
            assert scored["margin"] == pytest.approx(first - second, abs=1e-6)
    # The input must not be modified.
    assert len(make() if isinstance(batch, dict) else batch.columns) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_without_rows_gets_the_same_columns(labeler, kind):
    make, read = KINDS[kind]
    batch = make()
    nothing = {n: v[:0] for n, v in batch.items()} if isinstance(batch, dict) else batch[:0]
    whole, out = read(labeler(batch)), read(labeler(nothing))
    assert out.num_rows == 0 and out.column_names == whole.column_names
    if isinstance(batch, (pa.Table, pa.RecordBatch, pl.DataFrame)):
        assert out.schema == whole.schema
    if isinstance(batch, pd.DataFrame):
        assert (labeler(nothing).dtypes == labeler(batch).dtypes).all()


def test_columns_per_label_are_added_on_request(labeler):
    full = Labeler(labels=LABELS, background="none", threads=1, label_scores=True, logits=True, prefix="our_", text="text")
    out = full.label_batch(table())
    added = ["our_label", "our_score", "our_margin"]
    added += [f"our_{word}_{label}" for word in ("score", "logit") for label in LABELS]
    assert out.column_names == ["id", "text", *added]
    scores = labeler.scores(SOME)
    for place, label in enumerate(LABELS):
        column = out[f"our_score_{label}"]
        assert column.type == pa.float32() and column.null_count == 2
        there = ~np.isnan(scores[:, place])
        assert np.allclose(column.to_numpy()[there], scores[there, place], atol=1e-6)
    logits = np.array([out[f"our_logit_{label}"].to_numpy() for label in LABELS])[:, 0]
    weights = np.exp(21.0 * logits.astype(float))
    assert np.allclose(weights / weights.sum(), scores[0], atol=1e-4), "the model scales its cosines by 21"


def test_a_score_under_the_threshold_has_no_label():
    strict = Labeler(labels=LABELS, background="none", threads=1, threshold=0.9)
    out = strict.label_batch(table()).to_pylist()
    assert {row["label"] is None for row in out if row["score"] is not None} == {True, False}
    for row in out:
        assert (row["label"] is not None) == (row["score"] is not None and row["score"] >= 0.9)


def test_several_text_columns_are_joined_like_a_post():
    both = Labeler(labels=LABELS, threads=1, text=["title", "body"])
    titles, bodies = ["Bread", "Bread ", None, ""], [" An oven. ", "[removed]", "An oven.", None]
    for make in (pa.table, pd.DataFrame, pl.DataFrame, lambda columns: columns):
        out = both.label_batch(make({"title": titles, "body": bodies}))
        found = [None if score is None or np.isnan(score) else score for score in list(out["score"])] \
            if not isinstance(out, pa.Table) else out["score"].to_pylist()
        single = Labeler(labels=LABELS, threads=1).label_batch(
            pa.table({"text": ["Bread\n\nAn oven.", "Bread", "An oven.", None]})
        )
        expected = single["score"].to_pylist()
        assert found[3] is None and found[:3] == pytest.approx(expected[:3], abs=1e-6)


def test_columns_that_are_joined_must_be_text():
    both = Labeler(labels=LABELS, threads=1, text=["title", "year"])
    for make in (pa.table, pd.DataFrame, pl.DataFrame):
        with pytest.raises(TypeError, match="row 0 of column `year` is of type `int`, which is not text"):
            both.label_batch(make({"title": ["Bread"], "year": [1999]}))
    with pytest.raises(ValueError, match="row 1 of column `year` is not valid UTF-8"):
        both.label_batch(pa.table({"title": ["Bread", "Soup"], "year": [None, b"\xff"]}))


def test_pandas_keeps_its_index_and_accepts_every_missing_value(labeler):
    values = ["bread", None, float("nan"), pd.NA, "soup"]
    frame = pd.DataFrame({"text": pd.Series(values, dtype=object, index=list("vwxyz"))})
    out = labeler.label_batch(frame)
    assert out.index.tolist() == list("vwxyz")
    assert out["label"].isna().tolist() == [False, True, True, True, False]


def test_unsupported_tables_are_rejected_with_the_reason(labeler):
    for batch, error, said in [
        (pa.table({"body": ["a"]}), ValueError, "no column `text`; it has body: name one with text="),
        (pa.table([["a"], ["b"]], names=["text", "text"]), ValueError, "2 columns `text`"),
        (pa.table({"text": ["a"], "score": [1]}), ValueError, "already has a column `score`"),
        (pa.table({"text": [1]}), TypeError, "Arrow type Int64"),
        (pa.table({"text": [["a"]]}), TypeError, "use a column of strings"),
        (pd.DataFrame({"text": [1]}), TypeError, "Arrow type Int64"),
        (pd.DataFrame({"text": [1, "a"]}, dtype=object), TypeError, "row 0 is of type `int`"),
        (pl.LazyFrame({"text": ["a"]}), TypeError, "map_batches"),
        (["a"], TypeError, "`builtins.list` is not a supported table"),
    ]:
        with pytest.raises(error, match=said):
            labeler.label_batch(batch)
    lazy = pl.LazyFrame({"text": ["bread"]}).map_batches(
        labeler, schema={"text": pl.String, "label": pl.String, "score": pl.Float64, "margin": pl.Float64}
    )
    assert lazy.collect()["label"].to_list() == ["cooking"]
