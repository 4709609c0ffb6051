//! Rows into a file or a folder, which gets its name when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use tempfile::{NamedTempFile, TempDir};
use tokio::sync::mpsc::Receiver;

use super::ExportError;
use super::card::{self, Facts};
use super::columns::Column;
use super::destination::{Destination, Format};
use super::lines::Lines;
use super::parquet::ParquetFile;
use super::row::{Cell, Counts, cells};
use crate::store::Part;

/// Rows of a file of a folder: some hundred megabytes of posts.
const ROWS_A_FILE: u64 = 500_000;

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

/// One of the kinds of file that rows go to.
enum Sink {
    Lines(Lines),
    Parquet(Box<ParquetFile>),
}

impl Sink {
    fn new(file: File, format: Format, columns: &[Column], to: &Destination) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(match format {
            Format::Parquet => Self::Parquet(Box::new(ParquetFile::new(file, columns)?)),
            format => Self::Lines(Lines::new(file, format, columns, to.bom, to.safe_csv)?),
        })
    }

    fn add(&mut self, row: Vec<Cell>) -> io::Result<()> {
        match self {
            Self::Lines(lines) => lines.add(&row),
            Self::Parquet(file) => file.add(row),
        }
    }

    /// Writes what is left, to the disk.
    fn end(self) -> io::Result<()> {
        let file = match self {
            Self::Lines(lines) => lines.end()?,
            Self::Parquet(file) => file.end()?,
        };
        file.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()
    }
}

/// Writes all rows that come.
pub(super) fn write(
    mut parts: Receiver<Part>,
    columns: &[Column],
    facts: &Facts,
    to: &Destination,
    heard: &dyn Fn(u64),
) -> Result<Whole, ExportError> {
    let failed = |source| ExportError::Write {
        path: to.path.clone(),
        source,
    };
    if !to.overwrite && to.path.symlink_metadata().is_ok() {
        return Err(ExportError::Exists(to.path.clone()));
    }
    let made = Made::beside(to).map_err(failed)?;
    let mut counts = Counts::default();
    let mut sink: Option<Sink> = None;
    let mut files = 0;
    // A refused statement sends nothing, and an answer without rows its columns.
    let mut answered = false;
    while let Some(part) = parts.blocking_recv() {
        answered = true;
        let Part::Rows(rows) = part else { continue };
        let came = rows.len() as u64;
        for row in rows {
            let row = cells(row, columns)?;
            if counts.rows.is_multiple_of(ROWS_A_FILE) && matches!(made, Made::Folder(_)) {
                end(sink.take()).map_err(failed)?;
            }
            counts.add(&row);
            if sink.is_none() {
                let file = made.file(files).map_err(failed)?;
                files += 1;
                let format = to.format.unwrap_or(Format::Parquet);
                sink = Some(Sink::new(file, format, columns, to).map_err(failed)?);
            }
            let sink = sink.as_mut().expect("made above");
            sink.add(row).map_err(failed)?;
        }
        heard(came);
    }
    if answered && sink.is_none() {
        // No rows make a table without rows, not no table.
        let file = made.file(0).map_err(failed)?;
        let format = to.format.unwrap_or(Format::Parquet);
        sink = Some(Sink::new(file, format, columns, to).map_err(failed)?);
    }
    end(sink).map_err(failed)?;
    if let Made::Folder(folder) = &made {
        let text = card::text(&counts, columns, facts);
        fs::write(folder.path().join("README.md"), text).map_err(failed)?;
    }
    counts.bytes = made.bytes().map_err(failed)?;
    Ok(Whole {
        counts,
        made,
        destination: to.clone(),
    })
}

fn end(sink: Option<Sink>) -> io::Result<()> {
    sink.map_or(Ok(()), Sink::end)
}

impl Made {
    /// Something without a name of its own beside where it is to go: on the same disk, so that a rename puts it there.
    fn beside(to: &Destination) -> io::Result<Self> {
        let name = to.path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let folder = match to.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        let prefix = format!(".{}.", name.to_string_lossy());
        let builder = builder.prefix(&prefix).suffix(".partial");
        if to.format.is_some() {
            return builder.tempfile_in(folder).map(Self::File);
        }
        let made = builder.tempdir_in(folder)?;
        fs::create_dir(made.path().join("data"))?;
        Ok(Self::Folder(made))
    }

    fn file(&self, number: u64) -> io::Result<File> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Folder(folder) => {
                File::create_new(folder.path().join(format!("data/part-{number:05}.parquet")))
            }
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
            Made::File(file) => readable(file.path(), false).and_then(|()| {
                let placed = if overwrite {
                    file.persist(&path)
                } else {
                    file.persist_noclobber(&path)
                };
                placed.map(drop).map_err(|error| error.error)
            }),
            Made::Folder(folder) => place_folder(&folder, &path, overwrite),
        };
        placed.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => ExportError::Exists(path),
            _ => ExportError::Write { path, source },
        })?;
        Ok(counts)
    }
}

/// What was made for us alone becomes as readable as a file that a shell makes.
fn readable(path: &Path, is_folder: bool) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = if is_folder { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    #[cfg(not(unix))]
    let _ = (path, is_folder);
    Ok(())
}

fn place_folder(folder: &TempDir, path: &Path, overwrite: bool) -> io::Result<()> {
    readable(folder.path(), true)?;
    if path.symlink_metadata().is_ok() {
        if !overwrite {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !card::is_ours(path) {
            return Err(io::Error::other(
                "it is no data set that `export` made, and is left as it is; remove it, or give another name",
            ));
        }
        // Two renames: in between there is no data set of this name, but never half of one.
        let old = tempfile::Builder::new().prefix(".old.").tempdir_in(
            path.parent()
                .filter(|p| *p != Path::new(""))
                .unwrap_or(Path::new(".")),
        )?;
        let kept = old.path().join("data-set");
        fs::rename(path, &kept)?;
        return fs::rename(folder.path(), path).inspect_err(|_| {
            // What was there goes back; if not even that works, it is not deleted with the folder it lies in.
            if fs::rename(&kept, path).is_err() {
                drop(old.keep());
            }
        });
    }
    fs::rename(folder.path(), path)
}
