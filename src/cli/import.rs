//! `topicmill import`

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::setup::{PipelineFlags, RunFlags, Setup};
use super::{CliError, Exit};
use crate::domain::RunStatus;
use crate::source::dump;
use crate::store::Access;

/// Flags of `import`.
#[derive(Debug, Args)]
pub struct Import {
    /// Files to read
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the files hold
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    record: RunFlags,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// One saved listing, as the API answers it
    Listing,
    /// One post a line, with Reddit's field names
    #[default]
    Ndjson,
}

impl Import {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let pipeline = setup.pipeline(&self.pipeline)?;
        // A file that cannot be read is told before anything is stored.
        let mut files = Vec::with_capacity(self.files.len());
        for path in &self.files {
            let records = match self.format {
                Format::Listing => dump::listing_records(path)?,
                Format::Ndjson => dump::ndjson_records(path)?,
            };
            files.push((path.display().to_string(), records));
        }
        let store = setup.store(Access::Create).await?;
        let context = setup.context(store.clone());
        let store_author = setup.settings().collect.store_author;
        let (done, record) = context
            .import(files, &pipeline.topics, store_author)
            .await?;
        if self.files.len() > 1 {
            tracing::info!(
                posts = done.posts,
                new = done.new,
                rejected = done.rejected.total(),
                "importing done"
            );
        }
        self.record.write(&[&record])?;
        store.close().await?;
        Ok(if record.status == RunStatus::Done {
            Exit::Done
        } else {
            Exit::Partial
        })
    }
}
