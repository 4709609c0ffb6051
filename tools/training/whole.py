"""The whole training, from posts to a model folder; the entry point of this package."""

import argparse
import shutil
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from models import InputError
from models.make import GRAPHS, make_folder
from models.source import read_source
from training.base import Base, cool, leave, read_base
from training.embed import Embedder, micro_batches
from training.fit import NAMES, Fit, Plan, precision_of
from training.keep import interval_of, keep_zero_shot, vectors_in
from training.posts import Corpus, Wishes, read_corpus
from training.report import best_temperature, figures, write_report, write_test
from training.vectors import Scales

Say = Callable[[str], None]

STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Inverse regularisation strength of a linear head, as in scikit-learn."""


def train(arguments: argparse.Namespace, say: Say) -> None:
    """Trains, calibrates, and makes the folder. Raises the errors that `main` in train.py catches."""
    check(arguments)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    base = base_of(arguments)
    corpus = read_corpus(arguments.posts, wishes_of(arguments))
    for note in corpus.notes:
        say(note)
    say(f"{len(corpus.train)} texts to train with, {len(corpus.held_out)} held out, {len(corpus.labels)} labels")
    test = write_test(arguments.work, corpus.test)
    if test:
        say(f"{len(corpus.test)} posts in the `test` part are kept for: topicmill labels evaluate --gold {test}")
    if arguments.keep_zero_shot:
        return keep_zero_shot(arguments, corpus, base.folder, say)
    begun = time.monotonic()
    trained = arguments.work / "hugging-face"
    curve, found = run(arguments, corpus, base, trained, say)
    write_report(arguments, corpus, begun, {"held_out": found}, curve)
    # Last, so that the trained weights and the report are stored even if OUT cannot be written.
    source = read_source(trained, "classifier")
    make_folder(source, arguments.out, arguments.graphs.split(","), say)
    say(
        f"`{arguments.out}`: accuracy {interval_of(found)} of {found['texts']} texts held out, macro-F1 "
        f"{found['macro_f1']:.3f}, calibration error {found['calibration_error']:.3f}. "
        f"Next: topicmill model verify {arguments.out}"
    )


def base_of(arguments: argparse.Namespace) -> Base:
    """Returns the base, checked against the arguments. Raises `InputError`."""
    base = read_base(arguments.base)
    if arguments.head_only and not base.is_shipped:
        raise InputError(f"--head-only needs an embedding model with a `zero_shot` block; `{base.folder}` has none")
    if arguments.keep_zero_shot and not base.is_shipped:
        raise InputError(f"--keep-zero-shot needs an embedding model as a base, and `{base.folder}` is not one")
    if not arguments.keep_zero_shot:
        base.check_encoder()
    return base


def check(arguments: argparse.Namespace) -> None:
    """Rejects contradictory arguments before hours are spent."""
    if arguments.out.exists() and (not arguments.out.is_dir() or any(arguments.out.iterdir())):
        raise InputError(f"`{arguments.out}` exists and is not an empty folder: choose a different path, or remove it")
    unknown = [name for name in arguments.graphs.split(",") if name not in GRAPHS]
    if unknown:
        raise InputError(f"`{unknown[0]}` is not a graph: choose from {', '.join(GRAPHS)}")
    for name, least, most in (
        ("soft", 0, 1),
        ("temperature", 0.01, 100),
        ("epochs", 1, 1000),
        ("batch", 2, 1 << 20),
        ("max_tokens", 8, 1 << 20),
        ("rate", 1e-9, 1),
        ("tokens", 1, 1 << 30),
        ("threads", 1, 4096),
    ):
        given = getattr(arguments, name)
        if given is not None and not least <= given <= most:
            raise InputError(f"--{name.replace('_', '-')} is {given}: set it to {least} to {most}")
    precision_of(arguments.precision)
    if (arguments.head_only or arguments.keep_zero_shot) and arguments.soft:
        raise InputError("--head-only and --keep-zero-shot learn from labels alone: leave out --soft")
    if arguments.keep_zero_shot and not arguments.pipeline:
        raise InputError("--keep-zero-shot needs the words of the labels: add --pipeline with your pipeline file")


def wishes_of(arguments: argparse.Namespace) -> Wishes:
    """Returns the columns and rows for the arguments."""
    return Wishes(
        arguments.label_column,
        arguments.pipeline,
        arguments.gold,
        arguments.soft > 0,
        not arguments.no_titles,
        arguments.keep_zero_shot,
    )


def run(
    arguments: argparse.Namespace, corpus: Corpus, base: Base, trained: Path, say: Say
) -> tuple[list[dict], dict[str, float]]:
    """Trains; writes the Hugging Face folder `trained`; returns the curve and the held-out metrics."""
    folder = arguments.work / "run"
    if not arguments.resume:
        shutil.rmtree(folder, ignore_errors=True)
    plan = Plan(**{one.name: getattr(arguments, one.name) for one in fields(Plan) if hasattr(arguments, one.name)})
    model = base.classifier(corpus.labels, plan.seed)
    if base.is_shipped and corpus.words and not arguments.head_only:
        vectors = label_vectors(base, [label.texts for label in corpus.words], arguments.threads)
        with torch.no_grad():  # the head starts from the base's label vectors, not from random weights
            model.classifier.weight.copy_(torch.from_numpy(vectors))
    precision = "no" if arguments.head_only else precision_of(arguments.precision)
    fit = Fit(model, base.tokenizer, corpus, plan, folder, precision, arguments.tokens, say)
    if arguments.head_only:
        say(f"a linear head on frozen vectors, C = {fit_head(fit):g}")
    else:
        say(f"matrix products in {NAMES[precision]}")
        if arguments.resume:
            fit.load()
        fit.run()
        fit.take_best()
    target = np.array([row.label for row in corpus.held_out])
    logits = fit.logits()
    temperature = best_temperature(logits, target)
    cool(fit.plain(), temperature)
    leave(base, fit.plain().cpu(), plan.max_tokens, trained)
    return fit.progress.history, figures(logits / temperature, target) | {"temperature": round(temperature, 3)}


def fit_head(fit: Fit) -> float:
    """Gives the model the best of several linear heads; returns the chosen regularisation."""
    fit.model.eval()
    train, held = vectors_of(fit, fit.ids), vectors_of(fit, fit.held_ids)
    target = np.array([row.label for row in fit.corpus.train])
    held_target = np.array([row.label for row in fit.corpus.held_out])
    classes = range(len(fit.corpus.labels))
    tried = []
    for strength in STRENGTHS:
        head = LogisticRegression(C=strength, max_iter=1000).fit(train, target)
        tried.append((log_loss(held_target, head.predict_proba(held), labels=classes), strength, head))
    _, strength, head = min(tried, key=lambda one: one[0])
    matrix, bias = head.coef_, head.intercept_
    if len(matrix) == 1:  # for two labels, scikit-learn has one row, for the second label
        matrix, bias = np.concatenate([-matrix, matrix]) / 2, np.concatenate([-bias, bias]) / 2
    with torch.no_grad():
        layer = fit.plain().classifier
        layer.weight.copy_(torch.from_numpy(matrix))
        layer.bias.copy_(torch.from_numpy(bias))
    return strength


@torch.no_grad()
def vectors_of(fit: Fit, ids: list[list[int]]) -> np.ndarray:
    """Returns the vectors of texts."""
    places, parts = [], []
    for batch in micro_batches(range(len(ids)), ids, 4 * fit.budget):
        feed = fit.feed([ids[index] for index in batch])
        parts.append(fit.plain().vectors(**feed).float().cpu().numpy())
        places += batch
    return np.concatenate(parts)[np.argsort(places)]


def label_vectors(base: Base, texts: list[list[str]], threads: int | None) -> np.ndarray:
    """Returns the vectors [labels, D] that the base now uses to label posts, times its scale: an initial head."""
    embedder = Embedder(base.folder, threads)
    found = vectors_in(base.folder, texts)
    return Scales.of(embedder.head).softmax * (embedder.of_labels(texts) if found is None else found)
