//! `topicmill db`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::Value;

use super::output::{self, OutputFormat};
use super::purge::rewriting;
use super::setup::Setup;
use super::{CliError, Exit};
use crate::pipeline::WRITTEN_BY;
use crate::store::{Access, Info, Table};
use crate::telemetry::Progress;

/// Posts that one transaction decodes, so that writers wait for no more.
const DECODED_AT_ONCE: u32 = 500;

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
    #[command(after_help = "\
Examples:\n\
\x20 topicmill db backup copy.db\n\
\x20 topicmill --database sqlite:demo.db db backup demo-copy.db")]
    Backup {
        /// Write the copy to this file, which must not exist yet
        #[arg(value_name = "FILE")]
        file: PathBuf,
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
    /// Decode HTML entities (`&amp;`) in texts that earlier versions stored from archives and files
    ///
    /// Each text is decoded once. A text that changes is another text: its labels go with the old one, and the next
    /// `classify` scores it anew. With --dry-run, see first how many that are.
    #[command(after_help = "\
Examples:\n\
\x20 topicmill db decode --dry-run\n\
\x20 topicmill --database sqlite:demo.db db decode")]
    Decode {
        /// Change nothing, and show what decoding costs
        #[arg(long)]
        dry_run: bool,
        /// Print in this format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
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
                let posts = store.count_escaped().await?;
                if posts > 0 {
                    tracing::warn!(
                        posts,
                        "an earlier version stored texts that may have HTML entities (`&amp;`): `topicmill db decode \
                         --dry-run` shows how many, and what decoding them costs"
                    );
                }
                store.close().await?;
            }
            Command::Backup { file } => return backup(setup, &file).await,
            Command::Vacuum => return vacuum(setup).await,
            Command::Decode { dry_run, format } => return decode(setup, dry_run, format).await,
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

async fn decode(setup: &Setup, dry_run: bool, format: OutputFormat) -> Result<Exit, CliError> {
    let access = if dry_run {
        Access::ReadOnly
    } else {
        Access::Existing
    };
    let store = setup.store(access).await?;
    let (mut posts, mut labelled) = (0, 0);
    let (bar, mut last) = (Progress::counter("decode", "posts"), Some(String::new()));
    // Each round is stored before the next one, so that whatever ends it, the same command goes on.
    while let Some(after) = last.take().filter(|_| !setup.stop.is_cancelled()) {
        let done = store
            .decode_texts(&after, DECODED_AT_ONCE, !dry_run)
            .await?;
        (posts, labelled) = (posts + done.posts, labelled + done.labelled);
        bar.add(done.posts);
        last = done.last;
    }
    drop(bar);
    store.close().await?;
    let [of_posts, of_labels] = if dry_run {
        ["posts to decode", "labels to make anew"]
    } else {
        ["posts decoded", "labels to make anew"]
    };
    let rows = vec![
        vec![of_posts.into(), Value::from(posts)],
        vec![of_labels.into(), Value::from(labelled)],
    ];
    let columns = vec!["what".into(), "count".into()];
    output::print_table(&Table { columns, rows }, format)?;
    match (dry_run, labelled) {
        (true, _) if posts > 0 => tracing::info!("run `topicmill db decode` to decode them"),
        (false, 1..) => tracing::info!("run `topicmill classify` to label them anew"),
        _ => {}
    }
    Ok(Exit::Done)
}

async fn backup(setup: &Setup, file: &Path) -> Result<Exit, CliError> {
    let shown = file.display();
    if file.exists() {
        return Err(CliError::Usage(format!(
            "copy the database to `{shown}`: there is such a file; name another one"
        )));
    }
    let store = setup.store(Access::AnySchema).await?;
    // Whoever looks for the copy finds a whole one or none.
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let named =
        |error: std::io::Error| CliError::Usage(format!("copy the database to `{shown}`: {error}"));
    if part.exists() {
        std::fs::remove_file(&part).map_err(named)?;
    }
    let copied = store.backup(&part).await;
    store.close().await?;
    if let Err(error) = copied {
        // What is half written is of no use; why it is tells the error.
        let _ = std::fs::remove_file(&part);
        return Err(error.into());
    }
    std::fs::rename(&part, file).map_err(named)?;
    tracing::info!(file = %shown, "the database is copied");
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
