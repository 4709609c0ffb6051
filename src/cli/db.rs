//! `topicmill db`

use clap::{Args, Subcommand};
use serde_json::Value;

use super::output::{self, Format};
use super::setup::Setup;
use super::{CliError, Exit};
use crate::store::{Access, Info, Table};

/// Flags of `db`.
#[derive(Debug, Args)]
pub struct Db {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the database and its tables; nothing happens if they are there
    Create,
    /// Bring the tables to this program's version
    Migrate,
    /// Tell what database this is and what it holds
    Info {
        /// How to print
        #[arg(long, value_enum, default_value_t)]
        format: Format,
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
                store.close().await?;
            }
            Command::Info { format } => {
                let store = setup.store(Access::ReadOnly).await?;
                output::print_table(&as_table(&store.info().await?), format)?;
            }
        }
        Ok(Exit::Done)
    }
}

fn as_table(info: &Info) -> Table {
    let mut rows = vec![
        vec!["database".into(), Value::from(info.url.as_str())],
        vec!["server".into(), Value::from(info.server.as_str())],
        vec!["schema version".into(), Value::from(info.schema)],
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
