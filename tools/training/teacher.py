"""Soft targets for posts from a larger model that was fine-tuned without their subreddits.

Input is a local folder of sentence-transformers and posts with weak labels. Two copies of the larger model are
fine-tuned, each on one half of the subreddits, and each scores the posts of the other half. A post about politics in
r/technology thus need not count as technology, and the student learns how topics look in unseen subreddits.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional

from training.embed import LETTERS
from training.fit import share_of_rate
from training.packed import Packed, read_packable
from training.report import softmax
from training.subreddits import Posts, drawn, weights_of
from training.words import Label

Say = Callable[[str], None]

HALVES = 2
SORTED = 16  # batches that are sorted by length together


@dataclass(frozen=True)
class Teaching:
    """Hyperparameters of the teachers. Each reads `texts` texts once; `titles` is the share of bare titles."""

    texts: int = 12_800
    titles: float = 0.35
    tokens: int = 64
    power: float = 0.5
    weight: float = 2.0  # of a well-known subreddit, compared with another
    frozen: int = 3
    batch: int = 32
    rate: float = 5e-5
    label_rate: float = 1e-3
    decay: float = 0.01
    warmup: float = 0.1
    smoothing: float = 0.1
    token_drop: float = 0.1
    scale: float = 20.0


@dataclass(frozen=True)
class Belief:
    """Shares of the teacher's scores in a target; the scores are the softmax of its cosines times `scale`.

    `known` and `broad` are the teacher's share of a target in subreddits of the first and of the second file; the rest
    is the topic of the subreddit. If the teacher finds another topic, and gives the subreddit's less than `doubt`, the
    teacher alone counts.
    """

    scale: float
    broad: float
    known: float = 0.5
    doubt: float = 0.1


class Teacher:
    """An encoder of BERT's or MPNet's family with mean pooling, and a vector for each label."""

    def __init__(self, folder: Path, labels: list[Label], dtype: torch.dtype, teaching: Teaching):
        source = read_packable(folder, teaching.tokens)
        self.tokenizer = Tokenizer.from_file(str(source.folder / "tokenizer.json"))
        self.packed, self.teaching = Packed(source.model, dtype), teaching
        self.labels = torch.stack([self.vectors(label.texts).mean(0) for label in labels])

    def ids(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of texts."""
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.teaching.tokens)
        self.tokenizer.encode_special_tokens = True
        texts = [text[: LETTERS * self.teaching.tokens] for text in texts]
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]

    def vectors(self, texts: list[str], say: Say = lambda _: None) -> torch.Tensor:
        """Returns vectors [texts, D] of length 1."""
        return self.packed.embed(self.ids(texts), say=say)[0]

    def cosines(self, texts: list[str], say: Say = lambda _: None) -> torch.Tensor:
        """Returns the cosines [texts, k] of texts and labels."""
        return self.vectors(texts, say) @ functional.normalize(self.labels, dim=-1).T

    def fine_tune(self, posts: Posts, weights: np.ndarray, seed: int, say: Say) -> None:
        """Trains the encoder and the label vectors. Everything random follows from the seed."""
        teaching, model, numbers = self.teaching, self.packed.model, random.Random(seed)
        order = drawn(weights, teaching.texts, teaching.titles, np.random.default_rng(seed))
        ids = self.ids([posts.titles[row] if is_title else posts.whole[row] for row, is_title in order])
        topics = torch.from_numpy(posts.labels[[row for row, _ in order]])
        model.requires_grad_(False)
        model.encoder.layer[teaching.frozen :].requires_grad_(True)
        weights_of_model = [weight for weight in model.parameters() if weight.requires_grad]
        self.labels = torch.nn.Parameter(functional.normalize(self.labels, dim=-1))
        groups = [
            {"params": weights_of_model, "most": teaching.rate, "weight_decay": teaching.decay},
            {"params": [self.labels], "most": teaching.label_rate, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=teaching.rate, fused=True)
        batches = batches_by_length(ids, teaching.batch, numbers)
        right = []
        for step, batch in enumerate(batches):
            rows = [without_some(ids[index], teaching.token_drop, numbers) for index in batch]
            with torch.no_grad():
                states, layout = self.packed.embedded(rows)
                states = self.packed.through(states, layout, self.packed.weights(0, teaching.frozen))
            states = self.packed.through(states, layout, self.packed.weights(teaching.frozen))
            vectors = self.packed.pooled(states, layout)
            logits = teaching.scale * vectors @ functional.normalize(self.labels, dim=-1).T
            loss = functional.cross_entropy(logits, topics[batch], label_smoothing=teaching.smoothing)
            if not torch.isfinite(loss):
                raise FloatingPointError(f"the teacher's loss is {loss.item()} at step {step}")
            for group in optimizer.param_groups:
                group["lr"] = group["most"] * share_of_rate(teaching.warmup, step, len(batches))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights_of_model, 1.0)
            optimizer.step()
            right.append((logits.argmax(1) == topics[batch]).float().mean().item())
            if step % 20 == 19:
                say(f"teacher {seed}, step {step + 1} of {len(batches)}: {np.mean(right[-20:]):.3f} right")
        self.labels = self.labels.detach()


def batches_by_length(ids: list[list[int]], size: int, numbers: random.Random) -> list[list[int]]:
    """Returns batches of texts of similar length, in random order."""
    batches = []
    for start in range(0, len(ids), size * SORTED):
        chosen = sorted(range(start, min(start + size * SORTED, len(ids))), key=lambda index: len(ids[index]))
        some = [chosen[place : place + size] for place in range(0, len(chosen), size)]
        numbers.shuffle(some)
        batches += some
    return batches


def without_some(ids: list[int], share: float, numbers: random.Random) -> list[int]:
    """Returns a text without some of its tokens, never without the first or the last."""
    if len(ids) <= 8:
        return ids
    return [ids[0], *(token for token in ids[1:-1] if numbers.random() >= share), ids[-1]]


def halves_of(posts: Posts) -> np.ndarray:
    """Returns the half of each post, 0 or 1: by subreddit, and in the well-known ones by post."""
    halves = np.zeros(len(posts.ids), int)
    by_hash = lambda name: int(hashlib.sha256(f"half {name}".encode()).hexdigest(), 16)  # noqa: E731
    for number in np.unique(posts.labels):
        inside = posts.labels == number
        names = sorted(set(posts.subreddits[inside & ~posts.known]), key=by_hash)
        for place, name in enumerate(names):
            halves[inside & (posts.subreddits == name)] = (place + number) % HALVES
    for row in np.flatnonzero(posts.known):
        halves[row] = by_hash(posts.ids[row]) % HALVES
    return halves


def teach(
    folder: Path,
    posts: Posts,
    labels: list[Label],
    left_out: np.ndarray,
    dtype: torch.dtype,
    teaching: Teaching,
    say: Say,
) -> np.ndarray:
    """Returns cosines [2, n, k], of whole posts and of bare titles; those of posts that are left out are NaN."""
    halves = halves_of(posts)
    cosines = np.full((2, len(posts.ids), len(labels)), np.nan, np.float32)
    for half in range(HALVES):
        teacher = Teacher(folder, labels, dtype, teaching)
        weights = weights_of(posts, left_out | (halves != half), teaching.power, teaching.weight)
        teacher.fine_tune(posts, weights, half, say)
        rows = np.flatnonzero((halves != half) & ~left_out)
        cosines[:, rows] = teacher.cosines([posts.whole[row] for row in rows], say).numpy()
        with_body = np.array([row for row in rows if posts.titles[row] != posts.whole[row]], int)
        # A title alone can leave the topic uncertain, which a target should show; the body tells what the title means.
        bare = teacher.cosines([posts.titles[row] for row in with_body], say).numpy()
        cosines[1, with_body] = (cosines[1, with_body] + bare) / 2
    return cosines


def targets_of(posts: Posts, cosines: np.ndarray, belief: Belief, say: Say) -> np.ndarray:
    """Returns targets [2, n, k] from the teachers' cosines and the topics of the subreddits."""
    hard, places, scored = topics_of(posts, cosines.shape[2]), np.arange(len(posts.labels)), ~np.isnan(cosines[0, :, 0])
    scores = np.stack([softmax(belief.scale * np.nan_to_num(one)) for one in cosines])
    doubted = (scores[0].argmax(1) != posts.labels) & (scores[0][places, posts.labels] < belief.doubt) & scored
    say(f"{doubted.sum()} of {scored.sum()} posts: the teacher doubts the topic of the subreddit")
    share = np.where(doubted, 1.0, np.where(posts.known, belief.known, belief.broad)) * scored
    return ((1 - share)[:, None] * hard + share[:, None] * scores).astype(np.float32)


def topics_of(posts: Posts, count: int, smoothing: float = 0.05) -> np.ndarray:
    """Returns the topics of the subreddits as smoothed targets [n, k]."""
    return ((1 - smoothing) * np.eye(count)[posts.labels] + smoothing / count).astype(np.float32)
