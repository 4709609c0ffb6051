#!/usr/bin/env python3
"""Fits growth exponents: `topicmill score` over posts, labels and length, and the store over posts.

    benches/growth.py score TOPICMILL MODEL FOLDER [--precision P] [--posts N …] [--labels N …] [--tokens N …]
    benches/growth.py store BENCH URL [--posts N …]

`score` varies the number of posts, labels or tokens and keeps the other two at their middle values. The time is the
shorter of two rounds, from the first text to the last score, excluding model loading. Each text repeats a one-token
word.

`store`: BENCH is the program that `cargo bench --no-run --bench store` builds. URL is `sqlite:FOLDER`, or a server on
which a database can be created: `postgres://…/NAME`. For each number of posts, the script fills the database
FOLDER/growth_N.db or NAME_N and keeps it: a second run times the existing database. The power should be near 0 for an
operation on a fixed number of rows, and near 1 for a scan.
"""

import argparse
import json
import math
import re
import subprocess
from datetime import datetime
from pathlib import Path

from common import power

VARIED = ("posts", "labels", "tokens")
LINE = re.compile(r"^(.+): ([0-9.]+) ms")


def score(arguments: argparse.Namespace) -> None:
    """Measures the series in interleaved order and prints a table for each."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    middle = {name: sorted(getattr(arguments, name))[len(getattr(arguments, name)) // 2] for name in VARIED}
    for name in VARIED:
        values = sorted(getattr(arguments, name))
        best = dict.fromkeys(values, math.inf)
        for _ in range(2):
            for value in values:
                best[value] = min(best[value], seconds(arguments, **(middle | {name: value})))
        others = ", ".join(f"{middle[other]} {other}" for other in VARIED if other != name)
        print(f"\n| {name} | s | s per {name[:-1]} |\n|---|---|---|")
        for value, time in best.items():
            print(f"| {value:,} | {time:.2f} | {time / value:.4f} |")
        exponent, straight = power(list(best), list(best.values()))
        print(f"\nWith {others}: time grows as {name} to the power of {exponent:.2f} (R² {straight:.3f})")


def seconds(arguments: argparse.Namespace, posts: int, labels: int, tokens: int) -> float:
    """Times a run from the first text to the last score."""
    texts = arguments.folder / "texts.ndjson"
    texts.write_text("".join(json.dumps({"id": str(i), "text": f"{i} " + "the " * tokens}) + "\n" for i in range(posts)))
    command = [arguments.topicmill, "--log-format", "json", "score", texts, arguments.folder / "scores.ndjson"]
    command += ["--overwrite", "--model", arguments.model, "--precision", arguments.precision, "--device", "cpu"]
    command += ["--threads", str(arguments.threads)]
    for label in range(labels):
        command += ["--label", f"topic {label}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=arguments.folder)
    times = [datetime.fromisoformat(json.loads(line)["timestamp"]) for line in done.stderr.splitlines()]
    return (times[-1] - times[0]).total_seconds()


def store(arguments: argparse.Namespace) -> None:
    """Runs the store benchmark at each number of posts and prints a table of times and powers."""
    times = {posts: measured(arguments, posts) for posts in arguments.posts}
    print("| ms | " + " | ".join(f"{posts:,}" for posts in times) + " | power |\n|---|" + "---|" * (len(times) + 1))
    for name in next(iter(times.values())):
        row = [by_name.get(name, math.nan) for by_name in times.values()]
        print(f"| {name} | " + " | ".join(f"{ms:,.1f}" for ms in row) + f" | {power(list(times), row)[0]:.2f} |")


def measured(arguments: argparse.Namespace, posts: int) -> dict[str, float]:
    """Returns the milliseconds of each operation at this many posts: a median, unless the operation runs only once."""
    sqlite = arguments.url.startswith("sqlite:")
    url = f"{arguments.url}/growth_{posts}.db" if sqlite else f"{arguments.url}_{posts}"
    # Only 10,000 texts get logits, because storing logits takes most of the time, and no timed operation scans them.
    done = subprocess.run([arguments.bench, url, str(posts), "10000"], check=True, stdout=subprocess.PIPE, text=True)
    found = (LINE.match(line) for line in done.stdout.splitlines())
    return {match[1]: float(match[2]) for match in found if match}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(required=True)
    way = ways.add_parser("score")
    for name in ("topicmill", "model", "folder"):
        way.add_argument(name, type=lambda path: Path(path).resolve())
    way.add_argument("--precision", default="fp32")
    way.add_argument("--threads", type=int, default=1)
    for name, default in (("posts", [2, 4, 8, 16]), ("labels", [2, 4, 8, 16, 32]), ("tokens", [16, 32, 64, 128, 256, 512])):
        way.add_argument(f"--{name}", type=int, nargs="+", default=default)
    way.set_defaults(run=score)
    way = ways.add_parser("store")
    way.add_argument("bench")
    way.add_argument("url")
    way.add_argument("--posts", type=int, nargs="+", default=[100_000, 316_000, 1_000_000])
    way.set_defaults(run=store)
    arguments = parser.parse_args()
    arguments.run(arguments)
