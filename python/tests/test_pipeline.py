"""Tests of labelers that read a pipeline file, and of vectors."""

import csv
import json
import os
import pickle
import random
import sqlite3
import subprocess

import numpy as np
import pandas as pd
import pytest
from conftest import LABELS, REPOSITORY, WORDS

import topicmill
from topicmill import Labeler

MODEL = REPOSITORY / "models/minilm-reddit-topics"
FIVE = """
name = "five"
threshold = 0.3
temperature = 0.8
background = "reddit"
background_weight = 0.7

[[topic]]
label = "Cooking & baking"
descriptions = "Bread, soup and what to do with flour."
subreddits = ["cooking"]

[[topic]]
slug = "travel"
label = "travel"
descriptions = ["Trains, hotels and beaches."]
"""
#: Markdown, escapes and entities, which must be cleaned exactly once.
BODIES = ["", "[removed]", "My \\*starter\\* **died** &amp;amp; more.", "&#x200B;\n\n# Day 3\n\n\\_so\\_ it goes"]


def posts() -> list[dict]:
    """Returns posts, each with words for one label, cycling through the labels."""
    chance = random.Random(3)

    def title(i: int) -> str:
        words = WORDS[i % 4 * 7 : i % 4 * 7 + 7]
        return " ".join(chance.choices(words + WORDS[28:], k=9)) + f" {i}"

    def post(i: int) -> dict:
        created = 1_700_000_000 + i
        return {
            "id": f"p{i:04}", "title": title(i), "selftext": BODIES[i % 7 % 4], "subreddit": "x", "created_utc": created
        }

    return [post(i) for i in range(80)]


@pytest.fixture(scope="session")
def stored(program, tmp_path_factory):
    """Returns a folder with a database of labelled posts, and a function that runs the program in it."""
    folder = tmp_path_factory.mktemp("stored")
    env = {key: value for key, value in os.environ.items() if not key.startswith("TOPICMILL__")}
    env |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    env |= {"DATABASE_URL": f"sqlite:{folder}/posts.db", "TOPICMILL__CLASSIFY__BATCH_TOKENS": "512"}

    def run(*args, code: int = 0) -> str:
        ran = subprocess.run([program, *args], cwd=folder, env=env, capture_output=True, text=True)
        assert ran.returncode == code, ran.stderr
        return ran.stdout

    (folder / "posts.ndjson").write_text("".join(json.dumps(post) + "\n" for post in posts()))
    (folder / "five.toml").write_text(FIVE)
    with (folder / "gold.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "label"])
        gold = ["cooking-and-baking", "travel", "none", "none"]
        rows.writerows([post["id"], gold[i % 4]] for i, post in enumerate(posts()[:60]))
    run("import", "posts.ndjson")
    classify = ["classify", "--device", "cpu", "--threads", "1", "--model", MODEL]
    run(*classify, "--pipeline", "five.toml")
    return folder, run


def labels_of(run) -> dict[str, tuple]:
    """Returns the current label and score of each post in the database."""
    sql = "SELECT fullname, label, score, abstained FROM classifications c JOIN current_target t " \
          "ON t.model_id = c.model_id AND t.label_set_id = c.label_set_id"
    rows = json.loads(run("sql", sql, "--format", "json"))
    return {row["fullname"]: (None if row["abstained"] else row["label"], row["score"]) for row in rows}


def labels_by(pipeline, run) -> dict[str, tuple]:
    """Returns the label and score that a labeler gives each post in the database."""
    # Read the stored texts, because `import` has already decoded entities, and stores no text of removed posts.
    kept = json.loads(run("sql", "SELECT fullname, title, selftext FROM posts WHERE has_text", "--format", "json"))
    columns = {"text": ["title", "selftext"], "reddit_text": True}
    labeler = Labeler(model=MODEL, pipeline=pipeline, threads=1, batch_tokens=512, **columns)
    found = labeler.label_batch(pd.DataFrame(kept))
    labels = [None if pd.isna(label) else label for label in found["label"]]
    return dict(zip(found["fullname"], zip(labels, found["score"], strict=True), strict=True))


def test_a_pipeline_file_gives_the_labels_of_the_database_to_the_bit(stored):
    folder, run = stored
    theirs = labels_of(run)
    assert len({label for label, _ in theirs.values()}) == 3, "not both labels, or no post without a label"
    assert labels_by(folder / "five.toml", run) == theirs


def test_an_exported_fit_gives_the_labels_of_the_database_to_the_bit(stored):
    folder, run = stored
    before = labels_of(run)
    run("labels", "fit", "--gold", "gold.csv", "--make-current", "--model", MODEL)
    try:
        (folder / "fitted.toml").write_text(run("labels", "export"))
        theirs = labels_of(run)
        assert theirs != before
        assert labels_by(folder / "fitted.toml", run) == theirs
    finally:
        run("labels", "use", "five")
    # Pickling and the order of texts do not change the scores.
    labeler = pickle.loads(pickle.dumps(Labeler(model=MODEL, pipeline=folder / "fitted.toml", threads=1)))
    assert labeler.labels == ["cooking-and-baking", "travel"]
    texts = [post["title"] for post in posts()]
    assert np.abs(labeler.scores(texts) - labeler.scores(texts[::-1])[::-1]).max() < 1e-5


def test_vectors_equal_those_in_the_database(stored):
    folder, _ = stored
    labeler = Labeler(model=MODEL, pipeline=folder / "five.toml", reddit_text=True, threads=1, batch_tokens=512)
    plain = [post["title"] for post in posts() if not post["selftext"]]
    vectors = labeler.vectors([*plain, None, " "])
    assert vectors.dtype == np.float32 and vectors.shape == (len(plain) + 2, 384)
    assert np.isnan(vectors[-2:]).all() and np.allclose(np.linalg.norm(vectors[:-2], axis=1), 1, atol=1e-3)
    database = sqlite3.connect(folder / "posts.db")
    kept = "SELECT p.title, v.vector FROM things p JOIN text_vectors v ON v.text_hash = p.text_hash"
    kept = {title: bytes(vector) for title, vector in database.execute(kept)}
    for title, vector in zip(plain, vectors, strict=False):
        scale, numbers = np.frombuffer(kept[title][:4], "<f4"), np.frombuffer(kept[title][4:], "<i2")
        # The batches differ from those of `classify`, which changes a vector slightly.
        assert np.abs(vector - scale * numbers).max() < 1e-4
    assert labeler.vectors([]).shape == (0, 384)


def test_only_an_embedding_model_has_vectors():
    model = next((REPOSITORY / "tests/it/fixtures/classifiers/models").iterdir())
    with pytest.raises(topicmill.Error, match="computes no text vectors: use an embedding model"):
        Labeler(model=model, threads=1, device="cpu").vectors(["soup"])


def test_a_pipeline_file_is_read_once_and_travels_with_the_labeler(tmp_path):
    file, background = tmp_path / "own.toml", tmp_path / "own-background.toml"
    background.write_text('name = "own"\nversion = 1\nweight = 1.0\n[[topic]]\nlabel = "the weather"\n')
    file.write_text('\ufefflabels = ["Video games", "travel"]\nbackground = "own-background.toml"\n', encoding="utf-8")
    labeler = Labeler(pipeline=file, threads=1)
    expected = labeler.scores(["A sunny day with rain in the evening.", "boss level"])
    assert expected[0].sum() < 0.9, "the background has no share"
    file.unlink()
    background.unlink()
    for one in (labeler, pickle.loads(pickle.dumps(labeler))):
        assert one.labels == ["video-games", "travel"]
        assert (one.scores(["A sunny day with rain in the evening.", "boss level"]) == expected).all()
    assert "video-games" in repr(labeler)


def test_labelers_in_dask_read_a_pipeline_file(tmp_path):
    import dask.dataframe as dd
    import topicmill.dask

    file = tmp_path / "five.toml"
    file.write_text(FIVE)
    frame = pd.DataFrame({"text": [post["title"] for post in posts()]})
    found = topicmill.dask.label(dd.from_pandas(frame, npartitions=2), pipeline=file).compute(scheduler="threads")
    assert found["label"].tolist() == Labeler(pipeline=file, threads=1).label_batch(frame)["label"].tolist()


def test_labels_compete_with_common_topics_unless_the_background_is_none():
    weather = ["The weather is nice."]
    own, none = (Labeler(labels=LABELS, threads=1, background=background) for background in (None, "none"))
    assert own.label_batch({"text": np.array(weather)})["label"].tolist() == [None]
    assert none.label_batch({"text": np.array(weather)})["label"].tolist() != [None]
    assert none.scores(weather).sum() == pytest.approx(1)


def test_unusable_pipeline_files_are_rejected_with_the_cause(stored, tmp_path):
    folder, run = stored
    run("labels", "fit", "--gold", "gold.csv", "--model", MODEL)
    sets = json.loads(run("labels", "list", "--format", "json"))
    [name] = {row["label_set"] for row in sets if "-fit" in row["label_set"]}
    fitted = run("labels", "export", "--label-set", name)
    first = fitted.split("weights = [")[1].split(", ")[0]
    own = fitted.split('\nmodel = "')[1][:8]
    ragged = fitted.replace(f"weights = [{first}, ", "weights = [", 1)
    head, *classes = fitted.split("weights = [")
    short = "weights = [".join([head, *(part.split(", ", 1)[1] for part in classes)])
    for text, said in [
        ('labels = ["a"]\ntreshold = 0.5', "unknown field `treshold`"),
        ('labels = ["a"', "line 1"),
        ('labels = ["a"]\nbackground = "none.toml"', "none.toml"),
        (ragged, "weights of different lengths"),
        (fitted.replace(f"weights = [{first}", "weights = [nan", 1), "not finite"),
        (fitted.replace("Trains, hotels", "Planes, hotels", 1), "have changed since the fit"),
        (fitted.replace(own, "00000000"), "was fitted with the model 00000000"),
        (short, "383 weights for each label"),
    ]:
        file = tmp_path / "broken.toml"
        file.write_text(text)
        with pytest.raises(ValueError, match=said):
            Labeler(model=MODEL, pipeline=file, threads=1).load()
    with pytest.raises(FileNotFoundError, match="missing.toml"):
        Labeler(pipeline=tmp_path / "missing.toml")
    of_file = {"labels": ["a"], "mode": "multi", "template": "{}", "threshold": 0.5, "background": "none"}
    for name, value in of_file.items():
        with pytest.raises(ValueError, match=f"`{name}` cannot be combined with `pipeline`"):
            Labeler(pipeline=folder / "five.toml", **{name: value})
