//! Taking posts out again.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, QueryBuilder, Row, Transaction};

use super::super::dialect::Dialect;
use super::super::upkeep::REWRITE_DUE;
use super::super::{Checked, Purged, Result, RunId};
use super::arriving::names;
use super::{Doing, POSTS_A_STATEMENT, ROWS_A_STATEMENT, SqlStore, push_list};
use topicmill_core::{Fullname, PurgeReason, Timestamp};

impl<DB: Dialect> SqlStore<DB> {
    pub async fn purge(&self, run: RunId, checked: &Checked, now: Timestamp) -> Result<Purged> {
        again!(self.try_purge(run, checked, now))
    }

    async fn try_purge(&self, run: RunId, checked: &Checked, now: Timestamp) -> Result<Purged> {
        let mut tx = self.begin().await?;
        let gone: BTreeMap<&str, PurgeReason> = checked
            .gone
            .iter()
            .map(|(fullname, reason)| (fullname.as_str(), *reason))
            .collect();
        Self::lock_tombstones(&mut tx).await?;
        let showing = Self::showing(&mut tx, &gone, &checked.shows).await?;
        let out = gone.keys().copied().chain(showing.iter().copied());
        // Under the lock on tombstones: nobody can store another crosspost of these posts after this look.
        let mut crossposts = Self::crossposts_of(&mut tx, out).await?;
        crossposts.extend(showing.into_iter().map(str::to_owned));
        // A crosspost may be gone itself. Its own reason says more than `shown`.
        crossposts.retain(|name| !gone.contains_key(name.as_str()));
        let names = crossposts.iter().map(String::as_str);
        let out: BTreeSet<&str> = gone.keys().copied().chain(names).collect();
        let stay = checked.alive.iter().chain(&checked.authorless);
        let all = out.iter().copied().chain(stay.map(Fullname::as_str));
        // All posts of this transaction at once, because locks are taken in the order of the names. Chunk by chunk,
        // and first the dead and then the living, would be another order.
        Self::lock_posts(&mut tx, all).await?;
        let mut purged = Purged {
            gold: Self::count_gold(&mut tx, out.iter().copied()).await?,
            ..Purged::default()
        };
        let gone: Vec<(&str, PurgeReason)> = gone.into_iter().collect();
        for chunk in gone.chunks(POSTS_A_STATEMENT) {
            let names: Vec<&str> = chunk.iter().map(|(name, _)| *name).collect();
            purged.posts += Self::delete_posts(&mut tx, &names).await?.len() as u64;
        }
        purged.crossposts = Self::purge_crossposts(&mut tx, run, &crossposts, now).await?;
        for chunk in gone.chunks(POSTS_A_STATEMENT) {
            // Also for posts that are not stored: an import of an old file must not bring them in later.
            Self::leave_tombstones(&mut tx, run, chunk, now).await?;
        }
        for chunk in checked.alive.chunks(POSTS_A_STATEMENT) {
            let mut update =
                QueryBuilder::<DB>::new("UPDATE posts SET removed_at = NULL, checked_at = ");
            update.push_bind(now).push(" WHERE fullname IN (");
            push_list(&mut update, chunk.iter().map(Fullname::as_str));
            update
                .build()
                .execute(&mut *tx)
                .await
                .doing("note which posts are still there")?;
        }
        let mut forgotten = 0;
        for chunk in checked.authorless.chunks(POSTS_A_STATEMENT) {
            let mut update = QueryBuilder::<DB>::new(
                "UPDATE posts SET author = NULL WHERE author IS NOT NULL AND fullname IN (",
            );
            push_list(&mut update, chunk.iter().map(Fullname::as_str));
            forgotten += update
                .build()
                .execute(&mut *tx)
                .await
                .map(|done| DB::rows_affected(&done))
                .doing("forget authors whose accounts are gone")?;
        }
        forgotten += Self::learn_what_is_shown(&mut tx, &checked.shows, now).await?;
        // A rewrite of all files is too dear for a purge that found nothing.
        if purged != Purged::default() || forgotten > 0 {
            Self::note_rewrite_due(&mut tx).await?;
        }
        tx.commit().await.doing("purge posts")?;
        Ok(purged)
    }

    /// Counts the gold labels of posts. Nobody adds one while the posts are locked.
    async fn count_gold(
        tx: &mut Transaction<'static, DB>,
        posts: impl Iterator<Item = &str>,
    ) -> Result<u64> {
        let count = format!("SELECT COUNT(*) FROM gold WHERE fullname IN {}", DB::AMONG);
        let counted: i64 = sqlx::query_scalar::<DB, _>(AssertSqlSafe(count))
            .bind(names(posts).as_str())
            .fetch_one(&mut **tx)
            .await
            .doing("count the gold labels of purged posts")?;
        Ok(counted.unsigned_abs())
    }

    /// Returns the posts that show a purged post, according to Reddit.
    async fn showing<'c>(
        tx: &mut Transaction<'static, DB>,
        gone: &BTreeMap<&str, PurgeReason>,
        shows: &'c [(Fullname, Vec<Fullname>)],
    ) -> Result<BTreeSet<&'c str>> {
        if shows.is_empty() {
            return Ok(BTreeSet::new());
        }
        let purged = format!(
            "SELECT fullname FROM tombstones WHERE fullname IN {}",
            DB::AMONG
        );
        let parents = shows.iter().flat_map(|(_, parents)| parents);
        let purged: Vec<String> = sqlx::query_scalar::<DB, _>(AssertSqlSafe(purged))
            .bind(names(parents.map(Fullname::as_str)).as_str())
            .fetch_all(&mut **tx)
            .await
            .doing("look up purged posts")?;
        let purged: BTreeSet<&str> = purged.iter().map(String::as_str).collect();
        let is_purged =
            |name: &Fullname| purged.contains(name.as_str()) || gone.contains_key(name.as_str());
        let showing = shows
            .iter()
            .filter(|(_, parents)| parents.iter().any(is_purged));
        Ok(showing.map(|(name, _)| name.as_str()).collect())
    }

    /// Stores what crossposts show, where that was not known, and takes the texts of those that show a post whose text
    /// retention took; how many.
    async fn learn_what_is_shown(
        tx: &mut Transaction<'static, DB>,
        shows: &[(Fullname, Vec<Fullname>)],
        now: Timestamp,
    ) -> Result<u64> {
        const WHAT: &str = "store what crossposts show";
        let mut late = Vec::new();
        for (name, parents) in shows {
            // The first one is the post whose text the crosspost shows.
            let Some(parent) = parents.first() else {
                continue;
            };
            let learned = sqlx::query::<DB>(
                "UPDATE posts SET crosspost_parent = $2 \
                  WHERE fullname = $1 AND COALESCE(crosspost_parent, '') <> $2",
            )
            .bind(name.as_str())
            .bind(parent.as_str())
            .execute(&mut **tx)
            .await
            .doing(WHAT)?;
            if DB::rows_affected(&learned) == 0 {
                continue;
            }
            let taken = sqlx::query::<DB>(
                "SELECT 1 FROM posts WHERE fullname = $1 AND text_purged_at IS NOT NULL",
            )
            .bind(parent.as_str())
            .fetch_optional(&mut **tx)
            .await
            .doing(WHAT)?;
            if taken.is_some() {
                late.push(name.as_str());
            }
        }
        Self::take_texts(tx, &late, now).await
    }

    /// Deletes crossposts of what is purged, and leaves tombstones of those that were there; how many.
    pub(super) async fn purge_crossposts(
        tx: &mut Transaction<'static, DB>,
        run: RunId,
        crossposts: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<u64> {
        let crossposts: Vec<&str> = crossposts.iter().map(String::as_str).collect();
        let mut purged = 0;
        for chunk in crossposts.chunks(POSTS_A_STATEMENT) {
            let deleted = Self::delete_posts(tx, chunk).await?;
            if deleted.is_empty() {
                continue;
            }
            purged += deleted.len() as u64;
            let gone = deleted
                .iter()
                .map(|name| (name.as_str(), PurgeReason::ParentPurged));
            Self::leave_tombstones(tx, run, &gone.collect::<Vec<_>>(), now).await?;
        }
        Ok(purged)
    }

    pub(super) async fn lock_tombstones(tx: &mut Transaction<'static, DB>) -> Result<()> {
        if let Some(lock) = DB::LOCK_TOMBSTONES {
            sqlx::query::<DB>(lock)
                .execute(&mut **tx)
                .await
                .doing("keep others from storing posts")?;
        }
        Ok(())
    }

    /// The posts that show any of these, and those that show them in turn.
    pub(super) async fn crossposts_of(
        tx: &mut Transaction<'static, DB>,
        shown: impl Iterator<Item = &str>,
    ) -> Result<BTreeSet<String>> {
        let find = format!(
            "SELECT fullname FROM posts WHERE crosspost_parent IN {}",
            DB::AMONG
        );
        let mut found = BTreeSet::new();
        let mut shown = names(shown);
        loop {
            let next: Vec<String> = sqlx::query_scalar::<DB, _>(AssertSqlSafe(find.clone()))
                .bind(shown.as_str())
                .fetch_all(&mut **tx)
                .await
                .doing("find crossposts")?;
            let next: Vec<String> = next
                .into_iter()
                .filter(|name| found.insert(name.clone()))
                .collect();
            if next.is_empty() {
                return Ok(found);
            }
            shown = names(next.iter().map(String::as_str));
        }
    }

    /// Locks posts, those that are there, before any of them is changed. See [`Dialect::LOCK_POSTS`].
    pub(super) async fn lock_posts(
        tx: &mut Transaction<'static, DB>,
        posts: impl Iterator<Item = &str>,
    ) -> Result<()> {
        // SQLite has one writer at a time, so the statement would read the posts for nothing.
        if DB::LOCK_POSTS.is_empty() {
            return Ok(());
        }
        let lock = format!(
            "SELECT 1 FROM posts WHERE fullname IN {} ORDER BY fullname {}",
            DB::AMONG,
            DB::LOCK_POSTS
        );
        let among = names(posts);
        sqlx::query::<DB>(AssertSqlSafe(lock))
            .bind(among.as_str())
            .execute(&mut **tx)
            .await
            .done("lock posts")
    }

    /// Takes posts out of the backlog, whoever holds them.
    pub(super) async fn take_from_workers(
        tx: &mut Transaction<'static, DB>,
        fullnames: &[&str],
    ) -> Result<()> {
        let mut delete = QueryBuilder::<DB>::new("DELETE FROM backlog WHERE fullname IN (");
        push_list(&mut delete, fullnames.iter().copied());
        let deleted = delete.build().execute(&mut **tx).await;
        deleted.done("take posts out of the backlog")
    }

    /// Deletes posts with all that was made of them; those that were there.
    async fn delete_posts(
        tx: &mut Transaction<'static, DB>,
        fullnames: &[&str],
    ) -> Result<Vec<String>> {
        const WHAT: &str = "purge posts";
        let mut select = QueryBuilder::<DB>::new("SELECT text_hash FROM posts WHERE fullname IN (");
        push_list(&mut select, fullnames.iter().copied());
        // Read before the posts go: afterwards nobody knows which texts they had.
        let mut hashes = Self::hashes(tx, select).await?;
        // And of earlier texts that were scored.
        let mut scored =
            QueryBuilder::<DB>::new("SELECT text_hash FROM classifications WHERE fullname IN (");
        push_list(&mut scored, fullnames.iter().copied());
        hashes.extend(Self::hashes(tx, scored).await?);

        Self::take_from_workers(tx, fullnames).await?;
        // Sightings, classifications and scores go with the post by their foreign keys.
        let mut delete = QueryBuilder::<DB>::new("DELETE FROM posts WHERE fullname IN (");
        push_list(&mut delete, fullnames.iter().copied());
        delete.push(" RETURNING fullname");
        let purged = delete
            .build()
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing(WHAT)?;
        let hashes: Vec<&[u8]> = hashes.iter().map(Vec::as_slice).collect();
        Self::forget_logits(tx, &hashes).await?;
        Ok(purged)
    }

    /// Deletes what models said of texts that no labelled post has any more. Labels have the index of texts: in an
    /// index of posts, a hash would change a page of its own for each post that is stored. A post without a label is
    /// scored anew.
    pub(super) async fn forget_logits(
        tx: &mut Transaction<'static, DB>,
        texts: &[&[u8]],
    ) -> Result<()> {
        for chunk in texts.chunks(ROWS_A_STATEMENT) {
            // `model_id IN (SELECT …)` changes nothing in the result. It lets both databases search the primary key,
            // which begins with the model, instead of reading the whole table.
            let mut delete = QueryBuilder::<DB>::new(
                "DELETE FROM pair_logits WHERE model_id IN (SELECT id FROM models) AND NOT EXISTS ( \
                   SELECT 1 FROM classifications c CROSS JOIN posts p WHERE c.text_hash = pair_logits.text_hash AND c.text_hash >= '' \
                      AND p.fullname = c.fullname AND p.text_hash = c.text_hash) AND text_hash IN (",
            );
            push_list(&mut delete, chunk.iter().copied());
            let deleted = delete.build().execute(&mut **tx).await;
            deleted.doing("forget what models said of texts that are gone")?;
        }
        Self::forget_vectors(tx, texts).await
    }

    /// Deletes the vectors of texts that no labelled post has any more. A vector says more of a text than logits do:
    /// retention takes it, too.
    pub(super) async fn forget_vectors(
        tx: &mut Transaction<'static, DB>,
        texts: &[&[u8]],
    ) -> Result<()> {
        for chunk in texts.chunks(ROWS_A_STATEMENT) {
            let mut delete = QueryBuilder::<DB>::new(
                "DELETE FROM text_vectors WHERE model_id IN (SELECT id FROM models) AND NOT EXISTS ( \
                   SELECT 1 FROM classifications c CROSS JOIN posts p WHERE c.text_hash = text_vectors.text_hash AND c.text_hash >= '' \
                      AND p.fullname = c.fullname AND p.text_hash = c.text_hash AND p.text_purged_at IS NULL) \
                    AND text_hash IN (",
            );
            push_list(&mut delete, chunk.iter().copied());
            let deleted = delete.build().execute(&mut **tx).await;
            deleted.doing("forget the vectors of texts that are gone")?;
        }
        Ok(())
    }

    async fn leave_tombstones(
        tx: &mut Transaction<'static, DB>,
        run: RunId,
        gone: &[(&str, PurgeReason)],
        now: Timestamp,
    ) -> Result<()> {
        let mut insert = QueryBuilder::<DB>::new(
            "INSERT INTO tombstones (fullname, reason, purged_at, run_id) ",
        );
        insert.push_values(gone, |mut row, (fullname, reason)| {
            row.push_bind(*fullname)
                .push_bind(reason.as_str())
                .push_bind(now)
                .push_bind(run.0);
        });
        // What may be lifted gives way to what may not, never the other way round.
        insert.push(
            " ON CONFLICT (fullname) DO UPDATE SET reason = excluded.reason \
               WHERE tombstones.reason IN ('removed', 'missing', 'shown')",
        );
        let left = insert.build().execute(&mut **tx).await;
        left.done("leave tombstones")
    }

    pub(super) async fn hashes(
        tx: &mut Transaction<'static, DB>,
        mut query: QueryBuilder<DB>,
    ) -> Result<Vec<Vec<u8>>> {
        query
            .build()
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing("read the hashes of purged texts")
    }

    /// Bytes of what this transaction takes may linger in the files.
    pub(super) async fn note_rewrite_due(tx: &mut Transaction<'static, DB>) -> Result<()> {
        let noted = Self::note_anew(tx, REWRITE_DUE).await;
        noted.doing("note that the files are to be rewritten")
    }
}
