//! Writes rows to a temporary file or folder, and renames it into place when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};

use tempfile::{NamedTempFile, TempDir};

use super::card::{self, Facts};
use super::counts::Counts;
use super::file::DatasetFile;
use super::{DatasetColumn, Destination, ExportError, folder};
use crate::atomic_file::{self, IfExists};
use crate::atomic_folder;
use topicmill_store::{BatchReceiver, ColumnBatch};

/// Approximate number of rows in each file in a folder: a few hundred megabytes of posts. A batch is never divided.
const ROWS_PER_FILE: u64 = 500_000;

/// A request to export: the columns, the facts for a folder's card, and the destination.
pub(super) struct ExportOrder {
    pub columns: Vec<DatasetColumn>,
    pub facts: Option<Facts>,
    pub to: Destination,
}

/// A complete data set that has not been renamed into place yet.
pub(super) struct FinishedDataset {
    counts: Counts,
    output: TempOutput,
    destination: Destination,
}

enum TempOutput {
    File(NamedTempFile),
    Folder(TempDir),
}

/// The file that is being written, or the files of a folder.
struct Files<'o> {
    order: &'o ExportOrder,
    output: TempOutput,
    /// The open file: the only one, or the last one of the folder.
    file: Option<DatasetFile>,
    /// Number of files created so far.
    created: u64,
    /// Rows in the open file.
    rows: u64,
}

impl<'o> Files<'o> {
    fn new(order: &'o ExportOrder) -> io::Result<Self> {
        Ok(Self {
            order,
            output: TempOutput::new(&order.to)?,
            file: None,
            created: 0,
            rows: 0,
        })
    }

    /// Writes rows. The first batch opens a file even if it has no rows, so that an empty table is written.
    fn add(&mut self, batch: ColumnBatch) -> io::Result<()> {
        let is_full = self.rows >= ROWS_PER_FILE && batch.rows > 0;
        if is_full && matches!(self.output, TempOutput::Folder(_)) {
            self.file.take().map_or(Ok(()), DatasetFile::end)?;
            self.rows = 0;
        }
        self.rows += batch.rows as u64;
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let file = self.output.create(self.created)?;
                self.created += 1;
                none.insert(DatasetFile::new(file, &self.order.columns, &self.order.to)?)
            }
        };
        file.add(batch)
    }

    /// Closes the file. In a folder, renames the files as `datasets` expects and writes the data card.
    fn end(mut self, mut counts: Counts) -> io::Result<FinishedDataset> {
        self.file.take().map_or(Ok(()), DatasetFile::end)?;
        if let (TempOutput::Folder(folder), Some(facts)) = (&self.output, &self.order.facts) {
            let files = self.created;
            for file in 0..files {
                let named = format!("data/train-{file:05}-of-{files:05}.parquet");
                fs::rename(
                    folder.path().join(temp_name(file)),
                    folder.path().join(named),
                )?;
            }
            let text = card::text(&counts, &self.order.columns, facts);
            let mut file = File::create_new(folder.path().join("README.md"))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
        }
        counts.bytes = self.output.bytes()?;
        Ok(FinishedDataset {
            counts,
            output: self.output,
            destination: self.order.to.clone(),
        })
    }
}

/// Returns the name of a file while the number of files is unknown.
fn temp_name(number: u64) -> String {
    format!("data/{number:05}.parquet")
}

/// Writes all batches. Returns `None` if the statement failed.
pub(super) fn write(
    mut batches: BatchReceiver,
    order: &ExportOrder,
    on_rows: &dyn Fn(u64),
) -> Result<Option<FinishedDataset>, ExportError> {
    let to = &order.to;
    let failed = |source| ExportError::Write {
        path: to.path.clone(),
        source,
    };
    // This is checked before the first row, to fail early; `rename_into_place` checks again.
    if !to.overwrite && to.path.symlink_metadata().is_ok() {
        return Err(ExportError::Exists(to.path.clone()));
    }
    let mut files = Files::new(order).map_err(failed)?;
    let mut counts = Counts::default();
    while let Some(batch) = batches.next_batch()? {
        let rows = batch.rows as u64;
        counts.add(&batch, &order.columns);
        files.add(batch).map_err(failed)?;
        on_rows(rows);
    }
    // A failed statement sends no batch; a result without rows sends an empty batch.
    if files.created == 0 {
        return Ok(None);
    }
    files.end(counts).map(Some).map_err(failed)
}

impl TempOutput {
    /// Creates a temporary file or folder next to the destination, on the same file system.
    fn new(to: &Destination) -> io::Result<Self> {
        if to.format.is_some() {
            return atomic_file::temp_file(&to.path).map(Self::File);
        }
        let folder = atomic_folder::temp_folder(&to.path, 0o777)?;
        fs::create_dir(folder.path().join("data"))?;
        Ok(Self::Folder(folder))
    }

    /// Opens the file, or creates the file with this number in the folder.
    fn create(&self, number: u64) -> io::Result<File> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Folder(folder) => File::create_new(folder.path().join(temp_name(number))),
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.as_file().metadata()?.len()),
            Self::Folder(folder) => {
                let mut bytes = 0;
                for entry in fs::read_dir(folder.path().join("data"))? {
                    bytes += entry?.metadata()?.len();
                }
                Ok(bytes)
            }
        }
    }
}

impl FinishedDataset {
    /// Renames the data set into place.
    pub fn rename_into_place(self) -> Result<Counts, ExportError> {
        let Self {
            counts,
            output,
            destination: Destination {
                path, overwrite, ..
            },
        } = self;
        let if_exists = IfExists::from_overwrite(overwrite);
        let persisted = match output {
            TempOutput::File(file) => atomic_file::persist(file, &path, if_exists),
            TempOutput::Folder(folder) => folder::persist(&folder, &path, if_exists),
        };
        persisted.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => ExportError::Exists(path),
            _ => ExportError::Write { path, source },
        })?;
        Ok(counts)
    }
}
