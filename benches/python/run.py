#!/usr/bin/env python3
"""The Python package beside the program, on the same file, in turns.

    PYTHON benches/python/run.py TOPICMILL TEXTS.parquet FOLDER [ROUNDS]

PYTHON has the wheel and pyarrow; TOPICMILL is a release build of the same commit; TEXTS has a column `text`. Each way reads
the file, scores it with the default model and labels on one thread, and writes Parquet to FOLDER, in a process of its own:
loading counts. Both the time on the clock and that of the processor are those of the fastest round; on a machine that
others use, look at the second. `within` is the time of `label_batch` alone, after loading.
"""

import os
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
    clock = {name: [] for name in ways}
    processor = {name: [] for name in ways}
    within = []
    for _ in range(rounds):
        for name, command in ways.items():
            begun, before = time.perf_counter(), os.times()
            # Where no settings are, and the default model is found all the same.
            ran = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
            after = os.times()
            clock[name].append(time.perf_counter() - begun)
            used = after.children_user + after.children_system - before.children_user - before.children_system
            processor[name].append(used)
            within += [float(ran.stdout)] if name == "package" else []
    print("| way | clock | processor |\n|---|---|---|")
    for name in ways:
        print(f"| {name} | {min(clock[name]):.2f} s | {min(processor[name]):.2f} s |")
    over = [min(found["package"]) / min(found["program"]) - 1 for found in (clock, processor)]
    print(f"\nwithin: {min(within):.2f} s; package over program: {over[0]:+.1%} clock, {over[1]:+.1%} processor")


if __name__ == "__main__":
    main()
