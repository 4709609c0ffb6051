//! Reads posts from JSON records.
//!
//! A truncated, invalid or non-UTF-8 record is rejected, and reading continues.

use std::collections::VecDeque;
use std::io;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::filter::Filter;
use super::row::{FileRow, Position, PostRows, Record, parse_topic};
use super::table::DefaultValue;
use crate::listing::parse_fields;
use crate::page::Rejected;
use crate::post::decode_post;
use topicmill_core::{RejectReason, SourceKind};
use topicmill_tables::bytes::TextReader;
use topicmill_tables::json::{
    JsonItem, JsonPosition, JsonRecords, parse_record, too_long, unwrap_records,
};

/// The rows in a JSON file.
pub struct JsonPosts {
    records: JsonRecords,
    filter: Filter,
    given: Vec<DefaultValue>,
    /// Position in the record that wraps this one; 0 if there is none.
    inner: u64,
    nulls: u64,
    ended: bool,
    broken: bool,
}

impl JsonPosts {
    /// Creates a reader of `text`; `given` contains the default values for missing fields.
    pub fn new(text: TextReader, filter: Filter, given: Vec<DefaultValue>) -> Self {
        Self {
            records: JsonRecords::new(text),
            filter,
            given,
            inner: 0,
            nulls: 0,
            ended: false,
            broken: false,
        }
    }

    fn rejected(&self, reason: RejectReason) -> FileRow {
        let mut at = format!("line {}", self.records.line());
        if self.inner > 0 {
            at = format!("{at}, record {}", self.inner);
        }
        FileRow::Rejected(Rejected { at, reason })
    }

    fn try_next(&mut self) -> io::Result<Option<FileRow>> {
        loop {
            let read = if let Some(inner) = self.records.next_inner() {
                self.inner += 1;
                record(inner.get().as_bytes(), &self.given, &mut self.nulls)
            } else {
                self.inner = 0;
                match self.records.read(|line| self.filter.may_match(line))? {
                    JsonItem::End => return Ok(None),
                    JsonItem::Yield => return Ok(Some(FileRow::Skipped)),
                    JsonItem::TooLong => Err(too_long().into()),
                    JsonItem::Record => record(self.records.record(), &self.given, &mut self.nulls),
                }
            };
            match read {
                Ok(record) => return Ok(Some(FileRow::Record(record))),
                // Nearly every record is a post, so wrapped records are checked for only here.
                Err(reason) => {
                    match unwrap_records(self.records.record()).filter(|_| self.inner == 0) {
                        Some(inner) => self.unwrap(inner),
                        None => return Ok(Some(self.rejected(reason))),
                    }
                }
            }
        }
    }

    /// Continues with the records inside a record. A saved comments page is an array of listings: the first one
    /// contains the post, and the comments in the others are skipped.
    fn unwrap(&mut self, mut inner: VecDeque<Box<RawValue>>) {
        #[derive(Deserialize)]
        struct Thing<'a> {
            kind: &'a str,
        }
        if self.records.is_array() {
            inner.retain(|thing| {
                let thing = serde_json::from_str::<Thing<'_>>(thing.get());
                !thing.is_ok_and(|thing| ["t1", "more"].contains(&thing.kind))
            });
        }
        self.records.push_inner(inner);
    }
}

impl PostRows for JsonPosts {
    fn next_row(&mut self) -> Option<FileRow> {
        if self.ended {
            return None;
        }
        let row = self.try_next().unwrap_or_else(|error| {
            self.broken = true;
            let reason = match error.kind() {
                io::ErrorKind::UnexpectedEof => "the file is truncated here".into(),
                _ => format!("cannot be read, and neither can the rest: {error}").into(),
            };
            let at = format!("line {}", self.records.position().lines + 1);
            Some(FileRow::Rejected(Rejected { at, reason }))
        });
        self.ended = self.broken || row.is_none();
        row
    }

    fn position(&self) -> Position {
        let JsonPosition {
            bytes,
            lines: rows,
            left_out,
        } = self.records.position();
        Position {
            bytes,
            rows,
            left_out,
        }
    }

    fn resume(&mut self, position: Position) {
        self.records.resume(JsonPosition {
            bytes: position.bytes,
            lines: position.rows,
            left_out: position.left_out,
        });
    }

    fn nulls(&self) -> u64 {
        self.nulls
    }

    fn broken(&self) -> bool {
        self.broken
    }
}

fn record(json: &[u8], given: &[DefaultValue], nulls: &mut u64) -> Result<Record, RejectReason> {
    let mut fields = parse_record(json, parse_fields, nulls)?;
    for DefaultValue { field, value } in given {
        fields.set_default(field, value);
    }
    let topic = fields.topic.str().and_then(parse_topic);
    let post = decode_post(fields, SourceKind::Import)?;
    Ok(Record { post, topic })
}
