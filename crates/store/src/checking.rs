//! Checks the integrity of a database: the database's own checks, orphaned rows, and counts that must agree.
//!
//! The checks only read. Each finding has a meaning and a remedy.

use serde::Serialize;
use sqlx::{AssertSqlSafe, Postgres, Row, Sqlite};

use super::dialect::Dialect;
use super::driver_error::ErrorContext;
use super::sql::SqlStore;
use super::{Result, Store, StoreError};

/// Maximum number of displayed messages from the database's own check.
const SHOWN: usize = 5;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Data is wrong or missing.
    Problem,
    /// No action is needed, or the state may be intended.
    Note,
}

/// Something unexpected in a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: String,
    /// Its severity.
    pub severity: Severity,
    /// Number of rows or messages.
    pub count: u64,
    /// Its meaning.
    pub meaning: String,
    /// Advice for the user.
    pub remedy: String,
}

/// A count that must be 0. In the SQL, `{scores}` stands for the number of scores in a row of `packed_scores`, and
/// `{ago}` for the time an hour ago.
struct Count {
    check: &'static str,
    severity: Severity,
    sql: &'static str,
    meaning: &'static str,
    remedy: &'static str,
}

const COUNTS: [Count; 15] = [
    Count {
        check: "labels without scores",
        severity: Severity::Problem,
        sql: "SELECT COUNT(*) FROM classifications c WHERE NOT EXISTS (SELECT 1 FROM packed_scores s \
               WHERE s.model_id = c.model_id AND s.label_set_id = c.label_set_id AND s.fullname = c.fullname)",
        meaning: "posts have a label, but not the scores that it was computed from",
        remedy: "delete these rows from `classifications`; `topicmill classify` recomputes them from stored logits",
    },
    Count {
        check: "number of scores",
        severity: Severity::Problem,
        sql: "SELECT COUNT(*) FROM packed_scores s \
               WHERE {scores} <> (SELECT COUNT(*) FROM labels l WHERE l.label_set_id = s.label_set_id)",
        meaning: "posts have more or fewer scores than their label set has labels",
        remedy: "delete these posts' rows in `classifications`; `topicmill classify` recomputes them",
    },
    Count {
        check: "unknown labels",
        severity: Severity::Problem,
        sql: "SELECT COUNT(*) FROM classifications c WHERE NOT EXISTS ( \
               SELECT 1 FROM labels l WHERE l.label_set_id = c.label_set_id AND l.label = c.label)",
        meaning: "posts have a label that is not in their label set",
        remedy: "delete these rows from `classifications`; `topicmill classify` recomputes them from stored logits",
    },
    Count {
        check: "counted labels",
        severity: Severity::Problem,
        sql: "SELECT COUNT(*) FROM classifications c JOIN posts p ON p.fullname = c.fullname \
               WHERE c.day IS NOT NULL AND (p.text_hash <> c.text_hash OR p.topic IS DISTINCT FROM c.topic)",
        meaning: "`topic_daily` and `topic_agreement` count labels of an outdated text or topic",
        remedy: "run `UPDATE classifications SET day = NULL`; the views then read the posts",
    },
    Count {
        check: "purged posts",
        severity: Severity::Problem,
        sql: "SELECT COUNT(*) FROM posts p JOIN tombstones t ON t.fullname = p.fullname",
        meaning: "purged posts are stored",
        remedy: "write their ids to a file (`topicmill sql 'SELECT fullname FROM posts JOIN tombstones USING \
                 (fullname)'`) and run `topicmill purge --ids FILE`",
    },
    Count {
        check: "texts after retention",
        severity: Severity::Problem,
        sql: "SELECT COUNT(*) FROM posts WHERE text_purged_at IS NOT NULL \
               AND (title <> '' OR selftext <> '' OR url IS NOT NULL OR author IS NOT NULL OR flair IS NOT NULL)",
        meaning: "posts still have text that retention deleted",
        remedy: "write their ids to a file and run `topicmill purge --ids FILE`",
    },
    Count {
        check: "logits without a text",
        severity: Severity::Problem,
        // Uses EXCEPT, because no index on posts is ordered by text hash.
        sql: "SELECT COUNT(*) FROM pair_logits \
               WHERE text_hash IN (SELECT text_hash FROM pair_logits EXCEPT SELECT text_hash FROM posts)",
        meaning: "logits are stored for texts that no post has",
        remedy: "delete these rows from `pair_logits`; nothing reads them",
    },
    Count {
        check: "logits without a label or a model",
        severity: Severity::Note,
        sql: "SELECT COUNT(*) FROM pair_logits l WHERE NOT EXISTS (SELECT 1 FROM hypotheses h \
              WHERE h.id = l.hypothesis_id) \
                OR NOT EXISTS (SELECT 1 FROM models m WHERE m.id = l.model_id)",
        meaning: "logits are stored for labels or models that were dropped while a worker used them",
        remedy: "delete these rows from `pair_logits`; nothing reads them",
    },
    Count {
        check: "vectors without a text",
        severity: Severity::Problem,
        sql: "SELECT COUNT(*) FROM text_vectors WHERE text_hash IN ( \
               SELECT text_hash FROM text_vectors EXCEPT SELECT text_hash FROM posts WHERE text_purged_at IS NULL)",
        meaning: "vectors are stored for texts that no post has, or that retention deleted",
        remedy: "delete these rows from `text_vectors`, because a vector reveals what a text was about",
    },
    Count {
        check: "expired leases",
        severity: Severity::Note,
        sql: "SELECT COUNT(*) FROM leases WHERE expires_at < {ago}",
        meaning: "leases expired more than an hour ago",
        remedy: "nothing to do: the next `topicmill classify` reclaims these posts",
    },
    Count {
        check: "unfinished runs",
        severity: Severity::Note,
        sql: "SELECT COUNT(*) FROM runs WHERE status = 'running' AND COALESCE(heartbeat_at, started_at) < {ago}",
        meaning: "runs have no recorded end, and sent no heartbeat for an hour",
        remedy: "nothing to do: the next run records that they crashed",
    },
    Count {
        check: "current labels",
        severity: Severity::Note,
        sql: "SELECT COUNT(*) FROM classifications WHERE NOT EXISTS (SELECT 1 FROM current_target)",
        meaning: "posts have labels, but there is no current label set, so the views show none",
        remedy: "run `topicmill labels use NAME`",
    },
    Count {
        check: "crossposts of purged posts",
        severity: Severity::Note,
        sql: "SELECT COUNT(*) FROM posts p JOIN tombstones t ON t.fullname = p.crosspost_parent",
        meaning: "the parents of these crossposts were purged",
        remedy: "run `topicmill purge --check-deleted`, which checks them with Reddit",
    },
    Count {
        check: "gold labels",
        severity: Severity::Note,
        sql: "SELECT COUNT(*) FROM gold g WHERE g.label IS NOT NULL AND g.label_set_id IS NOT NULL AND NOT EXISTS ( \
               SELECT 1 FROM labels l WHERE l.label_set_id = g.label_set_id AND l.label = g.label)",
        meaning: "these labels are not in the label set that the annotator was offered",
        remedy: "list them with `topicmill labels gold list`",
    },
    Count {
        check: "bytes of purged posts",
        severity: Severity::Note,
        sql: "SELECT COUNT(*) FROM meta WHERE key = 'rewrite_due'",
        meaning: "the files may contain bytes of purged posts",
        remedy: "run `topicmill db vacuum`",
    },
];

fn problem(check: impl Into<String>, count: u64, meaning: String, remedy: &str) -> Finding {
    Finding {
        check: check.into(),
        severity: Severity::Problem,
        count,
        meaning,
        remedy: remedy.to_owned(),
    }
}

/// Advice for a damaged database.
const RESTORE: &str =
    "first copy the database files elsewhere, then restore a backup (docs/retention.md)";

/// Progress callback: the name of the next check.
pub type OnCheck<'a> = &'a (dyn Fn(&str) + Send + Sync);

impl Store {
    /// Runs all checks and returns the findings.
    ///
    /// # Errors
    /// See [`super::StoreError`].
    pub async fn check(&self, progress: OnCheck<'_>) -> Result<Vec<Finding>> {
        let mut found = match self {
            Self::Sqlite(store) => store.check_backend(progress).await?,
            Self::Postgres(store) => store.check_backend(progress).await?,
        };
        for count in &COUNTS {
            progress(count.check);
            let (scores, ago) = match self {
                Self::Sqlite(_) => (
                    "json_array_length(s.scores)",
                    "strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now', '-1 hour')",
                ),
                Self::Postgres(_) => (
                    "cardinality(s.scores)",
                    "CURRENT_TIMESTAMP - INTERVAL '1 hour'",
                ),
            };
            let sql = count.sql.replace("{scores}", scores).replace("{ago}", ago);
            let rows = match self {
                Self::Sqlite(store) => number(&store.pool, sql).await?,
                Self::Postgres(store) => number(&store.pool, sql).await?,
            };
            if rows > 0 {
                found.push(Finding {
                    check: count.check.to_owned(),
                    severity: count.severity,
                    count: rows,
                    meaning: count.meaning.to_owned(),
                    remedy: count.remedy.to_owned(),
                });
            }
        }
        progress("versions of label sets");
        found.extend(self.check_versions().await?);
        Ok(found)
    }

    /// Checks that the version of each label set is the hash of its content.
    async fn check_versions(&self) -> Result<Option<Finding>> {
        let mut wrong = Vec::new();
        for row in self.labels().label_sets().await? {
            match self.labels().label_set(row.id).await {
                Ok(set) if set.hash() == row.hash => {}
                Ok(_) | Err(StoreError::Corrupt { .. }) => wrong.push(row.name),
                Err(error) => return Err(error),
            }
        }
        Ok((!wrong.is_empty()).then(|| {
            problem(
                "versions of label sets",
                wrong.len() as u64,
                format!("label sets were changed by another program: {}", wrong.join(", ")),
                "restore a backup, or drop them with `topicmill labels drop` and label again; stored logits are reused",
            )
        }))
    }
}

async fn number<DB>(pool: &sqlx::Pool<DB>, sql: String) -> Result<u64>
where
    DB: Dialect,
    usize: sqlx::ColumnIndex<DB::Row>,
{
    sqlx::query::<DB>(AssertSqlSafe(sql))
        .fetch_one(pool)
        .await
        .and_then(|row| row.try_get::<i64, _>(0))
        .map(i64::unsigned_abs)
        .context("check the database")
}

const WHAT: &str = "check the database";

impl SqlStore<Sqlite> {
    async fn check_backend(&self, progress: OnCheck<'_>) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        progress("the file");
        let messages: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check")
            .fetch_all(&self.pool)
            .await
            .context(WHAT)?;
        if messages != ["ok"] {
            let shown: Vec<&str> = messages.iter().take(SHOWN).map(String::as_str).collect();
            let meaning = format!("the file is damaged: {}", shown.join("; "));
            found.push(problem("the file", messages.len() as u64, meaning, RESTORE));
        }
        progress("orphaned rows");
        let orphans: Vec<(String, String, i64)> = sqlx::query_as(
            "SELECT \"table\", parent, COUNT(*) FROM pragma_foreign_key_check() GROUP BY 1, 2 ORDER BY 1, 2",
        )
        .fetch_all(&self.pool)
        .await
        .context(WHAT)?;
        found.extend(
            orphans
                .into_iter()
                .map(|(child, parent, rows)| orphaned(&child, &parent, rows)),
        );
        Ok(found)
    }
}

fn orphaned(child: &str, parent: &str, rows: i64) -> Finding {
    problem(
        format!("rows of {child}"),
        rows.unsigned_abs(),
        format!("rows in `{child}` refer to missing rows in `{parent}`"),
        "delete these rows; they were left by another program that does not enforce foreign keys",
    )
}

/// Query for the foreign keys: child, parent, and a statement that counts the rows that violate the key. Includes two
/// keys of `sightings` that the PostgreSQL schema omits.
const FOREIGN_KEYS: &str = "\
SELECT child.relname::text, parent.relname::text, \
       format('SELECT COUNT(*) FROM %I c WHERE %s AND NOT EXISTS (SELECT 1 FROM %I p WHERE %s)', child.relname, \
              string_agg(format('c.%I IS NOT NULL', a.attname), ' AND '), parent.relname, \
              string_agg(format('p.%I = c.%I', b.attname, a.attname), ' AND ')) \
  FROM pg_constraint k \
  JOIN pg_class child ON child.oid = k.conrelid \
  JOIN pg_class parent ON parent.oid = k.confrelid \
 CROSS JOIN LATERAL unnest(k.conkey, k.confkey) AS pair (of_child, of_parent) \
  JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = pair.of_child \
  JOIN pg_attribute b ON b.attrelid = k.confrelid AND b.attnum = pair.of_parent \
 WHERE k.contype = 'f' AND child.relnamespace = quote_ident(current_schema())::regnamespace \
 GROUP BY k.oid, child.relname, parent.relname \
 UNION ALL \
SELECT 'sightings', 'posts', \
       'SELECT COUNT(*) FROM sightings c WHERE NOT EXISTS (SELECT 1 FROM posts p WHERE p.fullname = c.fullname)' \
 UNION ALL \
SELECT 'sightings', 'runs', \
       'SELECT COUNT(*) FROM sightings c WHERE NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = c.run_id)' \
 ORDER BY 1, 2";
/// Query for indexes, constraints and triggers that are invalid or disabled.
const NOT_VALID: &str = "\
SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
 WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND NOT (i.indisvalid AND i.indisready) \
 UNION ALL \
SELECT conname::text FROM pg_constraint \
 WHERE connamespace = quote_ident(current_schema())::regnamespace AND NOT convalidated \
 UNION ALL \
SELECT tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
 WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND t.tgenabled = 'D'";
/// Query for the identity columns with their sequences.
const KEYS: &str = "\
SELECT c.relname::text, a.attname::text, pg_get_serial_sequence(quote_ident(c.relname), a.attname) \
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
 WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r' AND a.attidentity <> '' \
 ORDER BY 1";
/// Query for the B-tree indexes. The amcheck extension can check them, if the administrator has installed it.
const TREES: &str = "\
SELECT c.relname::text, c.oid::bigint FROM pg_index i \
  JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam \
 WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND m.amname = 'btree' AND i.indisvalid ORDER BY 1";

impl SqlStore<Postgres> {
    async fn check_backend(&self, progress: OnCheck<'_>) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        progress("indexes and constraints");
        let invalid: Vec<String> = sqlx::query_scalar(NOT_VALID)
            .fetch_all(&self.pool)
            .await
            .context(WHAT)?;
        if !invalid.is_empty() {
            found.push(problem(
                "indexes and constraints",
                invalid.len() as u64,
                format!("these are invalid or disabled: {}", invalid.join(", ")),
                "have the owner of the tables run REINDEX, VALIDATE CONSTRAINT or ENABLE TRIGGER for them",
            ));
        }
        found.extend(self.check_pages().await?);
        progress("orphaned rows");
        let keys: Vec<(String, String, String)> = sqlx::query_as(FOREIGN_KEYS)
            .fetch_all(&self.pool)
            .await
            .context(WHAT)?;
        for (child, parent, sql) in keys {
            let rows = number(&self.pool, sql).await?;
            if rows > 0 {
                found.push(orphaned(
                    &child,
                    &parent,
                    i64::try_from(rows).unwrap_or(i64::MAX),
                ));
            }
        }
        progress("keys");
        found.extend(self.check_keys().await?);
        progress("index structure");
        found.extend(self.check_trees().await?);
        Ok(found)
    }

    /// Reports checksum failures that the server recorded, if checksums are enabled.
    async fn check_pages(&self) -> Result<Option<Finding>> {
        let failures = number(
            &self.pool,
            "SELECT COALESCE(MAX(checksum_failures), 0)::bigint FROM pg_stat_database \
             WHERE datname = current_database()"
                .to_owned(),
        )
        .await?;
        Ok((failures > 0).then(|| {
            let meaning = "the server read corrupt pages from its disk".to_owned();
            problem("pages on disk", failures, meaning, RESTORE)
        }))
    }

    async fn check_keys(&self) -> Result<Vec<Finding>> {
        let keys: Vec<(String, String, Option<String>)> = sqlx::query_as(KEYS)
            .fetch_all(&self.pool)
            .await
            .context(WHAT)?;
        let mut found = Vec::new();
        for (table, column, sequence) in keys {
            let Some(sequence) = sequence else { continue };
            let sql = format!(
                "SELECT COUNT(*) FROM \"{table}\" WHERE \"{column}\" > (SELECT CASE WHEN is_called THEN last_value \
                 ELSE last_value - 1 END FROM {sequence})"
            );
            let rows = match number(&self.pool, sql).await {
                // A read-only user may not read sequences.
                Err(super::StoreError::Denied(_)) => continue,
                rows => rows?,
            };
            if rows > 0 {
                found.push(problem(
                    format!("keys of {table}"),
                    rows,
                    format!("new rows of `{table}` would get keys that are in use"),
                    &format!("have the owner run: SELECT setval('{sequence}', (SELECT MAX({column}) FROM {table}))"),
                ));
            }
        }
        Ok(found)
    }

    async fn check_trees(&self) -> Result<Vec<Finding>> {
        let place: Option<String> = sqlx::query_scalar(
            "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace \
              WHERE e.extname = 'amcheck'",
        )
        .fetch_optional(&self.pool)
        .await
        .context(WHAT)?;
        let Some(place) = place else {
            return Ok(Vec::new());
        };
        let indexes: Vec<(String, i64)> = sqlx::query_as(TREES)
            .fetch_all(&self.pool)
            .await
            .context(WHAT)?;
        let mut found = Vec::new();
        for (index, oid) in indexes {
            let sql = AssertSqlSafe(format!(
                "SELECT {place}.bt_index_check({oid}::oid::regclass)"
            ));
            match sqlx::query(sql).execute(&self.pool).await.context(WHAT) {
                Ok(_) => {}
                // Only superusers and users with the EXECUTE privilege on this function may run it.
                Err(super::StoreError::Denied(_)) => break,
                Err(super::StoreError::Statement { source, .. })
                    if source.as_database_error().is_some() =>
                {
                    let meaning = format!("the index `{index}` is damaged: {source}");
                    let remedy = format!("have the owner run: REINDEX INDEX {index}");
                    found.push(problem("index structure", 1, meaning, &remedy));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}
