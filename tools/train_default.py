#!/usr/bin/env python3
"""Trains the default model further, on posts of many subreddits: `make train-default` runs it.

Input is posts of well-known subreddits and of many more (NDJSON with id, title, selftext, subreddit, topic), and the
folder of the base model. Output is the folder of an embedding model that is better at the sixteen topics and still
accepts any labels. `training/topics.py` has the recipe.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from models.embedding import MODULES, Embedding, make_embedding
from training import topics
from training.packed import Packed, read_packable
from training.proof import write_proof
from training.shipped import read_shipped, write_shipped
from training.subreddits import Posts, folds_of, read_posts, weights_of
from training.teacher import Teaching, targets_of, teach, topics_of
from training.vectors import Scales, unit
from training.words import Label, read_labels

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Trains, averages, interpolates and writes the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "posts", type=Path, help="NDJSON, packed by gzip or not, with id, title, selftext, subreddit and topic (a slug)"
    )
    add("base", type=Path, help="the base: the default model, or a BERT or MPNet of sentence-transformers")
    add("out", type=Path, help="folder of the new model")
    add("--broad", type=Path, help="more such posts, of many subreddits, which count less")
    add(
        "--teacher",
        type=Path,
        metavar="FOLDER",
        help="a larger BERT or MPNet of sentence-transformers, which is fine-tuned and softens the topics",
    )
    add("--threads", type=int, default=1, help="CPU threads; the exact weights depend on it (default: 1)")
    add("--precision", choices=("bf16", "fp32"), default="bf16", help="number format (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    recipe = topics.Recipe(dtype=torch.bfloat16 if arguments.precision == "bf16" else torch.float32)
    labels = read_labels(ROOT / "pipelines/sixteen-topics.toml")
    posts = read_posts(arguments.posts, arguments.broad, labels)
    model, tokenizer, source = read_network(arguments.base)
    if not source:
        recipe = replace(recipe, scales=scales_of(arguments.base))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    others = topics.other_labels(tokenizer, ROOT / "pipelines/background/reddit.toml")
    # Without many subreddits, no fold of them can be left out.
    fold = folds_of(posts, labels)[recipe.left_out] if arguments.broad else set()
    left_out = np.isin(posts.subreddits, sorted(fold))
    say(f"{len(posts.ids)} posts; {left_out.sum()}, of {len(fold)} subreddits, are left out")
    cosines = None
    if arguments.teacher:
        cosines = teach(arguments.teacher, posts, labels, left_out, recipe.dtype, Teaching(), say)
    if fold:
        say(f"before: {judged(model, tokenizer, labels, posts, left_out, recipe)}")
    weights, begin = weights_of(posts, left_out, recipe.power, recipe.known), before
    for one in recipe.rounds:
        targets = np.stack([topics_of(posts, len(labels))] * 2)
        if cosines is not None:
            targets = targets_of(posts, cosines, one.belief, say)
        trained = []
        for seed in one.seeds:
            say(f"seed {seed}")
            model.load_state_dict(before)
            trainer = topics.Trainer(
                model, tokenizer, labels, posts, weights, targets, others, recipe, one, seed, say, begin
            )
            trained.append(trainer.run())
        begin = topics.averaged(trained)
    model.load_state_dict(topics.mixed(before, begin, recipe.share))
    if fold:
        say(f"after: {judged(model, tokenizer, labels, posts, left_out, recipe)}")
    if source:
        make_embedding(source, arguments.out, recipe.scales.softmax, say)
        set_scales(arguments.out, recipe.scales)
        write_proof(arguments.out, arguments.base)
        return 0
    write_shipped(model, arguments.base, arguments.out)
    sample = posts.whole[:: max(1, len(posts.whole) // 400)]
    background = topics.other_labels(tokenizer, ROOT / "pipelines/background/reddit.toml", 0)
    cosines_to_background = lambda: (  # noqa: E731
        vectors_by(model, tokenizer, sample, recipe) @ vectors_by(model, tokenizer, background, recipe).T
    )
    after = cosines_to_background().mean()
    model.load_state_dict(before)
    shift_bias(arguments.out, float(after - cosines_to_background().mean()))
    return 0


def read_network(folder: Path) -> tuple[torch.nn.Module, Tokenizer, Embedding | None]:
    """Returns the network of a base and its tokenizer, and its source if sentence-transformers wrote the folder."""
    if not (folder / MODULES).is_file():
        return read_shipped(folder), Tokenizer.from_file(str(folder / "tokenizer.json")), None
    source = read_packable(folder, topics.MAX_TOKENS)
    return source.model, Tokenizer.from_file(str(source.folder / "tokenizer.json")), source


def vectors_by(model: torch.nn.Module, tokenizer: Tokenizer, texts: list[str], recipe: topics.Recipe) -> np.ndarray:
    """Returns vectors of texts by the network."""
    return Packed(model, recipe.dtype).embed(topics.encoded(tokenizer, texts, topics.MAX_TOKENS))[0].numpy()


def words_by(model: torch.nn.Module, tokenizer: Tokenizer, labels: list[Label], recipe: topics.Recipe) -> np.ndarray:
    """Returns vectors of the words of the labels."""
    return unit(np.stack([vectors_by(model, tokenizer, label.texts, recipe).mean(0) for label in labels]))


def judged(
    model: torch.nn.Module,
    tokenizer: Tokenizer,
    labels: list[Label],
    posts: Posts,
    left_out: np.ndarray,
    recipe: topics.Recipe,
) -> str:
    """Formats how many posts of subreddits that were left out get their topic, by the words of the labels."""
    rows, words = np.flatnonzero(left_out), words_by(model, tokenizer, labels, recipe)
    right = [
        (
            (vectors_by(model, tokenizer, [texts[row] for row in rows], recipe) @ words.T).argmax(1)
            == posts.labels[rows]
        ).mean()
        for texts in (posts.whole, posts.titles)
    ]
    return f"subreddits left out: right {right[0]:.3f} of whole posts, {right[1]:.3f} of bare titles"


def scales_of(folder: Path) -> Scales:
    """Reads the scales of a model folder."""
    return Scales.of(json.loads((folder / "config.json").read_text(encoding="utf-8"))["zero_shot"])


def set_scales(folder: Path, scales: Scales) -> None:
    """Writes the scales that the network was trained with."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["zero_shot"] |= {"sigmoid_scale": scales.sigmoid, "sigmoid_bias": scales.bias}
    (folder / "config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False), encoding="utf-8")


def shift_bias(out: Path, shift: float) -> None:
    """Adds the change of the cosines to untrained labels to the sigmoid bias, so that their `multi` scores stay."""
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    config["zero_shot"]["sigmoid_bias"] = round(config["zero_shot"]["sigmoid_bias"] + shift, 3)
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def say(line: str) -> None:
    """Prints a line with the time."""
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
