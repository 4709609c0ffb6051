//! Reads the data for the report: sums by time, topic and outcome, and a few posts or comments.
//!
//! The sums are read in one snapshot. Two statements scan all posts, but read only two covering indexes.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, Row};

use super::{ErrorContext, SqlStore, Tx};
use crate::dialect::{Bucket, Dialect};
use crate::report::{
    PeriodCell, PostOutcome, ReportCell, ReportQuery, ReportSums, SamplePost, ScoreBin,
    SkippedSubreddits, SubredditSpan, TimeStep, TwoPeriods, Watermark,
};
use crate::{Result, Target};
use topicmill_core::{SourceKind, ThingKind, Timestamp};

/// Number of bins in the score distribution, each 0.02 wide.
const BINS: i64 = 50;
/// Maximum number of posts from which the report chooses examples.
const DRAWN: i64 = 400;
/// Number of characters of a title or a body that are read: a comment may begin with a long quote.
const QUOTED_FROM: i64 = 10_000;
/// Number of latest `collect` runs whose outcomes are read.
const COLLECTIONS: i64 = 50;

/// Condition for posts that a report may quote. Posts marked as not safe for work are excluded, and so are the comments
/// on them, because reports are shared.
const QUOTABLE: &str = "p.has_text AND NOT p.over_18 \
     AND NOT COALESCE((SELECT t.over_18 FROM things t WHERE t.fullname = p.post), FALSE)";

/// Columns of a label `c`: the slug, and the code of the outcome; see [`PostOutcome::from_code`].
const SCORED: &str = "CASE WHEN c.abstained THEN NULL ELSE c.label END AS label, \
     CAST(CASE WHEN c.other THEN 1 WHEN c.abstained THEN 2 ELSE 0 END AS BIGINT) AS outcome";

/// Converts the bin of a score; a score of 1 belongs to the last one.
fn bin_index(bin: i64) -> usize {
    usize::try_from(bin.clamp(0, BINS - 1)).expect("it is not negative")
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn report_sums(&self, query: &ReportQuery) -> Result<ReportSums> {
        const WHAT: &str = "read the data of the report";
        let mut tx = self.pool.begin_with(DB::BEGIN_READ).await.context(WHAT)?;
        let mut sums = ReportSums::default();
        let span = Self::span(&mut tx, query).await.context(WHAT)?;
        let Some((first, last)) = span else {
            return Ok(sums);
        };
        (sums.first, sums.last) = (Some(first), Some(last));
        sums.step = TimeStep::for_span(first.as_datetime(), last.as_datetime());
        sums.cells = Self::cells(&mut tx, query, sums.step).await.context(WHAT)?;
        sums.skipped = Self::skipped(&mut tx, query.kind).await.context(WHAT)?;
        if query.target.is_some() {
            sums.bins = Self::bins(&mut tx, query).await.context(WHAT)?;
            // This is the condition and the order of an index.
            let close = "(c.margin < 0.2 OR c.abstained) AND NOT c.other";
            let order = "ORDER BY c.margin, c.fullname";
            sums.closest = Self::samples(&mut tx, query, close, 0.0, order).await?;
            sums.most_confident = Self::most_confident(&mut tx, query, &sums).await?;
        }
        // Nothing was written, so nothing is committed.
        tx.rollback().await.context(WHAT)?;
        Ok(sums)
    }

    /// Returns the times of the first and the last post in the period.
    async fn span(
        tx: &mut Tx<DB>,
        query: &ReportQuery,
    ) -> Result<Option<(Timestamp, Timestamp)>, sqlx::Error> {
        // Two subqueries, because SQLite uses an index only for a single MIN or MAX.
        let [first, last] = ["MIN", "MAX"].map(|end| {
            format!(
                "(SELECT {end}(created_at) FROM things \
                   WHERE kind = '{}' AND created_at >= $1 AND created_at < $2)",
                query.kind
            )
        });
        let ends: (Option<Timestamp>, Option<Timestamp>) =
            sqlx::query_as::<DB, _>(AssertSqlSafe(format!("SELECT {first}, {last}")))
                .bind(query.since)
                .bind(query.until)
                .fetch_one(&mut **tx)
                .await?;
        Ok(ends.0.zip(ends.1))
    }

    /// Counts posts by time, topic and outcome.
    async fn cells(
        tx: &mut Tx<DB>,
        query: &ReportQuery,
        step: TimeStep,
    ) -> Result<Vec<ReportCell>, sqlx::Error> {
        let Bucket { key, text } = DB::bucket("p.created_at", step);
        let select = format!(
            "SELECT {text} AS time, topic, label, outcome, COUNT(*), COALESCE(SUM(score), 0.0) FROM ( \
               SELECT {key} AS bucket, p.topic AS topic, \
                      CASE WHEN c.abstained THEN NULL ELSE c.label END AS label, c.score AS score, \
                      CAST(CASE WHEN c.fullname IS NULL THEN CASE WHEN p.has_text THEN 3 ELSE 4 END \
                                WHEN c.other THEN 1 WHEN c.abstained THEN 2 ELSE 0 END AS BIGINT) AS outcome \
                 FROM things p {by} \
                 LEFT JOIN classifications c ON c.model_id = $3 AND c.label_set_id = $4 \
                      AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
                WHERE p.kind = '{kind}' AND p.created_at >= $1 AND p.created_at < $2) AS each_post \
              GROUP BY bucket, topic, label, outcome",
            by = DB::POSTS_IN_ORDER,
            kind = query.kind,
        );
        let target = query.target.unwrap_or(Target::NONE);
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(query.since)
            .bind(query.until)
            .bind(target.model)
            .bind(target.label_set)
            .try_map(
                row_as!(ReportCell: time, topic, label, outcome(PostOutcome::from_code),
                posts(i64::unsigned_abs), score_sum),
            )
            .fetch_all(&mut **tx)
            .await
    }

    pub async fn subreddit_spans(&self, kind: ThingKind) -> Result<Vec<SubredditSpan>> {
        let has_listings = |kind: &&SourceKind| kind.traits().listings.len() > 1;
        let listed = SourceKind::ALL.iter().filter(has_listings);
        let listed: Vec<String> = listed.map(|kind| format!("'{kind}'")).collect();
        let select = format!(
            "SELECT p.subreddit, p.source, MIN(p.created_at), MAX(p.created_at), COUNT(*) FROM things p {by} \
              WHERE p.kind = '{kind}' AND (p.source NOT IN ({listed}) \
                 OR EXISTS (SELECT 1 FROM sightings s WHERE s.fullname = p.fullname AND s.listing = 'new')) \
              GROUP BY p.subreddit, p.source",
            by = DB::POSTS_IN_ORDER,
            listed = listed.join(", "),
        );
        sqlx::query::<DB>(AssertSqlSafe(select))
            .try_map(row_as!(SubredditSpan: subreddit, source, first, last, posts))
            .fetch_all(&self.pool)
            .await
            .context("find the periods in which subreddits were read")
    }

    pub async fn watermarks(&self) -> Result<Vec<Watermark>> {
        sqlx::query::<DB>(
            "SELECT source, subreddit, newest_created_at, read_from, updated_at FROM watermarks",
        )
        .try_map(row_as!(Watermark: source, subreddit, newest, read_from, updated_at))
        .fetch_all(&self.pool)
        .await
        .context("read the watermarks")
    }

    pub async fn period_cells(
        &self,
        kind: ThingKind,
        target: Target,
        periods: &TwoPeriods,
    ) -> Result<Vec<PeriodCell>> {
        let select = format!(
            "SELECT later, subreddit, label, outcome, COUNT(*) FROM ( \
               SELECT CASE WHEN p.created_at < $3 THEN FALSE ELSE TRUE END AS later, p.subreddit AS subreddit, \
                      {SCORED} \
                 FROM things p {by} \
                 JOIN classifications c ON c.model_id = $4 AND c.label_set_id = $5 \
                      AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
                WHERE p.kind = '{kind}' AND p.created_at >= $1 AND p.created_at < $2) AS each_post \
              GROUP BY later, subreddit, label, outcome",
            by = DB::POSTS_IN_ORDER,
        );
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(periods.from)
            .bind(periods.until)
            .bind(periods.split)
            .bind(target.model)
            .bind(target.label_set)
            .try_map(
                row_as!(PeriodCell: is_later, subreddit, label, outcome(PostOutcome::from_code),
                posts(i64::unsigned_abs)),
            )
            .fetch_all(&self.pool)
            .await
            .context("count the posts of two periods")
    }

    /// Returns the distribution of scores.
    async fn bins(tx: &mut Tx<DB>, query: &ReportQuery) -> Result<Vec<ScoreBin>, sqlx::Error> {
        let select = format!(
            "SELECT label, outcome, bin, COUNT(*) FROM ( \
               SELECT {SCORED}, \
                      {bin} AS bin \
                 FROM things p {by} \
                 JOIN classifications c ON c.model_id = $3 AND c.label_set_id = $4 \
                      AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
                WHERE p.kind = '{kind}' AND p.created_at >= $1 AND p.created_at < $2) AS each_post \
              GROUP BY label, outcome, bin",
            by = DB::POSTS_IN_ORDER,
            kind = query.kind,
            bin = DB::floor(&format!("c.score * {BINS}")),
        );
        let target = query.target.unwrap_or(Target::NONE);
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(query.since)
            .bind(query.until)
            .bind(target.model)
            .bind(target.label_set)
            .try_map(
                row_as!(ScoreBin: label, outcome(PostOutcome::from_code), bin(bin_index),
                posts(i64::unsigned_abs)),
            )
            .fetch_all(&mut **tx)
            .await
    }

    /// Returns some posts with the highest scores.
    async fn most_confident(
        tx: &mut Tx<DB>,
        query: &ReportQuery,
        sums: &ReportSums,
    ) -> Result<Vec<SamplePost>> {
        let mut by_bin: BTreeMap<usize, u64> = BTreeMap::new();
        let labelled = |bin: &&ScoreBin| bin.outcome == PostOutcome::Labelled;
        for bin in sums.bins.iter().filter(labelled) {
            *by_bin.entry(bin.bin).or_default() += bin.posts;
        }
        // Selects posts from the highest bins that together contain enough posts, without ORDER BY, which would sort
        // all posts in these bins.
        let mut in_higher_bins = 0;
        let lowest_bin = by_bin.iter().rev().find_map(|(bin, posts)| {
            in_higher_bins += posts;
            (in_higher_bins >= DRAWN.cast_unsigned()).then_some(*bin)
        });
        let least_score = lowest_bin.unwrap_or(0) as f64 / BINS as f64;
        let mut samples = Self::samples(tx, query, "NOT c.abstained", least_score, "").await?;
        samples.sort_by(|a, b| {
            b.score
                .total_cmp(&a.score)
                .then(a.fullname.cmp(&b.fullname))
        });
        Ok(samples)
    }

    /// Returns posts that the report may quote and that meet a condition, with at least this score.
    async fn samples(
        tx: &mut Tx<DB>,
        query: &ReportQuery,
        condition: &str,
        least_score: f64,
        order: &str,
    ) -> Result<Vec<SamplePost>> {
        let select = format!(
            "SELECT p.fullname, substr(CASE p.kind WHEN 'post' THEN p.title ELSE p.selftext END, 1, {QUOTED_FROM}), \
                    p.subreddit, p.permalink, p.source, p.topic, \
                    CASE WHEN c.abstained THEN NULL ELSE c.label END, c.score, c.margin \
               FROM classifications c JOIN things p ON p.fullname = c.fullname AND p.text_hash = c.text_hash \
              WHERE c.model_id = $3 AND c.label_set_id = $4 AND p.kind = '{}' AND p.created_at >= $1 \
                AND p.created_at < $2 AND {QUOTABLE} AND c.score >= $5 AND {condition} {order} LIMIT {DRAWN}",
            query.kind
        );
        let target = query.target.unwrap_or(Target::NONE);
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(query.since)
            .bind(query.until)
            .bind(target.model)
            .bind(target.label_set)
            .bind(least_score)
            .try_map(row_as!(SamplePost: fullname, text, subreddit, permalink, source, topic, label, score, margin))
            .fetch_all(&mut **tx)
            .await
            .context("read posts for the report")
    }

    /// Returns the subreddits skipped in the latest runs.
    async fn skipped(
        tx: &mut Tx<DB>,
        kind: ThingKind,
    ) -> Result<Vec<SkippedSubreddits>, sqlx::Error> {
        let select = format!(
            "SELECT started_at, CAST(outcomes AS TEXT) FROM runs WHERE stage = 'collect' \
             ORDER BY id DESC LIMIT {COLLECTIONS}"
        );
        let runs: Vec<(Timestamp, String)> = sqlx::query_as::<DB, _>(AssertSqlSafe(select))
            .fetch_all(&mut **tx)
            .await?;
        Ok(runs
            .iter()
            .flat_map(|(began, outcomes)| SkippedSubreddits::from_outcomes(*began, kind, outcomes))
            .collect())
    }
}
