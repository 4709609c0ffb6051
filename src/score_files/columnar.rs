//! Converts JSON lines to Parquet columns.
//!
//! If all inputs are Parquet files with the same schema, their columns are copied and only the new ones are written.
//! Otherwise, the type of each column is inferred from the JSON: string, integer, number or boolean. Mixed columns
//! become strings, and so do numbers that a double cannot represent.

mod column;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

pub(super) use self::column::{Inferred, OutputColumn};
use super::json_lines::{lines_of, members, plain};
use super::kept_columns::free_name;
use super::output::OutputLayout;
use super::{FileJob, FilesError, write_error};
use topicmill_core::{ColumnCell, ColumnCells, ColumnKind};
use topicmill_tables::ParquetFault;
use topicmill_tables::parquet::{ParquetSource, ParquetWriter};

/// Number of rows in a row group, about as many as other writers use.
const GROUP_ROWS: usize = 100_000;

/// Number of bytes of text after which a row group is written early.
const GROUP_BYTES: usize = 64 << 20;

/// Appends a value. Returns the number of bytes of text in it.
fn push(cells: &mut ColumnCells, json: Option<&str>) -> usize {
    let Some(json) = json.filter(|json| *json != "null") else {
        cells.push(ColumnCell::Null);
        return 0;
    };
    let text = plain(json);
    let cell = match cells.kind() {
        ColumnKind::Boolean => ColumnCell::Boolean(json == "true"),
        ColumnKind::Integer => json.parse().map_or(ColumnCell::Null, ColumnCell::Integer),
        ColumnKind::Number => json.parse().map_or(ColumnCell::Null, ColumnCell::Number),
        _ => ColumnCell::Text(&text),
    };
    cells.push(cell);
    match cell {
        ColumnCell::Text(text) => text.len(),
        _ => 0,
    }
}

/// Reads the next rows into columns until `is_full` accepts the number of rows and of bytes of text. Returns the number
/// of rows and the columns.
fn gather(
    columns: &[OutputColumn],
    lines: &mut impl Iterator<Item = io::Result<String>>,
    is_full: impl Fn(usize, usize) -> bool,
) -> io::Result<(usize, Vec<ColumnCells>)> {
    let new = |column: &OutputColumn| ColumnCells::new(column.described().1);
    let mut gathered: Vec<ColumnCells> = columns.iter().map(new).collect();
    let names = columns.iter().map(|column| column.name.as_str());
    let indices: HashMap<&str, usize> = names.zip(0..).collect();
    let (mut rows, mut text_bytes) = (0, 0);
    while !is_full(rows, text_bytes) {
        let Some(line) = lines.next().transpose()? else {
            break;
        };
        let members = members(&line)?;
        let mut values = vec![None; columns.len()];
        for (name, value) in &members.0 {
            if let Some(index) = indices.get(name.as_str()) {
                values[*index] = Some(value.get());
            }
        }
        for (cells, value) in gathered.iter_mut().zip(values) {
            text_bytes += push(cells, value);
        }
        rows += 1;
    }
    Ok((rows, gathered))
}

/// Converts a file of JSON lines.
pub(super) fn write(lines: &File, to: File, columns: &[OutputColumn]) -> io::Result<File> {
    let described = columns.iter().map(OutputColumn::described);
    let mut writer = ParquetWriter::new(BufWriter::new(to), "schema", described, &[])?;
    let mut rows = lines_of(lines)?;
    let is_full = |rows: usize, bytes: usize| rows >= GROUP_ROWS || bytes >= GROUP_BYTES;
    loop {
        let (count, cells) = gather(columns, &mut rows, is_full)?;
        if count == 0 {
            return Ok(writer.finish()?.into_inner()?);
        }
        writer.write_group(cells.into_iter().map(Some))?;
    }
}

fn open(path: &Path) -> Result<ParquetSource, FilesError> {
    ParquetSource::open(path).map_err(|error| FilesError::from_table(path, error))
}

/// Returns true if all files are Parquet with the same columns, so that the columns can be copied.
pub(super) fn have_same_schema(inputs: &[PathBuf]) -> bool {
    let mut sources = inputs.iter().map(|input| open(input));
    let Some(Ok(first)) = sources.next() else {
        return false;
    };
    sources.all(|other| other.is_ok_and(|other| other.has_same_schema(&first)))
}

/// Writes the added columns next to the columns copied from the inputs.
pub(super) fn write_next_to_copies(
    lines: &File,
    to: File,
    layout: &OutputLayout,
    job: &FileJob,
) -> Result<File, FilesError> {
    let failed = write_error(&job.output);
    let first = open(&job.inputs[0])?;
    // If the inputs have no id column, each line starts with its row number.
    let is_numbered = match lines_of(lines).map_err(&failed)?.next() {
        Some(Ok(line)) => line.starts_with("{\"id\":"),
        _ => false,
    };
    let mut names = layout.added();
    let mut reserved = layout.reserved();
    if is_numbered {
        names.insert(0, "id".to_owned());
        reserved.push("id".to_owned());
    }
    let added: Vec<OutputColumn> = names.into_iter().map(OutputColumn::added).collect();
    let is_ours = |name: &str| reserved.iter().any(|ours| ours == name);
    let is_theirs = |name: &str| first.names().any(|theirs| theirs == name);
    let free = |name: &str| free_name(name, is_ours, is_theirs);
    let described = added.iter().map(OutputColumn::described);
    let mut writer =
        ParquetWriter::with_source(BufWriter::new(to), &first, free, described).map_err(&failed)?;
    let mut rows = lines_of(lines).map_err(&failed)?;
    for input in &job.inputs {
        let source = open(input)?;
        for (group, count) in source.group_rows().enumerate() {
            let damaged = |why| FilesError::from_table(input, ParquetFault::damaged(why).into());
            let count = usize::try_from(count).map_err(|_| damaged("no rows"))?;
            let is_full = |rows: usize, _: usize| rows == count;
            let (filled, cells) = gather(&added, &mut rows, is_full).map_err(&failed)?;
            if filled != count {
                return Err(damaged("it has fewer rows than its metadata states"));
            }
            let copied = writer.copy_group(&source, group, cells.into_iter());
            copied.map_err(&failed)?;
        }
    }
    let out = writer.finish().map_err(&failed)?;
    out.into_inner().map_err(|error| failed(error.into_error()))
}
