//! The command line: the tree of commands, the flags they share, and what each exit code means.
//!
//! Data goes to stdout, everything else to stderr. Commands live one to a file; what several of them need
//! (settings, store, pipeline, model) is made in `setup`.

mod backlog;
mod bench;
mod bottleneck;
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
mod install;
mod labels;
mod man;
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
mod signals;
mod sql;
mod status;
mod terminal;
mod time_range;

use std::path::PathBuf;
use std::process::ExitCode;

use std::panic::AssertUnwindSafe;

use clap::{Args, Parser, Subcommand};

pub use self::error::{CliError, Exit};
use self::output::OutputFormat;
use self::setup::Setup;
use crate::telemetry::{self, LogFormat};
use topicmill_core::redact_url;
use topicmill_store::is_stop;
use topicmill_tables::panics;

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
  topicmill run --source arctic-shift
  topicmill help collect")]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// Read settings from this file [default: topicmill.toml in the current folder, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Use this database: `sqlite:PATH` or `postgres://user:password@host/database`
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
    /// Write log lines as text or as json
    #[arg(hide_short_help = true, long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Show more log lines; give it twice for still more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Show errors only
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Try everything on sample posts, without a key
    ///
    /// Starts a sample Reddit on this machine, stores its 512 posts in demo.db, labels them, and shows how often the label is
    /// the topic that a post was collected for. Nothing leaves this machine. It takes less than half a minute.
    Demo(demo::Demo),
    /// Store posts of your topics from Reddit or from an archive
    Collect(collect::Collect),
    /// Store posts from files
    Import(import::Import),
    /// Label stored posts that have no label yet
    Classify(classify::Classify),
    /// Write, check, compare, try, evaluate and calibrate label sets
    #[command(subcommand)]
    Labels(labels::Labels),
    /// Label texts from file to file, without a database
    Score(score::Score),
    /// Measure how fast this machine scores
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Collect posts, then label them
    Run(run::Run),
    /// Run stages when they are due, and show what ran and what did not
    #[command(subcommand)]
    Schedule(schedule::Schedule),
    /// Delete what was deleted on Reddit, what a file names, or old texts
    Purge(purge::Purge),
    /// Run a read-only SQL query
    Sql(sql::Sql),
    /// Write the labelled posts to a file, or to a folder that is a data set
    Export(export::Export),
    /// Draw what is stored as one page that opens anywhere
    Report(report::Report),
    /// Open what is stored in a browser: overview, posts, search, SQL
    Serve(serve::Serve),
    /// Show what runs, what waits for a label, what failed, and what to do
    Status(status::Status),
    /// Fetch, list and verify models
    #[command(subcommand)]
    Model(model::Model),
    /// Show what is installed, what is missing, and what to do
    Doctor(doctor::Doctor),
    /// Fetch what is missing: ONNX Runtime, and the default model
    Setup(install::Install),
    /// Create, upgrade, back up, check, copy or inspect the database
    #[command(subcommand)]
    Db(db::Db),
    /// Show the settings in force
    #[command(subcommand)]
    Config(config::Config),
    /// Print a completion script for a shell
    Completions(completions::Completions),
    /// Write the man pages and all completion scripts into a folder
    Man(man::Man),
}

impl Command {
    /// Whether the command has something in hand that a signal lets it finish.
    fn drains(&self) -> bool {
        match self {
            Self::Labels(labels::Labels::Evaluate(evaluate)) => evaluate.compute,
            Self::Labels(command) => matches!(command, labels::Labels::Drop { .. }),
            Self::Schedule(command) => matches!(command, schedule::Schedule::Run(_)),
            Self::Model(command) => matches!(command, model::Model::Drop { .. }),
            // A draft with texts goes.
            Self::Db(command) => matches!(command, db::Db::Backup { .. }),
            Self::Report(_) | Self::Status(_) | Self::Doctor(_) | Self::Setup(_) => false,
            _ => true,
        }
    }
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| exit_with_usage(&error));
    let mut log_format = early_log_format(&cli);
    panics::silence_caught();
    // What is left half-done in memory is not looked at any more.
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| start(cli, &mut log_format)));
    match ended {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(error)) => {
            output::print_error(&error, log_format);
            error.exit().into()
        }
        Err(_) => {
            output::print_bug();
            Exit::Bug.into()
        }
    }
}

/// The log format that flag or environment ask for: all that is known before the settings are read, and where
/// they cannot be.
fn early_log_format(cli: &Cli) -> LogFormat {
    let asked = cli.global.log_format.clone();
    match asked.or_else(|| std::env::var("TOPICMILL__LOG__FORMAT").ok()) {
        Some(format) if format == "json" => LogFormat::Json,
        _ => LogFormat::Text,
    }
}

/// Tells how the program is called, without the password of a URL that stands in the wrong place.
#[expect(clippy::print_stderr, reason = "logging has not been started")]
fn exit_with_usage(error: &clap::Error) -> ! {
    let secret = |arg: &String| {
        let lower = arg.to_ascii_lowercase();
        lower.contains("://") && arg.contains('@') || lower.contains("password")
    };
    let args: Vec<String> = std::env::args_os()
        .filter_map(|arg| arg.into_string().ok())
        .filter(secret)
        .collect();
    if args.is_empty() || !error.use_stderr() {
        error.exit();
    }
    let mut text = error.render().to_string();
    for arg in args {
        let value = arg.split_once('=').map_or("", |(_, value)| value);
        text = text.replace(&arg, &redact_url(&arg));
        if !value.is_empty() {
            text = text.replace(value, &redact_url(value));
        }
    }
    eprint!("{text}");
    std::process::exit(Exit::Usage.code().into())
}

fn start(cli: Cli, log_format: &mut LogFormat) -> Result<Exit, CliError> {
    // Needs no settings, and must work where they are broken.
    match cli.command {
        Command::Completions(command) => return command.run(),
        Command::Man(command) => return command.run(),
        _ => {}
    }
    let setup = Setup::load(&cli.global)?;
    *log_format = setup.log_format;
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime
        .map_err(|error| CliError::Message(Exit::Partial, format!("start the runtime: {error}")))?;
    let exit = runtime.block_on(async {
        let signals = signals::watch(&setup.stop, &setup.clock);
        let ended = if cli.command.drains() {
            tokio::select! {
                ended = dispatch(cli.command, &setup) => ended,
                never = signals.mark_responsive(&setup.stop) => match never {},
            }
        } else {
            // Nothing to finish: the command is dropped where it waits.
            tokio::select! {
                ended = dispatch(cli.command, &setup) => ended,
                () = setup.stop.cancelled() => Ok(Exit::Done),
            }
        };
        match (ended, signals.exit()) {
            // What a signal ended says so, however well it ended.
            (Ok(_), Some(exit)) => Ok(exit),
            (Err(error), Some(exit)) if is_stop(&error) => {
                tracing::warn!("{error}");
                Ok(exit)
            }
            (ended, _) => ended,
        }
    });
    // A thread that still computes is not waited for.
    runtime.shutdown_background();
    telemetry::finish();
    exit
}

async fn dispatch(command: Command, setup: &Setup) -> Result<Exit, CliError> {
    match command {
        Command::Demo(command) => command.run(setup).await,
        Command::Collect(command) => command.run(setup).await,
        Command::Import(command) => command.run(setup).await,
        Command::Classify(command) => command.run(setup).await,
        Command::Labels(command) => command.run(setup).await,
        Command::Score(command) => command.run(setup).await,
        Command::Bench(command) => command.run(setup).await,
        Command::Run(command) => command.run(setup).await,
        Command::Schedule(command) => command.run(setup).await,
        Command::Purge(command) => command.run(setup).await,
        Command::Sql(command) => command.run(setup).await,
        Command::Export(command) => command.run(setup).await,
        Command::Report(command) => command.run(setup).await,
        Command::Serve(command) => command.run(setup).await,
        Command::Status(command) => command.run(setup).await,
        Command::Model(command) => command.run(setup).await,
        Command::Doctor(command) => command.run(setup).await,
        Command::Setup(command) => command.run(setup).await,
        Command::Db(command) => command.run(setup).await,
        Command::Config(command) => command.run(setup),
        Command::Completions(_) | Command::Man(_) => {
            unreachable!("answered before the settings were read")
        }
    }
}
