//! `topicmill status`: shows running stages, the backlog, failures and what to do next; `--check` is for monitors.

mod render;

use std::time::Duration;

use chrono::TimeDelta;
use clap::Args;
use serde_json::{Value, json};

use super::app::{ModelFlags, PipelineFlags};
use super::{App, CliError, Exit, OutputFormat, output};
use crate::engines::find_model;
use crate::status::{Limits, Problem, StatusOptions, StatusReport};
use topicmill_core::parse_duration;
use topicmill_score::folder;
use topicmill_store::{Access, LabellingState, StoreError, Table};

/// The time limit of `--check`, so that a monitor learns of a locked table or a silent server.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

const AFTER_HELP: &str = "Examples:
  topicmill status
  topicmill status --format json
  topicmill status --check --max-age-collect 2h --max-age-unlabelled 6h

With --check, the exit code is 0 if there is no problem, 1 if there is one, 2 for an invalid flag, and 4 if the \
database cannot be read within 10 seconds.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Status {
    /// Count every post, instead of estimating counts above 200,000
    #[arg(long, conflicts_with = "check")]
    exact: bool,
    /// Print one line per problem, and exit with 1 if there is one; for monitors
    #[arg(help_heading = "Check", long)]
    check: bool,
    /// Set the output format; json prints everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    limits: LimitFlags,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Check")]
#[expect(clippy::struct_field_names, reason = "the names of flags")]
struct LimitFlags {
    /// Report a problem if no new post was stored within AGE, like 30m, 2h or 1d
    #[arg(long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_age_post: Option<TimeDelta>,
    /// Report a problem if no collect or import succeeded within AGE
    #[arg(long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_age_collect: Option<TimeDelta>,
    /// Report a problem if the newest post of r/AskReddit in Arctic Shift was older than AGE, or was looked up that long ago
    #[arg(long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_lag: Option<TimeDelta>,
    /// Report a problem if a post has been unlabelled for longer than AGE
    #[arg(long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_age_unlabelled: Option<TimeDelta>,
}

impl Status {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        if self.check {
            let status = tokio::select! {
                status = self.read(app) => status?,
                () = app.clock.sleep(CHECK_TIMEOUT) => return Err(StoreError::NotResponding.into()),
            };
            return self.check(&status);
        }
        let status = self.read(app).await?;
        match self.format {
            OutputFormat::Json | OutputFormat::Ndjson => {
                output::print_json(&as_json(&status), self.format)?;
            }
            OutputFormat::Csv => output::print_table(&backlog(&status.backlog), self.format)?,
            OutputFormat::Table => {
                let url = topicmill_core::redact_url(app.settings().database.url.reveal());
                output::print(&render::render(&status, &url))?;
            }
        }
        // The table names `db vacuum` only as the next step, and only if nothing else is more urgent.
        if status.is_rewrite_due {
            let who = if status.may_rewrite {
                "run"
            } else {
                "the tables' owner can run"
            };
            tracing::warn!(
                "the database files may still contain bytes of purged posts: {who} `topicmill db vacuum`"
            );
        }
        Ok(Exit::Done)
    }

    async fn read(&self, app: &App) -> Result<StatusReport, CliError> {
        let store = app.store(Access::ReadOnly).await?;
        let flags = PipelineFlags { pipeline: None };
        let pipeline = app.pipeline(&flags);
        let pipeline_error = pipeline.as_ref().err().map(ToString::to_string);
        if let Some(error) = pipeline_error.as_ref().filter(|_| !self.check) {
            tracing::warn!("schedules and topics are not compared with the pipeline file: {error}");
        }
        let pipeline = pipeline.ok();
        let set = pipeline.as_ref().and_then(|pipeline| {
            let set = pipeline.label_set.clone();
            app.label_set(&ModelFlags::default(), set).ok()
        });
        let model = folder::model_name(&find_model(&app.settings().classify.model));
        let options = StatusOptions {
            now: app.clock.now().into(),
            worker: &topicmill_store::worker_name(),
            max_attempts: app.settings().classify.max_attempts,
            exact: self.exact,
            pipeline: pipeline.as_ref().zip(app.pipeline_path(&flags)),
            pipeline_error,
            defaults: set.as_ref().map(|set| (set, model.as_str())),
        };
        let report = StatusReport::read(&store, options).await?;
        store.close().await?;
        Ok(report)
    }

    fn check(&self, status: &StatusReport) -> Result<Exit, CliError> {
        let limits = Limits {
            post: self.limits.max_age_post,
            collect: self.limits.max_age_collect,
            lag: self.limits.max_lag,
            unlabelled: self.limits.max_age_unlabelled,
        };
        let problems = limits.problems(status);
        match self.format {
            OutputFormat::Table if problems.is_empty() => output::print("ok\n")?,
            OutputFormat::Table => {
                let lines = problems
                    .iter()
                    .map(|found| format!("problem: {}\n", found.problem));
                output::print(&lines.collect::<String>())?;
            }
            OutputFormat::Json => {
                let all = json!({ "ok": problems.is_empty(), "problems": problems, "status": as_json(status) });
                output::print_json(&all, self.format)?;
            }
            OutputFormat::Csv | OutputFormat::Ndjson => {
                output::print_table(&problems_table(&problems), self.format)?;
            }
        }
        Ok(Exit::done_if(problems.is_empty()))
    }
}

fn as_json(status: &StatusReport) -> Value {
    let mut all = json!(status);
    all["next"] = json!(status.next());
    all
}

/// Formats the backlog figures, one per row.
fn backlog(state: &LabellingState) -> Table {
    let all = json!(state);
    output::key_value_table("backlog", all.as_object().cloned().unwrap_or_default())
}

fn problems_table(problems: &[Problem]) -> Table {
    let columns = ["check", "problem", "age_secs", "limit_secs"];
    let rows = problems
        .iter()
        .map(|found| json!([found.check, found.problem, found.age_secs, found.limit_secs]));
    output::table(columns, rows)
}
