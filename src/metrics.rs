//! Metrics of a process and its database, in the text format of Prometheus.
//!
//! [`Metrics`] counts what stages do. [`serve`] answers scrapes with the counts and with figures read from the
//! database, on a separate listener that no stage waits for. docs/monitor.md lists all metrics, and the alert rules in
//! pipelines/monitoring use them; both are tested against the output.
//!
//! A command calls `metrics::serve(address, metrics, store, clock, max_attempts)` with the metrics of its
//! [`Context`](crate::pipeline::Context).

mod database;
mod exposition;
mod server;

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use self::database::DatabaseFigures;
use self::exposition::{Exposition, one};
pub use self::server::{Listening, serve};
use topicmill_core::record::ClassifyCounts;
pub use topicmill_pages::listener::BindError;

/// The counters of this process.
#[derive(Debug, Default)]
pub struct Metrics {
    labelled: AtomicU64,
    leases_lost: AtomicU64,
}

impl Metrics {
    /// Adds the counts of labelling since the last call.
    pub fn add_labelled(&self, new: &ClassifyCounts) {
        self.labelled.fetch_add(new.posts, Ordering::Relaxed);
        self.leases_lost
            .fetch_add(new.leases_lost, Ordering::Relaxed);
    }

    /// Formats all metrics. `database` is `None` if the database did not respond.
    fn text(&self, database: Option<&DatabaseFigures>) -> String {
        let mut text = Exposition::default();
        text.counter(
            "topicmill_posts_labelled_total",
            "Posts that this process labelled",
            self.labelled.load(Ordering::Relaxed),
        );
        text.counter(
            "topicmill_leases_lost_total",
            "Leases that another worker reclaimed while this process computed",
            self.leases_lost.load(Ordering::Relaxed),
        );
        text.gauge(
            "topicmill_database_up",
            "1 if the database responded within 5 seconds",
            one(i64::from(database.is_some())),
        );
        if let Some(database) = database {
            database.put(&mut text);
        }
        // Without `/proc`, there are no file metrics.
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        if let Some(limit) = open_files_limit() {
            // Excludes the descriptor of the folder that is being read.
            let open = i64::try_from(open.saturating_sub(1)).unwrap_or(i64::MAX);
            text.gauge(
                "process_open_fds",
                "Files and sockets that this process has open",
                one(open),
            );
            text.gauge(
                "process_max_fds",
                "Limit on open files and sockets for this process",
                one(limit),
            );
        }
        text.0
    }
}

fn open_files_limit() -> Option<i64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
