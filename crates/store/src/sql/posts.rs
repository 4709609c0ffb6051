//! Stores posts and sightings, page by page and block by block.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::AssertSqlSafe;

use super::claims::HASH_MISMATCH;
use super::post_rows::{ON_KNOWN_POST, ON_SEEN_AGAIN, Row, json_array, posts_insert};
use super::stored_posts::{Attempt, BULK_ROWS, RETURNING, StoredPost};
use super::{ErrorContext, SqlStore, Tx, at, yields_to_stored};
use crate::bulk::{Insert, Keys, Values};
use crate::dialect::Dialect;
use crate::driver_error::is_duplicate_key;
use crate::{ImportState, Page, Result, Upserted};
use topicmill_core::{Fullname, Listing, ReadyPost};

/// Posts to store, classified by comparison with the stored ones.
#[derive(Default)]
struct UpsertPlan<'r> {
    new: Vec<Row<'r>>,
    /// Stored posts whose text changes.
    edited: Vec<&'r str>,
    /// Previous text hashes of the edited posts.
    old_hashes: Vec<&'r [u8]>,
    /// Stored posts whose text does not change.
    unchanged_text: Vec<&'r str>,
    /// Stored posts, by topic, whose topic alone is updated, because Reddit's own data is newer than this source.
    for_topic: BTreeMap<&'r str, Vec<&'r str>>,
    /// Crossposts of a post whose text retention deleted.
    show_purged_text: Vec<&'r str>,
    /// True if one of these crossposts loses stored text.
    loses_text: bool,
}

impl<'r> UpsertPlan<'r> {
    fn new(
        known: &'r HashMap<String, StoredPost>,
        rows: &'r [Row<'r>],
        textless: &HashSet<String>,
    ) -> Self {
        let mut plan = Self::default();
        for row in rows {
            let fullname = row.post.fullname.as_str();
            let Some(known) = known.get(fullname) else {
                plan.new.push(*row);
                continue;
            };
            if yields_to_stored(row.post, &known.source) {
                if let Some(topic) = row.page.topic {
                    plan.for_topic.entry(topic).or_default().push(fullname);
                }
                continue;
            }
            // A post whose text retention deleted is given no new text.
            let Some(before) = &known.text_hash else {
                continue;
            };
            let is_same = before == row.post.text_hash().as_bytes();
            if row.shown().is_some_and(|shown| textless.contains(shown)) {
                plan.show_purged_text.push(fullname);
                plan.loses_text |= !is_same;
            }
            if is_same {
                plan.unchanged_text.push(fullname);
            } else {
                plan.edited.push(fullname);
                plan.old_hashes.push(before);
            }
        }
        plan
    }
}

/// Splits rows, which are sorted by fullname, into rounds of distinct posts: a statement must not update a row twice, so
/// repetitions of a post are stored in later rounds.
fn distinct_rounds<'r>(rows: &[Row<'r>]) -> Vec<Vec<Row<'r>>> {
    let mut rounds: Vec<Vec<Row<'r>>> = Vec::new();
    for same_post in rows.chunk_by(|a, b| a.post.fullname == b.post.fullname) {
        for (n, row) in same_post.iter().enumerate() {
            if n == rounds.len() {
                rounds.push(Vec::new());
            }
            rounds[n].push(*row);
        }
    }
    rounds
}

/// Returns a post as it is stored, if that is not as it was read: a comment with the title of its post, or a crosspost
/// without the text that retention deleted from the post that it shows.
fn altered_post(
    row: &Row<'_>,
    titles: &HashMap<String, String>,
    textless: &HashSet<String>,
) -> Option<ReadyPost> {
    let post = row.post.reply.post.as_ref();
    if let Some(title) = post.and_then(|post| titles.get(post.as_str())) {
        return Some(row.post.with_text(title, &row.post.selftext));
    }
    let is_textless = row.shown().is_some_and(|shown| textless.contains(shown));
    is_textless.then(|| row.post.with_text(&row.post.title, ""))
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn save_pages(
        &self,
        pages: &[Page<'_>],
        state: Option<&ImportState>,
    ) -> Result<Upserted> {
        // A post may be on several pages; of duplicates on one page, the last one is kept.
        let mut rows: Vec<Row<'_>> = pages
            .iter()
            .flat_map(|page| page.posts.iter().rev().map(move |post| Row { page, post }))
            .collect();
        // All writers use the order of fullnames, to avoid deadlocks. It is stable, so that the last duplicate remains
        // first.
        rows.sort_by(|a, b| a.post.fullname.cmp(&b.post.fullname));
        rows.dedup_by(|older, newer| {
            older.post.fullname == newer.post.fullname && std::ptr::eq(older.page, newer.page)
        });
        let attempt = Attempt::First;
        match self.try_save_pages(pages, &rows, state, attempt).await {
            // Another writer has since stored one of the new posts.
            Err(error) if is_duplicate_key(&error) => {
                let attempt = Attempt::AfterDuplicateKey;
                self.try_save_pages(pages, &rows, state, attempt).await
            }
            saved => saved,
        }
    }

    /// Stores pages, whose posts are `rows`, sorted by fullname.
    async fn try_save_pages(
        &self,
        pages: &[Page<'_>],
        rows: &[Row<'_>],
        state: Option<&ImportState>,
        attempt: Attempt,
    ) -> Result<Upserted> {
        let mut tx = self.begin().await?;
        let mut upserted = Upserted::default();
        let mut seen = Vec::new();
        for mut round in distinct_rounds(rows) {
            let stored = self.store_round(&mut tx, &mut round, attempt, &mut upserted);
            let new = stored.await?;
            seen.push((round, new));
        }
        // Sightings follow all posts, because all writers lock posts in order, but not rows of `sightings`.
        for (round, new) in &seen {
            Self::insert_sightings(&mut tx, round, new).await?;
        }
        for page in pages {
            // Only listings and archives are read from a watermark. Files have an import position.
            if let (Some(topic), Some(_)) = (page.topic, page.listing) {
                Self::upsert_watermark(&mut tx, page, topic).await?;
            }
        }
        // The same transaction stores the posts, so that a crash never leaves a position past posts that are missing.
        if let Some(state) = state {
            Self::upsert_import_state(&mut tx, state).await?;
        }
        tx.commit().await.context("store a page of posts")?;
        Ok(upserted)
    }

    /// Removes the posts that must not be stored again from a round of distinct posts, and stores the others. Returns
    /// the new posts that were inserted in bulk.
    async fn store_round(
        &self,
        tx: &mut Tx<DB>,
        round: &mut Vec<Row<'_>>,
        attempt: Attempt,
        upserted: &mut Upserted,
    ) -> Result<HashSet<Fullname>> {
        let reported = Self::purge_reported(tx, round).await?;
        // Tombstones are locked before posts, in the same order as in a purge.
        let purged = Self::tombstoned(tx, round).await?;
        // Posts that show a purged post are rejected too. One of these may already be stored, because its parent was
        // unknown when it was stored.
        let refused: Vec<Row<'_>> = round
            .extract_if(.., |row| row.names().any(|name| purged.contains(name)))
            .collect();
        let late = Self::purge_late_crossposts(tx, &refused, &purged).await?;
        upserted.purged += reported.posts + reported.crossposts + late.purged;
        // The rows of posts that were just purged are among the refused ones.
        upserted.tombstoned += refused.len() as u64 - late.kept - reported.posts;
        upserted.unchanged += late.kept;
        let parents: Vec<&str> = round.iter().filter_map(Row::shown).collect();
        let textless = Self::without_text(tx, &parents).await?;
        let titles = self.titles_of_posts(tx, round).await?;
        let altered: Vec<Option<ReadyPost>> = round
            .iter()
            .map(|row| altered_post(row, &titles, &textless))
            .collect();
        let mut rows = round.clone();
        for (row, altered) in rows.iter_mut().zip(&altered) {
            row.post = altered.as_ref().unwrap_or(row.post);
        }
        Self::upsert_posts(tx, &rows, &textless, attempt, upserted).await
    }

    /// Upserts distinct posts. Returns the new posts that were inserted in bulk.
    async fn upsert_posts(
        tx: &mut Tx<DB>,
        rows: &[Row<'_>],
        textless: &HashSet<String>,
        attempt: Attempt,
        upserted: &mut Upserted,
    ) -> Result<HashSet<Fullname>> {
        const STORE: &str = "store posts";
        // Locked and read before the upsert, because afterwards the previous text is unknown.
        let fullnames: Vec<&str> = rows.iter().map(|row| row.post.fullname.as_str()).collect();
        let known = Self::stored_among(tx, &fullnames, attempt).await?;
        let plan = UpsertPlan::new(&known, rows, textless);
        let mut new: HashSet<Fullname> = HashSet::new();
        let mut others = rows.to_vec();
        if attempt == Attempt::First && plan.new.len() >= BULK_ROWS {
            let insert = posts_insert(&plan.new, Keys::New);
            DB::insert(&mut *tx, insert).await.context(STORE)?;
            new.extend(plan.new.iter().map(|row| row.post.fullname.clone()));
            others.retain(|row| known.contains_key(row.post.fullname.as_str()));
        }
        // `ON CONFLICT` decides in SQL which values are kept. For a page, the same statement returns the stored posts.
        // For a block, a second query is a tenth faster on SQLite.
        let stored: HashMap<String, StoredPost> = if others.len() < BULK_ROWS {
            let insert = posts_insert(&others, Keys::MayExist(&RETURNING));
            let rows = DB::insert(&mut *tx, insert).await.context(STORE)?;
            rows.iter()
                .map(Self::stored_post)
                .collect::<Result<_, _>>()
                .context(STORE)?
        } else {
            let insert = posts_insert(&others, Keys::MayExist(&ON_KNOWN_POST));
            DB::insert(&mut *tx, insert).await.context(STORE)?;
            if known.is_empty() {
                HashMap::new()
            } else {
                Self::stored_posts(tx, known.keys().map(String::as_str)).await?
            }
        };
        let has_changed = |(fullname, before): &(&String, &StoredPost)| {
            let now = stored.get(*fullname);
            now.is_some_and(|now| before.has_changed(now))
        };
        let changed = known.iter().filter(has_changed).count() as u64
            + Self::set_topics(tx, &plan.for_topic).await?;
        upserted.new += plan.new.len() as u64;
        upserted.edited += plan.edited.len() as u64;
        upserted.changed += changed;
        upserted.unchanged += known.len() as u64 - changed;
        Self::clean_up(tx, &plan).await?;
        Ok(new)
    }

    /// Updates the topic of stored posts. Returns how many had a different topic.
    async fn set_topics(tx: &mut Tx<DB>, for_topic: &BTreeMap<&str, Vec<&str>>) -> Result<u64> {
        let mut changed = 0;
        for (topic, fullnames) in for_topic {
            let update = format!(
                "UPDATE things SET topic = $2 WHERE topic IS DISTINCT FROM $2 AND fullname IN {}",
                DB::IN_JSON_ARRAY
            );
            changed += sqlx::query::<DB>(AssertSqlSafe(update))
                .bind(json_array(fullnames.iter().copied()))
                .bind(*topic)
                .execute(&mut **tx)
                .await
                .map(|done| DB::rows_affected(&done))
                .context("store the topic of posts")?;
        }
        Ok(changed)
    }

    /// Deletes derived data that the upsert has made invalid.
    async fn clean_up(tx: &mut Tx<DB>, plan: &UpsertPlan<'_>) -> Result<()> {
        Self::delete_results_of_edits(tx, &plan.edited, &plan.old_hashes).await?;
        if !plan.unchanged_text.is_empty() {
            Self::unpark_restored(tx, &plan.unchanged_text).await?;
        }
        let crossposts = &plan.show_purged_text;
        let loses_url = !crossposts.is_empty() && Self::clear_urls(tx, crossposts).await?;
        if plan.loses_text || loses_url {
            Self::mark_rewrite_due(tx).await?;
        }
        Ok(())
    }

    /// Deletes results for texts that posts no longer have, and the recorded failures of these posts. The posts already
    /// have their new hashes.
    pub(super) async fn delete_results_of_edits(
        tx: &mut Tx<DB>,
        edited: &[&str],
        before: &[&[u8]],
    ) -> Result<()> {
        if edited.is_empty() {
            return Ok(());
        }
        if let Some(lock) = DB::LOCK_EDITS {
            // Two transactions may each edit one of two posts with the same text. Without the lock, each would still
            // see the other's old post, and neither would delete the logits.
            let locked = sqlx::query::<DB>(lock).execute(&mut **tx).await;
            locked.context("lock edits of posts")?;
        }
        Self::delete_unused_logits(tx, before).await?;
        Self::reset_failures(tx, edited).await
    }

    /// Makes posts claimable again if their text was changed by hand and now matches their hash again.
    async fn unpark_restored(tx: &mut Tx<DB>, restored: &[&str]) -> Result<()> {
        let update = format!(
            "UPDATE backlog SET attempts = 0, crashes = 0, error = NULL WHERE error = $2 AND fullname IN {}",
            DB::IN_JSON_ARRAY
        );
        sqlx::query::<DB>(AssertSqlSafe(update))
            .bind(json_array(restored.iter().copied()))
            .bind(HASH_MISMATCH)
            .execute(&mut **tx)
            .await
            .map(drop)
            .context("unpark restored posts")
    }

    /// Resets the failures of posts whose text has changed.
    pub(super) async fn reset_failures(tx: &mut Tx<DB>, changed: &[&str]) -> Result<()> {
        let update = "UPDATE backlog SET attempts = 0, crashes = 0, error = NULL \
                       WHERE (attempts > 0 OR crashes > 0) AND fullname IN";
        let what = "reset failures of changed posts";
        let changed = changed.iter().copied();
        Self::change_posts(tx, update, changed, what)
            .await
            .map(drop)
    }

    /// Stores the sightings of a run; a page without a topic has none. Posts in `new` have no sightings yet.
    async fn insert_sightings<'r>(
        tx: &mut Tx<DB>,
        round: &[Row<'r>],
        new: &HashSet<Fullname>,
    ) -> Result<()> {
        let seen = round.iter().filter(|row| row.page.topic.is_some());
        let (first, others): (Vec<Row<'_>>, Vec<Row<'_>>) = seen
            .copied()
            .partition(|row| new.contains(&row.post.fullname));
        for (rows, keys) in [(first, Keys::New), (others, Keys::MayExist(ON_SEEN_AGAIN))] {
            let day = |row: &Row<'_>| at(row.page.now).format("%Y-%m-%d").to_string();
            let days: Vec<String> = rows.iter().map(day).collect();
            let text =
                |get: fn(&Row<'r>) -> Option<&'r str>| Values::Text(rows.iter().map(get).collect());
            let integer =
                |get: fn(&Row<'_>) -> Option<i64>| Values::Integer(rows.iter().map(get).collect());
            let days = days.iter().map(|day| Some(day.as_str())).collect();
            let insert = Insert {
                table: "sightings",
                rows: rows.len(),
                columns: vec![
                    ("fullname", text(|row| Some(row.post.fullname.as_str()))),
                    ("topic", text(|row| row.page.topic)),
                    ("day", Values::Text(days)),
                    ("times_seen", Values::repeat(1, rows.len())),
                    ("run_id", integer(|row| Some(row.page.run.0))),
                    ("listing", text(|row| row.page.listing.map(Listing::as_str))),
                    ("best_rank", integer(|row| row.post.rank.map(i64::from))),
                    ("reddit_score", integer(|row| row.post.score)),
                ],
                keys,
            };
            DB::insert(&mut *tx, insert)
                .await
                .context("store sightings")?;
        }
        Ok(())
    }
}
