//! A table of any format, by the ending of its name and by how it begins.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::csv::Csv;
use super::json::{Elements, Lines};
use super::parquet::Parquet;
use super::{Format, Packing, Rows, TableError, bytes};

/// Opens a table, or stdin for `-`; `None` where there is not a byte in it.
///
/// # Errors
/// See [`TableError`].
pub fn open(path: &Path) -> Result<Option<Box<dyn Rows>>, TableError> {
    let (of_name, packing) = Format::of_name(path);
    if of_name == Some(Format::Parquet) {
        if packing != Packing::Plain || bytes::is_stdin(path) {
            return Err(TableError::Seek);
        }
        return parquet(path).map(Some);
    }
    let mut text = bytes::text(bytes::open(path)?)?;
    let start = bytes::beginning(&mut text)?;
    if start.is_empty() {
        return Ok(None);
    }
    if start.starts_with(b"PAR1") {
        return if bytes::is_stdin(path) {
            Err(TableError::Seek)
        } else {
            parquet(path).map(Some)
        };
    }
    // What a text is, it says itself: an array called .ndjson is an array still.
    Ok(Some(match (start[0], of_name) {
        (b'[', _) => Box::new(Elements::new(text)),
        (b'{', _) => Box::new(Lines::new(text)),
        (_, Some(Format::Tsv)) => Box::new(Csv::new(text, Some(b'\t'))?),
        _ => Box::new(Csv::new(text, None)?),
    }))
}

fn parquet(path: &Path) -> Result<Box<dyn Rows>, TableError> {
    let all = |names: &[Arc<str>]| Ok::<_, TableError>((0..names.len()).collect());
    Ok(Box::new(Parquet::new(File::open(path)?, all)?))
}
