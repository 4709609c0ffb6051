//! The command line: one file per command, with its flags, help texts and output.
//!
//! [`main`] parses the arguments, loads the settings, runs the command until it ends or is stopped by a signal, and
//! returns the exit code (`error`). A command calls the other modules and prints the result: data goes to stdout,
//! everything else to stderr. What several commands need (settings, store, pipeline, model) is created in `app`.

mod app;
mod backlog;
mod bench;
mod classify;
mod collect;
mod collect_summary;
mod completions;
mod config;
mod db;
mod demo;
mod doctor;
mod drop_labels;
mod error;
mod export;
mod hints;
mod import;
mod labels;
mod metrics;
mod model;
mod output;
mod purge;
mod report;
mod run;
mod schedule;
mod score;
mod serve;
mod setup;
mod share;
mod signals;
mod source;
mod sql;
mod status;
mod terminal;
mod time_range;
mod welcome;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use self::app::App;
pub use self::error::{CliError, Exit};
use self::output::OutputFormat;
use crate::telemetry::{self, LogFormat};
use topicmill_core::{ThingKind, redact_url};
use topicmill_store::is_cancelled;
use topicmill_tables::{bytes, panics};

/// Rejects a list of files that names stdin twice.
fn check_stdin(files: &[PathBuf]) -> Result<(), CliError> {
    let stdins = files.iter().filter(|path| bytes::is_stdin(path));
    if stdins.count() > 1 {
        return Err(CliError::Usage("stdin (`-`) can be read only once".into()));
    }
    Ok(())
}

/// Values of `--kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Kind {
    #[default]
    Posts,
    Comments,
}

impl Kind {
    /// Returns the kind of things.
    fn thing_kind(self) -> ThingKind {
        match self {
            Self::Posts => ThingKind::Post,
            Self::Comments => ThingKind::Comment,
        }
    }
}

/// Collect Reddit posts, label them with a zero-shot model, and read the labels with SQL.
#[derive(Debug, Parser)]
#[command(
    name = "topicmill",
    version = crate::VERSION,
    propagate_version = true,
    max_term_width = 80
)]
#[command(after_help = "Examples:
  topicmill demo
  topicmill run
  topicmill help collect")]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags that every command accepts.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// Read settings from FILE [default: topicmill.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Use the database at URL: `sqlite:PATH` or `postgres://user:password@host/database`
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
    /// Write log lines as text or json
    #[arg(hide_short_help = true, long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Show more log lines; repeat it for even more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Show only errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Try the whole pipeline on sample posts, without a key
    ///
    /// Starts a sample Reddit server on this machine, stores its 512 posts and 40 comments in demo.db, labels them, and
    /// shows how often a post's label equals the topic that it was collected for. Nothing leaves this machine. It takes
    /// less than half a minute.
    Demo(demo::Demo),
    /// Store posts on your topics from Reddit or from an archive
    Collect(collect::Collect),
    /// Store posts from files
    Import(import::Import),
    /// Label stored posts that have no label yet
    Classify(classify::Classify),
    /// Create, check, compare, evaluate, calibrate and fit label sets
    #[command(subcommand)]
    Labels(labels::Labels),
    /// Label text in files without a database
    Score(score::Score),
    /// Measure how fast this machine scores
    Bench(bench::Bench),
    /// Collect posts, then label them
    Run(run::Run),
    /// Run stages on a schedule, and show past and upcoming runs
    #[command(subcommand)]
    Schedule(schedule::Schedule),
    /// Delete posts that were deleted on Reddit or that you name, and old post text
    Purge(purge::Purge),
    /// Run a read-only SQL query
    Sql(sql::Sql),
    /// Write the labelled posts as a data set: a file or a folder
    Export(export::Export),
    /// Write a report with charts as a self-contained HTML page
    Report(report::Report),
    /// Browse the database in a web browser: overview, posts, review
    Serve(serve::Serve),
    /// Show running stages, the backlog, failures, and what to do next
    Status(status::Status),
    /// Download, list, verify and drop models
    #[command(subcommand)]
    Model(model::Model),
    /// Check the installation, and show how to fix what is missing
    Doctor(doctor::Doctor),
    /// Install ONNX Runtime and the default model
    Setup(setup::Setup),
    /// Create, upgrade, back up, check, copy or inspect the database
    #[command(subcommand)]
    Db(db::Db),
    /// Show the effective settings
    #[command(subcommand)]
    Config(config::Config),
    /// Print a completion script for a shell
    Completions(completions::Completions),
}

impl Command {
    /// Returns true if the command finishes its work in progress after a signal, rather than being dropped at once.
    fn drains(&self) -> bool {
        match self {
            Self::Labels(labels::Labels::Evaluate(evaluate)) => evaluate.compute,
            Self::Labels(labels::Labels::Fit(fit)) => fit.make_current,
            Self::Labels(command) => matches!(command, labels::Labels::Drop { .. }),
            Self::Schedule(command) => matches!(command, schedule::Schedule::Run(_)),
            Self::Model(command) => matches!(command, model::Model::Drop { .. }),
            // A backup must remove its temporary file, which contains post text.
            Self::Db(command) => matches!(command, db::Db::Backup { .. }),
            Self::Report(_) | Self::Status(_) | Self::Doctor(_) | Self::Setup(_) => false,
            _ => true,
        }
    }

    /// Returns true if the command waits for work until it is stopped.
    fn is_service(&self) -> bool {
        match self {
            Self::Serve(_) | Self::Schedule(schedule::Schedule::Run(_)) => true,
            Self::Classify(command) => command.watch,
            _ => false,
        }
    }
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    signals::survive_file_size_limit();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return match welcome::text(&error) {
                Some(text) => exit_code(output::print(text).map(|()| Exit::Done), LogFormat::Text),
                None => print_usage(&error),
            };
        }
    };
    let mut log_format = early_log_format(&cli);
    panics::silence_caught();
    // Unwind safe: nothing in memory is used after a panic.
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| start(cli, &mut log_format)));
    let Ok(ended) = caught else {
        output::print_bug();
        return Exit::Bug.into();
    };
    exit_code(ended, log_format)
}

/// Returns the exit code of a command, after printing its error.
fn exit_code(ended: Result<Exit, CliError>, log_format: LogFormat) -> ExitCode {
    let exit = ended.unwrap_or_else(|error| {
        output::print_error(&error, log_format);
        error.exit()
    });
    exit.into()
}

/// Returns the log format from the flag or the environment, for errors before the settings are loaded.
fn early_log_format(cli: &Cli) -> LogFormat {
    let flag = cli.global.log_format.clone();
    match flag.or_else(|| std::env::var("TOPICMILL__LOG__FORMAT").ok()) {
        Some(format) if format == "json" => LogFormat::Json,
        _ => LogFormat::Text,
    }
}

/// Prints clap's help or usage error, and returns the exit code. Redacts passwords, for example in a URL passed to the
/// wrong flag.
fn print_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let printed = error.print().map_err(output::stdout_error);
        return exit_code(printed.map(|()| Exit::Done), LogFormat::Text);
    }
    let secrets = secret_arguments();
    if secrets.is_empty() {
        // clap colours the message. An error of stderr cannot be reported.
        let _ = error.print();
        return Exit::Usage.into();
    }
    let mut text = error.render().to_string();
    for secret in secrets {
        text = text.replace(&secret, &redact_url(&secret));
        if let Some((_, value)) = secret.split_once('=')
            && !value.is_empty()
        {
            text = text.replace(value, &redact_url(value));
        }
    }
    output::print_err(&text);
    Exit::Usage.into()
}

/// Returns the arguments of the process that may contain a password.
fn secret_arguments() -> Vec<String> {
    let may_be_secret = |argument: &String| {
        let lower = argument.to_ascii_lowercase();
        lower.contains("://") && argument.contains('@') || lower.contains("password")
    };
    let arguments = std::env::args_os().filter_map(|argument| argument.into_string().ok());
    arguments.filter(may_be_secret).collect()
}

/// Loads the settings, and runs the command until it ends or is stopped by a signal. Sets `log_format` to the
/// format of the settings.
fn start(cli: Cli, log_format: &mut LogFormat) -> Result<Exit, CliError> {
    // This command needs no settings, and must work even if the settings are invalid.
    if let Command::Completions(command) = cli.command {
        return command.run();
    }
    let app = App::load(&cli.global)?;
    *log_format = app.log_format;
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(|error| {
        CliError::Message(Exit::Partial, format!("cannot start the runtime: {error}"))
    })?;
    let exit = runtime.block_on(async {
        let signals = signals::watch(&app.stop, &app.clock);
        if !cli.command.is_service() {
            tokio::spawn(telemetry::log_activity(app.clock.clone()));
        }
        let drains = cli.command.drains();
        let dropped = async {
            app.stop.cancelled().await;
            if drains {
                match signals.mark_responsive().await {}
            }
        };
        let ended = tokio::select! {
            ended = dispatch(cli.command, &app) => ended,
            // Nothing to finish.
            () = dropped => Ok(Exit::Done),
        };
        match (ended, signals.exit()) {
            // After a signal, the exit code reports the signal, even on success.
            (Ok(_), Some(exit)) => Ok(exit),
            (Err(error), Some(exit)) if is_cancelled(&error) => {
                tracing::warn!("{error}");
                Ok(exit)
            }
            (ended, _) => ended,
        }
    });
    // Do not wait for threads that are still computing.
    runtime.shutdown_background();
    exit
}

async fn dispatch(command: Command, app: &App) -> Result<Exit, CliError> {
    match command {
        Command::Demo(command) => command.run(app).await,
        Command::Collect(command) => command.run(app).await,
        Command::Import(command) => command.run(app).await,
        Command::Classify(command) => command.run(app).await,
        Command::Labels(command) => command.run(app, schedule::check).await,
        Command::Score(command) => command.run(app).await,
        Command::Bench(command) => command.run(app).await,
        Command::Run(command) => command.run(app).await,
        Command::Schedule(command) => command.run(app).await,
        Command::Purge(command) => command.run(app).await,
        Command::Sql(command) => command.run(app).await,
        Command::Export(command) => command.run(app).await,
        Command::Report(command) => command.run(app).await,
        Command::Serve(command) => command.run(app).await,
        Command::Status(command) => command.run(app).await,
        Command::Model(command) => command.run(app).await,
        Command::Doctor(command) => command.run(app).await,
        Command::Setup(command) => command.run(app).await,
        Command::Db(command) => command.run(app).await,
        Command::Config(command) => command.run(app),
        Command::Completions(_) => unreachable!("handled before the settings are loaded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_that_labels_posts_is_not_dropped_after_a_signal() {
        let drains = |line: &str| Cli::parse_from(line.split(' ')).command.drains();
        assert!(drains("topicmill labels fit --make-current"));
        assert!(!drains("topicmill labels fit"));
    }
}
