//! `topicmill config show`

use clap::{Args, Subcommand};
use serde_json::Value;

use super::output::{self, OutputFormat};
use super::setup::Setup;
use super::{CliError, Exit};
use crate::config::is_secret;
use crate::domain::redact_url;
use crate::store::Table;

/// Flags of `config`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill config show\n\
\x20 topicmill config show --origin")]
pub struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the settings in force; secrets are hidden
    #[command(after_help = "\
Examples:\n\
\x20 topicmill config show --origin\n\
\x20 topicmill --config my.toml config show --format json")]
    Show {
        /// Also show where each value comes from
        #[arg(long)]
        origin: bool,
        /// Print in this format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
}

impl Config {
    pub fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let Command::Show { origin, format } = self.command;
        let mut table = Table {
            columns: vec!["setting".into(), "value".into()],
            rows: Vec::new(),
        };
        if origin {
            table.columns.push("origin".into());
        }
        for (key, (value, from)) in &setup.loaded.values {
            let shown = match key.as_str() {
                _ if value.is_empty() => String::new(),
                key if is_secret(key) => "***".to_owned(),
                key if key.ends_with("url") => redact_url(value),
                _ => value.clone(),
            };
            let mut row = vec![Value::from(key.as_str()), Value::from(shown)];
            if origin {
                row.push(Value::from(from.to_string()));
            }
            table.rows.push(row);
        }
        output::print_reading(&table, format)?;
        Ok(Exit::Done)
    }
}
