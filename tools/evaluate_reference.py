#!/usr/bin/env python3
"""Writes the fixture for `labels evaluate`: random labels and gold labels, with scikit-learn's metrics.

    .venv-tools/bin/python tools/evaluate_reference.py      # writes crates/review/src/evaluate/reference.json

A row is `[gold, best, score, abstained, best, score, abstained]`: the position of the right label (null: out of scope),
and the predictions of two label runs. scikit-learn and SciPy compute all figures except the adjusted Wald interval. The
bootstrap uses the random generator of `crates/review/src/evaluate/intervals.rs`, so its result is the same.
"""

import json
import math
import random
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.stats import binomtest, norm
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, f1_score, precision_recall_fscore_support

OUT = Path(__file__).resolve().parent.parent / "crates/review/src/evaluate/reference.json"
LABELS = 16
ROWS = 1000
RESAMPLES = 1000
BINS = 10
MASK = (1 << 64) - 1


def make_rows(rng: random.Random) -> list:
    """Returns rows whose labels are right more often at higher scores. The last label is never right; label 5 is never
    assigned wrongly."""
    rows = []
    for _ in range(ROWS):
        in_scope = rng.random() < 0.7
        gold = min(int(rng.expovariate(0.25)), LABELS - 2) if in_scope else None
        row = [gold]
        for skill in (0.55, 0.75):
            score = round(rng.betavariate(3, 2) if in_scope else rng.betavariate(2, 3), 6)
            knows = in_scope and rng.random() < skill * (0.4 + score)
            best = gold if knows else rng.choice([label for label in range(LABELS) if label != 5])
            row += [best, score, score < 0.45]
        rows.append(row)
    return rows


def figures(gold: np.ndarray, given: np.ndarray, scores: np.ndarray, samples: list) -> dict:
    """Returns every metric of one label run."""
    scoped, labelled, right = gold < LABELS, given < LABELS, gold == given
    names = list(range(LABELS))
    per_label = precision_recall_fscore_support(gold, given, labels=names, zero_division=0)
    fraction, mean = calibration_curve(right[labelled], scores[labelled], n_bins=BINS, strategy="uniform")
    weights = [n for n in np.histogram(scores[labelled], bins=np.linspace(0, 1, BINS + 1))[0] if n]
    return {
        "outcome": share(right),
        "in_scope": share(right[scoped]),
        "coverage": share(labelled[scoped]),
        "out_of_scope": share(~labelled[~scoped]),
        "precision": share(right[labelled]),
        "precision_in_scope": share(right[labelled & scoped]),
        "macro_f1": [macro_f1(gold, given), *middle([macro_f1(gold[s], given[s]) for s in samples])],
        "calibration_error": float(np.average(np.abs(fraction - mean), weights=weights)),
        "bins": [[int(n), float(a), float(b)] for n, a, b in zip(weights, mean, fraction, strict=True)],
        "per_label": [[*map(float, row[:3]), int(row[3])] for row in zip(*per_label, strict=True)],
        "confusion": confusion_matrix(gold, given, labels=[*names, LABELS]).tolist(),
    }


def share(which: np.ndarray) -> list:
    """Returns the count, the total, the share, and the Wilson interval."""
    test = binomtest(int(which.sum()), len(which))
    interval = test.proportion_ci(method="wilson")
    return [int(which.sum()), len(which), float(test.statistic), float(interval.low), float(interval.high)]


def macro_f1(gold: np.ndarray, given: np.ndarray) -> float:
    """Averages over the labels that are right for some post."""
    some = sorted(set(gold.tolist()) - {LABELS})
    return float(f1_score(gold, given, labels=some, average="macro", zero_division=0))


def difference(gold: np.ndarray, first: np.ndarray, second: np.ndarray, samples: list) -> dict:
    """Compares the second label run with the first."""
    count = Counter(zip((gold == first).tolist(), (gold == second).tolist(), strict=True))
    only_first, only_second = count[True, False], count[False, True]
    gains = [macro_f1(gold[s], second[s]) - macro_f1(gold[s], first[s]) for s in samples]
    p_first, p_second = (only_first + 1) / (ROWS + 2), (only_second + 1) / (ROWS + 2)
    d = p_second - p_first
    half = norm.ppf(0.975) * math.sqrt((p_first + p_second - d * d) / (ROWS + 2))
    return {
        "differ": int((first != second).sum()),
        "only_first": only_first,
        "only_second": only_second,
        "outcome": [(only_second - only_first) / ROWS, d - half, d + half],
        "macro_f1": [macro_f1(gold, second) - macro_f1(gold, first), *middle(gains)],
        "p": float(binomtest(only_first, only_first + only_second).pvalue),
    }


def middle(values: list) -> list:
    """Returns the central 95 % interval."""
    return [float(end) for end in np.quantile(values, [0.025, 0.975])]


def resamples() -> list:
    """Draws indices with replacement, using SplitMix64 with seed 13."""
    state, drawn = 13, []
    for _ in range(RESAMPLES):
        places = []
        for _ in range(ROWS):
            state = (state + 0x9E3779B97F4A7C15) & MASK
            x = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
            places.append(((x ^ (x >> 31)) * ROWS) >> 64)
        drawn.append(np.array(places))
    return drawn


if __name__ == "__main__":
    rows = make_rows(random.Random(7))
    gold = np.array([LABELS if row[0] is None else row[0] for row in rows])
    sides = [
        (np.array([LABELS if row[at + 2] else row[at] for row in rows]), np.array([row[at + 1] for row in rows]))
        for at in (1, 4)
    ]
    samples = resamples()
    fixture = {
        "labels": LABELS,
        "first": figures(gold, *sides[0], samples),
        "second": figures(gold, *sides[1], samples),
        "difference": difference(gold, sides[0][0], sides[1][0], samples),
    }
    lines = ",\n".join(json.dumps(row) for row in rows)
    OUT.write_text(json.dumps(fixture)[:-1] + ',\n"rows": [\n' + lines + "\n]}\n", encoding="utf-8")
