#!/usr/bin/env python3
"""Imports a dump the way people do it now: zstandard, json, and sqlite3 or psycopg's COPY.

    python_way.py DUMP.zst DATABASE [SUBREDDIT]

DATABASE is a path, or a postgres:// URL. Without SUBREDDIT every row is stored.
"""

import io
import json
import sqlite3
import sys

import zstandard

TABLE = """CREATE TABLE posts (fullname TEXT PRIMARY KEY, subreddit TEXT, title TEXT, selftext TEXT, url TEXT,
    permalink TEXT, author TEXT, score BIGINT, upvote_ratio DOUBLE PRECISION, num_comments BIGINT, over_18 BOOLEAN,
    created_at BIGINT)"""


def posts(path, subreddit):
    with open(path, "rb") as file:
        stream = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(file)
        for line in io.BufferedReader(stream, 1 << 20):
            row = json.loads(line)
            if subreddit and row["subreddit"] != subreddit:
                continue
            yield (
                "t3_" + row["id"],
                row["subreddit"],
                row["title"],
                row["selftext"],
                row["url"],
                row["permalink"],
                row["author"],
                row["score"],
                row["upvote_ratio"],
                row["num_comments"],
                row["over_18"],
                int(row["created_utc"]),
            )


def chunks(rows, size):
    chunk = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    yield chunk


def main():
    path, database = sys.argv[1:3]
    rows = posts(path, sys.argv[3] if len(sys.argv) > 3 else None)
    if database.startswith("postgres"):
        import psycopg

        with psycopg.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(TABLE)
            with cursor.copy("COPY posts FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        return
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(TABLE)
    marks = ", ".join("?" * 12)
    for chunk in chunks(rows, 2_000):
        with connection:
            connection.executemany(f"INSERT INTO posts VALUES ({marks}) ON CONFLICT DO NOTHING", chunk)


if __name__ == "__main__":
    main()
