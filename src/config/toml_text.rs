//! Reads TOML files that people write: settings and pipeline files.
//!
//! Takes a path and returns text of bounded size without a byte order mark. [`describe`] adds the position and the
//! known key to an error of the `toml` crate. No message quotes more of a file than a key, because a value may be a
//! secret. UTF-16 is accepted, because editors and shells on Windows write it.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

/// Maximum file size: about a thousand labels, each with a page of descriptions and a fit.
pub const MOST_BYTES: u64 = 16 << 20;
/// Maximum number of characters in a message, which may quote a key.
const LONGEST_MESSAGE: usize = 300;

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
    let read_error = |error: io::Error| match error.kind() {
        io::ErrorKind::IsADirectory => ReadTextError::Folder,
        _ => ReadTextError::Read(error),
    };
    let (mut raw, mut bytes) = (Vec::new(), Vec::new());
    // The read itself is bounded, because a pipe has no length. UTF-16 takes two bytes for a letter.
    file.take(2 * MOST_BYTES + 4)
        .read_to_end(&mut raw)
        .map_err(read_error)?;
    let is_utf8 = std::str::from_utf8(&raw).is_ok();
    topicmill_tables::bytes::decode(Box::new(Cursor::new(raw)))
        .and_then(|text| text.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(read_error)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(ReadTextError::Large);
    }
    let not_utf8 =
        |valid: &[u8]| ReadTextError::Encoding(1 + memchr::memchr_iter(b'\n', valid).count());
    // Text contains no NUL.
    if let Some(nul) = memchr::memchr(0, &bytes) {
        return Err(not_utf8(&bytes[..nul]));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| not_utf8(&error.as_bytes()[..error.utf8_error().valid_up_to()]))?;
    // The decoder replaces invalid UTF-16 with this character, which UTF-8 may contain.
    match text.find(char::REPLACEMENT_CHARACTER) {
        Some(at) if !is_utf8 => Err(not_utf8(&text.as_bytes()[..at])),
        _ => Ok(text),
    }
}

/// Formats an error on one line: its position in the text, and for an unknown key the one that was most likely meant.
pub fn describe(error: &toml::de::Error, text: &str) -> String {
    let start = error.span().unwrap_or_default().start;
    let before = text.get(..start).unwrap_or_default();
    let line = 1 + before.matches('\n').count();
    let column = 1 + before.chars().rev().take_while(|c| *c != '\n').count();
    let message = error.message();
    // serde's message is "unknown field `a`, expected one of `b`, `c`".
    let with_advice = message
        .rsplit_once(", expected ")
        .and_then(|(unknown, known)| {
            let key = unknown.strip_prefix("unknown field `")?.strip_suffix('`')?;
            let meant = nearest(key, known.split('`').skip(1).step_by(2))?;
            Some(format!("{unknown}; did you mean `{meant}`?"))
        });
    let chars = with_advice.as_deref().unwrap_or(message).chars();
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let shown: String = chars.map(printable).take(LONGEST_MESSAGE).collect();
    format!("line {line}, column {column}: {shown}")
}

/// Returns the known word that an unknown one most likely means: one with at most two or three typing errors.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&word, &known.to_lowercase());
    let meant = known.into_iter().min_by_key(|known| distance(known))?;
    (distance(meant) <= (word.chars().count() / 3).clamp(1, 3)).then_some(meant)
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
        let text = "label = \"caf\u{fffd}\"";
        assert_eq!(decode(Box::new(text.as_bytes())).unwrap(), text);
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
            let error = toml::from_str::<toml::Table>(text).expect_err(text);
            let message = describe(&error, text);
            let (line, column) = at;
            let place = format!("line {line}, column {column}: ");
            assert!(message.starts_with(&place), "{text}: {message}");
            assert!(!message.contains("secret"), "{text}: {message}");
        }
    }
}
