//! Rows into a file or a folder, which gets its name when it is whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};
use tokio::sync::mpsc::Receiver;

use super::ExportError;
use super::card::{self, Facts};
use super::columns::{Column, FIXED, Kind};
use super::lines::Lines;
use super::parquet::ParquetFile;
use crate::store::Part;

/// Rows of a file of a folder: some hundred megabytes of posts.
const ROWS_A_FILE: u64 = 500_000;
/// Places of columns that the counts need.
const FULLNAME: usize = 0;
const TOPIC: usize = 2;
const CREATED_AT: usize = 7;
const LABEL: usize = 11;
const ABSTAINED: usize = 14;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
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
    pub format: Option<Format>,
    /// Replace what is there.
    pub overwrite: bool,
    /// Begin a CSV with a byte order mark, by which spreadsheets see that it is UTF-8.
    pub bom: bool,
    /// See [`crate::domain::spreadsheet_safe`].
    pub safe_csv: bool,
}

/// A value of a row in its column's type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Text(String),
    Integer(i64),
    Number(f64),
    Boolean(bool),
    Time(DateTime<Utc>),
}

/// What was exported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Rows.
    pub rows: u64,
    /// Rows for which the model abstained.
    pub abstained: u64,
    /// Rows without a label, because they were not labelled yet.
    pub unlabelled: u64,
    /// Rows of each label.
    pub labels: BTreeMap<String, u64>,
    /// Rows of each topic.
    pub topics: BTreeMap<String, u64>,
    /// When the first of the posts was posted.
    pub first: Option<DateTime<Utc>>,
    /// When the last of the posts was posted.
    pub last: Option<DateTime<Utc>>,
    /// Bytes written.
    pub bytes: u64,
}

impl Counts {
    fn add(&mut self, row: &[Cell]) {
        self.rows += 1;
        match (&row[LABEL], &row[ABSTAINED]) {
            (Cell::Text(label), _) => *self.labels.entry(label.clone()).or_default() += 1,
            (_, Cell::Boolean(true)) => self.abstained += 1,
            _ => self.unlabelled += 1,
        }
        if let Cell::Text(topic) = &row[TOPIC] {
            *self.topics.entry(topic.clone()).or_default() += 1;
        }
        if let Cell::Time(at) = row[CREATED_AT] {
            self.first = Some(self.first.map_or(at, |first| first.min(at)));
            self.last = Some(self.last.map_or(at, |last| last.max(at)));
        }
    }
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

/// A row in the types of its columns; the packed scores, its last value, in one cell a label.
fn cells(mut row: Vec<Value>, columns: &[Column]) -> Result<Vec<Cell>, ExportError> {
    let packed = row.pop();
    let wrong = |row: &[Value], column: &Column, value: &Value| ExportError::Value {
        fullname: row[FULLNAME].as_str().unwrap_or_default().to_owned(),
        column: column.name.clone(),
        value: value.to_string(),
        kind: column.kind.name(),
    };
    let mut cells = Vec::with_capacity(columns.len());
    for (i, column) in columns[..FIXED.len()].iter().enumerate() {
        let value = std::mem::take(&mut row[i]);
        match cell(value, column.kind) {
            Ok(cell) => {
                if i == FULLNAME
                    && let Cell::Text(name) = &cell
                {
                    row[FULLNAME] = Value::from(name.as_str());
                }
                cells.push(cell);
            }
            Err(value) => return Err(wrong(&row, column, &value)),
        }
    }
    let packed = packed.unwrap_or_default();
    let text = packed.as_str().unwrap_or_default();
    // `[0.5,0.25]` in SQLite, `{0.5,0.25}` in PostgreSQL.
    let numbers = text.trim_matches(['[', ']', '{', '}']);
    let mut numbers = numbers.split(',').filter(|number| !number.is_empty());
    for column in &columns[FIXED.len()..] {
        cells.push(match numbers.next().map(|number| number.trim().parse()) {
            None => Cell::Null,
            Some(Ok(number)) => Cell::Number(number),
            Some(Err(_)) => return Err(wrong(&row, column, &packed)),
        });
    }
    Ok(cells)
}

/// A value in a column's type; the value again if it has none.
fn cell(value: Value, kind: Kind) -> Result<Cell, Value> {
    let cell = match (kind, &value) {
        (_, Value::Null) => Some(Cell::Null),
        (Kind::Text, Value::String(_)) => match value {
            Value::String(text) => return Ok(Cell::Text(text)),
            _ => unreachable!("matched above"),
        },
        (Kind::Integer, Value::Number(number)) => number.as_i64().map(Cell::Integer),
        (Kind::Number, Value::Number(number)) => number.as_f64().map(Cell::Number),
        (Kind::Boolean, Value::Bool(is)) => Some(Cell::Boolean(*is)),
        // SQLite has no other.
        (Kind::Boolean, Value::Number(number)) => number.as_i64().map(|n| Cell::Boolean(n != 0)),
        (Kind::Time, Value::String(text)) => time(text).map(Cell::Time),
        _ => None,
    };
    cell.ok_or(value)
}

/// A time as SQLite holds it, or as PostgreSQL prints it.
fn time(text: &str) -> Option<DateTime<Utc>> {
    let time = DateTime::parse_from_rfc3339(text)
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"));
    time.ok().map(|time| time.to_utc())
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
            Made::Folder(folder) => place_folder(folder, &path, overwrite),
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

fn place_folder(folder: TempDir, path: &Path, overwrite: bool) -> io::Result<()> {
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
        fs::rename(path, old.path().join("data-set"))?;
    }
    let made = folder.keep();
    fs::rename(&made, path).inspect_err(|_| {
        let _ = fs::remove_dir_all(&made);
    })
}
