"""Makes the result of `--keep-zero-shot`: the base's embedding folder, with learned label vectors.

Input is labelled posts and the base. Output is a folder with the graph, the tokenizer and the scales of the base. The
resulting model assigns the learned labels better and accepts any other labels as the base does.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from models import InputError
from training.embed import Embedder
from training.posts import Corpus, Row
from training.proof import write_proof
from training.report import figures, write_report
from training.vectors import Scales, learn, unit
from training.words import Label

Say = Callable[[str], None]

FILE = "label_vectors.json"
# The base's manifest contains the hash of config.json, which changes, so a new manifest is written.
LEFT_OUT = (".*", "manifest.toml", FILE)
DIGITS = 9  # significant digits of a number, which distinguish each float32 from its neighbours


def keep_zero_shot(arguments: argparse.Namespace, corpus: Corpus, base: Path, say: Say) -> None:
    """Learns the vectors, compares them with the base's, and writes the folder.

    Raises `InputError`, and `OSError` if the disk is full.
    """
    begun = time.monotonic()
    embedder = Embedder(base, arguments.threads)
    scales = Scales.of(embedder.head)
    texts = [label.texts for label in corpus.words]
    check_texts(texts, corpus.words)
    train = embedder.vectors([row.text for row in corpus.train], say)
    held = embedder.vectors([row.text for row in corpus.held_out], say)
    before, made_of = vectors_in(base, texts), "the learned vectors of the base"
    if before is None:
        before, made_of = embedder.of_labels(texts), "the words of the labels"
    learned = learn(train, numbers_of(corpus.train), before, scales, groups_of(corpus.train), say=say)
    target = numbers_of(corpus.held_out)
    by_base, found = (
        figures(scales.softmax * held @ one.T.astype(np.float32), target) for one in (before, learned)
    )
    write_report(arguments, corpus, begun, {"held_out": found, "held_out_by_base": by_base}, None)
    write_folder(base, arguments.out, corpus.words, learned)
    say(
        f"`{arguments.out}`: accuracy {interval_of(found)} of {found['texts']} texts held out, macro-F1 "
        f"{found['macro_f1']:.3f}, calibration error {found['calibration_error']:.3f}; accuracy with {made_of}: "
        f"{interval_of(by_base)}. Next: topicmill model verify {arguments.out}"
    )


def vectors_in(folder: Path, texts: list[list[str]]) -> np.ndarray | None:
    """Returns a folder's learned vectors for these labels, or `None` if not every label has one."""
    try:
        name = json.loads((folder / "config.json").read_text(encoding="utf-8"))["zero_shot"].get("label_vectors")
        if name is None:
            return None
        labels = json.loads((folder / name).read_text(encoding="utf-8"))["labels"]
        known = {tuple(label["texts"]): label["vector"] for label in labels}
        if not all(tuple(of_one) in known for of_one in texts):
            return None
        return unit(np.array([known[tuple(of_one)] for of_one in texts], np.float64))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise InputError(f"the learned label vectors of `{folder}` cannot be read: {problem}") from None


def interval_of(one: dict[str, float]) -> str:
    """Formats an accuracy with its interval."""
    return f"{one['accuracy']:.3f} ({one['accuracy_from']:.3f} to {one['accuracy_to']:.3f})"


def check_texts(texts: list[list[str]], labels: list[Label]) -> None:
    """Rejects labels that the program cannot distinguish by their texts."""
    seen: dict[tuple[str, ...], str] = {}
    for of_one, label in zip(texts, labels, strict=True):
        other = seen.setdefault(tuple(of_one), label.slug)
        if other != label.slug:
            raise InputError(
                f"the labels `{other}` and `{label.slug}` have the same texts: change one description"
            )


def numbers_of(rows: list[Row]) -> np.ndarray:
    """Returns the label numbers of rows."""
    return np.array([row.label for row in rows])


def groups_of(rows: list[Row]) -> np.ndarray:
    """Returns a post number for each row; both forms of a post have the same number."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(row.name or row.text, len(known)) for row in rows])


def write_folder(base: Path, out: Path, labels: list[Label], vectors: np.ndarray) -> None:
    """Atomically copies `base` to `out` with these vectors."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".model-", dir=out.parent) as scratch:
        folder = Path(scratch) / "folder"
        try:
            shutil.copytree(base, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
        except shutil.Error as problem:  # lists every file that failed; the first has the reason
            raise OSError(f"`{out}`: {problem.args[0][0][2]}") from None
        write_vectors(folder, labels, vectors)
        write_proof(folder, base)
        folder.replace(out)


def write_vectors(folder: Path, labels: list[Label], vectors: np.ndarray) -> None:
    """Adds vectors to a folder and their file name to its `config.json`."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["zero_shot"]["label_vectors"] = FILE
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    (folder / FILE).write_text(file_of(labels, vectors), encoding="utf-8")


def file_of(labels: list[Label], vectors: np.ndarray) -> str:
    """Returns the text of `label_vectors.json`, one line per label."""
    lines = []
    for label, vector in zip(labels, vectors, strict=True):
        numbers = [float(f"{number:.{DIGITS}g}") for number in vector.tolist()]
        lines.append(json.dumps({"texts": label.texts, "vector": numbers}, ensure_ascii=False))
    return '{"labels": [\n' + ",\n".join(lines) + "\n]}\n"
