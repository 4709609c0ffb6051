"""Runs the Python examples in docs/python.md and the page on the package index."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import REPOSITORY, texts


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / page).read_text(), re.S | re.M)


BLOCKS = blocks("docs/python.md")


def test_the_page_has_examples():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_the_examples_of_the_page_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    titles, bodies = texts(40), [None, "[removed]", *texts(38, seed=8)]
    posts = pa.table({"id": range(40), "title": titles, "selftext": bodies, "text": titles})
    pq.write_table(posts, "posts.parquet")
    scope = {}
    # Later examples build on earlier ones.
    for code in BLOCKS[: block + 1]:
        exec(compile(code, "docs/python.md", "exec"), scope)


def test_the_example_on_the_package_index_runs():
    [code] = blocks("python/README.md")
    *lines, shown = code.splitlines()
    scope = {}
    exec(compile("\n".join(lines), "python/README.md", "exec"), scope)
    assert eval(shown, scope)["label"].tolist() == ["cooking", "travel"]
