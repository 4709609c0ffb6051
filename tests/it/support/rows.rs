//! Inserts rows into every table and reads a whole database, without the store.

use sqlx::{AssertSqlSafe, Connection, Row};
use topicmill_core::TextHash;
use topicmill_core::reddit::post_text;
use topicmill_store::{Access, LabelSetId, Store};

/// At least one row for every table except the schedule tables, with posts from several sources, one of them removed.
const ROWS: &str = "
INSERT INTO runs (stage, status, worker, started_at, finished_at, counts, outcomes, error) VALUES
  ('collect', 'partial', 'host:1', '2026-01-01T10:00:00+00:00', '2026-01-01T10:05:00+00:00', '{\"posts\": 4}', '[]',
   'why'),
  ('import', 'running', 'host:2', '2026-01-02T10:00:00+00:00', NULL, '{}', '[]', NULL);
INSERT INTO things (fullname, subreddit, title, selftext, url, permalink, author, reddit_score, upvote_ratio,
  num_comments, flair, over_18, is_self, source, text_hash, created_at, collected_at, updated_at, removed_at) VALUES
  ('t3_a1', 'gaming', 'Alive', 'body', NULL, '/r/gaming/comments/a1/', 'u_1', 12, 0.9, 3, 'Flair', FALSE, TRUE,
   'reddit', HASH(Alive; body), '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00',
   '2026-01-01T10:01:00+00:00', NULL),
  ('t3_a2', 'gaming', 'Removed', '[removed]', NULL, NULL, NULL, 0, NULL, NULL, NULL, FALSE, TRUE,
   'reddit', HASH(Removed; [removed]), '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00',
   '2026-01-01T10:02:00+00:00', '2026-01-01T10:02:00+00:00'),
  ('t3_a3', 'gaming', 'A sample', '', 'https://a.example/', NULL, NULL, NULL, NULL, NULL, NULL, TRUE, FALSE,
   'sample', HASH(A sample; ), '2026-01-01T09:00:00+00:00', '2026-01-01T10:00:00+00:00',
   '2026-01-01T10:03:00+00:00', NULL),
  ('t3_a4', 'food', 'From a file', 'naïve café', NULL, NULL, NULL, NULL, NULL, NULL, NULL, FALSE, TRUE,
   'import', HASH(From a file; naïve café), '2020-01-01T09:00:00+00:00', '2026-01-02T10:00:00+00:00',
   '2026-01-02T10:00:00+00:00', NULL);
INSERT INTO sightings (fullname, topic, day, times_seen, run_id, listing, best_rank, reddit_score) VALUES
  ('t3_a1', 'gaming', '2026-01-01', 2, 1, 'hot', 0, 12), ('t3_a3', 'gaming', '2026-01-01', 1, 1, 'hot', 1, NULL),
  ('t3_a4', 'food', '2026-01-02', 1, 2, NULL, NULL, NULL), ('t3_a4', 'food', '2026-01-03', 1, 2, NULL, NULL, NULL),
  ('t3_a4', 'music', '2026-01-02', 1, 2, NULL, NULL, NULL);
INSERT INTO watermarks (source, topic, subreddit, listing, after_cursor, newest_created_at, run_id, updated_at) VALUES
  ('reddit', 'gaming', 'gaming', 'hot', 't3_a1', '2026-01-01T09:00:00+00:00', 1, '2026-01-01T10:00:00+00:00');
INSERT INTO models (name, kind, manifest_hash, number_format, tokenizer_hash, max_tokens) VALUES
  ('m', 'nli', 'abc', 'fp32', 'def', 128);
INSERT INTO label_sets (name, hash, template, mode, threshold, created_at) VALUES
  ('two', 'h', 'About {}.', 'single', 0.0, '2026-01-01T09:00:00+00:00');
INSERT INTO labels (label_set_id, position, label, label_name, hypothesis) VALUES
  (1, 0, 'gaming', 'games', 'About games.'), (1, 1, 'food', 'food', 'About food.');
INSERT INTO current_target (model_id, label_set_id) VALUES (1, 1);
INSERT INTO hypotheses (hash, text) VALUES (BYTES(4123456789abcdef), 'About games.');
INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment, contradiction) VALUES
  (1, HASH(Alive; body), 1, 1.5, -0.5);
INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, mode,
  run_id, classified_at) VALUES
  ('t3_a1', 1, 1, HASH(Alive; body), 'gaming', 0.75, 0.5, FALSE, 'single', 1, '2026-01-01T11:00:00+00:00');
INSERT INTO packed_scores (fullname, model_id, label_set_id, scores) VALUES
  ('t3_a1', 1, 1, SCORES(0.30000000000000004, 1.2345678901234567e-20));
INSERT INTO leases (worker, run_id, claimed_at, expires_at) VALUES
  ('host:1', 1, '2026-01-01T11:00:00+00:00', '2026-01-01T11:01:00+00:00');
INSERT INTO backlog (model_id, label_set_id, fullname, lease_id, attempts, error) VALUES
  (1, 1, 't3_a3', 1, 0, NULL), (1, 1, 't3_a4', NULL, 2, 'too odd');
INSERT INTO imports (file, selection, name, byte_offset, rows_read, left_out, posts, rejected, run_id,
  updated_at) VALUES
  ('1000-abc', 'all', 'dump.zst', 4096, 3, 1, 2, 0, 2, '2026-01-02T10:00:00+00:00');
INSERT INTO tombstones (fullname, reason, purged_at, run_id) VALUES
  ('t3_gone', 'deleted', '2026-01-03T10:00:00+00:00', 1), ('t3_left', 'requested', '2026-01-03T10:00:00+00:00', NULL);
INSERT INTO gaps (source, topic, subreddit, from_at, until_at, run_id) VALUES
  ('reddit', 'gaming', 'gaming', '2026-01-01T07:00:00+00:00', '2026-01-01T08:00:00+00:00', 1);
INSERT INTO quotas (id, next_at, held_until) VALUES ('a-client', 1790000000000000, 0);
INSERT INTO models (name, kind, manifest_hash, number_format, tokenizer_hash, max_tokens) VALUES
  ('e', 'embedding', 'abe', 'int8', 'def', 128);
INSERT INTO text_vectors (model_id, text_hash, vector) VALUES (2, HASH(From a file; naïve café), BYTES(scale0102));
INSERT INTO label_vectors (model_id, hypothesis_id, vector) VALUES (2, 1, BYTES(scale0304));
INSERT INTO gold (fullname, annotator, label, label_set_id, text_hash, chosen, in_random_sample, source,
  answered_at) VALUES
  ('t3_a1', 'ann', 'food', 1, HASH(Alive; body), 'random', TRUE, 'review', '2026-01-04T10:00:00+00:00'),
  ('t3_a4', 'ben', NULL, NULL, HASH(From a file; naïve café), 'import', FALSE, 'label-studio', '2026-01-04T11:00:00+00:00')";

/// Creates a database with rows in every table.
pub async fn fill(url: &str) {
    let store = Store::open(url, Access::Create).await.unwrap();
    execute(url, ROWS).await;
    // The hash that the program would have computed.
    let set = store.labels().label_set(LabelSetId(1)).await.unwrap();
    let hash = set.hash();
    store.close().await.unwrap();
    execute(
        url,
        &format!("UPDATE label_sets SET hash = '{hash}' WHERE id = 1"),
    )
    .await;
}

/// The rows of every table and view, by name, with each value as text.
pub type Contents = Vec<(String, Vec<Vec<Option<String>>>)>;

/// Evaluates an expression with a SQLite or PostgreSQL connection that does not go through the store.
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

/// Converts the text in a placeholder to SQL.
type Meaning<'m> = &'m dyn Fn(&str) -> String;

/// Runs statements in which `BYTES(…)` stands for a blob, `HASH(title; body)` for the hash of a post's text, and
/// `SCORES(…)` for a list of numbers.
pub async fn execute(url: &str, sql: &str) {
    let is_sqlite = backend(url) == "sqlite";
    let blob = |bytes: &[u8]| {
        let hex = topicmill_core::hex(bytes);
        if is_sqlite {
            format!("X'{hex}'")
        } else {
            format!("'\\x{hex}'::bytea")
        }
    };
    let hash = |text: &str| {
        let (title, body) = text.split_once("; ").unwrap();
        blob(TextHash::new(&post_text(title, body)).as_bytes())
    };
    let scores = |list: &str| {
        if is_sqlite {
            format!("'[{list}]'")
        } else {
            format!("ARRAY[{list}]")
        }
    };
    let mut sql = sql.to_owned();
    let words: [(&str, Meaning<'_>); 3] = [
        ("BYTES(", &|text| blob(text.as_bytes())),
        ("HASH(", &hash),
        ("SCORES(", &scores),
    ];
    for (word, meaning) in words {
        while let Some(start) = sql.find(word) {
            let end = start + sql[start..].find(')').unwrap();
            let value = meaning(&sql[start + word.len()..end]);
            sql.replace_range(start..=end, &value);
        }
    }
    super::postgres::run_sql(url, &sql).await;
}

/// Returns the contents of a database.
pub async fn read_all(url: &str) -> Contents {
    let is_sqlite = backend(url) == "sqlite";
    let shape = if is_sqlite {
        "SELECT m.name, group_concat('CASE typeof(' || c.name || ') WHEN ''blob'' THEN hex(' || c.name || ') ELSE CAST(' \
                || c.name || ' AS TEXT) END', ', '), group_concat(c.cid + 1, ', ') \
           FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type IN ('table', 'view') \
            AND m.name NOT LIKE 'sqlite%' AND m.name NOT LIKE '_sqlx%' GROUP BY m.name"
    } else {
        "SELECT table_name::text, string_agg('CAST(' || column_name || ' AS TEXT)', ', ' ORDER BY ordinal_position), \
                string_agg(ordinal_position::text, ', ' ORDER BY ordinal_position) \
           FROM information_schema.columns \
          WHERE table_schema = 'public' AND table_name NOT LIKE '_sqlx%' GROUP BY table_name ORDER BY table_name"
    };
    let mut all = Vec::new();
    for row in texts(url, shape).await {
        let [table, columns, order] = [0, 1, 2].map(|i| row[i].clone().unwrap());
        let sql = format!("SELECT {columns} FROM {table} ORDER BY {order}");
        all.push((table, texts(url, &sql).await));
    }
    all
}
