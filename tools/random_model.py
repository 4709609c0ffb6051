#!/usr/bin/env python3
"""Writes a Hugging Face classifier with random weights, to try the tools and measure speed without a download.

The classifier is an NLI model unless labels are given. Speed and parity do not depend on training; predicted labels do.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from models import QUIET


def write_model(
    shape: str,
    out: Path,
    seed: int = 1,
    layers: int = 12,
    labels: tuple[str, ...] | None = None,
    problem: str | None = None,
) -> None:
    """Writes an NLI model of a shape, or with `labels` a classifier: configuration, tokenizer and weights."""
    from transformers import logging

    from parity.models import TINY, Spec, base_spec, full_spec, level_logits, make_model, make_tokenizer, save_folder
    from parity.reference import Reference
    from parity.write import sample_batches

    logging.disable_progress_bar()
    specs = {
        "bart-large": full_spec(layers),
        "bert-base": base_spec(),
        "tiny-bart": TINY[0],
        "tiny-bert": TINY[1],
        "tiny-roberta": TINY[3],
        "tiny-deberta": Spec("", "deberta", ("entailment", "neutral", "contradiction"), 64, 64, 6, ""),
    }
    spec = replace(specs[shape], seed=seed)
    if labels:
        spec = replace(spec, labels=labels, problem=problem)
    tokenizer = make_tokenizer(spec)
    model = make_model(spec, len(tokenizer))
    save_folder(spec, model, tokenizer, out)
    level_logits(model, sample_batches(Reference(model, out)))
    model.save_pretrained(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = ("bart-large", "bert-base", "tiny-bart", "tiny-bert", "tiny-roberta", "tiny-deberta")
    parser.add_argument("shape", choices=shapes)
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder, new or empty")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the weights (default: %(default)s)")
    parser.add_argument(
        "--layers", type=int, default=12, metavar="N", help="layers of bart-large's encoder, and of its decoder"
    )
    parser.add_argument("--labels", metavar="NAMES", help="classifier labels, comma-separated (default: NLI classes)")
    problems = ("single_label_classification", "multi_label_classification", "regression")
    parser.add_argument("--problem", choices=problems, help="with --labels: the function from logits to scores")
    arguments = parser.parse_args()
    if arguments.out.exists() and any(arguments.out.iterdir()):
        sys.exit(f"`{arguments.out}` exists and is not an empty folder")
    os.environ |= QUIET
    labels = tuple(arguments.labels.split(",")) if arguments.labels else None
    write_model(arguments.shape, arguments.out, arguments.seed, arguments.layers, labels, arguments.problem)
