"""Shared fixtures: synthetic texts, labels, a loaded labeler, and the program."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from topicmill import Labeler

REPOSITORY = Path(__file__).resolve().parents[2]
LABELS = ["cooking", "travel", "video games", "personal finance"]
WORDS = (
    "bread oven flour soup recipe pan salt train hotel flight visa beach map passport boss level quest "
    "console controller loot bank loan tax budget stock index rent salary of the a with my our and for in"
).split()


def texts(count: int, seed: int = 7) -> list[str]:
    """Returns random texts of 1 to 100 words; the same seed gives the same texts."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 100))) for _ in range(count)]


@pytest.fixture(scope="session")
def labeler() -> Labeler:
    return Labeler(labels=LABELS, background="none", threads=1).load()


@pytest.fixture(scope="session")
def program() -> Path:
    """Returns the debug build of the program, or the path in `TOPICMILL_PROGRAM`."""
    named = os.environ.get("TOPICMILL_PROGRAM")
    if named is None:
        subprocess.run(["cargo", "build", "--quiet", "--locked"], cwd=REPOSITORY, check=True)
        target = os.environ.get("CARGO_TARGET_DIR", "target")
        named = REPOSITORY / target / "debug/topicmill"
    return Path(named)
