"""A linear head on the frozen vectors of an embedding model: seconds on a CPU.

In go vectors and labels; out come the weights of a linear layer. The strength of the regularisation is the one with the
lowest log loss on the rows held out.
"""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from training.batches import micro_batches
from training.fit import Fit

STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)


@torch.no_grad()
def vectors_of(fit: Fit, ids: list[list[int]]) -> np.ndarray:
    """The vectors of texts."""
    places, parts = [], []
    for batch in micro_batches(range(len(ids)), ids, fit.judge_budget):
        feed = fit.feed([ids[index] for index in batch])
        parts.append(fit.plain().vectors(**feed).float().cpu().numpy())
        places += batch
    return np.concatenate(parts)[np.argsort(places)]


def fit_head(fit: Fit) -> float:
    """Put the best linear head on the model; returns the strength that was chosen."""
    fit.model.eval()
    train, held = vectors_of(fit, fit.ids), vectors_of(fit, fit.held_ids)
    target = np.array([row.label for row in fit.corpus.train])
    held_target = np.array([row.label for row in fit.corpus.held_out])
    weights = fit.weights.numpy()[target]
    classes = range(len(fit.corpus.labels))
    tried = []
    for strength in STRENGTHS:
        head = LogisticRegression(C=strength, max_iter=1000).fit(train, target, weights)
        tried.append((log_loss(held_target, head.predict_proba(held), labels=classes), strength, head))
    _, strength, head = min(tried, key=lambda one: one[0])
    matrix, bias = head.coef_, head.intercept_
    if len(matrix) == 1:  # two labels: the library has one row, for the second
        matrix, bias = np.concatenate([-matrix, matrix]) / 2, np.concatenate([-bias, bias]) / 2
    with torch.no_grad():
        layer = fit.plain().classifier
        layer.weight.copy_(torch.from_numpy(matrix))
        layer.bias.copy_(torch.from_numpy(bias))
    return strength
