"""Prints a table of digests at the end, to compare each engine with a single process."""

import hashlib
import os

import pyarrow as pa
import pytest

# Ray starts its workers with niceness 15, at which they would hardly run on a busy machine.
os.environ.setdefault("RAY_worker_niceness", "0")

DIGESTS: list[tuple[str, pa.Table]] = []


def digest(table: pa.Table) -> str:
    """Returns a hash of the rows without their scores."""
    rows = table.select(["id", "text", "label"]).sort_by("id").to_pylist()
    return hashlib.sha256(repr(rows).encode()).hexdigest()


@pytest.fixture(scope="session")
def digests() -> list[tuple[str, pa.Table]]:
    return DIGESTS


def pytest_terminal_summary(terminalreporter) -> None:
    for name, table in DIGESTS:
        terminalreporter.write_line(f"{name:32} {table.num_rows:5} rows  sha256 {digest(table)}")
