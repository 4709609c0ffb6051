//! `topicmill db`

mod keep;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::output::{self, OutputFormat};
use super::purge::rewriting;
use super::setup::Setup;
use super::{CliError, Exit};
use crate::pipeline::WRITTEN_BY;
use crate::store::{Access, Info, Table};
use crate::telemetry::Progress;

/// Flags of `db`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill db info\n\
\x20 topicmill db backup copy.db")]
pub struct Db {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create the database and its tables; nothing happens if they exist
    #[command(after_help = "\
Examples:\n\
\x20 topicmill db create\n\
\x20 topicmill --database postgres://me@localhost/topicmill db create")]
    Create,
    /// Upgrade the tables to this version; stop other workers first
    #[command(after_help = "\
Examples:\n\
\x20 topicmill db migrate\n\
\x20 topicmill --database sqlite:demo.db db migrate")]
    Migrate,
    /// Copy a SQLite database to a file, as of one moment, even while others write
    ///
    /// The file gets its name when it is whole. A PostgreSQL database is copied with `pg_dump`.
    #[command(after_help = "\
Examples:\n\
\x20 topicmill db backup copy.db\n\
\x20 topicmill --database sqlite:demo.db db backup copy.db --overwrite")]
    Backup {
        /// Write the copy to this file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Replace the file, once the copy is whole
        #[arg(long)]
        overwrite: bool,
    },
    /// Copy everything from a SQLite database to a PostgreSQL database
    ///
    /// TO has to be empty; it is created if it does not exist. Every table is copied with its keys, as of one moment,
    /// and both sides are compared before the copy counts. A copy that does not end leaves TO empty, and the same
    /// command begins anew. The password of a URL may come from PGPASSWORD or from ~/.pgpass, so that nobody sees it
    /// among the processes.
    #[command(after_help = "\
Examples:\n\
\x20 topicmill db copy sqlite:topicmill.db postgres://me@localhost/topicmill\n\
\x20 topicmill db copy sqlite:demo.db postgres://me@localhost/demo --format json")]
    Copy {
        /// Copy from this database
        #[arg(value_name = "FROM")]
        from: String,
        /// Copy to this database, which is empty or does not exist yet
        #[arg(value_name = "TO")]
        to: String,
        /// Print in this format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
    /// Check that the database is whole, and say what to do if it is not
    ///
    /// It runs the database's own checks, and looks for rows that lack what they belong to and for counts that must
    /// agree. It changes nothing. The exit code is 1 if there is a problem. A large database takes minutes.
    #[command(after_help = "\
Examples:\n\
\x20 topicmill db check\n\
\x20 topicmill db check --format json")]
    Check {
        /// Print in this format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
    /// Rewrite the database's files, so that no bytes of purged posts are left in them
    ///
    /// On SQLite this needs disk space for two more copies of the file, and other writers wait meanwhile. On
    /// PostgreSQL it runs VACUUM FULL on each table, and nobody can use a table meanwhile.
    #[command(after_help = "\
Examples:\n\
\x20 topicmill db vacuum\n\
\x20 topicmill --database sqlite:demo.db db vacuum")]
    Vacuum,
    /// Show which database this is and what it holds
    #[command(after_help = "\
Examples:\n\
\x20 topicmill db info\n\
\x20 topicmill db info --format json")]
    Info {
        /// Print in this format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
}

impl Db {
    /// Whether the command has something in hand that a signal lets it finish: a draft with texts, which goes.
    pub fn drains(&self) -> bool {
        matches!(self.command, Command::Backup { .. })
    }

    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        match self.command {
            Command::Create | Command::Migrate => {
                let store = setup.store(Access::Create).await?;
                let Info {
                    url,
                    server,
                    schema,
                    ..
                } = store.info().await?;
                tracing::info!(%url, %server, schema, "the database is ready");
                store.close().await?;
            }
            Command::Backup { file, overwrite } => {
                return keep::back_up(setup, &file, overwrite).await;
            }
            Command::Copy { from, to, format } => return keep::copy(&from, &to, format).await,
            Command::Check { format } => return keep::check(setup, format).await,
            Command::Vacuum => return vacuum(setup).await,
            Command::Info { format } => {
                let store = setup.store(Access::ReadOnly).await?;
                let written_by = store.kept(WRITTEN_BY).await?;
                let table = as_table(&store.info().await?, written_by.as_deref());
                output::print_reading(&table, format)?;
            }
        }
        Ok(Exit::Done)
    }
}

async fn vacuum(setup: &Setup) -> Result<Exit, CliError> {
    let store = setup.store(Access::Existing).await?;
    let bar = Progress::counter("vacuum", "");
    let rewritten = store
        .rewrite(&|done, total| bar.note(&rewriting(done, total)))
        .await?;
    drop(bar);
    store.close().await?;
    if let Some(remedy) = rewritten.remedy() {
        tracing::warn!("not everything could be rewritten: {remedy}");
        return Ok(Exit::Partial);
    }
    tracing::info!("the database is rewritten");
    Ok(Exit::Done)
}

fn as_table(info: &Info, written_by: Option<&str>) -> Table {
    let mut rows = vec![
        vec!["database".into(), Value::from(info.url.as_str())],
        vec!["server".into(), Value::from(info.server.as_str())],
        vec!["schema version".into(), Value::from(info.schema)],
        vec!["last run by".into(), Value::from(written_by)],
        vec!["bytes".into(), Value::from(info.bytes)],
    ];
    rows.extend(
        info.rows
            .iter()
            .map(|(table, n)| vec![Value::from(format!("rows of {table}")), Value::from(*n)]),
    );
    Table {
        columns: vec!["what".into(), "value".into()],
        rows,
    }
}
