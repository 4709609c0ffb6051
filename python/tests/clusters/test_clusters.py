"""Runs the programs of python/examples on this machine: each writes the same rows as a single process."""

import os
import signal
import subprocess
import sys
import time
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
RESUME = PYTHON / "examples/resume_with_ray.py"


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


def test_a_ray_job_resumes_after_its_driver_was_killed(tmp_path):
    import psutil

    rows, parts = 128, 8
    # Short texts, so that the kill falls between the first block and the last.
    some = [" ".join(text.split()[:20]) for text in texts(rows * parts, seed=8)]
    posts = pa.table({"id": range(len(some)), "text": pa.array(some)})
    source = tmp_path / "posts"
    source.mkdir()
    for part in range(parts):
        pq.write_table(posts[part * rows : (part + 1) * rows], source / f"part-{part}.parquet")
    # Count the scored rows in every Ray process.
    counted = tmp_path / "counted"
    (tmp_path / "sitecustomize.py").write_text(
        f"""import topicmill
plain = topicmill.Labeler.__call__
def counting(self, batch):
    labeled = plain(self, batch)
    with open({str(counted)!r}, "a") as file:
        file.write(f"{{batch.num_rows}}\\n")
    return labeled
topicmill.Labeler.__call__ = counting
"""
    )
    target, done = tmp_path / "out", tmp_path / "done"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def start() -> subprocess.Popen:
        log = (tmp_path / "log").open("a")
        return subprocess.Popen([sys.executable, RESUME, source, target, done], env=env, stdout=log, stderr=log)

    def noted() -> int:
        # Checkpoints of incomplete blocks end with .pending.parquet.
        notes = [note for note in done.rglob("*.parquet") if not note.name.endswith(".pending.parquet")]
        return sum(pq.read_metadata(note).num_rows for note in notes)

    def scored() -> int:
        return sum(map(int, counted.read_text().split())) if counted.exists() else 0

    driver = start()
    ends = time.monotonic() + 600
    while not noted():
        assert driver.poll() is None and time.monotonic() < ends, (tmp_path / "log").read_text()[-4000:]
        time.sleep(0.01)
    others = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    # Ray's processes exit after their driver, and may write until then.
    for one in psutil.wait_procs(others, timeout=30)[1]:
        one.kill()
    psutil.wait_procs(others, timeout=30)
    before, at_first = noted(), scored()
    assert 0 < before < len(some), "the driver was killed too late"

    again = start()
    assert again.wait(timeout=600) == 0, (tmp_path / "log").read_text()[-4000:]
    assert scored() - at_first == len(some) - before, "rows that were written were scored again"
    found = ds.dataset(target).to_table()
    assert_same(found, Labeler(labels=["cooking", "travel"], threads=1).label_batch(posts))

    files = sorted(target.iterdir())
    assert start().wait(timeout=600) == 0
    is_unchanged = sorted(target.iterdir()) == files and scored() == at_first + len(some) - before
    assert is_unchanged, "a finished job wrote or scored rows"
