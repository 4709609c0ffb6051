//! Writes the text format of Prometheus: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::{Arguments, Display, Write};

/// The content type of the text format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics, each with its help. A metric whose name ends in `_total` is a counter; the others are gauges.
const HELP: &str = "\
topicmill_posts_labelled_total Posts that this process labelled
topicmill_leases_lost_total Leases that another worker reclaimed while this process computed
topicmill_database_up 1 if the database responded within 5 seconds
topicmill_posts Posts stored; above 200,000, an estimate, as are the gauges that follow
topicmill_backlog_posts Posts that are waiting for a label and are not parked
topicmill_parked_posts Posts parked after too many failed attempts
topicmill_oldest_unlabelled_age_seconds How long the oldest post without a label has waited; 0 if none is waiting
topicmill_newest_post_timestamp_seconds When the last new post was stored
topicmill_archive_newest_post_timestamp_seconds When the newest post of r/AskReddit in Arctic Shift was created, as the last run that read it found
topicmill_last_good_run_timestamp_seconds When the last successful run of a stage ended: one that did all or part of its work
topicmill_last_run_failed 1 if the last run of a stage, among the latest 10,000 runs, failed or crashed, or the last two did nothing
topicmill_last_scheduled_run_failed 1 if the last run of a schedule failed
topicmill_scheduled_run_lateness_seconds How late the last run of a schedule started
topicmill_collected_topics Topics in the last run of collect, by outcome
topicmill_quota_remaining Requests left in the quota, as the last run of collect recorded
process_open_fds Files and sockets that this process has open
process_max_fds Limit on open files and sockets for this process
";

/// The metrics as text.
#[derive(Default)]
pub(super) struct Exposition(pub String);

impl Exposition {
    /// Adds a metric without a label.
    pub(super) fn add(&mut self, name: &str, value: impl Display) {
        self.start(name);
        self.line(format_args!("{name} {value}"));
    }

    /// Adds a metric with a value for each value of a label, unless there is none.
    pub(super) fn add_each<'a>(
        &mut self,
        name: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, impl Display)>,
    ) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_some() {
            self.start(name);
        }
        for (label_value, value) in values {
            let escaped = label_value
                .replace('\\', r"\\")
                .replace('"', "\\\"")
                .replace('\n', r"\n");
            self.line(format_args!("{name}{{{label}=\"{escaped}\"}} {value}"));
        }
    }

    fn start(&mut self, name: &str) {
        let help = HELP
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .expect("the table lists every metric");
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string cannot fail");
    }
}
