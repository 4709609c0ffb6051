//! `topicmill schedule`: stages when they are due.

mod list;
mod reporter;
mod run;
mod stage;

use clap::Subcommand;

use self::list::List;
use self::run::Run;
use super::setup::{PipelineFlags, Setup};
use super::{CliError, Exit};
use crate::schedule::Entry;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  topicmill schedule run --pipeline my-topics.toml
  topicmill schedule list")]
pub enum Schedule {
    /// Stay, and run the stages of each schedule when they are due
    ///
    /// A [[schedule]] of the pipeline file says what runs when. Each due time is a row in the database, so that several
    /// schedulers run it once. After a signal, running stages store what they work on, and then it ends; a second
    /// signal ends it at once.
    Run(Run),
    /// Show when each schedule ran last, when it runs next, and what was late, missed or failed
    List(List),
}

impl Schedule {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        match self {
            Self::Run(command) => command.run(setup).await,
            Self::List(command) => command.run(setup).await,
        }
    }
}

/// The schedules of the pipeline file, those of these names or all; each stage can be run.
fn entries(
    setup: &Setup,
    pipeline: &PipelineFlags,
    names: &[String],
) -> Result<Vec<Entry>, CliError> {
    let mut entries = setup.pipeline(pipeline)?.schedules;
    if entries.is_empty() {
        return Err(CliError::Usage(
            "the pipeline file has no [[schedule]]: add one, with `name`, `cron` and `stages`, as docs/schedule.md \
             shows, and name the file with --pipeline or the setting `pipeline`"
                .to_owned(),
        ));
    }
    for entry in &entries {
        for words in &entry.stages {
            stage::check(words).map_err(|why| {
                CliError::Usage(format!(
                    "schedule `{}`: the stage `{}`: {why}",
                    entry.name,
                    words.join(" ")
                ))
            })?;
        }
    }
    for name in names {
        if !entries.iter().any(|entry| entry.name == *name) {
            let known: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            return Err(CliError::Usage(format!(
                "the pipeline file has no schedule `{name}`; it has {}",
                known.join(", ")
            )));
        }
    }
    if !names.is_empty() {
        entries.retain(|entry| names.contains(&entry.name));
    }
    Ok(entries)
}
