//! Rows of NDJSON, and of a JSON array: an object a row.
//!
//! The values of an object stay as they are written, so that a number comes out with every digit that it came with.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead};
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Cell, Row, Rows, TableError};

/// No post is as long; a file without line ends must not be read into memory whole.
const MAX_LINE_BYTES: usize = 64 << 20;

/// A text as JSON writes it.
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

/// JSON without the white space between its values, where that has line ends.
pub fn on_one_line(json: &str) -> String {
    if !json.contains(['\n', '\r']) {
        return json.to_owned();
    }
    let (mut out, mut in_text, mut escaped) = (String::with_capacity(json.len()), false, false);
    for c in json.chars() {
        if in_text {
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            in_text = c == '"';
        }
        out.push(c);
    }
    out
}

/// A text of JSON in which `null` stands for each number that is none: Python writes `NaN` and `Infinity`, which are no
/// JSON. With how many there were; `None`, where there were none.
///
/// ```
/// use topicmill::tables::json::without_nan;
///
/// let (json, count) = without_nan(r#"{"score": NaN, "title": "NaN"}"#).unwrap();
/// assert_eq!((json.as_str(), count), (r#"{"score": null, "title": "NaN"}"#, 1));
/// ```
pub fn without_nan(json: &str) -> Option<(String, u64)> {
    const WORDS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];
    if !json.contains("NaN") && !json.contains("Infinity") {
        return None;
    }
    let (mut out, mut rest, mut count) = (String::with_capacity(json.len()), json, 0);
    let mut place = Place::default();
    while let Some(c) = rest.chars().next() {
        let word = WORDS
            .iter()
            .find(|word| !place.in_text && rest.starts_with(**word));
        if let Some(word) = word {
            out.push_str("null");
            rest = &rest[word.len()..];
            count += 1;
            continue;
        }
        if c.is_ascii() {
            place.take(c as u8);
        }
        place.escaped &= c.is_ascii();
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    (count > 0).then_some((out, count))
}

/// The members of an object, in order; of two with one name the last counts, as with any JSON parser, in the
/// place of the first.
#[derive(Debug, Default)]
pub struct Members(pub Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            if let Some(place) = places.get(&name) {
                members[*place].1 = value;
            } else {
                places.insert(name.clone(), members.len());
                members.push((name, value));
            }
        }
        Ok(Members(members))
    }
}

/// The cells of an object, or what is wrong with it (never quoting what it says).
fn cells(json: &[u8]) -> Result<Vec<(Arc<str>, Cell)>, String> {
    let parsed = serde_json::from_slice(json).or_else(|error| {
        let mended = std::str::from_utf8(json).ok().and_then(without_nan);
        mended.map_or(Err(error), |(json, _)| serde_json::from_str(&json))
    });
    let members: Members = parsed.map_err(|error| {
        if error.is_data() {
            "is not a JSON object".to_owned()
        } else {
            format!("is not JSON (at column {})", error.column())
        }
    })?;
    let cell = |(name, value): (String, Box<RawValue>)| (name.into(), Cell::of_raw(&value));
    Ok(members.0.into_iter().map(cell).collect())
}

/// The row that was read: it begins on the line `begun`, and reading has come to `line`.
fn read_row(
    read: io::Result<Piece>,
    begun: u64,
    line: u64,
    json: &[u8],
) -> Result<Option<Row>, TableError> {
    let cells = match read {
        Ok(Piece::End) => return Ok(None),
        Ok(Piece::TooLong) => Err(format!("is longer than {} MiB", MAX_LINE_BYTES >> 20)),
        Ok(Piece::Whole) => cells(json.trim_ascii()),
        Err(error) => return last_row(line, error).map(Some),
    };
    Ok(Some(match cells {
        Ok(cells) => Row {
            line: begun,
            cells,
            problem: None,
        },
        Err(problem) => Row::broken(begun, problem),
    }))
}

/// What reading on came to.
enum Piece {
    Whole,
    /// More than can be held; the buffer has its beginning, the rest was passed over.
    TooLong,
    End,
}

/// Whether the file, and not the disk, is at fault: it was packed and breaks off, or was packed wrongly.
pub(super) fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    // An error with a number comes from the system: a disk that fails says nothing about the file's content.
    matches!(
        error.kind(),
        InvalidData | InvalidInput | Other | UnexpectedEof
    ) && error.raw_os_error().is_none()
}

/// The last row of a file that cannot be read to its end.
pub(super) fn last_row(line: u64, error: io::Error) -> Result<Row, TableError> {
    if !is_damage(&error) {
        return Err(error.into());
    }
    let problem = match error.kind() {
        io::ErrorKind::UnexpectedEof => "breaks off: the file is not whole".to_owned(),
        _ => format!("cannot be read, nor what follows: {error}"),
    };
    Ok(Row::broken(line, problem))
}

/// The objects of NDJSON, one a line; blank lines are passed over.
pub struct Lines {
    text: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    line: u64,
    ended: bool,
}

impl Lines {
    /// Reads lines of UTF-8.
    pub fn new(text: Box<dyn BufRead + Send>) -> Self {
        Self {
            text,
            buffer: Vec::new(),
            line: 0,
            ended: false,
        }
    }

    /// Reads the next line that is not blank into the buffer.
    fn read(&mut self) -> io::Result<Piece> {
        loop {
            self.line += 1;
            match read_line(&mut self.text, &mut self.buffer, MAX_LINE_BYTES)? {
                0 => return Ok(Piece::End),
                length if length > MAX_LINE_BYTES => return Ok(Piece::TooLong),
                _ if self.buffer.trim_ascii().is_empty() => {}
                _ => return Ok(Piece::Whole),
            }
        }
    }
}

impl Rows for Lines {
    fn names(&self) -> Option<&[Arc<str>]> {
        None
    }

    fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        if self.ended {
            return Ok(None);
        }
        let read = self.read();
        self.ended = read.is_err();
        read_row(read, self.line, self.line, &self.buffer)
    }
}

/// Reads a line into `line`; of one that is longer than `most` nothing is kept. Returns its length with its end: 0 at the
/// end of the file.
///
/// # Errors
/// The file cannot be read.
pub fn read_line(file: &mut impl BufRead, line: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    line.clear();
    let (mut length, mut ended) = (0, false);
    while !ended {
        let chunk = match file.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            chunk => chunk?,
        };
        let newline = memchr::memchr(b'\n', chunk);
        let taken = newline.map_or(chunk.len(), |at| at + 1);
        ended = newline.is_some() || taken == 0;
        length += taken;
        // A longer line is read to its end without being held, so that the next one is found.
        if length <= most {
            line.extend_from_slice(&chunk[..taken]);
        }
        file.consume(taken);
    }
    if length > most {
        // Gives the memory back, which `clear` would not.
        *line = Vec::new();
    }
    Ok(length)
}

/// The objects of one JSON array, read as they come.
pub struct Elements {
    text: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    /// The line that is read, from 1.
    line: u64,
    /// Whether the array has begun.
    begun: bool,
    /// Whether its last element is read.
    closed: bool,
    ended: bool,
}

/// Where in an element the reader is.
#[derive(Default)]
struct Place {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl Place {
    /// Takes a byte; whether the element ended before it.
    fn take(&mut self, byte: u8) -> bool {
        if self.in_text {
            self.in_text = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return false;
        }
        match byte {
            b'"' => self.in_text = true,
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' if self.depth > 0 => self.depth -= 1,
            b',' | b']' if self.depth == 0 => return true,
            _ => {}
        }
        false
    }
}

impl Elements {
    /// Reads an array in UTF-8.
    pub fn new(text: Box<dyn BufRead + Send>) -> Self {
        Self {
            text,
            buffer: Vec::new(),
            line: 1,
            begun: false,
            closed: false,
            ended: false,
        }
    }

    /// The next byte; `None` at the end.
    fn byte(&mut self) -> io::Result<Option<u8>> {
        loop {
            let next = match self.text.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                chunk => chunk?.first().copied(),
            };
            if next.is_some() {
                self.text.consume(1);
                self.line += u64::from(next == Some(b'\n'));
            }
            return Ok(next);
        }
    }

    /// Reads what stands behind the array, which is nothing.
    fn end(&mut self) -> io::Result<Piece> {
        loop {
            match self.byte()? {
                None => return Ok(Piece::End),
                Some(blank) if blank.is_ascii_whitespace() => {}
                Some(_) => {
                    let more =
                        "more stands behind the array: a file is one array, or an object a line";
                    return Err(io::Error::other(more));
                }
            }
        }
    }

    /// Reads the next element into the buffer; with the line that it begins on.
    fn read(&mut self) -> io::Result<(Piece, u64)> {
        if self.closed {
            return Ok((self.end()?, self.line));
        }
        if !self.begun {
            self.begun = true;
            loop {
                match self.byte()? {
                    Some(b'[') => break,
                    Some(blank) if blank.is_ascii_whitespace() => {}
                    _ => return Err(io::Error::other("it is not a JSON array")),
                }
            }
        }
        self.buffer.clear();
        let (mut place, mut start, mut whole) = (Place::default(), self.line, true);
        loop {
            let Some(byte) = self.byte()? else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            if place.take(byte) {
                self.closed = byte == b']';
                // `[]`, and the comma that some leave behind the last element.
                if self.closed && self.buffer.is_empty() {
                    return Ok((self.end()?, self.line));
                }
                let piece = if whole { Piece::Whole } else { Piece::TooLong };
                return Ok((piece, start));
            }
            if self.buffer.is_empty() && byte.is_ascii_whitespace() {
                start = self.line;
                continue;
            }
            whole &= self.buffer.len() < MAX_LINE_BYTES;
            if whole {
                self.buffer.push(byte);
            }
        }
    }
}

impl Rows for Elements {
    fn names(&self) -> Option<&[Arc<str>]> {
        None
    }

    fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        if self.ended {
            return Ok(None);
        }
        let (read, begun) = match self.read() {
            Ok((piece, line)) => (Ok(piece), line),
            Err(error) => (Err(error), self.line),
        };
        self.ended = !matches!(read, Ok(Piece::Whole | Piece::TooLong));
        read_row(read, begun, self.line, &self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    fn slow(text: &[u8]) -> Box<dyn BufRead + Send> {
        Box::new(BufReader::with_capacity(3, Cursor::new(text.to_vec())))
    }

    /// Each row's line with its cells, or with its problem.
    fn told(rows: &mut dyn Rows) -> Vec<String> {
        let next = || rows.next_row().unwrap();
        let show = |row: Row| {
            let cells: Vec<String> = row.cells.iter().map(shown).collect();
            format!(
                "{} {}",
                row.line,
                row.problem.unwrap_or_else(|| cells.join(" "))
            )
        };
        std::iter::from_fn(next).map(show).collect()
    }

    fn shown((name, cell): &(Arc<str>, Cell)) -> String {
        let mut out = format!("{name}=");
        cell.write_json(&mut out);
        out
    }

    #[test]
    fn lines_are_rows_and_blank_ones_are_none() {
        let text =
            b"{\"a\":1.10,\"b\":\"x\"}\r\n\n{\"a\":NaN}\nsecret\n\"secret\"\n{\"a\":{ \"c\" : [1] },\"a\":2}\n{";
        assert_eq!(
            told(&mut Lines::new(slow(text))),
            [
                "1 a=1.10 b=\"x\"",
                "3 a=null",
                "4 is not JSON (at column 1)",
                "5 is not a JSON object",
                "6 a=2",
                "7 is not JSON (at column 1)",
            ]
        );
    }

    #[test]
    fn elements_are_rows_however_they_are_laid_out() {
        let text = b" \n[\n  {\"a\": \"],[{\\\"\",\n \"b\": [1,\n {\"c\": \"\\\\\"}]},7 , {\"a\":null}\n]\n";
        let expected = [
            "3 a=\"],[{\\\"\" b=[1,{\"c\":\"\\\\\"}]",
            "5 is not a JSON object",
            "5 a=null",
        ];
        assert_eq!(told(&mut Elements::new(slow(text))), expected);
        assert!(told(&mut Elements::new(slow(b"[]"))).is_empty());
        for (text, rows) in [(&b"[{\"a\":1}]\n [{\"a\":2}]"[..], 1), (b"[]{}", 0)] {
            let behind = told(&mut Elements::new(slow(text)));
            assert_eq!(behind.len(), rows + 1);
            assert!(behind[rows].contains("behind the array"), "{behind:?}");
        }
        let cut = told(&mut Elements::new(slow(b"[{\"a\":1},{\"a\"")));
        assert_eq!(cut[0], "1 a=1");
        assert!(cut.len() == 2 && cut[1].contains("breaks off"), "{cut:?}");
        let other = told(&mut Elements::new(slow(b"{}")));
        assert!(other[0].contains("not a JSON array"), "{other:?}");
    }
}
