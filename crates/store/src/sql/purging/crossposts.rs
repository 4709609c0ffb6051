//! Finds and purges crossposts, which show the text of another post.

use std::collections::{BTreeMap, BTreeSet};

use crate::dialect::Dialect;
use crate::sql::{ErrorContext, POSTS_A_STATEMENT, SqlStore, Tx};
use crate::{Result, RunId};
use topicmill_core::{Fullname, PurgeReason, Timestamp};

impl<DB: Dialect> SqlStore<DB> {
    /// Returns the crossposts of posts that are gone or purged, according to Reddit's response.
    pub(super) async fn reported_crossposts<'c>(
        tx: &mut Tx<DB>,
        gone: &BTreeMap<&str, PurgeReason>,
        crossposts: &'c [(Fullname, Vec<Fullname>)],
    ) -> Result<BTreeSet<&'c str>> {
        if crossposts.is_empty() {
            return Ok(BTreeSet::new());
        }
        let select = "SELECT fullname FROM tombstones WHERE fullname IN";
        let parents = crossposts.iter().flat_map(|(_, parents)| parents);
        let parents = parents.map(Fullname::as_str);
        let purged = Self::select_posts(tx, select, parents, "look up purged posts").await?;
        let purged: BTreeSet<String> = purged.into_iter().collect();
        let is_purged =
            |name: &Fullname| purged.contains(name.as_str()) || gone.contains_key(name.as_str());
        let crossposts = crossposts.iter();
        let reported = crossposts.filter(|(_, parents)| parents.iter().any(is_purged));
        Ok(reported.map(|(name, _)| name.as_str()).collect())
    }

    /// Stores the parents of crossposts and deletes the text of crossposts whose parent lost its text to retention.
    /// Returns the number of texts.
    pub(super) async fn record_parents(
        tx: &mut Tx<DB>,
        crossposts: &[(Fullname, Vec<Fullname>)],
        now: Timestamp,
    ) -> Result<u64> {
        const WHAT: &str = "store the parents of crossposts";
        let mut textless = Vec::new();
        for (name, parents) in crossposts {
            // The first parent is the post whose text the crosspost shows.
            let Some(parent) = parents.first() else {
                continue;
            };
            let updated = sqlx::query::<DB>(
                "UPDATE things SET crosspost_parent = $2 \
                  WHERE fullname = $1 AND COALESCE(crosspost_parent, '') <> $2",
            )
            .bind(name.as_str())
            .bind(parent.as_str())
            .execute(&mut **tx)
            .await
            .context(WHAT)?;
            if DB::rows_affected(&updated) == 0 {
                continue;
            }
            let purged_parent = sqlx::query::<DB>(
                "SELECT 1 FROM things WHERE fullname = $1 AND text_purged_at IS NOT NULL",
            )
            .bind(parent.as_str())
            .fetch_optional(&mut **tx)
            .await
            .context(WHAT)?;
            if purged_parent.is_some() {
                textless.push(name.as_str());
            }
        }
        let deleted = Self::delete_texts(tx, &textless, now).await?;
        Self::delete_vectors(tx, &textless).await?;
        Ok(deleted)
    }

    /// Deletes crossposts of purged posts and writes tombstones for the ones that were stored. Returns how many.
    pub(in crate::sql) async fn purge_crossposts(
        tx: &mut Tx<DB>,
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
            let why = PurgeReason::ParentPurged;
            let gone: Vec<_> = deleted.iter().map(|name| (name.as_str(), why)).collect();
            Self::write_tombstones(tx, run, &gone, now).await?;
        }
        Ok(purged)
    }

    /// Returns the crossposts of posts, the crossposts of these crossposts, and so on.
    pub(in crate::sql) async fn crossposts_of(
        tx: &mut Tx<DB>,
        shown: impl Iterator<Item = &str>,
    ) -> Result<BTreeSet<String>> {
        const SELECT: &str = "SELECT fullname FROM things WHERE crosspost_parent IN";
        const WHAT: &str = "find crossposts";
        let mut found = BTreeSet::new();
        let mut next = Self::select_posts(tx, SELECT, shown, WHAT).await?;
        loop {
            next.retain(|name| found.insert(name.clone()));
            if next.is_empty() {
                return Ok(found);
            }
            let shown = next.iter().map(String::as_str);
            next = Self::select_posts(tx, SELECT, shown, WHAT).await?;
        }
    }
}
