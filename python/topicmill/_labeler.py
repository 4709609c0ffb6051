"""The `Labeler` class. It loads its model lazily, once per process, and is pickled as its settings."""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

import numpy as np

from topicmill import _find, _tables
from topicmill._native import Error, Scorer, __version__, read_pipeline

if TYPE_CHECKING:
    from types import FrameType

    from numpy.typing import NDArray

#: A table; the result has the same type.
Batch = TypeVar("Batch")

#: Labels: their names, or names with one or more descriptions.
Labels = Sequence[str] | Mapping[str, str | Sequence[str]]

#: Maximum number of models that a process caches for unpickled labelers; the least recently used is evicted.
_MAX_CACHED = 4

#: Precisions that only OpenVINO can compute from a float32 graph, on CPUs.
_CPU_PRECISIONS = ("bf16", "int8")


class Scored(TypedDict):
    """The result of `Labeler.label` for a text, in the format of the transformers zero-shot pipeline."""

    sequence: str
    labels: list[str]
    scores: list[float]


@dataclass(frozen=True)
class _Settings:
    """All settings that affect scores, or where they are computed. Labelers with equal settings share a model."""

    model: str | None
    labels: tuple[tuple[str, tuple[str, ...]], ...] | None
    #: The text of a pipeline file that names no other file, and its labels.
    pipeline: tuple[str, tuple[str, ...]] | None
    template: str | None
    mode: str | None
    threshold: float | None
    background: str | None
    device: str
    precision: str | None
    threads: int | None
    batch_tokens: int | None
    engine: str

    def load(self) -> Scorer:
        # ONNX Runtime reads this variable at startup.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        labels = self.labels
        return Scorer(
            {
                "model": _find.model(self.model),
                "labels": labels and [(label, list(texts)) for label, texts in labels],
                "pipeline": self.pipeline and self.pipeline[0],
                "template": self.template,
                "mode": self.mode,
                "threshold": self.threshold,
                "background": self.background,
                "device": self.device if self._is_cpu_only() else _find.device(self.device),
                "precision": self.precision,
                "threads": self.threads,
                "batch_tokens": self.batch_tokens,
                "library": _find.library(),
                "engine": self.engine,
                "openvino": _find.openvino(),
            }
        )

    def names(self) -> list[str] | None:
        """Returns the labels, or None if they depend on the model."""
        if self.pipeline is not None:
            return list(self.pipeline[1])
        return None if self.labels is None else [label for label, _ in self.labels]

    def _is_cpu_only(self) -> bool:
        """True if OpenVINO, which runs only on CPUs, is certain to be used."""
        return self.engine == "openvino" or (self.engine == "auto" and self.precision in _CPU_PRECISIONS)


class _Loaded:
    """The model for some settings in this process. `lock` lets one thread load or compute at a time; a main thread that
    is waiting for the lock still handles Ctrl-C."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.scorer: Scorer | None = None


class _Process:
    """The models loaded by this process. A forked child does not have its parent's threads, so it starts empty."""

    def __init__(self) -> None:
        self.number = os.getpid()
        self.lock = threading.Lock()
        self.loaded: weakref.WeakValueDictionary[_Settings, _Loaded] = weakref.WeakValueDictionary()
        self.cached: OrderedDict[_Settings, _Loaded] = OrderedDict()

    def get(self, settings: _Settings, cache: bool) -> _Loaded:
        with self.lock:
            found = self.loaded.get(settings)
            if found is None:
                found = self.loaded[settings] = _Loaded()
            if cache:
                self.cached[settings] = found
                self.cached.move_to_end(settings)
                while len(self.cached) > _MAX_CACHED:
                    self.cached.popitem(last=False)
            return found


_process = _Process()


def _reset_process() -> None:
    global _process
    _process = _Process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_process)


class Labeler:
    """Scores texts against labels with one model.

    >>> labeler = Labeler(labels={"cooking": "Recipes and food.", "travel": "Trips and hotels."})
    >>> labeler.scores(["Three days in Lisbon.", None]).round(1).tolist()
    [[0.0, 1.0], [nan, nan]]

    The first call that needs the model loads it, once per process; after a fork or after unpickling in another process,
    it is loaded again. The labeler is thread-safe. Concurrent calls wait for each other, because one batch uses all
    of the model's threads.

    :param model: A model folder; None for the default model, which comes with the package.
    :param labels: The labels, or a mapping of labels to descriptions, which help an embedding model. None for the
        labels of a classifier, and for any other model the sixteen topics of the program's default pipeline.
    :param pipeline: A pipeline file, such as `topicmill labels export` writes, instead of labels, template, mode,
        threshold and background. The constructor reads it, so cluster workers do not need it.
    :param device: "auto" for a GPU if there is one, "cpu", "cuda" or "cuda:N".
    :param mode: "single" for one label per text, with scores that add up to 1; "multi" for independent scores per
        label; "raw" for the unchanged logits of a classifier. None for the mode that a classifier was trained for,
        otherwise "single".
    :param precision: "fp32", "bf16", "fp16" or "int8"; "auto" for the folder's default. OpenVINO can run the
        "fp32" graph faster in "bf16", and in "int8" if the folder has no "int8" graph.
    :param threads: Threads within a batch; None for one per core.
    :param template: The hypothesis, with one {} where the label goes; None for the model's own.
    :param threshold: Minimum score; a text whose best score is lower gets no label. None for the threshold of the
        pipeline file, or 0.
    :param background: "reddit" also compares each text with common Reddit topics; a text that fits these topics
        better than any label gets no label. "none" compares only labels. With `labels`, None is "reddit" for an
        embedding model and "none" for the other kinds.
    :param batch_tokens: Maximum padded tokens in a batch; None for a default that suits the device.
    :param engine: The inference library: "onnxruntime"; "openvino", on CPUs only, which `topicmill[openvino]` installs;
        "auto" for ONNX Runtime, or OpenVINO if ONNX Runtime does not support the precision. Both compute the same
        scores in float32.
    :param text: The text column that `label_batch` reads; several columns are joined with a blank line.
    :param reddit_text: True to read texts as Reddit displays them: without Markdown, image URLs and zero-width
        characters.
    :param label_scores: True if `label_batch` adds a score column per label.
    :param logits: True if `label_batch` adds a logit column per label.
    :param prefix: Prefix for the names of the columns that `label_batch` adds.
    :raises ValueError: if a setting is invalid. Settings that depend on the model are checked when it is loaded.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        labels: Labels | None = None,
        device: str = "auto",
        mode: Literal["single", "multi", "raw"] | None = None,
        precision: str = "auto",
        threads: int | None = None,
        *,
        pipeline: str | os.PathLike[str] | None = None,
        template: str | None = None,
        threshold: float | None = None,
        background: Literal["reddit", "none"] | None = None,
        batch_tokens: int | None = None,
        engine: Literal["auto", "onnxruntime", "openvino"] = "auto",
        text: str | Sequence[str] = "text",
        reddit_text: bool = False,
        label_scores: bool = False,
        logits: bool = False,
        prefix: str = "",
    ) -> None:
        if mode not in (None, "single", "multi", "raw"):
            raise ValueError(f"`mode` is {mode!r}: use 'single', 'multi', or for a classifier 'raw'")
        if background not in (None, "reddit", "none"):
            raise ValueError(
                f"`background` is {background!r}: use 'reddit' or 'none', "
                "or a pipeline file with a different background"
            )
        if pipeline is not None:
            of_file = {
                "labels": labels,
                "mode": mode,
                "template": template,
                "threshold": threshold,
                "background": background,
            }
            for name, value in of_file.items():
                if value is not None:
                    raise ValueError(f"`{name}` cannot be combined with `pipeline`: change it in the file")
        if threads is not None and threads < 1:
            raise ValueError(f"`threads` is {threads}: use 1 or more, or None for one per core")
        if engine not in ("auto", "onnxruntime", "openvino"):
            raise ValueError(f"`engine` is {engine!r}: use 'auto', 'onnxruntime' or 'openvino'")
        if batch_tokens is not None and batch_tokens < 1:
            raise ValueError(f"`batch_tokens` is {batch_tokens}: use 1 or more, or None")
        settings = _Settings(
            model=None if model is None else os.fspath(model),
            labels=None if labels is None else _labels(labels),
            pipeline=None if pipeline is None else _read_pipeline(os.fspath(pipeline)),
            template=template,
            mode=mode,
            threshold=None if threshold is None else float(threshold),
            background=background,
            device=device,
            precision=None if precision == "auto" else precision,
            threads=threads,
            batch_tokens=batch_tokens,
            engine=engine,
        )
        columns = _tables.Columns(
            text=(text,) if isinstance(text, str) else tuple(text),
            reddit_text=reddit_text,
            label_scores=label_scores,
            logits=logits,
            prefix=prefix,
        )
        self._set(settings, columns, known_hash=None, cache=False)

    def _set(
        self, settings: _Settings, columns: _tables.Columns, known_hash: str | None, cache: bool
    ) -> None:
        self._settings = settings
        self._columns = columns
        self._hash = known_hash
        self._is_cached = cache
        self._loaded: tuple[_Process, _Loaded] | None = None

    def __repr__(self) -> str:
        settings = self._settings
        return f"Labeler(model={settings.model!r}, labels={settings.names()!r}, device={settings.device!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        scorer = self._scorer_if_loaded()
        known_hash = scorer.model_hash if scorer else self._hash
        # Built-in types only, so that a different version can unpickle them and report the mismatch.
        return _unpickled, (__version__, vars(self._settings), vars(self._columns), known_hash)

    @property
    def labels(self) -> list[str]:
        """The labels, in the order of the columns of `scores`. Loads the model if the labels depend on it."""
        return self._settings.names() or self._scorer().labels

    @property
    def model_hash(self) -> str:
        """A hash of every file that affects scores. Loads the model."""
        return self._scorer().model_hash

    @property
    def device(self) -> str:
        """The device of the model, such as "cpu" or "cuda:0". Loads the model."""
        return self._scorer().device

    @property
    def engine(self) -> str:
        """The inference library: "onnxruntime" or "openvino". Loads the model."""
        return self._scorer().engine

    def load(self) -> Labeler:
        """Loads the model now rather than at the first call, and returns the labeler.

        :raises Error: if the model, the library or the device cannot be used; the message says how to fix it.
        """
        self._scorer()
        return self

    # To a type checker, a str is also a sequence of str.
    @overload
    def label(self, texts: str) -> Scored: ...  # type: ignore[overload-overlap]  # pyright: ignore
    @overload
    def label(self, texts: Sequence[str]) -> list[Scored]: ...
    def label(self, texts: str | Sequence[str]) -> Scored | list[Scored]:
        """Scores texts, in the format of the transformers zero-shot pipeline: the best label first.

        >>> [scored] = Labeler(labels=["cooking", "travel"]).label(["Bread and butter."])
        >>> scored["sequence"], scored["labels"]
        ('Bread and butter.', ['cooking', 'travel'])

        :param texts: A list of texts, or one text.
        :returns: Labels and scores per text; no labels for a blank text.
        """
        if isinstance(texts, str):
            return self.label([texts])[0]
        texts = list(texts)
        matrix = self.scores(texts)
        labels = self.labels
        # Stable, so that ties keep their order.
        orders = np.argsort(-matrix, axis=1, kind="stable")
        return [
            {"sequence": text, "labels": [], "scores": []}
            if np.isnan(row).all()
            else {
                "sequence": text,
                "labels": [labels[place] for place in order],
                "scores": [float(score) for score in row[order]],
            }
            for text, row, order in zip(texts, matrix, orders, strict=True)
        ]

    def scores(self, texts: Any) -> NDArray[np.float32]:
        """Scores texts: one row per text and one column per label, in input order.

        >>> Labeler(labels=["cooking", "travel"]).scores(["Bread and butter.", "", None]).shape
        (3, 2)

        :param texts: A sequence of str or UTF-8 bytes, with None for missing texts; a column of pyarrow, pandas or
            polars; a numpy array. Arrow strings are not copied.
        :returns: Scores; NaN in the rows of missing or blank texts.
        """
        texts = _tables.texts_of(texts)
        computed = self._compute(texts, with_scores=True, with_logits=False, reddit_text=self._columns.reddit_text)
        assert computed.scores is not None
        return computed.scores

    def vectors(self, texts: Any) -> NDArray[np.float32]:
        """Computes the vector of each text, for clustering, search, or a classifier of your own.

        Vectors have length 1 and are rounded as in the program's database.

        >>> Labeler(labels=["cooking", "travel"]).vectors(["Bread and butter.", None]).shape
        (2, 384)

        :param texts: As for `scores`.
        :returns: One row per text, in input order; NaN in the rows of missing or blank texts.
        :raises Error: if the model is not an embedding model.
        """
        texts = _tables.texts_of(texts)
        loaded = self._of_process()
        with loaded.lock:
            vectors, failed = self._load(loaded).vectors(
                texts, self._columns.reddit_text, _is_interruptible()
            )
        _warn(failed)
        return vectors

    def label_batch(self, batch: Batch) -> Batch:
        """Adds the columns `label`, `score` and `margin` to a table.

        A row with missing or blank text has nulls there. `score` is the best label's score, even if it is below the
        threshold and the label is null. `margin` is the best score minus the second best.

        >>> import numpy as np
        >>> batch = {"id": np.array([7, 8]), "text": np.array(["Bread and butter.", None])}
        >>> Labeler(labels=["cooking", "travel"]).label_batch(batch)["label"].tolist()
        ['cooking', None]

        :param batch: A pyarrow Table or RecordBatch, a pandas or polars DataFrame, or a dictionary of arrays.
        :returns: A table of the same type, with all its columns, followed by the new ones.
        :raises ValueError: if the text column is missing, or the name of a new column is already used.
        """
        labelled: Batch = _tables.labelled(batch, self._columns, self.labels, self._compute)
        return labelled

    __call__ = label_batch

    def meta(self, batch: Batch) -> Batch:
        """Returns the result of `label_batch` for the table without its rows, for engines that need the columns first.

        Loads the model only if each label gets a column and the labels depend on the model.

        >>> import pandas as pd
        >>> Labeler(labels=["cooking", "travel"]).meta(pd.DataFrame({"text": ["x"]})).columns.tolist()
        ['text', 'label', 'score', 'margin']
        """
        columns = self._columns
        labels = self.labels if columns.label_scores or columns.logits else []
        meta: Batch = _tables.without_rows(batch, columns, labels)
        return meta

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (__version__, self._settings, self._columns)

    def _compute(
        self, texts: Any, with_scores: bool, with_logits: bool, reddit_text: bool
    ) -> _tables.Computed:
        loaded = self._of_process()
        with loaded.lock:
            codes, score, margin, scores, logits, failed = self._load(loaded).score(
                texts, with_scores, with_logits, reddit_text, _is_interruptible()
            )
        _warn(failed)
        return _tables.Computed(codes, score, margin, scores, logits)

    def _scorer(self) -> Scorer:
        loaded = self._of_process()
        with loaded.lock:
            return self._load(loaded)

    def _scorer_if_loaded(self) -> Scorer | None:
        known = self._loaded
        return known[1].scorer if known and known[0].number == os.getpid() else None

    def _of_process(self) -> _Loaded:
        """Returns the model that this process has loaded for these settings, or an empty entry."""
        if _process.number != os.getpid():
            # A fork that bypassed `os.fork`, and so `register_at_fork`.
            _reset_process()
        process, known = _process, self._loaded
        if known is None or known[0] is not process:
            known = (process, process.get(self._settings, cache=self._is_cached))
            self._loaded = known
        return known[1]

    def _load(self, loaded: _Loaded) -> Scorer:
        scorer = loaded.scorer
        if scorer is None:
            scorer = loaded.scorer = self._settings.load()
        if self._hash is not None and scorer.model_hash != self._hash:
            raise Error(
                f"the model `{scorer.model}` differs from the one that the Labeler was pickled with: "
                "copy the same model folder to every worker"
            )
        return scorer


def _is_interruptible() -> bool:
    # Only the main thread handles signals.
    return threading.current_thread() is threading.main_thread()


def _read_pipeline(path: str) -> tuple[str, tuple[str, ...]]:
    text, labels = read_pipeline(Path(path).read_text(encoding="utf-8-sig"), path)
    return text, tuple(labels)


def _labels(labels: Labels) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if isinstance(labels, (str, bytes)):
        raise TypeError("`labels` is a single text: use a list of labels")
    if isinstance(labels, Mapping):
        described = ((label, texts) for label, texts in labels.items())
        pairs = tuple(
            (label, (texts,) if isinstance(texts, str) else tuple(texts)) for label, texts in described
        )
    else:
        pairs = tuple((label, ()) for label in labels)
    for label, texts in pairs:
        if not all(isinstance(text, str) for text in (label, *texts)):
            raise TypeError(f"the label {label!r} or one of its descriptions is not a str")
    if not pairs:
        raise ValueError("`labels` is empty: use at least one label, or None for the default ones")
    return pairs


def _unpickled(
    version: str, settings: dict[str, Any], columns: dict[str, Any], known_hash: str | None
) -> Labeler:
    """Restores a pickled labeler. Its model is cached in the process, for the next labeler with the same settings."""
    if version != __version__:
        raise Error(
            f"the Labeler was pickled by topicmill {version}, and {__version__} is installed here: "
            "install the same version everywhere"
        )
    labeler = Labeler.__new__(Labeler)
    labeler._set(_Settings(**settings), _tables.Columns(**columns), known_hash=known_hash, cache=True)
    return labeler


def _warn(failed: list[tuple[int, str]]) -> None:
    """Warns of rows that could not be scored, at the line outside this package that asked for them."""
    if not failed:
        return
    row, reason = failed[0]
    more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    frame: FrameType | None = sys._getframe()
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "topicmill":
        frame, level = frame.f_back, level + 1
    warnings.warn(f"row {row} could not be scored{more}: {reason}", RuntimeWarning, stacklevel=level)
