#!/usr/bin/env python3
"""The package in Dask and in Ray beside other ways on the same weights and texts, in turns.

    PYTHON benches/python/peers.py FOLDER workers [ROUNDS]
    PYTHON benches/python/peers.py FOLDER pipeline HF MODEL [ROUNDS]
    PYTHON benches/python/peers.py FOLDER sentences MODEL CHECKPOINT [ROUNDS]

PYTHON has what python/requirements-clusters.txt lists and the package; `pipeline` also needs torch and transformers, and
`sentences` torch and sentence-transformers. Made-up texts as long as on Reddit go to FOLDER as Parquet.

- workers: Dask with one worker and with two, one thread each, the default model.
- pipeline: Dask with one worker of one thread. HF is a classifier as transformers stores it, MODEL what tools/model.py makes of
  it. Beside `topicmill.dask.label` runs `map_partitions` with the text-classification pipeline of transformers, as tutorials
  have it: batches of 25 in the order of the texts, padded to the longest.
- sentences: Ray Data with one actor of one thread. CHECKPOINT has the weights of MODEL as sentence-transformers reads them
  (benches/embedding/run.py makes it). The actor embeds a batch, and compares it with the vectors of the labels.

TEXTS in the environment is the number of texts. Workers are warm: each has loaded its model before the clock runs. Medians; `processor` is the time of all processes below this
one, which other programs on the machine disturb less.
"""

import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}

import numpy as np
import pandas as pd
import psutil

TOP = Path(__file__).resolve().parents[2]
PARTS = 16
# Texts of a partition in Dask with workers.
PARTITION = 50
# Of the pipeline, as in tutorials.
BATCH = 25


def texts(count: int, seed: int = 16) -> list[str]:
    """Three in ten are titles; the others have a median of 90 words."""
    words = (TOP / "docs/words.md").read_text(encoding="utf-8").lower().split()
    words = [word for word in words if word.isalpha()]
    chance = random.Random(seed)
    length = lambda: chance.randint(4, 16) if chance.random() < 0.3 else int(min(400, chance.lognormvariate(4.5, 0.8)))
    return [" ".join(chance.choices(words, k=max(1, length()))) for _ in range(count)]


def posts(folder: Path, count: int, parts: int = PARTS) -> Path:
    """A folder of Parquet."""
    folder = folder / f"posts-{count}-{parts}"
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame({"id": range(count), "text": texts(count)})
    for part, rows in enumerate(np.array_split(np.arange(count), parts)):
        frame.iloc[rows].to_parquet(folder / f"part-{part}.parquet")
    return folder


def processor() -> float:
    """Seconds of all processes below this one that live still."""
    used = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
            used += times.user + times.system
        except psutil.NoSuchProcess:
            pass
    return used


def measure(ways: dict, rows: int, rounds: int) -> dict[str, float]:
    """Runs each way in turn, prints a table, and gives the median seconds of each."""
    clock = {name: [] for name in ways}
    used = {name: [] for name in ways}
    for way in ways.values():
        way()
    for _ in range(rounds):
        for name, way in ways.items():
            before, begun = processor(), time.perf_counter()
            taken = way()
            # A way that starts processes of its own measures itself.
            secs, of_processor = taken or (time.perf_counter() - begun, processor() - before)
            clock[name].append(secs)
            used[name].append(of_processor)
    first = statistics.median(next(iter(clock.values())))
    print(f"{rows} texts, {rounds} rounds, load {os.getloadavg()[0]:.1f}\n")
    print("| way | s | posts/s | times | processor | all rounds |\n|---|---|---|---|---|---|")
    for name, secs in clock.items():
        middle = statistics.median(secs)
        each = ", ".join(f"{one:.1f}" for one in secs)
        print(
            f"| {name} | {middle:.2f} | {rows / middle:.1f} | {first / middle:.2f} | "
            f"{statistics.median(used[name]):.1f} s | {each} |"
        )
    return {name: statistics.median(secs) for name, secs in clock.items()}


def loaded() -> int:
    """Models that a process holds."""
    from topicmill import _labeler

    return sum(one.scorer is not None for one in _labeler._process.loaded.values())


def workers(folder: Path, rounds: int) -> None:
    """Dask with one worker and with two."""
    import dask.dataframe as dd
    from distributed import Client

    import topicmill.dask

    count = int(os.environ.get("TEXTS", "480"))
    # Many partitions a worker, so that the end, when one worker has none left, is short.
    frame = dd.read_parquet(posts(folder, count, parts=max(PARTS, count // PARTITION)))
    labeled = topicmill.dask.label(frame, text="text")
    models = {}

    def run(workers: int) -> tuple[float, float]:
        """One cluster at a time: an idle one takes a few percent of a core from the other."""
        with Client(n_workers=workers, threads_per_worker=1, dashboard_address=None) as client:
            client.compute(labeled.partitions[:workers], sync=True)
            client.compute(labeled.partitions[-workers:], sync=True)
            before, begun = processor(), time.perf_counter()
            client.compute(labeled, sync=True)
            taken = time.perf_counter() - begun, processor() - before
            models[workers] = list(client.run(loaded).values())
        return taken

    measure({"one worker": lambda: run(1), "two workers": lambda: run(2)}, count, rounds)
    print(f"\nmodels of each worker's process: {models}")


def pipeline(folder: Path, hf: str, model: str, rounds: int) -> None:
    """`map_partitions` over the pipeline of transformers, and over a labeler."""
    import dask.dataframe as dd
    from distributed import Client

    import topicmill.dask

    count = int(os.environ.get("TEXTS", "100"))
    # So that a batch of the pipeline is full.
    frame = dd.read_parquet(posts(folder, count, parts=count // BATCH))

    def by_pipeline(part: pd.DataFrame, hf: str, batch: int) -> pd.DataFrame:
        import torch
        from transformers import pipeline

        if not hasattr(torch, "the_pipeline"):  # one a process, as a worker's global
            torch.set_num_threads(1)
            torch.the_pipeline = pipeline("text-classification", model=hf, device="cpu", top_k=1)
        found = torch.the_pipeline(part["text"].tolist(), batch_size=batch, padding="longest", truncation=True)
        return part.assign(label=[one[0]["label"] for one in found], score=[one[0]["score"] for one in found])

    meta = frame._meta.assign(label=pd.Series(dtype="str"), score=pd.Series(dtype="float64"))
    theirs = frame.map_partitions(by_pipeline, hf, BATCH, meta=meta)
    ours = topicmill.dask.label(frame, text="text", model=model, threads=1, device="cpu")
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        found = {}
        ways = {
            "map_partitions over the pipeline": lambda: found.update(theirs=client.compute(theirs, sync=True)),
            "topicmill.dask.label": lambda: found.update(ours=client.compute(ours, sync=True)),
        }
        measure(ways, count, rounds)
    theirs, ours = (found[name].sort_values("id") for name in ("theirs", "ours"))
    same = (theirs["label"].to_numpy() == ours["label"].to_numpy()).mean()
    apart = np.abs(theirs["score"].to_numpy() - ours["score"].to_numpy()).max()
    print(f"\nthe same label: {same:.1%}; the largest difference of a score: {apart:.1e}")


class Sentences:
    """What an actor of Ray does with sentence-transformers: the label whose vector is nearest."""

    def __init__(self, checkpoint: str, labels: list[str], max_tokens: int) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(1)
        self.model = SentenceTransformer(checkpoint, device="cpu")
        # As many as topicmill reads; the checkpoint's own number may be another, and then both do other work.
        self.model.max_seq_length = max_tokens
        self.labels = np.array(labels)
        self.vectors = self.model.encode(labels, normalize_embeddings=True, show_progress_bar=False)

    def __call__(self, batch: dict) -> dict:
        vectors = self.model.encode(batch["text"].tolist(), normalize_embeddings=True, show_progress_bar=False)
        likeness = vectors @ self.vectors.T
        return batch | {"label": self.labels[likeness.argmax(axis=1)], "score": likeness.max(axis=1)}


def sentences(folder: Path, model: str, checkpoint: str, rounds: int) -> None:
    """sentence-transformers under Ray, and a labeler."""
    import ray
    from ray.data import ActorPoolStrategy

    from topicmill import Labeler

    count = int(os.environ.get("TEXTS", "480"))
    source = str(posts(folder, count))
    labels = Labeler(model=model).load().labels
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False

    def run(kind: type, settings: dict):
        read = ray.data.read_parquet(source).repartition(PARTS)
        labeled = read.map_batches(
            kind, fn_constructor_kwargs=settings, batch_size=count // PARTS, compute=ActorPoolStrategy(size=1)
        )
        # Ray stops its actors after each run, so each run loads the model: its second half is what is measured.
        for at, _ in enumerate(labeled.iter_batches(batch_size=count // PARTS)):
            if at == PARTS // 2 - 1:
                half = time.perf_counter()
        return time.perf_counter() - half

    ours = {"model": model, "labels": list(labels), "threads": 1, "device": "cpu"}
    max_tokens = json.loads((Path(model) / "config.json").read_text())["zero_shot"]["max_length"]
    theirs = {"checkpoint": checkpoint, "labels": list(labels), "max_tokens": max_tokens}
    times = {"sentence-transformers": [], "Labeler": []}
    for _ in range(rounds):
        times["sentence-transformers"].append(run(Sentences, theirs))
        times["Labeler"].append(run(Labeler, ours))
    ray.shutdown()
    print(f"{count // 2} texts, {rounds} rounds, load {os.getloadavg()[0]:.1f}\n")
    print("| way under Ray | s | posts/s | times | all rounds |\n|---|---|---|---|---|")
    first = statistics.median(times["sentence-transformers"])
    for name, secs in times.items():
        middle = statistics.median(secs)
        each = ", ".join(f"{one:.1f}" for one in secs)
        print(f"| {name} | {middle:.2f} | {count / 2 / middle:.1f} | {first / middle:.2f} | {each} |")


def main() -> None:
    """Reads the arguments."""
    folder, what, *rest = sys.argv[1:]
    paths = {"workers": 0, "pipeline": 2, "sentences": 2}[what]
    rounds = int(rest[paths]) if len(rest) > paths else 3
    {"workers": workers, "pipeline": pipeline, "sentences": sentences}[what](
        Path(folder).resolve(), *(str(Path(path).resolve()) for path in rest[:paths]), rounds
    )


if __name__ == "__main__":
    main()
