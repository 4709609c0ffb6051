//! The table of all metrics: names, labels and help texts.

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases, from 0 when the process starts.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Counts values in buckets.
    Histogram,
}

impl MetricKind {
    /// Returns the word used in the text format.
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// Its help text, a sentence without a full stop.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($kind:ident $name:literal [$($label:literal),*] $help:literal)*) => {
        /// All metrics: the counters of this process, then figures of the database, then resources of the process.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        }),*];
    };
}

metrics! {
    Gauge "topicmill_build_info" ["version"] "1, with the program's version"
    Counter "topicmill_runs_total" ["stage", "status"] "Runs of this process that ended"
    Counter "topicmill_posts_collected_total" ["stage"] "Posts that this process read from a source or a file"
    Counter "topicmill_posts_new_total" ["stage"] "Posts that this process stored for the first time"
    Counter "topicmill_posts_purged_total" [] "Posts that this process purged"
    Counter "topicmill_requests_total" ["source", "status"]
        "Requests that this process sent to a source, by response status; none: no response"
    Counter "topicmill_request_retries_total" ["source"] "Requests that were retried"
    Counter "topicmill_request_wait_seconds_total" ["source", "cause"]
        "Time that this process waited before sending requests"
    Gauge "topicmill_quota_remaining" ["source"] "Requests left in the quota, as the source last reported"
    Counter "topicmill_posts_labelled_total" ["outcome"]
        "Posts that this process labelled: with a label, other, or unsure"
    Counter "topicmill_posts_failed_total" [] "Failed attempts to label a post"
    Counter "topicmill_posts_rejected_total" []
        "Scored posts whose labels were rejected, because another worker had reclaimed the posts"
    Counter "topicmill_leases_lost_total" [] "Leases that another worker reclaimed while this process computed"
    Counter "topicmill_pairs_total" ["origin"] "Pairs of a text and a label: computed, or already known"
    Counter "topicmill_tokens_total" [] "Tokens that the model read, not counting padding"
    Counter "topicmill_padded_tokens_total" [] "Tokens that the model read, counting padding"
    Counter "topicmill_oom_splits_total" [] "Batches that were halved because memory ran out"
    Histogram "topicmill_batch_duration_seconds" [] "How long the engine took to compute a batch"
    Counter "topicmill_engine_seconds_total" ["state"]
        "Time that engines spent busy, idle (waiting for posts) or blocked (waiting for the writer)"
    Counter "topicmill_step_seconds_total" ["step"]
        "Time that the steps around inference took: claim, look_up, shortlist (the small model), tokenize and write"
    Gauge "topicmill_gpu_busy_ratio" ["device"]
        "GPU utilization in the last sample while posts are being labelled"
    Gauge "topicmill_gpu_memory_used_bytes" ["device"] "GPU memory in use by all processes"
    Gauge "topicmill_gpu_memory_bytes" ["device"] "Total memory of the GPU"
    Gauge "topicmill_gpu_power_watts" ["device"] "Power that the GPU draws"
    Counter "topicmill_scheduled_runs_total" ["schedule", "status"] "Scheduled runs that ended in this process"
    Gauge "topicmill_scheduled_run_lateness_seconds" ["schedule"] "How late the last scheduled run started"
    Gauge "topicmill_database_up" [] "1 if the database responded within 5 seconds"
    Gauge "topicmill_database_read_seconds" [] "How long the database took to respond"
    Gauge "topicmill_posts" [] "Posts stored; above 200,000, an estimate, as are the gauges that follow"
    Gauge "topicmill_backlog_posts" [] "Posts that are waiting for a label and are not parked"
    Gauge "topicmill_claimed_posts" [] "Posts under an unexpired lease"
    Gauge "topicmill_parked_posts" [] "Posts parked after too many failed attempts"
    Gauge "topicmill_oldest_unlabelled_age_seconds" []
        "How long the oldest post without a label has waited; 0 if none is waiting"
    Gauge "topicmill_newest_post_timestamp_seconds" [] "When the last new post was stored"
    Gauge "topicmill_abstained_ratio" []
        "Share of labelled posts that got none of the labels: other or unsure"
    Gauge "topicmill_label_ratio" ["label"]
        "Share of the newest labelled posts with this label; _rest stands for labels beyond the first 50"
    Gauge "topicmill_label_drift_index" []
        "Population stability index of the label mix: the newest 2,000 posts compared with the 8,000 before them"
    Gauge "topicmill_label_drift_chance" [] "95th percentile of the drift index by chance alone"
    Gauge "topicmill_label_set_info" ["label_set", "version", "model"]
        "1, with the current label set and model"
    Gauge "topicmill_runs_in_progress" [] "Runs of any process that have not ended"
    Gauge "topicmill_last_run_timestamp_seconds" ["stage"] "When the last run of a stage ended"
    Gauge "topicmill_last_good_run_timestamp_seconds" ["stage"]
        "When the last successful run of a stage ended: one that did all or part of its work"
    Gauge "topicmill_last_run_failed" ["stage"] "1 if the last run of a stage failed or crashed"
    Gauge "topicmill_collected_topics" ["outcome"] "Topics in the last run of collect, by outcome"
    Gauge "topicmill_gaps" [] "Time ranges with missing posts"
    Gauge "process_resident_memory_bytes" [] "Memory of this process"
    Gauge "process_open_fds" [] "Files and sockets that this process has open"
    Gauge "process_max_fds" [] "Limit on open files and sockets for this process"
    Gauge "process_start_time_seconds" [] "When this process started"
    Gauge "process_threads" [] "Threads of this process"
    Counter "process_cpu_seconds_total" [] "CPU time of this process"
}

/// Returns the metric with this name.
pub(super) fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}
