"""`Labeler`: what people call. It loads late, once a process, and travels between processes as its settings."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

import numpy as np

from topicmill import _find, _tables
from topicmill._native import Error, Scorer, __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A table; what comes out is of the kind that went in.
Batch = TypeVar("Batch")

#: Labels as they are given: their names, or names with a description or several.
Labels = Sequence[str] | Mapping[str, str | Sequence[str]]

#: Models that a process holds for labelers that came to it pickled; the one that was not used longest makes room.
_HELD = 4

#: Precisions that are for CPUs.
_ROUNDED = ("bf16", "int8")


class Scored(TypedDict):
    """What `Labeler.label` says of a text, as the zero-shot pipeline of transformers does."""

    sequence: str
    labels: list[str]
    scores: list[float]


@dataclass(frozen=True)
class _Settings:
    """All that decides scores, and where they are computed. Equal settings share a loaded model."""

    model: str | None
    labels: tuple[tuple[str, tuple[str, ...]], ...] | None
    template: str | None
    mode: str | None
    threshold: float
    device: str
    precision: str | None
    threads: int | None
    batch_tokens: int | None
    engine: str
    reddit_text: bool

    def load(self) -> Scorer:
        # The library reads this when it starts.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        labels = self.labels
        return Scorer(
            {
                "model": _find.model(self.model),
                "labels": labels and [(label, list(texts)) for label, texts in labels],
                "template": self.template,
                "mode": self.mode,
                "threshold": self.threshold,
                "device": self.device if self._is_for_cpus() else _find.device(self.device),
                "precision": self.precision,
                "threads": self.threads,
                "batch_tokens": self.batch_tokens,
                "library": _find.library(),
                "engine": self.engine,
                "openvino": _find.openvino(),
                "reddit_text": self.reddit_text,
            }
        )

    def _is_for_cpus(self) -> bool:
        """Whether OpenVINO computes in any case, which knows no GPU here."""
        return self.engine == "openvino" or (self.engine == "auto" and self.precision in _ROUNDED)


class _Loaded:
    """The model of some settings in this process. `lock` lets one thread load or compute at a time, and a waiting main
    thread hear Ctrl-C."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.scorer: Scorer | None = None


class _Process:
    """What this process has loaded. A fork has neither the threads nor the locks of its parent, so it begins anew."""

    def __init__(self) -> None:
        self.number = os.getpid()
        self.lock = threading.Lock()
        self.loaded: weakref.WeakValueDictionary[_Settings, _Loaded] = weakref.WeakValueDictionary()
        self.held: OrderedDict[_Settings, _Loaded] = OrderedDict()

    def of(self, settings: _Settings, hold: bool) -> _Loaded:
        with self.lock:
            found = self.loaded.get(settings)
            if found is None:
                found = self.loaded[settings] = _Loaded()
            if hold:
                self.held[settings] = found
                self.held.move_to_end(settings)
                while len(self.held) > _HELD:
                    self.held.popitem(last=False)
            return found


_process = _Process()


def _begin_anew() -> None:
    global _process
    _process = _Process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class Labeler:
    """Scores texts against labels with one model.

    >>> labeler = Labeler(labels={"cooking": "Recipes and food.", "travel": "Trips and hotels."})
    >>> labeler.scores(["Three days in Lisbon.", None]).round(1).tolist()
    [[0.0, 1.0], [nan, nan]]

    The model is loaded by the first call that needs it, once in each process: after a fork, and where a pickled labeler
    arrives, it is loaded anew. Any number of threads may call it; they take turns, because
    one batch uses all threads of the model.

    :param model: A model folder; None for the one that the package carries.
    :param labels: The labels, or a mapping of labels to descriptions, which help an embedding model. None for those of the
        model, if it is a classifier, and else for the sixteen topics of the program's default pipeline.
    :param device: "auto" for a GPU where there is one, "cpu", "cuda" or "cuda:N".
    :param mode: "single" for one label a text, whose scores add up to 1; "multi" for each label by itself; "raw", of a
        classifier only, for its logits as they are. None for what a classifier was made for, and else for "single".
    :param precision: "fp32", "bf16", "fp16" or "int8"; "auto" for the folder's choice. OpenVINO computes the graph of "fp32"
        faster in "bf16", and in "int8" where the folder has no graph in it.
    :param threads: Threads that compute a batch; None for one a core.
    :param template: The hypothesis, with one {} where the label goes; None for the model's own.
    :param threshold: A text whose best score is lower gets no label.
    :param batch_tokens: Padded tokens that a batch may hold; None for what suits the device.
    :param engine: The library that computes: "onnxruntime"; "openvino", on CPUs only, which `topicmill[openvino]` installs;
        "auto" for ONNX Runtime, and for OpenVINO where ONNX Runtime is nowhere or cannot compute in the precision. Both give
        the same scores in float32.
    :param text: The column of texts that `label_batch` reads; several are joined with a blank line.
    :param reddit_text: Whether texts are read as readers of Reddit see them: without Markdown, addresses of pictures and
        zero-width characters.
    :param label_scores: Whether `label_batch` adds a column with the score of each label.
    :param logits: Whether `label_batch` adds a column with the logit of each label.
    :param prefix: What the names of the columns that `label_batch` adds begin with.
    :raises ValueError: if a setting cannot be used. What needs the model is checked when it is loaded.
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
        template: str | None = None,
        threshold: float = 0.0,
        batch_tokens: int | None = None,
        engine: Literal["auto", "onnxruntime", "openvino"] = "auto",
        text: str | Sequence[str] = "text",
        reddit_text: bool = False,
        label_scores: bool = False,
        logits: bool = False,
        prefix: str = "",
    ) -> None:
        if mode not in (None, "single", "multi", "raw"):
            raise ValueError(f"`mode` is {mode!r}: give 'single', 'multi', or for a classifier 'raw'")
        if threads is not None and threads < 1:
            raise ValueError(f"`threads` is {threads}: give a number from 1 on, or None for one a core")
        if engine not in ("auto", "onnxruntime", "openvino"):
            raise ValueError(f"`engine` is {engine!r}: give 'auto', 'onnxruntime' or 'openvino'")
        if batch_tokens is not None and batch_tokens < 1:
            raise ValueError(f"`batch_tokens` is {batch_tokens}: give a number from 1 on, or None")
        settings = _Settings(
            model=None if model is None else os.fspath(model),
            labels=None if labels is None else _labels(labels),
            template=template,
            mode=mode,
            threshold=float(threshold),
            device=device,
            precision=None if precision == "auto" else precision,
            threads=threads,
            batch_tokens=batch_tokens,
            engine=engine,
            reddit_text=reddit_text,
        )
        columns = _tables.Columns(
            text=(text,) if isinstance(text, str) else tuple(text),
            reddit_text=reddit_text,
            label_scores=label_scores,
            logits=logits,
            prefix=prefix,
        )
        self._set(settings, columns, None, False)

    def _set(
        self, settings: _Settings, columns: _tables.Columns, known_hash: str | None, hold: bool
    ) -> None:
        self._settings = settings
        self._columns = columns
        self._hash = known_hash
        self._hold = hold
        self._loaded: tuple[_Process, _Loaded] | None = None

    def __repr__(self) -> str:
        settings = self._settings
        labels = "None" if settings.labels is None else repr([label for label, _ in settings.labels])
        return f"Labeler(model={settings.model!r}, labels={labels}, device={settings.device!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        scorer = self._scorer_if_loaded()
        known_hash = scorer.model_hash if scorer else self._hash
        # Built-in types alone, so that another version gets as far as its own error.
        return _unpickled, (__version__, vars(self._settings), vars(self._columns), known_hash)

    @property
    def labels(self) -> list[str]:
        """The labels, in the order of the columns of `scores`. Loads the model where it has to say."""
        if self._settings.labels is not None:
            return [label for label, _ in self._settings.labels]
        return self._scorer().labels

    @property
    def model_hash(self) -> str:
        """A hash of every file that decides a score. Loads the model."""
        return self._scorer().model_hash

    @property
    def device(self) -> str:
        """What the model runs on, such as "cpu" or "cuda:0". Loads the model."""
        return self._scorer().device

    @property
    def engine(self) -> str:
        """The library that computes: "onnxruntime" or "openvino". Loads the model."""
        return self._scorer().engine

    def load(self) -> Labeler:
        """Loads the model now rather than at the first call, and returns the labeler.

        :raises Error: if the model, the library or the device cannot be used; the message says what to do.
        """
        self._scorer()
        return self

    # One text is a sequence of texts to a type checker, and none here.
    @overload
    def label(self, texts: str) -> Scored: ...  # type: ignore[overload-overlap]  # pyright: ignore
    @overload
    def label(self, texts: Sequence[str]) -> list[Scored]: ...
    def label(self, texts: str | Sequence[str]) -> Scored | list[Scored]:
        """Scores texts, in the shape of the zero-shot pipeline of transformers: the best label first.

        >>> [scored] = Labeler(labels=["cooking", "travel"]).label(["Bread and butter."])
        >>> scored["sequence"], scored["labels"]
        ('Bread and butter.', ['cooking', 'travel'])

        :param texts: A list of texts, or one text.
        :returns: For each text its labels and scores; for a text without a word no label.
        """
        if isinstance(texts, str):
            return self.label([texts])[0]
        texts = list(texts)
        matrix = self.scores(texts)
        labels = self.labels
        # Stable, so that of equals the first stays the first.
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
        """Scores texts: a row for each text, a column for each label, in their orders.

        >>> Labeler(labels=["cooking", "travel"]).scores(["Bread and butter.", "", None]).shape
        (3, 2)

        :param texts: A sequence of str, or of bytes in UTF-8, with None where a text is missing; a column of pyarrow,
            pandas or polars; a numpy array. Arrow strings are not copied.
        :returns: Scores; NaN in the row of a text that is missing or has no word.
        """
        _, _, _, scores, _, failed = self._compute(_tables.texts_of(texts), True, False)
        _warn(failed)
        assert scores is not None
        return scores

    def label_batch(self, batch: Batch) -> Batch:
        """Adds the columns `label`, `score` and `margin` to a table.

        A row whose text is missing or has no word has nulls there. `score` is that of the best label, also where it lies
        under the threshold and the label is null. `margin` is the best score less the next.

        >>> import numpy as np
        >>> batch = {"id": np.array([7, 8]), "text": np.array(["Bread and butter.", None])}
        >>> Labeler(labels=["cooking", "travel"]).label_batch(batch)["label"].tolist()
        ['cooking', None]

        :param batch: A Table or RecordBatch of pyarrow, a DataFrame of pandas or polars, or a dictionary of arrays.
        :returns: The same kind of table, with all its columns, and the new ones after them.
        :raises ValueError: if the column of texts is missing, or a new column's name is taken.
        """
        labelled: Batch = _tables.labelled(batch, self._columns, self.labels, self._compute, _warn)
        return labelled

    __call__ = label_batch

    def meta(self, batch: Batch) -> Batch:
        """What `label_batch` gives of a table without rows, for engines that want to know the columns beforehand. Loads
        the model only where each label of the default ones gets a column.

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

    def _compute(self, texts: Any, with_scores: bool, with_logits: bool) -> _tables.Computed:
        loaded = self._of_process()
        # Only the main thread hears signals.
        interruptible = threading.current_thread() is threading.main_thread()
        with loaded.lock:
            scorer = self._load(loaded)
            return scorer.score(texts, with_scores, with_logits, interruptible)

    def _scorer(self) -> Scorer:
        loaded = self._of_process()
        with loaded.lock:
            return self._load(loaded)

    def _scorer_if_loaded(self) -> Scorer | None:
        known = self._loaded
        return known[1].scorer if known and known[0].number == os.getpid() else None

    def _of_process(self) -> _Loaded:
        """What this process has loaded for these settings."""
        if _process.number != os.getpid():
            # A fork that Python was not told of.
            _begin_anew()
        process, known = _process, self._loaded
        if known is None or known[0] is not process:
            known = (process, process.of(self._settings, self._hold))
            self._loaded = known
        return known[1]

    def _load(self, loaded: _Loaded) -> Scorer:
        scorer = loaded.scorer
        if scorer is None:
            scorer = loaded.scorer = self._settings.load()
        if self._hash is not None and scorer.model_hash != self._hash:
            raise Error(
                f"the model `{scorer.model}` here is not the one that the Labeler was pickled with: "
                "copy the same model folder to every worker"
            )
        return scorer


def _labels(labels: Labels) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if isinstance(labels, (str, bytes)):
        raise TypeError("`labels` is one text: give a list of labels")
    if isinstance(labels, Mapping):
        described = ((label, texts) for label, texts in labels.items())
        pairs = tuple(
            (label, (texts,) if isinstance(texts, str) else tuple(texts)) for label, texts in described
        )
    else:
        pairs = tuple((label, ()) for label in labels)
    for label, texts in pairs:
        if not all(isinstance(text, str) for text in (label, *texts)):
            raise TypeError(f"the label {label!r} or a description of it is no str")
    if not pairs:
        raise ValueError("`labels` is empty: give at least one label, or None for the default ones")
    return pairs


def _unpickled(
    version: str, settings: dict[str, Any], columns: dict[str, Any], known_hash: str | None
) -> Labeler:
    """Makes a pickled labeler again. Its model stays in the process, for the next one of the same settings."""
    if version != __version__:
        raise Error(
            f"the Labeler was pickled by topicmill {version}, and {__version__} is installed here: "
            "install the same version everywhere"
        )
    labeler = Labeler.__new__(Labeler)
    labeler._set(_Settings(**settings), _tables.Columns(**columns), known_hash, True)
    return labeler


def _warn(failed: list[tuple[int, str]]) -> None:
    if failed:
        row, reason = failed[0]
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        warnings.warn(f"row {row} could not be scored{more}: {reason}", RuntimeWarning, stacklevel=3)
