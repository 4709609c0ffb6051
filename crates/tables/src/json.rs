//! Records of JSON: an object a line, objects over several lines, an array of them, or an answer of an API that wraps them.
//!
//! The values of an object stay as they are written, so that a number comes out with every digit that it came with.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, BufRead};
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::bytes::Text;
use super::{Cell, NOT_UTF8, Row, Rows, TableError};

/// No post is as long; a file without line ends must not be read into memory whole.
pub(crate) const MAX_LINE_BYTES: usize = 64 << 20;

/// After so many bytes without a record that is wanted, the caller gets control.
const QUIET_BYTES: u64 = 16 << 20;

/// Members under which APIs put the array of their records.
const WRAPPERS: [&str; 8] = [
    "data",
    "children",
    "posts",
    "submissions",
    "results",
    "items",
    "records",
    "rows",
];

/// Members of an object that is a record itself.
const OWN: [&str; 12] = [
    "id", "title", "text", "selftext", "body", "label", "content", "comment", "message", "review",
    "sentence", "question",
];

/// Whether a text that begins so, after white space, is JSON: an object or an array of some.
pub(super) fn begins(start: &[u8]) -> bool {
    let next = start
        .get(1..)
        .unwrap_or_default()
        .trim_ascii_start()
        .first();
    match start.first() {
        Some(b'{') => matches!(next, None | Some(b'"' | b'}')),
        Some(b'[') => matches!(next, None | Some(b'{' | b'[' | b']')),
        _ => false,
    }
}

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
    let mut place = Nesting::default();
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

/// Parses the text of a record, or returns what is wrong with it (never quoting it). `nulls` counts the numbers that are
/// none, such as `NaN`.
///
/// # Errors
/// What is wrong with the record, such as `is not a JSON object`.
pub fn parsed<T>(
    json: &[u8],
    parse: impl Fn(&str) -> serde_json::Result<T>,
    nulls: &mut u64,
) -> Result<T, String> {
    let text = std::str::from_utf8(json).map_err(|_| NOT_UTF8)?;
    let text = text.trim_start_matches('\u{feff}').trim();
    let parsed = parse(text).or_else(|error| {
        let (text, count) = without_nan(text).ok_or(error)?;
        let parsed = parse(&text)?;
        *nulls += count;
        Ok(parsed)
    });
    parsed.map_err(|error: serde_json::Error| {
        if error.is_data() {
            "is not a JSON object".to_owned()
        } else if error.is_eof() {
            "is JSON that breaks off".to_owned()
        } else if error.line() > 1 {
            // A record over several lines.
            let (line, column) = (error.line(), error.column());
            format!("is not JSON (at its line {line}, column {column})")
        } else {
            format!("is not JSON (at column {})", error.column())
        }
    })
}

/// The records in an answer of an API, such as `{"data": [{…}, {…}]}` or a listing of Reddit; `None` where the object is
/// a record itself.
pub fn wrapped(json: &[u8]) -> Option<VecDeque<Box<RawValue>>> {
    let object = parsed(json, |text| serde_json::from_str::<Members>(text), &mut 0).ok()?;
    object.wrapped()
}

impl Members {
    fn get(&self, name: &str) -> Option<&RawValue> {
        let mut found = self.0.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| &**value)
    }

    fn wrapped(&self) -> Option<VecDeque<Box<RawValue>>> {
        if OWN.iter().any(|own| self.get(own).is_some()) {
            return None;
        }
        WRAPPERS.iter().find_map(|name| {
            let value = self.get(name)?.get();
            match value.as_bytes()[0] {
                b'[' if begins(value.as_bytes()) => serde_json::from_str(value).ok(),
                b'{' => serde_json::from_str::<Self>(value).ok()?.wrapped(),
                _ => None,
            }
        })
    }

    /// The post of a thing of Reddit, `{"kind": "t3", "data": {…}}`, or the object itself.
    fn of_the_thing(self) -> Self {
        let is_thing = self.get("kind").is_some_and(|kind| kind.get() == "\"t3\"");
        let data = self.get("data").filter(|_| is_thing);
        let data = data.and_then(|data| serde_json::from_str(data.get()).ok());
        data.unwrap_or(self)
    }

    fn into_cells(self) -> Vec<(Arc<str>, Cell)> {
        let cell = |(name, value): (String, Box<RawValue>)| (name.into(), Cell::of_raw(&value));
        self.of_the_thing().0.into_iter().map(cell).collect()
    }
}

/// What reading on came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// A record, which is in the buffer.
    Whole,
    /// More than can be held; it was passed over.
    TooLong,
    /// Nothing that is wanted for quite a while; reading goes on.
    Quiet,
    /// The end of the file.
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

/// Where in a value the reader is.
#[derive(Default)]
struct Nesting {
    /// Brackets that are open.
    open: Vec<u8>,
    in_text: bool,
    escaped: bool,
}

impl Nesting {
    /// Takes a byte; whether the element ended before it.
    fn take(&mut self, byte: u8) -> bool {
        if self.in_text {
            self.in_text = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return false;
        }
        match byte {
            b'"' => self.in_text = true,
            b'[' | b'{' => self.open.push(byte),
            b']' | b'}' if !self.open.is_empty() => _ = self.open.pop(),
            b',' | b']' if self.open.is_empty() => return true,
            _ => {}
        }
        false
    }
}

/// How far JSON was read: totals from its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Bytes of text.
    pub bytes: u64,
    /// Lines, blank ones too.
    pub lines: u64,
    /// Lines that were not wanted.
    pub left_out: u64,
}

/// The records of JSON, however they are laid out; one of them is held at a time.
pub struct Records {
    text: Text,
    buffer: Vec<u8>,
    at: Place,
    /// Where the record in the buffer begins.
    begun: Place,
    /// Whether the records are the elements of an array; `None` before the first byte.
    is_array: Option<bool>,
    /// The array's end was read.
    closed: bool,
    ended: bool,
    /// Bytes that an earlier reading has dealt with.
    skip: u64,
    resumed: Option<Place>,
    /// Records that the one in the buffer wraps and that are not read yet.
    inner: VecDeque<Box<RawValue>>,
}

impl Records {
    /// Reads JSON in UTF-8.
    pub fn new(text: Text) -> Self {
        Self {
            text,
            buffer: Vec::new(),
            at: Place::default(),
            begun: Place::default(),
            is_array: None,
            closed: false,
            ended: false,
            skip: 0,
            resumed: None,
            inner: VecDeque::new(),
        }
    }

    /// The record that was read last.
    pub fn record(&self) -> &[u8] {
        &self.buffer
    }

    /// The line on which it begins.
    pub fn line(&self) -> u64 {
        self.begun.lines + 1
    }

    /// How far this is: as long as records are left of those that one wraps, in front of that one.
    pub fn place(&self) -> Place {
        if self.inner.is_empty() {
            self.at
        } else {
            self.begun
        }
    }

    /// Goes on from a place that a reading of the same text was at; called before the first record.
    pub fn resume(&mut self, place: Place) {
        self.resumed = Some(place);
    }

    /// Whether the records are the elements of an array.
    pub fn is_array(&self) -> bool {
        self.is_array == Some(true)
    }

    /// Takes the records that the last one wraps, to hand them out first.
    pub fn unwrap(&mut self, inner: VecDeque<Box<RawValue>>) {
        self.inner = inner;
    }

    /// The next of the records that were wrapped.
    pub fn next_inner(&mut self) -> Option<Box<RawValue>> {
        self.inner.pop_front()
    }

    /// Reads the next record that may be wanted. Lines that are not are passed over where they lie, without being copied,
    /// parsed or looked at for their encoding: of a dump these are nearly all.
    ///
    /// # Errors
    /// When the text cannot be read, and when it ends within an array or has more behind it.
    pub fn read(&mut self, wanted: impl Fn(&[u8]) -> bool) -> io::Result<Piece> {
        if self.is_array.is_none() {
            self.is_array = Some(self.find_layout()?);
            if let Some(place) = self.resumed {
                self.skip = place.bytes.saturating_sub(self.at.bytes);
                self.at = place;
            }
        }
        while self.skip > 0 {
            match self.skip_some()? {
                0 => return Ok(Piece::End),
                _ if self.skip > 0 => return Ok(Piece::Quiet),
                _ => {}
            }
        }
        if self.is_array() {
            return self.element();
        }
        loop {
            if self.pass_over(&wanted)? {
                return Ok(Piece::Quiet);
            }
            self.begun = self.at;
            match self.next_line()? {
                0 => return Ok(Piece::End),
                length if length > MAX_LINE_BYTES => return Ok(Piece::TooLong),
                _ if self.buffer.trim_ascii().is_empty() => continue,
                _ => {}
            }
            if self.read_on()? {
                return Ok(Piece::TooLong);
            }
            if wanted(&self.buffer) {
                return Ok(Piece::Whole);
            }
            self.at.left_out += self.at.lines - self.begun.lines;
        }
    }

    /// Whether this is an array. White space before it is passed over, and so is its bracket.
    fn find_layout(&mut self) -> io::Result<bool> {
        loop {
            let chunk = filled(&mut self.text)?;
            let blank = chunk.len() - chunk.trim_ascii_start().len();
            let (is_blank, is_array) = (
                blank == chunk.len(),
                begins(&chunk[blank..]) && chunk[blank] == b'[',
            );
            // The white space of a line of an object stays, as it counts for a column of an error.
            let passed = if is_array {
                blank + 1
            } else if is_blank {
                blank
            } else {
                0
            };
            self.at.lines += memchr::memchr_iter(b'\n', &chunk[..passed]).count() as u64;
            self.at.bytes += passed as u64;
            let ended = chunk.is_empty();
            self.text.consume(passed);
            if ended || !is_blank {
                return Ok(is_array);
            }
        }
    }

    /// Passes over what an earlier reading has dealt with: a text that is unpacked has no place to jump to. Returns how
    /// much there was.
    fn skip_some(&mut self) -> io::Result<u64> {
        let mut passed = 0;
        while passed < QUIET_BYTES && self.skip > 0 {
            let chunk = filled(&mut self.text)?;
            let skipped = chunk
                .len()
                .min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            // The file is shorter than it was.
            if skipped == 0 {
                return Ok(0);
            }
            self.text.consume(skipped);
            self.skip -= skipped as u64;
            passed += skipped as u64;
        }
        Ok(passed)
    }

    /// Passes over whole lines that are not wanted; true if that was so much that the caller should get control.
    fn pass_over(&mut self, wanted: &impl Fn(&[u8]) -> bool) -> io::Result<bool> {
        let mut quiet = 0;
        while quiet < QUIET_BYTES {
            let chunk = filled(&mut self.text)?;
            let mut passed = 0;
            let mut is_wanted = false;
            for newline in memchr::memchr_iter(b'\n', chunk) {
                let line = &chunk[passed..newline];
                // Part of an object over several lines is no line to judge by.
                let is_object =
                    line.first() == Some(&b'{') && matches!(line.last(), Some(b'}' | b'\r'));
                if !is_object || wanted(line) {
                    is_wanted = true;
                    break;
                }
                passed = newline + 1;
                self.at.lines += 1;
                self.at.left_out += 1;
            }
            self.text.consume(passed);
            self.at.bytes += passed as u64;
            quiet += passed as u64;
            // A line that may be wanted, or no whole line in the buffer: `read` takes over.
            if is_wanted || passed == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn next_line(&mut self) -> io::Result<usize> {
        let length = read_line(&mut self.text, &mut self.buffer, MAX_LINE_BYTES)?;
        self.at.lines += u64::from(length > 0);
        self.at.bytes += length as u64;
        Ok(length)
    }

    /// Reads the other lines of an object that does not end on its first one; whether it is too long. A line that breaks
    /// off is none: the next object begins behind it.
    fn read_on(&mut self) -> io::Result<bool> {
        let first = self.buffer.trim_ascii();
        if !first.starts_with(b"{") || !matches!(first.last(), Some(b'{' | b'[' | b',' | b':')) {
            return Ok(false);
        }
        let mut nesting = Nesting::default();
        for byte in &self.buffer {
            nesting.take(*byte);
        }
        let mut line = Vec::new();
        while let Some(innermost) = nesting.open.last() {
            // Within an object stands a name: this is the next record.
            if *innermost == b'{' && filled(&mut self.text)?.starts_with(b"{\"") {
                break;
            }
            let length = read_line(&mut self.text, &mut line, MAX_LINE_BYTES)?;
            if length == 0 {
                break;
            }
            self.at.lines += 1;
            self.at.bytes += length as u64;
            if length + self.buffer.len() > MAX_LINE_BYTES {
                return Ok(true);
            }
            for byte in &line {
                nesting.take(*byte);
            }
            self.buffer.append(&mut line);
        }
        Ok(false)
    }

    /// The next byte; `None` at the end.
    fn byte(&mut self) -> io::Result<Option<u8>> {
        let next = filled(&mut self.text)?.first().copied();
        if next.is_some() {
            self.text.consume(1);
            self.at.bytes += 1;
            self.at.lines += u64::from(next == Some(b'\n'));
        }
        Ok(next)
    }

    /// Reads what stands behind the array, which is nothing.
    fn end(&mut self) -> io::Result<Piece> {
        loop {
            self.begun = self.at;
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

    /// Reads the next element of the array into the buffer.
    fn element(&mut self) -> io::Result<Piece> {
        if self.closed {
            return self.end();
        }
        self.buffer.clear();
        self.begun = self.at;
        let (mut nesting, mut whole) = (Nesting::default(), true);
        loop {
            let Some(byte) = self.byte()? else {
                // An array that is not closed may end with a whole element; the next call finds nothing more.
                let is_whole = nesting.open.is_empty() && !nesting.in_text;
                if is_whole && !self.buffer.is_empty() {
                    return Ok(if whole { Piece::Whole } else { Piece::TooLong });
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            // A text of JSON has no line end: its quote is missing, and the next element may be sound.
            let is_torn = nesting.in_text && byte == b'\n';
            if is_torn || nesting.take(byte) {
                self.closed = byte == b']';
                // `[]`, and the comma that some leave behind the last element.
                if self.closed && self.buffer.is_empty() {
                    return self.end();
                }
                return Ok(if whole { Piece::Whole } else { Piece::TooLong });
            }
            if self.buffer.is_empty() && byte.is_ascii_whitespace() {
                self.begun = self.at;
                continue;
            }
            whole &= self.buffer.len() < MAX_LINE_BYTES;
            if whole {
                self.buffer.push(byte);
            }
        }
    }
}

/// What is in hand of a text, after a signal too.
fn filled(text: &mut Text) -> io::Result<&[u8]> {
    loop {
        match text.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Asked again, because the borrow of the first answer would last for the loop.
            Ok(_) => return text.fill_buf(),
            Err(error) => return Err(error),
        }
    }
}

impl Rows for Records {
    fn names(&self) -> Option<&[Arc<str>]> {
        None
    }

    fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        loop {
            if let Some(inner) = self.inner.pop_front() {
                let members = parsed(
                    inner.get().as_bytes(),
                    |text| serde_json::from_str::<Members>(text),
                    &mut 0,
                );
                return Ok(Some(row(self.line(), members)));
            }
            if self.ended {
                return Ok(None);
            }
            let members = match self.read(|_| true) {
                Err(error) => {
                    self.ended = true;
                    return last_row(self.at.lines + 1, error).map(Some);
                }
                Ok(Piece::End) => {
                    self.ended = true;
                    return Ok(None);
                }
                Ok(Piece::Quiet) => continue,
                Ok(Piece::TooLong) => Err(too_long()),
                Ok(Piece::Whole) => parsed(
                    &self.buffer,
                    |text| serde_json::from_str::<Members>(text),
                    &mut 0,
                ),
            };
            match members.as_ref().ok().and_then(Members::wrapped) {
                Some(inner) => self.inner = inner,
                None => return Ok(Some(row(self.line(), members))),
            }
        }
    }
}

fn row(line: u64, members: Result<Members, String>) -> Row {
    match members {
        Err(problem) => Row::broken(line, problem),
        Ok(members) => Row {
            line,
            cells: members.into_cells(),
            problem: None,
        },
    }
}

/// What is wrong with a record that cannot be held.
pub fn too_long() -> String {
    format!(
        "is longer than {} MiB: write an object a line",
        MAX_LINE_BYTES >> 20
    )
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
            told(&mut Records::new(slow(text))),
            [
                "1 a=1.10 b=\"x\"",
                "3 a=null",
                "4 is not JSON (at column 1)",
                "5 is not a JSON object",
                "6 a=2",
                "7 is JSON that breaks off",
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
        assert_eq!(told(&mut Records::new(slow(text))), expected);
        assert!(told(&mut Records::new(slow(b"[]"))).is_empty());
        for (text, rows) in [(&b"[{\"a\":1}]\n [{\"a\":2}]"[..], 1), (b"[]{}", 0)] {
            let behind = told(&mut Records::new(slow(text)));
            assert_eq!(behind.len(), rows + 1);
            assert!(behind[rows].contains("behind the array"), "{behind:?}");
        }
        let cut = told(&mut Records::new(slow(b"[{\"a\":1},{\"a\"")));
        assert_eq!(cut[0], "1 a=1");
        assert!(cut.len() == 2 && cut[1].contains("breaks off"), "{cut:?}");
        let open = told(&mut Records::new(slow(b"[{\"a\":1},{\"a\":2}\n")));
        assert_eq!(open[..2], ["1 a=1", "1 a=2"]);
        assert!(
            open.len() == 3 && open[2].contains("breaks off"),
            "{open:?}"
        );
        // A quote that is missing costs its element.
        let torn = b"[\n{\"a\":1},\n{\"a\":\"x},\n{\"a\":2}]";
        let torn = told(&mut Records::new(slow(torn)));
        assert_eq!(torn, ["2 a=1", "3 is JSON that breaks off", "4 a=2"]);
    }

    #[test]
    fn objects_over_several_lines_are_rows_and_so_are_those_that_an_api_wraps() {
        let text =
            b"{\n \"a\": [1,\n  {\"b\": \"}\"}]\n}\n{\"a\":2}\n{\n\"a\": 3\n}{\"a\":\n{\"a\":4}\n";
        let expected = [
            "1 a=[1,{\"b\":\"}\"}]",
            "5 a=2",
            "6 is not JSON (at its line 3, column 2)",
            "9 a=4",
        ];
        assert_eq!(told(&mut Records::new(slow(text))), expected);
        for text in [
            "{\"status\": \"ok\", \"data\": [{\"a\":1}, {\"a\":2}], \"next\": null}",
            "{\n\"data\": {\"posts\": [\n{\"a\":1},\n{\"a\":2}\n]\n}}",
            "{\"kind\":\"Listing\",\"data\":{\"after\":null,\"children\":[{\"kind\":\"t3\",\"data\":{\"a\":1}},{\"kind\":\"t3\",\"data\":{\"a\":2}}]}}",
        ] {
            let rows = told(&mut Records::new(slow(text.as_bytes())));
            assert_eq!(rows, ["1 a=1", "1 a=2"], "{text}");
        }
        // A text next to an array is a record of its own.
        let own = told(&mut Records::new(slow(
            b"{\"text\":\"x\",\"items\":[{\"a\":1}]}",
        )));
        assert_eq!(own, ["1 text=\"x\" items=[{\"a\":1}]"]);
    }
}
