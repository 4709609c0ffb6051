//! Selects the posts to check with a source and records the time of a reconciliation: when all posts had been checked.

use sqlx::AssertSqlSafe;
use sqlx::types::chrono::DateTime;

use super::{ErrorContext, SqlStore, at};
use crate::dialect::Dialect;
use crate::{Due, Result, StoreError};
use topicmill_core::{Fullname, SourceKind, Timestamp};

/// Posts from the sample Reddit are checked with the sample Reddit, and all others with Reddit itself or the archive.
const SAMPLE: SourceKind = SourceKind::Sample;

/// Returns the column with the time of the last check with a source.
const fn checked_column(source: SourceKind) -> &'static str {
    match source {
        SourceKind::ArcticShift => "archive_checked_at",
        _ => "checked_at",
    }
}

/// Returns the key in `meta` of the time of the last reconciliation with a source.
const fn reconciled_key(source: SourceKind) -> &'static str {
    match source {
        SourceKind::ArcticShift => "archive_reconciled_at",
        _ => "reconciled_at",
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn count_due(&self, due: Due) -> Result<u64> {
        let checked_at = checked_column(due.source);
        sqlx::query_scalar::<DB, i64>(AssertSqlSafe(format!(
            "SELECT COUNT(*) FROM things WHERE (source = '{SAMPLE}') = $1 AND created_at < $3 \
                AND ({checked_at} IS NULL OR {checked_at} < $2)"
        )))
        .bind(due.source == SAMPLE)
        .bind(due.before)
        .bind(due.created_before)
        .fetch_one(&self.pool)
        .await
        .map(i64::unsigned_abs)
        .context("count posts to check")
    }

    pub async fn posts_due(&self, due: Due, limit: u32) -> Result<Vec<Fullname>> {
        let checked_at = checked_column(due.source);
        // Two index scans instead of sorting all posts that are due: at a million posts, less than 20 ms a request
        // instead of 1 to 5 s.
        sqlx::query_scalar::<DB, _>(AssertSqlSafe(format!(
            "SELECT fullname FROM ( \
               SELECT * FROM (SELECT fullname, {checked_at} FROM things WHERE {checked_at} IS NULL \
                  AND created_at < $4 AND (source = '{SAMPLE}') = $1 ORDER BY fullname LIMIT $3) never \
               UNION ALL \
               SELECT * FROM (SELECT fullname, {checked_at} FROM things WHERE {checked_at} < $2 \
                  AND created_at < $4 AND (source = '{SAMPLE}') = $1 \
                ORDER BY {checked_at}, fullname LIMIT $3) longest_ago) due \
              ORDER BY {checked_at} NULLS FIRST, fullname LIMIT $3"
        )))
        .bind(due.source == SAMPLE)
        .bind(due.before)
        .bind(i64::from(limit))
        .bind(due.created_before)
        .fetch_all(&self.pool)
        .await
        .context("find posts to check")
    }

    pub async fn last_checked(&self, sample: bool, limit: u32) -> Result<Vec<Fullname>> {
        sqlx::query_scalar::<DB, _>(AssertSqlSafe(format!(
            "SELECT fullname FROM things WHERE checked_at IS NOT NULL AND (source = '{SAMPLE}') = $1 \
              ORDER BY checked_at DESC, fullname DESC LIMIT $2"
        )))
        .bind(sample)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .context("find the posts that were checked last")
    }

    pub async fn note_reconciled(&self, due: Due, as_of: Timestamp) -> Result<bool> {
        let (checked_at, key) = (checked_column(due.source), reconciled_key(due.source));
        // Times in this form sort as text.
        let time = at(as_of).format("%Y-%m-%dT%H:%M:%S+00:00").to_string();
        let done = sqlx::query::<DB>(AssertSqlSafe(format!(
            "INSERT INTO meta (key, value) SELECT '{key}', $1 WHERE NOT EXISTS ( \
               SELECT 1 FROM things WHERE ({checked_at} IS NULL OR {checked_at} < $2) AND created_at < $4 \
                  AND (source <> '{SAMPLE}' OR $3)) \
             ON CONFLICT (key) DO UPDATE SET value = CASE WHEN meta.value > excluded.value \
               THEN meta.value ELSE excluded.value END"
        )))
        .bind(time.as_str())
        .bind(due.before)
        .bind(due.source == SAMPLE)
        .bind(due.created_before)
        .execute(&self.pool)
        .await
        .context("record that the database is reconciled")?;
        Ok(DB::rows_affected(&done) == 1)
    }

    pub async fn reconciled_at(&self, source: SourceKind) -> Result<Option<Timestamp>> {
        let key = reconciled_key(source);
        let parse = |text: String| {
            DateTime::parse_from_rfc3339(&text)
                .map(|time| time.to_utc().into())
                .map_err(|error| StoreError::Corrupt {
                    table: "meta",
                    row: key.into(),
                    detail: error.to_string(),
                })
        };
        self.meta(key).await?.map(parse).transpose()
    }
}
