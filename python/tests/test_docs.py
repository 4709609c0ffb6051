"""Runs the Python examples in docs/python.md, docs/benchmarks.md and the page on the package index."""

import re

import pyarrow as pa
import pyarrow.compute
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


def test_the_dask_example_runs_and_is_idempotent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "posts").mkdir()
    for part in range(3):
        posts = pa.table({"id": range(part * 20, part * 20 + 20), "text": texts(20, seed=part)})
        pq.write_table(posts, f"posts/{part}.parquet")
    [code] = blocks("docs/benchmarks.md")
    ran = compile(code, "docs/benchmarks.md", "exec")
    # As `__main__`, so that Dask can send its functions to workers.
    scope = {"__name__": "__main__"}
    exec(ran, scope)
    written = {file: file.stat().st_mtime_ns for file in (tmp_path / "labeled").iterdir()}
    assert sorted(file.name for file in written) == ["0.parquet", "1.parquet", "2.parquet"]
    found = pa.concat_tables(pq.read_table(file) for file in sorted(written))
    every = pq.ParquetDataset(tmp_path / "posts").read()
    expected = scope["labeler"].label_batch(every).filter(pa.compute.field("score") >= 0.7)
    assert found.select(["id", "label"]) == expected.select(["id", "label"])
    exec(ran, {"__name__": "__main__"})
    assert written == {file: file.stat().st_mtime_ns for file in (tmp_path / "labeled").iterdir()}
