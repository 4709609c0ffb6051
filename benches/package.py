#!/usr/bin/env python3
"""Compares the Python package, alone and in Dask, with other implementations on the same weights and texts.

    PYTHON benches/package.py FOLDER program TOPICMILL [ROUNDS]
    PYTHON benches/package.py FOLDER workers [ROUNDS]
    PYTHON benches/package.py FOLDER pipeline HF MODEL [ROUNDS]

PYTHON needs the packages in python/requirements-clusters.txt and the topicmill package; `pipeline` also needs torch and
transformers. Made-up texts are written to FOLDER as Parquet; the TEXTS environment variable sets their number. CPU
seconds include all child processes.

- program: the package and the program on one file, with one thread each. Times include starting the process and loading
  the model.
- workers: Dask with one worker and with two, one thread each, with the default model.
- pipeline: Dask with one worker of one thread. HF is a transformers classifier, and MODEL is the folder that
  tools/model.py makes from it. `topicmill.dask.label` is compared with `map_partitions` over the transformers pipeline,
  in batches of 25.
"""

import os
import sys
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}

import numpy as np
import pandas as pd
import psutil
from common import in_turns, texts, timed

BATCH = 25
PARTITION = 50
PACKAGE = """
import sys
import pyarrow.parquet as pq
from topicmill import Labeler
labeled = Labeler(device="cpu", threads=1).label_batch(pq.read_table(sys.argv[1]))
pq.write_table(labeled, sys.argv[2])
"""


def posts(folder: Path, count: int, parts: int) -> Path:
    """Writes a folder of Parquet files."""
    folder = folder / f"posts-{count}-{parts}"
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame({"id": range(count), "text": texts(count)})
    for part, rows in enumerate(np.array_split(np.arange(count), parts)):
        frame.iloc[rows].to_parquet(folder / f"part-{part}.parquet")
    return folder


def count_of(default: int) -> int:
    """Returns the number of texts."""
    return int(os.environ.get("TEXTS", default))


def measured(work) -> tuple[float, float]:
    """Returns wall-clock seconds and CPU seconds of live child processes."""

    def processor() -> float:
        used = 0.0
        for process in psutil.Process().children(recursive=True):
            try:
                times = process.cpu_times()
                used += times.user + times.system
            except psutil.NoSuchProcess:
                pass
        return used

    before, begun = processor(), time.perf_counter()
    work()
    return time.perf_counter() - begun, processor() - before


def program(folder: Path, topicmill: str, rounds: int) -> None:
    """Runs the package and the program on the same file."""
    count = count_of(2000)
    source = posts(folder, count, 1) / "part-0.parquet"
    score = [topicmill, "score", source, folder / "out.parquet", "--device", "cpu", "--threads", "1", "--overwrite", "-q"]
    ways = {"program": score, "package": [sys.executable, "-c", PACKAGE, source, folder / "ours.parquet"]}
    in_turns({name: lambda way=way: timed(way, cwd=folder) for name, way in ways.items()}, rounds, count)


def workers(folder: Path, rounds: int) -> None:
    """Runs Dask with one worker and with two."""
    import dask.dataframe as dd
    import topicmill.dask
    from distributed import Client

    count = count_of(1600)
    labeled = topicmill.dask.label(dd.read_parquet(posts(folder, count, count // PARTITION)), text="text")
    models = {}

    def loaded() -> int:
        from topicmill import _labeler

        return sum(one.scorer is not None for one in _labeler._process.loaded.values())

    def run(workers: int) -> tuple:
        # One cluster at a time, because an idle cluster takes a few percent of a core.
        with Client(n_workers=workers, threads_per_worker=1, dashboard_address=None) as client:
            client.compute(labeled.partitions[:workers], sync=True)
            client.compute(labeled.partitions[-workers:], sync=True)
            figures = measured(lambda: client.compute(labeled, sync=True))
            models[workers] = list(client.run(loaded).values())
        return figures

    in_turns({"one worker": lambda: run(1), "two workers": lambda: run(2)}, rounds, count)
    print(f"\nmodels loaded by each worker process: {models}")


def pipeline(folder: Path, hf: str, model: str, rounds: int) -> None:
    """Compares the transformers pipeline in `map_partitions` with `topicmill.dask.label`."""
    import dask.dataframe as dd
    import topicmill.dask
    from distributed import Client

    count = count_of(100)
    frame = dd.read_parquet(posts(folder, count, count // BATCH))

    def by_pipeline(part: pd.DataFrame, hf: str, batch: int) -> pd.DataFrame:
        import torch
        from transformers import pipeline

        if not hasattr(torch, "the_pipeline"):  # one pipeline per worker process
            torch.set_num_threads(1)
            torch.the_pipeline = pipeline("text-classification", model=hf, device="cpu", top_k=1)
        found = torch.the_pipeline(part["text"].tolist(), batch_size=batch, padding="longest", truncation=True)
        return part.assign(label=[one[0]["label"] for one in found], score=[one[0]["score"] for one in found])

    meta = frame._meta.assign(label=pd.Series(dtype="str"), score=pd.Series(dtype="float64"))
    ways = {
        "map_partitions over the pipeline": frame.map_partitions(by_pipeline, hf, BATCH, meta=meta),
        "topicmill.dask.label": topicmill.dask.label(frame, text="text", model=model, threads=1, device="cpu"),
    }
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        found = {name: client.compute(way, sync=True) for name, way in ways.items()}
        runs = {name: lambda way=way: measured(lambda: client.compute(way, sync=True)) for name, way in ways.items()}
        in_turns(runs, rounds, count)
    theirs, ours = (one.sort_values("id") for one in found.values())
    same = (theirs["label"].to_numpy() == ours["label"].to_numpy()).mean()
    apart = np.abs(theirs["score"].to_numpy() - ours["score"].to_numpy()).max()
    print(f"\nthe same label: {same:.1%}; the largest score difference: {apart:.1e}")


if __name__ == "__main__":
    folder, what, *rest = sys.argv[1:]
    paths = {"program": 1, "workers": 0, "pipeline": 2}[what]
    rounds = int(rest[paths]) if len(rest) > paths else 3
    globals()[what](Path(folder).resolve(), *(str(Path(path).resolve()) for path in rest[:paths]), rounds)
