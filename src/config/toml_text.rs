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
use toml::de::DeTable;

/// A pipeline file of a thousand labels with a page of descriptions each has about this size.
pub const MOST_BYTES: u64 = 4 << 20;
/// Letters of the file that a message repeats.
const MOST_QUOTED: usize = 60;

/// Why a file has no text.
#[derive(Debug, thiserror::Error)]
pub enum ReadTextError {
    /// It is a folder.
    #[error("it is a folder; give the path of a file in it")]
    Folder,
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
    #[error("line {0} is not UTF-8; save the file as UTF-8")]
    Encoding(usize),
}

/// Reads the text of a file.
///
/// # Errors
/// See [`ReadTextError`].
pub fn read(path: &Path) -> Result<String, ReadTextError> {
    let file = File::open(path).map_err(ReadTextError::Read)?;
    decode(Box::new(file))
}

fn decode(file: Box<dyn Read + Send>) -> Result<String, ReadTextError> {
    let mut bytes = Vec::new();
    // A pipe does not say how long it is, so the reading is bounded and not the length that the system reports.
    topicmill_tables::bytes::decode(file)
        .and_then(|text| text.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| match error.kind() {
            io::ErrorKind::IsADirectory => ReadTextError::Folder,
            _ => ReadTextError::Read(error),
        })?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(ReadTextError::Large);
    }
    let no_text =
        |good: &[u8]| ReadTextError::Encoding(1 + memchr::memchr_iter(b'\n', good).count());
    // A NUL is in no text.
    if let Some(nul) = memchr::memchr(0, &bytes) {
        return Err(no_text(&bytes[..nul]));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| no_text(&error.as_bytes()[..error.utf8_error().valid_up_to()]))?;
    // The decoder replaces each broken character of UTF-16 with this one.
    match text.find(char::REPLACEMENT_CHARACTER) {
        Some(at) => Err(no_text(&text.as_bytes()[..at])),
        None => Ok(text),
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

/// The line and the column of a byte, from 1; columns are characters.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
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
    fn what_is_no_text_is_refused_with_its_line() {
        for (bytes, line) in [
            (&b"a\nb\0"[..], 2),
            (b"a\n\n\xFFb", 3),
            (b"\xFF\xFEn\0a", 1),
            (b"\xFF\xFE\n\0\x00\xD8", 2),
        ] {
            let read = decode(Box::new(bytes));
            assert!(
                matches!(read, Err(ReadTextError::Encoding(at)) if at == line),
                "{read:?}"
            );
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
            assert_eq!(line_and_column(text, byte), at, "{text}: {message}");
            assert!(!message.contains("secret"), "{text}: {message}");
        }
        assert!(parse("a = 3\n").1.is_empty());
    }
}
