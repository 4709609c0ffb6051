//! How far sources and files were read.

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{Row as _, Transaction};

use super::super::dialect::Dialect;
use super::super::{ImportState, Page, Result, RunId};
use super::{Doing, SqlStore, at, count};
use crate::domain::{Listing, SourceKind, Timestamp};

impl<DB: Dialect> SqlStore<DB> {
    pub(super) async fn upsert_import_state(
        tx: &mut Transaction<'static, DB>,
        state: &ImportState,
    ) -> Result<()> {
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
        .bind(state.run.0)
        .bind(state.updated_at)
        .bind(state.finished_at.map(at))
        .execute(&mut **tx)
        .await
        .doing("store how far the file was read")?;
        Ok(())
    }

    pub async fn import_state(&self, file: &str, selection: &str) -> Result<Option<ImportState>> {
        const WHAT: &str = "read how far the file was imported";
        let row = sqlx::query::<DB>(
            "SELECT name, byte_offset, rows_read, left_out, posts, rejected, COALESCE(run_id, 0), updated_at, \
             finished_at FROM imports WHERE file = $1 AND selection = $2",
        )
        .bind(file)
        .bind(selection)
        .fetch_optional(&self.pool)
        .await
        .doing(WHAT)?;
        let number = |row: &DB::Row, at: usize| -> Result<u64, sqlx::Error> {
            Ok(u64::try_from(row.try_get::<i64, _>(at)?).unwrap_or(0))
        };
        let decode = |row: &DB::Row| -> Result<ImportState, sqlx::Error> {
            Ok(ImportState {
                file: file.to_owned(),
                selection: selection.to_owned(),
                name: row.try_get(0)?,
                byte_offset: number(row, 1)?,
                rows: number(row, 2)?,
                left_out: number(row, 3)?,
                posts: number(row, 4)?,
                rejected: number(row, 5)?,
                run: RunId(row.try_get(6)?),
                updated_at: row.try_get(7)?,
                finished_at: row.try_get(8)?,
            })
        };
        row.as_ref().map(decode).transpose().doing(WHAT)
    }

    // The mark only grows, because two runs may end in either order. A mark in the future is the one that may
    // fall: otherwise, one wrong date would hide every later post.
    pub(super) async fn upsert_watermark(
        tx: &mut Transaction<'static, DB>,
        page: &Page<'_>,
        topic: &str,
    ) -> Result<()> {
        sqlx::query::<DB>(
            "INSERT INTO watermarks (source, topic, subreddit, listing, after_cursor, newest_created_at, run_id, \
             updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
             ON CONFLICT (source, topic, subreddit) DO UPDATE SET listing = excluded.listing, \
             after_cursor = excluded.after_cursor, newest_created_at = CASE \
               WHEN excluded.newest_created_at IS NULL \
                 OR (watermarks.newest_created_at >= excluded.newest_created_at \
                 AND watermarks.newest_created_at <= excluded.updated_at) THEN watermarks.newest_created_at \
               ELSE excluded.newest_created_at END, \
             run_id = excluded.run_id, updated_at = excluded.updated_at",
        )
        .bind(page.source.as_str())
        .bind(topic)
        .bind(page.subreddit)
        .bind(page.listing.map(Listing::as_str))
        .bind(page.after)
        .bind(page.newest.map(at))
        .bind(page.run.0)
        .bind(page.now)
        .execute(&mut **tx)
        .await
        .doing("store the watermark")?;
        Ok(())
    }

    pub async fn watermark(
        &self,
        source: SourceKind,
        topic: &str,
        subreddit: &str,
    ) -> Result<Option<Timestamp>> {
        const WHAT: &str = "read the watermark";
        let row = sqlx::query::<DB>(
            "SELECT newest_created_at FROM watermarks WHERE source = $1 AND topic = $2 AND subreddit = $3",
        )
        .bind(source.as_str())
        .bind(topic)
        .bind(subreddit)
        .fetch_optional(&self.pool)
        .await
        .doing(WHAT)?;
        let newest = row
            .map(|row| row.try_get::<Option<DateTime<Utc>>, _>(0))
            .transpose()
            .doing(WHAT)?;
        Ok(newest.flatten().map(Timestamp::from))
    }

    // A post with a date in the future (a wrong clock, a forged file) must not become the mark up to which a
    // listing was read. This finds the newest post from before the first such post was stored.
    pub async fn newest_before_future(
        &self,
        source: SourceKind,
        subreddit: &str,
        latest: Timestamp,
    ) -> Result<Option<Timestamp>> {
        sqlx::query::<DB>(
            "SELECT MAX(created_at) FROM posts WHERE source = $1 AND LOWER(subreddit) = LOWER($2) \
               AND created_at <= (SELECT MIN(collected_at) FROM posts \
                 WHERE LOWER(subreddit) = LOWER($2) AND created_at > $3)",
        )
        .bind(source.as_str())
        .bind(subreddit)
        .bind(latest)
        .fetch_one(&self.pool)
        .await
        .and_then(|row| row.try_get::<Option<DateTime<Utc>>, _>(0))
        .map(|time| time.map(Timestamp::from))
        .doing("find the newest post that was read")
    }
}
