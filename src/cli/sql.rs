//! `topicmill sql`: read-only questions.

use clap::Args;

use super::output::{self, Format};
use super::setup::Setup;
use super::{CliError, Exit};
use crate::analyze::sql;
use crate::store::Access;

/// Flags of `sql`.
#[derive(Debug, Args)]
pub struct Sql {
    /// One statement; `-` reads it from stdin
    #[arg(value_name = "QUERY", required_unless_present_any = ["named", "list"], conflicts_with_all = ["named", "list"])]
    query: Option<String>,
    /// A query of pipelines/analysis by its name
    #[arg(long, value_name = "Q", conflicts_with = "list")]
    named: Option<String>,
    /// List the named queries
    #[arg(long)]
    list: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Sql {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        if self.list {
            output::print_table(&sql::list(), self.format)?;
            return Ok(Exit::Done);
        }
        let query = match (self.query.as_deref(), &self.named) {
            (Some("-"), _) => {
                // On a thread of its own, so that a signal is heard while nobody types.
                let read =
                    tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin()));
                let text = read.await.unwrap_or_else(|error| Err(error.into()));
                text.map_err(|error| {
                    CliError::Usage(format!("read the query from stdin: {error}"))
                })?
            }
            (Some(query), _) => query.to_owned(),
            (None, Some(name)) => {
                sql::named(name).map_err(|error| CliError::Usage(error.to_string()))?
            }
            (None, None) => unreachable!("clap asks for one of them"),
        };
        let store = setup.store(Access::ReadOnly).await?;
        let table = store.query(&query).await?;
        output::print_table(&table, self.format)?;
        if self.format == Format::Table {
            let n = table.rows.len();
            output::print(&if n == 1 {
                "(1 row)\n".to_owned()
            } else {
                format!("({n} rows)\n")
            })?;
        }
        Ok(Exit::Done)
    }
}
