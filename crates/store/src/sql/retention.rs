//! Deletes post text after the retention time.

use std::collections::BTreeSet;

use sqlx::AssertSqlSafe;

use super::post_rows::json_array;
use super::{ErrorContext, POSTS_A_STATEMENT, SqlStore, Tx};
use crate::dialect::Dialect;
use crate::maintenance::VECTORS_KEPT;
use crate::{OldTexts, PurgedTexts, Result};
use topicmill_core::Timestamp;

impl<DB: Dialect> SqlStore<DB> {
    pub async fn purge_texts(
        &self,
        texts: &OldTexts,
        limit: u32,
        now: Timestamp,
    ) -> Result<PurgedTexts> {
        const WHAT: &str = "purge old post text";
        let mut tx = self.begin().await?;
        Self::lock_tombstones(&mut tx).await?;
        let mut old: BTreeSet<String> = sqlx::query_scalar::<DB, _>(
            "SELECT fullname FROM things WHERE text_purged_at IS NULL AND (collected_at < $1 OR collected_at > $3) \
                AND (source <> 'import' OR $4) ORDER BY collected_at LIMIT $2",
        )
        .bind(texts.before)
        .bind(i64::from(limit))
        .bind(texts.after)
        .bind(texts.imports)
        .fetch_all(&mut *tx)
        .await
        .map(BTreeSet::from_iter)
        .context(WHAT)?;
        let crossposts = Self::crossposts_of(&mut tx, old.iter().map(String::as_str)).await?;
        old.extend(crossposts);
        Self::lock_posts(&mut tx, old.iter().map(String::as_str)).await?;
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        let unlabelled = Self::count_unlabelled(&mut tx, &old).await?;
        let posts = Self::delete_texts(&mut tx, &old, now).await?;
        if posts > 0 {
            Self::mark_rewrite_due(&mut tx).await?;
        }
        if texts.keep_vectors {
            if posts > 0 {
                let noted = Self::set_unique_meta(&mut tx, VECTORS_KEPT).await;
                noted.context("record that vectors were kept")?;
            }
        } else {
            Self::delete_vectors(&mut tx, &old).await?;
        }
        tx.commit().await.context(WHAT)?;
        Ok(PurgedTexts { posts, unlabelled })
    }

    pub async fn count_posts_with_text(&self) -> Result<u64> {
        let select = "SELECT COUNT(*) FROM things WHERE text_purged_at IS NULL AND kind = 'post'";
        let posts = self.number(select, "count posts with text").await;
        posts.map(i64::unsigned_abs)
    }

    pub async fn count_texts_after(&self, time: Timestamp) -> Result<u64> {
        sqlx::query_scalar::<DB, i64>(
            "SELECT COUNT(*) FROM things WHERE text_purged_at IS NULL AND collected_at > $1",
        )
        .bind(time)
        .fetch_one(&self.pool)
        .await
        .map(i64::unsigned_abs)
        .context("count posts with text stored later")
    }

    /// Counts the posts with text that have no label of it under the current target.
    async fn count_unlabelled(tx: &mut Tx<DB>, fullnames: &[&str]) -> Result<u64> {
        let count = format!(
            "SELECT COUNT(*) FROM things p WHERE p.has_text AND NOT EXISTS ( \
               SELECT 1 FROM current_target t JOIN classifications c ON c.model_id = t.model_id \
                  AND c.label_set_id = t.label_set_id AND c.fullname = p.fullname AND c.text_hash = p.text_hash) \
                AND p.fullname IN {}",
            DB::IN_JSON_ARRAY
        );
        sqlx::query_scalar::<DB, _>(AssertSqlSafe(count))
            .bind(json_array(fullnames.iter().copied()))
            .fetch_one(&mut **tx)
            .await
            .map(i64::unsigned_abs)
            .context("count texts without a label")
    }

    /// Deletes the text, links and author of posts. Returns the number of posts that still had text.
    pub(super) async fn delete_texts(
        tx: &mut Tx<DB>,
        fullnames: &[&str],
        now: Timestamp,
    ) -> Result<u64> {
        let mut purged = 0;
        for chunk in fullnames.chunks(POSTS_A_STATEMENT) {
            Self::dequeue_all(tx, chunk).await?;
            let update = format!(
                "UPDATE things SET title = '', selftext = '', url = NULL, permalink = NULL, author = NULL, \
                 text_purged_at = $2 WHERE text_purged_at IS NULL AND fullname IN {}",
                DB::IN_JSON_ARRAY
            );
            purged += sqlx::query::<DB>(AssertSqlSafe(update))
                .bind(json_array(chunk.iter().copied()))
                .bind(now)
                .execute(&mut **tx)
                .await
                .map(|done| DB::rows_affected(&done))
                .context("purge post text")?;
            Self::delete_titles(tx, chunk).await?;
        }
        Ok(purged)
    }

    /// Deletes the vectors of posts whose text was deleted, unless a labelled post still has the text.
    pub(super) async fn delete_vectors(tx: &mut Tx<DB>, fullnames: &[&str]) -> Result<()> {
        for chunk in fullnames.chunks(POSTS_A_STATEMENT) {
            // The hash remains in the row, because it shows which text the label belongs to.
            let hashes = Self::hashes(tx, "things", chunk).await?;
            let hashes: Vec<&[u8]> = hashes.iter().map(Vec::as_slice).collect();
            Self::delete_unused_vectors(tx, &hashes).await?;
        }
        Ok(())
    }
}
