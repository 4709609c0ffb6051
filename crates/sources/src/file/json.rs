//! Reads posts and comments from JSON records.
//!
//! The input is the records of a file. A listing or a thread contains more records, which are read after it. The output
//! is a row for each post, and for each record that is rejected. After an invalid record, reading continues; if the
//! file itself is truncated or unreadable, it ends there.

use std::collections::{HashSet, VecDeque};
use std::io;

use serde_json::Value;
use serde_json::value::RawValue;

use super::FileOptions;
use super::filter::Filter;
use super::names::{Column, Layout, fill};
use super::row::{FileRow, Position, PostRows, Record, parse_topic};
use super::table::DefaultValue;
use crate::listing::{left_out_by, parse_fields, replies_in};
use crate::page::Rejected;
use crate::post::decode_post;
use topicmill_core::{Fullname, RejectReason, SourceKind};
use topicmill_tables::bytes::TextReader;
use topicmill_tables::json::{
    JsonItem, JsonPosition, JsonRecords, is_blank, parse_record, too_long, unwrap_records,
};

/// The rows in a JSON file.
pub struct JsonPosts {
    records: JsonRecords,
    filter: Filter,
    decoder: Decoder,
    /// Position in the record that wraps this one; 0 if there is none.
    inner: u64,
    /// True for a dump, whose records contain no others.
    is_flat: bool,
    ended: bool,
    broken: bool,
}

impl JsonPosts {
    /// Creates a reader of `text` with `options`.
    pub fn new(text: TextReader, options: &FileOptions) -> Self {
        Self {
            records: JsonRecords::new(text),
            filter: if options.columns.is_empty() {
                options.filter.clone()
            } else {
                // The filter reads the fields of unparsed rows by their own names.
                Filter::default()
            },
            decoder: Decoder {
                columns: options.columns.clone(),
                defaults: options.defaults.clone(),
                ..Decoder::default()
            },
            inner: 0,
            is_flat: options.is_dump,
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

    fn push_inner(&mut self, mut things: VecDeque<Box<RawValue>>) {
        things.retain(|thing| left_out_by(thing).is_none());
        self.records.push_inner(things);
    }

    /// Reads the next row; an error means that the rest of the file cannot be read.
    fn read_row(&mut self) -> io::Result<Option<FileRow>> {
        loop {
            let (decoded, replies) = if let Some(inner) = self.records.next_inner() {
                self.inner += 1;
                let json = inner.get().as_bytes();
                (self.decoder.record(json), replies_in(json))
            } else {
                self.inner = 0;
                match self.records.read(|line| self.filter.may_match(line))? {
                    JsonItem::End => return Ok(None),
                    JsonItem::Yield => return Ok(Some(FileRow::Skipped)),
                    JsonItem::TooLong => (Err(too_long().into()), VecDeque::new()),
                    JsonItem::Record => {
                        let json = self.records.record();
                        let replies = (!self.is_flat).then(|| replies_in(json));
                        (self.decoder.record(json), replies.unwrap_or_default())
                    }
                }
            };
            match decoded {
                Ok(record) => {
                    self.push_inner(replies);
                    return Ok(Some(FileRow::Record(record)));
                }
                // Nearly every record is a post, so wrapped records are checked for only here.
                Err(reason) => match unwrap_records(self.records.record()) {
                    Some(inner) if self.inner == 0 => self.push_inner(inner),
                    None if self.inner == 0 && is_blank(self.records.record()) => {}
                    _ => return Ok(Some(self.rejected(reason))),
                },
            }
        }
    }
}

impl PostRows for JsonPosts {
    fn next_row(&mut self) -> Option<FileRow> {
        if self.ended {
            return None;
        }
        let row = self.read_row().unwrap_or_else(|error| {
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
        let position = self.records.position();
        Position {
            bytes: position.bytes,
            rows: position.lines,
            left_out: position.left_out,
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
        self.decoder.nulls
    }

    fn caveat(&self) -> Option<String> {
        let mut columns = self.decoder.columns.iter();
        let Column { field, name } =
            columns.find(|column| !self.decoder.mapped.contains(column.field))?;
        Some(format!(
            "no post has `{name}`, which --map names for `{field}`: check the name"
        ))
    }

    fn layout(&self) -> Option<&Layout> {
        self.decoder.layout.as_ref()
    }

    fn broken(&self) -> bool {
        self.broken
    }
}

/// Decodes posts from JSON objects.
#[derive(Default)]
struct Decoder {
    columns: Vec<Column>,
    defaults: Vec<DefaultValue>,
    /// The layout of the first post whose fields may have other names.
    layout: Option<Layout>,
    /// The fields of `columns` that a post has had so far.
    mapped: HashSet<&'static str>,
    /// The last post with other names, and its subreddit, which URS does not repeat in comments.
    thread: Option<(Fullname, String)>,
    nulls: u64,
}

impl Decoder {
    fn record(&mut self, json: &[u8]) -> Result<Record, RejectReason> {
        let parse = |text: &str| {
            let mut fields = parse_fields(text)?;
            // Nearly every record is complete, so other names are checked for only here.
            if self.columns.is_empty() && !fields.with_post(|post| post.is_partial()) {
                return Ok((fields, None));
            }
            let record: Value = serde_json::from_str(text).unwrap_or_default();
            let is_thing = fields.data.object().is_some();
            let post = if is_thing { &record["data"] } else { &record };
            let earlier = self.layout.as_ref();
            let layout = fields.with_post(|fields| fill(fields, post, &self.columns, earlier));
            Ok((fields, Some(layout)))
        };
        let (mut fields, layout) = parse_record(json, parse, &mut self.nulls)?;
        for DefaultValue { field, value } in &self.defaults {
            fields.with_post(|post| post.set_default(field, value));
        }
        if let Some((name, subreddit)) = &self.thread {
            fields.with_post(|thing| {
                if thing.reply().post.as_ref() == Some(name) {
                    thing.set_default("subreddit", subreddit);
                }
            });
        }
        let topic = fields.topic.str().and_then(parse_topic);
        let post = decode_post(fields, SourceKind::Import, None)?;
        if let Some(layout) = layout {
            self.mapped.extend(&layout.mapped);
            self.layout.get_or_insert(layout);
            if !post.fullname.is_comment() {
                self.thread = Some((post.fullname.clone(), post.subreddit.clone()));
            }
        }
        Ok(Record { post, topic })
    }
}
