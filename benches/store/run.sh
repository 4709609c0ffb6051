#!/usr/bin/env bash
# Times the store on both databases.
#
#     benches/store/run.sh FOLDER [POSTS [SCORED]]
#
# FOLDER keeps the SQLite database. With TEST_DATABASE_URL, which scripts/with-postgres sets, the script also measures
# PostgreSQL. Listing the sizes of tables requires the sqlite3 and psql programs.
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1 posts=${2:-1000000} scored=${3:-100000}
mkdir -p "$folder"
cd "$top"
bench() {
    cargo bench --quiet --locked --bench store -- "$1" "$posts" "$scored"
}

echo "== SQLite"
bench "sqlite:$folder/store.db"
sqlite3 "$folder/store.db" "SELECT m.tbl_name, s.name, SUM(s.pgsize) FROM dbstat s
    JOIN sqlite_schema m ON m.name = s.name GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 16"
if [ -n "${TEST_DATABASE_URL:-}" ]; then
    echo "== PostgreSQL"
    url=${TEST_DATABASE_URL%/*}/bench_store
    bench "$url"
    psql -qAt "$url" -c "SELECT relname, pg_relation_size(oid) FROM pg_class WHERE relkind IN ('r', 'i')
        AND relnamespace = 'public'::regnamespace ORDER BY 2 DESC LIMIT 16"
fi
