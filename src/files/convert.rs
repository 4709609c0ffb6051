//! Converts the lines of JSON that a run wrote into the output's format, or packs them.
//!
//! The lines come first because only they can be continued after a run was killed, and because the columns of JSON are
//! known only at its end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::columnar::{self, Column, Kind};
use super::output::{Shape, lines_of, members, plain};
use super::{FilesError, write_error};
use topicmill_tables::{Format, Packing};

/// Makes the output of the lines in a file. `inputs`: where its columns are copied from, if they are.
pub(super) fn convert(
    lines: &Path,
    to: File,
    shape: &Shape,
    inputs: &[PathBuf],
) -> Result<File, FilesError> {
    let failed = write_error(lines);
    if shape.format == Format::Parquet {
        return if shape.is_copied() {
            columnar::beside_copies(lines, to, shape, inputs)
        } else {
            columnar::write(lines, to, &columns_of(lines, shape)?)
        };
    }
    match shape.packing {
        // `output::check` rejects the names of the last two.
        Packing::Plain | Packing::Bzip2 | Packing::Xz => {
            let mut out = BufWriter::new(to);
            write(lines, shape, &mut out)?;
            out.into_inner().map_err(|error| failed(error.into_error()))
        }
        Packing::Gzip => {
            let mut out = flate2::write::GzEncoder::new(to, flate2::Compression::default());
            write(lines, shape, &mut BufWriter::new(&mut out))?;
            out.finish().map_err(&failed)
        }
        Packing::Zstd => {
            let mut out = zstd::Encoder::new(to, 0).map_err(&failed)?;
            write(lines, shape, &mut BufWriter::new(&mut out))?;
            out.finish().map_err(&failed)
        }
    }
}

/// Writes lines as text: NDJSON, a JSON array, CSV or TSV.
fn write(lines: &Path, shape: &Shape, out: &mut dyn Write) -> Result<(), FilesError> {
    let failed = write_error(lines);
    if matches!(shape.format, Format::Csv | Format::Tsv) {
        let columns = columns_of(lines, shape)?;
        return write_table(lines, &columns, shape.delimiter, out).map_err(failed);
    }
    let mut written = || -> io::Result<()> {
        let is_array = shape.format == Format::Json;
        let mut before = if is_array { "[\n" } else { "" };
        for line in lines_of(lines)? {
            write!(out, "{before}{}", line?)?;
            before = if is_array { ",\n" } else { "\n" };
        }
        out.write_all(if is_array { b"\n]\n" } else { b"\n" })?;
        out.flush()
    };
    written().map_err(failed)
}

fn write_table(
    lines: &Path,
    columns: &[Column],
    delimiter: u8,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = csv::WriterBuilder::new()
        .delimiter(delimiter)
        .from_writer(out);
    writer.write_record(columns.iter().map(|column| &column.name))?;
    let places: HashMap<&str, usize> = columns
        .iter()
        .enumerate()
        .map(|(place, column)| (&*column.name, place))
        .collect();
    let mut values = vec![String::new(); columns.len()];
    for line in lines_of(lines)? {
        values.iter_mut().for_each(String::clear);
        for (name, value) in members(&line?)?.0 {
            values[places[&*name]] = plain(value.get());
        }
        writer.write_record(&values)?;
    }
    writer.flush()
}

/// The columns of all lines: the input's in the order in which they first come, then ours.
fn columns_of(lines: &Path, shape: &Shape) -> Result<Vec<Column>, FilesError> {
    let failed = write_error(lines);
    let added = shape.added();
    let mut columns: Vec<Column> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for line in lines_of(lines).map_err(&failed)? {
        for (name, value) in members(&line.map_err(&failed)?).map_err(&failed)?.0 {
            let kind = Kind::of(value.get());
            match places.get(&name) {
                Some(place) => columns[*place].meets(kind),
                // Ours come last, in one order, whatever the first row happens to have.
                None if added.contains(&name) => {}
                None => {
                    places.insert(name.clone(), columns.len());
                    columns.push(Column::new(name, kind));
                }
            }
        }
    }
    columns.extend(added.into_iter().map(Column::added));
    Ok(columns)
}
