//! A pipeline file as text: bounded in size, and without a byte order mark.
//!
//! Editors and shells of Windows write UTF-16 or a byte order mark. Both are read, since nobody sees them.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use super::PipelineError;

/// A pipeline file of a thousand labels with a page of descriptions each has about this size.
const MOST_BYTES: u64 = 4 << 20;

/// Reads the text of a pipeline file.
///
/// # Errors
/// [`PipelineError::Read`], [`PipelineError::Large`], [`PipelineError::Encoding`] or [`PipelineError::Blank`].
pub fn read_text(path: &Path) -> Result<String, PipelineError> {
    let mut bytes = Vec::new();
    // A pipe does not say how long it is, so the reading is bounded and not the length that the system reports.
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|source| match source.kind() {
            ErrorKind::IsADirectory => PipelineError::Folder(path.to_owned()),
            _ => PipelineError::Read {
                path: path.to_owned(),
                source,
            },
        })?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(PipelineError::Large {
            path: path.to_owned(),
            most_mib: MOST_BYTES >> 20,
        });
    }
    let text = decoded(bytes).map_err(|line| PipelineError::Encoding {
        path: path.to_owned(),
        line,
    })?;
    if text.trim().is_empty() {
        return Err(PipelineError::Blank(path.to_owned()));
    }
    Ok(text)
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
}
