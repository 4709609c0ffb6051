//! `topicmill status`: shows running stages, the backlog, failures and what to do next; `--check` is for monitors.

mod render;

use std::time::Duration;

use chrono::TimeDelta;
use clap::Args;
use serde_json::{Value, json};

use super::app::{ModelFlags, PipelineFlags};
use super::{App, CliError, Exit, OutputFormat, output};
use crate::engines::find_model;
use crate::status::{Limits, Problem, StatusReport};
use topicmill_core::parse_duration;
use topicmill_score::folder;
use topicmill_store::{Access, LabellingState, Store, StoreError, Table};

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
    /// Report a problem if no new post was stored within AGE, like 30m, 2h or 1d
    #[arg(help_heading = "Check", long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_age_post: Option<TimeDelta>,
    /// Report a problem if no collect or import succeeded within AGE
    #[arg(help_heading = "Check", long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_age_collect: Option<TimeDelta>,
    /// Report a problem if the newest post in Arctic Shift was older than AGE, or was last looked up that long ago
    #[arg(help_heading = "Check", long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_lag: Option<TimeDelta>,
    /// Report a problem if a post has been unlabelled for longer than AGE
    #[arg(help_heading = "Check", long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_age_unlabelled: Option<TimeDelta>,
    /// Set the output format; json prints everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
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
        let attempts = app.settings().classify.max_attempts;
        let me = topicmill_store::worker_name();
        let now = app.clock.now();
        let mut status = StatusReport::read(&store, attempts, now, &me, self.exact).await?;
        let flags = PipelineFlags { pipeline: None };
        let file = app.pipeline_path(&flags);
        if let Some(file) = file
            && let Ok(pipeline) = app.pipeline(&flags)
        {
            status.compare_with(&pipeline, file, &store).await?;
        }
        status.labels_current = labels_current(app, &store, &status.backlog).await?;
        Ok(status)
    }

    fn check(&self, status: &StatusReport) -> Result<Exit, CliError> {
        let limits = Limits {
            post: self.max_age_post,
            collect: self.max_age_collect,
            lag: self.max_lag,
            unlabelled: self.max_age_unlabelled,
        };
        let problems = limits.problems(status);
        match self.format {
            OutputFormat::Table => {
                let lines = problems
                    .iter()
                    .map(|found| format!("problem: {}\n", found.problem));
                let lines: String = lines.collect();
                output::print(if problems.is_empty() { "ok\n" } else { &lines })?;
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

/// Returns true if `classify` without flags labels with the current model and label set, or if there are none yet.
/// Returns false if that is unknown, because the settings or the current label set are invalid.
async fn labels_current(
    app: &App,
    store: &Store,
    backlog: &LabellingState,
) -> Result<bool, CliError> {
    let Some(target) = store.labels().current_target().await? else {
        return Ok(true);
    };
    let pipeline = app.pipeline(&PipelineFlags { pipeline: None });
    let set =
        pipeline.and_then(|pipeline| app.label_set(&ModelFlags::default(), pipeline.label_set));
    let current = match store.labels().label_set(target.label_set).await {
        Err(StoreError::Corrupt { .. }) => return Ok(false),
        current => current?,
    };
    // `classify` uses the fit of a label set.
    let base = current.fitted.as_ref().map(|fitted| fitted.base.clone());
    let is_current = set.is_ok_and(|set| set.hash() == current.hash() || base == Some(set.hash()));
    let model = folder::model_name(&find_model(&app.settings().classify.model));
    Ok(is_current && backlog.model.as_ref() == Some(&model))
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
    let row = |it: &Problem| json!([it.check, it.problem, it.age_secs, it.limit_secs]);
    let columns = ["check", "problem", "age_secs", "limit_secs"];
    output::table(columns, problems.iter().map(row))
}
