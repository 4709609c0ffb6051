"""Runs the programs of python/examples on this machine: each writes the same rows as a single process."""

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
from tests.clusters.conftest import digest
from tests.conftest import texts

from topicmill import Labeler

PYTHON = Path(__file__).resolve().parents[2]

PROGRAMS = sorted((PYTHON / "examples").glob("with_*.py"))
PARTS, ROWS = 6, 100


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Asserts that all rows and labels are equal, and the scores up to the effect of batching."""
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


@pytest.mark.parametrize("example", PROGRAMS, ids=lambda path: path.stem)
def test_an_engine_writes_the_rows_of_a_single_process(example, folder, expected, tmp_path, digests):
    command = [sys.executable, example, folder, tmp_path / "out"]
    # By default, Spark runs the first python3 on the path for its workers.
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=tmp_path, env=env)
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = ds.dataset(tmp_path / "out").to_table()
    assert 0 < found.num_rows == expected.num_rows < PARTS * ROWS
    digests.append((example.stem, found))
    assert_same(found, expected)


def test_the_program_writes_the_rows_of_a_single_process(folder, expected, tmp_path, program, digests):
    out = tmp_path / "out.parquet"
    score = [program, "--quiet", "score", "--device", "cpu", "--threads", "1", "--label", "cooking", "--label", "travel"]
    ran = subprocess.run([*score, folder, out], capture_output=True, text=True, cwd=tmp_path)
    # Exit code 1: a row has no text.
    assert ran.returncode in (0, 1), ran.stderr
    # The program stores its numbers and labels under the same names.
    found = pq.read_table(out, columns=expected.column_names).filter(ds.field("score") >= 0.7)
    digests.append(("topicmill score", found))
    assert_same(found, expected)


def test_dask_recovers_from_a_killed_worker(folder, expected):
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


def test_a_dask_worker_loads_the_model_once(folder):
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


def test_dask_knows_the_column_types_before_computing(folder):
    import dask.dataframe as dd

    import topicmill.dask

    labeled = topicmill.dask.label(
        dd.read_parquet(folder), text="text", labels=["cooking", "travel"], label_scores=True, logits=True
    )
    found = labeled.compute(scheduler="synchronous")
    assert labeled.columns.tolist() == found.columns.tolist()
    assert labeled.dtypes.tolist() == found.dtypes.tolist()


def test_ray_recovers_from_a_killed_worker(folder, expected):
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
