"""Training reports: `train.json`, `curves.csv`, `test.csv`, and metrics for the held-out rows."""

import argparse
import csv
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.metrics import f1_score, log_loss

from training.posts import Corpus

BINS = 15
TEST = "test.csv"
SOON = 30.0  # seconds between two progress lines

Say = Callable[[str], None]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the scores of logits, row by row."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def best_temperature(logits: np.ndarray, target: np.ndarray) -> float:
    """Returns the temperature with the lowest log loss."""

    def loss(power: float) -> float:
        return log_loss(target, softmax(logits / np.exp(power)), labels=range(logits.shape[1]))

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x))


def calibration_error(scores: np.ndarray, target: np.ndarray) -> float:
    """Returns the expected calibration error over bins of equal width of the best score."""
    best, right = scores.max(1), scores.argmax(1) == target
    places = np.minimum((best * BINS).astype(int), BINS - 1)
    inside = [places == number for number in range(BINS)]
    return float(sum(mask.mean() * abs(best[mask].mean() - right[mask].mean()) for mask in inside if mask.any()))


def figures(logits: np.ndarray, target: np.ndarray) -> dict[str, float]:
    """Returns metrics of logits, with a 95 % confidence interval for the accuracy (Wilson)."""
    found = logits.argmax(1)
    share, count = float((found == target).mean()), len(target)
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    spread = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return {
        "texts": count,
        "accuracy": round(share, 4),
        "accuracy_from": round(float(middle - spread), 4),
        "accuracy_to": round(float(middle + spread), 4),
        "macro_f1": round(float(f1_score(target, found, average="macro")), 4),
        "calibration_error": round(calibration_error(softmax(logits), target), 4),
    }


def write_report(
    arguments: argparse.Namespace, corpus: Corpus, begun: float, found: dict, curve: list[dict] | None
) -> None:
    """Writes `train.json`, and the fine-tuning curve as a table."""
    folder = arguments.work
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "posts": corpus.digest,
        "labels": corpus.labels,
        "texts": len(corpus.train),
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
        "seconds": round(time.monotonic() - begun, 1),
    } | found
    (folder / "train.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if curve:
        with (folder / "curves.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, curve[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(curve)


def write_test(folder: Path, test: dict[str, str]) -> Path | None:
    """Writes labels of posts that were not used in training, if any, for `topicmill labels evaluate --gold`."""
    if not test:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TEST
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "label"))
        writer.writerows(sorted(test.items()))
    return path


class Meter:
    """Counts steps, and periodically reports loss, macro-F1, tokens per second and the remaining time."""

    def __init__(self, step: int, steps: int, say: Say):
        self.steps, self.say, self.tokens, self.first = steps, say, 0, step
        self.begun = self.shown = time.monotonic()
        self.macro_f1: float | None = None

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second since the start, or since training was resumed."""
        return self.tokens / max(time.monotonic() - self.begun, 1e-9)

    def after(self, step: int, loss: float, tokens: int) -> None:
        """Counts a step and reports progress if the last report is old enough."""
        self.tokens += tokens
        if time.monotonic() - self.shown < SOON:
            return
        self.shown = time.monotonic()
        parts = [f"loss {loss:.3f}", *([] if self.macro_f1 is None else [f"macro-F1 {self.macro_f1:.3f}"])]
        left = (self.shown - self.begun) / (step - self.first) * (self.steps - step)
        parts += [f"{self.tokens_per_second:,.0f} tokens/s", f"{left / 60:.0f} min left"]
        self.say(f"step {step} of {self.steps}: {', '.join(parts)}")
