//! Runs one stage of a scheduled run: a command line of the program, in this process, with the effective settings.

use std::panic::AssertUnwindSafe;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use futures_util::FutureExt;

use crate::cli::{
    App, CliError, Exit, classify, collect, db, export, import, output, purge, report, run,
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

/// The commands that a schedule may run.
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
    match parse_stage(words)? {
        Stage::Classify(classify) if classify.watch => Err(
            "it never ends: leave out --watch; the next scheduled run labels new posts".to_owned(),
        ),
        Stage::Collect(collect::Collect { flags, .. })
        | Stage::Run(run::Run { collect: flags, .. })
            if flags.dry_run =>
        {
            Err("it would change nothing: leave out --dry-run".to_owned())
        }
        _ => Ok(()),
    }
}

fn parse_stage(words: &[String]) -> Result<Stage, String> {
    let line = Line::try_parse_from(words).map_err(|error| {
        // clap's message would be the whole help text.
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return "it needs a subcommand".to_owned();
        }
        let text = error.to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        let words = first.trim_start_matches("error: ").split_whitespace();
        words.collect::<Vec<_>>().join(" ")
    })?;
    Ok(line.stage)
}

/// Runs a stage to its end, or until it is cancelled.
pub async fn run(app: &App, order: StageOrder<'_>) -> StageEnd {
    let app = App {
        stop: order.stop.clone(),
        scheduled_run: Some(order.scheduled_run),
        ..app.clone()
    };
    let stage = match parse_stage(order.words) {
        Ok(stage) => stage,
        Err(why) => return failed(Exit::Usage, why),
    };
    let is_check = matches!(stage, Stage::Db(_));
    // Unwind safe: nothing in memory is used after a panic.
    match AssertUnwindSafe(stage.run(&app)).catch_unwind().await {
        // For a check, exit code 1 means a problem in the database, not a partial success.
        Ok(Ok(Exit::Partial)) if is_check && !order.stop.is_cancelled() => {
            failed(Exit::Partial, "the database has a problem, see the log")
        }
        Ok(Ok(exit)) => ended(exit),
        // The scheduled run records the reason for the cancellation.
        Ok(Err(error)) if is_cancelled(&error) => {
            tracing::warn!("{error}");
            failed(Exit::TryAgain, error.to_string())
        }
        Ok(Err(error)) => {
            output::print_error(&error, app.log_format);
            failed(error.exit(), error.to_string())
        }
        Err(_) => {
            output::print_bug();
            let why = "it crashed because of a bug in topicmill, see the log";
            failed(Exit::Bug, why)
        }
    }
}

impl Stage {
    async fn run(self, app: &App) -> Result<Exit, CliError> {
        match self {
            Self::Collect(command) => command.run(app).await,
            Self::Import(command) => command.run(app).await,
            Self::Classify(command) => command.run(app).await,
            Self::Run(command) => command.run(app).await,
            Self::Purge(command) => command.run(app).await,
            Self::Export(command) => command.run(app).await,
            // These commands have no work in progress to finish.
            Self::Report(command) => tokio::select! {
                exit = command.run(app) => exit,
                () = app.stop.cancelled() => Ok(Exit::Partial),
            },
            Self::Db(command) => tokio::select! {
                exit = command.run(app) => exit,
                () = app.stop.cancelled() => Ok(Exit::Partial),
            },
        }
    }
}

/// Returns the result of a command that ended without an error.
fn ended(exit: Exit) -> StageEnd {
    let (status, error) = match exit {
        Exit::Done => (ScheduledRunStatus::Done, None),
        Exit::Partial => {
            let error = "some rows or topics failed: see the log and `topicmill status`";
            (ScheduledRunStatus::Partial, Some(error.to_owned()))
        }
        _ => return failed(exit, "see the log"),
    };
    StageEnd {
        status,
        exit: exit.code(),
        error,
        skips_rest: false,
    }
}

fn failed(exit: Exit, error: impl Into<String>) -> StageEnd {
    StageEnd {
        // A temporary failure is not an error of the stage.
        status: match exit {
            Exit::TryAgain => ScheduledRunStatus::Partial,
            _ => ScheduledRunStatus::Failed,
        },
        exit: exit.code(),
        error: Some(error.into()),
        skips_rest: exit == Exit::Database,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_invalid_stage_is_rejected_with_a_reason() {
        let check = |line: &str| super::check(&shlex::split(line).unwrap());
        assert_eq!(check("purge --retention 48 --no-rewrite"), Ok(()));
        for (line, expected) in [
            ("collect --database sqlite:a.db", "unexpected argument"),
            (
                "collect --source samples",
                "invalid value 'samples' for '--source",
            ),
            ("purge", "required arguments were not provided"),
            ("db", "needs a subcommand"),
        ] {
            let error = check(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
