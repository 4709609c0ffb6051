//! Metrics of a process and its database, in the text format of Prometheus.
//!
//! [`Metrics`] counts what stages do. [`serve`] answers scrapes with the counts and with figures read from the
//! database, on a separate listener that no stage waits for. docs/monitor.md lists all metrics, and the alert rules in
//! monitoring use them; both are tested against the output.

mod database;
mod exposition;
mod server;

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use self::database::DatabaseFigures;
use self::exposition::Exposition;
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
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        text.add("topicmill_posts_labelled_total", count(&self.labelled));
        text.add("topicmill_leases_lost_total", count(&self.leases_lost));
        text.add("topicmill_database_up", u8::from(database.is_some()));
        if let Some(database) = database {
            database.add_to(&mut text);
        }
        // Without `/proc`, there are no file metrics.
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        if let Some(limit) = open_files_limit() {
            // One descriptor is that of the folder that is being read.
            text.add("process_open_fds", open.saturating_sub(1));
            text.add("process_max_fds", limit);
        }
        text.0
    }
}

fn open_files_limit() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
