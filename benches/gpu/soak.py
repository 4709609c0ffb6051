#!/usr/bin/env python3
"""Checks that memory stops growing while batches vary in shape.

    soak.py TOPICMILL DEVICE SECONDS MODEL...

In each of two rounds, `topicmill score` runs once with each MODEL and reads texts from stdin; SECONDS is divided evenly
among these runs. The texts arrive in blocks of one window: short ones, long ones, then a mix. The script reads memory
every second: on a GPU, what NVML lists for the process, or the memory in use if it lists none; on a CPU, resident
memory. On a CPU, scoring the texts that were already read takes a few more minutes, so use small models.

The script prints a table. The exit code is 1 if a run's peak memory in the last third exceeds its peak in the second
third by more than 2 % plus 32 MiB, or if a text has no score.
"""

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import WORDS  # noqa: E402

WINDOW = 1024
"""The number of texts that `score` buffers before sorting them."""
LENGTHS = {"short": (3, 12), "long": (150, 400), "mixed": (3, 400)}
ROUNDS = 2


def main() -> int:
    """Runs every model in turn and prints its memory use."""
    program, device, seconds, *models = sys.argv[1:]
    share = float(seconds) / (ROUNDS * len(models))
    runs = [run(program, device, share, model) for _ in range(ROUNDS) for model in models]
    print("| model | texts | MiB, first third | second | last | |")
    print("|---|---|---|---|---|---|")
    for row in runs:
        thirds = " | ".join(f"{third:,.0f}" for third in row["thirds"])
        print(f"| {row['model']} | {row['texts']:,} | {thirds} | {row['verdict']} |")
    return int(any(row["verdict"] != "steady" for row in runs))


def run(program: str, device: str, seconds: float, model: str) -> dict:
    """Runs one process; returns its peak memory in each third of the time since the first score."""
    command = [program, "score", "-", "-", "--format", "ndjson", "--output-format", "ndjson"]
    command += ["--model", model, "--device", device]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    counts = {"in": 0, "out": 0}
    ends = time.monotonic() + seconds
    workers = [
        threading.Thread(target=feed, args=(child, ends, counts)),
        threading.Thread(target=count, args=(child, counts)),
    ]
    for worker in workers:
        worker.start()
    samples = []
    while child.poll() is None:
        taken = memory(child.pid, device)
        if taken and counts["out"]:  # before the first score, the model is still loading
            samples.append(taken)
        time.sleep(min(1.0, seconds / 30))
    for worker in workers:
        worker.join()
    third = max(1, len(samples) // 3)
    thirds = [max(part, default=0) for part in (samples[:third], samples[third : 2 * third], samples[2 * third :])]
    verdict = "steady"
    if thirds[2] > thirds[1] * 1.02 + 32:
        verdict = "**grows**"
    if child.returncode or counts["in"] != counts["out"] or not counts["out"]:
        verdict = f"**failed** with {child.returncode}: {counts['in']} texts in, {counts['out']} scores out"
    return {"model": Path(model).name, "texts": counts["out"], "thirds": thirds, "verdict": verdict}


def feed(child: subprocess.Popen, ends: float, counts: dict) -> None:
    """Writes texts until time is up. A full pipe blocks the write until the model catches up."""
    numbers = random.Random(1)
    try:
        while time.monotonic() < ends:
            for least, most in LENGTHS.values():
                for _ in range(WINDOW):
                    text = " ".join(numbers.choices(WORDS, k=numbers.randint(least, most)))
                    child.stdin.write(json.dumps({"text": text}).encode() + b"\n")
                    counts["in"] += 1
                    if time.monotonic() > ends:
                        return
    except BrokenPipeError:
        pass  # the child has exited; its exit code is reported
    finally:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()


def count(child: subprocess.Popen, counts: dict) -> None:
    """Counts the scored texts."""
    for line in child.stdout:
        counts["out"] += bool(json.loads(line).get("scores"))


def memory(pid: int, device: str) -> float:
    """Returns the memory in MiB: of the process, or of the GPU if NVML does not list the process; 0 if unknown."""
    if device == "cpu":
        try:
            pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * 4096 / 2**20
    listed = ask("--query-compute-apps=pid,used_memory")
    own = [int(row[1]) for row in listed if row[0] == str(pid) and row[1].isdigit()]
    number = device.partition(":")[2] or "0"
    used = [int(row[0]) for row in ask("--query-gpu=memory.used", "-i", number) if row[0].isdigit()]
    return sum(own or used)


def ask(*flags: str) -> list[list[str]]:
    """Returns nvidia-smi's output as rows of words."""
    ran = subprocess.run(
        ["nvidia-smi", *flags, "--format=csv,noheader,nounits"], check=False, capture_output=True, text=True
    )
    return [line.replace(",", " ").split() for line in ran.stdout.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
