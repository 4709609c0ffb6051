#!/usr/bin/env python3
"""The ladder: the same posts, labels and weights, from the usual way in Python up to topicmill's.

    .venv-tools/bin/python benches/ladder/run.py --hf HF [--plain FILE] [--out FOLDER] [FLAGS OF `bench ladder`]

The highest rung is `topicmill bench ladder`, which also says what the posts, the labels and the settings are; the
other rungs are those of rungs.py. All rungs take turns, so that whatever else the machine does hits them alike, and
the shortest time of each counts. Needs what tools/requirements.txt lists.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import rungs

NAMES = {
    "pipeline": "pipeline, row by row",
    "pipeline-batches": "pipeline, batches of 16",
    "direct-mixed": "torch, 16 posts a label, as they come",
    "direct": "torch, 16 rows a post",
    "direct-bf16": "torch bf16, 16 rows a post",
    "sorted-fp16": "torch fp16, sorted by length",
    "onnxruntime": "ONNX Runtime, 16 rows a post",
    "topicmill": "topicmill",
}


def main() -> int:
    """Climb every rung as often as asked for, print a table and write files."""
    arguments, flags = parse()
    ours = [arguments.topicmill, "bench", "ladder", "--repeats", "1", *flags]
    found = climb(ours)
    if not found["job"]["nli"]:
        print("the pipeline takes NLI models only: name another with --model", file=sys.stderr)
        return 2
    job = found["job"] | {"hf": arguments.hf, "plain": arguments.plain, "asked": arguments.rungs or []}
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": str(job["threads"])}
    runs, versions = rungs.make(job)
    missing = set(arguments.rungs or []) - set(runs)
    if missing:
        print(f"cannot run {', '.join(missing)}: `onnxruntime` needs --plain", file=sys.stderr)
        return 2
    runs = {name: run for name, run in runs.items() if not arguments.rungs or name in arguments.rungs}
    for run in runs.values():
        run(job["texts"][:1])  # warms up
    seconds, scores = {name: [] for name in [*runs, "topicmill"]}, {}
    for turn in range(arguments.repeats):
        for name, run in runs.items():
            took, scores[name] = rungs.timed(run, job["texts"])
            seconds[name].append(took)
            print(f"turn {turn + 1}: {took:.1f} s, {NAMES[name]}", file=sys.stderr)
        found = found if turn == 0 else climb(ours)
        seconds["topicmill"] += found["seconds"]
    scores["topicmill"] = found["scores"]
    rows = table(seconds, scores)
    print("| rung | s/post | times | largest difference of a score |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['rung']} | {row['s/post']:.3f} | {row['times']:.2f} | {row['largest difference']} |")
    if arguments.out:
        result = {"facts": found["facts"], "versions": versions, "repeats": arguments.repeats, "rungs": rows}
        result |= {"posts": len(job["texts"]), "tflop": rungs.tflop(job)}
        write(arguments.out, result | {"seconds": seconds})
    return 0


def climb(command: list[str]) -> dict:
    """Run topicmill's rung once; what it measured, and on what."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run([*command, "--out", folder], check=False, stdout=subprocess.DEVNULL)
        if ran.returncode:
            sys.exit(ran.returncode)  # it has said why
        return json.loads(Path(folder, "ladder.json").read_text())


def table(seconds: dict, scores: dict) -> list[dict]:
    """A row a rung, compared with the lowest one."""
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
    """The largest difference of two scores."""
    rows = zip(these, those, strict=True)
    return max(abs(a - b) for row in rows for a, b in zip(*row, strict=True))


def write(folder: Path, result: dict) -> None:
    """Write ladder.json and ladder.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ladder.json").write_text(json.dumps(result, indent=2) + "\n")
    with (folder / "ladder.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(result["rungs"][0]))
        writer.writeheader()
        writer.writerows(result["rungs"])


def parse() -> tuple[argparse.Namespace, list[str]]:
    """The command line, and what of it is topicmill's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--topicmill", default="target/release/topicmill", metavar="PROGRAM")
    parser.add_argument("--hf", required=True, metavar="FOLDER", help="the same weights as a Hugging Face folder")
    parser.add_argument("--plain", metavar="FILE", help="a plain export of them, for ONNX Runtime in Python")
    lower = [name for name in NAMES if name != "topicmill"]
    parser.add_argument("--rungs", nargs="+", choices=lower, metavar="RUNG", help=f"only these of {', '.join(lower)}")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="how often each rung is climbed [3]")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="for ladder.json and ladder.csv")
    return parser.parse_known_args()


if __name__ == "__main__":
    sys.exit(main())
