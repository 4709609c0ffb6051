//! Statements for people who look through posts: a page of posts, one post with all there is of it.

use serde_json::Value;
use sqlx::types::Json;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{ColumnIndex, Decode, Encode, Executor, IntoArguments, QueryBuilder, Row, Type};

use super::super::browsed::{LabelScore, ListedPost, News, Sighting, Verdict, WholePost};
use super::super::dialect::Dialect;
use super::super::{Result, StoreError, Target};
use super::renaming::RENAMED;
use super::{Doing, SqlStore, is_forbidden, push_list};
use crate::domain::Timestamp;

/// A key that no row has.
const NO_ROW: i64 = -1;
/// Characters of a body that a list shows: two lines of a wide window.
const EXCERPT: i64 = 280;
/// Characters of a title that a list shows; titles on Reddit end at 300.
const TITLE: i64 = 400;
/// Sightings of a post that are shown: those of a year, read every day.
const SIGHTINGS: i64 = 400;
/// Posts of the same text that are shown.
const SAME_TEXT: i64 = 20;

const OUTCOME: &str =
    "CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END";

/// The model and the label set in a statement, or keys that no row has.
fn keys(target: Option<Target>) -> (i64, i64) {
    target.map_or((NO_ROW, NO_ROW), |target| (target.model, target.label_set))
}

impl<DB> SqlStore<DB>
where
    DB: Dialect,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: IntoArguments<DB>,
    for<'q> i64: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> f64: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> f32: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> Option<f32>: Encode<'q, DB> + Decode<'q, DB>,
    for<'q> bool: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> DateTime<Utc>: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> &'q str: Encode<'q, DB> + Type<DB>,
    for<'q> String: Decode<'q, DB> + Type<DB>,
    for<'q> &'q [u8]: Encode<'q, DB> + Type<DB>,
    for<'q> Vec<u8>: Decode<'q, DB> + Type<DB>,
    for<'q> Json<Value>: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> Option<Json<Value>>: Decode<'q, DB>,
    usize: ColumnIndex<DB::Row>,
{
    pub(in crate::store) async fn listed(
        &self,
        target: Option<Target>,
        posts: &[String],
    ) -> Result<Vec<ListedPost>> {
        let mut select = Self::select_listed(target);
        select.push(" WHERE p.fullname IN (");
        push_list(&mut select, posts.iter().map(String::as_str));
        let rows = select.build().fetch_all(&self.pool).await;
        rows.and_then(|rows| rows.iter().map(Self::decode_listed).collect())
            .doing("read a page of posts")
    }

    fn select_listed(target: Option<Target>) -> QueryBuilder<DB> {
        let (model, label_set) = keys(target);
        let mut select = QueryBuilder::<DB>::new(format!(
            "SELECT p.fullname, p.subreddit, p.topic, substr(p.title, 1, {TITLE}), substr(p.selftext, 1, {EXCERPT}), \
                    CASE WHEN c.abstained THEN NULL ELSE l.label END, {OUTCOME}, c.score, c.margin, p.reddit_score, \
                    p.num_comments, p.created_at, p.text_purged_at IS NOT NULL \
               FROM posts p LEFT JOIN classifications c ON c.model_id = "
        ));
        select.push_bind(model).push(" AND c.label_set_id = ");
        select.push_bind(label_set).push(
            " AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
              LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label",
        );
        select
    }

    fn decode_listed(row: &DB::Row) -> Result<ListedPost, sqlx::Error> {
        Ok(ListedPost {
            fullname: row.try_get(0)?,
            subreddit: row.try_get(1)?,
            topic: row.try_get(2)?,
            title: row.try_get(3)?,
            excerpt: row.try_get(4)?,
            label: row.try_get(5)?,
            outcome: row.try_get(6)?,
            score: row.try_get(7)?,
            margin: row.try_get(8)?,
            reddit_score: row.try_get(9)?,
            num_comments: row.try_get(10)?,
            created_at: row.try_get::<DateTime<Utc>, _>(11)?.into(),
            text_purged: row.try_get(12)?,
        })
    }

    pub(in crate::store) async fn whole_post(&self, fullname: &str) -> Result<Option<WholePost>> {
        const WHAT: &str = "read a post";
        let current = self.current_target().await?;
        let name = [fullname.to_owned()];
        let Some(listed) = self.listed(current, &name).await?.pop() else {
            return Ok(None);
        };
        let row = sqlx::query::<DB>(
            "SELECT selftext, url, permalink, author, flair, upvote_ratio, over_18, source, text_hash, \
                    crosspost_parent, collected_at, updated_at, checked_at, removed_at, title \
               FROM posts WHERE fullname = $1",
        )
        .bind(fullname)
        .fetch_optional(&self.pool)
        .await
        .doing(WHAT)?;
        // A purge may come between the two statements.
        let Some(row) = row else { return Ok(None) };
        let hash: Vec<u8> = row.try_get(8).doing(WHAT)?;
        let mut post = Self::decode_whole(&row, listed).doing(WHAT)?;
        post.text_hash = topicmill_score::hex(&hash);
        post.verdicts = self.verdicts(current, fullname, &hash).await?;
        post.sightings = self.sightings(fullname).await?;
        post.same_text = self.same_text(current, fullname, &hash).await?;
        Ok(Some(post))
    }

    fn decode_whole(row: &DB::Row, mut listed: ListedPost) -> Result<WholePost, sqlx::Error> {
        let time = |i| row.try_get::<DateTime<Utc>, _>(i).map(Timestamp::from);
        let maybe = |i| {
            let time = row.try_get::<Option<DateTime<Utc>>, _>(i);
            time.map(|time| time.map(Timestamp::from))
        };
        // A list shortens titles; the page of one post shows all of it.
        listed.title = row.try_get(14)?;
        Ok(WholePost {
            listed,
            selftext: row.try_get(0)?,
            url: row.try_get(1)?,
            permalink: row.try_get(2)?,
            author: row.try_get(3)?,
            flair: row.try_get(4)?,
            upvote_ratio: row.try_get(5)?,
            over_18: row.try_get(6)?,
            source: row.try_get(7)?,
            text_hash: String::new(),
            crosspost_parent: row.try_get(9)?,
            collected_at: time(10)?,
            updated_at: time(11)?,
            checked_at: maybe(12)?,
            removed_at: maybe(13)?,
            verdicts: Vec::new(),
            sightings: Vec::new(),
            same_text: Vec::new(),
        })
    }

    async fn verdicts(
        &self,
        current: Option<Target>,
        fullname: &str,
        hash: &[u8],
    ) -> Result<Vec<Verdict>> {
        const WHAT: &str = "read the labels of a post";
        let sql = format!(
            "SELECT c.model_id, c.label_set_id, s.name, s.hash, m.name, m.precision, {OUTCOME}, c.label, c.score, \
                    c.margin, c.text_hash, c.run_id, c.classified_at, s.threshold \
               FROM classifications c JOIN models m ON m.id = c.model_id JOIN label_sets s ON s.id = c.label_set_id \
              WHERE c.fullname = $1 ORDER BY c.label_set_id DESC, c.model_id DESC"
        );
        let rows = sqlx::query::<DB>(sqlx::AssertSqlSafe(sql))
            .bind(fullname)
            .fetch_all(&self.pool)
            .await
            .doing(WHAT)?;
        let mut all = Vec::with_capacity(rows.len());
        for row in &rows {
            let decode = || -> Result<(Target, Verdict), sqlx::Error> {
                let target = Target {
                    model: row.try_get(0)?,
                    label_set: row.try_get(1)?,
                };
                let version: String = row.try_get(3)?;
                let of: Vec<u8> = row.try_get(10)?;
                let verdict = Verdict {
                    label_set: row.try_get(2)?,
                    version: version.chars().take(12).collect(),
                    model: row.try_get(4)?,
                    precision: row.try_get(5)?,
                    is_current: current == Some(target),
                    outcome: row.try_get(6)?,
                    best: row.try_get(7)?,
                    score: row.try_get(8)?,
                    margin: row.try_get(9)?,
                    is_of_this_text: of == hash,
                    run: row.try_get(11)?,
                    classified_at: row.try_get::<DateTime<Utc>, _>(12)?.into(),
                    threshold: row.try_get(13)?,
                    scores: Vec::new(),
                };
                Ok((target, verdict))
            };
            let (target, mut verdict) = decode().doing(WHAT)?;
            verdict.scores = self.scores_of(target, fullname).await?;
            all.push(verdict);
        }
        // The sort is stable: the others stay in the order of the statement, the newest first.
        all.sort_by_key(|verdict| !verdict.is_current);
        Ok(all)
    }

    async fn scores_of(&self, target: Target, fullname: &str) -> Result<Vec<LabelScore>> {
        let decode = |row: &DB::Row| -> Result<LabelScore, sqlx::Error> {
            Ok(LabelScore {
                label: row.try_get(0)?,
                words: row.try_get(1)?,
                score: row.try_get(2)?,
            })
        };
        sqlx::query::<DB>(
            "SELECT l.slug, l.label, s.score FROM label_scores s \
               JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position \
              WHERE s.model_id = $1 AND s.label_set_id = $2 AND s.fullname = $3 ORDER BY s.score DESC, l.position",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(fullname)
        .fetch_all(&self.pool)
        .await
        .and_then(|rows| rows.iter().map(decode).collect())
        .doing("read the scores of a post")
    }

    async fn sightings(&self, fullname: &str) -> Result<Vec<Sighting>> {
        let decode = |row: &DB::Row| -> Result<Sighting, sqlx::Error> {
            Ok(Sighting {
                run: row.try_get(0)?,
                at: row.try_get::<DateTime<Utc>, _>(1)?.into(),
                topic: row.try_get(2)?,
                listing: row.try_get(3)?,
                rank: row.try_get(4)?,
                reddit_score: row.try_get(5)?,
            })
        };
        sqlx::query::<DB>(
            "SELECT s.run_id, r.started_at, s.topic, s.listing, CAST(s.rank AS BIGINT), s.reddit_score \
               FROM sightings s JOIN runs r ON r.id = s.run_id \
              WHERE s.fullname = $1 ORDER BY s.run_id DESC, s.topic LIMIT $2",
        )
        .bind(fullname)
        .bind(SIGHTINGS)
        .fetch_all(&self.pool)
        .await
        .and_then(|rows| rows.iter().map(decode).collect())
        .doing("read who saw a post")
    }

    async fn same_text(
        &self,
        current: Option<Target>,
        fullname: &str,
        hash: &[u8],
    ) -> Result<Vec<ListedPost>> {
        let mut select = Self::select_listed(current);
        // By the index of labels: posts have none of their texts.
        select.push(" WHERE p.fullname IN (SELECT same.fullname FROM classifications same WHERE same.text_hash >= '' AND same.text_hash = ");
        select
            .push_bind(hash)
            .push(") AND p.text_hash = ")
            .push_bind(hash);
        select.push(" AND p.text_purged_at IS NULL AND p.fullname <> ");
        select.push_bind(fullname);
        select
            .push(" ORDER BY p.created_at DESC, p.fullname LIMIT ")
            .push_bind(SAME_TEXT);
        let rows = select.build().fetch_all(&self.pool).await;
        rows.and_then(|rows| rows.iter().map(Self::decode_listed).collect())
            .doing("read the posts of a text")
    }

    pub(in crate::store) async fn news(&self) -> Result<News> {
        const WHAT: &str = "look whether anything was written";
        let row = sqlx::query::<DB>(
            "SELECT (SELECT MAX(id) FROM runs), (SELECT MAX(heartbeat_at) FROM runs), \
                    (SELECT MAX(finished_at) FROM runs), (SELECT model_id FROM current_target), \
                    (SELECT label_set_id FROM current_target), \
                    (SELECT COUNT(finished_at) FROM runs), (SELECT value FROM meta WHERE key = $1)",
        )
        .bind(RENAMED)
        .fetch_one(&self.pool)
        .await
        .doing(WHAT)?;
        let decode = || -> Result<Vec<Value>, sqlx::Error> {
            let number = |i| row.try_get::<Option<i64>, _>(i).map(Value::from);
            let time = |i| {
                let time = row.try_get::<Option<DateTime<Utc>>, _>(i);
                time.map(|time| Value::from(time.map(|time| time.timestamp_micros())))
            };
            Ok(vec![
                number(0)?,
                time(1)?,
                time(2)?,
                number(3)?,
                number(4)?,
                // Times may be whole seconds, and a run that ends in the second of another one moves none.
                number(5)?,
                row.try_get::<Option<String>, _>(6).map(Value::from)?,
            ])
        };
        decode().map(News).doing(WHAT)
    }

    /// The database's URL without its password.
    pub(in crate::store) fn shown_url(&self) -> &str {
        &self.url
    }

    pub(in crate::store) async fn usable(&self) -> Result<()> {
        let known = Self::latest();
        let found = match self.schema().await {
            // A user with the right to read the views has what pages take.
            Err(error) if is_forbidden(&error) => return Ok(()),
            found => found?,
        };
        match found.cmp(&known) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Less => Err(StoreError::NotMigrated(self.url.clone())),
            std::cmp::Ordering::Greater => Err(StoreError::Newer {
                url: self.url.clone(),
                found,
                known,
            }),
        }
    }
}
