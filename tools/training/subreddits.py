"""Posts with the topic of their subreddit as a weak label: sampling weights, and folds of whole subreddits.

Input is two files of posts (NDJSON with id, title, selftext, subreddit, topic): those of a few well-known subreddits,
and those of many more. Folds leave out whole subreddits, because a model looks better than it is on posts of subreddits
that it was trained on.
"""

import gzip
import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models import InputError
from training.posts import texts_of
from training.words import Label

FOLDS = 5
MANY = 20  # a topic with so many subreddits loses three of them to a fold, others two
KEY = 200  # letters by which texts are compared


@dataclass(frozen=True)
class Posts:
    """Posts in order. `known` is true in the subreddits of the first file."""

    ids: list[str]
    whole: list[str]
    titles: list[str]
    labels: np.ndarray
    subreddits: np.ndarray
    known: np.ndarray


def read_posts(known: Path, broad: Path | None, labels: list[Label]) -> Posts:
    """Reads both files; each id and each text counts once."""
    number = {label.slug: index for index, label in enumerate(labels)}
    first = lines_of(known)
    names = {post["subreddit"] for post in first}
    seen_ids, seen_texts, rows = set(), set(), []
    for post in first + (lines_of(broad) if broad else []):
        whole, title = texts_of(post)
        key = " ".join(whole.lower().split())[:KEY]
        if post["id"] in seen_ids or not key or key in seen_texts:
            continue
        seen_ids.add(post["id"])
        seen_texts.add(key)
        rows.append((post["id"], whole, title or whole, number[post["topic"]], post["subreddit"]))
    ids, wholes, titles, numbers, subreddits = (list(column) for column in zip(*rows, strict=True))
    is_known = np.array([name in names for name in subreddits])
    return Posts(ids, wholes, titles, np.array(numbers), np.array(subreddits), is_known)


def lines_of(path: Path) -> list[dict]:
    """Reads NDJSON, packed by gzip or not."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def weights_of(posts: Posts, without: np.ndarray, power: float, known: float) -> np.ndarray:
    """Returns how often each post is drawn, adding up to 1: each topic equally often.

    In a topic, a subreddit counts by the number of its posts to the power `power`, times `known` if it is of the first
    file. Posts that are `without` are never drawn.
    """
    weights = np.zeros(len(posts.labels))
    for label in np.unique(posts.labels):
        inside = posts.labels == label
        counts = Counter(posts.subreddits[inside])
        factor = dict(zip(posts.subreddits[inside], np.where(posts.known[inside], known, 1.0), strict=True))
        weights[inside] = [factor[name] * counts[name] ** (power - 1) for name in posts.subreddits[inside]]
        weights[inside & without] = 0
        if not weights[inside].any():
            raise InputError("a topic has no posts in the subreddits that are left: add posts of more subreddits")
        weights[inside] /= weights[inside].sum()
    return weights / weights.sum()


def drawn(weights: np.ndarray, count: int, titles: float, numbers: np.random.Generator) -> list[tuple[int, bool]]:
    """Draws posts in random order; returns the row of each and true if only its title is read.

    A post is drawn `count` times its weight, rounded up or down at random. `titles` is the share of bare titles.
    """
    expected = weights * count
    times = np.floor(expected).astype(int)
    times += numbers.random(len(weights)) < expected - times
    order = np.repeat(np.arange(len(weights)), times)
    numbers.shuffle(order)
    order = order[:count]
    return list(zip(order.tolist(), (numbers.random(len(order)) < titles).tolist(), strict=True))


def folds_of(posts: Posts, labels: list[Label]) -> list[set[str]]:
    """Returns five sets of subreddits, none of the first file: of each topic, two or three a fold.

    Their order is that of a hash of the name, so that nothing chooses them. A topic with too few loses one a fold.
    """
    folds: list[set[str]] = [set() for _ in range(FOLDS)]
    for number in range(len(labels)):
        names = sorted(
            set(posts.subreddits[(posts.labels == number) & ~posts.known]),
            key=lambda name: hashlib.sha256(f"fold {name}".encode()).hexdigest(),
        )
        each = 3 if len(names) >= MANY else 2 if len(names) >= 2 * FOLDS else 1
        for fold, of_one in enumerate(folds):
            last = fold == FOLDS - 1 and each == 1
            of_one.update(names[fold * each : None if last else (fold + 1) * each])
    return folds
