//! Rows of a file that holds one post a line, packed or not.
//!
//! What enters are bytes, what leaves a row a line: a post, or why the line holds none. A half line, a garbled one or
//! one that is not UTF-8 is rejected, and reading goes on. Lines that the filter rules out are passed over where they
//! lie, without being copied, parsed or looked at for their encoding: of a dump these are nearly all.

use std::io::{self, BufRead};

use super::filter::Filter;
use super::row::{FileRow, LONGEST_LINE, Position, Record, Rows, not_utf8, topic_named};
use crate::domain::SourceKind;
use crate::source::listing::mended;
use crate::source::page::Rejected;
use crate::source::post::{Fields, NO_OBJECT, post_from_fields};
use crate::tables::json::{read_line, without_nan};

/// After so many bytes without a row that is wanted, whoever reads hears of it.
const QUIET_BYTES: u64 = 16 << 20;

/// The posts of NDJSON, one a line. Blank lines are passed over. Holds one line at a time.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    filter: Filter,
    line: Vec<u8>,
    position: Position,
    /// Bytes that an earlier reading has dealt with.
    skip: u64,
    nulls: u64,
    ended: bool,
    broken: bool,
}

impl<R: BufRead> Lines<R> {
    /// Reads posts from `reader`.
    pub fn new(reader: R, filter: Filter) -> Self {
        Self {
            reader,
            filter,
            line: Vec::new(),
            position: Position::default(),
            skip: 0,
            nulls: 0,
            ended: false,
            broken: false,
        }
    }

    /// Passes over whole lines that are not wanted, and over what is to be skipped; true if that was so much
    /// that whoever reads should hear of it.
    fn pass_over(&mut self) -> io::Result<bool> {
        let mut quiet = 0;
        while quiet < QUIET_BYTES {
            let chunk = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                chunk => chunk?,
            };
            if self.skip > 0 {
                let skipped = chunk
                    .len()
                    .min(usize::try_from(self.skip).unwrap_or(usize::MAX));
                // The file is shorter than it was: `read_line` meets its end.
                if skipped == 0 {
                    return Ok(false);
                }
                self.reader.consume(skipped);
                self.skip -= skipped as u64;
                quiet += skipped as u64;
                continue;
            }
            let mut passed = 0;
            let mut wanted = false;
            for newline in memchr::memchr_iter(b'\n', chunk) {
                if self.filter.may_take(&chunk[passed..newline]) {
                    wanted = true;
                    break;
                }
                passed = newline + 1;
                self.position.rows += 1;
                self.position.left_out += 1;
            }
            self.reader.consume(passed);
            self.position.bytes += passed as u64;
            quiet += passed as u64;
            // A line that may be wanted, or no whole line in the buffer: `read_line` takes over.
            if wanted || passed == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn rejected(row: u64, reason: String) -> FileRow {
        FileRow::Rejected(Rejected {
            at: format!("line {row}"),
            reason,
        })
    }

    fn try_next(&mut self) -> io::Result<Option<FileRow>> {
        loop {
            if self.pass_over()? {
                return Ok(Some(FileRow::Quiet));
            }
            let length = read_line(&mut self.reader, &mut self.line, LONGEST_LINE)?;
            if length == 0 {
                return Ok(None);
            }
            self.position.rows += 1;
            self.position.bytes += length as u64;
            let row = self.position.rows;
            if length > LONGEST_LINE {
                let reason = format!("longer than {} MiB", LONGEST_LINE >> 20);
                return Ok(Some(Self::rejected(row, reason)));
            }
            // A line that did not end within the buffer has not been looked at yet.
            if !self.filter.may_take(&self.line) {
                self.position.left_out += 1;
                continue;
            }
            let Ok(text) = std::str::from_utf8(&self.line) else {
                return Ok(Some(Self::rejected(row, not_utf8("the line"))));
            };
            let text = text.trim_start_matches('\u{feff}').trim();
            if text.is_empty() {
                continue;
            }
            return Ok(Some(match record(text, &mut self.nulls) {
                Ok(record) => FileRow::Record(record),
                Err(reason) => Self::rejected(row, reason),
            }));
        }
    }
}

impl<R: BufRead + Send> Rows for Lines<R> {
    fn next_row(&mut self) -> Option<FileRow> {
        if self.ended {
            return None;
        }
        let row = self.try_next().unwrap_or_else(|error| {
            self.broken = true;
            let reason = match error.kind() {
                io::ErrorKind::UnexpectedEof => "the file breaks off here".to_owned(),
                _ => format!("cannot be read, nor what follows: {error}"),
            };
            Some(Self::rejected(self.position.rows + 1, reason))
        });
        self.ended = self.broken || row.is_none();
        row
    }

    fn position(&self) -> Position {
        self.position
    }

    fn resume(&mut self, position: Position) {
        self.position = position;
        // Unpacked again and thrown away: in a zstd stream nothing can be jumped over.
        self.skip = position.bytes;
    }

    fn nulls(&self) -> u64 {
        self.nulls
    }

    fn broken(&self) -> bool {
        self.broken
    }
}

fn record(line: &str, nulls: &mut u64) -> Result<Record, String> {
    let parse = |line: &str| mended(line, |line| serde_json::from_str::<Fields>(line));
    let parsed = parse(line).or_else(|error| match without_nan(line) {
        Some((line, count)) => {
            *nulls += count;
            parse(&line)
        }
        None => Err(error),
    });
    let fields = parsed.map_err(|error| {
        // serde_json's line is always 1 here, and beside the line of the file it would only confuse.
        if error.is_data() {
            NO_OBJECT.to_owned()
        } else if error.is_eof() {
            "JSON that breaks off".to_owned()
        } else {
            format!("not JSON at column {}", error.column())
        }
    })?;
    let topic = fields.topic.str().and_then(topic_named);
    let post = post_from_fields(fields, SourceKind::Import)?;
    Ok(Record { post, topic })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Timestamp;
    use std::io::{BufReader, Read};

    const POST: &str = r#"{"id":"abc1","subreddit":"s","title":"A","created_utc":1700000000}"#;

    /// Each line's fate: the fullname, or where and why it was rejected.
    fn fates(bytes: &[u8]) -> Vec<String> {
        rows(bytes)
            .into_iter()
            .map(|row| match row {
                FileRow::Record(record) => record.post.fullname.to_string(),
                FileRow::Rejected(Rejected { at, reason }) => format!("{at}: {reason}"),
                FileRow::Quiet => unreachable!("the file is short"),
            })
            .collect()
    }

    fn rows(bytes: &[u8]) -> Vec<FileRow> {
        let mut lines = Lines::new(bytes, Filter::default());
        std::iter::from_fn(|| lines.next_row()).collect()
    }

    fn reason(row: Option<FileRow>) -> String {
        match row {
            Some(FileRow::Rejected(Rejected { at, reason })) => format!("{at}: {reason}"),
            other => panic!("not rejected: {other:?}"),
        }
    }

    #[test]
    fn bad_lines_are_rejected_by_number_and_reading_goes_on() {
        let mut file = format!("{POST}\n\n  \r\nnot json\n{{\"id\": 1\n").into_bytes();
        file.extend_from_slice(b"[1]\n\xff\xfe\n");
        file.extend_from_slice(POST.as_bytes());
        assert_eq!(
            fates(&file),
            [
                "t3_abc1",
                "line 4: not JSON at column 2",
                "line 5: JSON that breaks off",
                "line 6: not a JSON object",
                "line 7: the line is not UTF-8: convert the file, with `iconv -f WINDOWS-1252 -t UTF-8` for example",
                "t3_abc1",
            ]
        );
        assert_eq!(fates(b""), [""; 0]);
    }

    /// Endless bytes without a newline for a while, then a post; nothing is ever held whole.
    struct LongLine {
        left: usize,
    }

    impl Read for LongLine {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = buffer.len().min(self.left);
            buffer[..n].fill(b'x');
            self.left -= n;
            Ok(n)
        }
    }

    #[test]
    fn a_line_without_end_is_rejected_without_being_held() {
        let tail = format!("\n{POST}\n");
        let reader = BufReader::new(
            LongLine {
                left: 3 * LONGEST_LINE,
            }
            .chain(tail.as_bytes()),
        );
        let mut lines = Lines::new(reader, Filter::default());
        assert_eq!(reason(lines.next_row()), "line 1: longer than 16 MiB");
        assert!(lines.line.capacity() <= 2 * LONGEST_LINE);
        assert!(matches!(lines.next_row(), Some(FileRow::Record(_))));
        assert!(lines.next_row().is_none());
        assert_eq!(lines.position().rows, 2);
    }

    /// Posts of `s` and of `other` in turn, with a line that is longer than the buffer.
    fn mixed() -> String {
        (0..60)
            .map(|i| {
                let name = if i % 3 == 0 { "s" } else { "other" };
                let pad = "x".repeat(if i % 7 == 0 { 300 } else { 3 });
                format!("{{\"id\":\"a{i}\",\"title\":\"{pad}\",\"subreddit\":\"{name}\",\"created_utc\":{}}}\n", 1_700_000_000 + i)
            })
            .collect()
    }

    #[test]
    fn unwanted_lines_are_counted_whatever_the_buffer_cuts() {
        let file = mixed();
        let filter = Filter::new(Some(["S"]), None, Timestamp::from_epoch_secs(1_700_000_030));
        for capacity in [1, 7, 64, 4_096, 1 << 20] {
            let reader = BufReader::with_capacity(capacity, file.as_bytes());
            let mut lines = Lines::new(reader, filter.clone());
            let rows: Vec<_> = std::iter::from_fn(|| lines.next_row()).collect();
            assert!(rows.iter().all(|row| matches!(row, FileRow::Record(_))));
            let end = Position {
                bytes: file.len() as u64,
                rows: 60,
                left_out: 50,
            };
            assert_eq!((rows.len(), lines.position()), (10, end), "{capacity}");
        }
    }

    #[test]
    fn reading_goes_on_from_every_position_it_was_at() {
        let file = mixed();
        let filter = Filter::new(Some(["s"]), None, None);
        let read = |from: Position| {
            let reader = BufReader::with_capacity(100, file.as_bytes());
            let mut lines = Lines::new(reader, filter.clone());
            lines.resume(from);
            let mut rows = Vec::new();
            while let Some(row) = lines.next_row() {
                rows.push((row, lines.position()));
            }
            rows
        };
        let whole = read(Position::default());
        assert_eq!(whole.len(), 20);
        for (n, (_, position)) in whole.iter().enumerate() {
            assert_eq!(read(*position), whole[n + 1..]);
        }
    }
}
