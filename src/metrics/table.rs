//! Every metric there is: its name, its labels, and what it says.

/// Of what kind a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from 0 when the process begins.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts how many values fell where.
    Histogram,
}

impl Kind {
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
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says, in a sentence without its full stop.
    pub help: &'static str,
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    let kind = Kind::Counter;
    Metric {
        name,
        kind,
        labels,
        help,
    }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    let kind = Kind::Gauge;
    Metric {
        name,
        kind,
        labels,
        help,
    }
}

/// All of them. What this process counted comes first, then what the database says, then the process itself.
pub const METRICS: &[Metric] = &[
    gauge(
        "topicmill_build_info",
        &["version"],
        "1, with the version of the program",
    ),
    counter(
        "topicmill_runs_total",
        &["stage", "status"],
        "Runs of this process that ended",
    ),
    counter(
        "topicmill_posts_collected_total",
        &["stage"],
        "Posts that this process read from a source or a file",
    ),
    counter(
        "topicmill_posts_new_total",
        &["stage"],
        "Posts that this process stored for the first time",
    ),
    counter(
        "topicmill_posts_purged_total",
        &[],
        "Posts that this process purged",
    ),
    counter(
        "topicmill_requests_total",
        &["source", "status"],
        "Requests that this process sent to a source, by the status of the answer; none for no answer",
    ),
    counter(
        "topicmill_request_retries_total",
        &["source"],
        "Requests that were sent again",
    ),
    counter(
        "topicmill_request_wait_seconds_total",
        &["source", "cause"],
        "Time that this process waited before requests",
    ),
    gauge(
        "topicmill_quota_remaining",
        &["source"],
        "Requests that were left in the quota when the source last said so",
    ),
    counter(
        "topicmill_posts_labelled_total",
        &["outcome"],
        "Posts that this process labelled: with a label, other, or unsure",
    ),
    counter(
        "topicmill_posts_by_small_total",
        &[],
        "Posts that the small model of a cascade labelled",
    ),
    counter(
        "topicmill_posts_failed_total",
        &[],
        "Attempts to label a post that failed",
    ),
    counter(
        "topicmill_posts_refused_total",
        &[],
        "Scored posts whose labels were refused, because another worker had taken them over",
    ),
    counter(
        "topicmill_leases_lost_total",
        &[],
        "Leases that another worker took over while this process computed",
    ),
    counter(
        "topicmill_pairs_total",
        &["origin"],
        "Pairs of a text and a label: computed, or known before",
    ),
    counter(
        "topicmill_tokens_total",
        &[],
        "Tokens that the model read, padding not counted",
    ),
    counter(
        "topicmill_padded_tokens_total",
        &[],
        "Tokens that the model read, padding counted",
    ),
    counter(
        "topicmill_oom_splits_total",
        &[],
        "Batches that were halved because the memory ran out",
    ),
    Metric {
        name: "topicmill_batch_duration_seconds",
        kind: Kind::Histogram,
        labels: &[],
        help: "How long the engine computed a batch",
    },
    counter(
        "topicmill_engine_seconds_total",
        &["state"],
        "Time of the engines: busy, idle (they wait for posts) or blocked (they wait for the writer)",
    ),
    counter(
        "topicmill_step_seconds_total",
        &["step"],
        "Time that the steps around the engines took: claim, look_up, shortlist (the small model), tokenize and write",
    ),
    gauge(
        "topicmill_gpu_busy_ratio",
        &["device"],
        "Part of the last moment in which the GPU computed, while posts are labelled",
    ),
    gauge(
        "topicmill_gpu_memory_used_bytes",
        &["device"],
        "Memory of the GPU in use, by any process",
    ),
    gauge(
        "topicmill_gpu_memory_bytes",
        &["device"],
        "All memory of the GPU",
    ),
    gauge(
        "topicmill_gpu_power_watts",
        &["device"],
        "Power that the GPU draws",
    ),
    counter(
        "topicmill_schedule_slots_total",
        &["schedule", "status"],
        "Slots of schedules that ended in this process",
    ),
    gauge(
        "topicmill_schedule_slot_lateness_seconds",
        &["schedule"],
        "How late the last slot of a schedule began",
    ),
    counter(
        "topicmill_notifications_total",
        &["event", "result"],
        "Notifications that this process sent, or failed to send",
    ),
    gauge(
        "topicmill_database_up",
        &[],
        "1 if the database answered within 5 seconds",
    ),
    gauge(
        "topicmill_database_read_seconds",
        &[],
        "How long the database took to answer",
    ),
    gauge(
        "topicmill_posts",
        &[],
        "Posts stored; an estimate above 200,000, as of all that follow",
    ),
    gauge(
        "topicmill_backlog_posts",
        &[],
        "Posts that wait for a label and are not set aside",
    ),
    gauge(
        "topicmill_claimed_posts",
        &[],
        "Posts that a live worker holds",
    ),
    gauge(
        "topicmill_set_aside_posts",
        &[],
        "Posts that failed too often and are not tried any more",
    ),
    gauge(
        "topicmill_oldest_unlabelled_age_seconds",
        &[],
        "How long the oldest post without a label has waited; 0 if none waits",
    ),
    gauge(
        "topicmill_newest_post_timestamp_seconds",
        &[],
        "When the last new post was stored",
    ),
    gauge(
        "topicmill_abstained_ratio",
        &[],
        "Part of the labelled posts that have none of the labels: they are other or unsure",
    ),
    gauge(
        "topicmill_label_ratio",
        &["label"],
        "Part of the newest labelled posts that has this label; beyond 50 labels, _rest",
    ),
    gauge(
        "topicmill_label_drift_index",
        &[],
        "How far the mix of labels of the newest 2,000 posts is from that of the 8,000 before: the population stability index",
    ),
    gauge(
        "topicmill_label_drift_chance",
        &[],
        "What the index stays under in 95 of 100 cases by chance alone",
    ),
    gauge(
        "topicmill_label_set_info",
        &["label_set", "version", "model"],
        "1, with the label set and the model whose labels the views show",
    ),
    gauge(
        "topicmill_runs_under_way",
        &[],
        "Runs of any process that have not ended",
    ),
    gauge(
        "topicmill_last_run_timestamp_seconds",
        &["stage"],
        "When the last run of a stage ended",
    ),
    gauge(
        "topicmill_last_good_run_timestamp_seconds",
        &["stage"],
        "When the last good run of a stage ended: one that did all, or some of it",
    ),
    gauge(
        "topicmill_last_run_failed",
        &["stage"],
        "1 if the last run of a stage failed or died",
    ),
    gauge(
        "topicmill_collected_topics",
        &["outcome"],
        "Topics of the last run of collect by what came of them",
    ),
    gauge(
        "topicmill_gaps",
        &[],
        "Stretches of time whose posts are missing",
    ),
    gauge(
        "process_resident_memory_bytes",
        &[],
        "Memory of this process",
    ),
    gauge(
        "process_open_fds",
        &[],
        "Files and sockets that this process has open",
    ),
    gauge(
        "process_max_fds",
        &[],
        "Files and sockets that this process may have open",
    ),
    gauge("process_start_time_seconds", &[], "When this process began"),
    gauge("process_threads", &[], "Threads of this process"),
    counter(
        "process_cpu_seconds_total",
        &[],
        "Time that this process computed",
    ),
];

/// The row of a metric.
pub(super) fn row(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}
