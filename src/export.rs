//! The labelled posts as a data set to hand on: one table in a file, or a folder that `datasets.load_dataset` opens.
//!
//! Reads the posts of a target that filters let through, and writes a file in CSV, NDJSON or Parquet, or a folder of Parquet
//! files with a data card. One transaction reads everything, so the rows are of one moment whatever collects, classifies or
//! purges meanwhile, and rows go through in batches, so that any number of them fits into memory. A file gets its name
//! when it is whole: nobody ever sees half of one.

mod card;
mod columns;
mod counts;
mod file;
mod folder;
mod parquet;
mod split;
mod write;

use std::path::PathBuf;

use self::columns::{SelectedColumns, statement};
use topicmill_core::{FailureKind, Timestamp};
use topicmill_score::LabelSet;
use topicmill_store::{ColumnReading, Store, StoreError, Target, batches};

use self::card::Facts;
use self::columns::{DatasetColumn, columns};
pub use self::counts::Counts;
pub use self::split::{BYTES_PER_POST, Shares, Split, SplitBy};

/// Why nothing was exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The database, or what `--where` says.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is something where the data set should go.
    #[error("`{0}` exists already: give another name, or replace it with --overwrite")]
    Exists(PathBuf),
    /// It can be neither written nor put into place.
    #[error("write `{path}`: {source}; nothing was put there")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The rows came twice, and were not the same.
    #[error(
        "--split reads the posts twice, and --where let others through the second time: leave random() and the present time \
         out of it"
    )]
    Unrepeatable,
    /// A signal came.
    #[error("the export was stopped; nothing was written")]
    Stopped,
}

impl ExportError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Exists(_) | Self::Unrepeatable => FailureKind::Usage,
            Self::Write { .. } | Self::Stopped => FailureKind::Unfinished,
        }
    }
}

/// Under which model and label set posts are exported.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// The rows of both.
    pub target: Target,
    /// The label set.
    pub set: LabelSet,
}

/// Which posts are exported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filters {
    /// Slugs: posts with one of these labels, unless there are none.
    pub labels: Vec<String>,
    /// Posted at this time or later.
    pub since: Option<Timestamp>,
    /// Posted before this time.
    pub until: Option<Timestamp>,
    /// The best label has this score or a higher one.
    pub min_score: Option<f64>,
    /// Posts without a label, too.
    pub unlabelled: bool,
    /// An expression over the columns of the data set, as the user wrote it.
    pub expression: Option<String>,
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatasetFormat {
    /// One row a line, with a line of names.
    Csv,
    /// One JSON object a line.
    Ndjson,
    /// Parquet, compressed with zstd.
    Parquet,
    /// The fullnames of the posts alone, one a line.
    Ids,
}

/// Where a data set goes.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The file or folder.
    pub path: PathBuf,
    /// The format of a file; `None` makes a folder.
    pub format: Option<DatasetFormat>,
    /// Replace what is there.
    pub overwrite: bool,
    /// Begin a CSV with a byte order mark, by which spreadsheets see that it is UTF-8.
    pub bom: bool,
    /// See [`topicmill_core::spreadsheet_safe`].
    pub safe_csv: bool,
    /// Into parts: files of a folder, a column of a file.
    pub split: Option<Split>,
}

/// How the statement is run.
pub struct Terms {
    /// Whether a superuser of PostgreSQL is good enough to run the user's expression.
    pub any_user: bool,
    /// When Reddit was last asked about every stored post, for the data card.
    pub reconciled_at: Option<Timestamp>,
    /// Ends the export.
    pub stop: tokio_util::sync::CancellationToken,
}

/// Writes the posts that `filters` let through, under `subject`, to `destination`. `on_rows` is told how many rows came.
///
/// # Errors
/// See [`ExportError`]. Nothing is left at the destination then but what was there before.
pub async fn export(
    store: &Store,
    subject: &Subject,
    filters: &Filters,
    destination: Destination,
    terms: Terms,
    on_rows: impl Fn(u64) + Send + 'static,
) -> Result<Counts, ExportError> {
    let mut statements = Vec::new();
    if destination.split.is_some() {
        statements.push(statement(subject, filters, SelectedColumns::ForSplit));
    }
    statements.push(statement(subject, filters, SelectedColumns::All));
    let reading = ColumnReading {
        statements,
        any_user: terms.any_user || filters.expression.is_none(),
        stop: terms.stop.clone(),
    };
    let is_split = destination.split.is_some() && destination.format.is_some();
    let order = write::Order {
        columns: columns(&subject.set, is_split),
        facts: Facts::of(store, subject, terms.reconciled_at).await?,
        to: destination,
    };
    let (into, batches) = batches();
    // Compressing takes a processor; on a thread of its own it keeps nobody from hearing a signal, and rows are read
    // meanwhile.
    let written = tokio::task::spawn_blocking(move || write::write(batches, &order, &on_rows));
    let asked = store.read(reading, into).await;
    let written = written.await.expect("the writer does not panic");
    if terms.stop.is_cancelled() {
        // What was written lies in a file without its name, which goes with the writer.
        return Err(ExportError::Stopped);
    }
    asked?;
    let whole = written?.ok_or(ExportError::Stopped)?;
    whole.rename_into_place()
}
