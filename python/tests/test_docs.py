"""The Python in docs/python.md runs."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import REPOSITORY, texts

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / "docs/python.md").read_text(), re.S | re.M)


def test_the_page_has_what_is_run():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_the_examples_of_the_page_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    titles, bodies = texts(40), [None, "[removed]", *texts(38, seed=8)]
    posts = pa.table({"id": range(40), "title": titles, "selftext": bodies, "text": titles})
    pq.write_table(posts, "posts.parquet")
    scope = {}
    # What the page does first holds for what comes later.
    for code in BLOCKS[: block + 1]:
        exec(compile(code, "docs/python.md", "exec"), scope)
