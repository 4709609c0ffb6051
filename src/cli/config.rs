//! `topicmill config show`: prints the effective settings, with secrets hidden.

use clap::Subcommand;
use serde_json::json;

use super::{App, CliError, Exit, OutputFormat, output};
use crate::config::{WithOrigin, is_secret};
use topicmill_core::redact_url;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  topicmill config show
  topicmill config show --origin")]
pub enum Config {
    /// Show the effective settings, with secrets hidden
    #[command(after_help = "Examples:
  topicmill config show --origin
  topicmill --config my.toml config show --format json")]
    Show {
        /// Also show where each value comes from
        #[arg(long)]
        origin: bool,
        /// Set the output format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
}

impl Config {
    pub fn run(self, app: &App) -> Result<Exit, CliError> {
        let Self::Show { origin, format } = self;
        let shown = |key: &str, value: &str| match key {
            _ if value.is_empty() => String::new(),
            key if is_secret(key) => "***".to_owned(),
            key if key.ends_with("url") => redact_url(value),
            _ => value.to_owned(),
        };
        let rows = app.loaded.values.iter().map(|(key, WithOrigin { value, origin })| {
            json!({ "setting": key, "value": shown(key, value), "origin": origin.to_string() })
        });
        let columns = if origin {
            "setting, value, origin"
        } else {
            "setting, value"
        };
        let table = output::table_from_objects(columns, &rows.collect::<Vec<_>>());
        output::print_wrapped_table(&table, format)?;
        Ok(Exit::Done)
    }
}
