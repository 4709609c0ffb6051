//! The labelled posts as a data set to hand on: one table in a file, or a folder that `datasets.load_dataset` opens.
//!
//! What enters are a target and filters; what leaves is a file in CSV, NDJSON or Parquet, or a folder of Parquet files
//! with a data card. One statement reads everything, so the rows are of one moment whatever collects, classifies or
//! purges meanwhile, and rows go through in parts, so that any number of them fits into memory. A file gets its name
//! when it is whole: nobody ever sees half of one.

mod card;
mod columns;
mod destination;
mod lines;
mod parquet;
mod row;
mod statement;
mod write;

use std::path::PathBuf;

use crate::domain::Timestamp;
use crate::store::{Inquiry, Store, StoreError, parts};

pub use self::card::Facts;
pub use self::columns::{Column, Kind, columns};
pub use self::destination::{Destination, Format};
pub use self::row::Counts;
pub use self::statement::{Filters, Subject};

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
    /// A value that the database should not hold.
    #[error("export `{fullname}`: its {column} is `{value}`, which is no {kind}")]
    Value {
        /// The post.
        fullname: String,
        /// The column.
        column: String,
        /// What is there.
        value: String,
        /// What should be there.
        kind: &'static str,
    },
    /// A signal came.
    #[error("the export was stopped; nothing was written")]
    Stopped,
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

/// Writes the posts that `filters` let through, under `subject`, to `destination`. `heard` is told how many rows came.
///
/// # Errors
/// See [`ExportError`]. Nothing is left at the destination then but what was there before.
pub async fn export(
    store: &Store,
    subject: &Subject,
    filters: &Filters,
    destination: Destination,
    terms: Terms,
    heard: impl Fn(u64) + Send + 'static,
) -> Result<Counts, ExportError> {
    let inquiry = Inquiry {
        sql: statement::statement(subject, filters),
        limit: None,
        at_most: None,
        patience: None,
        any_user: terms.any_user || filters.expression.is_none(),
        stop: terms.stop.clone(),
    };
    let facts = Facts::of(store, subject, terms.reconciled_at).await?;
    let (into, parts) = parts();
    let columns = columns(&subject.set);
    // Compressing takes a processor; on a thread of its own it keeps nobody from hearing a signal.
    let written = tokio::task::spawn_blocking(move || {
        write::write(parts, &columns, &facts, &destination, &heard)
    });
    let asked = store.ask(inquiry, into).await;
    let written = written.await.expect("the writer does not panic");
    if terms.stop.is_cancelled() {
        // What was written lies in a file without its name, which goes with the writer.
        return Err(ExportError::Stopped);
    }
    asked?;
    written?.into_place()
}
