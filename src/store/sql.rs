//! Every statement, once, for both databases.
//!
//! One impl block serves SQLite and PostgreSQL: both take `$1` parameters, `ON CONFLICT … DO UPDATE` and
//! `RETURNING`; what differs is a constant of [`Dialect`]. The file is long because the statements stand
//! together: whoever changes a table finds here all that read or write it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;
use sqlx::types::Json;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{
    AssertSqlSafe, ColumnIndex, Decode, Encode, Executor, IntoArguments, Pool, QueryBuilder, Row,
    Transaction, Type,
};

use super::dialect::{Dialect, redact};
use super::{
    Access, Checked, Claim, Claimant, ClaimedPost, Classified, Due, Gap, ImportState, Info, Lease,
    ModelRow, Page, Result, RunId, RunRow, Standing, StoreError, Target, Upserted, Waiting,
    Written,
};
use crate::domain::{
    Fullname, LabelSet, Mode, Post, PurgeReason, RunStatus, SourceKind, Stage, TextHash, Timestamp,
    UnknownWord,
};

/// Rows of one INSERT: 500 × 20 columns stay under SQLite's 32,766 and PostgreSQL's 65,535 parameters.
const POSTS_A_STATEMENT: usize = 500;
/// Rows of one INSERT of short rows (at most 13 columns).
const ROWS_A_STATEMENT: usize = 2_000;

const TABLES: [&str; 17] = [
    "gaps",
    "posts",
    "sightings",
    "runs",
    "watermarks",
    "imports",
    "models",
    "label_sets",
    "labels",
    "current_target",
    "hypotheses",
    "pair_logits",
    "classifications",
    "label_scores",
    "leases",
    "backlog",
    "tombstones",
];

/// A database behind a pool of connections.
#[derive(Debug)]
pub struct SqlStore<DB: Dialect> {
    pub(super) pool: Pool<DB>,
    url: String,
}

impl<DB: Dialect> Clone for SqlStore<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            url: self.url.clone(),
        }
    }
}

/// Says what was being done when a statement failed, and recognises the failures that have a remedy.
trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T>;
}

impl<T> Doing<T> for Result<T, sqlx::Error> {
    fn doing(self, what: &'static str) -> Result<T> {
        self.map_err(|source| {
            known_failure(&source).unwrap_or(StoreError::Statement { what, source })
        })
    }
}

/// The failures that a user can mend.
pub(super) fn known_failure(error: &sqlx::Error) -> Option<StoreError> {
    let error = error.as_database_error()?;
    let code = error.code()?;
    if error
        .try_downcast_ref::<sqlx::sqlite::SqliteError>()
        .is_some()
    {
        // Extended codes carry the primary one in their low byte.
        return match code.parse::<u32>().ok()? & 0xff {
            8 => Some(StoreError::ReadOnly),
            13 => Some(StoreError::Full),
            _ => None,
        };
    }
    match code.as_ref() {
        "25006" => Some(StoreError::ReadOnly),
        "53100" => Some(StoreError::Full),
        _ => None,
    }
}

/// Whether a post comes from a file and is known from Reddit itself.
fn is_older(post: &Post, known_from: &str) -> bool {
    post.source == SourceKind::Import && known_from != SourceKind::Import.as_str()
}

fn at(time: Timestamp) -> DateTime<Utc> {
    time.as_datetime()
}

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The values of an `IN (` that was just pushed, and its end.
fn push_list<'q, DB, T>(query: &mut QueryBuilder<DB>, values: impl IntoIterator<Item = T>)
where
    DB: Dialect,
    T: Encode<'q, DB> + Type<DB> + 'q,
{
    let mut list = query.separated(", ");
    for value in values {
        list.push_bind(value);
    }
    query.push(")");
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
    for<'q> f32: Encode<'q, DB> + Type<DB>,
    for<'q> Option<f32>: Encode<'q, DB>,
    for<'q> bool: Encode<'q, DB> + Type<DB>,
    for<'q> DateTime<Utc>: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> Option<DateTime<Utc>>: Encode<'q, DB> + Decode<'q, DB>,
    for<'q> &'q str: Encode<'q, DB> + Type<DB>,
    for<'q> Option<&'q str>: Encode<'q, DB>,
    for<'q> String: Decode<'q, DB> + Type<DB>,
    for<'q> Option<String>: Decode<'q, DB>,
    for<'q> &'q [u8]: Encode<'q, DB> + Type<DB>,
    for<'q> Vec<u8>: Decode<'q, DB> + Type<DB>,
    for<'q> Option<Vec<u8>>: Decode<'q, DB>,
    for<'q> Json<Value>: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> Json<&'q Value>: Encode<'q, DB> + Type<DB>,
    usize: ColumnIndex<DB::Row>,
{
    // ----- opening -------------------------------------------------------------------------------------

    pub(super) async fn open(url: &str, access: Access) -> Result<Self> {
        let store = Self {
            pool: DB::open(url, access).await?,
            url: redact(url),
        };
        let found = store.schema().await?;
        let known = Self::latest();
        match (found.cmp(&known), access) {
            (std::cmp::Ordering::Greater, _) => Err(StoreError::Newer {
                url: store.url,
                found,
                known,
            }),
            (std::cmp::Ordering::Equal, _) => Ok(store),
            (std::cmp::Ordering::Less, Access::Create) => {
                store.migrate().await?;
                Ok(store)
            }
            (std::cmp::Ordering::Less, _) => Err(StoreError::NotMigrated(store.url)),
        }
    }

    /// Latest schema version that this program has.
    fn latest() -> i64 {
        DB::migrator()
            .iter()
            .map(|migration| migration.version)
            .max()
            .unwrap_or(0)
    }

    /// Schema version of the database; 0 if it has none.
    async fn schema(&self) -> Result<i64> {
        const WHAT: &str = "read the schema version";
        if self.number(DB::HAS_SCHEMA, WHAT).await? == 0 {
            return Ok(0);
        }
        self.number(
            "SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations WHERE success",
            WHAT,
        )
        .await
    }

    async fn migrate(&self) -> Result<()> {
        DB::migrate(&self.pool).await.map_err(|error| match &error {
            sqlx::migrate::MigrateError::Execute(source)
            | sqlx::migrate::MigrateError::ExecuteMigration(source, _) => {
                known_failure(source).unwrap_or(StoreError::Migrate(error))
            }
            _ => StoreError::Migrate(error),
        })
    }

    pub(super) async fn close(&self) -> Result<()> {
        self.pool.close().await;
        Ok(())
    }

    async fn number(&self, sql: &'static str, what: &'static str) -> Result<i64> {
        sqlx::query::<DB>(sql)
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row.try_get(0))
            .doing(what)
    }

    async fn begin(&self) -> Result<Transaction<'static, DB>> {
        self.pool
            .begin_with(DB::BEGIN_WRITE)
            .await
            .doing("begin a transaction")
    }

    // ----- runs ----------------------------------------------------------------------------------------

    pub(super) async fn begin_run(
        &self,
        stage: Stage,
        worker: &str,
        now: Timestamp,
    ) -> Result<RunId> {
        sqlx::query::<DB>(
            "INSERT INTO runs (stage, status, worker, started_at) VALUES ($1, $2, $3, $4) RETURNING id",
        )
        .bind(stage.as_str())
        .bind(RunStatus::Running.as_str())
        .bind(worker)
        .bind(at(now))
        .fetch_one(&self.pool)
        .await
        .and_then(|row| row.try_get(0))
        .map(RunId)
        .doing("record the run")
    }

    pub(super) async fn finish_run(
        &self,
        run: RunId,
        status: RunStatus,
        counts: &Value,
        outcomes: &Value,
        error: Option<&str>,
        now: Timestamp,
    ) -> Result<()> {
        sqlx::query::<DB>(
            "UPDATE runs SET status = $2, counts = $3, outcomes = $4, error = $5, finished_at = $6 WHERE id = $1",
        )
        .bind(run.0)
        .bind(status.as_str())
        .bind(Json(counts))
        .bind(Json(outcomes))
        .bind(error)
        .bind(at(now))
        .execute(&self.pool)
        .await
        .doing("record the end of the run")?;
        Ok(())
    }

    pub(super) async fn recent_runs(&self, limit: u32) -> Result<Vec<RunRow>> {
        const WHAT: &str = "read the latest runs";
        let rows = sqlx::query::<DB>(
            "SELECT id, stage, status, started_at, finished_at, counts, error FROM runs ORDER BY id DESC LIMIT $1",
        )
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .doing(WHAT)?;
        let decode = |row: &DB::Row| -> Result<RunRow, sqlx::Error> {
            Ok(RunRow {
                id: row.try_get(0)?,
                stage: row.try_get(1)?,
                status: row.try_get(2)?,
                started_at: row.try_get::<DateTime<Utc>, _>(3)?.into(),
                finished_at: row
                    .try_get::<Option<DateTime<Utc>>, _>(4)?
                    .map(Timestamp::from),
                counts: row.try_get::<Json<Value>, _>(5)?.0,
                error: row.try_get(6)?,
            })
        };
        rows.iter()
            .map(decode)
            .collect::<Result<_, _>>()
            .doing(WHAT)
    }

    // ----- posts ---------------------------------------------------------------------------------------

    pub(super) async fn save_page(&self, page: &Page<'_>) -> Result<Upserted> {
        self.save_block(std::slice::from_ref(page), None).await
    }

    pub(super) async fn save_block(
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

    async fn insert_page(tx: &mut Transaction<'static, DB>, page: &Page<'_>) -> Result<Upserted> {
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
    async fn tombstoned(
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

    pub(super) async fn import_state(
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

    async fn upsert_posts(
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
    async fn forgive_failures(tx: &mut Transaction<'static, DB>, changed: &[&str]) -> Result<()> {
        let mut update = QueryBuilder::<DB>::new(
            "UPDATE backlog SET attempts = 0, error = NULL WHERE attempts > 0 AND fullname IN (",
        );
        push_list(&mut update, changed.iter().copied());
        update
            .build()
            .execute(&mut **tx)
            .await
            .doing("forget failures of changed posts")?;
        Ok(())
    }

    async fn insert_sightings(
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

    pub(super) async fn watermark(
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

    pub(super) async fn record_gap(&self, gap: &Gap, run: RunId) -> Result<()> {
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

    pub(super) async fn gaps(&self) -> Result<Vec<Gap>> {
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

    pub(super) async fn running(&self, stage: Stage, since: Timestamp) -> Result<Vec<String>> {
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

    pub(super) async fn author_key(&self) -> Result<String> {
        sqlx::query::<DB>("SELECT value FROM meta WHERE key = 'author_key'")
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row.try_get(0))
            .doing("read the key for author names")
    }

    // ----- purging -------------------------------------------------------------------------------------

    pub(super) async fn count_due(&self, due: Due) -> Result<u64> {
        sqlx::query::<DB>(
            "SELECT COUNT(*) FROM posts WHERE (source = 'sample') = $1 \
                AND (checked_at IS NULL OR checked_at < $2)",
        )
        .bind(due.sample)
        .bind(at(due.before))
        .fetch_one(&self.pool)
        .await
        .and_then(|row| row.try_get::<i64, _>(0))
        .map(i64::unsigned_abs)
        .doing("count the posts to ask Reddit about")
    }

    pub(super) async fn due(&self, due: Due, limit: u32) -> Result<Vec<Fullname>> {
        // Two walks along the index, rather than a sort of everything that is due.
        let rows = sqlx::query::<DB>(
            "SELECT fullname FROM ( \
               SELECT * FROM (SELECT fullname, checked_at FROM posts WHERE checked_at IS NULL \
                  AND (source = 'sample') = $1 ORDER BY fullname LIMIT $3) never \
               UNION ALL \
               SELECT * FROM (SELECT fullname, checked_at FROM posts WHERE checked_at < $2 \
                  AND (source = 'sample') = $1 ORDER BY checked_at, fullname LIMIT $3) longest_ago) due \
              ORDER BY checked_at NULLS FIRST, fullname LIMIT $3",
        )
        .bind(due.sample)
        .bind(at(due.before))
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await;
        Self::fullnames(rows, "find the posts to ask Reddit about")
    }

    pub(super) async fn last_seen(&self, sample: bool, limit: u32) -> Result<Vec<Fullname>> {
        let rows = sqlx::query::<DB>(
            "SELECT fullname FROM posts WHERE checked_at IS NOT NULL AND (source = 'sample') = $1 \
              ORDER BY checked_at DESC, fullname DESC LIMIT $2",
        )
        .bind(sample)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await;
        Self::fullnames(rows, "find the posts that Reddit showed last")
    }

    fn fullnames(
        rows: Result<Vec<DB::Row>, sqlx::Error>,
        what: &'static str,
    ) -> Result<Vec<Fullname>> {
        let names: Vec<String> = rows
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing(what)?;
        let fullname = |name: String| {
            name.parse()
                .map_err(|error: crate::domain::FullnameError| StoreError::Corrupt {
                    table: "posts",
                    row: name,
                    detail: error.to_string(),
                })
        };
        names.into_iter().map(fullname).collect()
    }

    pub(super) async fn purge(&self, run: RunId, checked: &Checked, now: Timestamp) -> Result<u64> {
        let mut tx = self.begin().await?;
        let mut purged = 0;
        let mut gone: Vec<(&str, PurgeReason)> = checked
            .gone
            .iter()
            .map(|(fullname, reason)| (fullname.as_str(), *reason))
            .collect();
        // One statement may not touch a row twice.
        gone.sort_unstable_by_key(|(fullname, _)| *fullname);
        gone.dedup_by_key(|(fullname, _)| *fullname);
        Self::lock_tombstones(&mut tx).await?;
        for chunk in gone.chunks(POSTS_A_STATEMENT) {
            purged += Self::purge_posts(&mut tx, run, chunk, now).await?;
        }
        for chunk in checked.alive.chunks(POSTS_A_STATEMENT) {
            let mut update =
                QueryBuilder::<DB>::new("UPDATE posts SET removed_at = NULL, checked_at = ");
            update.push_bind(at(now)).push(" WHERE fullname IN (");
            push_list(&mut update, chunk.iter().map(Fullname::as_str));
            update
                .build()
                .execute(&mut *tx)
                .await
                .doing("note which posts are still there")?;
        }
        for chunk in checked.authorless.chunks(POSTS_A_STATEMENT) {
            let mut update =
                QueryBuilder::<DB>::new("UPDATE posts SET author = NULL WHERE fullname IN (");
            push_list(&mut update, chunk.iter().map(Fullname::as_str));
            update
                .build()
                .execute(&mut *tx)
                .await
                .doing("forget authors whose accounts are gone")?;
        }
        tx.commit().await.doing("purge posts")?;
        Ok(purged)
    }

    async fn lock_tombstones(tx: &mut Transaction<'static, DB>) -> Result<()> {
        if let Some(lock) = DB::LOCK_TOMBSTONES {
            sqlx::query::<DB>(lock)
                .execute(&mut **tx)
                .await
                .doing("keep others from storing posts")?;
        }
        Ok(())
    }

    /// Leases first, then the backlog, then posts: the order in which a worker goes that writes labels, so
    /// that it and a purge wait for each other and never in a circle.
    async fn take_from_workers(
        tx: &mut Transaction<'static, DB>,
        fullnames: &[&str],
    ) -> Result<()> {
        const WHAT: &str = "take posts out of the backlog";
        if !DB::FOR_UPDATE.is_empty() {
            let mut lock = QueryBuilder::<DB>::new(
                "SELECT id FROM leases WHERE id IN (SELECT lease_id FROM backlog WHERE fullname IN (",
            );
            push_list(&mut lock, fullnames.iter().copied());
            lock.push(") ORDER BY id ").push(DB::FOR_UPDATE);
            lock.build().execute(&mut **tx).await.doing(WHAT)?;
        }
        let mut delete = QueryBuilder::<DB>::new("DELETE FROM backlog WHERE fullname IN (");
        push_list(&mut delete, fullnames.iter().copied());
        delete.build().execute(&mut **tx).await.doing(WHAT)?;
        Ok(())
    }

    async fn purge_posts(
        tx: &mut Transaction<'static, DB>,
        run: RunId,
        gone: &[(&str, PurgeReason)],
        now: Timestamp,
    ) -> Result<u64> {
        const WHAT: &str = "purge posts";
        let fullnames: Vec<&str> = gone.iter().map(|(fullname, _)| *fullname).collect();
        Self::take_from_workers(tx, &fullnames).await?;

        // In the order in which whoever fills the backlog holds them.
        let mut lock = QueryBuilder::<DB>::new("SELECT text_hash FROM posts WHERE fullname IN (");
        push_list(&mut lock, fullnames.iter().copied());
        lock.push(" ORDER BY fullname ").push(DB::FOR_UPDATE);
        let mut hashes = Self::hashes(tx, lock).await?;
        // And of earlier texts that were scored.
        let mut scored =
            QueryBuilder::<DB>::new("SELECT text_hash FROM classifications WHERE fullname IN (");
        push_list(&mut scored, fullnames.iter().copied());
        hashes.extend(Self::hashes(tx, scored).await?);

        // Sightings, classifications and scores go with the post by their foreign keys.
        let mut delete = QueryBuilder::<DB>::new("DELETE FROM posts WHERE fullname IN (");
        push_list(&mut delete, fullnames.iter().copied());
        let purged = delete
            .build()
            .execute(&mut **tx)
            .await
            .map(|done| DB::rows_affected(&done))
            .doing(WHAT)?;
        if !hashes.is_empty() {
            let mut delete = QueryBuilder::<DB>::new(
                "DELETE FROM pair_logits WHERE model_id IN (SELECT id FROM models) AND NOT EXISTS ( \
                   SELECT 1 FROM posts p WHERE p.text_hash = pair_logits.text_hash) AND text_hash IN (",
            );
            push_list(&mut delete, hashes.iter().map(Vec::as_slice));
            delete.build().execute(&mut **tx).await.doing(WHAT)?;
        }

        let mut insert = QueryBuilder::<DB>::new(
            "INSERT INTO tombstones (fullname, reason, purged_at, run_id) ",
        );
        insert.push_values(gone, |mut row, (fullname, reason)| {
            row.push_bind(*fullname)
                .push_bind(reason.as_str())
                .push_bind(at(now))
                .push_bind(run.0);
        });
        // What may be lifted gives way to what may not, never the other way round.
        insert.push(
            " ON CONFLICT (fullname) DO UPDATE SET reason = excluded.reason \
               WHERE tombstones.reason IN ('removed', 'missing')",
        );
        insert
            .build()
            .execute(&mut **tx)
            .await
            .doing("leave tombstones")?;
        Ok(purged)
    }

    async fn hashes(
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

    pub(super) async fn purge_texts(
        &self,
        before: Timestamp,
        limit: u32,
        now: Timestamp,
    ) -> Result<u64> {
        const WHAT: &str = "purge old texts";
        let mut tx = self.begin().await?;
        Self::lock_tombstones(&mut tx).await?;
        let old: Vec<String> = sqlx::query::<DB>(
            "SELECT fullname FROM posts WHERE text_purged_at IS NULL AND collected_at < $1 \
              ORDER BY collected_at LIMIT $2",
        )
        .bind(at(before))
        .bind(i64::from(limit))
        .fetch_all(&mut *tx)
        .await
        .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
        .doing(WHAT)?;
        let mut purged = 0;
        for chunk in old.chunks(POSTS_A_STATEMENT) {
            let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
            Self::take_from_workers(&mut tx, &chunk).await?;
            let mut update = QueryBuilder::<DB>::new(
                "UPDATE posts SET title = '', selftext = '', url = NULL, permalink = NULL, author = NULL, \
                 flair = NULL, text_purged_at = ",
            );
            update.push_bind(at(now)).push(" WHERE fullname IN (");
            push_list(&mut update, chunk.iter().copied());
            purged += update
                .build()
                .execute(&mut *tx)
                .await
                .map(|done| DB::rows_affected(&done))
                .doing(WHAT)?;
        }
        tx.commit().await.doing(WHAT)?;
        Ok(purged)
    }

    pub(super) async fn note_reconciled(&self, due: Due) -> Result<bool> {
        // Times of this form sort as texts.
        let text = at(due.before).format("%Y-%m-%dT%H:%M:%S+00:00").to_string();
        let done = sqlx::query::<DB>(
            "INSERT INTO meta (key, value) SELECT 'reconciled_at', $1 WHERE NOT EXISTS ( \
               SELECT 1 FROM posts WHERE (checked_at IS NULL OR checked_at < $2) \
                  AND (source <> 'sample' OR $3)) \
             ON CONFLICT (key) DO UPDATE SET value = CASE WHEN meta.value > excluded.value \
               THEN meta.value ELSE excluded.value END",
        )
        .bind(text.as_str())
        .bind(at(due.before))
        .bind(due.sample)
        .execute(&self.pool)
        .await
        .doing("note that the database is reconciled")?;
        Ok(DB::rows_affected(&done) == 1)
    }

    async fn reconciled_at(&self) -> Result<Option<Timestamp>> {
        let value: Option<String> =
            sqlx::query::<DB>("SELECT value FROM meta WHERE key = 'reconciled_at'")
                .fetch_optional(&self.pool)
                .await
                .and_then(|row| row.map(|row| row.try_get(0)).transpose())
                .doing("read when the database was reconciled")?;
        let parse = |text: String| {
            DateTime::parse_from_rfc3339(&text)
                .map(|time| time.to_utc().into())
                .map_err(|error| StoreError::Corrupt {
                    table: "meta",
                    row: "reconciled_at".into(),
                    detail: error.to_string(),
                })
        };
        value.map(parse).transpose()
    }

    pub(super) async fn settle(&self) -> Result<bool> {
        DB::settle(&self.pool)
            .await
            .doing("take purged posts out of the database's log")
    }

    // ----- models and label sets -----------------------------------------------------------------------

    pub(super) async fn ensure_model(&self, model: &ModelRow) -> Result<i64> {
        sqlx::query::<DB>(
            "INSERT INTO models (name, kind, manifest_hash, precision, tokenizer_hash, max_tokens) \
             VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (manifest_hash, precision, max_tokens) DO UPDATE SET name = excluded.name RETURNING id",
        )
        .bind(model.name.as_str())
        .bind(model.kind.as_str())
        .bind(model.manifest_hash.as_str())
        .bind(model.precision.as_str())
        .bind(model.tokenizer_hash.as_str())
        .bind(model.max_tokens)
        .fetch_one(&self.pool)
        .await
        .and_then(|row| row.try_get(0))
        .doing("record the model")
    }

    pub(super) async fn ensure_label_set(&self, set: &LabelSet, now: Timestamp) -> Result<i64> {
        const WHAT: &str = "record the label set";
        let hash = set.hash();
        let mut tx = self.begin().await?;
        let id: i64 = sqlx::query::<DB>(
            "INSERT INTO label_sets (name, hash, template, mode, threshold, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (hash) DO UPDATE SET name = excluded.name RETURNING id",
        )
        .bind(set.name.as_str())
        .bind(hash.as_str())
        .bind(set.template.as_str())
        .bind(set.mode.as_str())
        .bind(set.threshold)
        .bind(at(now))
        .fetch_one(&mut *tx)
        .await
        .and_then(|row| row.try_get(0))
        .doing(WHAT)?;
        for (chunk_index, chunk) in set.labels.chunks(ROWS_A_STATEMENT).enumerate() {
            let hypotheses: Vec<String> = chunk.iter().map(|label| set.hypothesis(label)).collect();
            let mut insert = QueryBuilder::<DB>::new(
                "INSERT INTO labels (label_set_id, position, slug, label, hypothesis, descriptions) ",
            );
            insert.push_values(
                chunk.iter().zip(&hypotheses).enumerate(),
                |mut row, (i, (label, hypothesis))| {
                    row.push_bind(id)
                        .push_bind(count((chunk_index * ROWS_A_STATEMENT + i) as u64))
                        .push_bind(label.slug.as_str())
                        .push_bind(label.label.as_str())
                        .push_bind(hypothesis.as_str())
                        .push_bind(Json(Value::from(label.descriptions.clone())));
                },
            );
            insert.push(" ON CONFLICT DO NOTHING");
            insert.build().execute(&mut *tx).await.doing(WHAT)?;
        }
        tx.commit().await.doing(WHAT)?;
        Ok(id)
    }

    pub(super) async fn ensure_hypotheses(&self, texts: &[String]) -> Result<Vec<i64>> {
        const WHAT: &str = "record the hypotheses";
        let mut tx = self.begin().await?;
        let mut ids = vec![0; texts.len()];
        // In one order for everybody, see `save_page`.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_unstable_by_key(|&i| &texts[i]);
        for i in order {
            let text = &texts[i];
            let id: i64 = sqlx::query::<DB>(
                "INSERT INTO hypotheses (hash, text) VALUES ($1, $2) \
                 ON CONFLICT (hash) DO UPDATE SET text = excluded.text RETURNING id",
            )
            .bind(TextHash::of(text).as_bytes())
            .bind(text.as_str())
            .fetch_one(&mut *tx)
            .await
            .and_then(|row| row.try_get(0))
            .doing(WHAT)?;
            ids[i] = id;
        }
        tx.commit().await.doing(WHAT)?;
        Ok(ids)
    }

    pub(super) async fn set_current(&self, target: Target) -> Result<()> {
        sqlx::query::<DB>(
            "INSERT INTO current_target (only_row, model_id, label_set_id) VALUES (TRUE, $1, $2) \
             ON CONFLICT (only_row) DO UPDATE SET model_id = excluded.model_id, label_set_id = excluded.label_set_id",
        )
        .bind(target.model)
        .bind(target.label_set)
        .execute(&self.pool)
        .await
        .doing("set the current model and label set")?;
        Ok(())
    }

    // ----- backlog and leases --------------------------------------------------------------------------

    pub(super) async fn enqueue_missing(&self, target: Target) -> Result<u64> {
        let insert = format!(
            "INSERT INTO backlog (model_id, label_set_id, fullname) \
             SELECT $1, $2, p.fullname FROM posts p WHERE p.text_purged_at IS NULL AND NOT EXISTS ( \
               SELECT 1 FROM classifications c WHERE c.model_id = $1 AND c.label_set_id = $2 \
                  AND c.fullname = p.fullname AND c.text_hash = p.text_hash) \
              ORDER BY p.fullname {} ON CONFLICT DO NOTHING",
            DB::HOLD_POSTS
        );
        sqlx::query::<DB>(AssertSqlSafe(insert))
            .bind(target.model)
            .bind(target.label_set)
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done))
            .doing("find unlabelled posts")
    }

    pub(super) async fn waiting(
        &self,
        target: Target,
        max_attempts: u32,
        now: Timestamp,
    ) -> Result<Waiting> {
        const WHAT: &str = "count the backlog";
        let row = sqlx::query::<DB>(
            "SELECT COUNT(*), \
                    COALESCE(SUM(CASE WHEN l.expires_at > $4 THEN 1 ELSE 0 END), 0), \
                    COALESCE(SUM(CASE WHEN b.attempts >= $3 THEN 1 ELSE 0 END), 0) \
               FROM backlog b LEFT JOIN leases l ON l.id = b.lease_id \
              WHERE b.model_id = $1 AND b.label_set_id = $2",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(i64::from(max_attempts))
        .bind(at(now))
        .fetch_one(&self.pool)
        .await
        .doing(WHAT)?;
        let number = |column: usize| {
            row.try_get::<i64, _>(column)
                .map(i64::unsigned_abs)
                .doing(WHAT)
        };
        let (all, held, set_aside) = (number(0)?, number(1)?, number(2)?);
        Ok(Waiting {
            claimable: all.saturating_sub(held + set_aside),
            held,
            set_aside,
        })
    }

    pub(super) async fn claim(
        &self,
        target: Target,
        claimant: &Claimant<'_>,
        limit: u32,
        now: Timestamp,
    ) -> Result<Claim> {
        loop {
            if let Some(claim) = self.try_claim(target, claimant, limit, now).await? {
                return Ok(claim);
            }
        }
    }

    /// `None`: everything that was picked turned out to be labelled; there may be more.
    async fn try_claim(
        &self,
        target: Target,
        claimant: &Claimant<'_>,
        limit: u32,
        now: Timestamp,
    ) -> Result<Option<Claim>> {
        const WHAT: &str = "claim posts";
        let mut tx = self.begin().await?;
        // Their posts return to the backlog by the foreign key.
        let expire = format!(
            "DELETE FROM leases WHERE id IN (SELECT id FROM leases WHERE expires_at <= $1 ORDER BY id {})",
            DB::FOR_UPDATE
        );
        sqlx::query::<DB>(AssertSqlSafe(expire))
            .bind(at(now))
            .execute(&mut *tx)
            .await
            .doing("return expired claims")?;
        let id: i64 = sqlx::query::<DB>(
            "INSERT INTO leases (worker, run_id, claimed_at, expires_at) VALUES ($1, $2, $3, $4) RETURNING id",
        )
        .bind(claimant.worker)
        .bind(claimant.run.0)
        .bind(at(now))
        .bind(at(now) + claimant.lease)
        .fetch_one(&mut *tx)
        .await
        .and_then(|row| row.try_get(0))
        .doing(WHAT)?;
        let pick = format!(
            "WITH picked AS MATERIALIZED ( \
               SELECT fullname FROM backlog WHERE model_id = $2 AND label_set_id = $3 AND lease_id IS NULL \
                  AND attempts < $4 ORDER BY attempts, fullname LIMIT $5 {}) \
             UPDATE backlog SET lease_id = $1 \
              WHERE model_id = $2 AND label_set_id = $3 AND fullname IN (SELECT fullname FROM picked)",
            DB::SKIP_LOCKED
        );
        let picked = sqlx::query::<DB>(AssertSqlSafe(pick))
            .bind(id)
            .bind(target.model)
            .bind(target.label_set)
            .bind(i64::from(claimant.max_attempts))
            .bind(i64::from(limit))
            .execute(&mut *tx)
            .await
            .map(|done| DB::rows_affected(&done))
            .doing(WHAT)?;
        // Another worker may have labelled a post between the look that put it here and now.
        let done = sqlx::query::<DB>(
            "DELETE FROM backlog WHERE lease_id = $1 AND EXISTS ( \
               SELECT 1 FROM classifications c JOIN posts p ON p.fullname = c.fullname \
                WHERE c.model_id = $2 AND c.label_set_id = $3 AND c.fullname = backlog.fullname \
                  AND c.text_hash = p.text_hash)",
        )
        .bind(id)
        .bind(target.model)
        .bind(target.label_set)
        .execute(&mut *tx)
        .await
        .map(|done| DB::rows_affected(&done))
        .doing(WHAT)?;
        if picked == done {
            sqlx::query::<DB>("DELETE FROM leases WHERE id = $1")
                .bind(id)
                .execute(&mut *tx)
                .await
                .doing(WHAT)?;
            tx.commit().await.doing(WHAT)?;
            let nothing = Claim {
                lease: Lease(id),
                posts: Vec::new(),
            };
            return Ok((picked == 0).then_some(nothing));
        }
        let rows = sqlx::query::<DB>(
            "SELECT p.fullname, p.text_hash, p.title, p.selftext FROM backlog b \
               JOIN posts p ON p.fullname = b.fullname WHERE b.lease_id = $1 ORDER BY p.fullname",
        )
        .bind(id)
        .fetch_all(&mut *tx)
        .await
        .doing(WHAT)?;
        tx.commit().await.doing(WHAT)?;
        let posts = rows.iter().map(Self::claimed_post).collect::<Result<_>>()?;
        Ok(Some(Claim {
            lease: Lease(id),
            posts,
        }))
    }

    fn claimed_post(row: &DB::Row) -> Result<ClaimedPost> {
        const WHAT: &str = "read claimed posts";
        let fullname: String = row.try_get(0).doing(WHAT)?;
        let hash: Vec<u8> = row.try_get(1).doing(WHAT)?;
        let text_hash = TextHash::try_from(hash.as_slice()).map_err(|_| StoreError::Corrupt {
            table: "posts",
            row: fullname.clone(),
            detail: "`text_hash` has not 16 bytes".into(),
        })?;
        Ok(ClaimedPost {
            fullname,
            text_hash,
            title: row.try_get(2).doing(WHAT)?,
            selftext: row.try_get(3).doing(WHAT)?,
        })
    }

    pub(super) async fn renew(
        &self,
        lease_id: Lease,
        now: Timestamp,
        lease: Duration,
    ) -> Result<bool> {
        sqlx::query::<DB>("UPDATE leases SET expires_at = $2 WHERE id = $1")
            .bind(lease_id.0)
            .bind(at(now) + lease)
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done) == 1)
            .doing("renew a lease")
    }

    pub(super) async fn complete(
        &self,
        lease_id: Lease,
        target: Target,
        mode: Mode,
        run: RunId,
        now: Timestamp,
        done: &[Classified],
    ) -> Result<Written> {
        const WHAT: &str = "store labels";
        let mut tx = self.begin().await?;
        if !Self::hold_lease(&mut tx, lease_id).await? {
            return Ok(Written::LeaseLost);
        }
        let slugs = Self::slugs(&mut tx, target.label_set).await?;
        let mut stored = 0;
        for chunk in done.chunks(POSTS_A_STATEMENT) {
            // What is not in the backlog under this lease any more (deleted, say) is not ours to write.
            let held = Self::take_out_of_backlog(&mut tx, lease_id, target, chunk).await?;
            let chunk: Vec<&Classified> = chunk
                .iter()
                .filter(|one| held.contains(&one.fullname))
                .collect();
            if chunk.is_empty() {
                continue;
            }
            stored += chunk.len() as u64;
            Self::insert_logits(&mut tx, target, &chunk).await?;
            Self::upsert_classifications(&mut tx, target, mode, run, now, &slugs, &chunk).await?;
            Self::upsert_scores(&mut tx, target, &chunk).await?;
        }
        tx.commit().await.doing(WHAT)?;
        Ok(Written::Stored(stored))
    }

    /// Locks a lease, which goes before any lock on its posts; false if it is not there. Whoever takes over
    /// an expired lease deletes its row, so the row alone decides.
    async fn hold_lease(tx: &mut Transaction<'static, DB>, lease: Lease) -> Result<bool> {
        let live = format!("SELECT 1 FROM leases WHERE id = $1 {}", DB::FOR_UPDATE);
        sqlx::query::<DB>(AssertSqlSafe(live))
            .bind(lease.0)
            .fetch_optional(&mut **tx)
            .await
            .map(|row| row.is_some())
            .doing("check the lease")
    }

    async fn slugs(tx: &mut Transaction<'static, DB>, label_set: i64) -> Result<Vec<String>> {
        sqlx::query::<DB>("SELECT slug FROM labels WHERE label_set_id = $1 ORDER BY position")
            .bind(label_set)
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing("read the labels")
    }

    async fn take_out_of_backlog(
        tx: &mut Transaction<'static, DB>,
        lease: Lease,
        target: Target,
        done: &[Classified],
    ) -> Result<HashSet<String>> {
        let mut delete = QueryBuilder::<DB>::new("DELETE FROM backlog WHERE lease_id = ");
        delete
            .push_bind(lease.0)
            .push(" AND model_id = ")
            .push_bind(target.model);
        delete
            .push(" AND label_set_id = ")
            .push_bind(target.label_set)
            .push(" AND fullname IN (");
        push_list(&mut delete, done.iter().map(|one| one.fullname.as_str()));
        delete.push(" RETURNING fullname");
        delete
            .build()
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing("take posts out of the backlog")
    }

    async fn insert_logits(
        tx: &mut Transaction<'static, DB>,
        target: Target,
        done: &[&Classified],
    ) -> Result<()> {
        let mut rows: Vec<_> = done
            .iter()
            .flat_map(|one| {
                one.logits
                    .iter()
                    .map(move |(id, logits)| (&one.text_hash, id, logits))
            })
            .collect();
        rows.sort_unstable_by_key(|(hash, hypothesis, _)| (**hash, **hypothesis));
        for chunk in rows.chunks(ROWS_A_STATEMENT) {
            let mut insert = QueryBuilder::<DB>::new(
                "INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment, contradiction, neutral) ",
            );
            insert.push_values(chunk, |mut row, (hash, hypothesis, logits)| {
                row.push_bind(target.model)
                    .push_bind(hash.as_bytes())
                    .push_bind(**hypothesis)
                    .push_bind(logits.entailment)
                    .push_bind(logits.contradiction)
                    .push_bind(logits.neutral);
            });
            insert.push(" ON CONFLICT DO NOTHING");
            insert
                .build()
                .execute(&mut **tx)
                .await
                .doing("store logits")?;
        }
        Ok(())
    }

    async fn upsert_classifications(
        tx: &mut Transaction<'static, DB>,
        target: Target,
        mode: Mode,
        run: RunId,
        now: Timestamp,
        slugs: &[String],
        done: &[&Classified],
    ) -> Result<()> {
        let mut insert = QueryBuilder::<DB>::new(
            "INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, \
             abstained, mode, run_id, classified_at) ",
        );
        insert.push_values(done, |mut row, one| {
            row.push_bind(one.fullname.as_str())
                .push_bind(target.model)
                .push_bind(target.label_set)
                .push_bind(one.text_hash.as_bytes())
                .push_bind(slugs[one.scores.best].as_str())
                .push_bind(one.scores.scores[one.scores.best])
                .push_bind(one.scores.margin)
                .push_bind(one.scores.abstained)
                .push_bind(mode.as_str())
                .push_bind(run.0)
                .push_bind(at(now));
        });
        insert.push(
            " ON CONFLICT (model_id, label_set_id, fullname) DO UPDATE SET text_hash = excluded.text_hash, \
             label = excluded.label, score = excluded.score, margin = excluded.margin, \
             abstained = excluded.abstained, mode = excluded.mode, run_id = excluded.run_id, \
             classified_at = excluded.classified_at",
        );
        insert
            .build()
            .execute(&mut **tx)
            .await
            .doing("store classifications")?;
        Ok(())
    }

    async fn upsert_scores(
        tx: &mut Transaction<'static, DB>,
        target: Target,
        done: &[&Classified],
    ) -> Result<()> {
        let rows: Vec<_> = done
            .iter()
            .flat_map(|one| {
                one.scores
                    .scores
                    .iter()
                    .enumerate()
                    .map(move |(i, score)| (one.fullname.as_str(), i, score))
            })
            .collect();
        for chunk in rows.chunks(ROWS_A_STATEMENT) {
            let mut insert = QueryBuilder::<DB>::new(
                "INSERT INTO label_scores (fullname, model_id, label_set_id, position, score) ",
            );
            insert.push_values(chunk, |mut row, &(fullname, position, score)| {
                row.push_bind(fullname)
                    .push_bind(target.model)
                    .push_bind(target.label_set)
                    .push_bind(count(position as u64))
                    .push_bind(*score);
            });
            insert.push(
                " ON CONFLICT (model_id, label_set_id, fullname, position) DO UPDATE SET score = excluded.score",
            );
            insert
                .build()
                .execute(&mut **tx)
                .await
                .doing("store scores")?;
        }
        Ok(())
    }

    pub(super) async fn fail(&self, lease_id: Lease, failed: &[(String, String)]) -> Result<()> {
        const WHAT: &str = "hand failed posts back";
        let mut tx = self.begin().await?;
        if !Self::hold_lease(&mut tx, lease_id).await? {
            return Ok(());
        }
        for (fullname, error) in failed {
            sqlx::query::<DB>(
                "UPDATE backlog SET lease_id = NULL, attempts = attempts + 1, error = $3 \
                  WHERE lease_id = $1 AND fullname = $2",
            )
            .bind(lease_id.0)
            .bind(fullname.as_str())
            .bind(error.as_str())
            .execute(&mut *tx)
            .await
            .doing(WHAT)?;
        }
        tx.commit().await.doing(WHAT)
    }

    pub(super) async fn release(&self, lease_id: Lease) -> Result<()> {
        sqlx::query::<DB>("DELETE FROM leases WHERE id = $1")
            .bind(lease_id.0)
            .execute(&self.pool)
            .await
            .doing("release a lease")?;
        Ok(())
    }

    pub(super) async fn lease_holders(&self) -> Result<Vec<(Lease, String)>> {
        sqlx::query::<DB>("SELECT id, worker FROM leases ORDER BY id")
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| {
                rows.iter()
                    .map(|row| Ok((Lease(row.try_get(0)?), row.try_get(1)?)))
                    .collect()
            })
            .doing("read the leases")
    }

    // ----- looking -------------------------------------------------------------------------------------

    pub(super) async fn standing(&self, max_attempts: u32, now: Timestamp) -> Result<Standing> {
        const WHAT: &str = "read how far the labelling is";
        let posts = self.number("SELECT COUNT(*) FROM posts", WHAT).await?;
        let unchecked = self
            .number("SELECT COUNT(*) FROM posts WHERE checked_at IS NULL", WHAT)
            .await?;
        let reconciled_at = self.reconciled_at().await?;
        let target = sqlx::query::<DB>(
            "SELECT t.model_id, t.label_set_id, m.name, s.name FROM current_target t \
               JOIN models m ON m.id = t.model_id JOIN label_sets s ON s.id = t.label_set_id",
        )
        .fetch_optional(&self.pool)
        .await
        .doing(WHAT)?;
        let Some(target) = target else {
            let open = sqlx::query::<DB>(
                "SELECT COUNT(*), MIN(collected_at) FROM posts WHERE text_purged_at IS NULL",
            )
            .fetch_one(&self.pool)
            .await
            .doing(WHAT)?;
            let unlabelled: i64 = open.try_get(0).doing(WHAT)?;
            let oldest: Option<DateTime<Utc>> = open.try_get(1).doing(WHAT)?;
            return Ok(Standing {
                posts,
                labelled: 0,
                unlabelled,
                set_aside: 0,
                claimed: 0,
                text_purged: posts - unlabelled,
                unchecked,
                reconciled_at,
                oldest_unlabelled: oldest.map(Timestamp::from),
                model: None,
                label_set: None,
            });
        };
        let (model_id, label_set_id): (i64, i64) = (
            target.try_get(0).doing(WHAT)?,
            target.try_get(1).doing(WHAT)?,
        );
        let open = sqlx::query::<DB>(
            "SELECT COUNT(*), COUNT(p.text_purged_at), \
                    MIN(CASE WHEN p.text_purged_at IS NULL THEN p.collected_at END) \
               FROM posts p WHERE NOT EXISTS ( \
               SELECT 1 FROM classifications c WHERE c.model_id = $1 AND c.label_set_id = $2 \
                  AND c.fullname = p.fullname AND c.text_hash = p.text_hash)",
        )
        .bind(model_id)
        .bind(label_set_id)
        .fetch_one(&self.pool)
        .await
        .doing(WHAT)?;
        let target_ids = Target {
            model: model_id,
            label_set: label_set_id,
        };
        let waiting = self.waiting(target_ids, max_attempts, now).await?;
        let (without, text_purged): (i64, i64) =
            (open.try_get(0).doing(WHAT)?, open.try_get(1).doing(WHAT)?);
        Ok(Standing {
            posts,
            labelled: posts - without,
            unlabelled: without - text_purged,
            text_purged,
            unchecked,
            reconciled_at,
            set_aside: count(waiting.set_aside),
            claimed: count(waiting.held),
            oldest_unlabelled: open
                .try_get::<Option<DateTime<Utc>>, _>(2)
                .doing(WHAT)?
                .map(Timestamp::from),
            model: target.try_get(2).doing(WHAT)?,
            label_set: target.try_get(3).doing(WHAT)?,
        })
    }

    pub(super) async fn info(&self) -> Result<Info> {
        const WHAT: &str = "read what database this is";
        let server = sqlx::query::<DB>(DB::SERVER)
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row.try_get(0));
        let mut rows = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
            let count = sqlx::query::<DB>(sql)
                .fetch_one(&self.pool)
                .await
                .and_then(|row| row.try_get(0));
            rows.push((table.to_owned(), count.doing(WHAT)?));
        }
        Ok(Info {
            backend: DB::BACKEND,
            url: self.url.clone(),
            server: server.doing(WHAT)?,
            schema: self.schema().await?,
            latest: Self::latest(),
            bytes: self.number(DB::BYTES, WHAT).await?,
            rows,
        })
    }
}
