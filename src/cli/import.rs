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

impl From<Format> for dump::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Listing => Self::Listing,
            Format::Ndjson => Self::Ndjson,
        }
    }
}

impl Import {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let pipeline = setup.pipeline(&self.pipeline)?;
        // A file that cannot be read is told before anything is stored.
        for path in &self.files {
            dump::check(path, self.format.into())?;
        }
        self.record.check()?;
        let context = setup.context(setup.store(Access::Create).await?);
        let store_author = setup.settings().collect.store_author;
        let imported = context
            .import(
                &self.files,
                self.format.into(),
                &pipeline.topics,
                store_author,
            )
            .await;
        self.record.write(&context)?;
        context.store.close().await?;
        let (done, status) = imported?;
        if self.files.len() > 1 {
            tracing::info!(
                posts = done.posts,
                new = done.new,
                changed = done.changed,
                rejected = done.rejected.total(),
                "importing done"
            );
        }
        Ok(if status == RunStatus::Done {
            Exit::Done
        } else {
            Exit::Partial
        })
    }
}
