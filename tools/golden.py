#!/usr/bin/env python3
"""Write the parity fixtures, or check a binary against them; tools/README.md says more.

Without an option, the tiny models and their golden scores are written under tests/it/fixtures.
"""

import argparse
import os
import sys
from pathlib import Path

from parity.check import CheckError, check

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "it" / "fixtures"


def main() -> int:
    """Read the arguments and do what they say; returns the exit code."""
    arguments = parse()
    if arguments.check:
        return run_check(arguments)
    # Read by the libraries when they are imported, so only then, and only where fixtures are written.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
    from parity.write import write_classifiers, write_full, write_tiny

    if arguments.full:
        write_full(arguments.full, arguments.layers)
    else:
        if arguments.only != "classifiers":
            write_tiny(FIXTURES)
        if arguments.only != "nli":
            write_classifiers(FIXTURES / "classifiers")
    return 0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", type=Path, metavar="BINARY", help="compare the scores of this binary")
    action.add_argument("--full", type=Path, metavar="DIR", help="write a model of bart-large's shape and its scores")
    parser.add_argument(
        "--models",
        type=Path,
        metavar="DIR",
        default=FIXTURES,
        help="with --check: a folder with models/ and golden/, such as --full writes",
    )
    parser.add_argument("--only", choices=("nli", "classifiers"), help="write the fixtures of this kind")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="with --check: the largest error that passes")
    parser.add_argument("--layers", type=int, default=12, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_check(arguments: argparse.Namespace) -> int:
    """0 if all scores agree, 1 if any does not, 2 if nothing could be compared."""
    try:
        agrees = check(arguments.check.resolve(), arguments.models.resolve(), arguments.tolerance)
    except (CheckError, OSError) as problem:
        print(f"cannot check: {problem}", file=sys.stderr)
        return 2
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
