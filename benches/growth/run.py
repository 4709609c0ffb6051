#!/usr/bin/env python3
"""How the time of `topicmill score` grows with posts, with labels and with length: a power of each, fitted.

    PYTHON benches/growth/run.py TOPICMILL MODEL FOLDER [--precision P] [--posts N …] [--labels N …] [--tokens N …]

One of the three changes at a time, the others stay at the middle of theirs. The time is that from the first text to
the last score, without loading the model; the shortest of two rounds. The exponent is the slope of a straight line
through the logarithms, by least squares; R² tells how straight it is. Texts are one word repeated, of one token.
"""

import argparse
import json
import math
import subprocess
from datetime import datetime
from pathlib import Path

VARIED = ("posts", "labels", "tokens")


def main() -> None:
    """Read the arguments, measure each series in turns, print a table for each."""
    arguments = parse()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    middle = {name: sorted(getattr(arguments, name))[len(getattr(arguments, name)) // 2] for name in VARIED}
    for name in VARIED:
        values = sorted(getattr(arguments, name))
        best = dict.fromkeys(values, math.inf)
        for _ in range(2):
            for value in values:
                best[value] = min(best[value], seconds(arguments, **(middle | {name: value})))
        others = ", ".join(f"{middle[other]} {other}" for other in VARIED if other != name)
        print(f"\n| {name} | s | s a {name[:-1]} |\n|---|---|---|")
        for value, time in best.items():
            print(f"| {value:,} | {time:.2f} | {time / value:.4f} |")
        exponent, straight = fit(list(best), list(best.values()))
        print(f"\nWith {others}: time grows as {name} to the power of {exponent:.2f} (R² {straight:.3f})")


def seconds(arguments: argparse.Namespace, posts: int, labels: int, tokens: int) -> float:
    """From the first text to the last score."""
    texts = arguments.folder / "texts.ndjson"
    texts.write_text(
        "".join(json.dumps({"id": str(i), "text": f"{i} " + "the " * tokens}) + "\n" for i in range(posts))
    )
    command = [arguments.topicmill, "--log-format", "json", "score", texts, arguments.folder / "scores.ndjson"]
    command += ["--overwrite", "--model", arguments.model, "--precision", arguments.precision, "--device", "cpu"]
    command += ["--threads", str(arguments.threads)]
    for label in range(labels):
        command += ["--label", f"topic {label}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=arguments.folder)
    times = [datetime.fromisoformat(json.loads(line)["timestamp"]) for line in done.stderr.splitlines()]
    return (times[-1] - times[0]).total_seconds()


def fit(values: list[int], times: list[float]) -> tuple[float, float]:
    """Slope and R² of log(time) over log(value)."""
    xs, ys = [math.log(value) for value in values], [math.log(time) for time in times]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    both = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    of_x, of_y = sum((a - x) ** 2 for a in xs), sum((b - y) ** 2 for b in ys)
    return both / of_x, both**2 / (of_x * of_y)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("topicmill", "model", "folder"):
        parser.add_argument(name, type=lambda path: Path(path).resolve())
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--posts", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 32, 64, 128, 256, 512])
    return parser.parse_args()


if __name__ == "__main__":
    main()
