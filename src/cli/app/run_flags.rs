//! The flag `--run-json`: runs stages, and writes their records to a file.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::{App, first_bytes};
use crate::atomic_file::{self, IfExists};
use crate::cli::error::first_error;
use crate::cli::{CliError, Exit};
use crate::pipeline::Context;
use topicmill_store::Access;

/// Flags of commands that record a run.
#[derive(Debug, Clone, Args)]
pub struct RunFlags {
    /// Also write the run record to FILE, as JSON
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    run_json: Option<PathBuf>,
}

impl RunFlags {
    /// Runs stages on a store that it opens, and writes their records, also if they fail. Logs all errors but the first.
    pub async fn record(
        &self,
        app: &App,
        access: Access,
        work: impl AsyncFnOnce(&Context) -> Result<Exit, CliError>,
    ) -> Result<Exit, CliError> {
        self.check(app)?;
        let context = app.context(app.store(access).await?);
        let ended = work(&context).await;
        let written = self.write(&context);
        let closed = context.store.close().await;
        let closed = closed.map(|()| Exit::Done).map_err(CliError::from);
        first_error(first_error(ended, written.map(|()| Exit::Done)), closed)
    }

    /// Opens the `--run-json` file for writing, so that a bad path fails before any work is done. An existing file is
    /// kept until [`Self::write`].
    fn check(&self, app: &App) -> Result<(), CliError> {
        let Some(path) = &self.run_json else {
            return Ok(());
        };
        app.check_not_database(path)?;
        if !is_record(path) {
            return Err(CliError::Usage(format!(
                "cannot write `{}`: it is not a run record; correct --run-json, or remove the file",
                path.display()
            )));
        }
        // The reader of a pipe ends when the pipe is closed.
        if path.metadata().is_ok_and(|file| file.file_type().is_fifo()) {
            return Ok(());
        }
        let opened = File::options().append(true).create(true).open(path);
        opened.map(drop).map_err(|error| {
            let path = path.display();
            CliError::Usage(format!(
                "cannot write `{path}`: {error}; correct --run-json"
            ))
        })
    }

    /// Writes the run records to the `--run-json` file: one record as an object, several as an array.
    fn write(&self, context: &Context) -> Result<(), CliError> {
        let Some(path) = &self.run_json else {
            return Ok(());
        };
        let text = match context.records().as_slice() {
            [record] => format!("{:#}\n", json!(record)),
            records => format!("{:#}\n", json!(records)),
        };
        let written = match atomic_file::write(path, &text, IfExists::Replace) {
            // The file may be writable although its folder is not.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => std::fs::write(path, text),
            written => written,
        };
        written.map_err(CliError::writing(path))
    }
}

/// Returns true if a file is a run record, which a later run may replace, or if there is no file with content.
fn is_record(path: &Path) -> bool {
    let start = first_bytes(path);
    let text = String::from_utf8_lossy(&start);
    matches!(&*text, "" | "[]\n") || text.starts_with(['{', '[']) && text.contains("\"stage\": \"")
}
