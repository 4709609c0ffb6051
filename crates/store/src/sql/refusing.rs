//! Rejects what must not be stored again: purged posts, posts that show these, and texts that retention deleted.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::{AssertSqlSafe, Row as _, Transaction};

use super::super::Result;
use super::super::dialect::Dialect;
use super::arriving::{Row, names};
use super::{Doing, SqlStore, is_older};
use topicmill_core::PurgeReason;

impl<DB: Dialect> SqlStore<DB> {
    /// Returns the posts, and the posts that crossposts among them show, that were purged and stay so. Removes a
    /// tombstone if Reddit itself shows the post again.
    pub(super) async fn tombstoned(
        tx: &mut Transaction<'static, DB>,
        rows: &[&Row<'_>],
    ) -> Result<HashSet<String>> {
        const WHAT: &str = "look up purged posts";
        // In order for two writers that meet; and the lock keeps a purge from coming in between.
        let known = format!(
            "SELECT fullname, reason FROM tombstones WHERE fullname IN {} ORDER BY fullname {}",
            DB::AMONG,
            DB::FOR_UPDATE
        );
        // The posts that crossposts show are asked for, too: a purged post must not come back inside another one.
        let among = names(rows.iter().flat_map(|row| row.names()));
        let rows_found = sqlx::query::<DB>(AssertSqlSafe(known))
            .bind(among)
            .fetch_all(&mut **tx)
            .await
            .doing(WHAT)?;
        if rows_found.is_empty() {
            return Ok(HashSet::new());
        }
        // Only Reddit itself says that a post is there again. A file may be older than the purge.
        let mut alive: HashMap<&str, Option<&str>> = rows
            .iter()
            .filter(|row| row.post.source.is_live() && !row.post.removed)
            .map(|row| (row.post.fullname.as_str(), row.shown()))
            .collect();
        let (mut stay, mut lifted) = (HashSet::new(), Vec::new());
        for row in &rows_found {
            let fullname: String = row.try_get(0).doing(WHAT)?;
            let reason: String = row.try_get(1).doing(WHAT)?;
            let lifts = reason.parse().is_ok_and(PurgeReason::is_reversible);
            if lifts && alive.contains_key(fullname.as_str()) {
                lifted.push(fullname);
            } else {
                stay.insert(fullname);
            }
        }
        // A crosspost stays away as long as anything does that it shows, however it is found out.
        while let Some(at) = lifted.iter().position(|name| {
            let shown = alive.get(name.as_str()).copied().flatten();
            shown.is_some_and(|shown| stay.contains(shown))
        }) {
            let fullname = lifted.swap_remove(at);
            alive.remove(fullname.as_str());
            stay.insert(fullname);
        }
        if !lifted.is_empty() {
            let delete = format!("DELETE FROM tombstones WHERE fullname IN {}", DB::AMONG);
            sqlx::query::<DB>(AssertSqlSafe(delete))
                .bind(names(lifted.iter().map(String::as_str)))
                .execute(&mut **tx)
                .await
                .doing("lift tombstones")?;
        }
        Ok(stay)
    }

    /// Purges stored posts that turn out to show a post that was purged, and the crossposts of these; how many stay.
    ///
    /// A post that Reddit itself showed is not purged because of a file or an archive, which may be wrong: the next
    /// `purge --check-deleted` asks Reddit about it first.
    pub(super) async fn purge_late_crossposts(
        tx: &mut Transaction<'static, DB>,
        refused: &[&Row<'_>],
        purged: &HashSet<String>,
    ) -> Result<u64> {
        let late = refused
            .iter()
            .filter(|row| row.shown().is_some_and(|shown| purged.contains(shown)));
        let late: BTreeMap<&str, &Row<'_>> =
            late.map(|row| (row.post.fullname.as_str(), *row)).collect();
        // Any of the pages will do: all pages of a block are of one run and of one moment.
        let Some(page) = late.values().next().map(|row| row.page) else {
            return Ok(0);
        };
        let stored = format!(
            "SELECT fullname, source FROM posts WHERE fullname IN {}",
            DB::AMONG
        );
        let stored: Vec<(String, String)> = sqlx::query::<DB>(AssertSqlSafe(stored))
            .bind(names(late.keys().copied()))
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| {
                let decode = |row: &DB::Row| Ok((row.try_get(0)?, row.try_get(1)?));
                rows.iter().map(decode).collect()
            })
            .doing("look up crossposts of purged posts")?;
        let (stay, gone): (Vec<_>, Vec<_>) = stored
            .into_iter()
            .partition(|(fullname, source)| is_older(&late[fullname.as_str()].post, source));
        let fullname = |(fullname, _): (String, String)| fullname;
        let stay: Vec<String> = stay.into_iter().map(fullname).collect();
        if !gone.is_empty() {
            // As a purge does: nobody else may store one of them meanwhile who has seen no tombstone.
            Self::lock_tombstones(tx).await?;
            let gone: Vec<String> = gone.into_iter().map(fullname).collect();
            let mut out = Self::crossposts_of(tx, gone.iter().map(String::as_str)).await?;
            out.extend(gone);
            Self::lock_posts(tx, out.iter().map(String::as_str)).await?;
            Self::purge_crossposts(tx, page.run, &out, page.now).await?;
            Self::note_rewrite_due(tx).await?;
        }
        if !stay.is_empty() {
            Self::check_again(tx, &stay).await?;
        }
        Ok(stay.len() as u64)
    }

    /// Has the next question to Reddit begin with these posts.
    async fn check_again(tx: &mut Transaction<'static, DB>, fullnames: &[String]) -> Result<()> {
        let update = format!(
            "UPDATE posts SET checked_at = NULL WHERE fullname IN {}",
            DB::AMONG
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(names(fullnames.iter().map(String::as_str)))
            .execute(&mut **tx)
            .await
            .done("note that Reddit is to be asked")
    }

    /// Returns the posts shown by crossposts whose text retention deleted.
    pub(super) async fn without_text(
        tx: &mut Transaction<'static, DB>,
        rows: &[&Row<'_>],
    ) -> Result<HashSet<String>> {
        let shown: Vec<&str> = rows.iter().filter_map(|row| row.shown()).collect();
        if shown.is_empty() {
            return Ok(HashSet::new());
        }
        let taken = format!(
            "SELECT fullname FROM posts WHERE text_purged_at IS NOT NULL AND fullname IN {}",
            DB::AMONG
        );
        sqlx::query_scalar::<DB, _>(AssertSqlSafe(taken))
            .bind(names(shown.into_iter()))
            .fetch_all(&mut **tx)
            .await
            .map(HashSet::from_iter)
            .doing("look up posts that crossposts show")
    }

    /// Takes the address of what they show out of crossposts, which an absent one does not erase; whether any had one.
    pub(super) async fn forget_addresses(
        tx: &mut Transaction<'static, DB>,
        crossposts: &[&str],
    ) -> Result<bool> {
        let update = format!(
            "UPDATE posts SET url = NULL WHERE url IS NOT NULL AND fullname IN {}",
            DB::AMONG
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(names(crossposts.iter().copied()))
            .execute(&mut **tx)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .doing("take addresses out of crossposts")
    }
}
