"""Compare the `score` command of a binary with the golden files. Standard library only."""

import json
import math
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path


class CheckError(Exception):
    """The binary could not be compared: it failed, or its output lacks something."""


@dataclass
class Outcome:
    """What the comparison of one model has found."""

    cases: int = 0
    score_error: float = 0.0
    logit_error: float = 0.0
    worst_case: str = ""
    problems: list[str] = field(default_factory=list)

    def passes(self, tolerance: float) -> bool:
        """Whether nothing is missing and no error exceeds the tolerance."""
        return not self.problems and max(self.score_error, self.logit_error) <= tolerance

    def add(self, case: dict, row: dict) -> None:
        """Take in one case and the row that the binary wrote for it."""
        scores = [error(row["scores"][label], want) for label, want in zip(case["labels"], case["scores"], strict=True)]
        logits = [
            error(found, want)
            for label, wants in zip(case["labels"], case["logits"], strict=True)
            for found, want in zip(row["logits"][label], wants, strict=True)
        ]
        if max(scores + logits) > max(self.score_error, self.logit_error):
            self.worst_case = case["name"]
        self.cases += 1
        self.score_error = max(self.score_error, *scores)
        self.logit_error = max(self.logit_error, *logits)


def error(found: float, wanted: float) -> float:
    """Absolute difference; a value that is no number counts as infinitely wrong."""
    difference = abs(found - wanted)
    return math.inf if math.isnan(difference) else difference


def check(binary: Path, root: Path, tolerance: float) -> bool:
    """Compare each model under `root`, print a line for it, and say whether all pass."""
    golden_files = sorted((root / "golden").glob("*.json"))
    if not golden_files:
        raise CheckError(f"no golden file in `{root / 'golden'}`: run golden.py without --check first")
    return all([check_model(binary, root, path, tolerance) for path in golden_files])


def check_model(binary: Path, root: Path, golden_file: Path, tolerance: float) -> bool:
    """Compare one model and print what was found."""
    golden = json.loads(golden_file.read_text(encoding="utf-8"))
    model = root / "models" / golden["model"]
    outcome = Outcome()
    for cases in groups(golden["cases"]):
        try:
            compare(cases, run_score(binary, model, cases), outcome, tolerance)
        except CheckError as problem:
            outcome.problems.append(str(problem))
    passed = outcome.passes(tolerance)
    print(
        f"{'ok  ' if passed else 'FAIL'} {golden['model']}: {outcome.cases} of {len(golden['cases'])} cases compared, "
        f"largest error: scores {outcome.score_error:.2e}, logits {outcome.logit_error:.2e}"
        + (f" (worst: `{outcome.worst_case}`)" if outcome.worst_case else "")
    )
    for problem in outcome.problems:
        print(f"     {problem}")
    return passed


def groups(cases: list[dict]) -> list[list[dict]]:
    """The cases that one call can score: those with the same labels, template and mode."""
    found = defaultdict(list)
    for case in cases:
        found[tuple(case["labels"]), case.get("template"), case["mode"]].append(case)
    return list(found.values())


def run_score(binary: Path, model: Path, cases: list[dict]) -> dict[str, dict]:
    """Score the texts of one group; returns the rows by id, which is the case's name."""
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "in.ndjson", Path(scratch) / "out.ndjson"
        lines = [json.dumps({"id": case["name"], "text": case["text"]}) for case in cases]
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [str(binary), "score", str(source), str(target), "--model", str(model)]
        if "template" in cases[0]:  # a classifier has labels of its own
            for label in cases[0]["labels"]:
                command += ["--label", label]
            command += ["--template", cases[0]["template"]]
        command += ["--mode", cases[0]["mode"]]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise CheckError(f"`{cases[0]['name']}` and its group: exit code {done.returncode}: {done.stderr[-800:]}")
        if not target.exists():
            raise CheckError(f"`{cases[0]['name']}` and its group: exit code 0, but no output file was written")
        return read_rows(target.read_text(encoding="utf-8"))


def read_rows(content: str) -> dict[str, dict]:
    """The output's rows by id. Lines end at a line feed alone: U+2028 may stand bare in a JSON string."""
    rows = {}
    for number, line in enumerate(filter(None, content.split("\n")), start=1):
        try:
            row = json.loads(line)
            rows[row["id"]] = row
        except (KeyError, TypeError, ValueError) as problem:
            raise CheckError(f"output line {number} is no JSON object with an `id`: {problem!r}") from problem
    return rows


def compare(cases: list[dict], rows: dict[str, dict], outcome: Outcome, tolerance: float) -> None:
    """Compare each case of a group with its row; what is missing becomes a problem of its own."""
    for case in cases:
        row = rows.get(case["name"])
        if row is None:
            outcome.problems.append(f"`{case['name']}`: no row with this id")
            continue
        try:
            outcome.add(case, row)
        except (KeyError, TypeError, ValueError) as problem:
            outcome.problems.append(f"`{case['name']}`: malformed row ({type(problem).__name__}: {problem})")
            continue
        top = dict(zip(case["labels"], case["scores"], strict=True)).get(row.get("label"), -math.inf)
        if not top >= max(case["scores"]) - tolerance:
            outcome.problems.append(f"`{case['name']}`: top label {row.get('label')!r} is not the reference's")
