//! Writes rows to a temporary file or folder, and renames it into place when it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use tempfile::{NamedTempFile, TempDir};

use super::card::{self, Facts};
use super::counts::{Counts, SplitPart, WHOLE};
use super::file::DatasetFile;
use super::folder;
use super::split::{self, Assigned, Splitter};
use super::{DatasetColumn, Destination, ExportError};
use crate::atomic_file::{self, IfExists};
use topicmill_store::{BatchReceiver, ColumnBatch};

/// Approximate number of rows in each file in a folder: a few hundred megabytes of posts. A batch is never divided.
const ROWS_PER_FILE: u64 = 500_000;

/// A request to export: the columns, the facts for the card, and the destination.
pub(super) struct Order {
    pub columns: Vec<DatasetColumn>,
    pub facts: Facts,
    pub to: Destination,
}

/// A complete data set that has not been renamed into place yet.
pub(super) struct FinishedDataset {
    counts: Counts,
    made: TempOutput,
    destination: Destination,
}

enum TempOutput {
    File(NamedTempFile),
    Folder(TempDir),
}

/// The open files: a single file, or a folder's files for each part.
struct Files<'o> {
    order: &'o Order,
    made: TempOutput,
    parts: Vec<PartFiles>,
}

/// The files for a part.
struct PartFiles {
    name: &'static str,
    sink: Option<DatasetFile>,
    files: u64,
    /// Rows in the current file.
    rows: u64,
}

impl<'o> Files<'o> {
    fn new(order: &'o Order) -> io::Result<Self> {
        let made = TempOutput::new(&order.to)?;
        let names: Vec<&str> = match (&made, &order.to.split) {
            (TempOutput::Folder(_), Some(split)) => {
                split.parts().into_iter().map(|(name, _)| name).collect()
            }
            _ => vec![WHOLE],
        };
        let part = |name| PartFiles {
            name,
            sink: None,
            files: 0,
            rows: 0,
        };
        Ok(Self {
            order,
            made,
            parts: names.into_iter().map(part).collect(),
        })
    }

    /// Writes rows to a part.
    fn add(&mut self, part: usize, batch: ColumnBatch) -> io::Result<()> {
        let part = &mut self.parts[part];
        if part.rows >= ROWS_PER_FILE && matches!(self.made, TempOutput::Folder(_)) {
            part.sink.take().map_or(Ok(()), DatasetFile::end)?;
            part.rows = 0;
        }
        if part.sink.is_none() {
            let file = self.made.file(part.name, part.files)?;
            part.files += 1;
            part.sink = Some(DatasetFile::new(file, &self.order.columns, &self.order.to)?);
        }
        part.rows += batch.rows as u64;
        let sink = part.sink.as_mut().expect("made above");
        sink.add(batch)
    }

    /// Closes all files, and renames a folder's files as `datasets` expects. `none` is a batch without rows.
    fn end(mut self, none: &ColumnBatch) -> io::Result<TempOutput> {
        if self.parts.iter().all(|part| part.files == 0) {
            // If there are no rows, an empty table is written.
            self.add(0, none.clone())?;
        }
        // `datasets` cannot load an empty split, so an empty part has no file.
        for part in &mut self.parts {
            part.sink.take().map_or(Ok(()), DatasetFile::end)?;
            if let TempOutput::Folder(folder) = &self.made {
                let (name, files) = (part.name, part.files);
                for file in 0..files {
                    let named = format!("data/{name}-{file:05}-of-{files:05}.parquet");
                    let folder = folder.path();
                    fs::rename(folder.join(temp_name(name, file)), folder.join(named))?;
                }
            }
        }
        Ok(self.made)
    }
}

/// Returns the name of a file while the number of files is unknown.
fn temp_name(part: &str, number: u64) -> String {
    format!("data/{part}-{number:05}.parquet")
}

/// Writes all batches. For a split, all rows arrive twice, first with only the columns that decide the parts.
pub(super) fn write(
    mut batches: BatchReceiver,
    order: &Order,
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
    let mut splitter = to.split.is_some().then(Splitter::new);
    let mut assigned: Option<Assigned> = None;
    let mut last = None;
    while let Some(batch) = batches.next_batch()? {
        if let Some(splitter) = &mut splitter
            && batch.statement == 0
        {
            splitter.add(&batch);
            continue;
        }
        if let (Some(splitter), Some(split)) = (splitter.take(), &to.split) {
            let decided = splitter.assign(split);
            counts.groups = Some(decided.groups);
            counts.parts = split.parts().into_iter().map(SplitPart::new).collect();
            assigned = Some(decided);
        }
        let rows = batch.rows as u64;
        last = Some(batch.filter(&[]));
        let begin = usize::try_from(counts.rows).unwrap_or(usize::MAX);
        let parts = match &assigned {
            None => None,
            Some(all) => Some(
                all.batch_parts(begin, &batch)
                    .ok_or(ExportError::Unrepeatable)?,
            ),
        };
        counts.add(&batch, |row| {
            parts.map_or(0, |parts| usize::from(parts[row]))
        });
        files.write_batch(batch, parts).map_err(failed)?;
        on_rows(rows);
    }
    // The second read returned fewer rows than the first.
    if assigned.is_some_and(|all| all.parts.len() as u64 != counts.rows) {
        return Err(ExportError::Unrepeatable);
    }
    // A failed statement sends no batch; a result without rows sends an empty batch.
    let Some(none) = last else {
        return Ok(None);
    };
    finish(files, &none, counts).map(Some).map_err(failed)
}

/// Closes all files and, in a folder, writes the data card.
fn finish(files: Files<'_>, none: &ColumnBatch, mut counts: Counts) -> io::Result<FinishedDataset> {
    let order = files.order;
    let made = files.end(none)?;
    if let TempOutput::Folder(made) = &made {
        let text = card::text(&counts, &order.columns, &order.facts);
        let mut file = File::create_new(made.path().join("README.md"))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
    }
    counts.bytes = made.bytes()?;
    Ok(FinishedDataset {
        counts,
        made,
        destination: order.to.clone(),
    })
}

impl Files<'_> {
    /// Writes rows to their parts: separate files in a folder, or a column in a file.
    fn write_batch(&mut self, mut batch: ColumnBatch, parts: Option<&[u8]>) -> io::Result<()> {
        let (Some(parts), Some(split)) = (parts, &self.order.to.split) else {
            return self.add(0, batch);
        };
        if matches!(self.made, TempOutput::File(_)) {
            batch.columns.push(split::column(parts, split));
            return self.add(0, batch);
        }
        for part in 0..self.parts.len() {
            let wanted: Vec<bool> = parts.iter().map(|p| usize::from(*p) == part).collect();
            let picked = batch.filter(&wanted);
            if picked.rows > 0 {
                self.add(part, picked)?;
            }
        }
        Ok(())
    }
}

impl TempOutput {
    /// Creates a temporary file or folder next to the destination, on the same file system.
    fn new(to: &Destination) -> io::Result<Self> {
        if to.format.is_some() {
            return atomic_file::temp_file(&to.path).map(Self::File);
        }
        let made = folder::temp_folder(&to.path)?;
        fs::create_dir(made.path().join("data"))?;
        Ok(Self::Folder(made))
    }

    fn file(&self, part: &str, number: u64) -> io::Result<File> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Folder(folder) => File::create_new(folder.path().join(temp_name(part, number))),
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
            made,
            destination: Destination {
                path, overwrite, ..
            },
        } = self;
        let placed = match made {
            TempOutput::File(file) => {
                atomic_file::persist(file, &path, IfExists::from_overwrite(overwrite))
            }
            TempOutput::Folder(folder) => persist_folder(&folder, &path, overwrite),
        };
        placed.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => ExportError::Exists(path),
            _ => ExportError::Write { path, source },
        })?;
        Ok(counts)
    }
}

fn persist_folder(made: &TempDir, path: &Path, overwrite: bool) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        if !overwrite {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !card::is_export(path) {
            return Err(io::Error::other(
                "it is not a data set made by `export`, and was not replaced; remove it, or choose a different folder",
            ));
        }
        if let Some(foreign_file) = card::foreign_file(path)? {
            let foreign_file = foreign_file.display();
            return Err(io::Error::other(format!(
                "`{foreign_file}` is not part of the data set; the folder was not replaced: move the file away, or \
                 choose a different folder"
            )));
        }
    }
    folder::persist(made, path, IfExists::from_overwrite(overwrite))
}
