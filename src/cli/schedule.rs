//! `topicmill schedule`: runs stages on a schedule.

mod list;
mod run;
mod stage;

use clap::Subcommand;

use self::list::List;
use self::run::Run;
use super::app::{App, PipelineFlags};
use super::{CliError, Exit};
use crate::schedule::ScheduleEntry;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  topicmill schedule run --pipeline my-topics.toml
  topicmill schedule list")]
pub enum Schedule {
    /// Keep running, and run the stages of each schedule when they are due
    ///
    /// A [[schedule]] in the pipeline file defines what runs when. Each scheduled run is a row in the database, so
    /// several schedulers still run it only once. After a signal, running stages store their work in progress, and the
    /// scheduler ends; a second signal ends it at once. Restart the scheduler after a change of the schedules.
    Run(Run),
    /// Show the last and next run of each schedule
    List(List),
}

impl Schedule {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        match self {
            Self::Run(command) => command.run(app).await,
            Self::List(command) => command.run(app).await,
        }
    }
}

/// Returns the schedules of the pipeline file, after checking them.
fn checked_schedules(app: &App, pipeline: &PipelineFlags) -> Result<Vec<ScheduleEntry>, CliError> {
    let schedules = app.pipeline(pipeline)?.schedules;
    if schedules.is_empty() {
        return Err(CliError::Usage(
            "the pipeline file has no [[schedule]]: add one, with `name`, `cron` and `stages`, as docs/schedule.md \
             shows, and name the file with --pipeline or the setting `pipeline`"
                .to_owned(),
        ));
    }
    check(&schedules)?;
    Ok(schedules)
}

/// Warns about due times that may surprise, and returns an error if a stage is not a command line that can be run.
pub(super) fn check(schedules: &[ScheduleEntry]) -> Result<(), CliError> {
    for schedule in schedules {
        if let Some(caveat) = schedule.timetable.caveat() {
            tracing::warn!("schedule `{}`: `cron`: {caveat}", schedule.name);
        }
        for words in &schedule.stages {
            stage::check(words).map_err(|why| {
                CliError::Usage(format!(
                    "schedule `{}`: the stage `{}`: {why}",
                    schedule.name,
                    words.join(" ")
                ))
            })?;
        }
    }
    Ok(())
}
