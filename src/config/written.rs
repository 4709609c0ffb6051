//! Files that people write in TOML: settings, and pipeline files.
//!
//! A path goes in; out comes text, bounded in size and without a byte order mark, and its syntax errors in the words of
//! the `toml` crate, each with its place. No message repeats more of a file than a key, because a value may be a secret.
//!
//! Editors and shells of Windows write UTF-16 or a byte order mark. Both are read, since nobody sees them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A pipeline file of a thousand labels with a page of descriptions each has about this size.
pub const MOST_BYTES: u64 = 4 << 20;
/// Letters of the file that a message repeats.
const MOST_QUOTED: usize = 60;

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

/// Parses a text as far as it is TOML, and returns its syntax errors in order: the byte offset of each, and its message.
pub fn parse(text: &str) -> (Spanned<DeTable<'_>>, Vec<(usize, String)>) {
    let (table, broken) = DeTable::parse_recoverable(text);
    let mistakes = broken.iter().map(|error| {
        let at = error.span().unwrap_or_default().start;
        (at, error.message().to_owned())
    });
    let mut mistakes: Vec<_> = mistakes.collect();
    mistakes.sort_by_key(|(at, _)| *at);
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

    #[test]
    fn syntax_errors_have_their_place_and_repeat_no_value() {
        for (text, at) in [
            ("a = \"secret\nc = 3", (1, 12)),
            ("a = [\"secret\" 2\n", (1, 15)),
            ("a = 3\na = 4\n", (2, 1)),
            ("a = secret\n", (1, 5)),
            ("a = \"C:\\xsecret\"\n", (1, 10)),
            ("[a\nb = \"secret\"\n", (1, 3)),
            ("a\n", (1, 2)),
        ] {
            let (_, mistakes) = parse(text);
            let (byte, message) = mistakes.into_iter().next().expect(text);
            assert_eq!(place(text, byte), at, "{text}: {message}");
            assert!(!message.contains("secret"), "{text}: {message}");
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
