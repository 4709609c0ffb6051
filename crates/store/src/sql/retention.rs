//! Deletes post text after the retention time.

use std::collections::BTreeSet;

use sqlx::{QueryBuilder, Transaction};

use super::super::Result;
use super::super::dialect::Dialect;
use super::{ErrorContext, POSTS_A_STATEMENT, SqlStore, push_list};
use topicmill_core::Timestamp;

impl<DB: Dialect> SqlStore<DB> {
    pub async fn purge_texts(
        &self,
        before: Timestamp,
        after: Timestamp,
        limit: u32,
        now: Timestamp,
    ) -> Result<u64> {
        retry_on_conflict!(self.try_purge_texts(before, after, limit, now))
    }

    pub async fn count_texts_after(&self, time: Timestamp) -> Result<u64> {
        sqlx::query_scalar::<DB, i64>(
            "SELECT COUNT(*) FROM posts WHERE text_purged_at IS NULL AND collected_at > $1",
        )
        .bind(time)
        .fetch_one(&self.pool)
        .await
        .map(i64::unsigned_abs)
        .context("count posts with text stored later")
    }

    async fn try_purge_texts(
        &self,
        before: Timestamp,
        after: Timestamp,
        limit: u32,
        now: Timestamp,
    ) -> Result<u64> {
        const WHAT: &str = "purge old post text";
        let mut tx = self.begin().await?;
        Self::lock_tombstones(&mut tx).await?;
        let mut old: BTreeSet<String> = sqlx::query_scalar::<DB, _>(
            "SELECT fullname FROM posts WHERE text_purged_at IS NULL AND (collected_at < $1 OR collected_at > $3) \
              ORDER BY collected_at LIMIT $2",
        )
        .bind(before)
        .bind(i64::from(limit))
        .bind(after)
        .fetch_all(&mut *tx)
        .await
        .map(BTreeSet::from_iter)
        .context(WHAT)?;
        let crossposts = Self::crossposts_of(&mut tx, old.iter().map(String::as_str)).await?;
        old.extend(crossposts);
        Self::lock_posts(&mut tx, old.iter().map(String::as_str)).await?;
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        let purged = Self::delete_texts(&mut tx, &old, now).await?;
        if purged > 0 {
            Self::mark_rewrite_due(&mut tx).await?;
        }
        tx.commit().await.context(WHAT)?;
        Ok(purged)
    }

    /// Deletes the text, link, author and flair of posts. Returns the number of posts that still had text.
    pub(super) async fn delete_texts(
        tx: &mut Transaction<'static, DB>,
        fullnames: &[&str],
        now: Timestamp,
    ) -> Result<u64> {
        let mut purged = 0;
        for chunk in fullnames.chunks(POSTS_A_STATEMENT) {
            Self::dequeue_all(tx, chunk).await?;
            let mut update = QueryBuilder::<DB>::new(
                "UPDATE posts SET title = '', selftext = '', url = NULL, permalink = NULL, author = NULL, \
                 flair = NULL, text_purged_at = ",
            );
            update
                .push_bind(now)
                .push(" WHERE text_purged_at IS NULL AND fullname IN (");
            push_list(&mut update, chunk.iter().copied());
            purged += update
                .build()
                .execute(&mut **tx)
                .await
                .map(|done| DB::rows_affected(&done))
                .context("purge post text")?;
            let mut select =
                QueryBuilder::<DB>::new("SELECT text_hash FROM posts WHERE fullname IN (");
            push_list(&mut select, chunk.iter().copied());
            // The hash remains in the row, because it shows which text the label belongs to.
            let hashes = Self::hashes(tx, select).await?;
            let hashes: Vec<&[u8]> = hashes.iter().map(Vec::as_slice).collect();
            Self::delete_unused_vectors(tx, &hashes).await?;
        }
        Ok(purged)
    }
}
