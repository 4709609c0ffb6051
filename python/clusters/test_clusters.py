"""The programs of examples/clusters, on this machine: each writes what one process writes, row by row."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from topicmill import Labeler

PYTHON = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PYTHON / "tests"))
from conftest import texts  # noqa: E402

PROGRAMS = sorted((PYTHON.parent / "examples/clusters").glob("with_*.py"))
PARTS, ROWS = 6, 60


def digest(table: pa.Table) -> str:
    """A hash of the rows without their numbers."""
    rows = table.select(["id", "text", "label"]).sort_by("id").to_pylist()
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Each row is there once with its label, and its numbers differ by what the batch of a text may change."""
    assert digest(found) == digest(expected)
    for name in ("score", "margin"):
        numbers = [table.sort_by("id")[name].to_numpy() for table in (found, expected)]
        assert np.abs(numbers[0] - numbers[1]).max() < 1e-5, name


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("posts")
    some = texts(PARTS * ROWS)
    some[5], some[ROWS] = None, " "
    posts = pa.table({"id": range(len(some)), "text": pa.array(some)})
    for part in range(PARTS):
        pq.write_table(posts[part * ROWS : (part + 1) * ROWS], folder / f"part-{part}.parquet")
    return folder


@pytest.fixture(scope="session")
def expected(folder) -> pa.Table:
    labeler = Labeler(labels=["cooking", "travel"], threads=1)
    labeled = labeler.label_batch(ds.dataset(folder).to_table())
    return labeled.filter(ds.field("score") >= 0.7)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_engine_gives_what_one_process_gives(program, folder, expected, tmp_path):
    command = [sys.executable, program, folder, tmp_path / "out"]
    # Spark takes the first python3 for its workers otherwise.
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=env)
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = ds.dataset(tmp_path / "out").to_table()
    assert 0 < found.num_rows == expected.num_rows < PARTS * ROWS
    assert_same(found, expected)


def test_dask_goes_on_when_a_worker_is_killed(folder, expected):
    import dask.dataframe as dd
    from distributed import Client, LocalCluster, as_completed, futures_of

    import topicmill.dask

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        labeled = topicmill.dask.label(dd.read_parquet(folder), text="text", labels=["cooking", "travel"]).persist()
        before = client.run(os.getpid)
        next(iter(as_completed(futures_of(labeled))))
        os.kill(next(iter(before.values())), signal.SIGKILL)
        found = pa.Table.from_pandas(labeled.compute(), preserve_index=False)
        assert set(client.run(os.getpid).values()) != set(before.values()), "no worker was killed"
    assert_same(found.filter(ds.field("score") >= 0.7), expected)


def test_a_worker_of_dask_loads_the_model_once(folder):
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    import topicmill.dask

    def loaded() -> int:
        from topicmill import _labeler

        return sum(one.scorer is not None for one in _labeler._process.loaded.values())

    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster, Client(cluster) as client:
        posts = dd.read_parquet(folder)
        for _ in range(2):
            topicmill.dask.label(posts, text="text", labels=["cooking", "travel"]).compute()
        assert list(client.run(loaded).values()) == [1]


def test_the_types_of_dasks_columns_are_right_beforehand(folder):
    import dask.dataframe as dd

    import topicmill.dask

    labeled = topicmill.dask.label(
        dd.read_parquet(folder), text="text", labels=["cooking", "travel"], label_scores=True, logits=True
    )
    found = labeled.compute(scheduler="synchronous")
    assert labeled.columns.tolist() == found.columns.tolist()
    assert labeled.dtypes.tolist() == found.dtypes.tolist()


def test_ray_goes_on_when_a_worker_is_killed(folder, expected):
    import psutil
    import ray
    from ray.data import ActorPoolStrategy

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        labeled = ray.data.read_parquet(str(folder), override_num_blocks=PARTS).map_batches(
            Labeler,
            fn_constructor_kwargs={"labels": ["cooking", "travel"], "threads": 1},
            batch_format="pyarrow",
            batch_size=100,
            compute=ActorPoolStrategy(size=2),
            num_cpus=0.5,
        )
        killed, found = None, []
        for batch in labeled.iter_batches(batch_size=100, batch_format="pyarrow"):
            found.append(batch)
            if killed is None:
                workers = psutil.Process().children(recursive=True)
                killed = next(one for one in workers if "MapWorker" in " ".join(one.cmdline()))
                killed.kill()
        assert killed is not None
    finally:
        ray.shutdown()
    assert_same(pa.concat_tables(found).filter(ds.field("score") >= 0.7), expected)
