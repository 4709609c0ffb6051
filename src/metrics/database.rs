//! Figures read from the database, with statements whose cost does not grow with its size.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::exposition::{Exposition, real, whole};
use topicmill_core::record::RunCounts;
use topicmill_core::{MAX_CLOCK_SKEW, Stage, Timestamp};
use topicmill_review::drift::Drift;
use topicmill_store::{
    LabellingEstimate, LastRun, NewestPost, RecentLabelCount, Store, StoreError,
};

/// Number of newest posts in the label mix: enough that chance alone gives sixteen labels a drift index of only 0.02.
const RECENT_POSTS: u32 = 2_000;
/// Number of earlier posts that the newest ones are compared with.
const EARLIER_POSTS: u32 = 8_000;
/// Maximum number of labels: a label set may have thousands, and each would be a time series.
const MAX_LABELS: usize = 50;
/// The name of all other labels together.
const REST: &str = "_rest";

/// The figures of one read.
pub(super) struct DatabaseFigures {
    about: LabellingEstimate,
    newest: NewestPost,
    last_runs: Vec<LastRun>,
    under_way: usize,
    gaps: usize,
    mix: Vec<RecentLabelCount>,
    /// The counts of the last run of `collect`.
    collected: RunCounts,
    now: DateTime<Utc>,
}

impl DatabaseFigures {
    /// Reads the figures.
    pub(super) async fn read(
        store: &Store,
        max_attempts: u32,
        now: DateTime<Utc>,
    ) -> Result<Self, StoreError> {
        let mut collections = store.runs().recent_runs(Some(Stage::Collect), 2).await?;
        collections.retain(|run| run.finished_at.is_some());
        let collected = collections.into_iter().next();
        Ok(Self {
            about: store
                .status()
                .estimate_labelling(max_attempts, now.into())
                .await?,
            newest: store
                .status()
                .newest_post((now + MAX_CLOCK_SKEW).into())
                .await?,
            last_runs: store.runs().last_runs().await?,
            under_way: store.runs().unfinished_runs().await?.len(),
            gaps: store.posts().gaps().await?.len(),
            mix: store
                .status()
                .recent_label_counts(RECENT_POSTS, EARLIER_POSTS)
                .await?,
            collected: collected
                .map(|run| RunCounts::read(run.stage, &run.counts))
                .unwrap_or_default(),
            now,
        })
    }

    /// Returns the remaining quota of each source, in requests, from the last run of `collect`.
    pub(super) fn quotas(&self) -> impl Iterator<Item = (&str, f64)> {
        let traffic = match &self.collected {
            RunCounts::Collect(done) => Some(&done.traffic),
            _ => None,
        };
        let traffic = traffic.into_iter().flatten();
        traffic.filter_map(|(section, traffic)| Some((section.as_str(), traffic.quota?.remaining)))
    }

    pub(super) fn put(&self, exposition: &mut Exposition) {
        let standing = &self.about.state;
        let waiting = (standing.unlabelled - standing.parked).max(0);
        for (name, posts) in [
            ("topicmill_posts", standing.posts),
            ("topicmill_backlog_posts", waiting),
            ("topicmill_claimed_posts", standing.claimed),
            ("topicmill_parked_posts", standing.parked),
        ] {
            exposition.put(name, &[], whole(posts));
        }
        let age = standing.oldest_unlabelled.map_or(0, |oldest| {
            (self.now - oldest.as_datetime()).num_seconds().max(0)
        });
        exposition.put("topicmill_oldest_unlabelled_age_seconds", &[], whole(age));
        let newest = self.newest.collected_at.map(seconds);
        exposition.put_some("topicmill_newest_post_timestamp_seconds", &[], newest);
        let abstained = whole(standing.none_of_these) / whole(standing.labelled.max(1));
        exposition.put("topicmill_abstained_ratio", &[], abstained);
        if let (Some(label_set), Some(version), Some(model)) = (
            &standing.label_set,
            &standing.label_set_hash,
            &standing.model,
        ) {
            let values = [label_set.as_str(), version, model];
            exposition.put("topicmill_label_set_info", &values, 1.0);
        }
        self.put_mix(exposition);
        exposition.count("topicmill_runs_in_progress", &[], self.under_way as u64);
        exposition.count("topicmill_gaps", &[], self.gaps as u64);
        for last in &self.last_runs {
            let stage = [last.stage.as_str()];
            let ended = seconds(last.finished_at);
            exposition.put("topicmill_last_run_timestamp_seconds", &stage, ended);
            let good = last.good_at.map(seconds);
            exposition.put_some("topicmill_last_good_run_timestamp_seconds", &stage, good);
            let failed = u64::from(last.is_bad());
            exposition.count("topicmill_last_run_failed", &stage, failed);
        }
        for (outcome, topics) in self.collected.outcomes().into_iter().flatten() {
            exposition.count("topicmill_collected_topics", &[outcome], *topics);
        }
    }

    /// Adds the mix of labels, and its drift from the earlier posts.
    fn put_mix(&self, exposition: &mut Exposition) {
        let all: u64 = self.mix.iter().map(|part| part.newer).sum();
        let mut parts: Vec<&RecentLabelCount> = self.mix.iter().collect();
        parts.sort_by(|a, b| b.newer.cmp(&a.newer).then_with(|| a.label.cmp(&b.label)));
        let mut shown: BTreeMap<&str, u64> = BTreeMap::new();
        for (place, part) in parts.iter().enumerate() {
            let name = if place < MAX_LABELS {
                &part.label
            } else {
                REST
            };
            *shown.entry(name).or_default() += part.newer;
        }
        for (label, posts) in shown {
            let ratio = real(posts) / real(all.max(1));
            exposition.put("topicmill_label_ratio", &[label], ratio);
        }
        let pairs: Vec<_> = self
            .mix
            .iter()
            .map(|part| (part.older, part.newer))
            .collect();
        if let Some(drift) = Drift::of(&pairs) {
            exposition.put("topicmill_label_drift_index", &[], drift.index);
            exposition.put("topicmill_label_drift_chance", &[], drift.chance);
        }
    }
}

/// Converts to Unix time in seconds.
fn seconds(time: Timestamp) -> f64 {
    whole(time.as_datetime().timestamp())
}
