//! A database of an earlier schema is brought up to date when the program opens it, with all that it holds.

use std::borrow::Cow;

use serde_json::{Value, json};
use sqlx::migrate::{MigrateDatabase, Migrator};
use sqlx::{AssertSqlSafe, Connection, Row};
use topicmill::store::{Access, Store, StoreError};

use crate::support::engine::repository;
use crate::support::postgres::databases;

/// One row or more in every table of the first schema. Of posts each source, there and removed.
const ROWS: &str = "
INSERT INTO runs (stage, status, worker, started_at, finished_at, counts, outcomes, error) VALUES
  ('collect', 'partial', 'host:1', '2026-01-01T10:00:00+00:00', '2026-01-01T10:05:00+00:00', '{\"posts\": 4}', '[]', 'why'),
  ('import', 'running', 'host:2', '2026-01-02T10:00:00+00:00', NULL, '{}', '[]', NULL);
INSERT INTO posts (fullname, subreddit, title, selftext, url, permalink, author, score, upvote_ratio, num_comments,
  flair, over_18, is_self, source, text_hash, created_at, collected_at, updated_at, removed_at) VALUES
  ('t3_a1', 'gaming', 'Alive', 'body', NULL, '/r/gaming/comments/a1/', 'u_1', 12, 0.9, 3, 'Flair', FALSE, TRUE,
   'reddit', BYTES(0123456789abcdef), '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00', '2026-01-01T10:01:00+00:00', NULL),
  ('t3_a2', 'gaming', 'Removed', '[removed]', NULL, NULL, NULL, 0, NULL, NULL, NULL, FALSE, TRUE,
   'reddit', BYTES(1123456789abcdef), '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00', '2026-01-01T10:02:00+00:00', '2026-01-01T10:02:00+00:00'),
  ('t3_a3', 'gaming', 'A sample', '', 'https://a.example/', NULL, NULL, NULL, NULL, NULL, NULL, TRUE, FALSE,
   'sample', BYTES(2123456789abcdef), '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00', '2026-01-01T10:03:00+00:00', NULL),
  ('t3_a4', 'food', 'From a file', 'naïve café', NULL, NULL, NULL, NULL, NULL, NULL, NULL, FALSE, TRUE,
   'import', BYTES(3123456789abcdef), '2020-01-01T09:00:00+00:00', '2026-01-02T10:00:00+00:00', '2026-01-02T10:00:00+00:00', NULL);
INSERT INTO sightings (run_id, topic, fullname, listing, rank, score) VALUES
  (1, 'gaming', 't3_a1', 'hot', 0, 12), (1, 'gaming', 't3_a3', 'hot', 1, NULL), (2, 'food', 't3_a4', NULL, NULL, NULL),
  (1, 'space', 't3_a4', NULL, NULL, NULL), (1, 'art', 't3_a4', NULL, NULL, NULL), (2, 'music', 't3_a4', NULL, NULL, NULL);
INSERT INTO watermarks (source, topic, subreddit, listing, after_cursor, newest_created_at, run_id, updated_at) VALUES
  ('reddit', 'gaming', 'gaming', 'hot', 't3_a1', '2026-01-01T09:00:00+00:00', 1, '2026-01-01T10:00:00+00:00');
INSERT INTO models (name, kind, manifest_hash, precision, tokenizer_hash, max_tokens) VALUES
  ('m', 'nli', 'abc', 'fp32', 'def', 128);
INSERT INTO label_sets (name, hash, template, mode, threshold, created_at) VALUES
  ('two', 'h', 'About {}.', 'single', 0.0, '2026-01-01T09:00:00+00:00');
INSERT INTO labels (label_set_id, position, slug, label, hypothesis) VALUES
  (1, 0, 'gaming', 'games', 'About games.'), (1, 1, 'food', 'food', 'About food.');
INSERT INTO current_target (model_id, label_set_id) VALUES (1, 1);
INSERT INTO hypotheses (hash, text) VALUES (BYTES(4123456789abcdef), 'About games.');
INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment, contradiction) VALUES
  (1, BYTES(0123456789abcdef), 1, 1.5, -0.5);
INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, mode,
  run_id, classified_at) VALUES
  ('t3_a1', 1, 1, BYTES(0123456789abcdef), 'gaming', 0.75, 0.5, FALSE, 'single', 1, '2026-01-01T11:00:00+00:00');
INSERT INTO label_scores (fullname, model_id, label_set_id, position, score) VALUES
  ('t3_a1', 1, 1, 1, 1.2345678901234567e-20), ('t3_a1', 1, 1, 0, 0.30000000000000004);
INSERT INTO leases (worker, run_id, claimed_at, expires_at) VALUES
  ('host:1', 1, '2026-01-01T11:00:00+00:00', '2026-01-01T11:01:00+00:00');
INSERT INTO backlog (model_id, label_set_id, fullname, lease_id, attempts, error) VALUES
  (1, 1, 't3_a3', 1, 0, NULL), (1, 1, 't3_a4', NULL, 2, 'too odd')";

/// A row or more of every table that a later schema brought, with that schema.
const LATER: [(i64, &str); 7] = [
    (
        2,
        "INSERT INTO imports VALUES ('1000-abc', 'all', 'dump.zst', 4096, 3, 1, 2, 0, 2, '2026-01-02T10:00:00+00:00', NULL)",
    ),
    (
        3,
        "INSERT INTO tombstones (fullname, reason, purged_at, run_id) VALUES \
         ('t3_gone', 'deleted', '2026-01-03T10:00:00+00:00', 1), ('t3_left', 'requested', '2026-01-03T10:00:00+00:00', NULL)",
    ),
    (
        4,
        "INSERT INTO gaps VALUES ('reddit', 'gaming', 'gaming', '2026-01-01T07:00:00+00:00', '2026-01-01T08:00:00+00:00', 1)",
    ),
    (
        5,
        "INSERT INTO quotas VALUES ('a-client', 1790000000000000, 0)",
    ),
    (
        13,
        "UPDATE label_sets SET background = 'reddit@1', background_topics = '{\"weight\": 1}' WHERE name = 'none'",
    ),
    (
        15,
        "INSERT INTO models (name, kind, manifest_hash, precision, tokenizer_hash, max_tokens) VALUES \
            ('e', 'embedding', 'abe', 'int8', 'def', 128); \
          INSERT INTO text_vectors VALUES (2, BYTES(3123456789abcdef), BYTES(scale0102)); \
          INSERT INTO label_vectors VALUES (2, 1, BYTES(scale0304))",
    ),
    (
        16,
        "INSERT INTO gold VALUES ('t3_a1', 'ann', 'food', 1, BYTES(0123456789abcdef), 'random', TRUE, 'review', \
            '2026-01-04T10:00:00+00:00'), \
          ('t3_a4', 'ben', NULL, NULL, BYTES(3123456789abcdef), 'import', FALSE, 'label-studio', '2026-01-04T11:00:00+00:00')",
    ),
];

/// Puts rows into every table that the schema of a database has and the first one had not.
pub async fn add_later_rows(url: &str, version: i64) {
    for (_, sql) in LATER.iter().filter(|(since, _)| *since <= version) {
        execute(url, sql).await;
    }
}

/// Names and values of everything that a database holds.
pub type Contents = Vec<(String, Vec<Vec<Option<String>>>)>;

/// A connection past the store, of either kind.
macro_rules! connected {
    ($url:expr, |$connection:ident| $body:expr) => {
        if $url.starts_with("sqlite:") {
            let url = format!("{}?mode=rwc", $url);
            let mut $connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
            let result = $body;
            $connection.close().await.unwrap();
            result
        } else {
            let mut $connection = sqlx::PgConnection::connect($url).await.unwrap();
            let result = $body;
            $connection.close().await.unwrap();
            result
        }
    };
}

async fn texts(url: &str, sql: &str) -> Vec<Vec<Option<String>>> {
    connected!(url, |connection| {
        let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
        let rows = query.fetch_all(&mut connection).await.unwrap();
        rows.iter()
            .map(|row| (0..row.len()).map(|i| row.get(i)).collect())
            .collect()
    })
}

fn backend(url: &str) -> &str {
    if url.starts_with("sqlite:") {
        "sqlite"
    } else {
        "postgres"
    }
}

/// The migrations of a database, up to a version.
async fn migrations(url: &str, until: i64) -> Migrator {
    let folder = repository("migrations").join(backend(url));
    let mut migrator = Migrator::new(folder).await.unwrap();
    let older = migrator
        .iter()
        .filter(|migration| migration.version <= until);
    migrator.migrations = Cow::Owned(older.cloned().collect());
    migrator
}

async fn migrate(url: &str, until: i64) {
    let migrator = migrations(url, until).await;
    connected!(url, |connection| migrator
        .run_direct(None, &mut connection, false)
        .await
        .unwrap());
}

/// A database of the first schema with rows in every table, brought to a version without the program.
pub async fn database_of(url: &str, version: i64) {
    if backend(url) == "postgres" {
        sqlx::Postgres::create_database(url).await.unwrap();
    }
    migrate(url, 1).await;
    execute(url, ROWS).await;
    migrate(url, version).await;
}

/// Runs statements in which `BYTES(…)` are bytes.
pub async fn execute(url: &str, sql: &str) {
    let (before, after) = if backend(url) == "sqlite" {
        ("CAST('", "' AS BLOB)")
    } else {
        ("'", "'::bytea")
    };
    let mut sql = sql.to_owned();
    while let Some(start) = sql.find("BYTES(") {
        let end = start + sql[start..].find(')').unwrap();
        let bytes = format!("{before}{}{after}", &sql[start + 6..end]);
        sql.replace_range(start..=end, &bytes);
    }
    connected!(url, |connection| {
        let rows = sqlx::raw_sql(AssertSqlSafe(sql));
        rows.execute(&mut connection).await.map(drop).unwrap();
    });
}

/// Every column of every table and view of the first schema, as texts.
pub async fn shape(url: &str) -> Vec<(String, Vec<String>)> {
    let sql = if backend(url) == "sqlite" {
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type IN ('table', 'view') \
            AND m.name NOT LIKE 'sqlite%' AND m.name NOT LIKE '_sqlx%' ORDER BY m.name, c.cid"
    } else {
        "SELECT table_name::text, column_name::text FROM information_schema.columns \
          WHERE table_schema = 'public' AND table_name NOT LIKE '_sqlx%' ORDER BY table_name, ordinal_position"
    };
    let mut shape: Vec<(String, Vec<String>)> = Vec::new();
    for mut row in texts(url, sql).await {
        let (column, table) = (row.pop().flatten().unwrap(), row.pop().flatten().unwrap());
        match shape.last_mut() {
            Some((last, columns)) if *last == table => columns.push(column),
            _ => shape.push((table, vec![column])),
        }
    }
    shape
}

/// The same columns under the names that they have since version 12.
fn renamed(mut shape: Vec<(String, Vec<String>)>) -> Vec<(String, Vec<String>)> {
    let columns = shape.iter_mut().flat_map(|(table, columns)| {
        let is_of_reddit = ["posts", "sightings"].contains(&table.as_str());
        columns.iter_mut().filter(move |_| is_of_reddit)
    });
    for column in columns.filter(|column| column.starts_with("score")) {
        column.insert_str(0, "reddit_");
    }
    shape
}

pub async fn contents(url: &str, shape: &[(String, Vec<String>)]) -> Contents {
    let mut all = Vec::new();
    for (table, columns) in shape {
        let columns: Vec<String> = columns
            .iter()
            .map(|name| format!("CAST({name} AS TEXT)"))
            .collect();
        let order: Vec<String> = (1..=columns.len()).map(|n| n.to_string()).collect();
        let sql = format!(
            "SELECT {} FROM {table} ORDER BY {}",
            columns.join(", "),
            order.join(", ")
        );
        all.push((table.clone(), texts(url, &sql).await));
    }
    all
}

async fn query(store: &Store, sql: &str) -> Vec<Vec<Value>> {
    store.query(sql).await.unwrap().rows
}

#[tokio::test]
async fn a_database_of_any_earlier_schema_is_migrated_with_all_that_it_holds() {
    let backends = databases().len();
    for n in 0..backends {
        let latest = migrations(&databases()[n].url, i64::MAX)
            .await
            .iter()
            .last()
            .unwrap()
            .version;
        assert!(latest >= 4);
        for version in 1..latest {
            let database = databases().swap_remove(n);
            let url = database.url.as_str();
            database_of(url, version).await;
            // A note for the next rewrite, which schema 11 leaves.
            let note = NO_NOTE;
            add_later_rows(url, version).await;
            execute(url, note).await;
            let shape = shape(url).await;
            assert!(shape.len() >= 19, "{shape:?}");
            database.run(NO_NOTE).await;
            let before = contents(url, &shape).await;
            let filled = |table: &&str| {
                before
                    .iter()
                    .any(|(name, rows)| name == table && !rows.is_empty())
            };
            let tables = [
                "meta",
                "runs",
                "posts",
                "sightings",
                "watermarks",
                "models",
                "label_sets",
                "labels",
                "current_target",
                "hypotheses",
                "pair_logits",
                "classifications",
                "label_scores",
                "leases",
                "backlog",
                "labeled_posts",
                "topic_agreement",
            ];
            assert_eq!(tables.iter().filter(|table| !filled(table)).count(), 0);

            if backend(url) == "sqlite" && version < 10 {
                // As a shell leaves it that does not enforce foreign keys.
                connected!(url, |connection| {
                    let orphan = "PRAGMA foreign_keys = OFF; INSERT INTO label_scores VALUES ('t3_a4', 1, 1, 0, 1.0)";
                    sqlx::raw_sql(orphan)
                        .execute(&mut connection)
                        .await
                        .map(drop)
                        .unwrap();
                });
            }

            let old = Store::open(url, Access::Existing).await.unwrap_err();
            assert!(matches!(old, StoreError::NotMigrated(_)), "{old}");
            let store = database.open().await;
            assert_eq!(store.info().await.unwrap().schema, latest);
            database.run(NO_NOTE).await;
            execute(url, note).await;
            let shape = renamed(shape);
            assert_eq!(contents(url, &shape).await, before, "{url} from {version}");
            right_values(&store, version).await;
            store.close().await.unwrap();
        }
    }
}

/// Without the note for the next rewrite that schema 11 leaves.
const NO_NOTE: &str = "DELETE FROM meta WHERE key IN ('statistics_due', 'rewrite_due')";

/// What schema 11 mends: posts that were labelled without their text, and crossposts of what was purged.
const BROKEN: &str = "
INSERT INTO posts (fullname, subreddit, title, selftext, url, permalink, author, score, upvote_ratio, num_comments,
  flair, over_18, is_self, source, text_hash, created_at, collected_at, updated_at, removed_at, text_purged_at) VALUES
  ('t3_taken', 's', '', '', NULL, NULL, NULL, 0, NULL, 0, NULL, FALSE, TRUE, 'reddit', BYTES(aaaaaaaaaaaaaaaa),
   '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00', '2026-01-01T10:00:00+00:00', NULL, '2026-01-03T10:00:00+00:00'),
  ('t3_right', 's', '', '', NULL, NULL, NULL, 0, NULL, 0, NULL, FALSE, TRUE, 'reddit', BYTES(bbbbbbbbbbbbbbbb),
   '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00', '2026-01-01T10:00:00+00:00', NULL, '2026-01-03T10:00:00+00:00'),
  ('t3_repost', 's', 'Same', 'text', NULL, NULL, NULL, 0, NULL, 0, NULL, FALSE, TRUE, 'reddit', BYTES(aaaaaaaaaaaaaaaa),
   '2026-01-01T09:00:00+00:00', '2026-01-05T10:00:00+00:00', '2026-01-05T10:00:00+00:00', NULL, NULL),
  ('t3_early', 's', 'Same', 'text', NULL, NULL, NULL, 0, NULL, 0, NULL, FALSE, TRUE, 'reddit', BYTES(aaaaaaaaaaaaaaaa),
   '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00', '2026-01-01T10:00:00+00:00', NULL, NULL),
  ('t3_shows', 's', 'Look', 'the body of a purged post', '/r/s/comments/gone1/title/', NULL, NULL,
   0, NULL, 0, NULL, FALSE, FALSE, 'reddit', BYTES(cccccccccccccccc),
   '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00', '2026-01-01T10:00:00+00:00', NULL, NULL),
  ('t3_shows2', 's', 'Look', 'the body of a post whose text was taken', '/r/s/comments/taken/title/', NULL, NULL,
   0, NULL, 0, NULL, FALSE, FALSE, 'reddit', BYTES(dddddddddddddddd),
   '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00', '2026-01-01T10:00:00+00:00', NULL, NULL),
  ('t3_link', 's', 'A link', '', 'https://www.reddit.com/r/s/comments/gone1/title/', NULL, NULL, 0, NULL, 0, NULL, FALSE,
   FALSE, 'reddit', BYTES(eeeeeeeeeeeeeeee), '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00',
   '2026-01-01T10:00:00+00:00', NULL, NULL);
INSERT INTO tombstones (fullname, reason, purged_at) VALUES ('t3_gone1', 'deleted', '2026-01-02T10:00:00+00:00');
INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment) VALUES
  (1, BYTES(aaaaaaaaaaaaaaaa), 1, 9.0), (1, BYTES(bbbbbbbbbbbbbbbb), 1, 1.0), (1, BYTES(ffffffffffffffff), 1, 2.0),
  (1, BYTES(cccccccccccccccc), 1, 3.0);
INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, mode,
  run_id, classified_at) VALUES
  ('t3_taken', 1, 1, BYTES(aaaaaaaaaaaaaaaa), 'gaming', 0.75, 0.5, FALSE, 'single', 1, '2026-01-04T11:00:00.5+00:00'),
  ('t3_repost', 1, 1, BYTES(aaaaaaaaaaaaaaaa), 'gaming', 0.75, 0.5, FALSE, 'single', 1, '2026-01-05T11:00:00+00:00'),
  ('t3_early', 1, 1, BYTES(aaaaaaaaaaaaaaaa), 'food', 0.75, 0.5, FALSE, 'single', 1, '2026-01-02T11:00:00+00:00'),
  ('t3_right', 1, 1, BYTES(bbbbbbbbbbbbbbbb), 'gaming', 0.75, 0.5, FALSE, 'single', 1, '2026-01-02T11:00:00+00:00'),
  ('t3_shows2', 1, 1, BYTES(dddddddddddddddd), 'gaming', 0.75, 0.5, FALSE, 'single', 1, '2026-01-02T11:00:00+00:00');
INSERT INTO backlog (model_id, label_set_id, fullname) VALUES (1, 1, 't3_right')";

/// Posts of version 10 that link to another one: number, title, body, address.
const LINKS: [(&str, &str, &str, &str); 13] = [
    ("p1", "Stored", "The body of a stored post", ""),
    (
        "body",
        "Look",
        "The body of a stored post",
        "https://www.reddit.com/r/s/comments/p1/stored/",
    ),
    (
        "title",
        "Stored",
        "A body",
        "https://old.reddit.com/r/s/comments/P1",
    ),
    (
        "best",
        "Worth reading",
        "Why I think so",
        "https://www.reddit.com/r/s/comments/p1/stored/",
    ),
    (
        "bestgone",
        "Worth reading",
        "Why I think so",
        "https://www.reddit.com/r/s/comments/gone1/title/",
    ),
    (
        "query",
        "Look",
        "A text",
        "/r/s/comments/gone1?utm_source=share",
    ),
    ("hash", "Look", "A text", "/user/s/comments/gone1#top"),
    ("upper", "Look", "A text", "/R/s/Comments/GONE1/title/"),
    ("zero", "Look", "A text", "/r/s/comments/0gone1/title/"),
    ("second", "Look", "A text", "/r/s/comments/query/look/"),
    ("third", "Look", "A text", "/r/s/comments/second/look/"),
    (
        "evil",
        "Look",
        "A text",
        "https://www.reddit.com/r/s/comments/../../x",
    ),
    ("aa1", "Alive", "A text", ""),
];

/// Posts of three days, from their first minute to their last, with labels of every kind: for another text, of another model,
/// other, unsure. Their scores have exact sums.
fn labelled_posts() -> String {
    let (mut posts, mut labels) = (Vec::new(), Vec::new());
    for i in 0..240_u16 {
        let n = usize::from(i);
        let topic = ["'gaming'", "'food'", "'games'", "'space'", "NULL"][n % 5];
        let (day, time) = (1 + i % 3, ["00:00:00", "23:59:59"][n / 2 % 2]);
        posts.push(format!(
            "('t3_v{i}', 's', 'T', '', {topic}, FALSE, TRUE, 'reddit', BYTES({i:016}), '2026-01-0{day}T{time}+00:00', \
             '2026-01-09T10:00:00+00:00', '2026-01-09T10:00:00+00:00')"
        ));
        if i % 7 == 0 {
            continue;
        }
        let hash = if i % 11 == 0 { i + 1 } else { i };
        let label = ["gaming", "food"][n / 3 % 2];
        let (abstained, other) = (i % 6 == 0, i % 12 == 0);
        let label = format!(
            "1, BYTES({hash:016}), '{label}', {}, 0.5, {abstained}, {other}, 'single', '2026-01-09T11:00:00+00:00')",
            0.5 + f64::from(i) / 1024.0
        );
        labels.push(format!("('t3_v{i}', 1, {label}"));
        if i % 5 == 0 {
            labels.push(format!("('t3_v{i}', 2, {label}"));
        }
    }
    format!(
        "INSERT INTO posts (fullname, subreddit, title, selftext, topic, over_18, is_self, source, text_hash, created_at, \
           collected_at, updated_at) VALUES {}; \
         INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, other, \
           mode, classified_at) VALUES {}",
        posts.join(", "),
        labels.join(", ")
    )
}

/// Days and topics as the views count them, with the current label set and without one.
async fn counted(url: &str) -> [Vec<Vec<Option<String>>>; 4] {
    let days = "SELECT CAST(day AS TEXT), label_topic, CAST(posts AS TEXT), CAST(mean_score AS TEXT), outcome \
                  FROM topic_daily ORDER BY 1, 5, 2";
    let topics = "SELECT topic, CAST(posts AS TEXT), CAST(labelled AS TEXT), CAST(agreed AS TEXT), \
                    CAST(agreement AS TEXT) FROM topic_agreement ORDER BY 1";
    let (days_of_current, topics_of_current) = (texts(url, days).await, texts(url, topics).await);
    execute(url, "DELETE FROM current_target").await;
    let (days_of_none, topics_of_none) = (texts(url, days).await, texts(url, topics).await);
    let current = "INSERT INTO current_target (model_id, label_set_id) VALUES (1, 1)";
    execute(url, current).await;
    [
        days_of_current,
        topics_of_current,
        days_of_none,
        topics_of_none,
    ]
}

#[tokio::test]
async fn views_that_answer_sooner_answer_the_same() {
    for version in [21, 24] {
        for database in databases() {
            let url = database.url.as_str();
            database_of(url, version).await;
            add_later_rows(url, version).await;
            execute(url, &labelled_posts()).await;
            if backend(url) == "postgres" {
                // A day is a day in UTC, wherever the server is.
                let far = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(), 'Asia/Tokyo'); \
                           END $$";
                execute(url, far).await;
            }
            let before = counted(url).await;
            let lengths: Vec<usize> = before.iter().map(Vec::len).collect();
            assert_eq!(lengths, [8, 2, 0, 4], "{url}: {before:?}");
            database.open().await.close().await.unwrap();
            assert_eq!(counted(url).await, before, "{url} from {version}");
            // Every label carries what the views count, but those of another text.
            let other = "SELECT CAST(COUNT(*) AS TEXT) FROM classifications c JOIN posts p ON p.fullname = c.fullname \
                          WHERE (c.day IS NULL) = (p.text_hash = c.text_hash)";
            assert_eq!(texts(url, other).await, [[Some("0".to_owned())]], "{url}");
            execute(url, "UPDATE classifications SET day = NULL").await;
            assert_eq!(counted(url).await, before, "{url} from the posts");
        }
    }
}

/// Tables and views of users that depend on the primary key of classifications.
#[tokio::test]
async fn the_key_of_classifications_is_made_anew_where_what_depends_on_it_can_be() {
    let table = "CREATE TABLE mine (model_id BIGINT, label_set_id BIGINT, fullname TEXT, \
                   FOREIGN KEY (model_id, label_set_id, fullname) REFERENCES classifications ON DELETE SET NULL); \
                 INSERT INTO mine SELECT model_id, label_set_id, fullname FROM classifications";
    let view = "CREATE VIEW mine_too AS SELECT c.*, COUNT(p.scores) AS seen FROM classifications c \
                  JOIN packed_scores p USING (model_id, label_set_id, fullname) \
                 GROUP BY c.model_id, c.label_set_id, c.fullname";
    for (before, carried) in [(vec![table], "8"), (vec![table, view], "3")] {
        let Some(database) = crate::support::postgres::postgres() else {
            return;
        };
        let url = database.url.as_str();
        database_of(url, 21).await;
        for sql in before {
            execute(url, sql).await;
        }
        database.open().await.close().await.unwrap();
        let columns = "SELECT CAST(indnatts AS TEXT) FROM pg_index WHERE indexrelid = 'classifications_pkey'::regclass";
        assert_eq!(texts(url, columns).await, [[Some(carried.to_owned())]]);
        let keys = "SELECT CAST(COUNT(*) AS TEXT) FROM pg_constraint \
                     WHERE contype = 'f' AND confrelid = 'classifications'::regclass AND convalidated";
        assert_eq!(texts(url, keys).await, [[Some("2".to_owned())]]);
        execute(url, "DELETE FROM posts").await;
        for table in ["packed_scores", "mine WHERE fullname IS NOT NULL"] {
            let sql = format!("SELECT CAST(COUNT(*) AS TEXT) FROM {table}");
            assert_eq!(texts(url, &sql).await, [[Some("0".to_owned())]], "{table}");
        }
    }
}

/// Tables and views of users that depend on the primary key of posts.
#[tokio::test]
async fn the_key_of_posts_is_made_anew_where_what_depends_on_it_can_be() {
    let table = "CREATE TABLE mine (fullname TEXT REFERENCES posts ON DELETE SET NULL DEFERRABLE); \
                 INSERT INTO mine SELECT fullname FROM posts";
    let view = "CREATE VIEW mine_too AS SELECT p.fullname, p.title, COUNT(*) AS seen FROM posts p \
                  JOIN sightings s ON s.fullname = p.fullname GROUP BY p.fullname";
    for (before, indexes) in [(vec![table], 0), (vec![table, view], 1)] {
        let Some(database) = crate::support::postgres::postgres() else {
            return;
        };
        let url = database.url.as_str();
        database_of(url, 18).await;
        for sql in before {
            execute(url, sql).await;
        }
        Store::open(url, Access::Create)
            .await
            .unwrap()
            .close()
            .await
            .unwrap();
        let left =
            "SELECT CAST(COUNT(*) AS TEXT) FROM pg_indexes WHERE indexname = 'posts_current'";
        assert_eq!(texts(url, left).await, [[Some(indexes.to_string())]]);
        // All keys are there, and do what they did.
        let keys = "SELECT CAST(COUNT(*) AS TEXT) FROM pg_constraint \
                     WHERE contype = 'f' AND confrelid = 'posts'::regclass AND convalidated";
        assert_eq!(texts(url, keys).await, [[Some("4".to_owned())]]);
        execute(url, "DELETE FROM posts").await;
        for table in [
            "sightings",
            "classifications",
            "mine WHERE fullname IS NOT NULL",
        ] {
            let sql = format!("SELECT CAST(COUNT(*) AS TEXT) FROM {table}");
            assert_eq!(texts(url, &sql).await, [[Some("0".to_owned())]], "{table}");
        }
    }
}

#[tokio::test]
async fn only_what_is_surely_a_crosspost_is_taken_for_one_by_an_upgrade() {
    for database in databases() {
        let url = database.url.as_str();
        database_of(url, 10).await;
        let posts = LINKS.map(|(id, title, body, link)| {
            let (link, is_self) = match link {
                "" => ("NULL".to_owned(), "TRUE"),
                link => (format!("'{link}'"), "FALSE"),
            };
            format!(
                "('t3_{id}', 's', '{title}', '{body}', {link}, NULL, NULL, 0, NULL, 0, NULL, FALSE, {is_self}, 'reddit', \
                 BYTES({id:x<16}), '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00', '2026-01-01T10:00:00+00:00', \
                 NULL, NULL, '2026-01-01T10:00:00+00:00')"
            )
        });
        execute(
            url,
            &format!(
                "INSERT INTO posts (fullname, subreddit, title, selftext, url, permalink, author, score, upvote_ratio, \
                 num_comments, flair, over_18, is_self, source, text_hash, created_at, collected_at, updated_at, \
                 removed_at, text_purged_at, checked_at) VALUES {}; \
                 INSERT INTO tombstones (fullname, reason, purged_at) VALUES \
                 ('t3_gone1', 'deleted', '2026-01-02T10:00:00+00:00'), \
                 ('t3_0aa1', 'missing', '2026-01-02T10:00:00+00:00'), \
                 ('t3_0bb1', 'requested', '2026-01-02T10:00:00+00:00')",
                posts.join(", ")
            ),
        )
        .await;
        let store = database.open().await;
        let rows = async |sql: &str| -> Vec<String> {
            let words = |row: &Vec<Value>| {
                let words: Vec<&str> = row.iter().map(|v| v.as_str().unwrap_or("")).collect();
                words.join(" ").trim().to_owned()
            };
            query(&store, sql).await.iter().map(words).collect()
        };
        let left = "SELECT fullname, crosspost_parent FROM posts \
                     WHERE fullname NOT IN ('t3_a1', 't3_a2', 't3_a3', 't3_a4') ORDER BY fullname";
        assert_eq!(
            rows(left).await,
            [
                "t3_aa1",
                "t3_best",
                "t3_bestgone",
                "t3_body t3_p1",
                "t3_evil",
                "t3_p1",
                "t3_title t3_p1"
            ],
            "{url}"
        );
        assert_eq!(
            rows("SELECT fullname, reason FROM tombstones ORDER BY fullname").await,
            [
                "t3_bb1 requested",
                "t3_gone1 deleted",
                "t3_hash shown",
                "t3_query shown",
                "t3_second shown",
                "t3_third shown",
                "t3_upper shown",
                "t3_zero shown"
            ],
            "{url}"
        );
        // Reddit is asked first about what may be a crosspost.
        let first = "SELECT fullname FROM posts WHERE checked_at IS NULL AND fullname LIKE 't3_best%' ORDER BY fullname";
        assert_eq!(rows(first).await, ["t3_best", "t3_bestgone"]);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn labels_of_taken_texts_and_crossposts_of_purged_posts_are_repaired() {
    for database in databases() {
        let url = database.url.as_str();
        database_of(url, 10).await;
        execute(url, BROKEN).await;
        let store = database.open().await;
        let rows = async |sql: &str| -> Vec<String> {
            let words = |row: &Vec<Value>| {
                let words: Vec<&str> = row.iter().map(|v| v.as_str().unwrap_or("")).collect();
                words.join("|")
            };
            query(&store, sql).await.iter().map(words).collect()
        };
        let labelled = rows("SELECT fullname FROM classifications ORDER BY fullname").await;
        // What was labelled while its text was there keeps its label; the others are computed anew, or have none.
        assert_eq!(
            labelled,
            ["t3_a1", "t3_early", "t3_right", "t3_shows2"],
            "{url}"
        );
        let left = rows("SELECT text_hash FROM pair_logits ORDER BY text_hash").await;
        let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(left, [hex("0123456789abcdef"), hex("bbbbbbbbbbbbbbbb")]);
        let posts =
            rows("SELECT fullname, selftext FROM posts WHERE fullname > 't3_b' ORDER BY fullname")
                .await;
        assert_eq!(
            posts,
            [
                "t3_early|text",
                "t3_link|",
                "t3_repost|text",
                "t3_right|",
                "t3_shows2|",
                "t3_taken|"
            ]
        );
        assert!(
            rows("SELECT fullname FROM backlog WHERE fullname = 't3_right'")
                .await
                .is_empty()
        );
        assert!(store.is_rewrite_due().await.unwrap());
        store.close().await.unwrap();
    }
}

/// What the later migrations make of rows that were there.
async fn right_values(store: &Store, version: i64) {
    // 3: Reddit showed what it did not call removed when it was last seen; of files nothing is known.
    let checked = "SELECT fullname, checked_at = updated_at, checked_at IS NULL, text_purged_at IS NULL \
                     FROM posts ORDER BY fullname";
    let flags = |row: Vec<Value>| -> Vec<Value> {
        // SQLite's truths are numbers.
        let flag = |value: Value| match value.as_i64() {
            Some(number) => json!(number == 1),
            None => value,
        };
        row.into_iter().map(flag).collect()
    };
    let checked: Vec<_> = query(store, checked).await.into_iter().map(flags).collect();
    // 10: every bit of a score, in the order of the labels.
    let scores = "SELECT position, score FROM label_scores ORDER BY position";
    let exact = [
        vec![json!(0), json!(0.300_000_000_000_000_04)],
        vec![json!(1), json!(1.234_567_890_123_456_7e-20)],
    ];
    assert_eq!(query(store, scores).await, exact);
    let expected = [
        json!(["t3_a1", true, false, true]),
        json!(["t3_a2", null, true, true]),
        json!(["t3_a3", true, false, true]),
        json!(["t3_a4", null, true, true]),
    ];
    assert_eq!(json!(checked), json!(expected));
    // Tables that begin empty, unless the earlier schema had them.
    for (since, table, rows) in [
        (2, "imports", 1),
        (3, "tombstones", 2),
        (4, "gaps", 1),
        (16, "gold", 2),
        (18, "run_days", 0),
    ] {
        let count = query(store, &format!("SELECT COUNT(*) FROM {table}")).await;
        let rows = if version >= since { rows } else { 0 };
        assert_eq!(count, [[json!(rows)]], "{table}");
    }
    // And what the program reads of it.
    let labelled = "SELECT topic, label, score FROM labeled_posts WHERE fullname = 't3_a1'";
    assert_eq!(
        query(store, labelled).await,
        [[json!("gaming"), json!("games"), json!(0.75)]]
    );
    let now = topicmill::domain::Timestamp::from_epoch_secs(1_790_000_000).unwrap();
    let standing = store.standing(3, now).await.unwrap();
    assert_eq!(
        (standing.posts, standing.labelled, standing.unlabelled),
        (4, 1, 3)
    );
    let run = store
        .begin_run(topicmill::domain::Stage::Collect, "w", now)
        .await
        .unwrap();
    assert_eq!(run.0, 3, "ids go on");
}
