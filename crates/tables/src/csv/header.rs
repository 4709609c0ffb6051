//! The line of names of CSV, and what stands between values.

use std::io;
use std::sync::Arc;

use crate::bytes::TextReader;
use crate::lines::{fill_buffer, is_damage};
use crate::{NOT_UTF8, TableError};

/// A line of names above this is none.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// A table of more columns is none of posts or texts.
pub(super) const MAX_COLUMNS: usize = 10_000;

/// What stands between values, the detect_delimiter first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Whether a text that begins so has a line of names, of which one is a name that tables of texts have.
pub(crate) fn has_names(start: &[u8]) -> bool {
    const KNOWN: [&[u8]; 5] = [b"text", b"title", b"id", b"label", b"body"];
    let line = first_line(start);
    let names = line.split(|byte| *byte == detect_delimiter(line));
    let names: Vec<&[u8]> = names.map(|name| unquoted(name.trim_ascii())).collect();
    let is_known = |name: &&[u8]| KNOWN.iter().any(|known| name.eq_ignore_ascii_case(known));
    names.len() > 1 && names.iter().any(is_known)
}

/// Whether a text that begins so has words on its first line, and no values: a text and not the name of a column.
pub(crate) fn is_prose(start: &[u8]) -> bool {
    let line = first_line(start).trim_ascii();
    let has_space = line.contains(&b' ');
    has_space && !line.starts_with(b"\"") && !line.iter().any(|byte| DELIMITERS.contains(byte))
}

fn unquoted(name: &[u8]) -> &[u8] {
    let inner = name
        .strip_prefix(b"\"")
        .and_then(|name| name.strip_suffix(b"\""));
    inner.unwrap_or(name)
}

fn first_line(start: &[u8]) -> &[u8] {
    let line = start.split(|byte| matches!(byte, b'\n' | b'\r')).next();
    line.unwrap_or_default()
}

/// An error of the library that reads.
pub(super) fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

pub(super) fn header_error(error: io::Error) -> TableError {
    if is_damage(&error) {
        TableError::Header(format!("the line of names: {error}"))
    } else {
        error.into()
    }
}

/// The bytes of the first line that is not blank, up to its end outside of quotes, and how many lines come before it.
pub(super) fn read_header(text: &mut TextReader) -> Result<(Vec<u8>, u64), TableError> {
    let (mut header, mut quoted, mut passed) = (Vec::new(), false, 0);
    loop {
        let chunk = fill_buffer(text).map_err(header_error)?;
        if chunk.is_empty() {
            break;
        }
        let ends = |byte: &u8| {
            quoted ^= *byte == b'"';
            !quoted && matches!(byte, b'\n' | b'\r')
        };
        let end = chunk.iter().position(ends);
        let used = end.map_or(chunk.len(), |at| at + 1);
        header.extend_from_slice(&chunk[..used]);
        text.consume(used);
        if end.is_some() && header.trim_ascii().is_empty() {
            passed += u64::from(header.ends_with(b"\n"));
            header.clear();
        } else if end.is_some() {
            break;
        }
        if header.len() > MAX_HEADER_BYTES {
            let most = MAX_HEADER_BYTES >> 20;
            let why = format!("its line of names is longer than {most} MiB: it is no table");
            return Err(TableError::Header(why));
        }
    }
    Ok((header, passed))
}

/// The delimiter that a line of names has most often outside of quotes.
pub(super) fn detect_delimiter(header: &[u8]) -> u8 {
    let mut counts = [0_usize; DELIMITERS.len()];
    let mut quoted = false;
    for byte in header {
        quoted ^= *byte == b'"';
        let found = DELIMITERS.iter().position(|delimiter| delimiter == byte);
        if let Some(at) = found.filter(|_| !quoted) {
            counts[at] += 1;
        }
    }
    // `max_by_key` takes the last of equals; from behind, that is the first of the list, a comma.
    let best = (0..DELIMITERS.len()).rev().max_by_key(|at| counts[*at]);
    DELIMITERS[best.expect("there are some")]
}

/// Names without the blanks around them; what has none gets one, and so does the second of two alike. With them those
/// that come again.
pub(super) fn column_names(
    header: &csv::ByteRecord,
) -> Result<(Vec<Arc<str>>, Vec<String>), TableError> {
    if header.len() > MAX_COLUMNS {
        let many = format!("its line of names has more than {MAX_COLUMNS}: is it one?");
        return Err(TableError::Header(many));
    }
    let mut names: Vec<Arc<str>> = Vec::new();
    let mut repeated = Vec::new();
    for (at, name) in header.iter().enumerate() {
        let name = std::str::from_utf8(name)
            .map_err(|_| TableError::Header(format!("its line of names {NOT_UTF8}")))?;
        let mut name = name.trim().to_owned();
        if name.is_empty() {
            name = format!("column_{}", at + 1);
        }
        let free = unique(&name, |name| names.iter().any(|n| **n == *name));
        if free != name {
            repeated.push(name);
        }
        names.push(free.into());
    }
    Ok((names, repeated))
}

/// A name that is not taken: itself, or with a number behind it.
fn unique(name: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(name) {
        return name.to_owned();
    }
    let mut numbered = (2..).map(|n: usize| format!("{name}_{n}"));
    numbered
        .find(|name| !taken(name))
        .expect("one of all numbers is free")
}
