#!/usr/bin/env python3
"""Compares importing a dump with plain Python: zstandard, json, and sqlite3 or psycopg's COPY.

    PYTHON benches/ingest.py FOLDER [TOPICMILL]

PYTHON needs zstandard and psycopg. With TEST_DATABASE_URL, which scripts/with-postgres sets, the script also measures
PostgreSQL. FOLDER keeps two dumps in the format of Reddit's monthly dumps, NDJSON in zstd with a long window. The
imported subreddit accounts for 2 % of the rows in `few.zst` and for all rows in `all.zst`. Missing dumps are generated,
always with the same rows.
"""

import io
import json
import os
import random
import sqlite3
import sys
from pathlib import Path

import zstandard
from common import in_turns, timed

DUMPS = {"few": (1.1, 0.02), "all": (0.3, 1.0)}  # gigabytes, and the share of rows in the imported subreddit
WORDS = "the of a bread salt water and to was how my in it is for you oven with recipe that week new".split()
# Fields of a dump row that are not imported.
EMPTY = "all_awardings author_flair_richtext awarders link_flair_richtext treatment_tags".split()
NO = """allow_live_comments archived author_premium contest_mode edited gilded hidden is_created_from_ads_ui is_meta
    is_original_content is_reddit_media_domain is_video locked media_only no_follow num_crossposts over_18 pinned quarantine
    spoiler stickied total_awards_received""".split()
YES = "can_gild is_crosspostable is_robot_indexable is_self send_replies subreddit_subscribers".split()
NONE = """author_flair_text category distinguished link_flair_css_class link_flair_text media removed_by_category secure_media
    suggested_sort""".split()
UNUSED = dict.fromkeys(EMPTY, []) | dict.fromkeys(NO, False) | dict.fromkeys(YES, True) | dict.fromkeys(NONE)
TABLE = """CREATE TABLE posts (fullname TEXT PRIMARY KEY, subreddit TEXT, title TEXT, selftext TEXT, url TEXT,
    permalink TEXT, author TEXT, score BIGINT, upvote_ratio DOUBLE PRECISION, num_comments BIGINT, over_18 BOOLEAN,
    created_at BIGINT)"""
COLUMNS = "subreddit title selftext url permalink author score upvote_ratio num_comments over_18".split()


def main() -> None:
    """Generates the missing dumps and measures the variants in interleaved order."""
    folder = Path(sys.argv[1])
    program = sys.argv[2] if len(sys.argv) > 2 else "target/release/topicmill"
    folder.mkdir(parents=True, exist_ok=True)
    server = os.environ.get("TEST_DATABASE_URL")
    for name, (gigabytes, share) in DUMPS.items():
        dump, database = folder / f"{name}.zst", folder / "bench.db"
        if not dump.exists():
            generate(dump, gigabytes, share)
        for url in [f"sqlite:{database}", *([server] if server and name == "all" else [])]:
            ours = [program, "--quiet", "--database", url, "import", "--format", "dump", "--subreddit", "food", dump]
            theirs = [sys.executable, __file__, "--python-way", dump, url.removeprefix("sqlite:")]
            ways = {"the Python way": theirs, "topicmill": ours}
            print(f"\n{name}, {url.split(':')[0]}:", end=" ")
            in_turns({way: lambda command=command: fresh(url, command) for way, command in ways.items()}, 3)


def fresh(url: str, command: list) -> tuple:
    """Times an import into an empty database."""
    if url.startswith("sqlite:"):
        for file in Path(url.removeprefix("sqlite:")).parent.glob("bench.db*"):
            file.unlink()
    else:
        import psycopg

        psycopg.connect(url, autocommit=True).execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return timed(command)


def generate(out: Path, gigabytes: float, share: float) -> None:
    """Writes a dump."""
    draw, written, rows = random.Random(1), 0, 0
    params = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    with out.open("wb") as file, zstandard.ZstdCompressor(compression_params=params).stream_writer(file) as stream:
        while written < gigabytes * 1e9:
            line = json.dumps(row(draw, rows, draw.random() < share), separators=(",", ":")).encode() + b"\n"
            stream.write(line)
            written, rows = written + len(line), rows + 1
    print(f"{out}: {rows} rows, {written} bytes unpacked", file=sys.stderr)


def row(draw: random.Random, number: int, wanted: bool) -> dict:
    """Returns a row of a dump."""
    body = " ".join(draw.choices(WORDS, k=int(draw.expovariate(1 / 60)))) if draw.random() < 0.5 else ""
    name = "food" if wanted else draw.choice(["AskReddit", "memes", "funny", "pics", "teenagers"])
    ident = base36(number + 36**5)
    return UNUSED | {
        "author": f"user{draw.randrange(10**6)}",
        "author_fullname": f"t2_{base36(draw.randrange(36**6))}",
        "created_utc": 1_704_067_200 + number // 10,
        "domain": f"self.{name}",
        "id": ident,
        "name": f"t3_{ident}",
        "num_comments": draw.randrange(50),
        "permalink": f"/r/{name}/comments/{ident}/a_title/",
        "retrieved_on": 1_704_067_215 + number // 10,
        "score": draw.randrange(300),
        "selftext": body,
        "subreddit": name,
        "subreddit_id": "t5_2qh55",
        "subreddit_name_prefixed": f"r/{name}",
        "title": " ".join(draw.choices(WORDS, k=draw.randrange(3, 14))),
        "upvote_ratio": round(draw.random(), 2),
        "url": f"https://www.reddit.com/r/{name}/comments/{ident}/a_title/",
    }


def base36(number: int) -> str:
    """Returns an id in Reddit's base 36."""
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def python_way(path: str, database: str) -> None:
    """Imports the selected rows of a dump in plain Python."""

    def posts():
        with open(path, "rb") as file:
            stream = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(file)
            for line in io.BufferedReader(stream, 1 << 20):
                row = json.loads(line)
                if row["subreddit"] == "food":
                    yield ("t3_" + row["id"], *(row[name] for name in COLUMNS), int(row["created_utc"]))

    if database.startswith("postgres"):
        import psycopg

        with psycopg.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(TABLE)
            with cursor.copy("COPY posts FROM STDIN") as copy:
                for row in posts():
                    copy.write_row(row)
        return
    connection, rows = sqlite3.connect(database), posts()
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(TABLE)
    marks = ", ".join("?" * 12)
    while chunk := [row for row, _ in zip(rows, range(2_000))]:
        with connection:
            connection.executemany(f"INSERT INTO posts VALUES ({marks}) ON CONFLICT DO NOTHING", chunk)


if __name__ == "__main__":
    python_way(*sys.argv[2:]) if sys.argv[1] == "--python-way" else main()
