#!/usr/bin/env python3
"""Train the default model further, on labelled posts: `make train-default` runs it, and `training/topics.py` has the recipe.

It takes posts (NDJSON with title, selftext, topic) and the folder of the model before. It writes the folder of an
embedding model with learned label vectors for the sixteen topics, which still takes any labels.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer

from training import keep, topics
from training.embed import Embedder
from training.fit import precision_of
from training.shipped import read_shipped, write_shipped
from training.vectors import Scales, learn
from training.words import read_labels

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Trains, averages, interpolates and writes the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("posts", type=Path, help="NDJSON with title, selftext and topic (a slug of the sixteen)")
    add("base", type=Path, help="folder of the base model")
    add("out", type=Path, help="folder of the new model")
    add("--work", type=Path, default=Path("target/train-default"), help="weights of each half epoch (default: %(default)s)")
    add("--threads", type=int, default=1, help="CPU threads; the exact weights depend on it (default: 1)")
    add("--precision", choices=("bf16", "fp32"), default="fp32", help="number format (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    recipe = topics.Recipe(precision=precision_of(arguments.precision))
    labels = read_labels(ROOT / "pipelines/sixteen-topics.toml")
    with arguments.posts.open(encoding="utf-8") as lines:
        train, held = topics.rows_of([json.loads(line) for line in lines], labels, recipe.held_out)
    tokenizer = Tokenizer.from_file(str(arguments.base / "tokenizer.json"))
    others = topics.other_labels(tokenizer, ROOT / "pipelines/background/reddit.toml")
    model = read_shipped(arguments.base)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    kept = []
    for seed in recipe.seeds:
        say(f"seed {seed} of {recipe.seeds}")
        model.load_state_dict(before)
        encoder = topics.Encoder(model, tokenizer, recipe.frozen, recipe.tokens, recipe.precision)
        trainer = topics.Trainer(encoder, labels, train, others, replace(recipe, seed=seed), say)
        kept += trainer.run(arguments.work / f"seed-{seed}")[recipe.average_from :]
    averaged = topics.averaged([torch.load(path, weights_only=True) for path in kept])
    model.load_state_dict(topics.mixed(before, averaged, recipe.share))
    write_shipped(model, arguments.base, arguments.out)

    embedder = Embedder(arguments.out, 1)
    worded = embedder.of_labels([label.texts for label in labels])
    vectors = embedder.vectors([row.text for row in train], say)
    found = learn(vectors, keep.numbers_of(train), worded, Scales.of(embedder.head), pull=recipe.label_pull)
    keep.write_vectors(arguments.out, labels, found)
    judges, target = embedder.vectors([row.text for row in held]), keep.numbers_of(held)
    for name, of_labels in (("words", worded), ("learned vectors", found)):
        right = (judges @ of_labels.T).argmax(1) == target
        say(f"by {name}: accuracy {right.mean():.4f} of {len(held)} texts held out")
    return 0


def say(line: str) -> None:
    """Prints a line with the time."""
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
