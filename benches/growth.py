#!/usr/bin/env python3
"""Fits growth exponents: `topicmill score` over posts, labels and length, and the store over posts; and sizes a year.

    benches/growth.py year DATABASE
    benches/growth.py score TOPICMILL MODEL FOLDER [--precision P] [--posts N …] [--labels N …] [--tokens N …]
    benches/growth.py store BENCH URL [--posts N …]

`year` simulates a year of hourly runs of sixteen topics in a new SQLite file, with the program's schema and its upsert
of sightings: each run sees a hundred posts a topic, ten of them new, and a post stays for ten runs.

`score` varies the number of posts, labels or tokens and keeps the other two at their middle values. The time is the
shorter of two rounds, from the first text to the last score, excluding model loading. Each text repeats a one-token
word.

`store`: BENCH is the program that `cargo bench --no-run --bench store` builds. URL is `sqlite:FOLDER`, or a server on
which a database can be created: `postgres://…/NAME`. For each number of posts, the script fills the database
FOLDER/growth_N.db or NAME_N and keeps it: a second run times the existing database. The power should be near 0 for an
operation on a fixed number of rows, and near 1 for a scan.
"""

import argparse
import json
import math
import re
import sqlite3
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

from common import TOP, power

VARIED = ("posts", "labels", "tokens")
LINE = re.compile(r"^(.+): ([0-9.]+) ms")


def score(arguments: argparse.Namespace) -> None:
    """Measures the series in interleaved order and prints a table for each."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    middle = {name: sorted(getattr(arguments, name))[len(getattr(arguments, name)) // 2] for name in VARIED}
    for name in VARIED:
        values = sorted(getattr(arguments, name))
        best = dict.fromkeys(values, math.inf)
        for _ in range(2):
            for value in values:
                best[value] = min(best[value], seconds(arguments, **(middle | {name: value})))
        others = ", ".join(f"{middle[other]} {other}" for other in VARIED if other != name)
        print(f"\n| {name} | s | s per {name[:-1]} |\n|---|---|---|")
        for value, time in best.items():
            print(f"| {value:,} | {time:.2f} | {time / value:.4f} |")
        exponent, straight = power(list(best), list(best.values()))
        print(f"\nWith {others}: time grows as {name} to the power of {exponent:.2f} (R² {straight:.3f})")


def seconds(arguments: argparse.Namespace, posts: int, labels: int, tokens: int) -> float:
    """Times a run from the first text to the last score."""
    texts = arguments.folder / "texts.ndjson"
    texts.write_text("".join(json.dumps({"id": str(i), "text": f"{i} " + "the " * tokens}) + "\n" for i in range(posts)))
    command = [arguments.topicmill, "--log-format", "json", "score", texts, arguments.folder / "scores.ndjson"]
    command += ["--overwrite", "--model", arguments.model, "--precision", arguments.precision, "--device", "cpu"]
    command += ["--threads", str(arguments.threads)]
    for label in range(labels):
        command += ["--label", f"topic {label}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=arguments.folder)
    times = [datetime.fromisoformat(json.loads(line)["timestamp"]) for line in done.stderr.splitlines()]
    return (times[-1] - times[0]).total_seconds()


def store(arguments: argparse.Namespace) -> None:
    """Runs the store benchmark at each number of posts and prints a table of times and powers."""
    times = {posts: measured(arguments, posts) for posts in arguments.posts}
    print("| ms | " + " | ".join(f"{posts:,}" for posts in times) + " | power |\n|---|" + "---|" * (len(times) + 1))
    for name in next(iter(times.values())):
        row = [by_name.get(name, math.nan) for by_name in times.values()]
        print(f"| {name} | " + " | ".join(f"{ms:,.1f}" for ms in row) + f" | {power(list(times), row)[0]:.2f} |")


def measured(arguments: argparse.Namespace, posts: int) -> dict[str, float]:
    """Returns the milliseconds of each operation at this many posts: a median, unless the operation runs only once."""
    sqlite = arguments.url.startswith("sqlite:")
    url = f"{arguments.url}/growth_{posts}.db" if sqlite else f"{arguments.url}_{posts}"
    # Only 10,000 texts get logits, because storing logits takes most of the time, and no timed operation scans them.
    done = subprocess.run([arguments.bench, url, str(posts), "10000"], check=True, stdout=subprocess.PIPE, text=True)
    found = (LINE.match(line) for line in done.stdout.splitlines())
    return {match[1]: float(match[2]) for match in found if match}


def year(arguments: argparse.Namespace) -> None:
    """Simulates a year of runs and prints the bytes of each table, with its indexes."""
    source = (TOP / "crates/store/src/sql/post_rows.rs").read_text(encoding="utf-8")
    upsert = re.search(r'ON_SEEN_AGAIN: &str = "([^"]+)"', source)[1].replace("\\\n", " ")
    database = sqlite3.connect(arguments.database)
    database.executescript((TOP / "migrations/sqlite/0001_schema.sql").read_text(encoding="utf-8"))
    database.execute("PRAGMA synchronous = OFF")
    number, listings = 36**6, {topic: [] for topic in range(16)}
    for hour in range(365 * 24):
        now = datetime(2026, 1, 1) + timedelta(hours=hour)
        seen = []
        for topic, listing in listings.items():
            new = range(number, number + 10)
            number += 10
            listing[:] = [*new, *listing][:100]
            database.executemany(POST, [(fullname(one), f"topic{topic}", now.isoformat() + "+00:00") for one in new])
            day = now.date().isoformat()
            seen += [(fullname(one), f"topic{topic}", day, hour, rank, one % 500) for rank, one in enumerate(listing)]
        database.execute(RUN, (now.isoformat() + "+00:00",))
        database.executemany(f"INSERT INTO sightings VALUES (?, ?, ?, 1, ?, 'hot', ?, ?) {upsert}", seen)
        database.commit()
    count = "SELECT (SELECT COUNT(*) FROM sightings), (SELECT COUNT(*) FROM posts), (SELECT SUM(times_seen) FROM sightings)"
    print("{:,} sightings of {:,} posts, seen {:,} times".format(*database.execute(count).fetchone()))
    sizes = "SELECT tbl_name, SUM(pgsize) FROM dbstat JOIN sqlite_schema USING (name) GROUP BY 1 ORDER BY 2 DESC LIMIT 3"
    for table, size in database.execute(sizes):
        print(f"{table}: {size / 1e9:.3f} GB")


# A post with little text, because only the size of its sightings matters.
POST = """INSERT INTO things (fullname, subreddit, topic, title, selftext, over_18, is_self, source, text_hash, created_at,
    collected_at, updated_at) VALUES (?1, 'made', ?2, '', '', FALSE, TRUE, 'reddit', randomblob(16), ?3, ?3, ?3)"""
# As large as a run of sixteen topics records.
RUN = f"""INSERT INTO runs (stage, status, worker, started_at, finished_at, heartbeat_at, counts, outcomes)
    VALUES ('collect', 'done', 'host:1:1:1', ?1, ?1, ?1, '{"x" * 1_000}', '{"x" * 3_000}')"""


def fullname(number: int) -> str:
    """Returns a fullname."""
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return "t3_" + digits


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(required=True)
    way = ways.add_parser("score")
    for name in ("topicmill", "model", "folder"):
        way.add_argument(name, type=lambda path: Path(path).resolve())
    way.add_argument("--precision", default="fp32")
    way.add_argument("--threads", type=int, default=1)
    for name, default in (("posts", [2, 4, 8, 16]), ("labels", [2, 4, 8, 16, 32]), ("tokens", [16, 32, 64, 128, 256, 512])):
        way.add_argument(f"--{name}", type=int, nargs="+", default=default)
    way.set_defaults(run=score)
    way = ways.add_parser("year")
    way.add_argument("database")
    way.set_defaults(run=year)
    way = ways.add_parser("store")
    way.add_argument("bench")
    way.add_argument("url")
    way.add_argument("--posts", type=int, nargs="+", default=[100_000, 316_000, 1_000_000])
    way.set_defaults(run=store)
    arguments = parser.parse_args()
    arguments.run(arguments)
