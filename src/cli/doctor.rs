//! `topicmill doctor`: shows what is installed, what is missing, and how to fix it.

mod sources;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::app::{ModelFlags, PipelineFlags};
use super::output::counted;
use super::source::SourceFlag;
use super::{App, CliError, Exit, OutputFormat, output};
use crate::bottleneck::{self, Bottleneck};
use topicmill_core::record::RunCounts;
use topicmill_core::{SourceKind, Stage};
use topicmill_score::LoadError;
use topicmill_score::device::EngineName;
use topicmill_score::library::FoundBy;
use topicmill_score::onnx::load_runtime;
use topicmill_score::openvino::load_openvino;
use topicmill_store::{Access, Store, StoreError};

const AFTER_HELP: &str = "Examples:
  topicmill doctor
  topicmill doctor --source sample

The exit code is 0 if everything is ready. Otherwise it is the code that the first failing command would return: 5 for \
ONNX Runtime and the model; 4 for a database that is damaged, has a different schema version or cannot be reached; \
3 for credentials that are missing or rejected; 75 if Reddit or the archive does not respond. It is also 75 if the \
archive is more than 6 hours behind or has no post, although commands work. A database that does not exist yet is not \
an error: `collect` and `import` create it.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Doctor {
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Do not send the requests that test the source
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    source: SourceFlag,
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Maximum number of runs searched for the latest one that worked: half a week at one run every five minutes.
const SEARCHED_RUNS: u32 = 1_000;

/// The result of a check.
struct Finding {
    what: &'static str,
    state: State,
    /// The exit code of commands that need what was checked; `None` if it is ready, or is created on demand.
    exit: Option<Exit>,
    detail: String,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Missing,
    Wrong,
}

impl Finding {
    /// Turns the result of a check into a finding; an error keeps its exit code.
    fn of(what: &'static str, checked: Result<String, CliError>) -> Self {
        let (state, exit, detail) = match checked {
            Ok(detail) => (State::Ok, None, detail),
            Err(error) => (State::Wrong, Some(error.exit()), error.to_string()),
        };
        Self {
            what,
            state,
            exit,
            detail,
        }
    }

    fn missing(what: &'static str, exit: Option<Exit>, detail: String) -> Self {
        Self {
            what,
            state: State::Missing,
            exit,
            detail,
        }
    }
}

impl Doctor {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let mut findings = vec![Finding::of("ONNX Runtime", library(app))];
        // OpenVINO is listed before the model, because it may be the engine that runs the model.
        findings.extend(openvino(app));
        findings.push(Finding::of("model", model(app)));
        findings.push(Finding::of("pipeline", pipeline(app, &self.pipeline)));
        findings.extend(database(app).await);
        match self.source.choose(app).0 {
            SourceKind::Reddit => findings.push(sources::credentials(app, self.offline).await),
            SourceKind::ArcticShift => findings.push(sources::archive(app, self.offline).await),
            SourceKind::Sample | SourceKind::Import => {}
        }
        let row = |finding: &Finding| json!([finding.what, finding.state, finding.detail]);
        let rows = findings.iter().map(row);
        let table = output::table(["check", "state", "detail"], rows);
        output::print_wrapped_table(&table, self.format)?;
        let first_bad = findings.iter().find_map(|finding| finding.exit);
        Ok(first_bad.unwrap_or(Exit::Done))
    }
}

/// Checks ONNX Runtime.
fn library(app: &App) -> Result<String, CliError> {
    let runtime = load_runtime(app.settings().onnxruntime.library.as_deref())?;
    let cuda = if runtime.has_cuda() {
        "with CUDA"
    } else {
        "CPU only"
    };
    let by = library_origin(runtime.found_by(), "onnxruntime.library");
    let library = runtime.library().display();
    Ok(format!("{library} ({cuda}; from {by})"))
}

/// Checks OpenVINO, if it is installed or the settings require it.
fn openvino(app: &App) -> Option<Finding> {
    let set = &app.settings().classify;
    let wanted = set.engine == EngineName::OpenVino || set.precision.as_deref() == Some("bf16");
    let loaded = load_openvino(app.settings().openvino.library.as_deref());
    if !wanted && matches!(loaded, Err(LoadError::NotFound { .. })) {
        return None;
    }
    let description = loaded.map_err(CliError::from).map(|runtime| {
        let bf16 = if runtime.has_bf16() {
            "with bf16"
        } else {
            "no bf16 in this CPU"
        };
        let (library, by) = (runtime.library().display(), runtime.found_by());
        let by = library_origin(by, "openvino.library");
        format!("{library} ({}, {bf16}; from {by})", runtime.version())
    });
    Some(Finding::of("OpenVINO", description))
}

/// Returns how the library was found: the setting or variable that names it, or a search path.
fn library_origin(by: FoundBy, setting: &str) -> String {
    match by {
        FoundBy::Caller => setting.to_owned(),
        FoundBy::Variable => "ORT_DYLIB_PATH".to_owned(),
        by => by.to_string(),
    }
}

/// Checks the model of the settings.
fn model(app: &App) -> Result<String, CliError> {
    // A session is opened, because only that shows that the graph is intact.
    let choice = app.model_choice(&ModelFlags::default())?;
    let engine = choice.open_one(choice.devices[0])?;
    let (folder, chosen) = (engine.labeler.folder(), &engine.chosen);
    Ok(format!(
        "{}: {}, graph {} in {}, {} tokens, on {} ({})",
        folder.dir.display(),
        folder.kind.as_str(),
        folder.graph.file_name().unwrap_or_default().display(),
        folder.precision,
        folder.max_tokens,
        chosen.device,
        chosen.reason
    ))
}

/// Checks the pipeline file.
fn pipeline(app: &App, flags: &PipelineFlags) -> Result<String, CliError> {
    let pipeline = app.pipeline(flags)?;
    let file = match app.pipeline_path(flags) {
        None => "built in".to_owned(),
        Some(path) if flags.pipeline.is_some() => path.display().to_string(),
        Some(path) => {
            let origin = app.loaded.origin("pipeline");
            format!("{}, as set in {origin}", path.display())
        }
    };
    let labels = counted(pipeline.label_set.labels.len() as u64, "label");
    let topics = pipeline.topics.iter();
    let collected = topics.filter(|topic| !topic.subreddits.is_empty());
    let topics = counted(collected.count() as u64, "topic");
    let contents = format!("{labels}, {topics} with subreddits");
    Ok(format!("{} ({file}): {contents}", pipeline.name))
}

/// Checks the database, and says what limited its latest runs.
async fn database(app: &App) -> Vec<Finding> {
    let url = app.settings().database.url.reveal();
    match Store::open(url, Access::ReadOnly).await {
        // SQLite returns the same error for a missing file and for an unreadable one.
        Err(error @ StoreError::Open { .. }) if app.is_database_missing() => {
            let detail = format!("{error} (`collect` and `import` also create it)");
            vec![Finding::missing("database", None, detail)]
        }
        Err(error) => vec![Finding::of("database", Err(error.into()))],
        Ok(store) => {
            let description = store.info().await.map(|info| {
                let things = info.rows.iter().find(|(table, _)| table == "things");
                let things = things.map_or(0, |(_, n)| *n);
                let (url, server, schema) = (info.url, info.server, info.schema);
                format!("{url} ({server}), schema version {schema}, {things} posts and comments")
            });
            let description = description.map_err(CliError::from);
            let mut findings = vec![Finding::of("database", description)];
            for (what, stage) in [
                ("collect speed", Stage::Collect),
                ("classify speed", Stage::Classify),
            ] {
                let limit = speed_limit(&store, stage).await;
                findings.extend(limit.map(|limit| Finding::of(what, Ok(limit))));
            }
            findings
        }
    }
}

/// Says what limited the latest run of a stage that worked, if its counts show it.
async fn speed_limit(store: &Store, stage: Stage) -> Option<String> {
    // An unreadable database is already reported.
    let runs = store.runs().recent_runs(Some(stage), SEARCHED_RUNS).await;
    runs.ok()?.into_iter().find_map(|run| {
        let took = run.finished_at?.as_datetime() - run.started_at.as_datetime();
        let counts = RunCounts::read(stage, &run.counts);
        let Bottleneck { limit, why, change } = bottleneck::of_run(&counts, took.as_seconds_f64())?;
        let what = format!("run {} is limited by the {limit}", run.id);
        Some(format!("{what}: {why}; {change}"))
    })
}
