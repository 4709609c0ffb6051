#!/usr/bin/env bash
# Times a new label set and a changed label with stored vectors.
#
#     benches/vectors/run.sh TOPICMILL URL POSTS
#
# TOPICMILL is the program, and URL is a new database: `sqlite:PATH`, or a PostgreSQL URL, which needs psql. The texts
# are made up. The model embeds three of them; the others get random vectors, because their values do not affect the
# times, and embedding 100,000 texts takes half an hour.
set -euo pipefail

topicmill=$1 url=$2 posts=$3
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
export TOPICMILL__DATABASE__ALLOW_SUPERUSER=true

python3 - "$posts" > "$folder/posts.ndjson" <<'PYTHON'
import json, random, sys
random.seed(7)
words = """market kernel recipe match rocket vote guitar vaccine museum garden train novel puzzle bread river signal lamp copper
violin planet crater budget senate referee oven flour movie actor console quest compiler router battery solar climate storm
treaty border tariff stock bond loan therapy nurse clinic lecture exam""".split()
for i in range(int(sys.argv[1])):
    title = " ".join(random.choice(words) for _ in range(9))
    print(json.dumps({"id": f"z{i:06x}", "title": f"{title} {i}", "selftext": "", "subreddit": "test", "score": 1,
                      "num_comments": 0, "created_utc": 1350000000 + i, "author": "someone"}))
PYTHON
sed 's/Global warming/Global warming, heat/' pipelines/sixteen-topics.toml > "$folder/changed.toml"

"$topicmill" -q db create --database "$url"
"$topicmill" -q import "$folder/posts.ndjson" --database "$url"
TOPICMILL__CLASSIFY__BATCH_TOKENS=1024 "$topicmill" -q classify --limit 3 --database "$url"
# Inserts vectors of 384 random 16-bit numbers. Their four-byte scale makes their length about 1.
case $url in
sqlite:*)
    python3 - "${url#sqlite:}" <<'PYTHON'
import os, sqlite3, sys
with sqlite3.connect(sys.argv[1]) as db:
    texts = db.execute("SELECT m.id, t.text_hash FROM models m, (SELECT DISTINCT text_hash FROM things) t").fetchall()
    rows = ((model, text, bytes.fromhex("a6313536") + os.urandom(768)) for model, text in texts)
    db.executemany("INSERT INTO text_vectors VALUES (?, ?, ?) ON CONFLICT DO NOTHING", rows)
PYTHON
    ;;
*)
    psql -q "$url" -c "INSERT INTO text_vectors SELECT m.id, t.text_hash, '\\xa6313536'::bytea
        || decode(repeat(md5(encode(t.text_hash, 'hex')), 48), 'hex')
        FROM models m, (SELECT DISTINCT text_hash FROM things) t ON CONFLICT DO NOTHING"
    ;;
esac
for pipeline in pipelines/sixteen-topics.toml "$folder/changed.toml"; do
    echo "$pipeline"
    time TOPICMILL__CLASSIFY__BATCH_TOKENS=1024 "$topicmill" classify --pipeline "$pipeline" --database "$url" 2>&1 | tail -1
done
