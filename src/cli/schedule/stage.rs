//! Runs one stage of a scheduled run: a command line of the program, in this process, with the effective settings.

use std::panic::AssertUnwindSafe;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use futures_util::FutureExt;

use crate::cli::{
    CliError, Exit, Setup, classify, collect, db, export, import, output, purge, report, run,
};
use crate::schedule::{StageEnd, StageOrder};
use topicmill_core::ScheduledRunStatus;
use topicmill_store::is_cancelled;

/// A command line without the program's name.
#[derive(Debug, Parser)]
#[command(
    no_binary_name = true,
    disable_help_flag = true,
    disable_help_subcommand = true
)]
struct Line {
    #[command(subcommand)]
    stage: Stage,
}

/// The commands that [`crate::schedule::STAGES`] names.
#[derive(Debug, Subcommand)]
enum Stage {
    Collect(collect::Collect),
    Import(import::Import),
    Classify(classify::Classify),
    Run(run::Run),
    Purge(purge::Purge),
    Report(report::Report),
    Export(export::Export),
    #[command(subcommand)]
    Db(db::Db),
}

/// Checks the command line of a stage. The error is a message without the stage's name.
pub fn check(words: &[String]) -> Result<(), String> {
    let stage = parse_stage(words)?;
    match &stage {
        Stage::Classify(classify) if classify.watch => {
            Err("it never ends: leave out --watch; the next scheduled run labels new posts")
        }
        Stage::Classify(classify) if classify.metrics.is_given() => Err(
            "only one process can listen on the address: pass --metrics-listen to `schedule run`",
        ),
        _ => Ok(()),
    }
    .map_err(str::to_owned)
}

fn parse_stage(words: &[String]) -> Result<Stage, String> {
    Line::try_parse_from(words)
        .map(|line| line.stage)
        .map_err(|error| {
            // clap's message would be the whole help text.
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                return missing_subcommand(words);
            }
            let text = error.to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let first = first.trim_start_matches("error: ");
            first.split_whitespace().collect::<Vec<_>>().join(" ")
        })
}

/// Returns the error for a command without its subcommand.
fn missing_subcommand(words: &[String]) -> String {
    let line = Line::command();
    let command = words.first().and_then(|word| line.find_subcommand(word));
    let known = command.into_iter().flat_map(clap::Command::get_subcommands);
    let known: Vec<&str> = known.map(clap::Command::get_name).collect();
    format!("it needs a subcommand: {}", known.join(", "))
}

/// Runs a stage to its end, or until it is cancelled.
pub async fn run(setup: &Setup, order: StageOrder<'_>) -> StageEnd {
    let setup = Setup {
        stop: order.stop.clone(),
        scheduled_run: Some(order.scheduled_run),
        ..setup.clone()
    };
    let stage = match parse_stage(order.words) {
        Ok(stage) => stage,
        Err(why) => return failed(Exit::Usage, why),
    };
    // Unwind safe: nothing in memory is used after a panic.
    let is_check = matches!(stage, Stage::Db(_));
    match AssertUnwindSafe(stage.run(&setup)).catch_unwind().await {
        // For a check, exit code 1 means a problem in the database, not a partial success.
        Ok(Ok(Exit::Partial)) if is_check && !order.stop.is_cancelled() => failed(
            Exit::Partial,
            "the database has a problem, see the log".to_owned(),
        ),
        Ok(Ok(exit)) => ended(exit),
        // The scheduled run records the reason for the cancellation.
        Ok(Err(error)) if is_cancelled(&error) => {
            tracing::warn!("{error}");
            failed(Exit::TryAgain, error.to_string())
        }
        Ok(Err(error)) => {
            output::print_error(&error, setup.log_format);
            failed(error.exit(), error.to_string())
        }
        Err(_) => {
            output::print_bug();
            failed(
                Exit::Bug,
                "it crashed because of a bug in topicmill, see the log".to_owned(),
            )
        }
    }
}

impl Stage {
    async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        match self {
            Self::Collect(command) => command.run(setup).await,
            Self::Import(command) => command.run(setup).await,
            Self::Classify(command) => command.run(setup).await,
            Self::Run(command) => command.run(setup).await,
            Self::Purge(command) => command.run(setup).await,
            Self::Export(command) => command.run(setup).await,
            // These commands have no work in progress to finish.
            Self::Report(command) => tokio::select! {
                exit = command.run(setup) => exit,
                () = setup.stop.cancelled() => Ok(Exit::Partial),
            },
            Self::Db(command) => tokio::select! {
                exit = command.run(setup) => exit,
                () = setup.stop.cancelled() => Ok(Exit::Partial),
            },
        }
    }
}

fn ended(exit: Exit) -> StageEnd {
    let error = match exit {
        Exit::Done => None,
        Exit::Partial => Some("some rows or topics failed: see the log and `topicmill status`"),
        Exit::TryAgain => Some("a temporary failure; the next scheduled run tries again"),
        Exit::Policy => Some("Reddit rejected or blocked the credentials"),
        _ => Some("see the log"),
    };
    let status = match exit {
        Exit::Done => ScheduledRunStatus::Done,
        Exit::Partial | Exit::TryAgain => ScheduledRunStatus::Partial,
        _ => ScheduledRunStatus::Failed,
    };
    end(exit, status, error.map(str::to_owned))
}

fn failed(exit: Exit, error: String) -> StageEnd {
    // A temporary failure is not an error of the stage.
    let status = match exit {
        Exit::TryAgain => ScheduledRunStatus::Partial,
        _ => ScheduledRunStatus::Failed,
    };
    end(exit, status, Some(error))
}

fn end(exit: Exit, status: ScheduledRunStatus, error: Option<String>) -> StageEnd {
    StageEnd {
        status,
        exit: exit.code(),
        error,
        skips_rest: exit == Exit::Database,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{STAGES, words};

    #[test]
    fn an_invalid_stage_is_rejected_with_a_reason() {
        let check = |line: &str| super::check(&words(line).unwrap());
        assert_eq!(check("purge --retention 48 --no-rewrite"), Ok(()));
        for (line, expected) in [
            ("collect --database sqlite:a.db", "unexpected argument"),
            ("classify --metrics-listen 127.0.0.1:0", "only one process"),
            (
                "collect --source samples",
                "invalid value 'samples' for '--source",
            ),
            ("purge", "required arguments were not provided"),
            ("db", "a subcommand: create, migrate, backup,"),
        ] {
            let error = check(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn pipeline_files_and_the_command_line_accept_the_same_stages() {
        let command = Line::command();
        let known: Vec<&str> = command
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        assert_eq!(known, STAGES);
    }
}
