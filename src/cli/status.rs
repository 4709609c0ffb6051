//! `topicmill status`

mod render;

use chrono::TimeDelta;
use clap::Args;
use serde_json::{Value, json};

use super::setup::{ModelFlags, PipelineFlags};
use super::{CliError, Exit, OutputFormat, Setup, output};
use crate::engines::find_model;
use crate::outlook::{Limits, Outlook, Problem, Usual};
use topicmill_core::parse_duration;
use topicmill_score::folder;
use topicmill_store::{Access, LabellingState, Table};

const AFTER_HELP: &str = "Examples:
  topicmill status
  topicmill status --format json
  topicmill status --check --max-age-collect 2h --max-age-unlabelled 6h

With --check the exit code is 0 if nothing is wrong, 1 if something is, 2 for a wrong flag, and 4 if the database cannot be \
read.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Status {
    /// Count every post, however long it takes; without it, numbers of more than 200,000 posts are estimates
    #[arg(long)]
    exact: bool,
    /// Print one line for each problem, and exit with 1 if there is one: for monitors
    #[arg(long)]
    check: bool,
    /// Call it a problem if the last new post was stored longer ago: `30m`, `2h`, `1d`
    #[arg(long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_age_post: Option<TimeDelta>,
    /// Call it a problem if the last good collect or import ended longer ago
    #[arg(long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_age_collect: Option<TimeDelta>,
    /// Call it a problem if a post has waited longer for its label
    #[arg(long, value_name = "AGE", requires = "check", value_parser = parse_duration)]
    max_age_unlabelled: Option<TimeDelta>,
    /// Print in this format; json has everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Status {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let store = setup.store(Access::ReadOnly).await?;
        let attempts = setup.settings().classify.max_attempts;
        let me = topicmill_store::worker_name();
        let now = setup.clock.now();
        let mut outlook = Outlook::read(&store, attempts, now, &me, self.exact).await?;
        // Only then somebody is told how to label.
        if outlook.backlog.unlabelled > 0 {
            outlook.usual = default_labelling(setup);
        }
        if self.check {
            return self.check(&outlook);
        }
        match self.format {
            OutputFormat::Json | OutputFormat::Ndjson => {
                output::print_json(&as_json(&outlook), self.format)?;
            }
            OutputFormat::Csv => output::print_table(&backlog(&outlook.backlog), self.format)?,
            OutputFormat::Table => {
                let url = topicmill_core::redact_url(setup.settings().database.url.reveal());
                output::print(&render::render(&outlook, &url))?;
            }
        }
        // On the screen it is what to do next, unless something else comes before it.
        if outlook.is_rewrite_due {
            tracing::warn!(
                "bytes of purged posts may be in the database's files still: `topicmill db vacuum` rewrites them"
            );
        }
        Ok(Exit::Done)
    }

    fn check(&self, outlook: &Outlook) -> Result<Exit, CliError> {
        let limits = Limits {
            post: self.max_age_post,
            collect: self.max_age_collect,
            unlabelled: self.max_age_unlabelled,
        };
        let problems = limits.problems(outlook);
        match self.format {
            OutputFormat::Table => {
                let lines = problems
                    .iter()
                    .map(|found| format!("problem: {}\n", found.problem));
                let lines: String = lines.collect();
                output::print(if problems.is_empty() { "ok\n" } else { &lines })?;
            }
            OutputFormat::Json => {
                let all = json!({ "ok": problems.is_empty(), "problems": problems, "status": as_json(outlook) });
                output::print_json(&all, self.format)?;
            }
            OutputFormat::Csv | OutputFormat::Ndjson => {
                output::print_table(&problems_table(&problems), self.format)?;
            }
        }
        Ok(Exit::done_if(problems.is_empty()))
    }
}

/// With what `classify` labels where no flag says more. What is wrong with the settings is told by whoever labels.
fn default_labelling(setup: &Setup) -> Usual {
    let flags = PipelineFlags { pipeline: None };
    let set = setup
        .pipeline(&flags)
        .and_then(|pipeline| setup.label_set(&ModelFlags::default(), pipeline.label_set));
    let model = find_model(&setup.settings().classify.model);
    Usual {
        label_set: set.ok(),
        model: Some(folder::name_of(&model)),
    }
}

fn as_json(outlook: &Outlook) -> Value {
    let mut all = json!(outlook);
    all["next"] = json!(outlook.next());
    all
}

/// The numbers of the backlog, one a row.
fn backlog(standing: &LabellingState) -> Table {
    let all = json!(standing);
    output::key_value_table("backlog", all.as_object().cloned().unwrap_or_default())
}

fn problems_table(problems: &[Problem]) -> Table {
    let row = |it: &Problem| json!([it.check, it.problem, it.age_secs, it.limit_secs]);
    let columns = ["check", "problem", "age_secs", "limit_secs"];
    output::table(columns, problems.iter().map(row))
}
