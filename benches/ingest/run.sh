#!/usr/bin/env bash
# Times the import of a dump beside the Python way, one after the other.
#
#     benches/ingest/run.sh FOLDER
#
# Needs target/release/topicmill (or TOPICMILL) and a python3 (or PYTHON) with zstandard and psycopg; with
# TEST_DATABASE_URL it measures PostgreSQL too (scripts/with-postgres sets it). FOLDER keeps the dumps.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=$1
python=${PYTHON:-python3}
topicmill=${TOPICMILL:-$here/../../target/release/topicmill}
mkdir -p "$folder"
[ -e "$folder/few.zst" ] || "$python" "$here/generate.py" "$folder/few.zst" 1.1 0.02
[ -e "$folder/all.zst" ] || "$python" "$here/generate.py" "$folder/all.zst" 0.3 1

# Wall and CPU seconds and the largest memory of a command.
timed() {
    local name=$1
    shift
    /usr/bin/time -f "$name: %e s wall, %U s user, %M KiB" "$@" 2>"$folder/err"
    tail -n 1 "$folder/err"
}

for dump in few all; do
    for _ in 1 2 3; do
        rm -f "$folder"/bench.db*
        timed "topicmill $dump sqlite" "$topicmill" --quiet --database "sqlite:$folder/bench.db" \
            import --format dump --subreddit food "$folder/$dump.zst"
        rm -f "$folder"/bench.db*
        timed "python $dump sqlite" "$python" "$here/python_way.py" "$folder/$dump.zst" "$folder/bench.db" food
    done
done
# An empty database again.
emptied() {
    "$python" -c 'import psycopg, sys
psycopg.connect(sys.argv[1], autocommit=True).execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")' \
        "$TEST_DATABASE_URL"
}

if [ -n "${TEST_DATABASE_URL:-}" ]; then
    for _ in 1 2 3; do
        timed "topicmill all postgres" "$topicmill" --quiet --database "$TEST_DATABASE_URL" \
            import --format dump --subreddit food "$folder/all.zst"
        emptied
        timed "python all postgres" "$python" "$here/python_way.py" "$folder/all.zst" "$TEST_DATABASE_URL" food
        emptied
    done
fi
