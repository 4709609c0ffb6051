"""Evaluates `topicmill labels fit` on posts with known topics: fits to random answers and evaluates on the other posts.

    python3 benches/fit.py target/release/topicmill POSTS.ndjson PIPELINE.toml [--draws 10] [--answers 20 50 100 200]
        [--judge 110]

POSTS has `id`, `title`, `selftext`, `subreddit`, `created_utc` and `topic` or `gold`. A topic that is not a slug of
PIPELINE is out of scope. For each number of answers, each draw fits the label set and labels all posts. The figures are
means over the draws, on the posts that were not drawn, or with --judge on the last ones of each draw; the share of right
outcomes is shown with its standard error. "by chance" is the mean calibration error that perfectly calibrated scores
would have on as many posts.

With `--select useful`, the program chooses the answers from a random half of the posts, as its review page does; the
other half is used for evaluation. `--select half` draws random answers from the same halves, for comparison.
"""

import argparse
import csv
import json
import math
import random
import statistics
import subprocess
import tempfile
import time
import tomllib
from pathlib import Path

HEAD = """\
| answers | right outcome | precision | in-scope posts found | out of scope: no label | calibration error | by chance | seconds |
|---|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("posts", type=Path)
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--answers", type=int, nargs="+", default=[20, 50, 100, 200])
    parser.add_argument("--judge", type=int, metavar="POSTS")
    parser.add_argument("--target-precision", type=float)
    parser.add_argument("--select", choices=["chance", "half", "useful"], default="chance")
    arguments = parser.parse_args()
    slugs = {topic["slug"] for topic in tomllib.loads(arguments.pipeline.read_text())["topic"]}
    posts = [json.loads(line) for line in arguments.posts.read_text().splitlines()]
    topic = lambda post: post.get("topic") or post["gold"]
    gold = [(post["id"], topic(post) if topic(post) in slugs else "") for post in posts]
    if arguments.select != "chance":
        halves(arguments, posts, dict(gold))
        return
    with tempfile.TemporaryDirectory() as folder:
        run = Runs(arguments, Path(folder))
        run("import", arguments.posts.resolve(), "--pipeline", arguments.pipeline.resolve())
        run("classify", "--pipeline", arguments.pipeline.resolve())
        print(HEAD)
        run.row("0", [run.judged(gold)], [0.0])
        for answers in arguments.answers:
            found, took = [], []
            for seed in range(arguments.draws):
                order = gold[:]
                random.Random(seed).shuffle(order)
                began = time.monotonic()
                run.fit(order[:answers])
                took.append(time.monotonic() - began)
                found.append(run.judged(order[-arguments.judge :] if arguments.judge else order[answers:]))
                run("labels", "use", run.base)
            run.row(str(answers), found, took)


def halves(arguments: argparse.Namespace, posts: list[dict], gold: dict[str, str]) -> None:
    """Fits to answers from one half of the posts and evaluates on the other half."""
    print(HEAD)
    for answers in arguments.answers:
        found, took = [], []
        for seed in range(arguments.draws):
            order = posts[:]
            random.Random(seed).shuffle(order)
            pool, judges = order[: len(order) // 2], order[len(order) // 2 :]
            with tempfile.TemporaryDirectory() as folder:
                run = Runs(arguments, Path(folder))
                file = Path(folder) / "half.ndjson"
                for half in pool, judges:
                    file.write_text("".join(json.dumps(post) + "\n" for post in half))
                    run("import", file, "--pipeline", arguments.pipeline.resolve())
                    run("classify", "--pipeline", arguments.pipeline.resolve())
                    if half is pool and arguments.select == "useful":
                        run("export", "tasks.json", "--format", "label-studio", "--limit", answers)
                tasks = Path(folder) / "tasks.json"
                if tasks.exists():
                    chosen = [task["data"]["fullname"].removeprefix("t3_") for task in json.loads(tasks.read_text())]
                else:
                    chosen = [post["id"] for post in pool[:answers]]
                began = time.monotonic()
                run.fit([(name, gold[name]) for name in chosen])
                took.append(time.monotonic() - began)
                found.append(run.judged([(post["id"], gold[post["id"]]) for post in judges]))
        Runs.row(str(answers), found, took)


class Runs:
    """Runs the program in one folder, which also contains the database."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.program = arguments.program.resolve()
        self.precision = arguments.target_precision
        self.folder = folder
        self.base = tomllib.loads(arguments.pipeline.read_text())["name"]

    def __call__(self, *words: object) -> str:
        command = [self.program, *map(str, words)]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def write(self, rows: list[tuple[str, str]]) -> Path:
        path = self.folder / "gold.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("id", "label"), *rows])
        return path

    def fit(self, rows: list[tuple[str, str]]) -> None:
        wanted = ["--target-precision", self.precision] if self.precision else []
        command = ["labels", "fit", "--gold", self.write(rows), "--label-set", self.base, "--make-current", *wanted]
        try:
            self(*command)
        except subprocess.CalledProcessError as problem:
            if problem.returncode != 1:  # 1: no better than the label texts, so the old set remains current
                raise

    def judged(self, rows: list[tuple[str, str]]) -> list[float]:
        found = json.loads(self("labels", "evaluate", "--gold", self.write(rows), "--limit", 0, "--format", "json"))
        of = found["evaluation"]
        shares = [of[figure]["share"] or 0 for figure in ("outcome", "precision", "in_scope", "out_of_scope")]
        # The mean distance of a binomial count from its mean.
        spread = [(2 * each["right"]["all"] * each["mean_score"] * (1 - each["mean_score"]) / math.pi) ** 0.5
                  for each in of["reliability"]]
        return [*shares, of["calibration_error"], sum(spread) / of["precision"]["all"]]

    @staticmethod
    def row(answers: str, found: list[list[float]], took: list[float]) -> None:
        means = [statistics.mean(column) for column in zip(*found, strict=True)]
        error = statistics.stdev(of[0] for of in found) / len(found) ** 0.5 if len(found) > 1 else 0
        cells = [f"{mean:.3f}" for mean in means]
        print(f"| {answers} | {cells[0]} ± {error:.3f} | {' | '.join(cells[1:])} | {statistics.mean(took):.1f} |", flush=True)


if __name__ == "__main__":
    main()
