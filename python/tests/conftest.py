"""What the tests share: texts that nobody wrote, labels, a loaded labeler, and the program."""

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
    """Texts of one to a hundred words, the same for the same seed."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 100))) for _ in range(count)]


@pytest.fixture(scope="session")
def labeler() -> Labeler:
    return Labeler(labels=LABELS, threads=1).load()


@pytest.fixture(scope="session")
def program() -> Path:
    """The program of this repository, as it was built last, or the one that `TOPICMILL_PROGRAM` names."""
    named = os.environ.get("TOPICMILL_PROGRAM")
    if named is None:
        subprocess.run(["cargo", "build", "--quiet", "--locked"], cwd=REPOSITORY, check=True)
        target = os.environ.get("CARGO_TARGET_DIR", "target")
        named = REPOSITORY / target / "debug/topicmill"
    return Path(named)
