"""Times `topicmill export OUT.parquet` beside pandas.read_sql and to_parquet, in turns, on one database.

    python benches/export/run.py PROGRAM DATABASE [ROUNDS]

PROGRAM is the release binary, DATABASE a URL (`sqlite:posts.db` or `postgres://…`) with labelled posts. Needs pandas and
pyarrow, and for PostgreSQL sqlalchemy and psycopg. Prints one JSON object: seconds, rows a second and peak memory of each
round, and the ratio of the medians.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

COLUMNS = (
    "fullname, subreddit, topic, title, selftext, url, permalink, created_at, reddit_score, num_comments, source, "
    "label_topic, score, margin, abstained, classified_at"
)
PANDAS = """
import sys, pandas
url, out, query = sys.argv[1:]
if url.startswith("sqlite:"):
    import sqlite3
    connection = sqlite3.connect(url.removeprefix("sqlite:"))
else:
    import sqlalchemy
    connection = sqlalchemy.create_engine(url.replace("postgres://", "postgresql+psycopg://"))
pandas.read_sql(query, connection).to_parquet(out, compression="zstd")
"""


def timed(command):
    before = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {command[:4]}")
    return time.perf_counter() - before, usage.ru_maxrss // 1024


def main():
    program, database = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    query = f"SELECT {COLUMNS} FROM labeled_posts WHERE classified_at IS NOT NULL"
    found = {"topicmill": [], "pandas": []}
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = f"{folder}/ours.parquet", f"{folder}/theirs.parquet"
        commands = {
            "topicmill": [program, "--database", database, "export", ours, "--overwrite"],
            "pandas": [sys.executable, "-c", PANDAS, database, theirs, query],
        }
        for _ in range(rounds):
            for name, command in commands.items():
                found[name].append(timed(command))
        import pyarrow.parquet

        rows = pyarrow.parquet.read_metadata(ours).num_rows
        sizes = {"topicmill": os.path.getsize(ours), "pandas": os.path.getsize(theirs)}
    medians = {name: statistics.median(secs for secs, _ in runs) for name, runs in found.items()}
    print(
        json.dumps(
            {
                "rows": rows,
                "bytes": sizes,
                "runs": {
                    name: [
                        {"secs": round(secs, 2), "rows_per_sec": round(rows / secs), "peak_mib": peak}
                        for secs, peak in runs
                    ]
                    for name, runs in found.items()
                },
                "pandas_over_topicmill": round(medians["pandas"] / medians["topicmill"], 2),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
