//! A row of a file, whatever its format.

use crate::page::Rejected;
use topicmill_core::Post;

/// A cell above this is no post's: the longest text Reddit has stored is 80 kB.
pub(super) const LONGEST_CELL: usize = 16 << 20;

/// A topic's name above this is none.
const LONGEST_TOPIC: usize = 200;

/// A post of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The post.
    pub post: Post,
    /// The record's own `topic`, a slug, where it has one.
    pub topic: Option<String>,
}

/// Position in a file: totals from its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// Bytes of text, unpacked; of a table those of the cells that are read.
    pub bytes: u64,
    /// Rows, blank ones too.
    pub rows: u64,
    /// Rows that the filter left out.
    pub left_out: u64,
}

/// The outcome of reading a row.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time is held, and most are records"
)]
pub enum FileRow {
    /// A post that may be wanted.
    Record(Record),
    /// None, or not a whole one.
    Rejected(Rejected),
    /// Nothing that is wanted for quite a while; reading goes on.
    Quiet,
}

/// The rows of a file in order.
pub trait PostRows: Send {
    /// The next one; `None` at the end, and when what follows cannot be read.
    fn next_row(&mut self) -> Option<FileRow>;
    /// Returns the current position.
    fn position(&self) -> Position;
    /// Goes on from a position that a reading of the same file was at; called before the first row. Formats that are
    /// never resumed have nothing to do.
    fn resume(&mut self, _position: Position) {}
    /// Returns the number of values that are NULL because the file has `NaN`, `None` or the like.
    fn nulls(&self) -> u64;
    /// True if reading ended because the rest cannot be read.
    fn broken(&self) -> bool {
        false
    }
}

/// The topic that a record names, if that may be one: without NUL, which PostgreSQL refuses.
pub(super) fn topic_named(text: &str) -> Option<String> {
    let topic = text.replace('\0', "").trim().to_owned();
    Some(topic).filter(|topic| (1..=LONGEST_TOPIC).contains(&topic.len()))
}
