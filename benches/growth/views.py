#!/usr/bin/env python3
"""How the views and `status` grow with the number of posts: processor time, and the power of it, fitted.

    benches/growth/views.py TOPICMILL URL [--posts N …]

URL is `sqlite:FOLDER`, or a server of this machine with a database that may be made: `postgres://…/NAME`; that needs psycopg.
For each number of posts, it fills a database of its own, FOLDER/views_N.db or NAME_views_N, which is kept: a second run asks
it as it stands. Nine tenths of the posts are labelled, under 16 labels. Each question is a process of `topicmill`, asked
three times; the time is the least that this process and the server's used, so that other work on the machine
does not count. The exponent is the slope of a straight line through the logarithms, by least squares.
"""

import argparse
import glob
import math
import os
import resource
import sqlite3
import subprocess
import time

QUESTIONS = {
    "`status`": ["status"],
    "`topic_daily`": ["sql", "--allow-superuser", "SELECT * FROM topic_daily"],
    "`topic_agreement`": ["sql", "--allow-superuser", "SELECT * FROM topic_agreement"],
    "`labeled_posts`, labels counted": ["sql", "--allow-superuser", "SELECT label_topic, COUNT(*) FROM labeled_posts GROUP BY 1"],
    "`uncertain_posts`, the first 20": ["sql", "--allow-superuser", "SELECT * FROM uncertain_posts LIMIT 20"],
}
COLUMNS = """posts (fullname, subreddit, topic, title, selftext, permalink, author, reddit_score, num_comments, over_18,
    is_self, source, text_hash, created_at, collected_at, updated_at, checked_at)"""
LABELS = """INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, mode,
    run_id, classified_at, day, topic) SELECT fullname, 1, 1, text_hash, 'topic' || ((reddit_score + reddit_score / 400) % 16),
    0.5 + reddit_score / 1000.0, reddit_score / 500.0, reddit_score % 10 = 0, 'single', 1, collected_at,
    {day}, topic FROM posts WHERE num_comments < 45"""
TARGET = [
    "INSERT INTO models (name, kind, manifest_hash, precision, tokenizer_hash, max_tokens)"
    " VALUES ('bench', 'nli', 'm', 'fp32', 't', 512)",
    "INSERT INTO label_sets (name, hash, template, mode, threshold, created_at)"
    " VALUES ('bench', 'h', '{}', 'single', 0, '2026-01-01T00:00:00+00:00')",
    "INSERT INTO current_target (model_id, label_set_id) VALUES (1, 1)",
    "INSERT INTO runs (stage, status, worker, started_at, finished_at) VALUES ('classify', 'done', 'bench',"
    " '2026-01-01T00:00:00+00:00', '2026-01-01T00:01:00+00:00')",
    *(
        f"INSERT INTO labels (label_set_id, position, slug, label, hypothesis) VALUES (1, {i}, 'topic{i}', 'topic {i}', 'h{i}')"
        for i in range(16)
    ),
]
SQLITE = f"""INSERT INTO {COLUMNS}
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :posts)
    SELECT 't3_1' || printf('%06x', i), 'sub' || (i % 30), 'topic' || (i % 16), 'A title of about sixty characters, number ' || i,
        substr(hex(zeroblob(200)), 1, 400 * (i % 2)), '/r/sub/comments/' || i, 'author', i % 500, i % 50, FALSE, TRUE, 'reddit',
        randomblob(16), strftime('%Y-%m-%dT%H:%M:%S+00:00', 1700000000 + i * 60, 'unixepoch'), '2026-01-01T00:00:00+00:00',
        '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:00+00:00' FROM n"""
POSTGRES = f"""INSERT INTO {COLUMNS}
    SELECT 't3_1' || lpad(to_hex(i), 6, '0'), 'sub' || (i %% 30), 'topic' || (i %% 16),
        'A title of about sixty characters, number ' || i, repeat('0', 400 * (i %% 2)), '/r/sub/comments/' || i, 'author', i %% 500,
        i %% 50, FALSE, TRUE, 'reddit', decode(md5('t' || i), 'hex'), to_timestamp(1700000000::bigint + i * 60), '2026-01-01',
        '2026-01-01', '2026-01-01' FROM generate_series(1, %(posts)s) i"""


def main() -> None:
    """Fill, ask and fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topicmill")
    parser.add_argument("url")
    parser.add_argument("--posts", type=int, nargs="+", default=[100_000, 316_000, 1_000_000])
    arguments = parser.parse_args()
    times = {posts: measured(arguments, posts) for posts in arguments.posts}
    print(f"load {os.getloadavg()[0]:.1f}")
    print("| s | " + " | ".join(f"{posts:,}" for posts in times) + " | power |")
    print("|---|" + "---|" * (len(times) + 1))
    for name in QUESTIONS:
        row = [by_name[name] for by_name in times.values()]
        print(f"| {name} | " + " | ".join(f"{seconds:.2f}" for seconds in row) + f" | {power(list(times), row):.2f} |")


def measured(arguments: argparse.Namespace, posts: int) -> dict[str, float]:
    """Processor seconds of each question at this many posts, the least of three."""
    sqlite = arguments.url.startswith("sqlite:")
    url = f"{arguments.url}/views_{posts}.db" if sqlite else f"{arguments.url}_views_{posts}"
    topicmill = [arguments.topicmill, "--quiet", "--database", url]
    subprocess.run([*topicmill, "db", "create"], check=True, stdout=subprocess.DEVNULL)
    server = fill_sqlite(url.removeprefix("sqlite:"), posts) if sqlite else fill_postgres(url, posts)
    return {name: min(asked([*topicmill, *question], server) for _ in range(3)) for name, question in QUESTIONS.items()}


def fill_sqlite(path: str, posts: int) -> int | None:
    """Fill the file, unless it is full; no server."""
    with sqlite3.connect(path) as connection:
        if connection.execute("SELECT COUNT(*) FROM posts").fetchone()[0] == 0:
            for statement in TARGET:
                connection.execute(statement)
            connection.execute(SQLITE, {"posts": posts})
            connection.execute(LABELS.format(day="unixepoch(substr(created_at, 1, 10)) / 86400"))
    return None


def fill_postgres(url: str, posts: int) -> int:
    """Fill the database, unless it is full; the process id of the server."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT COUNT(*) FROM posts").fetchone()[0] == 0:
            for statement in TARGET:
                connection.execute(statement)
            connection.execute(POSTGRES, {"posts": posts})
            connection.execute(LABELS.format(day="(created_at AT TIME ZONE INTERVAL '0')::date - DATE '1970-01-01'"))
            connection.execute("VACUUM ANALYZE")
        return int(stat(connection.info.backend_pid)[1])


def stat(pid: int | str) -> list[str]:
    """What the system says of a process, behind its name."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()


def used(server: int | None) -> float:
    """Processor seconds of children that ended, and of a server with all its processes."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for path in glob.glob("/proc/[0-9]*") if server else []:
        try:
            about = stat(path.rsplit("/", 1)[1])
        except OSError:
            continue
        if path == f"/proc/{server}":
            ticks += sum(map(int, about[11:15]))
        elif int(about[1]) == server:
            ticks += sum(map(int, about[11:13]))
    return own.ru_utime + own.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def asked(command: list[str], server: int | None) -> float:
    """Processor seconds of one question."""
    before = used(server)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    # A process of the server ends a moment after its client.
    time.sleep(0.3 if server else 0)
    return used(server) - before


def power(posts: list[int], times: list[float]) -> float:
    """The slope of log(time) over log(posts); of one number of posts there is none."""
    if len(posts) < 2:
        return math.nan
    xs, ys = [math.log(n) for n in posts], [math.log(max(seconds, 0.01)) for seconds in times]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


if __name__ == "__main__":
    main()
