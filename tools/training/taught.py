"""Learns label vectors from a few labelled and many unlabelled posts (self-training).

Input is vectors of texts, some with a label. Output is vectors of labels. In each round, the current label vectors
score the unlabelled rows, and the next vectors are fitted to these scores and to the known labels. Scores are balanced
first; otherwise, a label whose words fit everything a little would grow from round to round.
"""

from dataclasses import dataclass

import numpy as np

from training.report import softmax
from training.vectors import DEFAULT, Loss, Recipe, Scales, learn, unit

UNKNOWN = -1


@dataclass(frozen=True)
class Teaching:
    """Hyperparameters in addition to a `Recipe`."""

    rounds: int = 3
    gold: float = 10.0
    pull: float = 0.2
    sharp: float = 1.5
    prior: float = 16.0


TEACHING = Teaching()


def self_taught(
    vectors: np.ndarray,
    labels: np.ndarray,
    start: np.ndarray,
    scales: Scales,
    groups: np.ndarray,
    whole: np.ndarray,
    recipe: Recipe = DEFAULT,
    teaching: Teaching = TEACHING,
) -> np.ndarray:
    """Returns vectors of labels [k, D]; `labels` [n] are label numbers or `UNKNOWN`.

    Both forms of a post have the same group. The form with the body, for which `whole` is true, is scored, and the bare
    title gets the same scores.
    """
    start = unit(start.astype(np.float64))
    known = labels != UNKNOWN
    _, groups = np.unique(groups, return_inverse=True)
    teacher = np.zeros(len(groups), np.int64)
    teacher[groups[whole]] = np.flatnonzero(whole)
    teacher = teacher[groups]
    found = start
    if known.any():
        found = learn(vectors[known], labels[known], start, scales, groups[known], recipe=recipe).astype(np.float64)
    certain = np.eye(len(start))[np.where(known, labels, 0)]
    counts = certain[known].sum(0) + teaching.prior
    weights = np.where(known, teaching.gold, 1.0)
    for _ in range(teaching.rounds):
        logits = scales.softmax * teaching.sharp * (vectors @ found.T.astype(np.float32)).astype(np.float64)
        scores = balanced(logits[teacher], counts / counts.sum())
        shares = np.where(known[:, None], certain, scores)
        found = Loss(vectors, shares, start, scales, recipe, weights).fitted(found, teaching.pull)
    return found.astype(np.float32)


def balanced(logits: np.ndarray, wanted: np.ndarray, rounds: int = 20) -> np.ndarray:
    """Returns scores [n, k] of logits, shifted so that their means are the wanted shares."""
    moved = np.zeros(logits.shape[1])
    for _ in range(rounds):
        scores = softmax(logits + moved)
        moved += np.log(wanted) - np.log(np.maximum(scores.mean(0), 1e-9))
    return softmax(logits + moved)
