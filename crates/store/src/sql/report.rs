//! Data of the report: sums by time, topic and outcome, and a few posts.
//!
//! Everything is read in one transaction, so that the sums are of one moment whoever writes meanwhile. Two statements
//! pass over all posts, and read nothing but what two indexes hold.

use std::collections::BTreeMap;

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Row, Transaction};

use super::super::dialect::Dialect;
use super::super::report::{
    Bin, Drawn, Fate, HeatCell, ReportQuestion, Sample, Skipped, Step, Sums,
};
use super::super::{Result, StoreError};
use super::{Doing, SqlStore};
use topicmill_core::{Fullname, Timestamp};

/// Columns of a histogram of scores: 0.02 each.
const BINS: i64 = 50;
/// Posts among which the closest and the surest are chosen.
const DRAWN: i64 = 400;
/// Runs of collecting whose outcomes are told.
const COLLECTIONS: i64 = 50;

/// Posts that a report may quote: what is marked as not safe for work is not for a page that is passed around.
const QUOTABLE: &str = "p.has_text AND NOT p.over_18";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn report_sums(&self, question: &ReportQuestion) -> Result<Sums> {
        const WHAT: &str = "read what the report is made of";
        let mut tx = self.pool.begin_with(DB::BEGIN_READ).await.doing(WHAT)?;
        let mut sums = Sums::default();
        let span = Self::span(&mut tx, question).await.doing(WHAT)?;
        let Some((first, last)) = span else {
            return Ok(sums);
        };
        sums.first = Some(first.into());
        sums.last = Some(last.into());
        sums.split = question.split_of(first.into(), last.into());
        sums.step = Step::for_span(first, last);
        sums.cells = Self::cells(&mut tx, question, &sums).await.doing(WHAT)?;
        sums.skipped = Self::skipped(&mut tx).await.doing(WHAT)?;
        if question.target.is_some() {
            sums.bins = Self::bins(&mut tx, question).await.doing(WHAT)?;
            sums.closest = Self::closest(&mut tx, question).await?;
            sums.surest = Self::surest(&mut tx, question, &sums).await?;
        }
        // Nothing was written, so there is nothing to commit.
        tx.rollback().await.doing(WHAT)?;
        Ok(sums)
    }

    /// When the first and the last post of the period were posted; the period before it counts where there is one.
    async fn span(
        tx: &mut Transaction<'static, DB>,
        question: &ReportQuestion,
    ) -> Result<Option<(DateTime<Utc>, DateTime<Utc>)>, sqlx::Error> {
        // Two statements, because SQLite looks only one end up in an index.
        let mut ends = [None, None];
        for (end, of) in ends.iter_mut().zip(["MIN", "MAX"]) {
            let select = format!(
                "SELECT {of}(created_at) FROM posts WHERE created_at >= $1 AND created_at < $2"
            );
            *end = sqlx::query::<DB>(AssertSqlSafe(select))
                .bind(question.since)
                .bind(question.until)
                .fetch_one(&mut **tx)
                .await?
                .try_get::<Option<DateTime<Utc>>, _>(0)?;
        }
        Ok(ends[0].zip(ends[1]))
    }

    /// Posts by half, time, topic and outcome.
    async fn cells(
        tx: &mut Transaction<'static, DB>,
        question: &ReportQuestion,
        sums: &Sums,
    ) -> Result<Vec<HeatCell>, sqlx::Error> {
        let (key, text) = DB::bucket(sums.step);
        let select = format!(
            "SELECT later, {text} AS time, topic, label, fate, COUNT(*), COALESCE(SUM(score), 0.0) FROM ( \
               SELECT CASE WHEN p.created_at < $3 THEN FALSE ELSE TRUE END AS later, {key} AS bucket, p.topic AS topic, \
                      CASE WHEN c.abstained THEN NULL ELSE c.label END AS label, c.score AS score, \
                      CAST(CASE WHEN c.fullname IS NULL THEN CASE WHEN p.has_text THEN 3 ELSE 4 END \
                                WHEN c.other THEN 1 WHEN c.abstained THEN 2 ELSE 0 END AS BIGINT) AS fate \
                 FROM posts p {by} \
                 LEFT JOIN classifications c ON c.model_id = $4 AND c.label_set_id = $5 \
                      AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
                WHERE p.created_at >= $1 AND p.created_at < $2) AS each_post \
              GROUP BY later, bucket, topic, label, fate",
            by = DB::POSTS_IN_ORDER,
        );
        let (model, set) = question.keys();
        let cell = |row: DB::Row| {
            Ok(HeatCell {
                is_later: row.try_get(0)?,
                time: row.try_get(1)?,
                topic: row.try_get(2)?,
                label: row.try_get(3)?,
                fate: Fate::of(row.try_get(4)?),
                posts: row.try_get::<i64, _>(5)?.cast_unsigned(),
                score_sum: row.try_get(6)?,
            })
        };
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(question.before())
            .bind(question.until)
            .bind(sums.split.unwrap_or(question.since))
            .bind(model)
            .bind(set)
            .try_map(cell)
            .fetch_all(&mut **tx)
            .await
    }

    /// Returns the distribution of scores.
    async fn bins(
        tx: &mut Transaction<'static, DB>,
        question: &ReportQuestion,
    ) -> Result<Vec<Bin>, sqlx::Error> {
        let select = format!(
            "SELECT label, fate, bin, COUNT(*) FROM ( \
               SELECT CASE WHEN c.abstained THEN NULL ELSE c.label END AS label, \
                      CAST(CASE WHEN c.other THEN 1 WHEN c.abstained THEN 2 ELSE 0 END AS BIGINT) AS fate, {bin} AS bin \
                 FROM posts p {by} \
                 JOIN classifications c ON c.model_id = $3 AND c.label_set_id = $4 \
                      AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
                WHERE p.created_at >= $1 AND p.created_at < $2) AS each_post \
              GROUP BY label, fate, bin",
            by = DB::POSTS_IN_ORDER,
            bin = DB::floor(&format!("c.score * {BINS}")),
        );
        let (model, set) = question.keys();
        let bin = |row: DB::Row| {
            let bin: i64 = row.try_get(2)?;
            Ok(Bin {
                label: row.try_get(0)?,
                fate: Fate::of(row.try_get(1)?),
                // A score of 1 belongs to the last column.
                bin: usize::try_from(bin.clamp(0, BINS - 1)).expect("it is not negative"),
                posts: row.try_get::<i64, _>(3)?.cast_unsigned(),
            })
        };
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(question.since)
            .bind(question.until)
            .bind(model)
            .bind(set)
            .try_map(bin)
            .fetch_all(&mut **tx)
            .await
    }

    /// Posts whose best two labels are closest.
    async fn closest(
        tx: &mut Transaction<'static, DB>,
        question: &ReportQuestion,
    ) -> Result<Vec<Sample>> {
        // The condition of an index, and its order.
        let condition = "(c.margin < 0.2 OR c.abstained) AND NOT c.other";
        Self::samples(
            tx,
            question,
            condition,
            0.0,
            "ORDER BY c.margin, c.fullname",
        )
        .await
    }

    /// Some posts of the highest scores that there are.
    async fn surest(
        tx: &mut Transaction<'static, DB>,
        question: &ReportQuestion,
        sums: &Sums,
    ) -> Result<Vec<Sample>> {
        let mut by_bin: BTreeMap<usize, u64> = BTreeMap::new();
        for bin in sums.bins.iter().filter(|bin| bin.fate == Fate::Labelled) {
            *by_bin.entry(bin.bin).or_default() += bin.posts;
        }
        // The columns from the top down that hold as many as are drawn. No order: that would sort all of them.
        let mut held = 0;
        let least = by_bin.iter().rev().find_map(|(bin, posts)| {
            held += posts;
            (held >= DRAWN.cast_unsigned()).then_some(*bin)
        });
        #[expect(clippy::cast_precision_loss, reason = "fifty columns")]
        let least = least.unwrap_or(0) as f64 / BINS as f64;
        let condition = "NOT c.abstained";
        let mut samples = Self::samples(tx, question, condition, least, "").await?;
        samples.sort_by(|a, b| {
            b.score
                .total_cmp(&a.score)
                .then(a.fullname.cmp(&b.fullname))
        });
        Ok(samples)
    }

    async fn samples(
        tx: &mut Transaction<'static, DB>,
        question: &ReportQuestion,
        condition: &str,
        least: f64,
        order: &str,
    ) -> Result<Vec<Sample>> {
        let select = format!(
            "SELECT p.fullname, substr(p.title, 1, 1000), p.subreddit, p.permalink, p.source, p.topic, \
                    CASE WHEN c.abstained THEN NULL ELSE c.label END, c.score, c.margin \
               FROM classifications c JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash \
              WHERE c.model_id = $3 AND c.label_set_id = $4 AND p.created_at >= $1 AND p.created_at < $2 \
                AND {QUOTABLE} AND c.score >= $5 AND {condition} {order} LIMIT {DRAWN}"
        );
        let (model, set) = question.keys();
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(question.since)
            .bind(question.until)
            .bind(model)
            .bind(set)
            .bind(least)
            .try_map(row_as!(Sample: fullname, title, subreddit, permalink, source, topic, label, score, margin))
            .fetch_all(&mut **tx)
            .await
            .doing("read posts for the report")
    }

    /// Subreddits that were passed over for another one, in the latest runs.
    async fn skipped(tx: &mut Transaction<'static, DB>) -> Result<Vec<Skipped>, sqlx::Error> {
        let select = format!(
            "SELECT started_at, CAST(outcomes AS TEXT) FROM runs WHERE stage = 'collect' ORDER BY id DESC LIMIT {COLLECTIONS}"
        );
        let runs: Vec<(Timestamp, String)> = sqlx::query_as::<DB, _>(AssertSqlSafe(select))
            .fetch_all(&mut **tx)
            .await?;
        let runs = runs.iter();
        Ok(runs
            .flat_map(|(began, outcomes)| Skipped::of_run(*began, outcomes))
            .collect())
    }

    /// All scores of some posts under a target, in the order of the labels.
    pub async fn report_scores(
        &self,
        question: &ReportQuestion,
        fullnames: &[Fullname],
    ) -> Result<Vec<Drawn>> {
        let (model, set) = question.keys();
        let mut drawn = Vec::with_capacity(fullnames.len());
        for fullname in fullnames {
            let packed: Option<String> = sqlx::query_scalar::<DB, _>(
                "SELECT CAST(scores AS TEXT) FROM packed_scores \
                  WHERE model_id = $1 AND label_set_id = $2 AND fullname = $3",
            )
            .bind(model)
            .bind(set)
            .bind(fullname.as_str())
            .fetch_optional(&self.pool)
            .await
            .doing("read the scores of posts for the report")?;
            // A post that was purged meanwhile has none.
            let Some(packed) = packed else { continue };
            let scores = packed
                // SQLite has a JSON array here, and PostgreSQL one of its own arrays, which as a text has braces.
                .trim_matches(['[', ']', '{', '}'])
                .split(',')
                .filter(|score| !score.is_empty())
                .map(|score| score.trim().parse::<f64>());
            let scores = scores.collect::<Result<_, _>>();
            drawn.push(Drawn {
                fullname: fullname.clone(),
                scores: scores.map_err(|error| StoreError::Corrupt {
                    table: "packed_scores",
                    row: fullname.to_string(),
                    detail: error.to_string(),
                })?,
            });
        }
        Ok(drawn)
    }
}
