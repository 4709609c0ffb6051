//! Rejects posts that must not be stored again: purged posts, their crossposts, and text that retention deleted.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::AssertSqlSafe;

use super::post_rows::{Row, json_array};
use super::{ErrorContext, SqlStore, Tx, yields_to_stored};
use crate::dialect::Dialect;
use crate::{Purged, Result};
use topicmill_core::{Fullname, PurgeReason};

/// Numbers of stored posts that turned out to show a purged post.
#[derive(Default)]
pub(super) struct LateCrossposts {
    pub kept: u64,
    /// With their own crossposts.
    pub purged: u64,
}

impl<DB: Dialect> SqlStore<DB> {
    /// Returns the fullnames of purged posts among the given posts and the posts that they show. Removes a reversible
    /// tombstone if Reddit itself returns the post again.
    pub(super) async fn tombstoned(tx: &mut Tx<DB>, rows: &[Row<'_>]) -> Result<HashSet<String>> {
        // Ordered, to avoid deadlocks; locked, so that no purge happens in between.
        let select = format!(
            "SELECT fullname, reason FROM tombstones WHERE fullname IN {} ORDER BY fullname {}",
            DB::IN_JSON_ARRAY,
            DB::FOR_UPDATE
        );
        // Includes the posts that crossposts show, so that a purged post does not return inside another one.
        let names = json_array(rows.iter().flat_map(Row::names));
        let tombstones: Vec<(String, String)> = sqlx::query_as::<DB, _>(AssertSqlSafe(select))
            .bind(names)
            .fetch_all(&mut **tx)
            .await
            .context("look up purged posts")?;
        if tombstones.is_empty() {
            return Ok(HashSet::new());
        }
        // A file may be older than the purge, so only Reddit itself can restore a post.
        let visible: HashMap<&str, Option<&str>> = rows
            .iter()
            .filter(|row| row.post.source.is_live() && row.post.removal.is_none())
            .map(|row| (row.post.fullname.as_str(), row.shown()))
            .collect();
        let (mut purged, mut restored) = (HashSet::new(), Vec::new());
        for (fullname, reason) in tombstones {
            let is_reversible = reason.parse().is_ok_and(PurgeReason::is_reversible);
            if is_reversible && visible.contains_key(fullname.as_str()) {
                restored.push(fullname);
            } else {
                purged.insert(fullname);
            }
        }
        // A crosspost remains purged as long as the post that it shows is purged.
        while let Some(n) = restored.iter().position(|name: &String| {
            let shown = visible[name.as_str()];
            shown.is_some_and(|shown| purged.contains(shown))
        }) {
            purged.insert(restored.swap_remove(n));
        }
        if !restored.is_empty() {
            let delete = "DELETE FROM tombstones WHERE fullname IN";
            let restored = restored.iter().map(String::as_str);
            Self::change_posts(tx, delete, restored, "remove tombstones").await?;
        }
        Ok(purged)
    }

    /// Purges stored posts that their rows report as deleted or removed, with their crossposts. Returns the number of
    /// purged posts of these rows and of others.
    ///
    /// A post that was stored after its removal stays, because it has no text.
    pub(super) async fn purge_reported(tx: &mut Tx<DB>, rows: &[Row<'_>]) -> Result<Purged> {
        let reported: BTreeMap<&str, PurgeReason> = rows
            .iter()
            .filter_map(|row| Some((row.post.fullname.as_str(), row.post.removal?)))
            .collect();
        // All rows have the same run and time.
        let (Some(Row { page, .. }), false) = (rows.first(), reported.is_empty()) else {
            return Ok(Purged::default());
        };
        let select = "SELECT fullname FROM things \
                       WHERE (has_text OR text_purged_at IS NOT NULL OR context_purged) AND fullname IN";
        let what = "look up posts that were deleted";
        let stored = Self::select_posts(tx, select, reported.keys().copied(), what).await?;
        if stored.is_empty() {
            return Ok(Purged::default());
        }
        let gone: BTreeMap<&str, PurgeReason> = stored
            .iter()
            .map(|fullname| (fullname.as_str(), reported[fullname.as_str()]))
            .collect();
        Self::lock_tombstones(tx).await?;
        let crossposts = Self::crossposts_of(tx, gone.keys().copied()).await?;
        let crosspost_names = crossposts.iter().map(String::as_str);
        Self::lock_posts(tx, gone.keys().copied().chain(crosspost_names)).await?;
        let purged = Self::purge_posts(tx, page.run, &gone, crossposts, page.now).await?;
        Self::mark_rewrite_due(tx).await?;
        Ok(purged)
    }

    /// Purges stored posts that turn out to show a purged post, with their crossposts.
    ///
    /// Keeps a post that came from Reddit itself if a file or an archive now names a purged parent, because files and
    /// archives may be wrong. The next `purge --check-deleted` checks such posts first.
    pub(super) async fn purge_late_crossposts(
        tx: &mut Tx<DB>,
        refused: &[Row<'_>],
        tombstoned: &HashSet<String>,
    ) -> Result<LateCrossposts> {
        let late: BTreeMap<&str, &Row<'_>> = refused
            .iter()
            .filter(|row| row.shown().is_some_and(|shown| tombstoned.contains(shown)))
            .map(|row| (row.post.fullname.as_str(), row))
            .collect();
        // All pages in a block have the same run and time.
        let Some(Row { page, .. }) = late.values().next() else {
            return Ok(LateCrossposts::default());
        };
        let select = format!(
            "SELECT fullname, source FROM things WHERE fullname IN {}",
            DB::IN_JSON_ARRAY
        );
        let stored: Vec<(String, String)> = sqlx::query_as::<DB, _>(AssertSqlSafe(select))
            .bind(json_array(late.keys().copied()))
            .fetch_all(&mut **tx)
            .await
            .context("look up crossposts of purged posts")?;
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for (fullname, source) in stored {
            if yields_to_stored(late[fullname.as_str()].post, &source) {
                kept.push(fullname);
            } else {
                gone.push(fullname);
            }
        }
        let mut purged = 0;
        if !gone.is_empty() {
            // The lock prevents others from storing one of them in the meantime without seeing the tombstone.
            Self::lock_tombstones(tx).await?;
            let mut crossposts = Self::crossposts_of(tx, gone.iter().map(String::as_str)).await?;
            crossposts.extend(gone);
            Self::lock_posts(tx, crossposts.iter().map(String::as_str)).await?;
            purged = Self::purge_crossposts(tx, page.run, &crossposts, page.now).await?;
            Self::mark_rewrite_due(tx).await?;
        }
        if !kept.is_empty() {
            // The next check with Reddit then begins with these posts.
            let update = "UPDATE things SET checked_at = NULL WHERE fullname IN";
            let what = "mark posts for a check with Reddit";
            Self::change_posts(tx, update, kept.iter().map(String::as_str), what).await?;
        }
        Ok(LateCrossposts {
            kept: kept.len() as u64,
            purged,
        })
    }

    /// Returns the posts among these whose text retention deleted.
    pub(super) async fn without_text(tx: &mut Tx<DB>, shown: &[&str]) -> Result<HashSet<String>> {
        if shown.is_empty() {
            return Ok(HashSet::new());
        }
        let select = "SELECT fullname FROM things WHERE text_purged_at IS NOT NULL AND fullname IN";
        let what = "look up posts that crossposts show";
        Self::select_posts(tx, select, shown.iter().copied(), what)
            .await
            .map(HashSet::from_iter)
    }

    /// Returns the titles of the posts that comments are on, by fullname, if comments are stored with them. No purge
    /// happens in between, because the transaction has locked tombstones.
    pub(super) async fn titles_of_posts(
        &self,
        tx: &mut Tx<DB>,
        rows: &[Row<'_>],
    ) -> Result<HashMap<String, String>> {
        let posts = rows.iter().filter_map(|row| row.post.reply.post.as_ref());
        let posts: HashSet<&str> = posts.map(Fullname::as_str).collect();
        if !self.reads_titles || posts.is_empty() {
            return Ok(HashMap::new());
        }
        let select = format!(
            "SELECT fullname, title FROM things WHERE kind = 'post' AND fullname IN {}",
            DB::IN_JSON_ARRAY
        );
        let stored: Vec<(String, String)> = sqlx::query_as::<DB, _>(AssertSqlSafe(select))
            .bind(json_array(posts.iter().copied()))
            .fetch_all(&mut **tx)
            .await
            .context("look up the posts of comments")?;
        let new = rows
            .iter()
            .filter(|row| posts.contains(row.post.fullname.as_str()));
        let new = new.map(|row| (row.post.fullname.to_string(), row.post.title.clone()));
        // A stored title counts, because retention may have deleted it.
        let mut titles: HashMap<String, String> = new.chain(stored).collect();
        titles.retain(|_, title| !title.is_empty());
        Ok(titles)
    }

    /// Deletes the URLs of crossposts, because an upsert without a URL keeps the stored one. Returns true if any
    /// crosspost had a URL.
    pub(super) async fn clear_urls(tx: &mut Tx<DB>, crossposts: &[&str]) -> Result<bool> {
        let update = "UPDATE things SET url = NULL WHERE url IS NOT NULL AND fullname IN";
        let what = "delete URLs of crossposts";
        Self::change_posts(tx, update, crossposts.iter().copied(), what)
            .await
            .map(|cleared| cleared > 0)
    }
}
