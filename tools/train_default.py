#!/usr/bin/env python3
"""Train the model that ships further, on labelled posts: `make train-default` runs it.

It takes a file of posts (NDJSON with title, selftext, topic) and the folder of the model before. It writes the folder
of an embedding model that still takes any labels, with learned label vectors for the sixteen topics. A run that was
stopped goes on where it was.
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
from training.precision import precision_of
from training.shipped import read_shipped, write_shipped
from training.vectors import Scales, fitted
from training.words import Label, read_labels

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Train, average, mix, write."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    recipe = topics.Recipe(precision=precision_of(arguments.precision))
    words = read_labels(ROOT / "pipelines/sixteen-topics.toml")
    labels = topics.Labels.of(words)
    with arguments.posts.open(encoding="utf-8") as lines:
        posts = [json.loads(line) for line in lines]
    train, held = topics.rows_of(posts, labels, recipe.held_out)
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
        kept += run(trainer, arguments.work / f"seed-{seed}")[recipe.average_from :]
    averaged = topics.averaged([torch.load(path, weights_only=True) for path in kept])
    model.load_state_dict(topics.mixed(before, averaged, recipe.share))
    write_shipped(model, arguments.base, arguments.out)
    learn(arguments.out, words, train, held, recipe)
    return 0


def learn(folder: Path, words: list[Label], train: list[topics.Row], held: list[topics.Row], recipe: topics.Recipe):
    """Label vectors for the labels, by the graph that was written."""
    embedder = Embedder(folder, 1)
    vectors = embedder.vectors([row.text for row in train], say)
    worded = embedder.of_labels([label.texts for label in words])
    found = fitted(vectors, keep.numbers_of(train), worded, Scales.of(embedder.head), recipe.label_pull)
    keep.write_vectors(folder, words, found)
    judges, target = embedder.vectors([row.text for row in held]), keep.numbers_of(held)
    for name, of_labels in (("words", worded), ("learned vectors", found)):
        right = (judges @ of_labels.T).argmax(1) == target
        say(f"by {name}: accuracy {right.mean():.4f} of {len(held)} texts held out")


def run(trainer: topics.Trainer, work: Path) -> list[Path]:
    """Every step, from the last checkpoint on; returns the weights of each half epoch."""
    work.mkdir(parents=True, exist_ok=True)
    checkpoint = work / "checkpoint.pt"
    if checkpoint.exists():
        trainer.load(checkpoint)
    half = trainer.a_epoch // 2
    while trainer.step < trainer.steps:
        seen = trainer.once()
        if trainer.step % 20 == 0:
            say(
                f"step {trainer.step} of {trainer.steps}: "
                + " ".join(f"{key} {value:.3f}" for key, value in seen.items())
            )
        if trainer.step % half == 0:
            weights = {name: weight.half() for name, weight in trainer.encoder.model.state_dict().items()}
            torch.save(weights, work / f"weights-{trainer.step:05}.pt")
        if trainer.step % 100 == 0 or trainer.step == trainer.steps:
            trainer.save(checkpoint)
    return sorted(work.glob("weights-*.pt"))


def say(line: str) -> None:
    """A line with the time."""
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("posts", type=Path, help="NDJSON with title, selftext and topic (a slug of the sixteen)")
    parser.add_argument("base", type=Path, help="folder of the model before")
    parser.add_argument("out", type=Path, help="folder of the new model")
    parser.add_argument(
        "--work", type=Path, default=Path("target/train-default"), help="checkpoints (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1, help="the bits of the weights depend on it (default: 1)")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="fp32", help="(default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
