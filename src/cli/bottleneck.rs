//! `topicmill doctor --bottleneck`: where the time of a run of `classify` went, and what to change.

use serde_json::{Value, json};

use super::output::{self, OutputFormat};
use super::setup::Setup;
use super::{CliError, Exit};
use crate::advice::{self, GPU_TARGET, MEMORY_TARGET, RunVerdict, verdict};
use crate::domain::Stage;
use crate::record::{BudgetOrigin, GpuFigures, Labelled, Summary};
use crate::store::{Access, RunId, RunRow, Store, Table};

/// Runs among which one is looked for that labelled anything: those of half a week, one each five minutes.
const RUNS: u32 = 1_000;

/// Tells of a run, or else of the latest one that labelled anything.
pub async fn run(setup: &Setup, id: Option<i64>, format: OutputFormat) -> Result<Exit, CliError> {
    let store = setup.store(Access::ReadOnly).await?;
    let (run, done) = match id {
        Some(id) => named(&store, id).await?,
        None => latest(&store).await?,
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
    match format {
        OutputFormat::Json | OutputFormat::Ndjson => output::print_json(&all, format)?,
        OutputFormat::Csv => output::print_table(&stages(&done), format)?,
        OutputFormat::Table => output::print(&for_people(&run, &done, &verdict))?,
    }
    Ok(Exit::Done)
}

async fn named(store: &Store, id: i64) -> Result<(RunRow, Labelled), CliError> {
    let Some(run) = store.run(RunId(id)).await? else {
        return Err(CliError::Usage(format!(
            "the database has no run {id}: `topicmill status` shows the latest"
        )));
    };
    if run.stage != Stage::Classify.as_str() {
        return Err(CliError::Usage(format!(
            "run {id} is one of `{}`: name one of `classify`, or leave out --run for the latest",
            run.stage
        )));
    }
    told(run)
}

async fn latest(store: &Store) -> Result<(RunRow, Labelled), CliError> {
    let mut runs = store.recent_runs(Some(Stage::Classify), RUNS).await?;
    // One that found nothing to do tells nothing.
    let place = runs
        .iter()
        .position(|run| labelled(run).is_some_and(|done| done.posts > 0))
        .unwrap_or(0);
    if runs.is_empty() {
        return Err(CliError::Usage(
            "the database has no run of `classify` yet: `topicmill classify` makes one".into(),
        ));
    }
    told(runs.swap_remove(place))
}

/// What a run recorded, where it is one that measured its stages.
fn labelled(run: &RunRow) -> Option<Labelled> {
    serde_json::from_value(run.counts.clone()).ok()
}

fn told(run: RunRow) -> Result<(RunRow, Labelled), CliError> {
    match labelled(&run) {
        Some(done) => Ok((run, done)),
        None => Err(CliError::Usage(format!(
            "run {} ({}) did not record where its time went: it is not over, was killed, computed nothing, or is of \
             an earlier version; run `topicmill classify` again, or name another run with --run",
            run.id, run.status
        ))),
    }
}

fn for_people(run: &RunRow, done: &Labelled, verdict: &RunVerdict) -> String {
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
    let mut parts = vec![
        output::wrapped(&format!("{head}{}.", given.unwrap_or_default())),
        output::for_people(&stages(done)),
    ];
    if !done.gpu.is_empty() {
        let lines: Vec<String> = done.gpu.iter().map(advice::line).collect();
        parts.push(lines.iter().map(|line| output::wrapped(line)).collect());
        parts.push(output::for_people(&gpus(&done.gpu)));
    }
    if let Some(limit) = verdict.limit {
        parts.push(format!("The limit is {limit}.\n"));
    }
    parts.extend(verdict.advice.iter().map(|text| output::wrapped(text)));
    parts.join("\n")
}

fn stages(done: &Labelled) -> Table {
    let of = &done.stages;
    let all = of.engine_busy_secs + of.engine_idle_secs + of.engine_blocked_secs;
    let row = |stage: &str, secs: f64| {
        let share = if all > 0.0 {
            json!(secs / all)
        } else {
            Value::Null
        };
        vec![json!(stage), json!(secs), share]
    };
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
    Table {
        columns: ["stage", "seconds", "share of the engine's time"]
            .map(String::from)
            .to_vec(),
        rows,
    }
}

fn gpus(figures: &[GpuFigures]) -> Table {
    let row = |gpu: &GpuFigures, what: &str, part: f64, of: Option<Summary>, target: Value| {
        let of = of?;
        #[expect(clippy::cast_possible_truncation, reason = "rounded, for people")]
        let scaled = |value: u32| json!((f64::from(value) * part).round() as i64);
        let mut row = vec![json!(gpu.gpu.device), json!(what), json!(of.mean * part)];
        row.extend([of.median, of.p95, of.max].map(scaled));
        row.push(target);
        Some(row)
    };
    let target = |(least, most): (u8, u8), of: &str| json!(format!("{least} to {most}, {of}"));
    let rows = figures.iter().flat_map(|gpu| {
        let percent = 100.0 / f64::from(gpu.memory_total_mib.max(1));
        [
            row(
                gpu,
                "GPU %",
                1.0,
                gpu.gpu_percent,
                target(GPU_TARGET, "mean"),
            ),
            row(
                gpu,
                "memory %",
                percent,
                gpu.memory_mib,
                target(MEMORY_TARGET, "max"),
            ),
            row(gpu, "watts", 1.0, gpu.watts, Value::Null),
        ]
    });
    let columns = ["device", "figure", "mean", "median", "p95", "max", "target"];
    Table {
        columns: columns.map(String::from).to_vec(),
        rows: rows.flatten().collect(),
    }
}
