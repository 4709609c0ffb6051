#!/usr/bin/env python3
"""Trains a model on posts from `topicmill export` and makes a topicmill model folder.

Exit codes: 0 if the folder is written, 1 if training stopped early (a loss of NaN, a full disk) and only checkpoints
are written, and 2 if the posts, the base or the arguments are unusable. docs/models.md is the guide.
"""

import argparse
import logging
import os
import sys
import time
from pathlib import Path

from models import QUIET

SHIPPED = Path(__file__).resolve().parent.parent / "models" / "minilm-reddit-topics"


def main(words: list[str] | None = None) -> int:
    """Parses the arguments and runs the command; returns the exit code."""
    arguments = parse(words)
    os.environ |= QUIET
    logging.disable(logging.WARNING)

    from models import GraphError, InputError
    from training.fit import DivergedError
    from training.whole import train

    def say(line: str) -> None:
        print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)

    try:
        train(arguments, say)
    except InputError as problem:
        print(f"cannot train: {problem}", file=sys.stderr)
        return 2
    except DivergedError as problem:
        print(
            f"training stopped: {problem}. Lower --rate; the best weights so far are in {arguments.work}",
            file=sys.stderr,
        )
        return 1
    except (GraphError, OSError) as problem:
        print(f"nothing was written: {problem}", file=sys.stderr)
        return 1
    return 0


def parse(words: list[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("posts", type=Path, metavar="TRAIN", help="file or folder written by `topicmill export`")
    add("out", type=Path, metavar="OUT", help="the model folder, new or empty")
    add("--base", type=Path, default=SHIPPED, help="Hugging Face folder, or the default model (default)")
    add("--pipeline", type=Path, metavar="FILE", help="pipeline file with the labels' words")
    add("--label-column", default="label", metavar="NAME", help="column with the label (default: %(default)s)")
    add("--gold", type=Path, metavar="FILE", help="gold labels from `topicmill labels gold export`")
    method = parser.add_mutually_exclusive_group()
    method.add_argument(
        "--head-only", action="store_true", help="train a linear head on the vectors of an embedding model (seconds)"
    )
    method.add_argument(
        "--keep-zero-shot",
        action="store_true",
        help="learn label vectors for an embedding model, which still accepts any other labels (seconds)",
    )
    add("--soft", type=float, default=0.0, metavar="SHARE", help="share of score_… columns in the loss (default: 0)")
    add("--temperature", type=float, default=2.0, help="temperature of these scores (default: %(default)s)")
    add("--no-titles", action="store_true", help="do not also train on the titles of posts with a body")
    add("--epochs", type=int, default=3, help="maximum epochs (default: %(default)s)")
    add("--patience", type=int, default=2, help="stop after this many epochs without a gain (default: %(default)s)")
    add("--batch", type=int, default=48, help="texts per step, split to fit the memory (default: %(default)s)")
    add(
        "--tokens",
        type=int,
        metavar="N",
        help="padded tokens per micro-batch (default: 1536 on a CPU; determined on a GPU)",
    )
    add("--max-tokens", type=int, default=128, metavar="N", help="truncate texts to N tokens (default: %(default)s)")
    add("--rate", type=float, default=5e-5, help="learning rate of the encoder (default: %(default)s)")
    add("--seed", type=int, default=1, metavar="N", help="random seed (default: %(default)s)")
    add("--precision", choices=("auto", "bf16", "fp16", "fp32"), default="auto", help="auto: the fastest (default)")
    add("--threads", type=int, metavar="N", help="CPU threads (default: all)")
    add("--resume", action="store_true", help="resume a stopped run with the same arguments")
    add("--graphs", default="cpu-fp32,cpu-int8", metavar="NAMES", help="as in model.py (default: %(default)s)")
    add("--work", type=Path, metavar="DIR", help="checkpoints and curves (default: OUT.train)")
    arguments = parser.parse_args(words)
    arguments.work = arguments.work or arguments.out.with_name(f"{arguments.out.name}.train")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
