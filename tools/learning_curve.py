#!/usr/bin/env python3
"""How good learned label vectors get with how many labelled posts: two tables, and a picture of the second.

    tools/learning_curve.py TRAIN JUDGE OUT [--seeds 1,2,3]

TRAIN and JUDGE are NDJSON, gzipped or not, with `title`, `selftext` and `topic`: a slug or the words of a label of the
pipeline file. TRAIN stands for posts whose labels people could be asked for; JUDGE is only measured with. OUT gets
`learning-curve.md` and `learning-curve.svg`.

Few labels: N posts drawn at random have a label, and all others of TRAIN are there without one (training/taught.py).
Active learning: people answer about posts that are close calls, four of five, and the others drawn at random, as
`topicmill export --format label-studio` asks for them (src/review/ask.rs). After each part, the model learns and
chooses the next ones. Beside it, as many posts that are drawn at random.

Exit code 0: both files are written. 2: a file or an argument cannot be used.
"""

import argparse
import gzip
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from models.quiet import QUIET

os.environ |= QUIET

import numpy as np
from models.errors import InputError
from training.embed import Embedder
from training.posts import texts_of
from training.report import figures, softmax
from training.taught import UNKNOWN, self_taught
from training.vectors import Scales, learn
from training.words import Label, read_labels

ROOT = Path(__file__).resolve().parent.parent
RANDOM_SHARE = 0.2  # as the review page and the tasks of Label Studio have it


@dataclass(frozen=True)
class Posts:
    """Posts in both forms: vectors [rows, D]; for each row its post, and whether it is the text as it stands."""

    vectors: np.ndarray
    posts: np.ndarray
    whole: np.ndarray
    bare: np.ndarray
    labels: np.ndarray

    @property
    def count(self) -> int:
        """How many posts."""
        return len(self.labels)

    def of(self, chosen: np.ndarray) -> np.ndarray:
        """The rows of some posts."""
        return np.flatnonzero(np.isin(self.posts, chosen))


def main(words: list[str] | None = None) -> int:
    """Read the arguments and do what they say; returns the exit code."""
    arguments = parse(words)
    begun = time.monotonic()
    try:
        labels = read_labels(arguments.pipeline)
        embedder = Embedder(arguments.base, arguments.threads, arguments.cache)
        if "label_vectors" in embedder.head:
            say(f"`{arguments.base}` has learned labels already: where they are these, nothing here is learned from few posts")
        train = read_posts(arguments.train, labels, embedder)
        judge = read_posts(arguments.judge, labels, embedder)
        bed = Bed(train, judge, embedder.of_labels([label.texts for label in labels]), Scales.of(embedder.head))
        seeds = numbers(arguments.seeds)
        few = {count: [bed.few(count, seed) for seed in seeds] for count in numbers(arguments.few)}
        answers = numbers(arguments.answers)
        ways = {way: [bed.asked(answers, way, seed) for seed in seeds] for way in ("useful", "random")}
    except InputError as problem:
        print(f"cannot measure: {problem}", file=sys.stderr)
        return 2
    everything = bed.judged(bed.learned(np.arange(train.count)))
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = "\n".join([few_table(few, bed.judged(bed.words), everything, train.count), "", asked_table(ways, answers)])
    (arguments.out / "learning-curve.md").write_text(text + "\n", encoding="utf-8")
    draw(arguments.out / "learning-curve.svg", ways, answers)
    print(text)
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    say(f"{train.count} posts to learn from, {judge.count} to judge by; {time.monotonic() - begun:.0f} s, load {load}")
    return 0


class Bed:
    """What is measured on."""

    def __init__(self, train: Posts, judge: Posts, words: np.ndarray, scales: Scales):
        self.train, self.judge, self.words, self.scales = train, judge, words, scales

    def judged(self, found: np.ndarray) -> dict[str, float]:
        """Accuracy of posts as they stand: all, those with a body, those that are a bare title; calibration error."""
        judge, rows = self.judge, self.judge.whole
        logits = self.scales.softmax * judge.vectors[rows] @ found.T.astype(np.float32)
        target, bare = judge.labels[judge.posts[rows]], judge.bare[rows]
        right = logits.argmax(1) == target
        whole = figures(logits, target)
        part = lambda mask: float(right[mask].mean()) if mask.any() else float("nan")
        return {
            "all": float(right.mean()),
            "body": part(~bare),
            "title": part(bare),
            "calibration_error": whole["calibration_error"],
        }

    def learned(self, chosen: np.ndarray) -> np.ndarray:
        """Vectors of labels from the labels of some posts."""
        train, rows = self.train, self.train.of(chosen)
        if not len(rows):
            return self.words
        return learn(train.vectors[rows], train.labels[train.posts[rows]], self.words, self.scales, train.posts[rows])

    def few(self, count: int, seed: int) -> tuple[dict[str, float], dict[str, float]]:
        """With so many labels: what they alone give, and what the posts without a label add."""
        train = self.train
        chosen = np.random.default_rng(seed).permutation(train.count)[:count]
        labels = np.full(train.count, UNKNOWN)
        labels[chosen] = train.labels[chosen]
        alone = self.learned(chosen)
        taught = self_taught(train.vectors, labels[train.posts], self.words, self.scales, train.posts, train.whole)
        say(f"{count} labels, seed {seed}: done")
        return self.judged(alone), self.judged(taught)

    def asked(self, answers: list[int], way: str, seed: int) -> list[dict[str, float]]:
        """What so many answers give, the next ones chosen by what was learned from those before."""
        generator = np.random.default_rng(seed)
        order = generator.permutation(self.train.count)
        found, chosen, curve = self.words, [], []
        for count in answers:
            wanted = count - len(chosen)
            left = np.setdiff1d(order, chosen, assume_unique=True)  # keeps the random order
            if way == "useful":
                chosen += useful(left, self.margins(found), wanted)
            else:
                chosen += left[:wanted].tolist()
            found = self.learned(np.array(chosen, np.int64))
            curve.append(self.judged(found))
        say(f"{way}, seed {seed}: done")
        return curve

    def margins(self, found: np.ndarray) -> np.ndarray:
        """For each post to learn from, the best score less the second best."""
        rows = np.flatnonzero(self.train.whole)
        scores = np.sort(softmax(self.scales.softmax * self.train.vectors[rows] @ found.T.astype(np.float32)), axis=1)
        margins = np.empty(self.train.count)
        margins[self.train.posts[rows]] = scores[:, -1] - scores[:, -2]
        return margins


def useful(left: np.ndarray, margins: np.ndarray, wanted: int) -> list[int]:
    """Close calls first, and one of five at random; `left` is in random order."""
    closest, random = iter(left[np.argsort(margins[left], kind="stable")].tolist()), iter(left.tolist())
    chosen: dict[int, None] = {}
    while len(chosen) < min(wanted, len(left)):
        number = len(chosen)
        is_random = int((number + 1) * RANDOM_SHARE) > int(number * RANDOM_SHARE)
        chosen[next(post for post in (random if is_random else closest) if post not in chosen)] = None
    return list(chosen)


def read_posts(path: Path, labels: list[Label], embedder: Embedder) -> Posts:
    """Posts with their vectors; equal texts count once."""
    number = {name: index for index, label in enumerate(labels) for name in (label.words, label.slug)}
    texts, posts, whole, bare, found = [], [], [], [], []
    seen = set()
    for line_number, line in enumerate(lines_of(path), 1):
        try:
            record = json.loads(line)
            label, (text, title) = number[record["topic"]], texts_of(record)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise InputError(
                f"line {line_number} of `{path}` is no post with a topic of the pipeline file ({problem}): write one "
                "JSON object with title, selftext and topic on each line"
            ) from None
        key = " ".join(text.lower().split())
        if not key or key in seen:
            continue
        seen.add(key)
        for form in dict.fromkeys((text, title)):
            texts.append(form)
            posts.append(len(found))
            whole.append(form == text)
            bare.append(text == title)
        found.append(label)
    if not found:
        raise InputError(f"`{path}` has no posts")
    vectors = embedder.vectors(texts, say)
    return Posts(vectors, np.array(posts), np.array(whole), np.array(bare), np.array(found))


def lines_of(path: Path) -> list[str]:
    """The lines of a file, gzipped or not."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as problem:
        raise InputError(f"`{path}` cannot be read: {problem}") from None
    return [line for line in text.split("\n") if line.strip()]


def mean_and_spread(values: list[float]) -> str:
    """As `0.812 ± 0.004`: the mean over the seeds, and the standard deviation."""
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}" if len(values) > 1 else f"{values[0]:.3f}"


def few_table(few: dict, words: dict[str, float], everything: dict[str, float], count: int) -> str:
    """The table of few labels."""
    lines = [
        "| labelled posts | learned from | with a body | bare title | all | calibration error |",
        "|---|---|---|---|---|---|",
        line_of(0, "the words of the labels", [words]),
    ]
    for labels, runs in few.items():
        if labels:
            lines.append(line_of(labels, "these alone", [alone for alone, _ in runs]))
        lines.append(line_of(labels, f"these, and {count - labels:,} without a label", [both for _, both in runs]))
    lines.append(line_of(count, "these alone", [everything]))
    return "\n".join(lines)


def line_of(labels: int, what: str, runs: list[dict[str, float]]) -> str:
    """One row: means over seeds."""
    cells = [mean_and_spread([run[key] for run in runs]) for key in ("body", "title", "all", "calibration_error")]
    return f"| {labels:,} | {what} | {' | '.join(cells)} |"


def asked_table(ways: dict[str, list[list[dict[str, float]]]], answers: list[int]) -> str:
    """The table of active learning: accuracy of all texts."""
    lines = ["| answers | useful | random |", "|---|---|---|"]
    for place, count in enumerate(answers):
        cells = [mean_and_spread([run[place]["all"] for run in runs]) for runs in ways.values()]
        lines.append(f"| {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(path: Path, ways: dict[str, list[list[dict[str, float]]]], answers: list[int]) -> None:
    """Accuracy against answers: a line for each way, a band for the spread."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "topicmill"
    from matplotlib import pyplot

    picture, axis = pyplot.subplots(figsize=(6, 3.6))
    for way, runs in ways.items():
        values = np.array([[one["all"] for one in run] for run in runs])
        mean, spread = values.mean(0), values.std(0)
        axis.plot(answers, mean, marker="o", label=way)
        axis.fill_between(answers, mean - spread, mean + spread, alpha=0.2)
    axis.set_xlabel("answers")
    axis.set_title("share of posts with the right label")
    axis.legend(frameon=False)
    picture.tight_layout()
    picture.savefig(path, metadata={"Date": None})
    pyplot.close(picture)


def numbers(text: str) -> list[int]:
    """Whole numbers with commas."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"`{text}`: give whole numbers with commas") from None
    if min(found) < 0 or found != sorted(found):
        raise InputError(f"`{text}`: give whole numbers in rising order")
    return found


def say(line: str) -> None:
    """A line with the time."""
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


def parse(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("train", type=Path, metavar="TRAIN", help="posts to learn from")
    add("judge", type=Path, metavar="JUDGE", help="posts to judge by")
    add("out", type=Path, metavar="OUT", help="folder for the tables and the picture")
    add("--base", type=Path, default=ROOT / "models/minilm-reddit-topics", help="embedding model (default: that ships)")
    add("--pipeline", type=Path, default=ROOT / "pipelines/sixteen-topics.toml", help="the labels (default: sixteen)")
    add("--few", default="0,200,800", metavar="N,N", help="how many posts have a label (default: %(default)s)")
    add("--answers", default="0,50,100,200,400", metavar="N,N", help="how many answers (default: %(default)s)")
    add("--seeds", default="1,2,3", metavar="N,N", help="(default: %(default)s)")
    add("--cache", type=Path, metavar="DIR", help="keep vectors here, for the next run")
    add("--threads", type=int, metavar="N", help="CPU threads of the model (default: all)")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
