//! Rows of CSV and TSV, with a line of names.
//!
//! What stands between the values is found in the line of names, outside of its quotes. A row that has more or fewer
//! values than there are names is one with a problem; so is one that is not UTF-8, because nobody can say what it
//! meant.

use std::collections::VecDeque;
use std::io::{self, Cursor, Read};
use std::sync::Arc;

use super::bytes::Text;
use super::lines::last_row;
use super::{Cell, NOT_UTF8, Row, Rows, TableError};

/// A row of a table above this is none, but a quote that nobody closed.
const LONGEST_ROW: u64 = 32 << 20;

/// A line of names above this is none.
const LONGEST_HEADER: usize = 1 << 20;

/// A table of more columns is none of posts or texts.
const MOST_COLUMNS: usize = 10_000;

/// As much of a column's name as a problem shows, in characters.
const LONGEST_NAME_SHOWN: usize = 40;

/// What stands between values, the likeliest first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// What is wrong with a row of Spark or `MySQL`, which put a backslash in front of a quote.
const BARE_QUOTE: &str = "has a quote within quotes that is not doubled, as in `\\\"`: write the file again with `\"\"` in \
     its place (in Spark with option(\"escape\", \"\\\"\"))";

/// Whether a text that begins so has a line of names, of which one is a name that tables of texts have.
pub(super) fn has_names(start: &[u8]) -> bool {
    const KNOWN: [&[u8]; 5] = [b"text", b"title", b"id", b"label", b"body"];
    let line = first_line(start);
    let names = line.split(|byte| *byte == likeliest(line));
    let names: Vec<&[u8]> = names.map(|name| unquoted(name.trim_ascii())).collect();
    let is_known = |name: &&[u8]| KNOWN.iter().any(|known| name.eq_ignore_ascii_case(known));
    names.len() > 1 && names.iter().any(is_known)
}

/// Whether a text that begins so has words on its first line, and no values: a text and not the name of a column.
pub(super) fn is_prose(start: &[u8]) -> bool {
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

/// Reads no more than `left` bytes until it is told how many again, and finds quotes that should have been doubled.
#[derive(Debug)]
struct Limited<R> {
    reader: R,
    left: u64,
    quotes: u64,
    delimiter: u8,
    /// Bytes so far, and the last of them.
    passed: u64,
    last: u8,
    /// Whether a value in quotes is open.
    open: bool,
    /// Whether the last byte so far is a quote in it: of two, or the one that closes it.
    pending: bool,
    /// Places of quotes within such a value that are not doubled.
    bare: VecDeque<u64>,
}

impl<R> Limited<R> {
    /// Reads from `reader` as much as a row may have.
    fn new(reader: R, delimiter: u8) -> Self {
        Self {
            reader,
            left: LONGEST_ROW,
            quotes: 0,
            delimiter,
            passed: 0,
            last: b'\n',
            open: false,
            pending: false,
            bare: VecDeque::new(),
        }
    }

    /// Lets another row be read.
    fn next_row(&mut self) {
        self.left = LONGEST_ROW;
    }

    /// Follows the quotes as the library does, which takes one that is not doubled for the end of its value.
    fn follow(&mut self, bytes: &[u8]) {
        let ends = |byte: u8| byte == self.delimiter || matches!(byte, b'\n' | b'\r');
        let mut from = 0;
        loop {
            if let Some(next) = bytes.get(from).filter(|_| self.pending) {
                self.pending = false;
                self.open = *next == b'"';
                if self.open {
                    from += 1;
                } else if !ends(*next) && *next != b' ' {
                    self.bare.push_back(self.passed + from as u64);
                }
            }
            let Some(at) = memchr::memchr(b'"', &bytes[from..]) else {
                break;
            };
            let before = (from + at).checked_sub(1).map(|at| bytes[at]);
            self.pending = self.open;
            self.open |= ends(before.unwrap_or(self.last));
            from += at + 1;
        }
        self.passed += bytes.len() as u64;
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    /// Whether a quote in front of this place is not doubled; it is forgotten then.
    fn has_bare_quote(&mut self, until: u64) -> bool {
        let before = self.bare.len();
        self.bare.retain(|at| *at >= until);
        self.bare.len() < before
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let reason = format!(
                "a row is longer than {} MiB: a quote that is not closed?",
                LONGEST_ROW >> 20
            );
            return Err(io::Error::other(reason));
        }
        let n = self.reader.read(buffer)?;
        self.left = self.left.saturating_sub(n as u64);
        // The library does not say whether a quote was open at the end of the file; an odd number of them does.
        self.quotes += memchr::memchr_iter(b'"', &buffer[..n]).count() as u64;
        self.follow(&buffer[..n]);
        Ok(n)
    }
}

/// The rows of CSV or TSV; the line of names is none.
pub struct Csv {
    reader: csv::Reader<Limited<Box<dyn Read + Send>>>,
    row: csv::ByteRecord,
    names: Vec<Arc<str>>,
    repeated: Vec<String>,
    /// Places of the columns that are read.
    read: Vec<usize>,
    delimiter: u8,
    /// Line of the first row, less the line that the reader counts.
    lines_before: u64,
    /// Whether the last value so far has several lines.
    is_long: bool,
    ended: bool,
}

impl Csv {
    /// Reads the line of names. `delimiter`: what stands between values, where that is known.
    ///
    /// # Errors
    /// When there is no line of names.
    pub fn new(mut text: Text, delimiter: Option<u8>) -> Result<Self, TableError> {
        let (mut header, mut lines_before) = read_header(&mut text)?;
        let mut delimiter = delimiter;
        // Spreadsheets write `sep=;` before the line of names.
        if let [b's', b'e', b'p', b'=', separator] = *header.trim_ascii() {
            delimiter = delimiter.or(Some(separator));
            let before = lines_before + u64::from(header.ends_with(b"\n"));
            let (names, passed) = read_header(&mut text)?;
            (header, lines_before) = (names, before + passed);
        }
        // The reader says where a row begins before it passes over the second half of `\r\n`.
        let next = text.fill_buf().ok().and_then(|chunk| chunk.first());
        if header.ends_with(b"\r") && next == Some(&b'\n') {
            lines_before += 1;
        }
        let delimiter = delimiter.unwrap_or_else(|| likeliest(&header));
        let bytes: Box<dyn Read + Send> = Box::new(Cursor::new(header).chain(text));
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            // So that a row with too many or too few values is a row with a problem, and not the end of the table.
            .flexible(true)
            .from_reader(Limited::new(bytes, delimiter));
        let names = reader.byte_headers().map_err(from_csv)?;
        let (names, repeated) = names_of(names)?;
        Ok(Self {
            reader,
            row: csv::ByteRecord::new(),
            read: (0..names.len()).collect(),
            names,
            repeated,
            delimiter,
            lines_before,
            is_long: false,
            ended: false,
        })
    }

    /// What stands between the values.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    fn next_record(&mut self) -> Result<bool, io::Error> {
        self.reader.get_mut().next_row();
        let read = self.reader.read_byte_record(&mut self.row);
        read.map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) => error,
            other => io::Error::other(format!("{other:?}")),
        })
    }

    /// Whether the file ended within quotes, as far as one can tell: then what follows them became one value.
    fn has_open_quote(&self) -> bool {
        self.is_long && self.reader.get_ref().quotes % 2 == 1
    }

    fn line(&self) -> u64 {
        let position = self.row.position();
        self.lines_before + position.map_or(0, csv::Position::line)
    }
}

fn from_csv(error: csv::Error) -> TableError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) if !super::lines::is_damage(&error) => error.into(),
        csv::ErrorKind::Io(error) => TableError::Header(format!("the line of names: {error}")),
        other => TableError::Header(format!("the line of names: {other:?}")),
    }
}

/// The bytes of the first line that is not blank, up to its end outside of quotes, and how many lines come before it.
fn read_header(text: &mut Text) -> Result<(Vec<u8>, u64), TableError> {
    let (mut header, mut quoted, mut passed) = (Vec::new(), false, 0);
    loop {
        let chunk = match text.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if super::lines::is_damage(&error) => {
                return Err(TableError::Header(format!("the line of names: {error}")));
            }
            chunk => chunk?,
        };
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
        if header.len() > LONGEST_HEADER {
            let most = LONGEST_HEADER >> 20;
            let why = format!("its line of names is longer than {most} MiB: it is no table");
            return Err(TableError::Header(why));
        }
    }
    Ok((header, passed))
}

/// The delimiter that a line of names has most often outside of quotes.
fn likeliest(header: &[u8]) -> u8 {
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
fn names_of(header: &csv::ByteRecord) -> Result<(Vec<Arc<str>>, Vec<String>), TableError> {
    if header.len() > MOST_COLUMNS {
        let many = format!("its line of names has more than {MOST_COLUMNS}: is it one?");
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

impl Rows for Csv {
    fn names(&self) -> Option<&[Arc<str>]> {
        Some(&self.names)
    }

    fn repeated(&self) -> &[String] {
        &self.repeated
    }

    fn select(&mut self, columns: &[usize]) -> Result<(), TableError> {
        self.read = columns.to_vec();
        Ok(())
    }

    fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        if self.ended {
            return Ok(None);
        }
        let line = self.line();
        match self.next_record() {
            Ok(false) => {
                self.ended = true;
                let problem =
                    "has a quote that is not closed: all that follows it became one value";
                return Ok(self.has_open_quote().then(|| Row::broken(line, problem)));
            }
            Ok(true) => {}
            Err(error) => {
                self.ended = true;
                let line = self.lines_before + self.reader.position().line();
                return last_row(line, error).map(Some);
            }
        }
        self.is_long = self
            .row
            .iter()
            .next_back()
            .is_some_and(|it| it.contains(&b'\n'));
        let mut problem = None;
        let mut cells = Vec::with_capacity(self.read.len());
        for at in &self.read {
            let (name, Some(bytes)) = (&self.names[*at], self.row.get(*at)) else {
                continue;
            };
            let text = String::from_utf8(bytes.to_vec()).unwrap_or_else(|error| {
                let at = error.utf8_error().valid_up_to() + 1;
                let name: String = name.chars().take(LONGEST_NAME_SHOWN).collect();
                let why = NOT_UTF8.replacen("UTF-8", &format!("UTF-8 (`{name}` at byte {at})"), 1);
                problem.get_or_insert(why);
                String::from_utf8_lossy(error.as_bytes()).into_owned()
            });
            cells.push((name.clone(), Cell::Text(text)));
        }
        let (len, expected) = (self.row.len(), self.names.len());
        let end = self.reader.position().byte();
        if self.reader.get_mut().has_bare_quote(end) {
            problem = Some(BARE_QUOTE.to_owned());
        } else if len != expected {
            problem = Some(format!(
                "has {len} value{} where the line of names has {expected}",
                if len == 1 { "" } else { "s" }
            ));
        }
        Ok(Some(Row {
            line: self.line(),
            cells,
            problem,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn read(text: &[u8], delimiter: Option<u8>) -> Result<Vec<String>, TableError> {
        let text = Box::new(BufReader::with_capacity(3, Cursor::new(text.to_vec())));
        let mut rows = Csv::new(text, delimiter)?;
        let mut told = vec![rows.names.join("|")];
        while let Some(row) = rows.next_row()? {
            let cells = row
                .cells
                .iter()
                .map(|(_, cell)| cell.text().unwrap_or_default());
            let cells = cells.collect::<Vec<_>>().join("|");
            told.push(match row.problem {
                Some(problem) => format!("{} {cells} {problem}", row.line),
                None => format!("{} {cells}", row.line),
            });
        }
        Ok(told)
    }

    #[test]
    fn the_delimiter_is_what_the_line_of_names_has() {
        for (text, expected) in [
            ("id,a b\n1,2;3\n", ["id|a b", "2 1|2;3"]),
            ("id;\"a,b,c\"\n1;2,3\n", ["id|a,b,c", "2 1|2,3"]),
            ("id\ta\r\n1\t2,3\r\n", ["id|a", "2 1|2,3"]),
            // Lines that end as they did on old Macs are not counted.
            ("id|a\r1|x", ["id|a", "1 1|x"]),
            ("sep=;\r\n\r\nid;a\r\n1;x\r\n", ["id|a", "4 1|x"]),
            ("sep=;\nid;a\n1;x", ["id|a", "3 1|x"]),
            ("\n\n a \n\"x, y\"\n", ["a", "4 x, y"]),
        ] {
            assert_eq!(read(text.as_bytes(), None).unwrap(), expected, "{text:?}");
        }
        assert_eq!(read(b"a,b;c\n1,2;3", Some(b';')).unwrap()[0], "a,b|c");
        let error = read("x,".repeat(MOST_COLUMNS).as_bytes(), None).unwrap_err();
        assert!(error.to_string().contains("more than 10000"), "{error}");
    }

    #[test]
    fn a_row_that_does_not_fit_says_so_and_keeps_what_it_has() {
        let text =
            b"id,,text,text\n1,,\"a \"\"quoted\"\"\nline\",x\n2,x\n3,a,b,c,d\n4,,caf\xe9,y\n5,,z,z";
        let told = read(text, None).unwrap();
        let expected = [
            "id|column_2|text|text_2",
            "2 1||a \"quoted\"\nline|x",
            "4 2|x has 2 values where",
            "5 3|a|b|c has 5 values",
            "6 4||caf\u{fffd}|y is not UTF-8 (`text` at byte 4)",
            "7 5||z|z",
        ];
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}");
        }
    }

    #[test]
    fn a_quote_that_is_not_doubled_costs_its_row_and_a_backslash_alone_none() {
        let text = b"id,a,b\n1,\"so \\\"hi\\\" it\",x\n2,\"C:\\dir\\\",\"\\n\"\n3,\"a \\\"hi, there\\\" b\",x\n\
            4,\"two \"\"\"\"\",5\" \\\"x\n5,\"so \"hi\" it\",x\n6,\"\",\"\"\"a\"\"\"\n";
        let told = read(text, None).unwrap();
        let has = |row: usize| told[row].contains("not doubled");
        assert_eq!(
            [1, 2, 3, 4, 5, 6].map(has),
            [true, false, true, false, true, false]
        );
        assert_eq!(told[2], "3 2|C:\\dir\\|\\n");
        assert_eq!(told[4], "5 4|two \"\"|5\" \\\"x");
        assert_eq!(told[6], "7 6||\"a\"");
    }

    #[test]
    fn a_quote_that_the_end_finds_open_is_told() {
        let told = read(b"id,text\n1,\"open\n2,x\n3,y\n", None).unwrap();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told[2].starts_with("2  has a quote that is not closed"),
            "{told:?}"
        );
        let inches = b"id,text\n1,5\" pipe\n2,\"two\nlines\"\n3,x\n";
        assert_eq!(read(inches, None).unwrap().len(), 4);
    }

    #[test]
    fn a_quote_that_nobody_closes_is_not_read_into_memory() {
        struct Endless;
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(b'x');
                Ok(buffer.len())
            }
        }
        let head = Cursor::new(b"id,text\na1,\"One".to_vec());
        let mut rows = Csv::new(Box::new(BufReader::new(head.chain(Endless))), None).unwrap();
        let row = rows.next_row().unwrap().unwrap();
        assert!(row.problem.unwrap().contains("not closed"));
        assert!(rows.next_row().unwrap().is_none());
        let endless = Csv::new(Box::new(BufReader::new(Endless)), None);
        assert!(matches!(endless, Err(TableError::Header(_))));
    }
}
