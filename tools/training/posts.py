"""Reads and checks the output of `topicmill export`: training rows, held-out rows, and label names.

Input is a file or a folder from an export. Output is a `Corpus`, or an `InputError` that describes the problem.
"""

import csv
import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from models import InputError
from training.text import post_text
from training.words import Label, read_labels

ENDINGS = (".csv", ".ndjson", ".jsonl", ".parquet")
FEWEST = 5  # posts per label: with fewer, too few could be held out
HELD_OUT = 0.1  # share of the posts in each of the parts `validation` and `test`
SCORE = "score_"
TEXTS = ("title", "selftext", "text")
NAMES = ("fullname", "id")
FULLNAME = "t3_"


@dataclass(frozen=True)
class Row:
    """A text, the number of its label, its part, and the exported scores of all labels, if any."""

    name: str
    text: str
    label: int
    part: str
    scores: np.ndarray | None = None
    is_gold: bool = False


@dataclass(frozen=True)
class Corpus:
    """Training rows, held-out rows, the labels in the order of their numbers, and a hash of the files.

    `words` are the labels of the pipeline file, in the same order, or empty without a file. `test` contains the slug of
    each post in the `test` part, which training does not use.
    """

    train: list[Row]
    held_out: list[Row]
    labels: list[str]
    digest: str
    notes: list[str]
    words: list[Label]
    test: dict[str, str]


@dataclass(frozen=True)
class Wishes:
    """The columns, files and rows to use."""

    label_column: str = "label"
    pipeline: Path | None = None
    gold: Path | None = None
    soft: bool = False
    both_forms: bool = True
    whole_set: bool = False
    """True if every label of the pipeline file counts, including labels with few posts or none."""


def read_corpus(path: Path, wishes: Wishes) -> Corpus:
    """Reads and checks an export. Raises `InputError`."""
    files = files_of(path)
    before = digest_of(files)
    records = as_text(list(rows_in(files)), (*TEXTS, *NAMES, wishes.label_column), path)
    if digest_of(files) != before:
        raise InputError(f"`{path}` changed while it was read: wait until `topicmill export` is done, and run again")
    if not records:
        raise InputError(
            f"`{path}` has no posts: see `topicmill export --help`, or label some with `topicmill classify`"
        )
    if not {"title", "text"} & records[0].keys():
        raise InputError(f"`{path}` has neither a `title` nor a `text` column; it has {', '.join(records[0])}")
    notes: list[str] = []
    gold = read_gold(wishes.gold, notes) if wishes.gold else {}
    known = read_labels(wishes.pipeline) if wishes.pipeline else []
    slugs = slugs_of(records, wishes.label_column, path, gold)
    words = words_of(slugs, known, wishes)
    slugs = [label.slug for label in words] or slugs
    number = {slug: index for index, slug in enumerate(slugs)}
    soft = soft_scores(records, slugs) if wishes.soft else {}
    rows = rows_of(records, wishes, number, gold, soft, notes)
    check_counts(rows, slugs, 0 if wishes.whole_set else FEWEST)
    train, held = parted(rows, wishes.whole_set)
    if gold:
        before = hashlib.sha256(before.encode() + wishes.gold.read_bytes()).hexdigest()
    # A model must not be evaluated with the labels of another model.
    by_annotators = not gold and wishes.label_column != Wishes.label_column
    tested = [row for row in rows if row.part == "test" and row.name.startswith(FULLNAME)]
    test = {row.name: slugs[row.label] for row in tested if row.is_gold or by_annotators}
    return Corpus(train, held, [label.words for label in words] or slugs, before, notes, words, test)


def files_of(path: Path) -> list[Path]:
    """Returns the files in an export."""
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix in ENDINGS and not file.name.startswith("."))
        if not found:
            raise InputError(f"`{path}` contains no export: make it with `topicmill export {path}`")
        return found
    if not path.is_file():
        raise InputError(f"`{path}` does not exist: make it with `topicmill export {path}`")
    if path.suffix not in ENDINGS:
        raise InputError(f"`{path}` does not end in {', '.join(ENDINGS)}: export it in one of these formats")
    return [path]


def digest_of(files: list[Path]) -> str:
    """Hashes the contents of the files."""
    whole = hashlib.sha256()
    for file in files:
        try:
            whole.update(file.read_bytes())
        except OSError as problem:
            raise InputError(f"`{file}` cannot be read: {problem.strerror}") from None
    return whole.hexdigest()


def rows_in(files: list[Path]) -> Iterator[dict]:
    """Yields the rows as stored."""
    for file in files:
        try:
            yield from read_file(file)
        except InputError:
            raise
        except Exception as problem:  # each format raises its own exceptions
            raise InputError(f"`{file}` cannot be read: {problem}") from None


def read_file(file: Path) -> Iterator[dict]:
    """Yields the rows of one file."""
    if file.suffix == ".parquet":
        from pyarrow import parquet

        yield from parquet.read_table(file).to_pylist()
        return
    with file.open(encoding="utf-8-sig", newline="") as lines:
        if file.suffix == ".csv":
            csv.field_size_limit(sys.maxsize)
            yield from csv.DictReader(lines)
            return
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    record = json.loads(line)
                except ValueError:
                    raise InputError(f"line {number} of `{file}` is not JSON: export it again") from None
                if not isinstance(record, dict):
                    raise InputError(f"line {number} of `{file}` is not a JSON object: export it again")
                yield record


def as_text(records: list[dict], columns: tuple[str, ...], path: Path) -> list[dict]:
    """Returns the same rows with text in these columns; a number becomes its digits."""
    for place, record in enumerate(records, 1):
        for column in columns:
            value = record.get(column)
            if isinstance(value, int | float):
                record[column] = str(value)
            elif value is not None and not isinstance(value, str):
                kind = type(value).__name__
                raise InputError(f"row {place} of `{path}` has a {kind} in the column `{column}`: write text there")
    return records


def read_gold(path: Path, notes: list[str]) -> dict[str, str]:
    """Returns the gold label of each post; an empty label means none of the labels.

    Posts on which annotators disagree are left out, as in `labels evaluate --gold db`.
    """
    answers = defaultdict(set)
    for record in as_text(list(rows_in(files_of(path))), ("id", "label"), path):
        if "id" not in record or "label" not in record:
            raise InputError(f"`{path}` has no columns `id` and `label`: write it with `topicmill labels gold export`")
        answers[record["id"]].add(record["label"])
    disagreed = sum(len(said) > 1 for said in answers.values())
    if disagreed:
        notes.append(f"the gold labels of {disagreed} posts are ignored: they contradict each other")
    return {post: next(iter(said)) or "" for post, said in answers.items() if len(said) == 1}


def slugs_of(records: list[dict], column: str, path: Path, gold: dict[str, str]) -> list[str]:
    """Returns the slugs of the labels: in the order of the score columns, else sorted."""
    if column not in records[0]:
        raise InputError(f"`{path}` has no column `{column}`: name the right one with --label-column")
    scored = [name.removeprefix(SCORE) for name in records[0] if name.startswith(SCORE)]
    used = {record[column] for record in records if record.get(column)}
    used |= {gold[post] for post in map(gold_key, records) if gold.get(post)}
    if scored and used <= set(scored):
        return scored
    return sorted(str(label) for label in used)


def soft_scores(records: list[dict], slugs: list[str]) -> dict[str, np.ndarray]:
    """Returns the exported scores of each post that has them, which add up to 1."""
    lacking = [slug for slug in slugs if SCORE + slug not in records[0]]
    if lacking:
        raise InputError(f"the export has no column `{SCORE}{lacking[0]}`, so it cannot teach: leave out --soft")
    found = {}
    for record in records:
        values = [record.get(SCORE + slug) for slug in slugs]
        if any(value in (None, "") for value in values):
            continue
        try:
            scores = np.array(values, np.float32)
        except (TypeError, ValueError):
            raise InputError(f"a score of `{name_of(record)}` is not a number: export it again") from None
        if scores.min() < 0 or not np.isfinite(scores).all() or scores.sum() <= 0:
            raise InputError("scores are negative or not numbers: export them in single mode")
        found[name_of(record)] = scores / scores.sum()
    return found


def name_of(record: dict) -> str:
    """Returns the join key of a row."""
    return str(record.get("fullname") or record.get("id") or record.get("text_hash") or "")


def gold_key(record: dict) -> str | None:
    """Returns the name of a post in a file of gold labels."""
    return record.get("fullname") or record.get("id")


def texts_of(record: dict) -> tuple[str, str]:
    """Returns the text of a post, as the program makes it, and its bare title."""
    if record.get("text") and not record.get("title"):
        return record["text"], record["text"]
    title = record.get("title") or ""
    return post_text(title, record.get("selftext") or ""), post_text(title, "")


def rows_of(
    records: list[dict],
    wishes: Wishes,
    number: dict[str, int],
    gold: dict[str, str],
    soft: dict[str, np.ndarray],
    notes: list[str],
) -> list[Row]:
    """Returns a row for each post with text and a label; a gold label takes precedence over a model's."""
    rows, seen, without = [], set(), Counter()
    for record in records:
        name = name_of(record)
        label = gold.get(gold_key(record), record.get(wishes.label_column))
        whole, title = texts_of(record)
        key = " ".join(whole.lower().split())
        if gold.get(gold_key(record)) == "":
            without["an annotator says that none of the labels fits"] += 1
        elif not label:
            without["no label"] += 1
        elif not key:
            without["no text"] += 1
        elif key in seen:
            without["the same text as another post"] += 1
        else:
            seen.add(key)
            is_gold = name in gold
            row = Row(name, whole, number[label], part_of(key), None if is_gold else soft.get(name), is_gold)
            rows.append(row)
            if wishes.both_forms and title.strip() and title != whole:
                rows.append(replace(row, text=title))
    notes.extend(f"{count} posts are left out: {reason}" for reason, count in sorted(without.items()))
    unknown = sorted(set(gold) - {name_of(record) for record in records})
    if unknown:
        notes.append(f"{len(unknown)} posts with gold labels are not in the export, such as `{unknown[0]}`")
    return rows


def check_counts(rows: list[Row], slugs: list[str], fewest: int) -> None:
    """Rejects data that cannot be trained on."""
    posts = {(row.name, row.label): row.label for row in rows} if rows and rows[0].name else None
    counts = Counter(posts.values() if posts else (row.label for row in rows))
    if len(counts) < 2:
        raise InputError(f"all posts have the same label, or none: a model needs two labels with {FEWEST} posts each")
    few = [slug for index, slug in enumerate(slugs) if counts[index] < fewest]
    if few:
        raise InputError(
            f"the label `{few[0]}` has {counts[slugs.index(few[0])]} posts, and needs at least {fewest}: label more "
            "posts, or leave the label out of the label set"
        )


def parted(rows: list[Row], some_may_lack: bool) -> tuple[list[Row], list[Row]]:
    """Returns training and held-out rows. The `test` part is for `labels evaluate` and is never read."""
    train = [row for row in rows if row.part == "train"]
    held = [row for row in rows if row.part == "validation"]
    if not train or not held:
        raise InputError("there are no training posts or no held-out posts: export more posts")
    if not some_may_lack and {row.label for row in rows} != {row.label for row in train}:
        raise InputError("a label has no training post: export more posts")
    return train, held


def part_of(text: str) -> str:
    """Returns the part of a post, by the hash of its whole text: the same in each run, export and form of the post."""
    place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
    return "validation" if place < HELD_OUT else "test" if place < 2 * HELD_OUT else "train"


def words_of(slugs: list[str], known: list[Label], wishes: Wishes) -> list[Label]:
    """Returns the pipeline file's labels that posts have, or all of them with `whole_set`; empty without a file."""
    by_slug = {label.slug: label for label in known}
    lacking = [slug for slug in slugs if known and slug not in by_slug]
    if lacking:
        raise InputError(
            f"`{wishes.pipeline}` has no topic `{lacking[0]}`: pass the pipeline file that the labels come from"
        )
    if not known or wishes.whole_set:
        return known
    return [by_slug[slug] for slug in slugs]
