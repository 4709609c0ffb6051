//! Parses the header row of CSV and detects the delimiter.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::quotes::Quoting;
use crate::bytes::TextReader;
use crate::lines::{fill_buffer, is_damage};
use crate::{TableError, not_utf8};

/// The longest accepted header row.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// Maximum number of columns. More columns suggest that the file is not a table of posts or other text.
pub(super) const MAX_COLUMNS: usize = 10_000;

/// Supported delimiters, the most likely first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Returns true if the text starts with a header row that has a common column name.
pub(crate) fn has_header_row(start: &[u8]) -> bool {
    const KNOWN: [&str; 5] = ["text", "title", "id", "label", "body"];
    let line = first_line(start);
    let delimiter = char::from(detect_delimiter(line));
    let line = String::from_utf8_lossy(line);
    let is_known = |name: &str| KNOWN.iter().any(|known| name.eq_ignore_ascii_case(known));
    let mut names = line.split(delimiter).map(str::trim);
    line.contains(delimiter) && names.any(|name| is_known(unquoted(name).unwrap_or(name)))
}

/// Returns the text between quotes; `None` unless both are there.
fn unquoted(name: &str) -> Option<&str> {
    name.strip_prefix('"')?.strip_suffix('"')
}

/// Returns true if the first line is prose (has spaces and no delimiter), rather than a header row.
pub(crate) fn is_prose(start: &[u8]) -> bool {
    let line = first_line(start).trim_ascii();
    let has_space = line.contains(&b' ');
    has_space && !line.starts_with(b"\"") && !line.iter().any(|byte| DELIMITERS.contains(byte))
}

fn first_line(start: &[u8]) -> &[u8] {
    let line = start.split(|byte| matches!(byte, b'\n' | b'\r')).next();
    line.unwrap_or_default()
}

/// Converts an error from the CSV library.
pub(super) fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

pub(super) fn header_error(error: io::Error) -> TableError {
    if is_damage(&error) {
        TableError::Header(format!("the header row: {error}"))
    } else {
        error.into()
    }
}

/// Tracks quoted names in a header row whose delimiter may not be known yet.
#[derive(Default)]
struct NameQuotes {
    quoting: Quoting,
    last: Option<u8>,
}

impl NameQuotes {
    /// Processes the next byte; returns true inside a quoted name. Each of `delimiters` may end a name.
    fn push(&mut self, byte: u8, delimiters: &[u8]) -> bool {
        let ends_name = |byte| matches!(byte, b'\n' | b'\r') || delimiters.contains(&byte);
        let starts_name = self.last.is_none_or(ends_name);
        self.quoting = self.quoting.after(byte, starts_name);
        self.last = Some(byte);
        self.quoting == Quoting::Quoted
    }
}

/// Reads the first non-blank line, up to a line end outside quotes. Returns its bytes and the number of lines before
/// it. `delimiter` is `None` if it is not known yet.
pub(super) fn read_header(
    text: &mut TextReader,
    delimiter: Option<u8>,
) -> Result<(Vec<u8>, u64), TableError> {
    let (mut header, mut blank_lines) = (Vec::new(), 0);
    let known = delimiter.as_ref().map(std::slice::from_ref);
    let delimiters = known.unwrap_or(&DELIMITERS);
    let mut quotes = NameQuotes::default();
    loop {
        let chunk = fill_buffer(text).map_err(header_error)?;
        if chunk.is_empty() {
            break;
        }
        let end = chunk.iter().position(|byte| {
            let is_quoted = quotes.push(*byte, delimiters);
            !is_quoted && matches!(byte, b'\n' | b'\r')
        });
        let taken = end.map_or(chunk.len(), |end| end + 1);
        header.extend_from_slice(&chunk[..taken]);
        text.consume(taken);
        if end.is_some() && header.trim_ascii().is_empty() {
            blank_lines += u64::from(header.ends_with(b"\n"));
            header.clear();
        } else if end.is_some() {
            break;
        }
        if header.len() > MAX_HEADER_BYTES {
            let mib = MAX_HEADER_BYTES >> 20;
            let why = format!("its header row is longer than {mib} MiB: it is not a table");
            return Err(TableError::Header(why));
        }
    }
    Ok((header, blank_lines))
}

/// Returns the most frequent delimiter in the header row, outside quotes.
pub(super) fn detect_delimiter(header: &[u8]) -> u8 {
    let mut counts = [0_usize; DELIMITERS.len()];
    let mut quotes = NameQuotes::default();
    for byte in header {
        let is_quoted = quotes.push(*byte, &DELIMITERS);
        if !is_quoted && let Some(index) = DELIMITERS.iter().position(|known| known == byte) {
            counts[index] += 1;
        }
    }
    // The order is reversed because `max_by_key` returns the last of several equal elements, which should be the comma.
    let indices = (0..DELIMITERS.len()).rev();
    let best = indices.max_by_key(|index| counts[*index]);
    DELIMITERS[best.expect("there are delimiters")]
}

/// The columns that a header row names.
pub(super) struct HeaderColumns {
    /// Trimmed, unique names. Empty and duplicate names get numbers.
    pub(super) names: Vec<Arc<str>>,
    /// The names that occur more than once.
    pub(super) repeated: Vec<String>,
}

/// Returns the columns that a parsed header row names.
pub(super) fn header_columns(header: &csv::ByteRecord) -> Result<HeaderColumns, TableError> {
    if header.len() > MAX_COLUMNS {
        let many =
            format!("its header row has more than {MAX_COLUMNS} columns: is it a header row?");
        return Err(TableError::Header(many));
    }
    let (mut names, mut repeated) = (Vec::new(), Vec::new());
    // The number of columns with each name, so that many equal names take no longer than different ones.
    let mut used: HashMap<String, usize> = HashMap::new();
    for (index, bytes) in header.iter().enumerate() {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| TableError::Header(format!("its header row {}", not_utf8(""))))?;
        let name = match text.trim() {
            "" => format!("column_{}", index + 1),
            name => name.to_owned(),
        };
        let mut unique = name.clone();
        while used.contains_key(&unique) {
            let columns = used.entry(name.clone()).or_default();
            *columns += 1;
            unique = format!("{name}_{columns}");
        }
        used.insert(unique.clone(), 1);
        if unique != name {
            repeated.push(name);
        }
        names.push(unique.into());
    }
    Ok(HeaderColumns { names, repeated })
}
