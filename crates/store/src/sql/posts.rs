//! Posts and sightings, stored page by page and block by block.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::{AssertSqlSafe, Transaction};

use super::super::dialect::Dialect;
use super::super::failure::{Attempts, is_taken};
use super::super::{ImportState, Page, Result, Upserted};
use super::arriving::{Row, insert_posts, names, rows_of, sightings};
use super::claiming::OTHER_TEXT;
use super::known::{Known, MANY, insert_and_return};
use super::{Doing, SqlStore, is_older};
use topicmill_core::Fullname;

/// Posts that arrive, beside what is stored of them.
#[derive(Default)]
struct Arrived<'r> {
    new: Vec<&'r Row<'r>>,
    /// Known, with another text.
    edited: Vec<&'r str>,
    /// The hashes of the texts that these had.
    before_edits: Vec<&'r [u8]>,
    /// Known, with the same text.
    as_before: Vec<&'r str>,
    /// Collected for a topic by a source that changes nothing else of them.
    for_topic: BTreeMap<&'r str, Vec<&'r str>>,
    /// They show a post that has lost its text to retention.
    show_taken: Vec<&'r str>,
    /// True if one of these loses text by that.
    loses_text: bool,
}

impl<'r> Arrived<'r> {
    fn beside(
        known: &'r HashMap<String, Known>,
        rows: &'r [Row<'r>],
        taken: &HashSet<String>,
    ) -> Self {
        let mut arrived = Self::default();
        for row in rows {
            let fullname = row.post.fullname.as_str();
            let Some(known) = known.get(fullname) else {
                arrived.new.push(row);
                continue;
            };
            if is_older(&row.post, &known.source) {
                if let Some(topic) = row.page.topic {
                    arrived.for_topic.entry(topic).or_default().push(fullname);
                }
                continue;
            }
            // Where retention took its text, it has none, whatever that is now.
            let Some(before) = &known.text_hash else {
                continue;
            };
            let is_same = before == row.post.text_hash().as_bytes();
            if row.shown().is_some_and(|shown| taken.contains(shown)) {
                arrived.show_taken.push(fullname);
                arrived.loses_text |= !is_same;
            }
            if is_same {
                arrived.as_before.push(fullname);
            } else {
                arrived.edited.push(fullname);
                arrived.before_edits.push(before);
            }
        }
        arrived
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn save_pages(
        &self,
        pages: &[Page<'_>],
        state: Option<&ImportState>,
    ) -> Result<Upserted> {
        // Outside the loop: sorting is the same in each attempt.
        let rows = rows_of(pages);
        let mut attempts = Attempts::default();
        let mut apart = true;
        loop {
            match self.try_save_pages(pages, &rows, state, apart).await {
                // Another writer stored one of the new posts meanwhile: now it is known, and may be one more time.
                Err(error) if apart && is_taken(&error) => apart = false,
                Err(error) if attempts.again(&error) => {}
                done => return done,
            }
        }
    }

    async fn try_save_pages(
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
        let arrived = Arrived::beside(&known, rows, taken);
        let mut new: HashSet<Fullname> = HashSet::new();
        // In the order of their names, as everybody stores posts.
        let mut others: Vec<&Row<'_>> = rows.iter().collect();
        if apart && arrived.new.len() >= MANY {
            DB::insert_new(&mut *tx, insert_posts(&arrived.new))
                .await
                .doing(STORE)?;
            new.extend(arrived.new.iter().map(|row| row.post.fullname.clone()));
            others.retain(|row| known.contains_key(row.post.fullname.as_str()));
        }
        // `ON CONFLICT` decides in SQL what stays of the old row. Of a page, it returns what is stored then; of a
        // block, reading it again takes a tenth less time on SQLite.
        let stored: HashMap<String, Known> = if others.len() < MANY {
            let returned = DB::insert_returning(&mut *tx, insert_and_return(&others)).await;
            let rows = returned.doing(STORE)?;
            let posts = rows.iter().map(Self::known_post);
            posts.collect::<Result<_, _>>().doing(STORE)?
        } else {
            let insert = insert_posts(&others);
            DB::insert(&mut *tx, insert).await.doing(STORE)?;
            if known.is_empty() {
                HashMap::new()
            } else {
                Self::known_posts(tx, known.keys().map(String::as_str)).await?
            }
        };
        let changed = known.iter().filter(|(fullname, before)| {
            let now = stored.get(*fullname);
            now.is_some_and(|now| before.differs(now))
        });
        let changed = changed.count() as u64 + Self::set_topics(tx, &arrived.for_topic).await?;
        upserted.new += arrived.new.len() as u64;
        upserted.edited += arrived.edited.len() as u64;
        upserted.changed += changed;
        upserted.unchanged += known.len() as u64 - changed;
        Self::follow(tx, &arrived).await?;
        Ok(new)
    }

    /// Stores the topics for which posts were collected by a source that changes nothing else of them; returns how many
    /// had another one.
    async fn set_topics(
        tx: &mut Transaction<'static, DB>,
        for_topic: &BTreeMap<&str, Vec<&str>>,
    ) -> Result<u64> {
        let mut changed = 0;
        for (topic, fullnames) in for_topic {
            let update = format!(
                "UPDATE posts SET topic = $2 WHERE topic IS DISTINCT FROM $2 AND fullname IN {}",
                DB::AMONG
            );
            changed += sqlx::query::<DB>(AssertSqlSafe(update))
                .bind(names(fullnames.iter().copied()))
                .bind(*topic)
                .execute(&mut **tx)
                .await
                .map(|done| DB::rows_affected(&done))
                .doing("store the topic of posts")?;
        }
        Ok(changed)
    }

    /// Forgets what no longer holds of posts that are another now.
    async fn follow(tx: &mut Transaction<'static, DB>, arrived: &Arrived<'_>) -> Result<()> {
        let mut loses_text = arrived.loses_text;
        Self::forget_edited(tx, &arrived.edited, &arrived.before_edits).await?;
        if !arrived.as_before.is_empty() {
            Self::forgive_other_texts(tx, &arrived.as_before).await?;
        }
        if !arrived.show_taken.is_empty() {
            loses_text |= Self::forget_addresses(tx, &arrived.show_taken).await?;
        }
        if loses_text {
            Self::note_rewrite_due(tx).await?;
        }
        Ok(())
    }

    /// Forgets what was computed of texts that posts no longer have, and that these posts failed. The posts have their
    /// new hashes already.
    pub(super) async fn forget_edited(
        tx: &mut Transaction<'static, DB>,
        edited: &[&str],
        before: &[&[u8]],
    ) -> Result<()> {
        if edited.is_empty() {
            return Ok(());
        }
        if let Some(lock) = DB::LOCK_EDITS {
            // Two transactions may each edit away one of two posts with the same text. Without the lock, each
            // would still see the other one's old post, and nobody would delete the logits.
            let locked = sqlx::query::<DB>(lock).execute(&mut **tx).await;
            locked.doing("wait for others who edit posts")?;
        }
        Self::forget_logits(tx, before).await?;
        Self::forgive_failures(tx, edited).await
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
            .done("forget that posts had another text")
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
            .done("forget failures of changed posts")
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

    pub async fn author_key(&self) -> Result<String> {
        sqlx::query_scalar::<DB, _>("SELECT value FROM meta WHERE key = 'author_key'")
            .fetch_one(&self.pool)
            .await
            .doing("read the key for author names")
    }
}
