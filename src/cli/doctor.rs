//! `topicmill doctor`: shows what is installed, what is missing, and how to fix it.

use chrono::TimeDelta;
use clap::Args;
use serde_json::json;

use super::app::{ModelFlags, PipelineFlags};
use super::source::SourceFlag;
use super::{App, CliError, Exit, OutputFormat, output};
use crate::bottleneck::{self, Bottleneck};
use topicmill_core::record::{QuotaLeft, RunCounts};
use topicmill_core::{SourceKind, Stage, format_duration};
use topicmill_score::device::EngineName;
use topicmill_score::onnx::{FoundBy, OnnxError, load_runtime};
use topicmill_score::openvino::load_openvino;
use topicmill_sources::Source;
use topicmill_sources::arctic_shift::ArcticShift;
use topicmill_sources::reddit::Credentials;
use topicmill_store::{Access, Address, Store, StoreError};

const AFTER_HELP: &str = "Examples:
  topicmill doctor
  topicmill doctor --source sample

The exit code is 0 if everything is ready. Otherwise it is the code that the first failing command would return: 5 for \
ONNX Runtime and the model; 4 for a database that is damaged, has a different schema version or cannot be reached; \
3 for credentials that are missing or rejected; 75 if Reddit or the archive does not respond. A database that does \
not exist yet is not an error: `collect` and `import` create it.";

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
    /// `ok`, `missing` or `wrong`.
    state: &'static str,
    /// The exit code of commands that need what was checked; `None` if it is ready, or is created on demand.
    exit: Option<Exit>,
    detail: String,
}

impl Doctor {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let mut findings = vec![library(app), model(app), pipeline(app, &self.pipeline)];
        findings.extend(database(app).await);
        // Listed before the model, because it may be the engine that runs the model.
        if let Some(openvino) = openvino(app) {
            findings.insert(1, openvino);
        }
        match self.source.choose(app).0 {
            SourceKind::Reddit => findings.push(credentials(app, self.offline).await),
            SourceKind::ArcticShift => findings.push(archive(app, self.offline).await),
            SourceKind::Sample | SourceKind::Import => {}
        }
        let rows = findings.iter();
        let rows = rows.map(|finding| json!([finding.what, finding.state, finding.detail]));
        let table = output::table(["check", "state", "detail"], rows);
        output::print_wrapped_table(&table, self.format)?;
        let first_bad = findings.iter().find_map(|finding| finding.exit);
        Ok(first_bad.unwrap_or(Exit::Done))
    }
}

/// Turns a result into a finding; an error keeps its exit code.
fn finding(what: &'static str, found: Result<String, CliError>) -> Finding {
    let (state, exit, detail) = match found {
        Ok(detail) => ("ok", None, detail),
        Err(error) => ("wrong", Some(error.exit()), error.to_string()),
    };
    Finding {
        what,
        state,
        exit,
        detail,
    }
}

fn missing(what: &'static str, exit: Option<Exit>, detail: String) -> Finding {
    Finding {
        what,
        state: "missing",
        exit,
        detail,
    }
}

fn library(app: &App) -> Finding {
    let found = load_runtime(app.library().as_deref())
        .map_err(CliError::from)
        .map(|runtime| {
            let cuda = if runtime.has_cuda() {
                "with CUDA"
            } else {
                "CPU only"
            };
            let by = library_origin(runtime.found_by(), "onnxruntime.library");
            format!("{} ({cuda}; from {by})", runtime.library().display())
        });
    finding("ONNX Runtime", found)
}

/// Checks OpenVINO, if it is installed or the settings require it.
fn openvino(app: &App) -> Option<Finding> {
    let set = &app.settings().classify;
    let wanted = set.engine == EngineName::OpenVino || set.precision.as_deref() == Some("bf16");
    let found = load_openvino(app.openvino().as_deref());
    if !wanted && matches!(found, Err(OnnxError::NotFound { .. })) {
        return None;
    }
    let found = found.map_err(CliError::from).map(|runtime| {
        let bf16 = if runtime.has_bf16() {
            "with bf16"
        } else {
            "no bf16 in this CPU"
        };
        let (library, by) = (runtime.library().display(), runtime.found_by());
        let by = library_origin(by, "openvino.library");
        format!("{library} ({}, {bf16}; from {by})", runtime.version())
    });
    Some(finding("OpenVINO", found))
}

/// Returns how the library was found: the setting or variable that names it, or a search path.
fn library_origin(by: FoundBy, setting: &str) -> String {
    match by {
        FoundBy::Caller => setting.to_owned(),
        FoundBy::Variable => "ORT_DYLIB_PATH".to_owned(),
        by => by.to_string(),
    }
}

fn model(app: &App) -> Finding {
    // Open a session, because only that shows that the graph is intact.
    let flags = ModelFlags::default();
    let found = app
        .model_choice(&flags)
        .and_then(|choice| Ok(choice.open_one(choice.devices[0])?));
    finding(
        "model",
        found.map(|engine| {
            let (folder, chosen) = (engine.labeler.folder(), &engine.chosen);
            format!(
                "{}: {}, graph {} in {}, {} tokens, on {} ({})",
                folder.dir.display(),
                folder.kind.as_str(),
                folder.graph.file_name().unwrap_or_default().display(),
                folder.precision,
                folder.max_tokens,
                chosen.device,
                chosen.reason
            )
        }),
    )
}

fn pipeline(app: &App, flags: &PipelineFlags) -> Finding {
    let found = app.pipeline(flags).map(|pipeline| {
        let file = match app.pipeline_path(flags) {
            None => "built in".to_owned(),
            Some(path) if flags.pipeline.is_some() => path.display().to_string(),
            Some(path) => {
                let origin = &app.loaded.values["pipeline"].1;
                format!("{}, as set in {origin}", path.display())
            }
        };
        let (name, labels) = (&pipeline.name, pipeline.label_set.labels.len());
        let read = pipeline.topics.iter().filter(|t| !t.subreddits.is_empty());
        let read = read.count();
        format!("{name} ({file}): {labels} labels, {read} topics with subreddits")
    });
    finding("pipeline", found)
}

/// Checks the database, and says what limited its latest runs.
async fn database(app: &App) -> Vec<Finding> {
    let url = app.settings().database.url.reveal();
    match Store::open(url, Access::ReadOnly).await {
        // SQLite returns the same error for a missing file and for an unreadable one.
        Err(error @ StoreError::Open { .. }) if is_missing_file(url) => {
            let detail = format!("{error} (`collect` and `import` also create it)");
            vec![missing("database", None, detail)]
        }
        Err(error) => vec![finding("database", Err(error.into()))],
        Ok(store) => {
            let info = store.info().await.map_err(CliError::from);
            let description = info.map(|info| {
                let mut rows = info.rows.iter();
                let posts = rows.find(|(table, _)| table == "posts");
                let posts = posts.map_or(0, |(_, n)| *n);
                let (url, server, schema) = (info.url, info.server, info.schema);
                format!("{url} ({server}), schema version {schema}, {posts} posts")
            });
            let mut found = vec![finding("database", description)];
            for stage in [Stage::Collect, Stage::Classify] {
                found.extend(speed(&store, stage).await);
            }
            found
        }
    }
}

/// Says what limited the latest run of a stage that worked, if its counts show it.
async fn speed(store: &Store, stage: Stage) -> Option<Finding> {
    // An unreadable database is already reported.
    let runs = store.runs().recent_runs(Some(stage), SEARCHED_RUNS).await;
    let found = runs.ok()?.into_iter().find_map(|run| {
        let took = run.finished_at?.as_datetime() - run.started_at.as_datetime();
        let counts = RunCounts::read(stage, &run.counts);
        let found = bottleneck::of_run(&counts, took.as_seconds_f64())?;
        Some((run.id, found))
    });
    let (run, Bottleneck { limit, why, change }) = found?;
    let what = match stage {
        Stage::Collect => "collect speed",
        _ => "classify speed",
    };
    Some(finding(
        what,
        Ok(format!(
            "run {run} is limited by the {limit}: {why}; {change}"
        )),
    ))
}

fn is_missing_file(url: &str) -> bool {
    matches!(Address::parse(url), Ok(Address::File(path)) if !path.exists())
}

/// Asks the archive for its newest post.
async fn archive(app: &App, offline: bool) -> Finding {
    const WHAT: &str = "Arctic Shift";
    let set = app.source_settings().arctic_shift;
    let archive = match ArcticShift::new(&set, app.clock.clone()) {
        Ok(archive) => archive,
        Err(error) => return finding(WHAT, Err(error.into())),
    };
    if offline {
        return finding(WHAT, Ok("not tested because of --offline".into()));
    }
    let answer = match archive.newest_post().await {
        Ok(newest) => newest,
        Err(error) => return finding(WHAT, Err(error.into())),
    };
    let newest = answer.map_or_else(
        || "it has no post of a busy subreddit".to_owned(),
        |newest| {
            let age = app.clock.now() - newest.as_datetime();
            let age = format_duration(age.max(TimeDelta::zero()));
            format!("the newest post of a busy subreddit is {age} old")
        },
    );
    let quota = archive.traffic().quota;
    let quota = quota.map_or_else(
        || "no rate limit is reported".to_owned(),
        |quota| {
            let secs = secs_left(quota, app);
            format!("{:.0} requests left for the next {secs} s", quota.remaining)
        },
    );
    finding(
        WHAT,
        Ok(format!("{} responds; {newest}; {quota}", set.api_url)),
    )
}

/// Returns the seconds until a quota is reset.
fn secs_left(quota: QuotaLeft, app: &App) -> i64 {
    let until = quota.resets_at.as_datetime() - app.clock.now();
    until.num_seconds().max(0)
}

async fn credentials(app: &App, offline: bool) -> Finding {
    const WHAT: &str = "Reddit credentials";
    if app.settings().reddit.client_id.is_empty() {
        let detail = "set client_id, client_secret and user_agent in [reddit], see docs/collect.md; \
                      the source arctic-shift needs no credentials";
        return missing(WHAT, Some(Exit::Policy), detail.into());
    }
    let reddit = match app.reddit() {
        Ok(reddit) => reddit,
        Err(error) => return finding(WHAT, Err(error)),
    };
    if offline {
        return finding(WHAT, Ok("set; not tested because of --offline".into()));
    }
    // As `collect` would, request a token and then a subreddit: here, the first of the built-in topics.
    let response = async {
        let subreddit = &app.load_pipeline(None)?.topics[0].subreddits[0];
        Ok(reddit.check_credentials(subreddit).await?)
    };
    let response: Result<Credentials, CliError> = response.await;
    finding(
        WHAT,
        response.map(|credentials| describe_credentials(&credentials, app)),
    )
}

fn describe_credentials(credentials: &Credentials, app: &App) -> String {
    let who = if credentials.account {
        "the account of reddit.username"
    } else {
        "the application only"
    };
    let quota = match credentials.quota {
        None => "the API reports no quota".to_owned(),
        Some(quota) => {
            let of = quota.remaining + quota.used;
            let left = format!("{:.0} of {of:.0}", quota.remaining);
            format!(
                "quota: {left} requests left for the next {} s",
                secs_left(quota, app)
            )
        }
    };
    let ends_at = credentials.ends_at.as_datetime();
    format!(
        "accepted for {who}, scope `{}`, token until {}; {quota}",
        credentials.scope,
        ends_at.format("%Y-%m-%d %H:%M UTC")
    )
}
