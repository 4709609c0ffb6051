"""Compares `topicmill export OUT.parquet` with pandas.read_sql and to_parquet on one database, in alternating runs.

    python benches/export.py PROGRAM DATABASE [ROUNDS]

DATABASE is a URL (`sqlite:posts.db` or `postgres://…`) with labelled posts. Needs pandas and pyarrow, and for
PostgreSQL sqlalchemy and psycopg. CPU seconds cover only the program, not the server.
"""

import os
import sys
import tempfile

from common import in_turns, timed

# The columns that `topicmill export` writes, with the same types: timestamps, hashes as text, a column per label.
QUERY = """
SELECT p.fullname, p.subreddit, p.topic, p.title, p.selftext, p.url, p.permalink, p.created_at, p.reddit_score,
       p.num_comments, p.source, CASE WHEN c.abstained THEN NULL ELSE c.label END AS label, c.score, c.margin, c.abstained,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome, c.classified_at,
       m.name AS model, m.number_format, s.name AS label_set, substr(s.hash, 1, 12) AS label_set_version, p.text_hash, k.scores
  FROM classifications c
  JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash AND p.text_purged_at IS NULL
  JOIN packed_scores k ON k.model_id = c.model_id AND k.label_set_id = c.label_set_id AND k.fullname = c.fullname
  JOIN models m ON m.id = c.model_id
  JOIN label_sets s ON s.id = c.label_set_id
  JOIN current_target t ON t.model_id = c.model_id AND t.label_set_id = c.label_set_id
 ORDER BY c.fullname
"""
LABELS = "SELECT l.label FROM labels l JOIN current_target t ON t.label_set_id = l.label_set_id ORDER BY l.position"
PANDAS = """
import sys, numpy, pandas
url, out, query, labels = sys.argv[1:]
if url.startswith("sqlite:"):
    import sqlite3
    connection = sqlite3.connect(url.removeprefix("sqlite:"))
else:
    import sqlalchemy
    connection = sqlalchemy.create_engine(url.replace("postgres://", "postgresql+psycopg://"))
names = ["score_" + slug for slug in pandas.read_sql(labels, connection)["slug"]]
table = pandas.read_sql(query, connection)
packed = table.pop("scores")
if isinstance(packed.iloc[0], str):
    # Parsing all scores as one string is the fastest way in numpy.
    flat = numpy.fromstring(packed.str[1:-1].str.cat(sep=","), sep=",")
else:
    flat = numpy.concatenate(packed.to_numpy())
scores = pandas.DataFrame(flat.reshape(len(table), len(names)), columns=names)
for name in ("created_at", "classified_at"):
    table[name] = pandas.to_datetime(table[name], utc=True)
table["text_hash"] = [bytes(value).hex() for value in table["text_hash"]]
table["abstained"] = table["abstained"].astype(bool)
pandas.concat([table, scores], axis=1).to_parquet(out, compression="zstd")
"""

if __name__ == "__main__":
    program, database, rounds = *sys.argv[1:3], int((sys.argv[3:] or [3])[0])
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = f"{folder}/ours.parquet", f"{folder}/theirs.parquet"
        export = [program, "--database", database, "export", ours, "--overwrite"]
        timed(export)
        import pyarrow.parquet

        rows = pyarrow.parquet.read_metadata(ours).num_rows
        ways = {"pandas": [sys.executable, "-c", PANDAS, database, theirs, QUERY, LABELS], "topicmill": export}
        in_turns({name: lambda command=command: timed(command) for name, command in ways.items()}, rounds, rows)
        both = [pyarrow.parquet.read_schema(path).names for path in (ours, theirs)]
        if both[0] != both[1]:
            sys.exit(f"topicmill and pandas wrote different columns: {both}")
        print(f"bytes: topicmill {os.path.getsize(ours):,}, pandas {os.path.getsize(theirs):,}")
