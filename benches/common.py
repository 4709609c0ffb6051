"""Helpers for the benchmarks: timing, medians of alternating runs, fitted exponents, and made-up texts.

    python benches/common.py [POSTS] > texts.ndjson
"""

import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
WORDS = [word for word in (TOP / "LICENSE-APACHE").read_text(encoding="utf-8").lower().split() if word.isalpha()]


def timed(command: list, **options) -> tuple[float, float, int]:
    """Runs a command; returns wall-clock seconds, CPU seconds and peak memory in MiB."""
    begun = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, **options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"failed with {process.returncode}: {command}")
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024


def in_turns(ways: dict[str, Callable], rounds: int, rows: int = 0) -> dict[str, float]:
    """Runs each way in turn, prints a table of medians, and returns the median seconds of each.

    A way returns its seconds alone, or a tuple of seconds, CPU seconds and peak MiB. Other work on the machine slows
    all ways of a round alike, so the ratio to the first way is more reliable than the seconds.
    """
    found: dict[str, list[tuple]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            figures = way()
            found[name].append(figures if isinstance(figures, tuple) else (figures,))
    middle = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in found.items()}
    first = next(iter(middle.values()))[0]
    print(f"{rows:,} rows, {rounds} rounds, load {os.getloadavg()[0]:.1f}\n")
    print("| way | s | rows/s | times as fast | CPU s | peak MiB | all rounds |\n|---|---|---|---|---|---|---|")
    for name, (secs, *more) in middle.items():
        others = [f"{one:.1f}" for one in more[:2]] + [""] * (2 - len(more[:2]))
        each = ", ".join(f"{run[0]:.2f}" for run in found[name])
        print(f"| {name} | {secs:.2f} | {rows / secs:,.1f} | {first / secs:.2f} | {' | '.join(others)} | {each} |")
    return {name: figures[0] for name, figures in middle.items()}


def power(sizes: list[float], times: list[float]) -> tuple[float, float]:
    """Slope and R² of log(time) over log(size), by least squares; NaN for a single size."""
    xs, ys = [math.log(one) for one in sizes], [math.log(max(one, 1e-4)) for one in times]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    both = sum((a - x) * (b - y) for a, b in zip(xs, ys))
    of_x, of_y = sum((a - x) ** 2 for a in xs), sum((b - y) ** 2 for b in ys)
    return (both / of_x, both**2 / (of_x * of_y)) if of_x and of_y else (math.nan, math.nan)


def texts(count: int, seed: int = 16) -> list[str]:
    """Returns made-up texts as long as Reddit's: three in ten are titles; bodies have a median of 90 words."""
    chance = random.Random(seed)
    length = lambda: chance.randint(4, 16) if chance.random() < 0.3 else int(min(400, chance.lognormvariate(4.5, 0.8)))
    return [" ".join(chance.choices(WORDS, k=max(1, length()))) for _ in range(count)]


if __name__ == "__main__":
    for number, text in enumerate(texts(int((sys.argv[1:] or [1000])[0])), 1):
        print(json.dumps({"id": number, "text": text}))
