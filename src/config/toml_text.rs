//! Reads TOML files that people write: settings and pipeline files.
//!
//! Takes a path and returns text of bounded size without a byte order mark. Parsing returns the syntax errors of the
//! `toml` crate with their positions. No message quotes more of a file than a key, because a value may be a secret.
//! UTF-16 is accepted, because editors and shells on Windows write it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toml::Spanned;
use toml::de::DeTable;

/// Maximum file size: about a thousand labels, each with a page of descriptions and a fit.
pub const MOST_BYTES: u64 = 16 << 20;
/// Maximum number of characters that a message quotes from the file.
const MOST_QUOTED: usize = 60;

/// Reasons why a file cannot be read as text.
#[derive(Debug, thiserror::Error)]
pub enum ReadTextError {
    /// It is a folder.
    #[error("it is a folder; use the path of a file in it")]
    Folder,
    /// It cannot be read.
    #[error("{0}; let this user read it, or choose a different file")]
    Read(#[source] io::Error),
    /// It exceeds [`MOST_BYTES`].
    #[error(
        "it is larger than {} MiB, so it is not a TOML file of topicmill; correct the path",
        MOST_BYTES >> 20
    )]
    Large,
    /// The first line that is not UTF-8.
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
    // Bounds the read itself, because a pipe has no length.
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
    // Text contains no NUL.
    if let Some(nul) = memchr::memchr(0, &bytes) {
        return Err(no_text(&bytes[..nul]));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| no_text(&error.as_bytes()[..error.utf8_error().valid_up_to()]))?;
    // The decoder replaces invalid UTF-16 with this character.
    match text.find(char::REPLACEMENT_CHARACTER) {
        Some(at) => Err(no_text(&text.as_bytes()[..at])),
        None => Ok(text),
    }
}

/// Parses TOML as far as possible. Returns the table and the syntax errors in order, each with its byte offset.
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

/// Returns the line and the column of a byte offset, both from 1; columns count characters.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    // An offset inside a character means the start of that character.
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

/// Quotes part of the file for a message: at most [`MOST_QUOTED`] characters, on one line.
pub fn quoted(text: &str) -> String {
    let escaped = text.chars().flat_map(char::escape_debug);
    let mut shown: String = escaped.take(MOST_QUOTED).collect();
    if text.chars().count() > MOST_QUOTED {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// Returns the known key that an unknown one most likely means.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word = word.to_lowercase().replace('-', "_");
    // Allows about two typing errors, fewer in short words.
    let most = (word.chars().count() / 3).clamp(1, 3);
    let distance = |known: &str| {
        let part = word.len() >= 4 && (known.contains(&word) || word.contains(known));
        let edits = strsim::damerau_levenshtein(&word, known);
        // `url_fil` is a part of `url_file` and contains `url`, but has fewer errors as `url_file`.
        (if part { 0 } else { edits }, edits)
    };
    let by_distance = known.iter().map(|known| (distance(known), *known));
    let ((distance, _), nearest) = by_distance.min_by_key(|(distance, _)| *distance)?;
    (distance <= most).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_text_is_rejected_with_its_line() {
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
    fn syntax_errors_have_a_position_and_quote_no_value() {
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
