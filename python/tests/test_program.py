"""Tests that the package and the program compute the same scores."""

import hashlib
import json
import os
import random
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import LABELS, REPOSITORY, texts

from topicmill import Labeler


def digest(table: pa.Table) -> str:
    """Returns a hash of labels, scores and margins, to the last bit."""
    rows = table.select(["id", "label", "score", "margin"]).to_pylist()
    return hashlib.sha256(repr(sorted(map(str, rows))).encode()).hexdigest()


@pytest.mark.parametrize("labels", [LABELS, None], ids=["labels", "default labels"])
def test_the_package_gives_the_programs_scores(program, tmp_path, labels):
    some = [*texts(120), None, " "]
    posts = pa.table({"id": list(range(len(some))), "text": pa.array(some)})
    pq.write_table(posts, tmp_path / "in.parquet")
    command = [program, "score", "in.parquet", "out.parquet", "--model", REPOSITORY / "models/minilm-reddit-topics"]
    command += [word for label in labels or [] for word in ("--label", label)]
    if labels is None:
        command += ["--pipeline", REPOSITORY / "pipelines/sixteen-topics.toml"]
    # A different home folder, without settings or cached batch sizes.
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    ran = subprocess.run(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1, ran.stderr  # Two rows have no text.
    theirs = pq.read_table(tmp_path / "out.parquet")
    ours = Labeler(labels=labels).label_batch(posts)
    assert digest(ours) == digest(theirs)
    assert ours["score"].null_count == 2
    # Parts of a table are batched differently, which changes no label and hardly a score.
    parts = [Labeler(labels=labels).label_batch(posts[at : at + 25]) for at in range(0, len(posts), 25)]
    parts = pa.concat_tables(parts)
    assert parts["label"] == ours["label"]
    for one, other in zip(parts["score"].to_pylist(), ours["score"].to_pylist(), strict=True):
        assert one == other or abs(one - other) < 1e-5


def test_learned_label_vectors_are_used_as_in_the_program(program, tmp_path):
    shipped, model = REPOSITORY / "models/minilm-reddit-topics", tmp_path / "learned"
    model.mkdir()
    for name in ["model.onnx", "tokenizer.json", "tokenizer_config.json"]:
        (model / name).symlink_to(shipped / name)
    chance = random.Random(7)
    labels = [
        {"texts": [f"This text is about {label}."], "vector": [chance.gauss(0, 1) for _ in range(384)]}
        for label in LABELS[:3]
    ]
    (model / "label_vectors.json").write_text(json.dumps({"labels": labels}))
    config = json.loads((shipped / "config.json").read_text())
    posts = pa.table({"id": list(range(40)), "text": texts(40)})
    pq.write_table(posts, tmp_path / "in.parquet")
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    digests = {}
    for learned in (True, False):
        config["zero_shot"].pop("label_vectors", None)
        if learned:
            config["zero_shot"]["label_vectors"] = "label_vectors.json"
        (model / "config.json").write_text(json.dumps(config))
        # All but the last label have a learned vector.
        for count in (3, 4):
            command = [program, "score", "in.parquet", "out.parquet", "--overwrite", "--model", model]
            command += [word for label in LABELS[:count] for word in ("--label", label)]
            subprocess.run(command, cwd=tmp_path, env=env, check=True, stderr=subprocess.PIPE)
            ours = digest(Labeler(model=model, labels=LABELS[:count]).label_batch(posts))
            assert ours == digest(pq.read_table(tmp_path / "out.parquet"))
            digests[learned, count] = ours
    assert digests[True, 3] != digests[False, 3]
    assert digests[True, 4] == digests[False, 4]
