#!/usr/bin/env python3
"""Measures the share of labels that a shortlist preserves and the time that it saves.

    python benches/shortlist/run.py TEXTS --model FOLDER [--sizes 1 2 4 8] [FLAGS FOR `score`]

Scores TEXTS (NDJSON) with the large model alone and with a shortlist of each size. The time of a run with one text,
which is mostly loading, is subtracted. Needs only Python.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    """Prints a row for each size and one for the large model alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, metavar="TEXTS")
    parser.add_argument("--topicmill", default="target/release/topicmill", metavar="PROGRAM")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8], metavar="K")
    arguments, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        one = Path(folder, "one.ndjson")
        with arguments.texts.open(encoding="utf-8") as texts:
            one.write_text(texts.readline(), encoding="utf-8")

        def score(*more: str) -> tuple[float, list[str]]:
            """Returns the seconds, excluding loading, and the label of each text."""
            taken = []
            for texts in (one, arguments.texts):
                output = Path(folder, "scored.ndjson")
                began = time.perf_counter()
                command = [arguments.topicmill, "-q", "score", texts, output, "--overwrite", *flags, *more]
                subprocess.run(command, check=True)
                taken.append(time.perf_counter() - began)
            lines = output.read_text(encoding="utf-8").splitlines()
            return taken[1] - taken[0], [json.loads(line).get("label") for line in lines]

        seconds, alone = score()
        print("| labels scored | same label | s per text | times as fast |\n|---|---|---|---|")
        for size in arguments.sizes:
            took, labels = score("--shortlist", str(size))
            same = sum(a == b for a, b in zip(alone, labels, strict=True))
            print(f"| {size} | {100 * same / len(alone):.1f} % | {took / len(alone):.4f} | {seconds / took:.2f} |")
        print(f"| all | 100 % | {seconds / len(alone):.4f} | 1 |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
