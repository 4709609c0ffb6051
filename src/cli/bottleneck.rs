//! `topicmill doctor --bottleneck`: where the time of a run of `classify` went, and what to change.

use serde_json::{Value, json};

use super::output::Printout;
use super::{CliError, Exit, OutputFormat, Setup, output};
use crate::advice::{self, GPU_TARGET, MEMORY_TARGET, RunVerdict, verdict};
use topicmill_core::Stage;
use topicmill_core::record::{BudgetOrigin, ClassifyCounts, RunCounts};
use topicmill_store::{Access, RunId, RunRow, Store, Table};

/// Runs among which one is looked for that labelled anything: those of half a week, one each five minutes.
const SEARCHED_RUNS: u32 = 1_000;

/// Tells of a run, or else of the latest one that labelled anything.
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
            "run {id} is one of `{}`: name one of `classify`, or leave out --run for the latest",
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
    // One that found nothing to do tells nothing.
    let place = runs
        .iter()
        .position(|run| timings(run).is_some_and(|done| done.posts > 0))
        .unwrap_or(0);
    if runs.is_empty() {
        return Err(CliError::Usage(
            "the database has no run of `classify` yet: `topicmill classify` makes one".into(),
        ));
    }
    with_timings(runs.swap_remove(place))
}

/// What a run recorded, where it is one that measured its stages.
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
            "run {} ({}) did not record where its time went: it is not over, was killed, computed nothing, or is of \
             an earlier version; run `topicmill classify` again, or name another run with --run",
            run.id, run.status
        ))),
    }
}

fn printout(all: Value, run: &RunRow, done: &ClassifyCounts, verdict: &RunVerdict) -> Printout {
    let settings = &done.settings;
    let head = format!(
        "Run {} ({}): {} posts in {:.1} s, {:.1} a second",
        run.id, run.status, done.posts, done.seconds, done.posts_per_sec
    );
    let given = (!settings.devices.is_empty()).then(|| {
        let from = match settings.batch_tokens_from {
            BudgetOrigin::Default => "the default",
            BudgetOrigin::Set => "as set",
            BudgetOrigin::Searched => "found by search",
            BudgetOrigin::Model => "of this precision",
        };
        format!(
            "; {} on {} in {}, batches of {} padded tokens ({from})",
            settings.model,
            settings.devices.join(", "),
            settings.precision,
            settings.batch_tokens
        )
    });
    let head = format!("{head}{}.", given.unwrap_or_default());
    let gpus = done.gpu.iter().map(advice::line);
    let limit = verdict.limit.map(|limit| format!("The limit is {limit}."));
    let lines = gpus.chain(limit).chain(verdict.advice.iter().cloned());
    lines.fold(
        Printout::new(all).with(&head, stages(done)),
        |found, line| found.with(&line, output::table([], [])),
    )
}

fn stages(done: &ClassifyCounts) -> Table {
    let of = &done.stages;
    let all = of.engine_busy_secs + of.engine_idle_secs + of.engine_blocked_secs;
    let row = |stage: &str, secs: f64| json!([stage, secs, (all > 0.0).then(|| secs / all)]);
    let mut rows = vec![
        row("engine: computing", of.engine_busy_secs),
        row("engine: waiting for posts", of.engine_idle_secs),
        row("engine: waiting for the writer", of.engine_blocked_secs),
        row("beside it: claiming posts", of.claim_secs),
        row("beside it: looking up known pairs", of.look_up_secs),
        row("beside it: tokenising", of.tokenize_secs),
        row("beside it: writing labels", of.write_secs),
    ];
    if of.shortlist_secs > 0.0 {
        rows.insert(5, row("beside it: the small model", of.shortlist_secs));
    }
    output::table(["stage", "seconds", "share of the engine's time"], rows)
}
