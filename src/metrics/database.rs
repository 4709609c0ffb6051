//! Figures read from the database, with statements whose cost does not grow with its size.

use chrono::{DateTime, Utc};

use super::exposition::{Exposition, one, real};
use topicmill_core::record::RunCounts;
use topicmill_core::{MAX_CLOCK_SKEW, ScheduledRunStatus, Stage, Timestamp};
use topicmill_review::drift::Drift;
use topicmill_store::{
    LabellingEstimate, LastRun, RecentLabelCount, ScheduledRunRow, Store, StoreError,
};

/// Number of newest posts in the label mix: enough that chance alone gives sixteen labels a drift index of only 0.02.
const RECENT_POSTS: u32 = 2_000;
/// Number of earlier posts that the newest ones are compared with.
const EARLIER_POSTS: u32 = 8_000;

/// The figures of one read.
pub(super) struct DatabaseFigures {
    pub labelling: LabellingEstimate,
    pub newest: Option<Timestamp>,
    pub last_runs: Vec<LastRun>,
    pub scheduled: Vec<ScheduledRunRow>,
    pub mix: Vec<RecentLabelCount>,
    /// The counts of the last run of `collect`.
    pub collected: RunCounts,
    pub now: DateTime<Utc>,
}

impl DatabaseFigures {
    /// Reads the figures.
    pub(super) async fn read(
        store: &Store,
        max_attempts: u32,
        now: DateTime<Utc>,
    ) -> Result<Self, StoreError> {
        let (status, runs) = (store.status(), store.runs());
        let soon = (now + MAX_CLOCK_SKEW).into();
        let collections = runs.recent_runs(Some(Stage::Collect), 2).await?;
        let mut collections = collections.into_iter();
        let collected = collections.find(|run| run.finished_at.is_some());
        Ok(Self {
            labelling: status.estimate_labelling(max_attempts, now.into()).await?,
            newest: status.newest_post(soon).await?.collected_at,
            last_runs: runs.last_runs().await?,
            scheduled: store.schedules().last_scheduled_runs(soon).await?,
            mix: status
                .recent_label_counts(RECENT_POSTS, EARLIER_POSTS)
                .await?,
            collected: collected
                .map(|run| RunCounts::read(run.stage, &run.counts))
                .unwrap_or_default(),
            now,
        })
    }

    pub(super) fn put(&self, text: &mut Exposition) {
        self.put_posts(text);
        self.put_runs(text);
        let pairs = self.mix.iter().map(|part| (part.older, part.newer));
        if let Some(drift) = Drift::of(&pairs.collect::<Vec<_>>()) {
            text.gauge(
                "topicmill_label_drift_index",
                "Population stability index of the label mix: the newest 2,000 posts compared with the 8,000 before them",
                [(None, drift.index)],
            );
            text.gauge(
                "topicmill_label_drift_chance",
                "95th percentile of the drift index by chance alone",
                [(None, drift.chance)],
            );
        }
    }

    fn put_posts(&self, text: &mut Exposition) {
        let state = &self.labelling.state;
        text.gauge(
            "topicmill_posts",
            "Posts stored; above 200,000, an estimate, as are the gauges that follow",
            one(state.posts),
        );
        text.gauge(
            "topicmill_backlog_posts",
            "Posts that are waiting for a label and are not parked",
            one((state.unlabelled - state.parked).max(0)),
        );
        text.gauge(
            "topicmill_parked_posts",
            "Posts parked after too many failed attempts",
            one(state.parked),
        );
        let age = |oldest: Timestamp| (self.now - oldest.as_datetime()).num_seconds().max(0);
        text.gauge(
            "topicmill_oldest_unlabelled_age_seconds",
            "How long the oldest post without a label has waited; 0 if none is waiting",
            one(state.oldest_unlabelled.map_or(0, age)),
        );
        text.gauge(
            "topicmill_newest_post_timestamp_seconds",
            "When the last new post was stored",
            self.newest.map(|at| (None, seconds(at))),
        );
    }

    fn put_runs(&self, text: &mut Exposition) {
        let good = |last: &LastRun| Some((last.stage.as_str(), seconds(last.good_at?)));
        text.gauges(
            "topicmill_last_good_run_timestamp_seconds",
            "stage",
            "When the last successful run of a stage ended: one that did all or part of its work",
            self.last_runs.iter().filter_map(good),
        );
        let failed = |last: &LastRun| (last.stage.as_str(), f64::from(u8::from(last.is_bad())));
        text.gauges(
            "topicmill_last_run_failed",
            "stage",
            "1 if the last run of a stage failed or crashed",
            self.last_runs.iter().map(failed),
        );
        text.gauges(
            "topicmill_last_scheduled_run_failed",
            "schedule",
            "1 if the last run of a schedule failed",
            self.scheduled.iter().map(|last| {
                let has_failed = last.status == ScheduledRunStatus::Failed;
                (last.schedule.as_str(), f64::from(u8::from(has_failed)))
            }),
        );
        text.gauges(
            "topicmill_scheduled_run_lateness_seconds",
            "schedule",
            "How late the last run of a schedule started",
            self.scheduled.iter().map(|last| {
                let late = last.started_at.as_datetime() - last.due_at.as_datetime();
                (last.schedule.as_str(), real(late.num_seconds().max(0)))
            }),
        );
        let outcomes = self.collected.outcomes().into_iter().flatten();
        text.gauges(
            "topicmill_collected_topics",
            "outcome",
            "Topics in the last run of collect, by outcome",
            outcomes.map(|(outcome, topics)| (outcome.as_str(), real(topics.cast_signed()))),
        );
        let traffic = match &self.collected {
            RunCounts::Collect(done) => Some(&done.traffic),
            _ => None,
        };
        let quotas = traffic
            .into_iter()
            .flatten()
            .filter_map(|(source, traffic)| {
                Some((source.as_str(), traffic.quota?.remaining.max(0.0)))
            });
        text.gauges(
            "topicmill_quota_remaining",
            "source",
            "Requests left in the quota, as the last run of collect recorded",
            quotas,
        );
    }
}

/// Converts to Unix time in seconds.
fn seconds(time: Timestamp) -> f64 {
    real(time.as_datetime().timestamp())
}
