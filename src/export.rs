//! Exports labelled posts as a data set: one file, or a folder that `datasets.load_dataset` opens.
//!
//! Reads the posts that pass the filters, with the labels from one model and label set. Writes CSV, NDJSON or Parquet,
//! or a folder of Parquet files with a data card. One transaction reads all rows, so they are a consistent snapshot; the
//! card's other facts are read before it. Rows are streamed in batches, so memory is bounded. The result is written to a
//! temporary path and renamed into place.

mod card;
mod columns;
mod counts;
mod file;
mod folder;
mod parquet;
mod write;

use std::path::PathBuf;

use topicmill_core::{FailureKind, LabelSet, ThingKind, Timestamp};
use topicmill_store::{ColumnQuery, Store, StoreError, Target, batch_channel};

use self::card::Facts;
use self::columns::{DatasetColumn, columns, statement};
pub use self::counts::Counts;

/// Reasons why nothing was exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The database failed, or `--where` is invalid.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The destination exists.
    #[error("`{0}` already exists: choose a different path, or replace it with --overwrite")]
    Exists(PathBuf),
    /// The data set cannot be written.
    #[error("cannot write `{path}`: {source}; nothing was written")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The export was cancelled.
    #[error("the export was stopped; nothing was written")]
    Stopped,
}

impl ExportError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Exists(_) => FailureKind::Usage,
            Self::Write { .. } | Self::Stopped => FailureKind::Unfinished,
        }
    }
}

/// The model and the label set to export.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// Their ids in the database.
    pub target: Target,
    /// The label set.
    pub set: LabelSet,
    /// Posts or comments.
    pub kind: ThingKind,
    /// True to export the embeddings of the texts too.
    pub vectors: bool,
    /// The times between waves ([`topicmill_review::evaluate::Frame::ends`]), to export which posts are in the random
    /// sample, and each post's wave.
    pub waves: Option<Vec<Timestamp>>,
}

/// Filters for posts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filters {
    /// Label slugs; empty for all labels.
    pub labels: Vec<String>,
    /// Minimum posting time.
    pub since: Option<Timestamp>,
    /// Maximum posting time, exclusive.
    pub until: Option<Timestamp>,
    /// Minimum score for the best label.
    pub min_score: Option<f64>,
    /// True to include posts without a label.
    pub unlabelled: bool,
    /// An SQL expression over the data set's columns, as the user wrote it.
    pub expression: Option<String>,
}

/// The format for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatasetFormat {
    /// CSV with a header line.
    Csv,
    /// One JSON object per line.
    Ndjson,
    /// Parquet, compressed with zstd.
    Parquet,
    /// The fullnames only, one per line.
    Ids,
}

/// The destination for a data set.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The file or folder.
    pub path: PathBuf,
    /// The file format; `None` for a folder.
    pub format: Option<DatasetFormat>,
    /// True to replace an existing file or folder.
    pub overwrite: bool,
    /// True to start a CSV with a byte order mark, from which spreadsheets detect UTF-8.
    pub bom: bool,
    /// See [`topicmill_core::spreadsheet_safe`].
    pub safe_csv: bool,
}

/// Further options for an export.
pub struct Terms {
    /// True if a PostgreSQL superuser may run the user's expression.
    pub allow_superuser: bool,
    /// Cancels the export.
    pub stop: tokio_util::sync::CancellationToken,
}

/// Exports the posts that pass `filters`, with the labels from `subject`, to `destination`. `on_rows` receives the
/// number of rows just written.
///
/// # Errors
/// See [`ExportError`]. On an error the destination is unchanged.
pub async fn export(
    store: &Store,
    subject: &Subject,
    filters: &Filters,
    destination: Destination,
    terms: Terms,
    on_rows: impl Fn(u64) + Send + 'static,
) -> Result<Counts, ExportError> {
    let reading = ColumnQuery {
        statement: statement(subject, filters),
        allow_superuser: terms.allow_superuser || filters.expression.is_none(),
        stop: terms.stop.clone(),
    };
    // Only a folder has a data card.
    let facts = match destination.format {
        None => Some(Facts::read(store, subject).await?),
        Some(_) => None,
    };
    let order = write::ExportOrder {
        columns: columns(subject),
        facts,
        to: destination,
    };
    let (into, batches) = batch_channel();
    // Compression is CPU-bound. On a blocking thread, it does not delay signals and overlaps with reading.
    let written = tokio::task::spawn_blocking(move || write::write(batches, &order, &on_rows));
    let read = store.read_columns(reading, into).await;
    let written = written.await.expect("the writer does not panic");
    if terms.stop.is_cancelled() {
        // The writer deletes its temporary file.
        return Err(ExportError::Stopped);
    }
    read?;
    written?.ok_or(ExportError::Stopped)?.rename_into_place()
}
