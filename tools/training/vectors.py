"""Learned label vectors: trained on labelled posts, and compared with posts by an embedding model.

Input is vectors of texts, their labels, and the vectors of the labels' words. Output is a normalized vector for each
label. The encoder and its scales remain unchanged, so scores are still softmax(scale x cosine) and
sigmoid(scale x (cosine - bias)), and any other labels still work through their words.

The loss has three terms. The cross-entropy of the softmax makes the right label win. The binary cross-entropy of the
sigmoid keeps `multi` mode calibrated. A pull towards the vectors of the labels' words matters most where there are few
posts; cross-validation chooses its strength. If no learned vectors are better than the vectors of the words, the
vectors of the words are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

Say = Callable[[str], None]

# Candidate strengths of the penalty towards the words, from almost none to almost fixed, three per decade.
PULLS = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
WORDS = float("inf")  # the pull that leaves the words as they are


@dataclass(frozen=True)
class Scales:
    """The function from cosines to scores: the `zero_shot` block of config.json."""

    softmax: float
    sigmoid: float
    bias: float

    @staticmethod
    def of(zero_shot: dict) -> "Scales":
        """Reads the values from the block."""
        return Scales(zero_shot["softmax_scale"], zero_shot["sigmoid_scale"], zero_shot["sigmoid_bias"])


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters: every number that affects the vectors."""

    both: float = 0.1
    smoothing: float = 0.0
    folds: int = 5
    pulls: tuple[float, ...] = PULLS
    steps: int = 200
    patience: int = 2


DEFAULT = Recipe()


def learn(
    vectors: np.ndarray,
    labels: np.ndarray,
    start: np.ndarray,
    scales: Scales,
    groups: np.ndarray | None = None,
    recipe: Recipe = DEFAULT,
    say: Say = lambda _: None,
) -> np.ndarray:
    """Returns vectors of labels [k, D] of length 1.

    `vectors` [n, D] are the texts' vectors and `start` [k, D] are the vectors of the labels' words, all of length 1.
    `labels` [n] are label numbers. Rows of one group, such as both forms of a post, are in the same fold.
    Cross-validation chooses the pull.
    """
    shares, start = shares_of(labels, len(start)), unit(start.astype(np.float64))
    if vectors.shape != (len(shares), start.shape[1]):
        raise ValueError(f"{len(shares)} labels and vectors of labels {start.shape} do not fit vectors {vectors.shape}")
    if not (np.isfinite(vectors).all() and np.isfinite(start).all()):
        raise ValueError("a vector contains NaN")
    groups = np.arange(len(shares)) if groups is None else groups
    pull = choose_pull(vectors, shares, start, scales, groups, recipe, say)
    if pull == WORDS:
        return start.astype(np.float32)
    return Loss(vectors, shares, start, scales, recipe).fitted(start, pull).astype(np.float32)


def choose_pull(
    vectors: np.ndarray,
    shares: np.ndarray,
    start: np.ndarray,
    scales: Scales,
    groups: np.ndarray,
    recipe: Recipe,
    say: Say = lambda _: None,
) -> float:
    """Returns the penalty with the lowest held-out loss, or `WORDS` if none beats the words."""
    _, groups = np.unique(groups, return_inverse=True)
    count = groups.max() + 1 if len(groups) else 0
    folds = min(recipe.folds, count)
    if folds < 2:
        return WORDS
    fold = np.random.default_rng(0).permutation(np.arange(count) % folds)[groups]
    of = lambda rows: Loss(vectors[rows], shares[rows], start, scales, recipe)  # noqa: E731
    parts = [(of(fold != number), of(fold == number), (fold == number).sum() / len(fold)) for number in range(folds)]
    found = [start] * folds
    best, chosen, since = sum(judge.held_out(start) * share for _, judge, share in parts), WORDS, 0
    said = [f"words {best:.4f}"]
    for pull in recipe.pulls:
        found = [train.fitted(before, pull) for (train, _, _), before in zip(parts, found, strict=True)]
        loss = sum(judge.held_out(one) * share for (_, judge, share), one in zip(parts, found, strict=True))
        said.append(f"{pull:g} {loss:.4f}")
        since += 1
        if loss < best:
            best, chosen, since = loss, pull, 0
        if since >= recipe.patience and chosen != WORDS:
            break
    say(f"pull to the words of the labels {chosen:g}; held-out losses: {', '.join(said)}")
    return chosen


class Loss:
    """The loss of label vectors on some rows."""

    def __init__(self, vectors: np.ndarray, shares: np.ndarray, start: np.ndarray, scales: Scales, recipe: Recipe):
        self.vectors, self.shares, self.start = vectors.astype(np.float32), shares, start
        self.scales, self.recipe = scales, recipe
        self.smooth = (1 - recipe.smoothing) * shares + recipe.smoothing / shares.shape[1]

    def fitted(self, begin: np.ndarray, pull: float) -> np.ndarray:
        """Returns the vectors of length 1 with the lowest loss; the search starts at `begin`."""

        def at(flat: np.ndarray) -> tuple[float, np.ndarray]:
            free = flat.reshape(self.start.shape)
            lengths = np.linalg.norm(free, axis=1, keepdims=True)
            found = free / lengths
            loss, slope = self.at(found, self.smooth)
            loss += pull * ((found - self.start) ** 2).sum()
            slope += 2 * pull * (found - self.start)
            # The component along the vector changes only its length, so it is removed.
            slope -= (slope * found).sum(1, keepdims=True) * found
            return loss, (slope / lengths).ravel()

        # One thread: the products are small, and sums are reproducible on similar machines.
        with threadpool_limits(1):
            options = {"maxiter": self.recipe.steps, "ftol": 1e-7}
            done = minimize(at, begin.ravel(), jac=True, method="L-BFGS-B", options=options)
        return unit(done.x.reshape(self.start.shape))

    def held_out(self, found: np.ndarray) -> float:
        """Returns the loss of evaluation rows: without smoothing, and without the penalty."""
        return self.at(found, self.shares)[0]

    def at(self, found: np.ndarray, wanted: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns the loss of the softmax and sigmoid scores, and its gradient with respect to the label vectors."""
        scales, both = self.scales, self.recipe.both
        cosines = (self.vectors @ found.astype(np.float32).T).astype(np.float64)
        logits = scales.softmax * cosines
        logits -= logits.max(1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        loss = -(wanted * logs).sum()
        slope = scales.softmax * (np.exp(logs) - wanted)
        if both:
            odds = scales.sigmoid * (cosines - scales.bias)
            loss += both * (np.logaddexp(0, odds) - self.shares * odds).sum()
            slope += both * scales.sigmoid * (1 / (1 + np.exp(-odds)) - self.shares)
        rows = max(len(self.shares), 1)
        return float(loss) / rows, (slope.astype(np.float32).T @ self.vectors).astype(np.float64) / rows


def shares_of(labels: np.ndarray, count: int) -> np.ndarray:
    """Returns one-hot rows [n, k] of label numbers [n]."""
    labels = np.asarray(labels)
    if labels.size and not 0 <= labels.min() <= labels.max() < count:
        raise ValueError(f"labels are numbers from 0 to {count - 1}")
    return np.eye(count)[labels.astype(np.int64)]


def unit(rows: np.ndarray) -> np.ndarray:
    """Scales vectors to length 1; zeros remain zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)
