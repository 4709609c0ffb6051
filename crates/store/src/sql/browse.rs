//! SQL statements for the browse pages: lists of posts, and the details of one post.

mod filter;

use sqlx::{AssertSqlSafe, QueryBuilder, Row};

use self::filter::push_filter;
use super::{ErrorContext, SqlStore};
use crate::browse::{
    ChangeMarker, LabelScore, PostCounts, PostDetails, PostFilter, PostOrder, PostSummary,
    Sighting, Verdict,
};
use crate::dialect::Dialect;
use crate::{Result, Target};
use topicmill_core::{Fullname, ThingKind};

/// Maximum number of characters of a body in a list: two lines of a wide window.
const EXCERPT: i64 = 280;
/// Maximum number of characters of a title in a list; Reddit's limit is 300.
const TITLE: i64 = 400;
/// Maximum number of displayed sightings of a post: a year of days.
const SIGHTINGS: i64 = 400;
/// Maximum number of displayed posts with the same text.
const SAME_TEXT: i64 = 20;
/// The operation in messages.
const COUNT_POSTS: &str = "count posts";

/// The outcome of a post by its label `c`; NULL without one.
const OUTCOME: &str = "CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' WHEN c.label IS NOT NULL THEN 'label' END";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn list_posts(
        &self,
        target: Option<Target>,
        filter: &PostFilter,
        limit: u32,
    ) -> Result<Vec<PostSummary>> {
        let mut select = Self::select_listed(target);
        select.push(" WHERE p.fullname IN (");
        push_filter(&mut select, target, filter);
        let order = match filter.order {
            PostOrder::Newest(_) => "p.created_at DESC, p.fullname DESC",
            PostOrder::Score(_) => "c.score DESC, c.fullname DESC",
        };
        select.push(" ORDER BY ").push(order).push(" LIMIT ");
        select.push_bind(i64::from(limit));
        select.push(") ORDER BY ").push(order);
        // With `persistent(false)`, PostgreSQL plans each list for its own filter.
        let listed = select.build().persistent(false);
        let posts = listed.try_map(Self::decode_listed);
        posts.fetch_all(&self.pool).await.context("list posts")
    }

    pub async fn has_comments(&self) -> Result<bool> {
        sqlx::query_scalar::<DB, _>("SELECT EXISTS (SELECT 1 FROM things WHERE fullname < 't3')")
            .fetch_one(&self.pool)
            .await
            .context("look for comments")
    }

    pub async fn count_posts(&self, kind: ThingKind) -> Result<PostCounts> {
        let posts = AssertSqlSafe(format!("SELECT COUNT(*) FROM things WHERE kind = '{kind}'"));
        let outcomes = "SELECT outcome, CAST(SUM(posts) AS BIGINT) FROM topic_daily GROUP BY outcome ORDER BY 2 DESC, 1";
        // With the condition, an index on topics suffices.
        let topics = format!(
            "SELECT topic, COUNT(*) FROM things WHERE kind = '{kind}' AND topic >= '' GROUP BY topic ORDER BY 2 DESC, 1"
        );
        Ok(PostCounts {
            posts: self.number(posts, COUNT_POSTS).await?.unsigned_abs(),
            outcomes: match kind {
                ThingKind::Post => self.counts(outcomes.to_owned()).await?,
                // Counting them would read every comment.
                ThingKind::Comment => Vec::new(),
            },
            topics: self.counts(topics).await?,
        })
    }

    async fn counts(&self, sql: String) -> Result<Vec<(String, u64)>> {
        let decode = |row: DB::Row| {
            let posts: i64 = row.try_get(1)?;
            Ok((row.try_get(0)?, posts.cast_unsigned()))
        };
        let counts = sqlx::query::<DB>(AssertSqlSafe(sql)).try_map(decode);
        counts.fetch_all(&self.pool).await.context(COUNT_POSTS)
    }

    fn select_listed(target: Option<Target>) -> QueryBuilder<DB> {
        let Target { model, label_set } = target.unwrap_or(Target::NONE);
        let mut select = QueryBuilder::<DB>::new(format!(
            "SELECT p.fullname, p.subreddit, p.topic, substr(p.title, 1, {TITLE}), substr(p.selftext, 1, {EXCERPT}), \
                    CASE WHEN c.abstained THEN NULL ELSE c.label END, \
                    CASE WHEN c.abstained THEN NULL ELSE l.label_name END, {OUTCOME}, \
                    c.score, c.margin, p.reddit_score, \
                    p.num_comments, p.created_at, p.text_purged_at IS NOT NULL \
               FROM things p LEFT JOIN classifications c ON c.model_id = "
        ));
        select.push_bind(model).push(" AND c.label_set_id = ");
        select.push_bind(label_set).push(
            " AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
              LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.label = c.label",
        );
        select
    }

    fn decode_listed(row: DB::Row) -> Result<PostSummary, sqlx::Error> {
        row_as!(PostSummary: fullname, subreddit, topic, title, excerpt, label, label_name, outcome, score,
            margin, reddit_score, num_comments, created_at, text_purged)(row)
    }

    pub async fn post_details(&self, fullname: &Fullname) -> Result<Option<PostDetails>> {
        let current = self.current_target().await?;
        let fullname = fullname.as_str();
        let mut select = Self::select_listed(current);
        select.push(" WHERE p.fullname = ").push_bind(fullname);
        let listed = select.build().try_map(Self::decode_listed);
        let listed = listed.fetch_optional(&self.pool).await;
        let Some(listed) = listed.context("read a post")? else {
            return Ok(None);
        };
        let decode = |row: DB::Row| {
            let hash: Vec<u8> = row.try_get(15)?;
            // Titles are shortened in lists, but not on the page of a post.
            let listed = PostSummary {
                title: row.try_get(16)?,
                ..listed.clone()
            };
            let post = row_as!(PostDetails: selftext, url, permalink, author, flair, upvote_ratio, over_18, source,
                crosspost_parent, post, parent, collected_at, updated_at, checked_at, removed_at; listed = listed;
                text_hash = topicmill_core::hex(&hash); verdicts = Vec::new(); sightings = Vec::new();
                same_text = Vec::new())(row)?;
            Ok((post, hash))
        };
        let post = sqlx::query::<DB>(
            "SELECT selftext, url, permalink, author, flair, upvote_ratio, over_18, source, crosspost_parent, post, parent, \
                    collected_at, updated_at, checked_at, removed_at, text_hash, title FROM things WHERE fullname = $1",
        )
        .bind(fullname)
        .try_map(decode)
        .fetch_optional(&self.pool)
        .await
        .context("read a post")?;
        // The post may be purged between the two statements.
        let Some((mut post, hash)) = post else {
            return Ok(None);
        };
        post.verdicts = self.verdicts(current, fullname, &hash).await?;
        post.sightings = self.sightings(fullname).await?;
        post.same_text = self.same_text(current, fullname, &hash).await?;
        Ok(Some(post))
    }

    async fn verdicts(
        &self,
        current: Option<Target>,
        fullname: &str,
        hash: &[u8],
    ) -> Result<Vec<Verdict>> {
        let sql = format!(
            "SELECT s.name, substr(s.hash, 1, 12), m.name, m.number_format, {OUTCOME}, c.label, c.score, c.margin, \
                    c.text_hash = $2, c.classified_at, s.threshold, c.model_id, c.label_set_id \
               FROM classifications c JOIN models m ON m.id = c.model_id JOIN label_sets s ON s.id = c.label_set_id \
              WHERE c.fullname = $1 ORDER BY c.label_set_id DESC, c.model_id DESC"
        );
        let decode = |row: DB::Row| {
            let (model, label_set) = (row.try_get(11)?, row.try_get(12)?);
            let target = Target { model, label_set };
            let verdict = row_as!(Verdict: label_set, version, model, precision, outcome, best, score, margin,
                is_of_this_text, classified_at, threshold; is_current = current == Some(target);
                scores = Vec::new())(row)?;
            Ok((target, verdict))
        };
        let rows = sqlx::query::<DB>(AssertSqlSafe(sql))
            .bind(fullname)
            .bind(hash)
            .try_map(decode)
            .fetch_all(&self.pool)
            .await
            .context("read the labels of a post")?;
        let mut verdicts = Vec::with_capacity(rows.len());
        for (target, mut verdict) in rows {
            verdict.scores = self.scores_of(target, fullname).await?;
            verdicts.push(verdict);
        }
        // The sort is stable, so the others remain newest first.
        verdicts.sort_by_key(|verdict: &Verdict| !verdict.is_current);
        Ok(verdicts)
    }

    async fn scores_of(&self, target: Target, fullname: &str) -> Result<Vec<LabelScore>> {
        sqlx::query::<DB>(
            "SELECT l.label, l.label_name, s.score FROM label_scores s \
               JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position \
              WHERE s.model_id = $1 AND s.label_set_id = $2 AND s.fullname = $3 ORDER BY s.score DESC, l.position",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(fullname)
        .try_map(row_as!(LabelScore: label, label_name, score))
        .fetch_all(&self.pool)
        .await
        .context("read the scores of a post")
    }

    async fn sightings(&self, fullname: &str) -> Result<Vec<Sighting>> {
        sqlx::query::<DB>(
            "SELECT day, topic, times_seen, listing, best_rank, reddit_score FROM sightings \
              WHERE fullname = $1 ORDER BY day DESC, topic LIMIT $2",
        )
        .bind(fullname)
        .bind(SIGHTINGS)
        .try_map(row_as!(Sighting: day, topic, times_seen, listing, best_rank, reddit_score))
        .fetch_all(&self.pool)
        .await
        .context("read the sightings of a post")
    }

    async fn same_text(
        &self,
        current: Option<Target>,
        fullname: &str,
        hash: &[u8],
    ) -> Result<Vec<PostSummary>> {
        let mut select = Self::select_listed(current);
        // Uses the index on labels, because posts have no index on text hashes.
        select.push(" WHERE p.fullname IN (SELECT same.fullname FROM classifications same WHERE same.text_hash >= '' \
                     AND same.text_hash = ");
        select.push_bind(hash).push(") AND p.text_hash = ");
        select
            .push_bind(hash)
            .push(" AND p.has_text AND p.fullname <> ");
        select
            .push_bind(fullname)
            .push(" ORDER BY p.created_at DESC, p.fullname LIMIT ");
        select.push_bind(SAME_TEXT);
        let posts = select.build().try_map(Self::decode_listed);
        let posts = posts.fetch_all(&self.pool).await;
        posts.context("read posts with the same text")
    }

    pub async fn change_marker(&self) -> Result<ChangeMarker> {
        // Counts the ended runs too: times may have a resolution of one second, so a run that ends in the same second
        // as another changes no time.
        sqlx::query::<DB>(
            "SELECT (SELECT MAX(id) FROM runs), (SELECT MAX(heartbeat_at) FROM runs), \
                    (SELECT MAX(finished_at) FROM runs), (SELECT COUNT(finished_at) FROM runs), \
                    (SELECT model_id FROM current_target), (SELECT label_set_id FROM current_target)",
        )
        .try_map(row_as!(ChangeMarker: last_run, last_heartbeat, last_end, ended_runs, model, label_set))
        .fetch_one(&self.pool)
        .await
        .context("read the last write")
    }
}
