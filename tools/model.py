#!/usr/bin/env python3
"""Make a topicmill model folder from the local folder of a Hugging Face classifier, of NLI or of labels of its own.

Exit code 0: the folder is written, every graph proved against torch. 1: a graph is wrong or cannot be stored, and
nothing is written. 2: the model or the arguments cannot be used. tools/README.md says more.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

from models.quiet import QUIET

DEFAULT_GRAPHS = "cpu-fp32,cpu-int8,cuda-fp16"


def main(words: list[str] | None = None) -> int:
    """Read the arguments and do what they say; returns the exit code."""
    arguments = parse(words)
    os.environ |= QUIET
    logging.disable(logging.WARNING)  # the quantizer advises what was already done
    from models.errors import GraphError, InputError
    from models.make import GRAPHS, make_folder
    from models.source import read_source

    names = list(dict.fromkeys(arguments.graphs.split(",")))
    try:
        for name in names:
            if name not in GRAPHS:
                raise InputError(f"`{name}` is no graph: there are {', '.join(GRAPHS)}")
        source = read_source(arguments.model, arguments.kind)
        make_folder(source, arguments.out, names, lambda line: print(line, file=sys.stderr))
    except InputError as problem:
        print(f"cannot make a model folder: {problem}", file=sys.stderr)
        return 2
    except (GraphError, OSError) as problem:
        print(f"nothing is written: {problem}", file=sys.stderr)
        return 1
    return 0


def parse(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of BART, BERT, RoBERTa or DeBERTa")
    parser.add_argument("out", type=Path, metavar="OUT", help="the model folder, new or empty")
    parser.add_argument(
        "--graphs", metavar="NAMES", default=DEFAULT_GRAPHS, help="which to make, by commas (default: %(default)s)"
    )
    parser.add_argument(
        "--kind",
        choices=("auto", "nli", "classifier"),
        default="auto",
        help="what it is; auto: nli where a class is the entailment, else classifier (default: %(default)s)",
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
