//! Stores and reads watermarks and import positions.

use sqlx::{AssertSqlSafe, Row as _};

use super::{ErrorContext, SqlStore, Tx, count};
use crate::dialect::Dialect;
use crate::{ImportState, Page, Result, UnreadThread};
use topicmill_core::{Listing, SourceKind, Timestamp, subreddit_of_path};

impl<DB: Dialect> SqlStore<DB> {
    pub(super) async fn upsert_import_state(tx: &mut Tx<DB>, state: &ImportState) -> Result<()> {
        sqlx::query::<DB>(
            "INSERT INTO imports (file, selection, name, byte_offset, rows_read, left_out, posts, rejected, run_id, \
             updated_at, finished_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
             ON CONFLICT (file, selection) DO UPDATE SET name = excluded.name, \
             byte_offset = excluded.byte_offset, rows_read = excluded.rows_read, left_out = excluded.left_out, \
             posts = excluded.posts, rejected = excluded.rejected, run_id = excluded.run_id, \
             updated_at = excluded.updated_at, finished_at = excluded.finished_at",
        )
        .bind(state.file.as_str())
        .bind(state.selection.as_str())
        .bind(state.name.as_str())
        .bind(count(state.byte_offset))
        .bind(count(state.rows))
        .bind(count(state.left_out))
        .bind(count(state.posts))
        .bind(count(state.rejected))
        .bind(state.run)
        .bind(state.updated_at)
        .bind(state.finished_at)
        .execute(&mut **tx)
        .await
        .map(drop)
        .context("store the import position")
    }

    pub async fn import_state(&self, file: &str, selection: &str) -> Result<Option<ImportState>> {
        sqlx::query::<DB>(
            "SELECT file, selection, name, byte_offset, rows_read, left_out, posts, rejected, COALESCE(run_id, 0), \
                    updated_at, finished_at FROM imports WHERE file = $1 AND selection = $2",
        )
        .bind(file)
        .bind(selection)
        .try_map(row_as!(ImportState: file, selection, name, byte_offset(i64::unsigned_abs),
            rows(i64::unsigned_abs), left_out(i64::unsigned_abs), posts(i64::unsigned_abs),
            rejected(i64::unsigned_abs), run, updated_at, finished_at))
        .fetch_optional(&self.pool)
        .await
        .context("read the import position")
    }

    // The watermark moves only forwards, because two runs may end in either order. Only a watermark in the future may
    // move back: otherwise, one wrong date would hide all later posts.
    pub(super) async fn upsert_watermark(
        tx: &mut Tx<DB>,
        page: &Page<'_>,
        topic: &str,
    ) -> Result<()> {
        sqlx::query::<DB>(
            "INSERT INTO watermarks (source, topic, subreddit, listing, after_cursor, newest_created_at, run_id, \
             updated_at, read_from) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (source, topic, subreddit) DO UPDATE SET listing = excluded.listing, \
             after_cursor = excluded.after_cursor, newest_created_at = CASE \
               WHEN excluded.newest_created_at IS NULL \
                 OR (watermarks.newest_created_at >= excluded.newest_created_at \
                 AND watermarks.newest_created_at <= excluded.updated_at) THEN watermarks.newest_created_at \
               ELSE excluded.newest_created_at END, \
             read_from = CASE WHEN watermarks.read_from IS NULL OR excluded.read_from < watermarks.read_from \
               THEN excluded.read_from ELSE watermarks.read_from END, \
             run_id = excluded.run_id, updated_at = excluded.updated_at",
        )
        .bind(page.source.as_str())
        .bind(topic)
        .bind(page.subreddit)
        .bind(page.listing.map(Listing::as_str))
        .bind(page.after)
        .bind(page.newest)
        .bind(page.run)
        .bind(page.now)
        .bind(page.read_from)
        .execute(&mut **tx)
        .await
        .map(drop)
        .context("store the watermark")
    }

    pub async fn watermark(
        &self,
        source: SourceKind,
        topic: &str,
        subreddit: &str,
    ) -> Result<Option<Timestamp>> {
        let newest = self.time_of_watermark("newest_created_at", source, topic, subreddit);
        newest.await.context("read the watermark")
    }

    pub async fn read_from(
        &self,
        source: SourceKind,
        topic: &str,
        subreddit: &str,
    ) -> Result<Option<Timestamp>> {
        let read_from = self.time_of_watermark("read_from", source, topic, subreddit);
        read_from.await.context("read since when posts were read")
    }

    async fn time_of_watermark(
        &self,
        column: &str,
        source: SourceKind,
        topic: &str,
        subreddit: &str,
    ) -> Result<Option<Timestamp>, sqlx::Error> {
        let select = format!(
            "SELECT {column} FROM watermarks WHERE source = $1 AND topic = $2 AND subreddit = $3"
        );
        let time: Option<Option<Timestamp>> = sqlx::query_scalar::<DB, _>(AssertSqlSafe(select))
            .bind(source.as_str())
            .bind(topic)
            .bind(subreddit)
            .fetch_optional(&self.pool)
            .await?;
        Ok(time.flatten())
    }

    // A run with a time range leaves a row without a watermark. Other subreddits have none, so that this statement does
    // not read all posts for each new topic.
    pub async fn newest_in_range(
        &self,
        source: SourceKind,
        topic: &str,
        path: &str,
    ) -> Result<Option<Timestamp>> {
        let (subreddit, kind) = subreddit_of_path(path);
        sqlx::query_scalar::<DB, _>(
            "SELECT MAX(created_at) FROM things WHERE kind = $4 AND source = $1 AND topic = $2 \
               AND LOWER(subreddit) = LOWER($5) AND EXISTS ( \
                 SELECT 1 FROM watermarks WHERE source = $1 AND topic = $2 AND subreddit = $3 \
                    AND newest_created_at IS NULL AND after_cursor IS NULL)",
        )
        .bind(source.as_str())
        .bind(topic)
        .bind(path)
        .bind(kind.as_str())
        .bind(subreddit)
        .fetch_one(&self.pool)
        .await
        .context("find the newest post of a time range")
    }

    // A thread has a watermark with the path of its page, which has a `read_from` once the thread is complete.
    pub async fn unread_threads(
        &self,
        source: SourceKind,
        topic: &str,
        limit: u32,
    ) -> Result<Vec<UnreadThread>> {
        // The condition on all topics is that of the index.
        sqlx::query::<DB>(
            "SELECT p.fullname, p.subreddit, p.created_at FROM things p \
               LEFT JOIN watermarks w ON w.source = $1 AND w.topic = $2 \
                AND w.subreddit = p.subreddit || '/comments/' || substr(p.fullname, 4) \
              WHERE p.kind = 'post' AND p.topic = $2 AND p.topic >= '' AND p.removed_at IS NULL \
                AND COALESCE(p.num_comments, 1) + CASE WHEN p.reddit_score_is_placeholder THEN 1 ELSE 0 END > 0 \
                AND w.read_from IS NULL ORDER BY w.updated_at NULLS FIRST, p.created_at DESC LIMIT $3",
        )
        .bind(source.as_str())
        .bind(topic)
        .bind(i64::from(limit))
        .try_map(row_as!(UnreadThread: post, subreddit, created_at))
        .fetch_all(&self.pool)
        .await
        .context("find posts whose comments are not read")
    }

    // A post with a date in the future (because of a wrong clock or a forged file) must not become the watermark. Posts
    // that were created before the first such post was stored are known to have been read.
    pub async fn newest_before_future(
        &self,
        source: SourceKind,
        path: &str,
        latest: Timestamp,
    ) -> Result<Option<Timestamp>> {
        let (subreddit, kind) = subreddit_of_path(path);
        sqlx::query_scalar::<DB, _>(
            "SELECT MAX(created_at) FROM things WHERE kind = $4 AND source = $1 AND LOWER(subreddit) = LOWER($2) \
               AND created_at <= (SELECT MIN(collected_at) FROM things \
                 WHERE kind = $4 AND LOWER(subreddit) = LOWER($2) AND created_at > $3)",
        )
        .bind(source.as_str())
        .bind(subreddit)
        .bind(latest)
        .bind(kind.as_str())
        .fetch_one(&self.pool)
        .await
        .context("find the newest post that was read")
    }
}
