#!/usr/bin/env python3
"""The Python package beside the program, on the same file, in turns.

    PYTHON benches/python/run.py TOPICMILL TEXTS.parquet FOLDER [ROUNDS]

PYTHON has the wheel and pyarrow; TOPICMILL is a release build of the same commit; TEXTS has a column `text`. Each way reads
the file, scores it with the default model and labels on one thread, and writes Parquet to FOLDER, in a process of its own:
loading counts. The package's share of the time is that of the fastest rounds. `within` is the time of `label_batch` alone,
after loading.
"""

import subprocess
import sys
import time
from pathlib import Path

OURS = """
import sys, time
import pyarrow.parquet as pq
from topicmill import Labeler
labeler = Labeler(device="cpu", threads=1).load()
posts = pq.read_table(sys.argv[1])
begun = time.perf_counter()
labeled = labeler.label_batch(posts)
print(time.perf_counter() - begun)
pq.write_table(labeled, sys.argv[2])
"""


def main() -> None:
    """Measures in turns, and prints a table."""
    program, texts, folder = (Path(argument).resolve() for argument in sys.argv[1:4])
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    out = folder / "out.parquet"
    where = ["--device", "cpu", "--threads", "1", "--overwrite", "--quiet"]
    ways = {
        "program": [program, "score", texts, out, *where],
        "package": [sys.executable, "-c", OURS, texts, folder / "ours.parquet"],
    }
    seconds = {name: [] for name in ways}
    within = []
    for _ in range(rounds):
        for name, command in ways.items():
            begun = time.perf_counter()
            ran = subprocess.run(command, cwd=program.parents[2], check=True, stdout=subprocess.PIPE, text=True)
            seconds[name].append(time.perf_counter() - begun)
            within += [float(ran.stdout)] if name == "package" else []
    best = {name: min(found) for name, found in seconds.items()}
    print("| way | best | all rounds |\n|---|---|---|")
    for name, found in seconds.items():
        print(f"| {name} | {best[name]:.2f} s | {', '.join(f'{one:.2f}' for one in found)} |")
    print(f"\nwithin: {min(within):.2f} s; package over program: {best['package'] / best['program'] - 1:+.1%}")


if __name__ == "__main__":
    main()
