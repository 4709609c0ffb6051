"""Tests of scoring lists of texts."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from conftest import LABELS, REPOSITORY, texts

import topicmill
from topicmill import Labeler


def test_results_have_the_format_of_the_reference_pipeline(labeler):
    one = labeler.label("A recipe for bread and soup.")
    assert list(one) == ["sequence", "labels", "scores"]
    assert one["sequence"] == "A recipe for bread and soup."
    assert one["labels"][0] == "cooking" and sorted(one["labels"]) == sorted(LABELS)
    assert one["scores"] == sorted(one["scores"], reverse=True)
    assert math.isclose(sum(one["scores"]), 1, abs_tol=1e-6)
    assert labeler.label([one["sequence"]]) == [one]
    assert labeler.label([]) == []


def test_scores_keep_the_order_of_texts_and_labels(labeler):
    some = texts(50)
    scores = labeler.scores(some)
    assert scores.dtype == np.float32 and scores.shape == (50, len(LABELS))
    assert labeler.labels == LABELS
    for row, one in zip(scores, labeler.label(some), strict=True):
        assert [row[LABELS.index(label)] for label in one["labels"]] == pytest.approx(one["scores"])
    assert np.abs(scores[::-1] - labeler.scores(some[::-1])).max() < 1e-5


@pytest.mark.parametrize(
    "column",
    [
        ["soup", None, " ", "", "soup"],
        ("soup", float("nan"), "\n", b"", b"soup"),
        np.array(["soup", None, "\t", "", "soup"], dtype=object),
        np.array([b"soup", b"", b" ", b"", b"soup"]),
        np.array(["soup", "", " ", "", "soup"]),
        pa.array(["soup", None, " ", "", "soup"]),
        pa.array(["soup", None, " ", "", "soup"], pa.large_string()),
        pa.array(["soup", None, " ", "", "soup"], pa.string_view()),
        pa.array(["soup", None, " ", "", "soup"]).dictionary_encode(),
        pa.array([b"soup", None, b" ", b"", b"soup"], pa.binary()),
        pa.chunked_array([["soup", None], [" "], [], ["", "soup"]]),
        pa.array(["x", "soup", None, " ", "", "soup", "y"])[1:-1],
    ],
    ids=lambda column: str(getattr(column, "type", getattr(column, "dtype", type(column).__name__))),
)
def test_empty_rows_remain_aligned_in_every_column_type(labeler, column):
    scores = labeler.scores(column)
    assert np.isnan(scores).all(axis=1).tolist() == [False, True, True, True, False]
    assert (scores[0] == scores[4]).all()
    assert (scores[0] == labeler.scores(["soup"])[0]).all()


def test_columns_without_any_text_get_nan(labeler):
    for column in (pa.nulls(3), pa.array([None] * 3, pa.string()).dictionary_encode(), [None] * 3):
        assert np.isnan(labeler.scores(column)).all()
    for nothing in ([], pa.array([], pa.string()), pa.chunked_array([], pa.string()), np.array([], str)):
        assert labeler.scores(nothing).shape == (0, len(LABELS))
    assert labeler.label([""]) == [{"sequence": "", "labels": [], "scores": []}]


def test_values_that_are_not_text_are_rejected_with_their_row(labeler):
    for column, error, said in [
        ("soup", TypeError, "put it into a list"),
        (["soup", 5], TypeError, "row 1 is of type `int`"),
        (["soup", "\ud800"], ValueError, "row 1 is not valid UTF-8"),
        (["soup", b"\xff"], ValueError, "row 1 is not valid UTF-8"),
        (pa.array([1, 2]), TypeError, "Arrow type Int64"),
        (pa.array([["soup"]]), TypeError, "use a column of strings"),
        (pa.array([b"soup", b"\xff"]), ValueError, "row 1 is not valid UTF-8"),
        (pa.array([b"soup", b"\xff"]).view(pa.string()), ValueError, "row 1 is not valid UTF-8"),
        (np.zeros((2, 2)), TypeError, "2 dimensions"),
        (np.zeros(2), TypeError, "float64"),
    ]:
        with pytest.raises(error, match=said):
            labeler.scores(column)


def test_a_row_that_fails_causes_a_warning_at_the_line_of_the_caller(labeler, monkeypatch):
    def score(texts, with_scores, *settings):
        nan, code = np.full(1, np.nan), np.full(1, -1, np.int32)
        scores = np.full((1, len(LABELS)), np.nan, np.float32) if with_scores else None
        return code, nan, nan, scores, None, [(0, "no memory")]

    monkeypatch.setattr(labeler, "_load", lambda loaded: SimpleNamespace(score=score))
    for call in (labeler.scores, labeler.label, lambda texts: labeler.label_batch({"text": np.array(texts)})):
        with pytest.warns(RuntimeWarning, match="row 0 could not be scored: no memory") as caught:
            call(["soup"])
        assert [warning.filename for warning in caught] == [__file__]


def test_invalid_settings_are_rejected(tmp_path):
    for settings, error, said in [
        ({"mode": "both"}, ValueError, "'single', 'multi', or"),
        ({"threads": 0}, ValueError, "1 or more"),
        ({"batch_tokens": 0}, ValueError, "1 or more"),
        ({"labels": []}, ValueError, "at least one label"),
        ({"labels": "cooking"}, TypeError, "a list of labels"),
        ({"labels": [1]}, TypeError, "not a str"),
        ({"labels": {"cooking": [1]}}, TypeError, "not a str"),
        ({"text": []}, ValueError, "names no column"),
        ({"background": "books"}, ValueError, "'reddit' or 'none'"),
        # Settings that depend on the model are checked when it is loaded.
        ({"labels": ["a", "a"]}, ValueError, "`a` occurs twice"),
        ({"labels": ["a"], "template": "no braces"}, ValueError, "exactly one"),
        ({"labels": ["long " * 500]}, ValueError, "leaves no room"),
        ({"threshold": 2}, ValueError, "not between 0 and 1"),
        ({"device": "gpu"}, ValueError, "`gpu` is not a device"),
        ({"precision": "int3"}, topicmill.Error, "no graph of precision `int3`"),
        ({"model": "no/such/folder"}, topicmill.Error, "no model folder `no/such/folder` on"),
        ({"model": tmp_path}, topicmill.Error, "has no `config.json`"),
    ]:
        with pytest.raises(error, match=said):
            Labeler(**settings).load()


def test_a_gliclass_model_gives_the_scores_of_its_package():
    fixtures = REPOSITORY / "tests/it/fixtures/gliclass"
    golden = json.loads((fixtures / "golden/tiny-gliclass-bert.json").read_text(encoding="utf-8"))
    for case in [case for case in golden["cases"] if len(case["labels"]) == 16 and case["text"]]:
        settings = {"labels": case["labels"], "mode": case["mode"], "background": "none", "threads": 1}
        found = Labeler(model=fixtures / "models/tiny-gliclass-bert", **settings).scores([case["text"]])
        assert np.allclose(found[0], case["scores"], atol=1e-4), case["name"]


def test_labels_have_descriptions_templates_and_modes():
    plain = Labeler(labels=["cooking", "travel"], background="none", threads=1)
    described = Labeler(labels={"cooking": "Food.", "travel": ["Trips.", "Hotels."]}, threads=1)
    other = Labeler(labels=["cooking", "travel"], template="I like {}.", threads=1)
    multi = Labeler(labels=["cooking", "travel"], mode="multi", threads=1)
    some = texts(5)
    matrices = [labeler.scores(some) for labeler in (plain, described, other, multi)]
    for at, matrix in enumerate(matrices):
        assert all(np.abs(matrix - other).max() > 1e-3 for other in matrices[:at])
    assert np.allclose(matrices[0].sum(axis=1), 1)
    assert not np.allclose(matrices[3].sum(axis=1), 1)


def test_the_default_labels_are_the_same_as_in_the_program():
    labeler = Labeler(threads=1)
    assert len(labeler.labels) == 16 and "climate" in labeler.labels
    assert labeler.label("The new console has better games.")["labels"][0] == "gaming"


def test_a_labeler_has_read_only_properties(labeler):
    with pytest.raises(AttributeError):
        labeler.device = "cpu"
    assert "cooking" in repr(labeler)
    assert labeler.device == "cpu" and len(labeler.model_hash) == 64


def test_a_classifier_has_its_own_labels_and_the_scores_of_transformers():
    folder = REPOSITORY / "tests/it/fixtures/classifiers"
    for path in sorted((folder / "golden").glob("*.json")):
        golden = json.loads(path.read_text(encoding="utf-8"))
        labeler = Labeler(model=folder / "models" / golden["model"], threads=1, device="cpu")
        assert labeler.labels == golden["cases"][0]["labels"]
        # Empty texts get no scores here.
        cases = [case for case in golden["cases"] if case["mode"] == golden["default_mode"] and case["text"].strip()]
        assert cases
        scores = labeler.scores([case["text"] for case in cases])
        assert np.abs(scores - np.array([case["scores"] for case in cases])).max() < 1e-4
        with pytest.raises(ValueError, match="labels"):
            Labeler(model=folder / "models" / golden["model"], labels=["cooking", "travel"]).load()
