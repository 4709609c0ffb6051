//! `topicmill score` into a folder: a shard of it, or a look whether all are there.

use std::path::Path;

use super::Score;
use super::number::{Numbered, numbered};
use super::places::Places;
use crate::classify::worker_name;
use crate::cli::output;
use crate::cli::setup::Setup;
use crate::cli::{CliError, Exit};
use crate::files::shards::{self, Plan, ShardJob, ShardReport};
use crate::files::shelf::{Holder, Shelf};
use crate::files::{FileJob, Scoring};
use crate::telemetry::Progress;
use topicmill_score::{Cascade, LabelSet};

/// Looks whether all shards are whole.
pub(super) fn check(places: &Places, output: &Path) -> Result<Exit, CliError> {
    let report = shards::check(&*places.shelf(output)?)?;
    let whole = report.shards - u32::try_from(report.missing.len()).unwrap_or(report.shards);
    let rows = report.rows;
    let left_out = match rows.left_out {
        0 => String::new(),
        rows => format!(", {rows} left out"),
    };
    let missing = match report.missing_ranges() {
        ranges if ranges.is_empty() => ranges,
        ranges => format!("missing: {ranges}\n"),
    };
    output::print(&format!(
        "{whole} of {} shards are whole: {} rows read, {} written, {} failed{left_out}\n{missing}",
        report.shards, rows.read, rows.written, rows.failed
    ))?;
    Ok(if report.is_whole() {
        Exit::Done
    } else {
        Exit::Partial
    })
}

impl Score {
    /// Scores a shard into a folder.
    pub(super) async fn into_folder(
        self,
        setup: &Setup,
        places: &Places,
        job: FileJob,
        set: LabelSet,
    ) -> Result<Exit, CliError> {
        let of_environment = |name: &str| std::env::var(name).ok();
        let Numbered { shard, from } =
            numbered(self.shard, self.shards, of_environment).map_err(CliError::Usage)?;
        let out = places.shelf(&job.output)?;
        let inputs = places.listed(&job.inputs)?;
        let job = ShardJob::new(job, inputs, &*out, shard, self.row_group_rows)?;
        let plan = Plan::read(&job)?;
        if let Some(from) = from {
            tracing::info!(
                rows = plan.rows_of(shard),
                "shard {} of {} ({from}), of {} rows in {} files",
                shard.index,
                shard.count,
                plan.rows(),
                plan.inputs()
            );
        }
        let since = setup.clock.now().format("%Y-%m-%dT%H:%M:%SZ").to_string();
        let who = holder(since);
        // Nothing is loaded for what is done.
        let models = setup.identities(&self.model, &self.small, &set);
        if let Some(report) = shards::written(&job, &plan, &*out, &who, &models, &set)? {
            return Ok(tell(&job, &report));
        }
        let cascade = self.cascade(setup, &set, &job.job)?;
        let stop = setup.stop.clone();
        // Scoring blocks its thread; the signal handler must not be on it.
        let scored = tokio::task::spawn_blocking(move || {
            run(&job, &plan, &*out, &who, cascade, &set, &|| {
                stop.is_cancelled()
            })
        });
        scored
            .await
            .map_err(|error| CliError::Usage(format!("the scoring thread ended: {error}")))?
    }
}

fn holder(since: String) -> Holder {
    let name = worker_name();
    let host = name.split(':').next().unwrap_or_default().to_owned();
    Holder {
        host,
        process: std::process::id(),
        since,
    }
}

fn run(
    job: &ShardJob,
    plan: &Plan,
    shelf: &dyn Shelf,
    who: &Holder,
    mut cascade: Cascade,
    set: &LabelSet,
    stop: &dyn Fn() -> bool,
) -> Result<Exit, CliError> {
    let bar = Progress::counter("score", "texts");
    let mut shown = 0;
    let scoring = Scoring {
        cascade: &mut cascade,
        set,
        stop,
        progress: &mut |done: u64, _| {
            bar.add(done.saturating_sub(shown));
            shown = done;
        },
    };
    let report = shards::score_shard(job, plan, shelf, who, scoring)?;
    drop(bar);
    Ok(tell(job, &report))
}

fn tell(job: &ShardJob, report: &ShardReport) -> Exit {
    let (index, count, rows) = (job.shard.index, job.shard.count, report.rows);
    let output = &report.output;
    if report.already {
        tracing::info!(
            written = rows.written,
            "shard {index} of {count} is whole already, in {output}; use --overwrite to score it again"
        );
        return Exit::Done;
    }
    if report.stopped {
        tracing::warn!(
            done = rows.read,
            "stopped: give the same command again to go on with shard {index} of {count}"
        );
    } else {
        let filtered = job.job.writing.filter.is_some();
        tracing::info!(
            texts = rows.read,
            written = rows.written,
            failed = rows.failed,
            left_out = filtered.then_some(rows.left_out),
            resumed = report.resumed,
            "shard {index} of {count} is written to {output}"
        );
    }
    if rows.failed > 0 {
        Exit::Partial
    } else {
        Exit::Done
    }
}
