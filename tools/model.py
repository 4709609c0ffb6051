#!/usr/bin/env python3
"""Makes a topicmill model folder from a Hugging Face model in a local folder.

The model is an NLI model, a classifier with its own labels, a GLiClass model, or an embedding model of
sentence-transformers.

Exit codes: 0 if the folder is written and every graph is verified against torch, 1 if a graph is wrong or cannot be
stored, and 2 if the model or the arguments are unusable. Nothing is written unless the code is 0. See tools/README.md
for details.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

from models import QUIET

DEFAULT_GRAPHS = "cpu-fp32,cpu-int8,cuda-fp16"
EMBEDDING_GRAPH = "cpu-fp32"
MOST_SCALE = 1000.0  # with more, the nearest label always gets a score of 1


def main(words: list[str] | None = None) -> int:
    """Parses the arguments and runs the command; returns the exit code."""
    arguments = parse(words)
    os.environ |= QUIET
    logging.disable(logging.WARNING)  # the quantizer recommends steps that were already done
    from models import GraphError, InputError

    try:
        make(arguments)
    except InputError as problem:
        print(f"cannot make a model folder: {problem}", file=sys.stderr)
        return 2
    except (GraphError, OSError) as problem:
        print(f"nothing was written: {problem}", file=sys.stderr)
        return 1
    return 0


def make(arguments: argparse.Namespace) -> None:
    """Makes the folder. Raises `InputError`, `GraphError`, and `OSError` if the disk is full."""
    from models import InputError
    from models.embedding import FEWEST_TOKENS, MODULES, SCALE, make_embedding, read_embedding
    from models.make import GRAPHS, make_folder
    from models.source import is_gliclass, read_source

    names = list(dict.fromkeys((arguments.graphs or DEFAULT_GRAPHS).split(",")))
    for name in names:
        if name not in GRAPHS:
            raise InputError(f"`{name}` is not a graph: choose from {', '.join(GRAPHS)}")
    kind, scale, most = arguments.kind, arguments.scale, arguments.max_tokens
    if kind == "auto" and (arguments.model / MODULES).is_file():
        kind = "embedding"
    if kind != "embedding" and (scale is not None or most is not None):
        raise InputError("--scale and --max-tokens are for an embedding model: leave them out")
    if kind == "gliclass" or (kind == "auto" and is_gliclass(arguments.model)):
        from models.gliclass import read_gliclass  # imported here because the `gliclass` package loads slowly

        return make_folder(read_gliclass(arguments.model, arguments.task_prompt), arguments.out, names, say)
    if arguments.task_prompt is not None:
        raise InputError("--task-prompt is for a GLiClass model: leave it out")
    if kind != "embedding":
        return make_folder(read_source(arguments.model, kind), arguments.out, names, say)
    if arguments.graphs and names != [EMBEDDING_GRAPH]:
        raise InputError(
            f"an embedding model has one graph, `{EMBEDDING_GRAPH}`, which GPUs use too: leave out --graphs"
        )
    if scale is not None and not 0 < scale <= MOST_SCALE:
        raise InputError(f"--scale is {scale:g}: set a number above 0, at most {MOST_SCALE:g}")
    if most is not None and most < FEWEST_TOKENS:
        raise InputError(f"--max-tokens is {most}: set it to {FEWEST_TOKENS} or more")
    return make_embedding(read_embedding(arguments.model, most), arguments.out, scale or SCALE, say)


def say(line: str) -> None:
    """Prints a line for the user."""
    print(line, file=sys.stderr)


def parse(words: list[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    families = "BART, BERT, RoBERTa, DeBERTa, GLiClass or sentence-transformers"
    parser.add_argument("model", type=Path, metavar="MODEL", help=f"folder of {families}")
    parser.add_argument("out", type=Path, metavar="OUT", help="the model folder, new or empty")
    parser.add_argument(
        "--graphs",
        metavar="NAMES",
        help=f"graphs to make, comma-separated (default: {DEFAULT_GRAPHS}; for an embedding model {EMBEDDING_GRAPH})",
    )
    parser.add_argument(
        "--kind",
        choices=("auto", "nli", "classifier", "embedding", "gliclass"),
        default="auto",
        help="kind of model; auto: embedding if there is a modules.json, gliclass if config.json says so, nli if a class "
        "is entailment, else classifier (default: %(default)s)",
    )
    parser.add_argument(
        "--scale",
        type=float,
        metavar="N",
        help="for an embedding model: factor by which cosines are multiplied before the softmax (default: 20)",
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="for an embedding model: truncate texts to N tokens (default: the model's limit)",
    )
    parser.add_argument(
        "--task-prompt",
        metavar="TEXT",
        help="for a GLiClass model: text that describes the task, read with every text; end it with a space, because a "
        "text may follow directly (default: none)",
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
