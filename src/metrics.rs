//! Metrics of a process and its database, in the text format of Prometheus.
//!
//! [`Metrics`] accumulates the counts that stages record. [`serve`] answers scrapes with them and with figures read
//! from the database, on a separate listener that no stage waits for. [`METRICS`] is the table of all names;
//! docs/monitor.md, the dashboard and the alert rules are tested against it.
//!
//! A command calls `metrics::serve(address, metrics, store, clock, max_attempts)` with the metrics of its
//! [`Context`](crate::pipeline::Context).

mod database;
mod exposition;
mod process;
mod server;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use self::database::DatabaseFigures;
use self::exposition::Exposition;
pub use self::server::{Listening, serve};
pub use self::table::{METRICS, Metric, MetricKind};
use topicmill_core::record::{ClassifyCounts, GpuSample, RunCounts, Traffic};
use topicmill_core::{RunStatus, SourceKind, Stage};
use topicmill_http::Meter;
pub use topicmill_pages::listener::BindError;

/// The counters of this process.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<Counters>);

#[derive(Debug, Default)]
struct Counters {
    labelled: ClassifyCounts,
    gpus: Vec<GpuSample>,
    runs: BTreeMap<(&'static str, &'static str), u64>,
    /// Posts read and new posts, by stage.
    collected: BTreeMap<&'static str, (u64, u64)>,
    purged: u64,
    /// HTTP clients in use.
    clients: Vec<(SourceKind, Arc<Meter>)>,
    /// Traffic of clients that have been dropped.
    traffic: BTreeMap<&'static str, Traffic>,
    scheduled_runs: BTreeMap<(String, String), u64>,
    lateness: BTreeMap<String, f64>,
}

impl Metrics {
    /// Adds the counts of labelling since the last call.
    pub fn add_labelled(&self, new: &ClassifyCounts) {
        self.lock().labelled.add(new);
    }

    /// Sets the current figures of the GPUs; empty while nothing is computed.
    pub fn set_gpus(&self, now: Vec<GpuSample>) {
        self.lock().gpus = now;
    }

    /// Counts a finished run.
    pub fn run_ended(&self, stage: Stage, status: RunStatus, counts: &RunCounts) {
        let mut counted = self.lock();
        let stage_name = stage.as_str();
        *counted
            .runs
            .entry((stage_name, status.as_str()))
            .or_default() += 1;
        if let Some((more_posts, more_new)) = counts.collected() {
            let (posts, new) = counted.collected.entry(stage_name).or_default();
            *posts += more_posts;
            *new += more_new;
        } else if let RunCounts::Purge(done) = counts {
            counted.purged += done.purged;
        }
    }

    /// Counts a client's requests from now on.
    pub(crate) fn count_requests_of(&self, source: SourceKind, meter: &Arc<Meter>) {
        let mut counted = self.lock();
        let known = counted.clients.iter();
        if !known
            .into_iter()
            .any(|(_, other)| Arc::ptr_eq(other, meter))
        {
            counted.clients.push((source, Arc::clone(meter)));
        }
    }

    /// Counts scheduled runs that ended or were missed.
    pub fn scheduled_runs_ended(&self, schedule: &str, status: &str, scheduled_runs: u64) {
        let key = (schedule.to_owned(), status.to_owned());
        *self.lock().scheduled_runs.entry(key).or_default() += scheduled_runs;
    }

    /// Records how late a scheduled run started.
    pub fn scheduled_run_began(&self, schedule: &str, late: Duration) {
        let late = late.as_secs_f64();
        self.lock().lateness.insert(schedule.to_owned(), late);
    }

    /// Formats all metrics, including the database's figures.
    fn text(
        &self,
        database: Option<&DatabaseFigures>,
        answered: Option<(bool, Duration)>,
    ) -> String {
        let mut exposition = Exposition::default();
        exposition.put("topicmill_build_info", &[crate::VERSION], 1.0);
        {
            let mut counted = self.lock();
            counted.drop_finished_clients();
            counted.put(&mut exposition, database);
        }
        if let Some((is_up, took)) = answered {
            exposition.count("topicmill_database_up", &[], u64::from(is_up));
            let took = took.as_secs_f64();
            exposition.put("topicmill_database_read_seconds", &[], took);
        }
        if let Some(database) = database {
            database.put(&mut exposition);
        }
        process::put(&mut exposition);
        exposition.text()
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

impl Counters {
    /// Moves the traffic of dropped clients to `traffic`.
    fn drop_finished_clients(&mut self) {
        let traffic = &mut self.traffic;
        self.clients.retain(|(source, meter)| {
            let is_used = Arc::strong_count(meter) > 1;
            if !is_used {
                traffic
                    .entry(source.traits().section)
                    .or_default()
                    .add(&meter.snapshot());
            }
            is_used
        });
    }

    fn put(&self, exposition: &mut Exposition, database: Option<&DatabaseFigures>) {
        for ((stage, status), runs) in &self.runs {
            exposition.count("topicmill_runs_total", &[stage, status], *runs);
        }
        for (stage, (posts, new)) in &self.collected {
            exposition.count("topicmill_posts_collected_total", &[stage], *posts);
            exposition.count("topicmill_posts_new_total", &[stage], *new);
        }
        exposition.count("topicmill_posts_purged_total", &[], self.purged);
        self.put_traffic(exposition, database);
        self.put_labelled(exposition);
        for gpu in &self.gpus {
            let device = [gpu.device.as_str()];
            let busy = gpu.gpu_percent.map(|percent| f64::from(percent) / 100.0);
            exposition.put_some("topicmill_gpu_busy_ratio", &device, busy);
            let bytes = |mib: u32| f64::from(mib) * 1_048_576.0;
            let (used, all) = gpu.memory_mib.unzip();
            exposition.put_some("topicmill_gpu_memory_used_bytes", &device, used.map(bytes));
            exposition.put_some("topicmill_gpu_memory_bytes", &device, all.map(bytes));
            let watts = gpu.watts.map(f64::from);
            exposition.put_some("topicmill_gpu_power_watts", &device, watts);
        }
        for ((schedule, status), scheduled_runs) in &self.scheduled_runs {
            let values = [schedule.as_str(), status];
            exposition.count("topicmill_scheduled_runs_total", &values, *scheduled_runs);
        }
        for (schedule, late) in &self.lateness {
            exposition.put(
                "topicmill_scheduled_run_lateness_seconds",
                &[schedule],
                *late,
            );
        }
    }

    fn put_labelled(&self, exposition: &mut Exposition) {
        let done = &self.labelled;
        let with_label = done.posts.saturating_sub(done.other + done.unsure);
        for (outcome, posts) in [
            ("label", with_label),
            ("other", done.other),
            ("unsure", done.unsure),
        ] {
            exposition.count("topicmill_posts_labelled_total", &[outcome], posts);
        }
        for (name, count) in [
            ("topicmill_posts_failed_total", done.failed),
            ("topicmill_posts_rejected_total", done.refused),
            ("topicmill_leases_lost_total", done.leases_lost),
            ("topicmill_tokens_total", done.tokens),
            ("topicmill_padded_tokens_total", done.padded_tokens),
            ("topicmill_oom_splits_total", done.oom_splits),
        ] {
            exposition.count(name, &[], count);
        }
        for (origin, pairs) in [("computed", done.pairs), ("known", done.pairs_reused)] {
            exposition.count("topicmill_pairs_total", &[origin], pairs);
        }
        exposition.times("topicmill_batch_duration_seconds", &done.batches);
        let stages = &done.stages;
        for (state, seconds) in [
            ("busy", stages.engine_busy_secs),
            ("idle", stages.engine_idle_secs),
            ("blocked", stages.engine_blocked_secs),
        ] {
            exposition.put("topicmill_engine_seconds_total", &[state], seconds);
        }
        for (step, seconds) in [
            ("claim", stages.claim_secs),
            ("look_up", stages.look_up_secs),
            ("shortlist", stages.shortlist_secs),
            ("tokenize", stages.tokenize_secs),
            ("write", stages.write_secs),
        ] {
            exposition.put("topicmill_step_seconds_total", &[step], seconds);
        }
    }

    fn put_traffic(&self, exposition: &mut Exposition, database: Option<&DatabaseFigures>) {
        let mut by_source = self.traffic.clone();
        for (source, meter) in &self.clients {
            let sum = by_source.entry(source.traits().section).or_default();
            sum.add(&meter.snapshot());
        }
        // Quotas that other processes received. This process's quotas replace them, because they are at least as new.
        let mut quotas: BTreeMap<&str, f64> = BTreeMap::new();
        quotas.extend(database.into_iter().flat_map(DatabaseFigures::quotas));
        for (source, traffic) in &by_source {
            for (status, requests) in &traffic.by_status {
                let status = status.to_string();
                exposition.count("topicmill_requests_total", &[source, &status], *requests);
            }
            let none = traffic.no_answer;
            exposition.count("topicmill_requests_total", &[source, "none"], none);
            let retries = traffic.retries;
            exposition.count("topicmill_request_retries_total", &[source], retries);
            let waits = &traffic.waits;
            for (cause, waited) in [
                ("own_pace", waits.own_pace),
                ("their_quota", waits.their_quota),
                ("retry_after", waits.retry_after),
                ("backoff", waits.backoff),
            ] {
                let seconds = waited.sum.as_secs_f64();
                let values = [*source, cause];
                exposition.put("topicmill_request_wait_seconds_total", &values, seconds);
            }
            quotas.extend(traffic.quota.map(|left| (*source, left.remaining)));
        }
        for (source, left) in quotas {
            exposition.put("topicmill_quota_remaining", &[source], left.max(0.0));
        }
    }
}

#[cfg(test)]
mod tests;
