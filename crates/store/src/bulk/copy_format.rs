//! Writes rows in COPY's binary format, which the server need not parse
//! (<https://www.postgresql.org/docs/current/sql-copy.html>, "Binary Format").
//!
//! The input is columns. The output is a stream in pieces of bounded size, so that the server stores the first rows
//! while the last ones are being encoded.

use chrono::{DateTime, Utc};

use super::Values;

/// Approximate size of a piece in bytes: a small part of a block of rows, so that the server starts early.
const BYTES_AT_ONCE: usize = 128 * 1024;
/// The header of the stream: signature, no flags, no extension.
const HEADER: [u8; 19] = *b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Microseconds between the Unix epoch and 2000-01-01, which is the server's epoch.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
/// Type OID of `float8`.
const FLOAT8: u32 = 701;

/// A COPY stream, encoded piece by piece.
pub(super) struct CopyStream<'a> {
    columns: &'a [(&'static str, Values<'a>)],
    rows: usize,
    next: usize,
    bytes: Vec<u8>,
}

impl<'a> CopyStream<'a> {
    pub(super) fn new(columns: &'a [(&'static str, Values<'a>)], rows: usize) -> Self {
        Self {
            columns,
            rows,
            next: 0,
            bytes: HEADER.to_vec(),
        }
    }

    /// Returns the next piece; `None` after the last one. Fails for a value that the format cannot represent.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, sqlx::Error> {
        if self.next > self.rows {
            return Ok(None);
        }
        if self.next > 0 {
            self.bytes.clear();
        }
        while self.next < self.rows && self.bytes.len() < BYTES_AT_ONCE {
            let columns = i16::try_from(self.columns.len()).expect("a table has few columns");
            self.bytes.extend(columns.to_be_bytes());
            for (_, values) in self.columns {
                push(&mut self.bytes, values, self.next)?;
            }
            self.next += 1;
        }
        if self.next == self.rows {
            // The trailer of the stream, once.
            self.bytes.extend((-1_i16).to_be_bytes());
            self.next += 1;
        }
        Ok(Some(&self.bytes))
    }
}

/// Writes the length of a value, then the value; NULL has the length -1.
fn push(bytes: &mut Vec<u8>, values: &Values<'_>, row: usize) -> Result<(), sqlx::Error> {
    match values {
        Values::Text(values) => push_bytes(bytes, values[row].map(str::as_bytes)),
        Values::Bytes(values) => push_bytes(bytes, Some(values[row])),
        Values::Integer(values) => push_fixed(bytes, values[row].map(i64::to_be_bytes)),
        Values::Real(values) => push_fixed(bytes, values[row].map(f64::to_be_bytes)),
        Values::Real32(values) => push_fixed(bytes, values[row].map(f32::to_be_bytes)),
        Values::Flag(values) => push_fixed(bytes, values[row].map(|flag| [u8::from(flag)])),
        Values::Time(values) => push_fixed(bytes, values[row].map(micros).map(i64::to_be_bytes)),
        Values::Reals(lists) => {
            let mut list = Vec::with_capacity(20 + 12 * lists[row].len());
            push_array(&mut list, lists[row])?;
            push_bytes(bytes, Some(&list))
        }
    }
}

/// Returns microseconds since the server's epoch. Stored times are in the server's range, which begins in 4713 BC and
/// ends in the year 294,276.
fn micros(time: DateTime<Utc>) -> i64 {
    time.timestamp_micros() - EPOCH_MICROS
}

fn push_fixed<const N: usize>(
    bytes: &mut Vec<u8>,
    value: Option<[u8; N]>,
) -> Result<(), sqlx::Error> {
    push_bytes(bytes, value.as_ref().map(<[u8; N]>::as_slice))
}

fn push_bytes(bytes: &mut Vec<u8>, value: Option<&[u8]>) -> Result<(), sqlx::Error> {
    let Some(value) = value else {
        bytes.extend((-1_i32).to_be_bytes());
        return Ok(());
    };
    bytes.extend(length(value.len())?);
    bytes.extend(value);
    Ok(())
}

/// Writes an array of one dimension without NULLs, with indexes from 1. An empty array has no dimension.
fn push_array(bytes: &mut Vec<u8>, list: &[f64]) -> Result<(), sqlx::Error> {
    bytes.extend(i32::from(!list.is_empty()).to_be_bytes());
    bytes.extend(0_i32.to_be_bytes());
    bytes.extend(FLOAT8.to_be_bytes());
    if !list.is_empty() {
        bytes.extend(length(list.len())?);
        bytes.extend(1_i32.to_be_bytes());
    }
    for number in list {
        push_fixed(bytes, Some(number.to_be_bytes()))?;
    }
    Ok(())
}

fn length(of: usize) -> Result<[u8; 4], sqlx::Error> {
    i32::try_from(of)
        .map(i32::to_be_bytes)
        .map_err(|_| sqlx::Error::Encode("a value is larger than 2 GiB".into()))
}
