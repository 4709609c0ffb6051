"""What a training says about itself: `train.json`, `curves.csv`, `curves.svg`, `test.csv`, figures of rows held out."""

import csv
import json
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.metrics import f1_score, log_loss

BINS = 15
TEST = "test.csv"


def softmax(logits: np.ndarray) -> np.ndarray:
    """Scores of logits, row by row."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def best_temperature(logits: np.ndarray, target: np.ndarray) -> float:
    """What logits are divided by so that the log loss is lowest."""

    def loss(power: float) -> float:
        return log_loss(target, softmax(logits / np.exp(power)), labels=range(logits.shape[1]))

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x))


def calibration_error(scores: np.ndarray, target: np.ndarray) -> float:
    """Expected calibration error over equal bins of the best score."""
    best, right = scores.max(1), scores.argmax(1) == target
    places = np.minimum((best * BINS).astype(int), BINS - 1)
    inside = [places == number for number in range(BINS)]
    return float(sum(mask.mean() * abs(best[mask].mean() - right[mask].mean()) for mask in inside if mask.any()))


def figures(logits: np.ndarray, target: np.ndarray) -> dict[str, float]:
    """How good logits are, with an interval of 95 % for the accuracy (Wilson)."""
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


def write_report(folder: Path, content: dict, runs: dict[int, list[dict]]) -> None:
    """Write the three files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    rows = [{"seed": seed, **entry} for seed, history in runs.items() for entry in history]
    if not rows:
        return
    with (folder / "curves.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(folder / "curves.svg", runs)


def write_test(folder: Path, test: dict[str, str]) -> Path | None:
    """Write labels of posts that training has not seen, if any: `topicmill labels evaluate --gold` reads the file."""
    if not test:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TEST
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "label"))
        writer.writerows(sorted(test.items()))
    return path


def draw(path: Path, runs: dict[int, list[dict]]) -> None:
    """The curves of loss and macro-F1, a line for each seed."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "topicmill"
    from matplotlib import pyplot

    picture, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for seed, history in runs.items():
        epochs = [entry["epoch"] for entry in history]
        left.plot(epochs, [entry["loss"] for entry in history], marker="o", label=f"seed {seed}")
        right.plot(epochs, [entry["macro_f1"] for entry in history], marker="o", label=f"seed {seed}")
    left.set_title("loss of the last step")
    right.set_title("macro-F1 of the texts held out")
    for axis in (left, right):
        axis.set_xlabel("epoch")
        axis.legend(frameon=False)
    picture.tight_layout()
    picture.savefig(path, metadata={"Date": None})
    pyplot.close(picture)
