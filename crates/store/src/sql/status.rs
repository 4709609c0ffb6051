//! SQL statements for `status` and metrics. Their cost is bounded, except for `labelling_state`, which counts all
//! posts, the count of comments, which reads their index, and `newest_post` if no post has text.

use serde_json::Value;
use sqlx::types::Json;
use sqlx::types::chrono::DateTime;
use sqlx::{AssertSqlSafe, Row};

use super::claims::max_crashes;
use super::{ErrorContext, SqlStore, at, count};
use crate::dialect::Dialect;
use crate::{
    ArchiveState, LabellingEstimate, LabellingState, LastRun, NewestPost, Result, StageRuns, Target,
};
use topicmill_core::{RunStatus, SECOND_READING, SourceKind, Stage, Timestamp};

/// Maximum number of posts that are counted exactly, which takes 0.2 s.
const COUNTED: i64 = 200_000;
/// Number of posts in a sample. With this many, the 95 % confidence interval of a share is at most ±2.2 points, and
/// reading the sample takes about 30 ms.
const SAMPLE: i64 = 2_000;
/// Number of newest posts to check, because the newest posts are the most likely to be unlabelled.
const NEWEST: i64 = 4_000;
/// Maximum number of backlog posts to count.
const MOST_WAITING: i64 = 100_000;
const COMMENTS: &str = "SELECT COUNT(*) FROM things WHERE kind = 'comment'";
/// Subquery for the latest 10,000 runs: about a week at one run per minute.
const LATEST_RUNS: &str = "(SELECT id, stage, status, started_at, finished_at, counts, outcomes, error FROM runs \
                            ORDER BY id DESC LIMIT 10000) latest";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn estimate_labelling(
        &self,
        max_attempts: u32,
        now: Timestamp,
    ) -> Result<LabellingEstimate> {
        let posts = self.number(DB::ESTIMATE_POSTS, "count the posts").await?;
        let is_estimate = posts > COUNTED;
        let state = if is_estimate {
            self.estimated_state(posts, max_attempts, now).await?
        } else {
            self.labelling_state(max_attempts, now).await?
        };
        Ok(LabellingEstimate { state, is_estimate })
    }

    pub async fn labelling_state(
        &self,
        max_attempts: u32,
        now: Timestamp,
    ) -> Result<LabellingState> {
        let current = self.named_target().await?;
        let target = current.target;
        let counts = self.count_outcomes(target, now, "FROM things").await?;
        let backlog = self.count_backlog(target, max_attempts, now).await?;
        let held_back = HeldBack {
            claimed: count(backlog.claimed),
            parked: count(backlog.parked),
        };
        self.complete_state(current, counts, held_back).await
    }

    /// Adds the values that are read in the same way for counts and estimates.
    async fn complete_state(
        &self,
        current: NamedTarget,
        counts: OutcomeCounts,
        held_back: HeldBack,
    ) -> Result<LabellingState> {
        Ok(LabellingState {
            posts: counts.posts,
            comments: self.number(COMMENTS, "count comments").await?,
            labelled: counts.labelled,
            none_of_these: counts.other + counts.unsure,
            other: counts.other,
            unsure: counts.unsure,
            unlabelled: counts.unlabelled,
            parked: held_back.parked,
            claimed: held_back.claimed,
            without_text: counts.without_text,
            unchecked: counts.unchecked,
            reconciled_at: self.reconciled_at(SourceKind::Reddit).await?,
            oldest_unlabelled: counts.oldest_unlabelled,
            model: current.model,
            label_set: current.label_set,
            label_set_hash: current.label_set_hash,
        })
    }

    /// Estimates the progress of labelling from a sample of all posts, the newest ones and the backlog.
    async fn estimated_state(
        &self,
        posts: i64,
        max_attempts: u32,
        now: Timestamp,
    ) -> Result<LabellingState> {
        let current = self.named_target().await?;
        let target = current.target;
        let sampled = DB::sample_posts((posts / SAMPLE).max(1));
        let sample = self.count_outcomes(target, now, &sampled).await?;
        // The sample would miss a few new posts among a million, but users look for them.
        let newest = format!(
            "FROM things WHERE text_purged_at IS NULL ORDER BY collected_at DESC LIMIT {NEWEST}"
        );
        let newest = self.count_outcomes(target, now, &newest).await?;
        let backlog = sqlx::query_scalar::<DB, i64>(
            "SELECT COUNT(*) FROM (SELECT 1 FROM backlog WHERE model_id = $1 AND label_set_id = $2 LIMIT $3) waiting",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(MOST_WAITING)
        .fetch_one(&self.pool)
        .await
        .context("estimate the progress of labelling")?;
        let held_back = self.count_held_back(target, max_attempts, now).await?;
        let of_all = |part: i64| scaled(part, sample.posts, posts);
        // Each of the three can miss posts that another one includes, so the largest is taken.
        let unlabelled = of_all(sample.unlabelled)
            .max(newest.unlabelled)
            .max(backlog);
        let without_text = of_all(sample.without_text);
        let labelled = (posts - unlabelled - without_text).max(0);
        let oldest = [sample.oldest_unlabelled, newest.oldest_unlabelled];
        let counts = OutcomeCounts {
            posts,
            labelled,
            other: scaled(sample.other, sample.labelled, labelled),
            unsure: scaled(sample.unsure, sample.labelled, labelled),
            unlabelled,
            without_text,
            unchecked: of_all(sample.unchecked),
            oldest_unlabelled: oldest.into_iter().flatten().min(),
        };
        self.complete_state(current, counts, held_back).await
    }

    async fn named_target(&self) -> Result<NamedTarget> {
        let decode = |row: DB::Row| {
            let target = Target {
                model: row.try_get(3)?,
                label_set: row.try_get(4)?,
            };
            row_as!(NamedTarget: model, label_set, label_set_hash; target = target)(row)
        };
        let current = sqlx::query::<DB>(
            "SELECT m.name, s.name, s.hash, m.id, s.id FROM current_target t \
               JOIN models m ON m.id = t.model_id JOIN label_sets s ON s.id = t.label_set_id",
        )
        .try_map(decode)
        .fetch_optional(&self.pool)
        .await
        .context("read the current label set")?;
        Ok(current.unwrap_or(NamedTarget {
            target: Target::NONE,
            model: None,
            label_set: None,
            label_set_hash: None,
        }))
    }

    /// Counts the outcomes of the posts that a FROM clause selects.
    async fn count_outcomes(
        &self,
        target: Target,
        now: Timestamp,
        from: &str,
    ) -> Result<OutcomeCounts> {
        let select = format!(
            "SELECT COUNT(*), COUNT(c.fullname), COUNT(CASE WHEN c.other THEN 1 END), \
                    COUNT(CASE WHEN c.abstained AND NOT c.other THEN 1 END), \
                    COUNT(CASE WHEN c.fullname IS NULL AND p.has_text THEN 1 END), \
                    COUNT(CASE WHEN c.fullname IS NULL AND NOT p.has_text THEN 1 END), \
                    COUNT(CASE WHEN COALESCE(p.checked_at, p.archive_checked_at) IS NULL AND p.created_at < $3 THEN 1 END), \
                    MIN(CASE WHEN c.fullname IS NULL AND p.has_text THEN p.collected_at END) \
               FROM (SELECT fullname, text_hash, has_text, checked_at, archive_checked_at, created_at, collected_at {from}) p \
               LEFT JOIN classifications c ON c.model_id = $1 AND c.label_set_id = $2 \
                    AND c.fullname = p.fullname AND c.text_hash = p.text_hash"
        );
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(target.model)
            .bind(target.label_set)
            .bind(at(now) - SECOND_READING)
            .try_map(
                row_as!(OutcomeCounts: posts, labelled, other, unsure, unlabelled, without_text, unchecked,
                oldest_unlabelled),
            )
            .fetch_one(&self.pool)
            .await
            .context("count the outcomes of posts")
    }

    /// Counts the claimed and the parked posts of a backlog, using only indexes.
    async fn count_held_back(
        &self,
        target: Target,
        max_attempts: u32,
        now: Timestamp,
    ) -> Result<HeldBack> {
        let now = self.database_time(&self.pool, at(now)).await?;
        // Counts posts without and with crashes separately, because the index on claimable posts is ordered by crashes.
        sqlx::query::<DB>(
            "SELECT (SELECT COUNT(*) FROM leases l JOIN backlog b ON b.lease_id = l.id \
                      WHERE l.expires_at > $3 AND b.model_id = $1 AND b.label_set_id = $2), \
                    (SELECT COUNT(*) FROM backlog b WHERE b.model_id = $1 AND b.label_set_id = $2 \
                        AND b.lease_id IS NULL AND b.crashes = 0 AND b.attempts >= $4) + \
                    (SELECT COUNT(*) FROM backlog b WHERE b.model_id = $1 AND b.label_set_id = $2 \
                        AND b.lease_id IS NULL AND b.crashes > 0 AND (b.attempts >= $4 OR b.crashes >= $5))",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(now)
        .bind(i64::from(max_attempts))
        .bind(max_crashes(max_attempts))
        .try_map(row_as!(HeldBack: claimed, parked))
        .fetch_one(&self.pool)
        .await
        .context("count claimed and parked posts")
    }

    pub async fn newest_post(&self, latest: Timestamp) -> Result<NewestPost> {
        // Collection times are indexed only for posts with text. If no post has any text left, all posts are read.
        sqlx::query::<DB>(
            "SELECT COALESCE( \
                      (SELECT MAX(collected_at) FROM things WHERE text_purged_at IS NULL AND collected_at <= $1), \
                      (SELECT MAX(collected_at) FROM things WHERE collected_at <= $1)), \
                    (SELECT MAX(created_at) FROM posts WHERE created_at <= $1)",
        )
        .bind(latest)
        .try_map(row_as!(NewestPost: collected_at, created_at))
        .fetch_one(&self.pool)
        .await
        .context("read the time of the newest post")
    }

    pub async fn runs_since(&self, since: Timestamp) -> Result<Vec<StageRuns>> {
        let select = format!(
            "SELECT stage, COUNT(*), COUNT(CASE WHEN status IN ($2, $3) THEN 1 END), \
             COUNT(CASE WHEN status = $4 THEN 1 END), \
                    CAST(COALESCE(SUM(CAST(counts ->> 'posts' AS BIGINT)), 0) AS BIGINT), \
                    CAST(COALESCE(SUM(CAST(counts ->> 'new' AS BIGINT)), 0) AS BIGINT) \
               FROM {LATEST_RUNS} WHERE started_at >= $1 GROUP BY stage ORDER BY stage"
        );
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(since)
            .bind(RunStatus::Failed.as_str())
            .bind(RunStatus::Crashed.as_str())
            .bind(RunStatus::Partial.as_str())
            .try_map(row_as!(StageRuns: stage, runs, failed, partial, posts, new))
            .fetch_all(&self.pool)
            .await
            .context("sum up the latest runs")
    }

    pub async fn last_runs(&self) -> Result<Vec<LastRun>> {
        // A partial run is good if it did some of its work. A run that labelled nothing because other workers held the
        // posts is ignored, so that it does not hide their crash.
        let select = format!(
            "SELECT r.id, r.stage, r.status, COALESCE(r.finished_at, r.started_at), r.error, judged.idle, judged.good FROM ( \
               SELECT MAX(id) AS id, good, COUNT(CASE WHEN status = $3 AND good = 0 AND id > last_good THEN 1 END) AS idle \
                 FROM (SELECT id, stage, status, good, \
                              MAX(CASE WHEN good = 1 THEN id ELSE 0 END) OVER (PARTITION BY stage) AS last_good FROM ( \
                 SELECT id, stage, status, CAST(CASE WHEN status = $2 OR status = $3 AND ( \
                          COALESCE(CAST(counts ->> 'posts' AS BIGINT), 0) > 0 \
                          OR COALESCE(CAST(counts -> 'by_outcome' ->> 'ok' AS BIGINT), 0) > 0) \
                        THEN 1 ELSE 0 END AS BIGINT) AS good \
                   FROM {LATEST_RUNS} WHERE status <> $1 AND NOT (status IN ($2, $3) \
                    AND COALESCE(CAST(counts ->> 'posts' AS BIGINT), 0) = 0 \
                    AND COALESCE(CAST(counts ->> 'held_elsewhere' AS BIGINT), 0) > 0)) judged) ended \
                GROUP BY stage, good) judged \
               JOIN runs r ON r.id = judged.id ORDER BY r.id DESC"
        );
        let decode = |row: DB::Row| {
            let is_good = row.try_get::<i64, _>(6)? == 1;
            let run =
                row_as!(LastRun: id, stage, status, finished_at, error, idle; good_at = None)(row)?;
            let good_at = is_good.then_some(run.finished_at);
            Ok(LastRun { good_at, ..run })
        };
        let runs = sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(RunStatus::Running.as_str())
            .bind(RunStatus::Done.as_str())
            .bind(RunStatus::Partial.as_str())
            .try_map(decode)
            .fetch_all(&self.pool)
            .await
            .context("read the last run of each stage")?;
        let mut stages: Vec<LastRun> = Vec::new();
        for run in runs {
            match stages.iter_mut().find(|known| known.stage == run.stage) {
                // The latest run of a stage comes first. A later row of the same stage is the last good run.
                Some(known) => known.good_at = known.good_at.or(run.good_at),
                None => stages.push(run),
            }
        }
        Ok(stages)
    }

    pub async fn collect_outcomes(&self, runs: u32) -> Result<Vec<(Timestamp, Value)>> {
        let select = format!(
            "SELECT started_at, outcomes FROM {LATEST_RUNS} WHERE stage = $1 AND status <> $2 ORDER BY id DESC LIMIT $3"
        );
        sqlx::query_as::<DB, (Timestamp, Json<Value>)>(AssertSqlSafe(select))
            .bind(Stage::Collect.as_str())
            .bind(RunStatus::Running.as_str())
            .bind(i64::from(runs))
            .fetch_all(&self.pool)
            .await
            .map(|rows| {
                let rows = rows.into_iter();
                rows.map(|(at, Json(outcomes))| (at, outcomes)).collect()
            })
            .context("read the outcomes of topics")
    }

    pub async fn archive_state(&self) -> Result<Option<ArchiveState>> {
        let select = format!(
            "SELECT counts ->> 'archive_newest_at', started_at FROM {LATEST_RUNS} \
              WHERE stage = $1 AND counts ->> 'archive_newest_at' IS NOT NULL ORDER BY id DESC LIMIT 1"
        );
        let measured = sqlx::query_as::<DB, (String, Timestamp)>(AssertSqlSafe(select))
            .bind(Stage::Collect.as_str())
            .fetch_optional(&self.pool)
            .await
            .context("read the newest post of the archive")?;
        // A record that another version wrote may have another form.
        Ok(measured.and_then(|(newest, measured_at)| {
            let newest = DateTime::parse_from_rfc3339(&newest).ok()?;
            Some(ArchiveState {
                newest_at: newest.to_utc().into(),
                measured_at,
            })
        }))
    }

    pub async fn labelling_rate(&self, posts: u32) -> Result<Option<f64>> {
        let select = format!(
            "SELECT CAST(counts ->> 'posts_per_sec' AS DOUBLE PRECISION) FROM {LATEST_RUNS} \
              WHERE stage = $1 AND status <> $2 AND CAST(counts ->> 'posts' AS BIGINT) >= $3 \
                AND counts ->> 'posts_per_sec' IS NOT NULL ORDER BY id DESC LIMIT 1"
        );
        let rate = sqlx::query_scalar::<DB, f64>(AssertSqlSafe(select))
            .bind(Stage::Classify.as_str())
            .bind(RunStatus::Running.as_str())
            .bind(i64::from(posts))
            .fetch_optional(&self.pool)
            .await
            .context("read the labelling rate")?;
        Ok(rate.filter(|rate| *rate > 0.0))
    }
}

/// The current target; [`Target::NONE`] without names if no post is labelled.
struct NamedTarget {
    target: Target,
    model: Option<String>,
    label_set: Option<String>,
    label_set_hash: Option<String>,
}

/// Counts of the posts in the backlog that cannot be claimed.
struct HeldBack {
    claimed: i64,
    parked: i64,
}

/// Counts of outcomes.
struct OutcomeCounts {
    posts: i64,
    labelled: i64,
    other: i64,
    unsure: i64,
    unlabelled: i64,
    without_text: i64,
    unchecked: i64,
    oldest_unlabelled: Option<Timestamp>,
}

/// Scales the share of `part` in `of` to `all`.
fn scaled(part: i64, of: i64, all: i64) -> i64 {
    let scaled = i128::from(part) * i128::from(all) / i128::from(of.max(1));
    i64::try_from(scaled).unwrap_or(i64::MAX).min(all)
}
