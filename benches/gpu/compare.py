#!/usr/bin/env python3
"""Compares two outputs of `topicmill score`: the largest score difference, and the number of changed labels.

    compare.py FIRST SECOND [TOLERANCE]

The exit code is 1 if a score differs by more than TOLERANCE (default 0.01, the tolerance of float16), or if the outputs
are empty or differ in length.
"""

import json
import sys
from pathlib import Path


def main() -> int:
    """Reads both files and prints the comparison."""
    first, second = ([json.loads(line) for line in Path(name).read_text().splitlines()] for name in sys.argv[1:3])
    tolerance = float(sys.argv[3]) if len(sys.argv) > 3 else 0.01
    if not first or len(first) != len(second):
        print(f"{len(first)} rows and {len(second)} rows", file=sys.stderr)
        return 1
    pairs = list(zip(first, second, strict=True))
    largest = max(abs(a["scores"][label] - b["scores"][label]) for a, b in pairs for label in a["scores"])
    moved = sum(a["label"] != b["label"] for a, b in pairs)
    print(f"{len(pairs)} posts: largest score difference {largest:.2e}, {moved} labels differ")
    return int(largest > tolerance)


if __name__ == "__main__":
    sys.exit(main())
