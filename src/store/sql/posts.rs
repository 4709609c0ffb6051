//! Posts as pages and blocks bring them, sightings, and how far a source was read.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{
    AssertSqlSafe, ColumnIndex, Decode, Encode, Executor, IntoArguments, Row as _, Transaction,
    Type,
};

use super::super::bulk::{Insert, Values};
use super::super::dialect::Dialect;
use super::super::failure::{Attempts, is_taken};
use super::super::{ImportState, Page, Result, RunId, Upserted};
use super::work::OTHER_TEXT;
use super::{Doing, SqlStore, at, count, is_older};
use crate::domain::{Fullname, Listing, Post, PurgeReason, SourceKind, TextHash, Timestamp};

/// What becomes of a post that is known.
///
/// A file or an archive is older than what Reddit told, and changes nothing of it. Of two of them, one may
/// leave out what the other knew, so an absent value does not erase a stored one, nor does a placeholder
/// erase a score; but where Reddit itself shows no author any more, or a removed post again, it is
/// followed. What retention took does not come back, and the hash of the text that was labelled stays.
static ON_KNOWN_POST: LazyLock<String> = LazyLock::new(|| {
    let live = live_sources();
    format!(
        " ON CONFLICT (fullname) DO UPDATE SET subreddit = excluded.subreddit, \
     topic = COALESCE(excluded.topic, posts.topic), \
     title = CASE WHEN posts.text_purged_at IS NULL THEN excluded.title ELSE posts.title END, \
     selftext = CASE WHEN posts.text_purged_at IS NULL THEN excluded.selftext ELSE posts.selftext END, \
     crosspost_parent = CASE WHEN excluded.source IN {live} THEN excluded.crosspost_parent \
       ELSE COALESCE(excluded.crosspost_parent, posts.crosspost_parent) END, \
     url = CASE WHEN posts.text_purged_at IS NULL THEN COALESCE(excluded.url, posts.url) END, \
     permalink = CASE WHEN posts.text_purged_at IS NULL \
       THEN COALESCE(excluded.permalink, posts.permalink) END, \
     author = CASE WHEN posts.text_purged_at IS NOT NULL THEN NULL \
       WHEN excluded.source NOT IN {live} THEN COALESCE(excluded.author, posts.author) \
       ELSE excluded.author END, \
     reddit_score = CASE WHEN excluded.reddit_score_is_placeholder AND NOT posts.reddit_score_is_placeholder \
       THEN COALESCE(posts.reddit_score, excluded.reddit_score) \
       ELSE COALESCE(excluded.reddit_score, posts.reddit_score) END, \
     upvote_ratio = CASE WHEN excluded.reddit_score_is_placeholder AND NOT posts.reddit_score_is_placeholder \
       THEN COALESCE(posts.upvote_ratio, excluded.upvote_ratio) \
       ELSE COALESCE(excluded.upvote_ratio, posts.upvote_ratio) END, \
     num_comments = CASE WHEN excluded.reddit_score_is_placeholder AND NOT posts.reddit_score_is_placeholder \
       THEN COALESCE(posts.num_comments, excluded.num_comments) \
       ELSE COALESCE(excluded.num_comments, posts.num_comments) END, \
     reddit_score_is_placeholder = CASE WHEN excluded.reddit_score IS NULL THEN posts.reddit_score_is_placeholder \
       ELSE excluded.reddit_score_is_placeholder \
         AND (posts.reddit_score_is_placeholder OR posts.reddit_score IS NULL) END, \
     flair = CASE WHEN posts.text_purged_at IS NULL THEN COALESCE(excluded.flair, posts.flair) END, \
     over_18 = excluded.over_18, is_self = excluded.is_self, source = excluded.source, \
     text_hash = CASE WHEN posts.text_purged_at IS NULL THEN excluded.text_hash \
       ELSE posts.text_hash END, is_escaped = FALSE, \
     created_at = excluded.created_at, updated_at = excluded.updated_at, \
     removed_at = CASE WHEN excluded.removed_at IS NULL AND excluded.source IN {live} THEN NULL \
       ELSE COALESCE(posts.removed_at, excluded.removed_at) END, \
     checked_at = CASE WHEN excluded.removed_at IS NOT NULL THEN NULL \
       ELSE COALESCE(excluded.checked_at, posts.checked_at) END \
     WHERE excluded.source IN {live} OR posts.source NOT IN {live}"
    )
});

/// The sources that show what is on Reddit now, as a list in SQL.
fn live_sources() -> String {
    let live = SourceKind::ALL.iter().filter(|kind| kind.is_live());
    let quoted: Vec<String> = live.map(|kind| format!("'{kind}'")).collect();
    format!("({})", quoted.join(", "))
}

impl<DB> SqlStore<DB>
where
    DB: Dialect,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: IntoArguments<DB>,
    for<'q> i64: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> Option<i64>: Encode<'q, DB> + Decode<'q, DB>,
    for<'q> f64: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> Option<f64>: Encode<'q, DB>,
    for<'q> bool: Encode<'q, DB> + Type<DB>,
    for<'q> DateTime<Utc>: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> Option<DateTime<Utc>>: Encode<'q, DB> + Decode<'q, DB>,
    for<'q> &'q str: Encode<'q, DB> + Type<DB>,
    for<'q> Option<&'q str>: Encode<'q, DB>,
    for<'q> String: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> &'q [u8]: Encode<'q, DB> + Type<DB>,
    for<'q> Vec<u8>: Decode<'q, DB> + Type<DB>,
    usize: ColumnIndex<DB::Row>,
{
    pub(in crate::store) async fn save_page(&self, page: &Page<'_>) -> Result<Upserted> {
        self.save_block(std::slice::from_ref(page), None).await
    }

    pub(in crate::store) async fn save_block(
        &self,
        pages: &[Page<'_>],
        state: Option<&ImportState>,
    ) -> Result<Upserted> {
        // Outside the loop: sorting is the same in each attempt.
        let rows = rows_of(pages);
        let mut attempts = Attempts::default();
        let mut apart = true;
        loop {
            match self.try_save_block(pages, &rows, state, apart).await {
                // Another writer stored one of the new posts meanwhile: now it is known, and may be one more time.
                Err(error) if apart && is_taken(&error) => apart = false,
                Err(error) if attempts.again(&error) => {}
                done => return done,
            }
        }
    }

    async fn try_save_block(
        &self,
        pages: &[Page<'_>],
        rows: &[Row<'_>],
        state: Option<&ImportState>,
        apart: bool,
    ) -> Result<Upserted> {
        let mut tx = self.begin().await?;
        let mut upserted = Upserted::default();
        let mut rounds = Vec::new();
        let mut pending: Vec<&Row<'_>> = rows.iter().collect();
        while !pending.is_empty() {
            // One statement may not touch a row twice: what is on a second page comes after it.
            let mut round: Vec<&Row<'_>> = Vec::with_capacity(pending.len());
            let mut again = Vec::new();
            for row in pending {
                match round.last() {
                    Some(last) if last.post.fullname == row.post.fullname => again.push(row),
                    _ => round.push(row),
                }
            }
            // Tombstones are locked before posts, as a purge locks them.
            let purged = Self::tombstoned(&mut tx, &round).await?;
            // Nor what shows a post that was purged; where an earlier version stored it, it was not known to.
            let refused = round.extract_if(.., |row| row.names().any(|name| purged.contains(name)));
            let refused: Vec<&Row<'_>> = refused.collect();
            let stay = Self::purge_late_crossposts(&mut tx, &refused, &purged).await?;
            upserted.tombstoned += refused.len() as u64 - stay;
            upserted.unchanged += stay;
            let taken = Self::without_text(&mut tx, &round).await?;
            let shown: Vec<Row<'_>> = round.iter().map(|row| row.without(&taken)).collect();
            let new = Self::upsert_posts(&mut tx, &shown, &taken, apart, &mut upserted).await?;
            rounds.push((round, new));
            pending = again;
        }
        // Only now, because another writer may wait for the posts in their order, and not for these.
        for (round, new) in &rounds {
            Self::insert_sightings(&mut tx, round, new).await?;
        }
        for page in pages {
            // Only a listing of Reddit or of an archive is read from a watermark on. A file stores its own state.
            if let (Some(topic), Some(_)) = (page.topic, page.listing) {
                Self::upsert_watermark(&mut tx, page, topic).await?;
            }
        }
        // In the same transaction as the posts: a process that dies never leaves a file marked as read whose
        // posts are missing.
        if let Some(state) = state {
            Self::upsert_import_state(&mut tx, state).await?;
        }
        tx.commit().await.doing("store a page of posts")?;
        Ok(upserted)
    }

    /// Which of the posts, and of those that crossposts among them show, were purged and stay so. A tombstone that
    /// Reddit itself belies is taken away.
    async fn tombstoned(
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
            let lifts = reason.parse().is_ok_and(PurgeReason::lifts);
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
    /// What Reddit itself showed is not purged on the word of a file or an archive, which may be wrong: Reddit is asked about
    /// it first by the next `purge --check-deleted`.
    async fn purge_late_crossposts(
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
            .doing("note that Reddit is to be asked")?;
        Ok(())
    }

    /// Which of the posts that crossposts show have lost their text to retention.
    async fn without_text(
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
        sqlx::query::<DB>(AssertSqlSafe(taken))
            .bind(names(shown.into_iter()))
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing("look up posts that crossposts show")
    }

    async fn upsert_import_state(
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
        .bind(at(state.updated_at))
        .bind(state.finished_at.map(at))
        .execute(&mut **tx)
        .await
        .doing("store how far the file was read")?;
        Ok(())
    }

    pub(in crate::store) async fn import_state(
        &self,
        file: &str,
        selection: &str,
    ) -> Result<Option<ImportState>> {
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
                updated_at: row.try_get::<DateTime<Utc>, _>(7)?.into(),
                finished_at: row
                    .try_get::<Option<DateTime<Utc>>, _>(8)?
                    .map(Timestamp::from),
            })
        };
        row.as_ref().map(decode).transpose().doing(WHAT)
    }

    /// Stores posts, none of them twice; which of them were new and stored apart from those that were known.
    ///
    /// Many new ones are stored `apart`, as fast as the database takes them; then it is an error where another writer
    /// stores one of them at the same time.
    async fn upsert_posts(
        tx: &mut Transaction<'static, DB>,
        rows: &[Row<'_>],
        taken: &HashSet<String>,
        apart: bool,
        upserted: &mut Upserted,
    ) -> Result<HashSet<Fullname>> {
        const STORE: &str = "store posts";
        // Read under a lock and before the upsert: afterwards nobody can say which texts were others.
        let fullnames: Vec<&str> = rows.iter().map(|row| row.post.fullname.as_str()).collect();
        let known = Self::known_among(tx, &fullnames, apart).await?;
        let (mut new, mut others) = (Vec::new(), Vec::new());
        let mut edited = Vec::new();
        let mut before_edits: Vec<&[u8]> = Vec::new();
        // Collected for a topic by a source that changes nothing of them.
        let mut for_topic: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let (mut as_before, mut show_taken, mut loses_text) = (Vec::new(), Vec::new(), false);
        for row in rows {
            let fullname = row.post.fullname.as_str();
            let Some(known) = known.get(fullname) else {
                new.push(row);
                continue;
            };
            others.push(row);
            if is_older(&row.post, &known.source) {
                if let Some(topic) = row.page.topic {
                    for_topic.entry(topic).or_default().push(fullname);
                }
                continue;
            }
            // Where retention took its text, it has none, whatever that is now.
            let Some(before) = &known.text_hash else {
                continue;
            };
            if row.shown().is_some_and(|shown| taken.contains(shown)) {
                show_taken.push(fullname);
                loses_text |= before != row.hash.as_bytes();
            }
            if before == row.hash.as_bytes() {
                as_before.push(fullname);
            } else {
                edited.push(fullname);
                before_edits.push(before);
            }
        }
        upserted.new += new.len() as u64;
        upserted.edited += edited.len() as u64;
        let apart = apart && new.len() >= DB::MANY_NEW;
        if apart {
            let insert = insert_posts(&new);
            DB::insert_new(&mut *tx, insert).await.doing(STORE)?;
        } else {
            // In the order of their names, as everybody stores posts.
            others = rows.iter().collect();
        }
        let insert = insert_posts(&others);
        DB::insert(&mut *tx, insert).await.doing(STORE)?;
        for (topic, fullnames) in for_topic {
            let update = format!(
                "UPDATE posts SET topic = $2 WHERE fullname IN {}",
                DB::AMONG
            );
            sqlx::query::<DB>(AssertSqlSafe(update))
                .bind(names(fullnames.into_iter()))
                .bind(topic)
                .execute(&mut **tx)
                .await
                .doing("store the topic of posts")?;
        }
        if !edited.is_empty() {
            if let Some(lock) = DB::LOCK_EDITS {
                // Two transactions may each edit away one of two posts with the same text. Without the lock, each
                // would still see the other one's old post, and nobody would delete the logits.
                let locked = sqlx::query::<DB>(lock).execute(&mut **tx).await;
                locked.doing("wait for others who edit posts")?;
            }
            // After the upsert, so that the posts have their new hashes when somebody looks who has the old one.
            Self::forget_logits(tx, &before_edits).await?;
            Self::forgive_failures(tx, &edited).await?;
        }
        if !as_before.is_empty() {
            Self::forgive_other_texts(tx, &as_before).await?;
        }
        if !show_taken.is_empty() {
            loses_text |= Self::forget_addresses(tx, &show_taken).await?;
        }
        if loses_text {
            Self::note_rewrite_due(tx).await?;
        }
        Self::count_changed(tx, &known, upserted).await?;
        if !apart {
            new.clear();
        }
        Ok(new.iter().map(|row| row.post.fullname.clone()).collect())
    }

    /// A text that somebody changed by hand is the one again that its hash says.
    async fn forgive_other_texts(
        tx: &mut Transaction<'static, DB>,
        restored: &[&str],
    ) -> Result<()> {
        let update = format!(
            "UPDATE backlog SET attempts = 0, deaths = 0, error = NULL WHERE error = $2 AND fullname IN {}",
            DB::AMONG
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(names(restored.iter().copied()))
            .bind(OTHER_TEXT)
            .execute(&mut **tx)
            .await
            .doing("forget that posts had another text")?;
        Ok(())
    }

    /// Takes the address of what they show out of crossposts, which an absent one does not erase; whether any had one.
    async fn forget_addresses(
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

    /// A text that changed may be scored where the old one failed.
    pub(super) async fn forgive_failures(
        tx: &mut Transaction<'static, DB>,
        changed: &[&str],
    ) -> Result<()> {
        let update = format!(
            "UPDATE backlog SET attempts = 0, deaths = 0, error = NULL \
              WHERE (attempts > 0 OR deaths > 0) AND fullname IN {}",
            DB::AMONG
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(names(changed.iter().copied()))
            .execute(&mut **tx)
            .await
            .doing("forget failures of changed posts")?;
        Ok(())
    }

    /// Stores where a run saw posts. Of a `new` post there is no sighting yet.
    async fn insert_sightings(
        tx: &mut Transaction<'static, DB>,
        round: &[&Row<'_>],
        new: &HashSet<Fullname>,
    ) -> Result<()> {
        const WHAT: &str = "store sightings";
        let seen = round.iter().filter_map(|row| Some((*row, row.page.topic?)));
        let (apart, others): (Vec<_>, Vec<_>) =
            seen.partition(|(row, _)| new.contains(&row.post.fullname));
        let insert = sightings(&apart);
        DB::insert_new(&mut *tx, insert).await.doing(WHAT)?;
        DB::insert(&mut *tx, sightings(&others)).await.doing(WHAT)
    }

    // The mark only grows, because two runs may end in either order. A mark in the future is the one that may
    // fall: otherwise, one wrong date would hide every later post.
    async fn upsert_watermark(
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
        .bind(at(page.now))
        .execute(&mut **tx)
        .await
        .doing("store the watermark")?;
        Ok(())
    }

    pub(in crate::store) async fn watermark(
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
    pub(in crate::store) async fn newest_before_future(
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
        .bind(at(latest))
        .fetch_one(&self.pool)
        .await
        .and_then(|row| row.try_get::<Option<DateTime<Utc>>, _>(0))
        .map(|time| time.map(Timestamp::from))
        .doing("find the newest post that was read")
    }

    pub(in crate::store) async fn author_key(&self) -> Result<String> {
        sqlx::query::<DB>("SELECT value FROM meta WHERE key = 'author_key'")
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row.try_get(0))
            .doing("read the key for author names")
    }
}

/// A post of a page.
pub(super) struct Row<'a> {
    page: &'a Page<'a>,
    post: Cow<'a, Post>,
    hash: TextHash,
    rank: Option<i64>,
}

impl<'a> Row<'a> {
    /// The post that a crosspost shows.
    fn shown(&self) -> Option<&str> {
        self.post.crosspost_parent.as_ref().map(Fullname::as_str)
    }

    /// Its key, and that of the post it shows.
    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.post.fullname.as_str()).chain(self.shown())
    }

    /// The same; but of a crosspost whose post has lost its text to retention only what is its own.
    fn without(&'a self, taken: &HashSet<String>) -> Self {
        if !self.shown().is_some_and(|shown| taken.contains(shown)) {
            return Self {
                post: Cow::Borrowed(&self.post),
                ..*self
            };
        }
        let mut post = self.post.clone().into_owned();
        post.selftext.clear();
        post.url = None;
        Self {
            hash: TextHash::of(&post.text()),
            post: Cow::Owned(post),
            ..*self
        }
    }
}

/// The posts of pages in the order of their key, so that two writers that meet wait for each other and never
/// in a circle. A post may be on several pages; of equals on one page the last is the freshest.
fn rows_of<'a>(pages: &'a [Page<'a>]) -> Vec<Row<'a>> {
    let mut places: Vec<(&Post, usize, usize)> = pages
        .iter()
        .enumerate()
        .flat_map(|(p, page)| {
            page.posts
                .iter()
                .enumerate()
                .map(move |(i, post)| (post, p, i))
        })
        .collect();
    places.sort_unstable_by(|one, two| {
        (&one.0.fullname, one.1, two.2).cmp(&(&two.0.fullname, two.1, one.2))
    });
    places.dedup_by(|older, newer| older.0.fullname == newer.0.fullname && older.1 == newer.1);
    let row = |(post, p, i): (&'a Post, usize, usize)| {
        let page = &pages[p];
        Row {
            page,
            post: Cow::Borrowed(post),
            hash: page.posts.hashes()[i],
            rank: page.ranks.get(i).copied().map(i64::from),
        }
    };
    places.into_iter().map(row).collect()
}

/// Names as the parameter of [`Dialect::AMONG`].
pub(super) fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    serde_json::to_string(&names).expect("texts are JSON")
}

/// The columns of sightings.
fn sightings<'a>(seen: &[(&'a Row<'a>, &'a str)]) -> Insert<'a> {
    let integer = |get: fn(&Row<'_>) -> Option<i64>| {
        Values::Integer(seen.iter().map(|(row, _)| get(row)).collect())
    };
    let names = seen.iter().map(|(row, _)| row.post.fullname.as_str());
    let listings = seen
        .iter()
        .map(|(row, _)| row.page.listing.map(Listing::as_str));
    Insert {
        table: "sightings",
        rows: seen.len(),
        columns: vec![
            ("run_id", integer(|row| Some(row.page.run.0))),
            (
                "topic",
                Values::Text(seen.iter().map(|(_, topic)| Some(*topic)).collect()),
            ),
            ("fullname", Values::Text(names.map(Some).collect())),
            ("listing", Values::Text(listings.collect())),
            ("rank", integer(|row| row.rank)),
            ("reddit_score", integer(|row| row.post.score)),
        ],
        // Seen twice in one run, on a listing that moved while it was read: the last place counts.
        on_conflict: "ON CONFLICT (run_id, topic, fullname) DO UPDATE \
                      SET rank = excluded.rank, reddit_score = excluded.reddit_score",
    }
}

/// The columns of a new post.
pub(super) fn insert_posts<'a>(rows: &[&'a Row<'a>]) -> Insert<'a> {
    let text = |get: fn(&'a Post) -> Option<&'a str>| {
        Values::Text(rows.iter().map(|row| get(&row.post)).collect())
    };
    let flag =
        |get: fn(&Post) -> bool| Values::Flag(rows.iter().map(|row| get(&row.post)).collect());
    let integer = |get: fn(&Post) -> Option<i64>| {
        Values::Integer(rows.iter().map(|row| get(&row.post)).collect())
    };
    let time = |get: fn(&Row<'_>) -> Option<Timestamp>| {
        Values::Time(rows.iter().map(|row| get(row).map(at)).collect())
    };
    let ratio = rows.iter().map(|row| row.post.upvote_ratio).collect();
    let hash = rows.iter().map(|row| row.hash.as_bytes()).collect();
    Insert {
        table: "posts",
        rows: rows.len(),
        columns: vec![
            ("fullname", text(|post| Some(post.fullname.as_str()))),
            ("subreddit", text(|post| Some(&post.subreddit))),
            (
                "topic",
                Values::Text(rows.iter().map(|row| row.page.topic).collect()),
            ),
            ("title", text(|post| Some(&post.title))),
            ("selftext", text(|post| Some(&post.selftext))),
            (
                "crosspost_parent",
                text(|post| post.crosspost_parent.as_ref().map(Fullname::as_str)),
            ),
            ("url", text(|post| post.url.as_deref())),
            ("permalink", text(|post| post.permalink.as_deref())),
            ("author", text(|post| post.author.as_deref())),
            ("reddit_score", integer(|post| post.score)),
            ("upvote_ratio", Values::Real(ratio)),
            ("num_comments", integer(|post| post.num_comments)),
            ("flair", text(|post| post.flair.as_deref())),
            ("over_18", flag(|post| post.over_18)),
            ("is_self", flag(|post| post.is_self)),
            ("source", text(|post| Some(post.source.as_str()))),
            ("text_hash", Values::Bytes(hash)),
            ("created_at", time(|row| Some(row.post.created_at))),
            ("collected_at", time(|row| Some(row.page.now))),
            ("updated_at", time(|row| Some(row.page.now))),
            (
                "removed_at",
                time(|row| row.post.removed.then_some(row.page.now)),
            ),
            (
                "checked_at",
                time(|row| {
                    (row.post.source.is_live() && !row.post.removed).then_some(row.page.now)
                }),
            ),
            (
                "reddit_score_is_placeholder",
                flag(|post| post.score_is_placeholder),
            ),
        ],
        on_conflict: &ON_KNOWN_POST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_follows_the_table_of_sources() {
        assert_eq!(live_sources(), "('reddit', 'sample')");
        assert_eq!(ON_KNOWN_POST.matches(&live_sources()).count(), 5);
    }
}
