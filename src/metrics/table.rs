//! All metrics: name, labels and help.

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, from 0 when the process begins.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by size.
    Histogram,
}

impl MetricKind {
    /// As the text format writes it.
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
    /// Its help, a sentence without a full stop.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($kind:ident $name:literal [$($label:literal),*] $help:literal)*) => {
        /// What this process counted comes first, then what the database says, then the process itself.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        }),*];
    };
}

metrics! {
    Gauge "topicmill_build_info" ["version"] "1, with the version of the program"
    Counter "topicmill_runs_total" ["stage", "status"] "Runs of this process that ended"
    Counter "topicmill_posts_collected_total" ["stage"] "Posts that this process read from a source or a file"
    Counter "topicmill_posts_new_total" ["stage"] "Posts that this process stored for the first time"
    Counter "topicmill_posts_purged_total" [] "Posts that this process purged"
    Counter "topicmill_requests_total" ["source", "status"]
        "Requests that this process sent to a source, by the status of the answer; none for no answer"
    Counter "topicmill_request_retries_total" ["source"] "Requests that were sent again"
    Counter "topicmill_request_wait_seconds_total" ["source", "cause"] "Time that this process waited before requests"
    Gauge "topicmill_quota_remaining" ["source"] "Requests that were left in the quota when the source last said so"
    Counter "topicmill_posts_labelled_total" ["outcome"]
        "Posts that this process labelled: with a label, other, or unsure"
    Counter "topicmill_posts_failed_total" [] "Attempts to label a post that failed"
    Counter "topicmill_posts_refused_total" []
        "Scored posts whose labels were refused, because another worker had taken them over"
    Counter "topicmill_leases_lost_total" [] "Leases that another worker took over while this process computed"
    Counter "topicmill_pairs_total" ["origin"] "Pairs of a text and a label: computed, or known before"
    Counter "topicmill_tokens_total" [] "Tokens that the model read, padding not counted"
    Counter "topicmill_padded_tokens_total" [] "Tokens that the model read, padding counted"
    Counter "topicmill_oom_splits_total" [] "Batches that were halved because the memory ran out"
    Histogram "topicmill_batch_duration_seconds" [] "How long the engine computed a batch"
    Counter "topicmill_engine_seconds_total" ["state"]
        "Time of the engines: busy, idle (they wait for posts) or blocked (they wait for the writer)"
    Counter "topicmill_step_seconds_total" ["step"]
        "Time that the steps around the engines took: claim, look_up, shortlist (the small model), tokenize and write"
    Gauge "topicmill_gpu_busy_ratio" ["device"]
        "Part of the last moment in which the GPU computed, while posts are labelled"
    Gauge "topicmill_gpu_memory_used_bytes" ["device"] "Memory of the GPU in use, by any process"
    Gauge "topicmill_gpu_memory_bytes" ["device"] "All memory of the GPU"
    Gauge "topicmill_gpu_power_watts" ["device"] "Power that the GPU draws"
    Counter "topicmill_schedule_slots_total" ["schedule", "status"] "Slots of schedules that ended in this process"
    Gauge "topicmill_schedule_slot_lateness_seconds" ["schedule"] "How late the last slot of a schedule began"
    Counter "topicmill_notifications_total" ["event", "result"]
        "Notifications that this process sent, or failed to send"
    Gauge "topicmill_database_up" [] "1 if the database answered within 5 seconds"
    Gauge "topicmill_database_read_seconds" [] "How long the database took to answer"
    Gauge "topicmill_posts" [] "Posts stored; an estimate above 200,000, as of all that follow"
    Gauge "topicmill_backlog_posts" [] "Posts that wait for a label and are not set aside"
    Gauge "topicmill_claimed_posts" [] "Posts that a live worker holds"
    Gauge "topicmill_set_aside_posts" [] "Posts that failed too often and are not tried any more"
    Gauge "topicmill_oldest_unlabelled_age_seconds" []
        "How long the oldest post without a label has waited; 0 if none waits"
    Gauge "topicmill_newest_post_timestamp_seconds" [] "When the last new post was stored"
    Gauge "topicmill_abstained_ratio" []
        "Part of the labelled posts that have none of the labels: they are other or unsure"
    Gauge "topicmill_label_ratio" ["label"]
        "Part of the newest labelled posts that has this label; beyond 50 labels, _rest"
    Gauge "topicmill_label_drift_index" []
        "How far the mix of labels of the newest 2,000 posts is from that of the 8,000 before: the population stability index"
    Gauge "topicmill_label_drift_chance" [] "What the index stays under in 95 of 100 cases by chance alone"
    Gauge "topicmill_label_set_info" ["label_set", "version", "model"]
        "1, with the label set and the model whose labels the views show"
    Gauge "topicmill_runs_under_way" [] "Runs of any process that have not ended"
    Gauge "topicmill_last_run_timestamp_seconds" ["stage"] "When the last run of a stage ended"
    Gauge "topicmill_last_good_run_timestamp_seconds" ["stage"]
        "When the last good run of a stage ended: one that did all, or some of it"
    Gauge "topicmill_last_run_failed" ["stage"] "1 if the last run of a stage failed or died"
    Gauge "topicmill_collected_topics" ["outcome"] "Topics of the last run of collect by what came of them"
    Gauge "topicmill_gaps" [] "Stretches of time whose posts are missing"
    Gauge "process_resident_memory_bytes" [] "Memory of this process"
    Gauge "process_open_fds" [] "Files and sockets that this process has open"
    Gauge "process_max_fds" [] "Files and sockets that this process may have open"
    Gauge "process_start_time_seconds" [] "When this process began"
    Gauge "process_threads" [] "Threads of this process"
    Counter "process_cpu_seconds_total" [] "Time that this process computed"
}

/// The metric of this name.
pub(super) fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}
