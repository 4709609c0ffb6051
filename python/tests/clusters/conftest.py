"""A table of digests at the end: each way to the same labels, beside one process."""

import hashlib
import os

import pyarrow as pa
import pytest

# Ray gives its workers the lowest priority but four, and on a busy machine they would not get on.
os.environ.setdefault("RAY_worker_niceness", "0")

DIGESTS: list[tuple[str, pa.Table]] = []


def digest(table: pa.Table) -> str:
    """A hash of the rows without their numbers."""
    rows = table.select(["id", "text", "label"]).sort_by("id").to_pylist()
    return hashlib.sha256(repr(rows).encode()).hexdigest()


@pytest.fixture(scope="session")
def digests() -> list[tuple[str, pa.Table]]:
    return DIGESTS


def pytest_terminal_summary(terminalreporter) -> None:
    for name, table in DIGESTS:
        terminalreporter.write_line(f"{name:32} {table.num_rows:5} rows  sha256 {digest(table)}")
