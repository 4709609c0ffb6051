//! Figures read from the database, with statements whose cost does not grow with its size.

use chrono::{DateTime, Utc};

use super::exposition::Exposition;
use topicmill_core::record::RunCounts;
use topicmill_core::{MAX_CLOCK_SKEW, ScheduledRunStatus, Stage, Timestamp};
use topicmill_store::{
    ArchiveState, LabellingEstimate, LastRun, ScheduledRunRow, Store, StoreError,
};

/// The figures of one read.
pub(super) struct DatabaseFigures {
    pub labelling: LabellingEstimate,
    pub newest: Option<Timestamp>,
    pub archive: Option<ArchiveState>,
    pub last_runs: Vec<LastRun>,
    pub scheduled: Vec<ScheduledRunRow>,
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
        let recent = runs.recent_runs(Some(Stage::Collect), 2).await?;
        let last = recent.iter().find(|run| run.finished_at.is_some());
        let collected = last.map(|run| RunCounts::read(run.stage, &run.counts));
        Ok(Self {
            labelling: status.estimate_labelling(max_attempts, now.into()).await?,
            newest: status.newest_post(soon).await?.collected_at,
            archive: runs.archive_state().await?,
            last_runs: runs.last_runs().await?,
            scheduled: store.schedules().last_scheduled_runs(soon).await?,
            collected: collected.unwrap_or_default(),
            now,
        })
    }

    /// Adds the figures to the metrics.
    pub(super) fn add_to(&self, text: &mut Exposition) {
        let state = &self.labelling.state;
        text.add("topicmill_posts", state.posts);
        let waiting = (state.unlabelled - state.parked).max(0);
        text.add("topicmill_backlog_posts", waiting);
        text.add("topicmill_parked_posts", state.parked);
        let age = state.oldest_unlabelled.map_or(0, |oldest| {
            (self.now - oldest.as_datetime()).num_seconds().max(0)
        });
        text.add("topicmill_oldest_unlabelled_age_seconds", age);
        if let Some(newest) = self.newest {
            text.add("topicmill_newest_post_timestamp_seconds", seconds(newest));
        }
        if let Some(archive) = self.archive {
            let newest = seconds(archive.newest_at);
            text.add("topicmill_archive_newest_post_timestamp_seconds", newest);
        }
        let last_good = |last: &LastRun| Some((last.stage.as_str(), seconds(last.good_at?)));
        let good = self.last_runs.iter().filter_map(last_good);
        text.add_each("topicmill_last_good_run_timestamp_seconds", "stage", good);
        let last_failed = self.last_runs.iter().map(|last| {
            let has_failed = last.problem().is_some();
            (last.stage.as_str(), u8::from(has_failed))
        });
        text.add_each("topicmill_last_run_failed", "stage", last_failed);
        let schedules = self.scheduled.iter().map(|last| {
            let has_failed = last.status == ScheduledRunStatus::Failed;
            (last.schedule.as_str(), u8::from(has_failed))
        });
        text.add_each("topicmill_last_scheduled_run_failed", "schedule", schedules);
        let late = self.scheduled.iter().map(|last| {
            let delay = last.started_at.as_datetime() - last.due_at.as_datetime();
            (last.schedule.as_str(), delay.num_seconds().max(0))
        });
        text.add_each("topicmill_scheduled_run_lateness_seconds", "schedule", late);
        let outcomes = self.collected.outcomes().into_iter().flatten();
        let topics = outcomes.map(|(outcome, topics)| (outcome.as_str(), topics));
        text.add_each("topicmill_collected_topics", "outcome", topics);
        if let RunCounts::Collect(done) = &self.collected {
            let left = done.traffic.iter().filter_map(|(source, traffic)| {
                Some((source.as_str(), traffic.quota?.remaining.max(0.0)))
            });
            text.add_each("topicmill_quota_remaining", "source", left);
        }
    }
}

/// Converts to Unix time in seconds.
fn seconds(time: Timestamp) -> i64 {
    time.as_datetime().timestamp()
}
