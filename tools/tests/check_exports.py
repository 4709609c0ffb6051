"""Checks that common programs can read the output of `topicmill export`; `make check-exports` runs this script.

    python tools/tests/check_exports.py PROGRAM

Labels the sample posts, exports them in each format, and compares what pandas, polars and DuckDB read from Parquet,
pandas from CSV, and `datasets.load_dataset` from a folder. Datasette opens each view of the database.
Prints a line for each check and exits with 1 at the first failure.
"""

import asyncio
import json
import math
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# No reader may contact the hub: the files are local.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"


def run(program, *args):
    ran = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"topicmill {' '.join(args)} ended with {ran.returncode}:\n{ran.stderr}")
    return ran.stdout


def check(what, is_so, found=""):
    if not is_so:
        sys.exit(f"FAILED: {what} {found}")
    print(f"ok: {what}")


def same(left, right):
    """True if two values are equal; null, NaN and the empty string count as equal, because formats store them
    differently."""
    nothing = (None, "")
    if isinstance(left, float) and math.isnan(left):
        left = None
    if isinstance(right, float) and math.isnan(right):
        right = None
    if left in nothing or right in nothing:
        return left in nothing and right in nothing
    if isinstance(left, float) or isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-14)
    return left == right


def of_tables(out, rows):
    import duckdb
    import pandas
    import polars

    names = list(rows[0])
    readers = {
        "pandas": lambda: pandas.read_parquet(out / "a.parquet").to_dict("records"),
        "polars": lambda: polars.read_parquet(out / "a.parquet").to_dicts(),
        "DuckDB": lambda: duckdb.sql(f"SELECT * FROM '{out / 'a.parquet'}' ORDER BY fullname").to_arrow_table().to_pylist(),
    }
    for name, read in readers.items():
        found = read()
        check(f"{name} reads {len(rows)} posts", len(found) == len(rows), len(found))
        check(f"{name} reads the columns in their order", list(found[0]) == names, list(found[0]))
        for row, other in zip(rows, found):
            for column in names:
                value = other[column]
                if column in ("created_at", "classified_at"):
                    value = value.strftime("%Y-%m-%dT%H:%M:%SZ")
                if value is pandas.NA or value is pandas.NaT:
                    value = None
                if not same(row[column], value):
                    sys.exit(f"FAILED: {name} reads {column} of {row['fullname']} as {value!r}, not {row[column]!r}")
        print(f"ok: {name} reads the same values as in JSON")
    table = pandas.read_csv(out / "a.csv", keep_default_na=False)
    check("pandas reads the CSV", list(table["title"]) == [row["title"] for row in rows])


def of_folders(out, rows):
    import numpy
    import pandas
    from datasets import load_dataset

    whole = load_dataset(str(out / "whole"), cache_dir=str(out / "cache"))
    check("load_dataset opens the folder", list(whole) == ["train"] and whole["train"].num_rows == len(rows), whole)
    check("the folder has the JSON file's texts", list(whole["train"]["title"]) == [row["title"] for row in rows])
    classes = whole["train"].features["outcome"]
    outcomes = [classes.int2str(number) for number in whole["train"]["outcome"]]
    check("the folder's outcomes are classes", outcomes == [row["outcome"] for row in rows], classes)
    vectors = pandas.read_parquet(out / "vectors.parquet")["vector"]
    lengths = numpy.linalg.norm(numpy.stack(vectors), axis=1)
    check("pandas reads vectors of length 1", len(vectors) == len(rows) and abs(lengths - 1).max() < 1e-3, lengths)


async def of_datasette(database):
    from datasette.app import Datasette

    views = [name for (name,) in sqlite3.connect(database).execute("SELECT name FROM sqlite_schema WHERE type = 'view'")]
    served = Datasette([str(database)])
    await served.invoke_startup()
    slowest = 0
    for view in views:
        begun = time.perf_counter()
        answer = await served.client.get(f"/{Path(database).stem}/{view}")
        slowest = max(slowest, time.perf_counter() - begun)
        if answer.status_code != 200 or view not in answer.text:
            sys.exit(f"FAILED: Datasette returns {answer.status_code} for {view}")
    check(f"Datasette opens each of {len(views)} views, the slowest in {slowest:.2f} s", len(views) > 5)


def main():
    program = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        database = out / "samples.db"
        run(program, "--database", f"sqlite:{database}", "demo")
        export = [program, "--database", f"sqlite:{database}", "export"]
        for name in ("a.jsonl", "a.parquet", "a.csv", "whole"):
            run(*export, str(out / name))
        run(*export, str(out / "vectors.parquet"), "--vectors")
        rows = [json.loads(line) for line in (out / "a.jsonl").read_text("utf-8").splitlines()]
        of_tables(out, rows)
        of_folders(out, rows)
        asyncio.run(of_datasette(database))


if __name__ == "__main__":
    main()
