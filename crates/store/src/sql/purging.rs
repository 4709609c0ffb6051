//! Purges posts with everything derived from them.

mod crossposts;

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, QueryBuilder};

use super::post_rows::json_array;
use super::{ErrorContext, POSTS_A_STATEMENT, ROWS_A_STATEMENT, SqlStore, Tx, push_list};
use crate::dialect::Dialect;
use crate::maintenance::REWRITE_DUE;
use crate::{Checked, Purged, Result, RunId};
use topicmill_core::{Fullname, PurgeReason, Timestamp};

/// An output of models that is stored by the hash of a text.
#[derive(Clone, Copy)]
enum TextOutput {
    Logits,
    Vectors,
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn purge(&self, run: RunId, checked: &Checked, now: Timestamp) -> Result<Purged> {
        let mut tx = self.begin().await?;
        let named = checked.gone.iter();
        let gone: BTreeMap<&str, PurgeReason> = named
            .map(|(name, reason)| (name.as_str(), *reason))
            .collect();
        Self::lock_tombstones(&mut tx).await?;
        let reported = Self::reported_crossposts(&mut tx, &gone, &checked.crossposts).await?;
        let parents = gone.keys().copied().chain(reported.iter().copied());
        // The lock on tombstones prevents others from storing another crosspost afterwards.
        let mut crossposts = Self::crossposts_of(&mut tx, parents).await?;
        crossposts.extend(reported.into_iter().map(str::to_owned));
        // Locks all posts of this transaction at once, in order of fullname. The order would differ if posts were
        // locked by chunk, or purged posts before others.
        let kept = checked.visible.iter().chain(&checked.author_deleted);
        let crosspost_names = crossposts.iter().map(String::as_str);
        let to_purge = gone.keys().copied().chain(crosspost_names);
        Self::lock_posts(&mut tx, to_purge.chain(kept.map(Fullname::as_str))).await?;
        let purged = Self::purge_posts(&mut tx, run, &gone, crossposts, now).await?;
        Self::record_visible(&mut tx, checked, now).await?;
        let authors = "UPDATE things SET author = NULL WHERE author IS NOT NULL AND fullname IN";
        let posts = checked.author_deleted.iter().map(Fullname::as_str);
        let what = "delete authors with deleted accounts";
        let mut authors_and_texts = Self::change_posts(&mut tx, authors, posts, what).await?;
        authors_and_texts += Self::record_parents(&mut tx, &checked.crossposts, now).await?;
        // A rewrite of all files is too expensive if nothing was purged.
        if purged != Purged::default() || authors_and_texts > 0 {
            Self::mark_rewrite_due(&mut tx).await?;
        }
        tx.commit().await.context("purge posts")?;
        Ok(purged)
    }

    /// Stores the time of the check of visible posts.
    async fn record_visible(tx: &mut Tx<DB>, checked: &Checked, now: Timestamp) -> Result<()> {
        let changes = if checked.by_archive {
            "archive_checked_at = $2"
        } else {
            "removed_at = NULL, checked_at = $2"
        };
        let posts = DB::IN_JSON_ARRAY;
        let update = format!("UPDATE things SET {changes} WHERE fullname IN {posts}");
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(json_array(checked.visible.iter().map(Fullname::as_str)))
            .bind(now)
            .execute(&mut **tx)
            .await
            .map(drop)
            .context("store which posts are visible")
    }

    /// Deletes locked posts and their crossposts with everything derived from them, and writes tombstones.
    pub(super) async fn purge_posts(
        tx: &mut Tx<DB>,
        run: RunId,
        gone: &BTreeMap<&str, PurgeReason>,
        mut crossposts: BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Purged> {
        // A crosspost may be gone itself. Its own reason is more specific than `shown`.
        crossposts.retain(|name| !gone.contains_key(name.as_str()));
        let crosspost_names = crossposts.iter().map(String::as_str);
        let mut purged = Purged {
            gold: Self::count_gold(tx, gone.keys().copied().chain(crosspost_names)).await?,
            ..Purged::default()
        };
        let gone: Vec<(&str, PurgeReason)> = gone.iter().map(|(name, why)| (*name, *why)).collect();
        for chunk in gone.chunks(POSTS_A_STATEMENT) {
            let names: Vec<&str> = chunk.iter().map(|(name, _)| *name).collect();
            purged.posts += Self::delete_posts(tx, &names).await?.len() as u64;
        }
        purged.crossposts = Self::purge_crossposts(tx, run, &crossposts, now).await?;
        for chunk in gone.chunks(POSTS_A_STATEMENT) {
            // Posts that are not stored get a tombstone too, so that an old file does not bring them back.
            Self::write_tombstones(tx, run, chunk, now).await?;
        }
        Ok(purged)
    }

    pub async fn posts_by_author(&self, authors: &[String]) -> Result<Vec<Fullname>> {
        let find = format!(
            "SELECT fullname FROM things WHERE lower(author) IN {} ORDER BY fullname",
            DB::IN_JSON_ARRAY
        );
        sqlx::query_scalar::<DB, _>(AssertSqlSafe(find))
            .bind(json_array(authors.iter().map(String::as_str)))
            .fetch_all(&self.pool)
            .await
            .context("find the posts of an author")
    }

    pub async fn count_without_author(&self) -> Result<u64> {
        let select = "SELECT COUNT(*) FROM things WHERE author IS NULL";
        let posts = self.number(select, "count posts without an author").await;
        posts.map(i64::unsigned_abs)
    }

    pub async fn count_purged(&self) -> Result<u64> {
        let select = "SELECT (SELECT COUNT(*) FROM tombstones) \
                           + (SELECT COUNT(*) FROM things WHERE text_purged_at IS NOT NULL)";
        let posts = self.number(select, "count purged posts").await;
        posts.map(i64::unsigned_abs)
    }

    pub async fn count_tombstones(&self, posts: &[Fullname]) -> Result<u64> {
        let select = "SELECT fullname FROM tombstones WHERE fullname IN (";
        let names = posts.iter().map(Fullname::as_str).collect();
        let found = self.rows_in(select, names, "count tombstones").await?;
        Ok(found.len() as u64)
    }

    /// Counts the gold labels of posts. No gold label can be added while the posts are locked.
    async fn count_gold(tx: &mut Tx<DB>, posts: impl Iterator<Item = &str>) -> Result<u64> {
        let count = format!(
            "SELECT COUNT(*) FROM gold WHERE fullname IN {}",
            DB::IN_JSON_ARRAY
        );
        sqlx::query_scalar::<DB, _>(AssertSqlSafe(count))
            .bind(json_array(posts))
            .fetch_one(&mut **tx)
            .await
            .map(i64::unsigned_abs)
            .context("count the gold labels of purged posts")
    }

    /// Locks the tombstones. See [`Dialect::LOCK_TOMBSTONES`].
    pub(super) async fn lock_tombstones(tx: &mut Tx<DB>) -> Result<()> {
        if let Some(lock) = DB::LOCK_TOMBSTONES {
            let locked = sqlx::query::<DB>(lock).execute(&mut **tx).await;
            locked.context("lock tombstones")?;
        }
        Ok(())
    }

    /// Locks the given posts that are stored, and the comments that are read with their titles, before any of them is
    /// changed. See [`Dialect::LOCK_POSTS`].
    pub(super) async fn lock_posts(
        tx: &mut Tx<DB>,
        posts: impl Iterator<Item = &str>,
    ) -> Result<()> {
        // SQLite has only one writer at a time, so this would be useless.
        if DB::LOCK_POSTS.is_empty() {
            return Ok(());
        }
        let lock = format!(
            "SELECT 1 FROM things WHERE fullname IN ({names} UNION SELECT c.fullname FROM things c \
               WHERE c.post IS NOT NULL AND c.title <> '' AND c.post IN {names}) ORDER BY fullname {}",
            DB::LOCK_POSTS,
            names = DB::IN_JSON_ARRAY
        );
        sqlx::query::<DB>(AssertSqlSafe(lock))
            .bind(json_array(posts))
            .execute(&mut **tx)
            .await
            .map(drop)
            .context("lock posts")
    }

    /// Removes posts from the backlog, even if they are leased.
    pub(super) async fn dequeue_all(tx: &mut Tx<DB>, fullnames: &[&str]) -> Result<()> {
        let delete = "DELETE FROM backlog WHERE fullname IN";
        let what = "remove posts from the backlog";
        let dequeued = Self::change_posts(tx, delete, fullnames.iter().copied(), what);
        dequeued.await.map(drop)
    }

    /// Deletes posts with everything derived from them. Returns the posts that were stored.
    async fn delete_posts(tx: &mut Tx<DB>, fullnames: &[&str]) -> Result<Vec<String>> {
        // The hashes are read first, because afterwards the text of the posts is unknown.
        let mut hashes = Self::hashes(tx, "things", fullnames).await?;
        // Earlier texts may have been scored too.
        hashes.extend(Self::hashes(tx, "classifications", fullnames).await?);

        Self::dequeue_all(tx, fullnames).await?;
        // Foreign keys and triggers delete sightings, classifications and scores.
        let mut delete = QueryBuilder::<DB>::new("DELETE FROM things WHERE fullname IN (");
        push_list(&mut delete, fullnames.iter().copied());
        delete.push(" RETURNING fullname");
        let purged = delete.build_query_scalar().fetch_all(&mut **tx).await;
        let purged = purged.context("purge posts")?;
        let hashes: Vec<&[u8]> = hashes.iter().map(Vec::as_slice).collect();
        Self::delete_unused_logits(tx, &hashes).await?;
        Self::delete_titles(tx, fullnames).await?;
        Ok(purged)
    }

    /// Deletes the titles of posts from the comments that are read with them, and the vectors of these texts. The
    /// comments keep their labels and the hash of the text that the labels were read from.
    pub(super) async fn delete_titles(tx: &mut Tx<DB>, posts: &[&str]) -> Result<()> {
        let mut update = QueryBuilder::<DB>::new(
            "UPDATE things SET title = '', context_purged = TRUE WHERE post IS NOT NULL AND title <> '' AND post IN (",
        );
        push_list(&mut update, posts.iter().copied());
        update.push(" RETURNING fullname, text_hash");
        let changed = update.build_query_as().fetch_all(&mut **tx).await;
        let changed: Vec<(String, Vec<u8>)> =
            changed.context("delete the titles of purged posts from comments")?;
        for chunk in changed.chunks(POSTS_A_STATEMENT) {
            let comments: Vec<&str> = chunk.iter().map(|(name, _)| name.as_str()).collect();
            Self::dequeue_all(tx, &comments).await?;
            let hashes: Vec<&[u8]> = chunk.iter().map(|(_, hash)| hash.as_slice()).collect();
            Self::delete_unused_vectors(tx, &hashes).await?;
        }
        Ok(())
    }

    /// Deletes the logits and vectors of texts that no labelled post has any more. An unlabelled post with such a text
    /// is scored again.
    pub(super) async fn delete_unused_logits(tx: &mut Tx<DB>, texts: &[&[u8]]) -> Result<()> {
        Self::delete_unused(tx, TextOutput::Logits, texts).await?;
        Self::delete_unused_vectors(tx, texts).await
    }

    /// Deletes the vectors of texts that no labelled post has any more.
    pub(super) async fn delete_unused_vectors(tx: &mut Tx<DB>, texts: &[&[u8]]) -> Result<()> {
        Self::delete_unused(tx, TextOutput::Vectors, texts).await
    }

    /// Deletes an output for texts that no labelled post has any more. Uses the index on labels: an index on the posts'
    /// hashes would cost one more page write for each stored post.
    async fn delete_unused(tx: &mut Tx<DB>, output: TextOutput, texts: &[&[u8]]) -> Result<()> {
        let (table, condition) = match output {
            TextOutput::Logits => ("pair_logits", ""),
            // Retention deletes vectors but not logits, because vectors reveal more about a text.
            TextOutput::Vectors => ("text_vectors", "AND p.has_text"),
        };
        for chunk in texts.chunks(ROWS_A_STATEMENT) {
            // `model_id IN (SELECT …)` does not change the result, but lets both databases search the primary key,
            // which starts with the model, instead of reading the whole table.
            let mut delete = QueryBuilder::<DB>::new(format!(
                "DELETE FROM {table} WHERE model_id IN (SELECT id FROM models) AND NOT EXISTS ( \
                   SELECT 1 FROM classifications c CROSS JOIN things p WHERE c.text_hash = {table}.text_hash \
                      AND c.text_hash >= '' AND p.fullname = c.fullname AND p.text_hash = c.text_hash {condition}) \
                    AND text_hash IN ("
            ));
            push_list(&mut delete, chunk.iter().copied());
            let deleted = delete.build().execute(&mut **tx).await;
            deleted.context("delete unused logits or vectors")?;
        }
        Ok(())
    }

    /// Writes tombstones, so that the posts are not stored again.
    async fn write_tombstones(
        tx: &mut Tx<DB>,
        run: RunId,
        gone: &[(&str, PurgeReason)],
        now: Timestamp,
    ) -> Result<()> {
        let mut insert = QueryBuilder::<DB>::new(
            "INSERT INTO tombstones (fullname, reason, purged_at, run_id) ",
        );
        insert.push_values(gone, |mut row, (fullname, reason)| {
            row.push_bind(*fullname).push_bind(reason.as_str());
            row.push_bind(now).push_bind(run);
        });
        // Any reason replaces a reversible one. An irreversible reason is kept.
        insert.push(
            " ON CONFLICT (fullname) DO UPDATE SET reason = excluded.reason WHERE tombstones.reason IN (",
        );
        let reasons = PurgeReason::ALL.iter().copied();
        let reversible = reasons.filter(|reason| reason.is_reversible());
        push_list(&mut insert, reversible.map(PurgeReason::as_str));
        let inserted = insert.build().execute(&mut **tx).await;
        inserted.map(drop).context("write tombstones")
    }

    /// Returns the hashes of the posts' texts, as a table has them.
    pub(super) async fn hashes(
        tx: &mut Tx<DB>,
        table: &str,
        fullnames: &[&str],
    ) -> Result<Vec<Vec<u8>>> {
        let select = format!("SELECT text_hash FROM {table} WHERE fullname IN (");
        let mut select = QueryBuilder::<DB>::new(select);
        push_list(&mut select, fullnames.iter().copied());
        let hashes = select.build_query_scalar().fetch_all(&mut **tx).await;
        hashes.context("read the hashes of purged texts")
    }

    /// Records that deleted bytes may linger in the files.
    pub(super) async fn mark_rewrite_due(tx: &mut Tx<DB>) -> Result<()> {
        let noted = Self::set_unique_meta(tx, REWRITE_DUE).await;
        noted.context("record that a rewrite is due")
    }
}
