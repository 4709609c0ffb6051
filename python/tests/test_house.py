"""Tests of the package's dependencies and type hints."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

PYTHON = REPOSITORY / "python"

#: Database drivers, HTTP clients, and their runtimes.
FORBIDDEN = ("sqlx", "rusqlite", "libsqlite3-sys", "reqwest", "hyper", "ureq", "rustls", "tokio", "axum")


def test_the_module_has_no_database_driver_and_no_http_client():
    command = ["cargo", "tree", "--locked", "--package", "topicmill-python", "--prefix", "none"]
    command += ["--edges", "normal", "--format", "{p}"]
    tree = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    crates = {line.split()[0] for line in tree.splitlines() if line}
    assert "topicmill-score" in crates
    found = [crate for crate in crates if crate.startswith(FORBIDDEN)]
    assert not found, f"the module depends on {found}"


CALLS = """
from typing import assert_type
import numpy as np
from numpy.typing import NDArray
import topicmill

labeler = topicmill.Labeler(labels={"a": "words", "b": ["more", "words"]}, mode="multi", threads=1)
assert_type(labeler.label("text"), topicmill.Scored)
assert_type(labeler.label(["text"]), list[topicmill.Scored])
assert_type(labeler.scores(["text", None]), NDArray[np.float32])
assert_type(topicmill.Labeler(pipeline="five.toml").vectors(["text"]), NDArray[np.float32])
batch: dict[str, list[str]] = {"text": ["x"]}
assert_type(labeler.label_batch(batch), dict[str, list[str]])
labeler.load().labels[0].upper()
assert_type(topicmill.Labeler(engine="openvino").engine, str)
"""


@pytest.mark.parametrize("tool", [["mypy"], ["pyright", "--pythonpath", sys.executable]], ids=["mypy", "pyright"])
def test_type_hints_are_correct(tool, tmp_path):
    calls = tmp_path / "calls.py"
    calls.write_text(CALLS.replace("from typing import", "from typing_extensions import"))
    command = [str(Path(sys.executable).parent / tool[0]), *tool[1:]]
    ran = subprocess.run(command, cwd=PYTHON, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = subprocess.run([*command, str(calls)], cwd=PYTHON, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
