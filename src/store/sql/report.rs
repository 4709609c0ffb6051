//! What the report is made of: sums by time, topic and outcome.
//!
//! Everything is read in one transaction, so that the sums are of one moment whoever writes meanwhile. Two statements
//! pass over all posts, and read nothing but what two indexes hold.

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Row, Transaction};

use super::super::Result;
use super::super::dialect::Dialect;
use super::super::report::{Bin, Fate, HeatCell, ReportQuestion, Step, Sums};
use super::{Doing, SqlStore};

/// Columns of a histogram of scores: 0.02 each.
const BINS: i64 = 50;
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
        if question.target.is_some() {
            sums.bins = Self::bins(&mut tx, question).await.doing(WHAT)?;
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
                      CAST(CASE WHEN c.fullname IS NULL THEN CASE WHEN p.text_purged_at IS NULL THEN 3 ELSE 4 END \
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

    /// How the scores lie.
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
}
