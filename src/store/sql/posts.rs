//! Posts as pages and blocks bring them, sightings, and how far a source was read.

use std::collections::{HashMap, HashSet};

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{
    ColumnIndex, Decode, Encode, Executor, IntoArguments, QueryBuilder, Row, Transaction, Type,
};

use super::super::dialect::Dialect;
use super::super::{Gap, ImportState, Page, Result, RunId, StoreError, Upserted};
use super::{Doing, POSTS_A_STATEMENT, ROWS_A_STATEMENT, SqlStore, at, count, is_older, push_list};
use crate::domain::{Post, PurgeReason, SourceKind, Stage, TextHash, Timestamp, UnknownWord};

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
    for<'q> String: Decode<'q, DB> + Type<DB>,
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
        let mut tx = self.begin().await?;
        let mut upserted = Upserted::default();
        for page in pages {
            let part = Self::insert_page(&mut tx, page).await?;
            upserted.new += part.new;
            upserted.changed += part.changed;
            upserted.unchanged += part.unchanged;
            upserted.tombstoned += part.tombstoned;
        }
        if let Some(state) = state {
            Self::upsert_import_state(&mut tx, state).await?;
        }
        tx.commit().await.doing("store a page of posts")?;
        Ok(upserted)
    }

    pub(super) async fn insert_page(
        tx: &mut Transaction<'static, DB>,
        page: &Page<'_>,
    ) -> Result<Upserted> {
        // One statement may not touch a row twice; the last of equals is the freshest.
        let mut ranks = HashMap::new();
        for (i, post) in page.posts.iter().enumerate() {
            ranks.insert(post.fullname.as_str(), i);
        }
        let mut distinct: Vec<usize> = ranks.into_values().collect();
        // In the order of their key: two writers that meet wait for each other, and never in a circle.
        distinct.sort_unstable_by_key(|&i| &page.posts[i].fullname);
        let mut purged = HashSet::new();

        let mut upserted = Upserted::default();
        for chunk in distinct.chunks(POSTS_A_STATEMENT) {
            let posts: Vec<&Post> = chunk.iter().map(|&i| &page.posts[i]).collect();
            purged.extend(Self::tombstoned(tx, &posts).await?);
        }
        upserted.tombstoned = purged.len() as u64;
        distinct.retain(|&i| !purged.contains(page.posts[i].fullname.as_str()));
        for chunk in distinct.chunks(POSTS_A_STATEMENT) {
            let posts: Vec<&Post> = chunk.iter().map(|&i| &page.posts[i]).collect();
            let part = Self::upsert_posts(tx, &posts, page.now).await?;
            upserted.new += part.new;
            upserted.changed += part.changed;
            upserted.unchanged += part.unchanged;
        }
        if let Some(topic) = page.topic {
            for chunk in distinct.chunks(ROWS_A_STATEMENT) {
                Self::insert_sightings(tx, page, topic, chunk).await?;
            }
            if page.listing.is_some() {
                Self::upsert_watermark(tx, page, topic).await?;
            }
        }
        Ok(upserted)
    }

    /// Which of the posts were purged and stay so. A tombstone that Reddit itself belies is taken away.
    pub(super) async fn tombstoned(
        tx: &mut Transaction<'static, DB>,
        posts: &[&Post],
    ) -> Result<HashSet<String>> {
        const WHAT: &str = "look up purged posts";
        let mut known =
            QueryBuilder::<DB>::new("SELECT fullname, reason FROM tombstones WHERE fullname IN (");
        push_list(&mut known, posts.iter().map(|post| post.fullname.as_str()));
        // In order for two writers that meet; and the lock keeps a purge from coming in between.
        known.push(" ORDER BY fullname ").push(DB::FOR_UPDATE);
        let rows = known.build().fetch_all(&mut **tx).await.doing(WHAT)?;
        if rows.is_empty() {
            return Ok(HashSet::new());
        }
        let alive: HashSet<&str> = posts
            .iter()
            .filter(|post| post.source.is_live() && !post.removed)
            .map(|post| post.fullname.as_str())
            .collect();
        let (mut stay, mut lifted) = (HashSet::new(), Vec::new());
        for row in &rows {
            let fullname: String = row.try_get(0).doing(WHAT)?;
            let reason: String = row.try_get(1).doing(WHAT)?;
            let lifts = reason.parse().is_ok_and(PurgeReason::lifts);
            if lifts && alive.contains(fullname.as_str()) {
                lifted.push(fullname);
            } else {
                stay.insert(fullname);
            }
        }
        if !lifted.is_empty() {
            let mut delete = QueryBuilder::<DB>::new("DELETE FROM tombstones WHERE fullname IN (");
            push_list(&mut delete, lifted.iter().map(String::as_str));
            delete
                .build()
                .execute(&mut **tx)
                .await
                .doing("lift tombstones")?;
        }
        Ok(stay)
    }

    pub(super) async fn upsert_import_state(
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

    pub(super) async fn upsert_posts(
        tx: &mut Transaction<'static, DB>,
        posts: &[&Post],
        now: Timestamp,
    ) -> Result<Upserted> {
        if posts.is_empty() {
            return Ok(Upserted::default());
        }
        let mut known = QueryBuilder::<DB>::new(
            "SELECT fullname, CASE WHEN text_purged_at IS NULL THEN text_hash END, source \
               FROM posts WHERE fullname IN (",
        );
        push_list(&mut known, posts.iter().map(|post| post.fullname.as_str()));
        let known: HashMap<String, (Option<Vec<u8>>, String)> = known
            .build()
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| {
                rows.iter()
                    .map(|row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?))))
                    .collect()
            })
            .doing("look up known posts")?;

        let hashes: Vec<TextHash> = posts
            .iter()
            .map(|post| TextHash::of(&post.text()))
            .collect();
        let (mut upserted, mut changed) = (Upserted::default(), Vec::new());
        for (post, hash) in posts.iter().zip(&hashes) {
            match known.get(post.fullname.as_str()) {
                None => upserted.new += 1,
                // Retention took its text, whatever it is now.
                Some((None, _)) => upserted.unchanged += 1,
                Some((Some(before), source))
                    if before == hash.as_bytes() || is_older(post, source) =>
                {
                    upserted.unchanged += 1;
                }
                Some(_) => {
                    upserted.changed += 1;
                    changed.push(post.fullname.as_str());
                }
            }
        }

        let mut insert = QueryBuilder::<DB>::new(
            "INSERT INTO posts (fullname, subreddit, title, selftext, url, permalink, author, score, upvote_ratio, \
             num_comments, flair, over_18, is_self, source, text_hash, created_at, collected_at, updated_at, \
             removed_at, checked_at) ",
        );
        insert.push_values(posts.iter().zip(&hashes), |mut row, (post, hash)| {
            row.push_bind(post.fullname.as_str())
                .push_bind(post.subreddit.as_str())
                .push_bind(post.title.as_str())
                .push_bind(post.selftext.as_str())
                .push_bind(post.url.as_deref())
                .push_bind(post.permalink.as_deref())
                .push_bind(post.author.as_deref())
                .push_bind(post.score)
                .push_bind(post.upvote_ratio)
                .push_bind(post.num_comments)
                .push_bind(post.flair.as_deref())
                .push_bind(post.over_18)
                .push_bind(post.is_self)
                .push_bind(post.source.as_str())
                .push_bind(hash.as_bytes())
                .push_bind(at(post.created_at))
                .push_bind(at(now))
                .push_bind(at(now))
                .push_bind(post.removed.then(|| at(now)))
                .push_bind((post.source.is_live() && !post.removed).then(|| at(now)));
        });
        // A file is older than what Reddit told, and changes nothing of it. Of two files, one may leave out
        // what the other knew, so an absent value does not erase a stored one; but where Reddit itself shows no
        // author any more, or a removed post again, it is followed. What retention
        // took does not come back, and the hash of the text that was labelled stays.
        insert.push(
            " ON CONFLICT (fullname) DO UPDATE SET subreddit = excluded.subreddit, \
             title = CASE WHEN posts.text_purged_at IS NULL THEN excluded.title ELSE posts.title END, \
             selftext = CASE WHEN posts.text_purged_at IS NULL THEN excluded.selftext ELSE posts.selftext END, \
             url = CASE WHEN posts.text_purged_at IS NULL THEN COALESCE(excluded.url, posts.url) END, \
             permalink = CASE WHEN posts.text_purged_at IS NULL \
               THEN COALESCE(excluded.permalink, posts.permalink) END, \
             author = CASE WHEN posts.text_purged_at IS NOT NULL THEN NULL \
               WHEN excluded.source = 'import' THEN COALESCE(excluded.author, posts.author) \
               ELSE excluded.author END, score = COALESCE(excluded.score, posts.score), \
             upvote_ratio = COALESCE(excluded.upvote_ratio, posts.upvote_ratio), \
             num_comments = COALESCE(excluded.num_comments, posts.num_comments), \
             flair = CASE WHEN posts.text_purged_at IS NULL THEN COALESCE(excluded.flair, posts.flair) END, \
             over_18 = excluded.over_18, is_self = excluded.is_self, source = excluded.source, \
             text_hash = CASE WHEN posts.text_purged_at IS NULL THEN excluded.text_hash \
               ELSE posts.text_hash END, \
             created_at = excluded.created_at, updated_at = excluded.updated_at, \
             removed_at = CASE WHEN excluded.removed_at IS NULL AND excluded.source <> 'import' THEN NULL \
               ELSE COALESCE(posts.removed_at, excluded.removed_at) END, \
             checked_at = CASE WHEN excluded.removed_at IS NOT NULL THEN NULL \
               ELSE COALESCE(excluded.checked_at, posts.checked_at) END \
             WHERE excluded.source <> 'import' OR posts.source = 'import'",
        );
        insert
            .build()
            .execute(&mut **tx)
            .await
            .doing("store posts")?;
        if !changed.is_empty() {
            Self::forgive_failures(tx, &changed).await?;
        }
        Ok(upserted)
    }

    /// A text that changed may be scored where the old one failed.
    pub(super) async fn forgive_failures(
        tx: &mut Transaction<'static, DB>,
        changed: &[&str],
    ) -> Result<()> {
        let mut update = QueryBuilder::<DB>::new(
            "UPDATE backlog SET attempts = 0, deaths = 0, error = NULL \
              WHERE (attempts > 0 OR deaths > 0) AND fullname IN (",
        );
        push_list(&mut update, changed.iter().copied());
        update
            .build()
            .execute(&mut **tx)
            .await
            .doing("forget failures of changed posts")?;
        Ok(())
    }

    pub(super) async fn insert_sightings(
        tx: &mut Transaction<'static, DB>,
        page: &Page<'_>,
        topic: &str,
        ranks: &[usize],
    ) -> Result<()> {
        let mut insert = QueryBuilder::<DB>::new(
            "INSERT INTO sightings (run_id, topic, fullname, listing, rank, score) ",
        );
        insert.push_values(ranks, |mut row, &i| {
            let rank = page.ranks.get(i).copied().map(i64::from);
            row.push_bind(page.run.0)
                .push_bind(topic)
                .push_bind(page.posts[i].fullname.as_str())
                .push_bind(page.listing.map(crate::domain::Listing::as_str))
                .push_bind(rank)
                .push_bind(page.posts[i].score);
        });
        // Seen twice in one run, on a listing that moved while it was read: the last place counts.
        insert.push(
            " ON CONFLICT (run_id, topic, fullname) DO UPDATE SET rank = excluded.rank, score = excluded.score",
        );
        insert
            .build()
            .execute(&mut **tx)
            .await
            .doing("store sightings")?;
        Ok(())
    }

    pub(super) async fn upsert_watermark(
        tx: &mut Transaction<'static, DB>,
        page: &Page<'_>,
        topic: &str,
    ) -> Result<()> {
        sqlx::query::<DB>(
            "INSERT INTO watermarks (source, topic, subreddit, listing, after_cursor, newest_created_at, run_id, \
             updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
             ON CONFLICT (source, topic, subreddit) DO UPDATE SET listing = excluded.listing, \
             after_cursor = excluded.after_cursor, newest_created_at = CASE \
               WHEN watermarks.newest_created_at >= excluded.newest_created_at \
                 OR excluded.newest_created_at IS NULL THEN watermarks.newest_created_at \
               ELSE excluded.newest_created_at END, \
             run_id = excluded.run_id, updated_at = excluded.updated_at",
        )
        .bind(page.source.as_str())
        .bind(topic)
        .bind(page.subreddit)
        .bind(page.listing.map(crate::domain::Listing::as_str))
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

    pub(in crate::store) async fn record_gap(&self, gap: &Gap, run: RunId) -> Result<()> {
        sqlx::query::<DB>(
            "INSERT INTO gaps (source, topic, subreddit, from_at, until_at, run_id) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        )
        .bind(gap.source.as_str())
        .bind(gap.topic.as_str())
        .bind(gap.subreddit.as_str())
        .bind(at(gap.from_at))
        .bind(at(gap.until_at))
        .bind(run.0)
        .execute(&self.pool)
        .await
        .doing("record a gap")?;
        Ok(())
    }

    pub(in crate::store) async fn gaps(&self) -> Result<Vec<Gap>> {
        const WHAT: &str = "read the gaps";
        let rows = sqlx::query::<DB>(
            "SELECT source, topic, subreddit, from_at, until_at FROM gaps ORDER BY until_at DESC, topic",
        )
        .fetch_all(&self.pool)
        .await
        .doing(WHAT)?;
        let mut gaps = Vec::with_capacity(rows.len());
        for row in &rows {
            let source: String = row.try_get(0).doing(WHAT)?;
            let topic: String = row.try_get(1).doing(WHAT)?;
            let unknown = |error: UnknownWord| StoreError::Corrupt {
                table: "gaps",
                row: topic.clone(),
                detail: error.to_string(),
            };
            gaps.push(Gap {
                source: source.parse().map_err(unknown)?,
                subreddit: row.try_get(2).doing(WHAT)?,
                from_at: row.try_get::<DateTime<Utc>, _>(3).doing(WHAT)?.into(),
                until_at: row.try_get::<DateTime<Utc>, _>(4).doing(WHAT)?.into(),
                topic,
            });
        }
        Ok(gaps)
    }

    pub(in crate::store) async fn running(
        &self,
        stage: Stage,
        since: Timestamp,
    ) -> Result<Vec<String>> {
        sqlx::query::<DB>(
            "SELECT worker FROM runs WHERE status = 'running' AND stage = $1 AND started_at > $2",
        )
        .bind(stage.as_str())
        .bind(at(since))
        .fetch_all(&self.pool)
        .await
        .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
        .doing("read the runs under way")
    }

    pub(in crate::store) async fn author_key(&self) -> Result<String> {
        sqlx::query::<DB>("SELECT value FROM meta WHERE key = 'author_key'")
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row.try_get(0))
            .doing("read the key for author names")
    }
}
