#!/usr/bin/env python3
"""Compares implementations, from the usual Python code to topicmill, on the same posts, labels and weights.

    .venv-tools/bin/python benches/ladder/run.py --hf HF --model FOLDER --texts FILE [--out FOLDER]

The highest rung is topicmill's `Labeler`; the other rungs are in rungs.py. The rungs alternate, so that other load
affects them equally, and the shortest time of each is reported. Needs the packages in requirements/model-tools.txt and the
topicmill package.
"""

import argparse
import json
import os
import statistics
import sys
import tomllib
from pathlib import Path

import rungs

from topicmill import Labeler

NAMES = {
    "pipeline": "pipeline, row by row",
    "pipeline-batches": "pipeline, batches of 16",
    "direct-mixed": "torch, 16 posts a label, as they come",
    "direct": "torch, 16 rows a post",
    "direct-bf16": "torch bf16, 16 rows a post",
    "sorted-fp16": "torch fp16, sorted by length",
    "topicmill": "topicmill",
}


def main() -> int:
    """Runs every rung the given number of times, prints a table and writes the files."""
    arguments = parse()
    job = job_of(arguments)
    labeler = Labeler(
        arguments.model,
        job["labels"],
        arguments.device,
        precision=arguments.precision,
        threads=arguments.threads,
        template=job["template"],
        engine=arguments.engine,
    ).load()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": str(job["threads"])}
    runs, versions = rungs.make(job)
    runs = {name: run for name, run in runs.items() if not arguments.rungs or name in arguments.rungs}
    runs["topicmill"] = lambda texts: labeler.scores(texts).tolist()
    for run in runs.values():
        run(job["texts"][:1])  # warms up
    seconds, scores = {name: [] for name in runs}, {}
    for turn in range(arguments.repeats):
        for name, run in runs.items():
            took, scores[name] = rungs.timed(run, job["texts"])
            seconds[name].append(took)
            print(f"turn {turn + 1}: {took:.1f} s, {NAMES[name]}", file=sys.stderr)
    rows = table(seconds, scores)
    print("| rung | s/post | times | largest difference of a score |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['rung']} | {row['s/post']:.3f} | {row['times']:.2f} | {row['largest difference']} |")
    if arguments.out:
        facts = {"model": labeler.model_hash, "precision": arguments.precision, "device": labeler.device}
        facts |= {"engine": labeler.engine, "threads": arguments.threads}
        result = {"facts": facts, "versions": versions, "repeats": arguments.repeats, "rungs": rows}
        result |= {"posts": len(job["texts"]), "seconds": seconds}
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "ladder.json").write_text(json.dumps(result, indent=2) + "\n")
    return 0


def job_of(arguments: argparse.Namespace) -> dict:
    """Shared inputs of the rungs: texts, labels and settings."""
    pipeline = tomllib.loads(arguments.pipeline.read_text(encoding="utf-8"))
    lines = arguments.texts.read_text(encoding="utf-8").splitlines()[: arguments.posts]
    rows = [json.loads(line) for line in lines]
    parts = [[row.get(name) for name in ("text", "title", "selftext")] for row in rows]
    return {
        "hf": arguments.hf,
        "asked": arguments.rungs or [],
        "labels": [topic["label"] for topic in pipeline["topic"]],
        "template": pipeline["hypothesis_template"],
        "max_tokens": arguments.max_tokens,
        "threads": arguments.threads,
        "device": arguments.device,
        "texts": ["\n\n".join(part for part in row if part) for row in parts],
    }


def table(seconds: dict, scores: dict) -> list[dict]:
    """Returns a row per rung, compared with the lowest one."""
    lowest = next(iter(seconds))
    posts = len(scores[lowest])
    return [
        {
            "rung": NAMES[name],
            "s/post": round(min(times) / posts, 3),
            "median": round(statistics.median_high(times) / posts, 3),
            "times": round(min(seconds[lowest]) / min(times), 3),
            "largest difference": f"{difference(scores[lowest], scores[name]):.1e}".replace("e-0", "e-"),
        }
        for name, times in seconds.items()
    ]


def difference(these: rungs.Scores, those: rungs.Scores) -> float:
    """Returns the largest difference between two scores."""
    rows = zip(these, those, strict=True)
    return max(abs(a - b) for row in rows for a, b in zip(*row, strict=True))


def parse() -> argparse.Namespace:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--hf", required=True, metavar="FOLDER", help="the same weights as a Hugging Face folder")
    parser.add_argument("--model", required=True, metavar="FOLDER", help="topicmill's model folder")
    parser.add_argument("--texts", required=True, type=Path, metavar="FILE", help="NDJSON; benches/common.py makes some")
    parser.add_argument("--posts", type=int, default=16, metavar="N", help="number of texts to score [16]")
    parser.add_argument("--pipeline", type=Path, default="pipelines/sixteen-topics.toml", metavar="FILE")
    parser.add_argument("--max-tokens", type=int, default=1_024, metavar="N", help="tokens that the model reads [1024]")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0 [cpu]")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N")
    lower = [name for name in NAMES if name != "topicmill"]
    parser.add_argument("--rungs", nargs="+", choices=lower, metavar="RUNG", help=f"run only these: {', '.join(lower)}")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each rung [3]")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="for ladder.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
