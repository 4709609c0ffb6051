//! Rows from a file in any format.

use super::names::Layout;
use crate::page::Rejected;
use topicmill_core::Post;

/// Maximum length of a cell in bytes, far longer than any text on Reddit (80 kB).
pub(super) const LONGEST_CELL: usize = 16 << 20;

/// Maximum length of a topic's name, in bytes.
const LONGEST_TOPIC: usize = 200;

/// A post from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The post.
    pub post: Post,
    /// The topic that the record names, if any.
    pub topic: Option<String>,
}

/// Position in a file, counted from its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// Bytes of text after decompression; for a table, bytes in the cells that are read.
    pub bytes: u64,
    /// Rows, including blank ones.
    pub rows: u64,
    /// Rows excluded by the filter.
    pub left_out: u64,
}

/// The outcome of reading a row.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "only one is held at a time, and most are records"
)]
pub enum FileRow {
    /// A post that may match the filter.
    Record(Record),
    /// A row that is not a complete post.
    Rejected(Rejected),
    /// Many rows without a matching post; reading continues.
    Skipped,
}

/// The rows in a file, in order.
pub trait PostRows: Send {
    /// Returns the next row; `None` at the end or if the rest cannot be read.
    fn next_row(&mut self) -> Option<FileRow>;
    /// Returns the current position.
    fn position(&self) -> Position;
    /// Continues from a position in the same file; called before the first row. Formats that are never resumed ignore
    /// it.
    fn resume(&mut self, _position: Position) {}
    /// Returns the number of values that are NULL because the file contains `NaN`, `None` or the like.
    fn nulls(&self) -> u64;
    /// Returns a warning about the whole file, to be logged after its rows.
    fn caveat(&self) -> Option<String>;
    /// Returns how the rows are read; `None` before the first row of a format without a header.
    fn layout(&self) -> Option<&Layout>;
    /// Returns true if reading ended because the rest cannot be read.
    fn broken(&self) -> bool {
        false
    }
}

/// Returns the topic that a record names; `None` if it is empty or too long. Removes NUL, which PostgreSQL cannot
/// store.
pub(super) fn parse_topic(text: &str) -> Option<String> {
    let topic = text.replace('\0', "").trim().to_owned();
    Some(topic).filter(|topic| (1..=LONGEST_TOPIC).contains(&topic.len()))
}
