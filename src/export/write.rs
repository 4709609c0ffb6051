//! Rows into a file or a folder, which gets its name when it is whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use tempfile::{NamedTempFile, TempDir};

use super::card::{self, Facts};
use super::counts::{Counts, SplitPart};
use super::file::DatasetFile;
use super::folder;
use super::split::{self, Assigned, Sorter};
use super::{DatasetColumn, Destination, ExportError};
use crate::placing::{self, Standing};
use topicmill_store::{ColumnBatch, Incoming};

/// Rows of a file of a folder, about: some hundred megabytes of posts. A batch is never divided.
const ROWS_A_FILE: u64 = 500_000;
/// The only part of a folder that is not split, as `datasets` calls it.
const WHOLE: &str = "train";

/// What is written, and where.
pub(super) struct Order {
    pub columns: Vec<DatasetColumn>,
    pub facts: Facts,
    pub to: Destination,
}

/// A data set that is whole, and not in its place yet.
pub(super) struct Whole {
    counts: Counts,
    made: Made,
    destination: Destination,
}

enum Made {
    File(NamedTempFile),
    Folder(TempDir),
}

/// Files of rows: one, or in a folder those of each part.
struct Files<'o> {
    order: &'o Order,
    made: Made,
    parts: Vec<PartFiles>,
}

/// The files of a part.
struct PartFiles {
    name: &'static str,
    sink: Option<DatasetFile>,
    files: u64,
    /// Rows of the file that is being written.
    rows: u64,
}

impl<'o> Files<'o> {
    fn new(order: &'o Order) -> io::Result<Self> {
        let made = Made::beside(&order.to)?;
        let names: Vec<&str> = match (&made, &order.to.split) {
            (Made::Folder(_), Some(split)) => split.shares.parts().map(|(name, _)| name).collect(),
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
        if part.rows >= ROWS_A_FILE && matches!(self.made, Made::Folder(_)) {
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

    /// Ends all files, and gives those of a folder the names that `datasets` looks for.
    fn end(mut self, none: &ColumnBatch) -> io::Result<Made> {
        for i in 0..self.parts.len() {
            if self.parts[i].files == 0 {
                // No rows make a table without rows, not no table.
                self.add(i, none.clone())?;
            }
            let part = &mut self.parts[i];
            part.sink.take().map_or(Ok(()), DatasetFile::end)?;
            if let Made::Folder(folder) = &self.made {
                let (name, files) = (part.name, part.files);
                for file in 0..files {
                    let whole = format!("data/{name}-{file:05}-of-{files:05}.parquet");
                    let folder = folder.path();
                    fs::rename(folder.join(unfinished(name, file)), folder.join(whole))?;
                }
            }
        }
        Ok(self.made)
    }
}

/// A file of a folder whose number of files is not known yet.
fn unfinished(part: &str, number: u64) -> String {
    format!("data/{part}-{number:05}.parquet")
}

/// Writes all rows that come. Those of a split come twice: first what decides their parts.
pub(super) fn write(
    mut batches: Incoming,
    order: &Order,
    heard: &dyn Fn(u64),
) -> Result<Option<Whole>, ExportError> {
    let to = &order.to;
    let failed = |source| ExportError::Write {
        path: to.path.clone(),
        source,
    };
    // Before the first row, so that nobody waits an hour for this error. `into_place` looks once more.
    if !to.overwrite && to.path.symlink_metadata().is_ok() {
        return Err(ExportError::Exists(to.path.clone()));
    }
    let mut files = Files::new(order).map_err(failed)?;
    let mut counts = Counts::default();
    let mut sorter = to.split.is_some().then(Sorter::new);
    let mut assigned: Option<Assigned> = None;
    let mut last = None;
    while let Some(batch) = batches.next_batch()? {
        if let Some(sorter) = &mut sorter
            && batch.statement == 0
        {
            sorter.add(&batch);
            continue;
        }
        if let (Some(sorter), Some(split)) = (sorter.take(), &to.split) {
            let decided = sorter.assign(split);
            counts.groups = Some(decided.groups);
            counts.parts = split.shares.parts().map(SplitPart::new).collect();
            assigned = Some(decided);
        }
        let rows = batch.rows as u64;
        last = Some(batch.picked(&[]));
        let begin = usize::try_from(counts.rows).unwrap_or(usize::MAX);
        let parts = match &assigned {
            None => None,
            Some(all) => Some(all.of(begin, &batch).ok_or(ExportError::Unrepeatable)?),
        };
        counts.add(&batch, |row| {
            parts.map_or(0, |parts| usize::from(parts[row]))
        });
        files.put(batch, parts).map_err(failed)?;
        heard(rows);
    }
    // Rows that the first reading had and the second one lacks: the parts would be those of other posts.
    if assigned.is_some_and(|all| all.parts.len() as u64 != counts.rows) {
        return Err(ExportError::Unrepeatable);
    }
    // A refused statement sends nothing, and an answer without rows its columns.
    let Some(none) = last else {
        return Ok(None);
    };
    finish(files, &none, counts).map(Some).map_err(failed)
}

/// Ends all files; a folder gets its card.
fn finish(files: Files<'_>, none: &ColumnBatch, mut counts: Counts) -> io::Result<Whole> {
    let order = files.order;
    let made = files.end(none)?;
    if let Made::Folder(made) = &made {
        let text = card::text(&counts, &order.columns, &order.facts);
        let mut file = File::create_new(made.path().join("README.md"))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
    }
    counts.bytes = made.bytes()?;
    Ok(Whole {
        counts,
        made,
        destination: order.to.clone(),
    })
}

impl Files<'_> {
    /// Writes rows to their parts: files of a folder, a column of a file.
    fn put(&mut self, mut batch: ColumnBatch, parts: Option<&[u8]>) -> io::Result<()> {
        let (Some(parts), Some(split)) = (parts, &self.order.to.split) else {
            return self.add(0, batch);
        };
        if matches!(self.made, Made::File(_)) {
            batch.columns.push(split::column(parts, &split.shares));
            return self.add(0, batch);
        }
        for part in 0..self.parts.len() {
            let wanted: Vec<bool> = parts.iter().map(|p| usize::from(*p) == part).collect();
            let picked = batch.picked(&wanted);
            if picked.rows > 0 {
                self.add(part, picked)?;
            }
        }
        Ok(())
    }
}

impl Made {
    /// Something without a name of its own beside where it is to go: on the same disk, so that a rename puts it there.
    fn beside(to: &Destination) -> io::Result<Self> {
        if to.format.is_some() {
            return placing::beside(&to.path).map(Self::File);
        }
        let made = folder::beside(&to.path)?;
        fs::create_dir(made.path().join("data"))?;
        Ok(Self::Folder(made))
    }

    fn file(&self, part: &str, number: u64) -> io::Result<File> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Folder(folder) => File::create_new(folder.path().join(unfinished(part, number))),
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

impl Whole {
    /// Gives it its name.
    pub fn into_place(self) -> Result<Counts, ExportError> {
        let Self {
            counts,
            made,
            destination: Destination {
                path, overwrite, ..
            },
        } = self;
        let placed = match made {
            Made::File(file) => placing::place(file, &path, Standing::by(overwrite)),
            Made::Folder(folder) => place_folder(&folder, &path, overwrite),
        };
        placed.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => ExportError::Exists(path),
            _ => ExportError::Write { path, source },
        })?;
        Ok(counts)
    }
}

fn place_folder(made: &TempDir, path: &Path, overwrite: bool) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        if !overwrite {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !card::is_ours(path) {
            return Err(io::Error::other(
                "it is no data set that `export` made, and is left as it is; remove it, or give another name",
            ));
        }
        if let Some(stranger) = card::stranger(path)? {
            let stranger = stranger.display();
            return Err(io::Error::other(format!(
                "`{stranger}` is no part of the data set, so the folder is left as it is; move it away, or give another name"
            )));
        }
    }
    folder::place(made, path, Standing::by(overwrite))
}
