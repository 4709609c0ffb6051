//! Files that people write in TOML: settings, and pipeline files.
//!
//! A path goes in; out comes text, bounded in size and without a byte order mark, and what of it is no TOML: each mistake
//! with its place, in plain words, and with what to write instead. No message repeats more of a file than a key, because
//! a value may be a secret.
//!
//! Editors and shells of Windows write UTF-16 or a byte order mark. Both are read, since nobody sees them.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

/// A pipeline file of a thousand labels with a page of descriptions each has about this size.
pub const MOST_BYTES: u64 = 4 << 20;
/// Letters of the file that a message repeats.
const MOST_QUOTED: usize = 60;
/// What word processors put in place of `"` and `'`.
const CURLY: [char; 7] = ['“', '”', '„', '‘', '’', '«', '»'];
/// A value that is neither a number nor in quotes.
const NO_VALUE: &str =
    "this is no value: write a text in quotes, as in \"text\", and each key on a line of its own";

/// Why a file has no text.
#[derive(Debug, thiserror::Error)]
pub enum NoText {
    /// It cannot be read.
    #[error("{0}; let this user read it, or name another file")]
    Read(#[source] io::Error),
    /// It is too large for what it is.
    #[error(
        "it has more than {} MiB, so it is another file than was meant; correct the path",
        MOST_BYTES >> 20
    )]
    Large,
    /// The first line that is none.
    #[error("line {0} is no UTF-8; save the file as UTF-8")]
    Encoding(usize),
}

/// Reads the text of a file.
///
/// # Errors
/// See [`NoText`].
pub fn read(path: &Path) -> Result<String, NoText> {
    let mut bytes = Vec::new();
    // A pipe does not say how long it is, so the reading is bounded and not the length that the system reports.
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(NoText::Read)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(NoText::Large);
    }
    decoded(bytes).map_err(NoText::Encoding)
}

/// Bytes as text, or the first line that is none.
fn decoded(bytes: Vec<u8>) -> Result<String, usize> {
    match bytes.as_slice() {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => utf8(rest.to_vec()),
        _ => utf8(bytes),
    }
}

/// A NUL is in no text; UTF-16 without a mark is full of them.
fn utf8(bytes: Vec<u8>) -> Result<String, usize> {
    let lines_to = |bytes: &[u8]| 1 + memchr::memchr_iter(b'\n', bytes).count();
    if let Some(nul) = bytes.iter().position(|byte| *byte == 0) {
        return Err(lines_to(&bytes[..nul]));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        lines_to(&error.as_bytes()[..good])
    })
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, usize> {
    let units = bytes.chunks_exact(2).map(|two| unit([two[0], two[1]]));
    let mut text = String::with_capacity(bytes.len());
    for c in char::decode_utf16(units) {
        match c {
            Ok(c) if c != '\0' => text.push(c),
            _ => return Err(1 + text.matches('\n').count()),
        }
    }
    if bytes.len().is_multiple_of(2) {
        Ok(text)
    } else {
        Err(1 + text.matches('\n').count())
    }
}

/// A text as far as it is TOML, and its mistakes in the order of the text: the byte of each, and what is wrong there.
pub fn parse(text: &str) -> (Spanned<DeTable<'_>>, Vec<(usize, String)>) {
    let (table, mut broken) = DeTable::parse_recoverable(text);
    // Where a text of a list has no end, the list has none either, and nobody wants to hear of that first.
    broken.sort_by_key(|error| (span_of(error).start, !is_of_a_text(kind_of(error).0)));
    let mistakes = broken
        .iter()
        .map(|error| (span_of(error).start, in_words(error, text)))
        .collect();
    (table, mistakes)
}

/// The first number that is larger than a setting can be: its byte, and what to do.
pub fn too_large(table: &DeTable<'_>) -> Option<(usize, String)> {
    let mut values = table.iter().map(|(_, value)| value);
    let at = values.find_map(large_number)?;
    let said = "this number is larger than any setting can be: write a smaller one";
    Some((at, said.to_owned()))
}

fn large_number(value: &Spanned<DeValue<'_>>) -> Option<usize> {
    let is_large = match value.get_ref() {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).is_err(),
        DeValue::Float(number) => {
            let text = number.as_str();
            text.parse::<f64>().is_ok_and(f64::is_infinite) && !text.contains("inf")
        }
        DeValue::Array(list) => return list.iter().find_map(large_number),
        DeValue::Table(table) => {
            return table.iter().map(|(_, value)| value).find_map(large_number);
        }
        _ => false,
    };
    is_large.then(|| value.span().start)
}

/// The line and the column of a byte, from 1; columns are characters.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    // A place inside of a character is that of the character.
    let before = (0..=at.min(text.len()))
        .rev()
        .find_map(|at| text.get(..at))
        .unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    (
        1 + memchr::memchr_iter(b'\n', before.as_bytes()).count(),
        1 + line.chars().count(),
    )
}

/// Some words of the file, for a message: short, and on one line.
pub fn quoted(text: &str) -> String {
    let escaped = text.chars().flat_map(char::escape_debug);
    let mut shown: String = escaped.take(MOST_QUOTED).collect();
    if text.chars().count() > MOST_QUOTED {
        shown.push('…');
    }
    format!("`{shown}`")
}

fn span_of(error: &Error) -> Range<usize> {
    error.span().unwrap_or_default()
}

/// What the parser calls a mistake, and what it wants in its place.
fn kind_of(error: &Error) -> (&str, &str) {
    let message = error.message();
    message.split_once(", expected ").unwrap_or((message, ""))
}

fn is_of_a_text(kind: &str) -> bool {
    kind.ends_with("basic string") || kind.ends_with("literal string")
}

/// A mistake in plain words: what is wrong, and what to write. What the parser says of the rarest ones goes through as it
/// is, and none of it comes from the file.
fn in_words(error: &Error, text: &str) -> String {
    let span = span_of(error);
    let (kind, wanted) = kind_of(error);
    let rest = text.get(span.start..).unwrap_or_default();
    let rest = rest.lines().next().unwrap_or_default().trim_start();
    let word = rest.split(|c: char| !c.is_alphanumeric()).next();
    let word = word.unwrap_or_default();
    let said = match kind {
        "duplicate key" => return twice(text, &span),
        "string values must be quoted" | "missing value"
            if rest.is_empty() || rest.starts_with('#') =>
        {
            "the value is missing: write it behind the `=`, as in key = \"text\" or key = 5"
        }
        "string values must be quoted" if rest.starts_with(CURLY) => {
            "these are curly quotes: write straight ones, as in \"text\""
        }
        "invalid boolean" if ["true", "false"].contains(&word.to_lowercase().as_str()) => {
            "write true or false in small letters"
        }
        "string values must be quoted" | "invalid boolean" => NO_VALUE,
        "invalid float" if word.starts_with(char::is_alphabetic) => NO_VALUE,
        kind if is_of_a_text(kind) && matches!(wanted, "`\"`" | "`'`") => {
            let times = if kind.contains("multi-line") { 3 } else { 1 };
            let quotes = wanted.trim_matches('`').repeat(times);
            return format!("the text has no end: write `{quotes}` behind it");
        }
        kind if is_of_a_text(kind) => {
            "the text has a control character: take it out, or write it as in \"\\u0007\""
        }
        "missing escaped value" | "too few unicode value digits" | "invalid value" => {
            "in double quotes, a `\\` begins a sign such as `\\n`: write `\\\\`, or put the text into single quotes"
        }
        "unclosed array" => "the list has no end: write `]` behind it",
        "missing comma between array elements" => {
            "a comma is missing in the list, or its end: write `,` between two entries, and `]` behind the last one"
        }
        "extra comma in array" | "extra comma in inline table" => {
            "there is a comma too many: remove it"
        }
        "unclosed inline table" => "the table has no end: write `}` behind it",
        "unclosed table" => "the name of the section has no end: write `]` behind it",
        "unclosed array table" => "the name of the section has no end: write `]]` behind it",
        "key with no value" | "missing value for key" => {
            "the key has no value: write `=` and a value behind it"
        }
        "invalid unquoted key" => {
            "a key has letters from a to z, digits, `-` and `_`, and then comes `=`; a comment begins with `#`"
        }
        "unquoted keys cannot be empty" => {
            "a name is missing: write it before the `=`, or between the brackets"
        }
        "invalid key-value pair" => "here is no key: write one on each line, as in key = \"text\"",
        "unexpected key or value" if is_decimal_comma(rest) => {
            "a number has a point in place of a comma: write it as in 0.5"
        }
        "unexpected key or value" => {
            "there is more behind the value: write each key on a line of its own, and `\\\"` for a quote in a text"
        }
        "extra `=`" => "there is a `=` too many: remove it",
        "carriage return must be followed by newline" => {
            "the file has line ends that TOML does not know: save it with those of Linux or Windows"
        }
        kind if is_of_a_number(kind) => {
            "this is no number: write one as in 5 or 0.5, or a text in quotes"
        }
        kind if kind.starts_with("invalid date") || kind.starts_with("invalid time") => {
            "this is no date: write one as in 2026-01-31, or a text in quotes"
        }
        _ => return error.message().to_owned(),
    };
    said.to_owned()
}

/// The key of a name that is there a second time.
fn twice(text: &str, span: &Range<usize>) -> String {
    let key = text
        .get(span.clone())
        .map_or(String::new(), |key| format!(" {}", quoted(key)));
    let before = text.get(..span.start).unwrap_or_default();
    if before.trim_end().ends_with('[') {
        format!("the section{key} is there twice: write all its lines under one of the two")
    } else {
        format!("the key{key} is there twice: remove one")
    }
}

fn is_decimal_comma(rest: &str) -> bool {
    let behind = rest.strip_prefix(',');
    behind.is_some_and(|behind| behind.starts_with(|c: char| c.is_ascii_digit()))
}

fn is_of_a_number(kind: &str) -> bool {
    matches!(
        kind,
        "invalid integer number"
            | "invalid hexadecimal number"
            | "invalid octal number"
            | "invalid binary number"
            | "invalid float"
            | "invalid mantissa"
            | "invalid fraction"
            | "invalid exponent"
            | "unexpected leading zero"
            | "unexpected sign"
            | "redundant numeric sign"
            | "redundant integer number prefix"
            | "radix must be lowercase"
            | "integers with a radix cannot be signed"
            | "`_` may only go between digits"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_wide_letters_are_read_and_no_text_is_refused_with_its_line() {
        let text = "name = \"ä\"\n";
        let wide = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
            let units = std::iter::once(0xFEFF).chain(text.encode_utf16());
            units.flat_map(unit).collect()
        };
        for bytes in [
            text.as_bytes().to_vec(),
            [b"\xEF\xBB\xBF", text.as_bytes()].concat(),
            wide(u16::to_le_bytes),
            wide(u16::to_be_bytes),
        ] {
            assert_eq!(decoded(bytes).as_deref(), Ok(text));
        }
        for (bytes, line) in [
            (&b"a\nb\0"[..], 2),
            (b"a\n\n\xFFb", 3),
            // UTF-16 without its mark, cut in half, with half a character.
            (b"n\0a\0", 1),
            (b"\xFF\xFEn\0a", 1),
            (b"\xFF\xFE\n\0\x00\xD8", 2),
        ] {
            assert_eq!(decoded(bytes.to_vec()), Err(line), "{bytes:?}");
        }
    }

    /// Line, column and words of the first mistake.
    fn first(text: &str) -> (usize, usize, String) {
        let (_, mistakes) = parse(text);
        let (at, said) = mistakes.into_iter().next().expect(text);
        let (line, column) = place(text, at);
        (line, column, said)
    }

    #[test]
    fn each_mistake_says_in_plain_words_what_to_write() {
        for (text, at, says) in [
            (
                "a = \"b\nc = 3",
                (1, 7),
                "the text has no end: write `\"` behind it",
            ),
            ("a = 'b\nc = 3", (1, 7), "write `'` behind it"),
            ("a = \"\"\"b\n", (2, 1), "write `\"\"\"` behind it"),
            // Both have no end, and the text comes first.
            ("a = [\"b", (1, 8), "the text has no end"),
            ("a = [1, 2\n", (1, 10), "the list has no end: write `]`"),
            ("a = ['b' 'c']", (1, 10), "a comma is missing"),
            ("a = [1,,2]", (1, 8), "a comma too many"),
            ("a = 3\na = 4\n", (2, 1), "the key `a` is there twice"),
            (
                "[b]\na = 3\n[b]\n",
                (3, 2),
                "the section `b` is there twice",
            ),
            ("a = 2..3\n", (1, 7), "this is no number"),
            ("a = 007\n", (1, 5), "this is no number"),
            ("a = 0,5\n", (1, 6), "as in 0.5"),
            ("a = \n", (1, 5), "the value is missing"),
            ("a = # none\n", (1, 5), "the value is missing"),
            ("a = best\n", (1, 5), "write a text in quotes"),
            ("a = travel\n", (1, 5), "write a text in quotes"),
            ("a = news\n", (1, 5), "write a text in quotes"),
            ("a = True\n", (1, 5), "true or false in small letters"),
            ("a = “b”\n", (1, 5), "curly quotes"),
            ("a = \"C:\\x\"\n", (1, 10), "single quotes"),
            ("[a\nb = 3\n", (1, 3), "write `]` behind it"),
            ("[[a]\nb = 3\n", (1, 5), "write `]]` behind it"),
            ("a\n", (1, 2), "write `=` and a value"),
            ("a: 3\n", (1, 2), "then comes `=`"),
            ("{\"a\": 3}\n", (1, 1), "here is no key"),
            ("a = \"b\" c = 3\n", (1, 9), "on a line of its own"),
        ] {
            let (line, column, said) = first(text);
            assert_eq!((line, column), at, "{text}: {said}");
            assert!(said.contains(says), "{text}: {said}");
        }
        assert!(parse("a = 3\n").1.is_empty());
    }

    #[test]
    fn a_number_that_no_setting_can_be_is_found_wherever_it_stands() {
        let at = |text: &str| too_large(parse(text).0.get_ref()).map(|(at, _)| at);
        assert_eq!(at("a = 9223372036854775807\nb = [0.5, inf]\n"), None);
        assert_eq!(at("a = 9223372036854775808\n"), Some(4));
        assert_eq!(at("[a]\nb = [1, 1e999]\n"), Some(12));
    }
}
