"""A bag of words beside the encoder: a linear model of a text's tokens, whatever their order. A minute on a CPU.

In go the tokens and the labels of the texts; out come what each token says for each label, and how much the whole bag
counts next to the encoder. Such a bag sees what posts of one place have in common and an encoder overlooks, so the two
are right about different posts.
"""

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from training.fit import Fit
from training.report import best_temperature, softmax

STRENGTH = 10.0  # of the regularisation: the inverse, as scikit-learn has it
FEWEST = 2  # posts that a token must be in
PARTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
"""How much the bag may count next to the encoder."""


def counts_of(ids: list[list[int]], vocabulary: int) -> csr_matrix:
    """How often each text [rows] has each token [vocabulary]."""
    rows = np.repeat(np.arange(len(ids)), [len(one) for one in ids])
    tokens = np.fromiter((token for one in ids for token in one), np.int64)
    return csr_matrix((np.ones(len(tokens)), (rows, tokens)), shape=(len(ids), vocabulary))


def rarity_of(counts: csr_matrix, posts: list[str], special: list[int]) -> np.ndarray:
    """The inverse document frequency of each token, 1 or more; 0 for special tokens and those of too few posts.

    `posts` names the post of each text: a post with a body is there twice.
    """
    names, of_text = np.unique(posts, return_inverse=True)
    of_post = csr_matrix((np.ones(len(posts)), (of_text, np.arange(len(posts)))))
    having = np.asarray((of_post @ counts > 0).sum(0)).ravel()
    rarity = np.log((1 + len(names)) / (1 + having)) + 1
    rarity[having < FEWEST] = 0
    rarity[special] = 0
    return rarity


def divided(counts: csr_matrix, rarity: np.ndarray) -> csr_matrix:
    """Counts divided by the length of the rarities of a text's tokens, as `BagOfWords` does it."""
    return diags(1 / np.sqrt(counts @ rarity**2).clip(1)) @ counts


def fit_bag(fit: Fit, special: list[int]) -> float:
    """Put a bag of words on the model, with the part that is best on the texts held out; returns this part.

    If it is best without one, the model stays as it is, and the part is 0.
    """
    labels, target = len(fit.corpus.labels), np.array([row.label for row in fit.corpus.train])
    held_target = np.array([row.label for row in fit.corpus.held_out])
    counts = counts_of(fit.ids, fit.plain().config.vocab_size)
    rarity = rarity_of(counts, [row.name or row.text for row in fit.corpus.train], special)
    model = LogisticRegression(C=STRENGTH, max_iter=1000)
    model.fit(divided(counts, rarity) @ diags(rarity), target, fit.weights.numpy()[target])
    shares = np.zeros((counts.shape[1], labels))
    matrix = model.coef_ if len(model.classes_) > 2 else np.concatenate([-model.coef_, model.coef_]) / 2
    shares[:, model.classes_] = (matrix * rarity).T
    beside = divided(counts_of(fit.held_ids, counts.shape[1]), rarity) @ shares
    logits = fit.logits()
    tried = []
    for part in PARTS:
        both = logits + part * beside
        scores = softmax(both / best_temperature(both, held_target))
        tried.append((log_loss(held_target, scores, labels=range(labels)), part))
    _, part = min(tried)
    if part:
        fit.plain().add_words(torch.from_numpy(part * shares).float(), torch.from_numpy(rarity).float())
    return part
