//! Lines of JSON into CSV, TSV, a JSON array, and packed files.
//!
//! What enters are the lines that a run wrote, one a row; what leaves is the output in its format. The lines come
//! first because only they can be gone on with after a run was killed, and because the columns of JSON are known only
//! at its end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::columnar::{self, Column, Kind};
use super::output::Shape;
use super::stream::{Stream, kept_lines_of, members};
use super::{FilesError, write_error};
use crate::tables::{Format, Packing};

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
    let write = |out: &mut dyn Write| -> Result<(), FilesError> {
        let mut out = Stream::new(out, shape, || {
            let columns = columns_of(lines, shape)?;
            Ok(columns.into_iter().map(|column| column.name).collect())
        })?;
        for line in kept_lines_of(lines)? {
            out.write(&line.map_err(&failed)?).map_err(&failed)?;
        }
        out.finish().map_err(&failed)
    };
    match shape.packing {
        Packing::Plain => {
            let mut out = BufWriter::new(to);
            write(&mut out)?;
            out.into_inner().map_err(|error| failed(error.into_error()))
        }
        Packing::Gzip => {
            let mut out = flate2::write::GzEncoder::new(to, flate2::Compression::default());
            write(&mut BufWriter::new(&mut out))?;
            out.finish().map_err(&failed)
        }
        Packing::Zstd => {
            let mut out = zstd::Encoder::new(to, 0).map_err(&failed)?;
            write(&mut BufWriter::new(&mut out))?;
            out.finish().map_err(&failed)
        }
    }
}

/// The columns of all lines: the input's in the order in which they first come, then ours.
fn columns_of(lines: &Path, shape: &Shape) -> Result<Vec<Column>, FilesError> {
    let failed = write_error(lines);
    let added = shape.added();
    let mut columns: Vec<Column> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for line in kept_lines_of(lines)? {
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
