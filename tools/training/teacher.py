"""Soft targets for posts from two models that never saw the post's subreddit.

Input is vectors of the posts by a larger model and by the base. Both learn label vectors from four fifths of the
subreddits, and together they score the posts of the rest. A post about politics in r/technology thus need not count as
technology, and the student learns how topics look in unseen subreddits.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModel

from training.embed import GROWTH, LETTERS, micro_batches
from training.report import softmax
from training.subreddits import Posts
from training.vectors import Loss, Recipe, Scales, unit
from training.words import Label

Say = Callable[[str], None]

PARTS = 5
TOKENS = 128
BUDGET = 2048  # padded tokens in a batch


@dataclass(frozen=True)
class Teaching:
    """Hyperparameters of the targets.

    `known` and `broad` are the teachers' share of a target in subreddits of the first and of the second file. If both
    teachers agree on another label, and give the subreddit's less than `doubt`, they alone count. `weight` is how often
    the teachers see a well-known subreddit, compared with another.
    """

    scale: float = 25.0
    larger: float = 0.6
    pull_of_larger: float = 0.05
    pull: float = 0.1
    known: float = 0.5
    broad: float = 0.65
    doubt: float = 0.1
    weight: float = 2.0


@dataclass(frozen=True)
class View:
    """Vectors of all posts [n, D] and of the words of the labels [k, D] by one model."""

    posts: np.ndarray
    words: np.ndarray


class Larger:
    """An encoder in a local folder of sentence-transformers, with mean pooling; half precision in bf16."""

    def __init__(self, folder: Path, dtype: torch.dtype):
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval().to(dtype)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(TOKENS)
        self.tokenizer.encode_special_tokens = True

    @torch.no_grad()
    def vectors(self, texts: list[str], say: Say = lambda _: None) -> np.ndarray:
        """Returns vectors [texts, D] of length 1."""
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch([text[: LETTERS * TOKENS] for text in texts])]
        vectors = np.empty((len(ids), self.model.config.hidden_size), np.float32)
        for number, chosen in enumerate(micro_batches(range(len(ids)), ids, BUDGET, GROWTH)):
            rows = [torch.tensor(ids[index]) for index in chosen]
            padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            real = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
            states = self.model(input_ids=padded, attention_mask=real).last_hidden_state.float()
            vectors[chosen] = ((states * real[..., None]).sum(1) / real.sum(1, keepdim=True)).numpy()
            if number % 200 == 199:
                say(f"the teacher read texts of up to {len(ids[chosen[-1]])} tokens")
        return unit(vectors)

    def view(self, posts: Posts, labels: list[Label], say: Say) -> View:
        """Returns its vectors of the posts and of the words of the labels."""
        words = np.stack([self.vectors(label.texts).mean(0) for label in labels])
        return View(self.vectors(posts.whole, say), unit(words))


def parts_of(posts: Posts) -> np.ndarray:
    """Returns the part of each post: whole subreddits, and in the well-known ones single posts."""
    names = np.where(posts.known, posts.ids, posts.subreddits)
    return np.array([int(hashlib.sha256(f"part {name}".encode()).hexdigest(), 16) % PARTS for name in names])


def targets_of(
    posts: Posts, weights: np.ndarray, larger: View, base: View, teaching: Teaching, say: Say = lambda _: None
) -> np.ndarray:
    """Returns a target [n, k] for each post. Posts without a weight teach nothing."""
    parts, places = parts_of(posts), np.arange(len(posts.labels))
    cosines = [np.empty((len(places), len(view.words)), np.float32) for view in (larger, base)]
    for part in range(PARTS):
        taught = (parts != part) & (weights > 0)
        for view, pull, found in zip((larger, base), (teaching.pull_of_larger, teaching.pull), cosines, strict=True):
            vectors = learned(view, posts.labels, weights, taught, pull)
            found[parts == part] = view.posts[parts == part] @ vectors.T
    by_larger, by_base = (found.argmax(1) for found in cosines)
    scores = softmax(teaching.scale * (teaching.larger * cosines[0] + (1 - teaching.larger) * cosines[1]))
    agree = (by_larger == by_base) & (by_larger != posts.labels)
    doubted = agree & (scores[places, posts.labels] < teaching.doubt)
    say(f"{doubted.sum()} of {len(places)} posts: both teachers doubt the topic of the subreddit")
    share = np.where(doubted, 1.0, np.where(posts.known, teaching.known, teaching.broad))[:, None]
    return ((1 - share) * np.eye(scores.shape[1])[posts.labels] + share * scores).astype(np.float32)


def learned(view: View, labels: np.ndarray, weights: np.ndarray, rows: np.ndarray, pull: float) -> np.ndarray:
    """Returns label vectors [k, D] learned from some rows."""
    shares, words = np.eye(len(view.words))[labels[rows]], unit(view.words.astype(np.float64))
    loss = Loss(view.posts[rows], shares, words, Scales(21.0, 23.5, 0.281), Recipe(steps=60), weights[rows])
    return loss.fitted(words, pull).astype(np.float32)
