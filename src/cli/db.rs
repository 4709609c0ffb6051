//! `topicmill db`: creates, upgrades, backs up, copies, checks, vacuums and inspects the database.

mod maintenance;

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use super::{App, CliError, Exit, OutputFormat, output};
use crate::atomic_file::IfExists;
use crate::pipeline::WRITTEN_BY;
use topicmill_store::{Access, Info, Table};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  topicmill db info
  topicmill db backup copy.db")]
pub enum Db {
    /// Create the database and its tables if they are missing, and upgrade old ones
    #[command(after_help = "Examples:
  topicmill db create
  topicmill --database postgres://me@localhost/topicmill db create")]
    Create,
    /// Upgrade the tables to this version; stop other workers first
    #[command(after_help = "Examples:
  topicmill db migrate
  topicmill --database sqlite:demo.db db migrate")]
    Migrate,
    /// Copy a SQLite database to a file, even while other processes are writing to it
    ///
    /// The copy is a consistent snapshot. It is atomic: FILE appears only when it is complete. Use `pg_dump` for a
    /// PostgreSQL database.
    #[command(after_help = "Examples:
  topicmill db backup copy.db
  topicmill --database sqlite:demo.db db backup copy.db --overwrite")]
    Backup {
        /// Write the copy to FILE
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Replace FILE if it exists
        #[arg(long)]
        overwrite: bool,
    },
    /// Copy everything from a SQLite database to a PostgreSQL database
    ///
    /// TO must be empty; it is created if it does not exist. Every table is copied with its keys from one consistent
    /// snapshot, and the rows of both are counted before the copy is committed. An interrupted copy leaves TO empty;
    /// run the same command again. Put the password in PGPASSWORD or ~/.pgpass rather than in the URL, to keep it out
    /// of the process list.
    #[command(after_help = "Examples:
  topicmill db copy sqlite:topicmill.db postgres://me@localhost/topicmill
  topicmill db copy sqlite:demo.db postgres://me@localhost/demo --format json")]
    Copy {
        /// Copy from the database FROM
        #[arg(value_name = "FROM")]
        from: String,
        /// Copy to the database TO, which must be empty or not exist yet
        #[arg(value_name = "TO")]
        to: String,
        /// Set the output format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
    /// Check the integrity of the database and show how to fix any problems
    ///
    /// Runs the database's own checks, and compares texts, labels, scores and vectors that must agree. Changes nothing.
    /// Exits with 1 if there is a problem. Takes minutes on a large database.
    #[command(after_help = "Examples:
  topicmill db check
  topicmill db check --format json")]
    Check {
        /// Set the output format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
    /// Rewrite the database files to remove the remaining bytes of purged posts
    ///
    /// On SQLite this needs disk space for two more copies of the file and blocks other writers until it is done. On
    /// PostgreSQL it runs VACUUM FULL, which locks each table while it is being rewritten.
    #[command(after_help = "Examples:
  topicmill db vacuum
  topicmill --database sqlite:demo.db db vacuum")]
    Vacuum,
    /// Show the database's address, server, schema version, size and row counts
    #[command(after_help = "Examples:
  topicmill db info
  topicmill db info --format json")]
    Info {
        /// Set the output format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
}

impl Db {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        match self {
            Self::Create => return prepare(app).await,
            Self::Migrate => {
                // Fails if there is no database, so that a wrong name creates none.
                app.store(Access::AnySchema).await?.close().await?;
                return prepare(app).await;
            }
            Self::Backup { file, overwrite } => {
                let if_exists = IfExists::from_overwrite(overwrite);
                return maintenance::backup(app, &file, if_exists).await;
            }
            Self::Copy { from, to, format } => return maintenance::copy(&from, &to, format).await,
            Self::Check { format } => return maintenance::check(app, format).await,
            Self::Vacuum => return vacuum(app).await,
            Self::Info { format } => {
                let store = app.store(Access::ReadOnly).await?;
                let written_by = store.meta(WRITTEN_BY).await?;
                let table = info_table(&store.info().await?, written_by.as_deref());
                output::print_wrapped_table(&table, format)?;
                store.close().await?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Creates the database and its tables if they are missing, and migrates them.
async fn prepare(app: &App) -> Result<Exit, CliError> {
    let store = app.store(Access::Create).await?;
    let info = store.info().await?;
    tracing::info!(url = %info.url, server = %info.server, schema = info.schema, "the database is ready");
    store.close().await?;
    Ok(Exit::Done)
}

/// Rewrites the database files, and says what is left to do if that was not complete.
async fn vacuum(app: &App) -> Result<Exit, CliError> {
    let store = app.store(Access::Existing).await?;
    let rewritten = store.purging().rewrite().await?;
    store.close().await?;
    if let Some(remedy) = rewritten.remedy() {
        tracing::warn!("the database was not rewritten completely: {remedy}");
        return Ok(Exit::Partial);
    }
    tracing::info!("the database was rewritten");
    Ok(Exit::Done)
}

fn info_table(info: &Info, written_by: Option<&str>) -> Table {
    let head = [
        ("database", json!(info.url)),
        ("server", json!(info.server)),
        ("schema version", json!(info.schema)),
        ("version of the last run", json!(written_by)),
        ("bytes", json!(info.bytes)),
    ];
    let head = head.map(|(what, value)| (what.to_owned(), value));
    let counts = info.rows.iter();
    let counts = counts.map(|(table, n)| (format!("rows of {table}"), json!(n)));
    output::key_value_table("what", head.into_iter().chain(counts))
}
