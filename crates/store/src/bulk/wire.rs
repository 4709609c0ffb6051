//! Rows in the binary format of COPY, which the server takes without reading a text
//! (<https://www.postgresql.org/docs/current/sql-copy.html>, "Binary Format").
//!
//! The input is columns. The output is pieces of the stream of bounded size, so that the server stores the first rows
//! while the last ones are written.

use chrono::{DateTime, Utc};

use super::Values;

/// Bytes that are handed to the server at once: a small part of a block, so that it begins to store while the rest is
/// written.
const BYTES_AT_ONCE: usize = 128 * 1024;
/// The start of the stream: its signature, no flags, and no header extension.
const HEAD: [u8; 19] = *b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// The server counts times from 2000-01-01, in microseconds.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
/// Type of the numbers of a list, `float8`.
const FLOAT8: u32 = 701;

/// The pieces of the stream, made as they are asked for.
pub(super) struct Pieces<'a> {
    columns: &'a [(&'static str, Values<'a>)],
    rows: usize,
    next: usize,
    bytes: Vec<u8>,
}

impl<'a> Pieces<'a> {
    pub(super) fn of(columns: &'a [(&'static str, Values<'a>)], rows: usize) -> Self {
        Self {
            columns,
            rows,
            next: 0,
            bytes: HEAD.to_vec(),
        }
    }

    /// The next piece, `None` behind the last one. A value that the format cannot hold is an error.
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
            // The end of the stream, once.
            self.bytes.extend((-1_i16).to_be_bytes());
            self.next += 1;
        }
        Ok(Some(&self.bytes))
    }
}

/// A value behind its length; NULL has the length -1.
fn push(bytes: &mut Vec<u8>, values: &Values<'_>, row: usize) -> Result<(), sqlx::Error> {
    match values {
        Values::Text(values) => held(bytes, values[row].map(str::as_bytes)),
        Values::Bytes(values) => held(bytes, Some(values[row])),
        Values::Integer(values) => fixed(bytes, values[row].map(i64::to_be_bytes)),
        Values::Real(values) => fixed(bytes, values[row].map(f64::to_be_bytes)),
        Values::Short(values) => fixed(bytes, values[row].map(f32::to_be_bytes)),
        Values::Flag(values) => fixed(bytes, Some([u8::from(values[row])])),
        Values::Time(values) => fixed(bytes, values[row].map(micros).map(i64::to_be_bytes)),
        Values::Reals(lists) => {
            let mut list = Vec::with_capacity(20 + 12 * lists[row].len());
            reals(&mut list, lists[row])?;
            held(bytes, Some(&list))
        }
    }
}

/// Since the server's epoch. A `DateTime` is within its bounds, which end in the year 294,276.
fn micros(time: DateTime<Utc>) -> i64 {
    time.timestamp_micros() - EPOCH_MICROS
}

fn fixed<const N: usize>(bytes: &mut Vec<u8>, value: Option<[u8; N]>) -> Result<(), sqlx::Error> {
    held(bytes, value.as_ref().map(<[u8; N]>::as_slice))
}

fn held(bytes: &mut Vec<u8>, value: Option<&[u8]>) -> Result<(), sqlx::Error> {
    let Some(value) = value else {
        bytes.extend((-1_i32).to_be_bytes());
        return Ok(());
    };
    bytes.extend(length(value.len())?);
    bytes.extend(value);
    Ok(())
}

/// A list of one dimension without NULL, from 1 on; an empty one has no dimension.
fn reals(bytes: &mut Vec<u8>, list: &[f64]) -> Result<(), sqlx::Error> {
    bytes.extend(i32::from(!list.is_empty()).to_be_bytes());
    bytes.extend(0_i32.to_be_bytes());
    bytes.extend(FLOAT8.to_be_bytes());
    if !list.is_empty() {
        bytes.extend(length(list.len())?);
        bytes.extend(1_i32.to_be_bytes());
    }
    for number in list {
        fixed(bytes, Some(number.to_be_bytes()))?;
    }
    Ok(())
}

fn length(of: usize) -> Result<[u8; 4], sqlx::Error> {
    i32::try_from(of)
        .map(i32::to_be_bytes)
        .map_err(|_| sqlx::Error::Encode("a value has more than 2 GiB".into()))
}
