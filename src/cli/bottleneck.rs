//! `topicmill doctor --bottleneck`: shows where a run of `classify` spent its time, and what to change.

use serde_json::{Value, json};

use super::output::Printout;
use super::{CliError, Exit, OutputFormat, Setup, output};
use crate::advice::{self, GPU_TARGET, MEMORY_TARGET, RunVerdict, verdict};
use topicmill_core::Stage;
use topicmill_core::record::{BudgetOrigin, ClassifyCounts, RunCounts};
use topicmill_store::{Access, RunId, RunRow, Store, Table};

/// Maximum number of runs searched for the latest one that labelled posts: half a week at one run every five minutes.
const SEARCHED_RUNS: u32 = 1_000;

/// Reports on the run with this id, or else on the latest one that labelled posts.
pub async fn run(setup: &Setup, id: Option<i64>, format: OutputFormat) -> Result<Exit, CliError> {
    let store = setup.store(Access::ReadOnly).await?;
    let (run, done) = match id {
        Some(id) => run_by_id(&store, id).await?,
        None => latest_run(&store).await?,
    };
    store.close().await?;
    let verdict = verdict(&done);
    let all = json!({
        "run": run.id, "status": run.status, "started_at": run.started_at,
        "posts": done.posts, "seconds": done.seconds, "posts_per_sec": done.posts_per_sec,
        "stages": done.stages, "settings": done.settings, "gpu": done.gpu, "gpu_note": done.gpu_note,
        "targets": {"gpu_percent": GPU_TARGET, "memory_percent": MEMORY_TARGET},
        "verdict": verdict,
    });
    printout(all, &run, &done, &verdict).print(format)?;
    Ok(Exit::Done)
}

async fn run_by_id(store: &Store, id: i64) -> Result<(RunRow, ClassifyCounts), CliError> {
    let Some(run) = store.runs().run(RunId(id)).await? else {
        return Err(CliError::Usage(format!(
            "the database has no run {id}: `topicmill status` shows the latest"
        )));
    };
    if run.stage != Stage::Classify {
        return Err(CliError::Usage(format!(
            "run {id} is a run of `{}`: use the id of a `classify` run, or leave out --run for the latest",
            run.stage
        )));
    }
    with_timings(run)
}

async fn latest_run(store: &Store) -> Result<(RunRow, ClassifyCounts), CliError> {
    let mut runs = store
        .runs()
        .recent_runs(Some(Stage::Classify), SEARCHED_RUNS)
        .await?;
    // Skip runs that found nothing to label: their timings are empty.
    let place = runs
        .iter()
        .position(|run| timings(run).is_some_and(|done| done.posts > 0))
        .unwrap_or(0);
    if runs.is_empty() {
        return Err(CliError::Usage(
            "the database has no `classify` run yet: run `topicmill classify` first".into(),
        ));
    }
    with_timings(runs.swap_remove(place))
}

/// Returns the stage timings of a run, if it recorded any.
fn timings(run: &RunRow) -> Option<ClassifyCounts> {
    match RunCounts::read(run.stage, &run.counts) {
        RunCounts::Classify(done) => Some(*done),
        _ => None,
    }
}

fn with_timings(run: RunRow) -> Result<(RunRow, ClassifyCounts), CliError> {
    match timings(&run) {
        Some(done) => Ok((run, done)),
        None => Err(CliError::Usage(format!(
            "run {} ({}) has no timings: it is still running, was killed, computed nothing, or was recorded by an \
             earlier version; run `topicmill classify` again, or choose a different id with --run",
            run.id, run.status
        ))),
    }
}

fn printout(all: Value, run: &RunRow, done: &ClassifyCounts, verdict: &RunVerdict) -> Printout {
    let settings = &done.settings;
    let head = format!(
        "Run {} ({}): {} posts in {:.1} s, {:.1} per second",
        run.id, run.status, done.posts, done.seconds, done.posts_per_sec
    );
    let given = (!settings.devices.is_empty()).then(|| {
        let from = match settings.batch_tokens_from {
            BudgetOrigin::Default => "the default",
            BudgetOrigin::Set => "from the settings",
            BudgetOrigin::Searched => "found by a search",
            BudgetOrigin::Model => "fixed for this precision",
        };
        format!(
            "; {} on {}, precision {}, batches of {} padded tokens ({from})",
            settings.model,
            settings.devices.join(", "),
            settings.precision,
            settings.batch_tokens
        )
    });
    let head = format!("{head}{}.", given.unwrap_or_default());
    let gpus = done.gpu.iter().map(advice::gpu_line);
    let limit = verdict
        .limit
        .map(|limit| format!("The bottleneck is {limit}."));
    let lines = gpus.chain(limit).chain(verdict.advice.iter().cloned());
    lines.fold(
        Printout::new(all).with(&head, stages(done)),
        |found, line| found.with(&line, output::table([], [])),
    )
}

fn stages(done: &ClassifyCounts) -> Table {
    let stages = &done.stages;
    let all = stages.engine_busy_secs + stages.engine_idle_secs + stages.engine_blocked_secs;
    let row = |stage: &str, secs: f64| json!([stage, secs, (all > 0.0).then(|| secs / all)]);
    let mut rows = vec![
        row("engine: computing", stages.engine_busy_secs),
        row("engine: waiting for posts", stages.engine_idle_secs),
        row("engine: waiting for the writer", stages.engine_blocked_secs),
        row("concurrently: claiming posts", stages.claim_secs),
        row("concurrently: looking up known pairs", stages.look_up_secs),
        row("concurrently: tokenising", stages.tokenize_secs),
        row("concurrently: writing labels", stages.write_secs),
    ];
    if stages.shortlist_secs > 0.0 {
        rows.insert(
            5,
            row("concurrently: the small model", stages.shortlist_secs),
        );
    }
    output::table(["stage", "seconds", "share of the engine's time"], rows)
}
