//! Recognises unsupported file formats by their first bytes, to give specific advice.

use crate::TableError;

/// The first bytes of a format.
struct Signature {
    start: &'static [u8],
    name: &'static str,
    advice: &'static str,
}

/// A list of signatures, one a line: the first bytes, the format's display name and advice.
macro_rules! signatures {
    ($($start:expr, $name:expr, $advice:expr;)+) => {
        &[$(Signature { start: $start, name: $name, advice: $advice }),+]
    };
}

/// The formats that are recognised by their first bytes.
const SIGNATURES: &[Signature] = signatures! {
    b"PK\x03\x04", "an Excel workbook, an OpenDocument file or a zip archive",
        "save its sheet as CSV (UTF-8), or extract it first";
    b"\xd0\xcf\x11\xe0", "an Excel workbook (.xls)", "save its sheet as CSV (UTF-8)";
    b"ARROW1", "Arrow IPC (Feather)", PARQUET;
    b"%PDF-", "a PDF", "copy its text into a CSV or .txt file";
    b"Obj\x01", "Avro", PARQUET;
    b"SQLite format 3\0", "an SQLite database",
        "write the table as CSV: `sqlite3 -csv -header FILE \"SELECT * FROM …\"`";
    b"\xfd7zXZ", "compressed with xz", "pipe it in: `xzcat FILE | topicmill … -`";
    b"\x37\x7a\xbc\xaf", "a 7z archive", "extract it first";
    b"<!DOCTYPE", "a web page", "download the file itself";
    b"<!doctype", "a web page", "download the file itself";
    b"<html", "a web page", "download the file itself";
    b"<?xml", "XML", "write it as CSV or NDJSON";
};

const PARQUET: &str = "write it as Parquet or CSV";

/// Number of first bytes that are searched for control characters.
const SEARCHED_BYTES: usize = 1 << 10;

/// Checks that a file that begins with `head` may be text or Parquet.
///
/// # Errors
/// Returns [`TableError::UnsupportedFormat`] for other files.
pub(super) fn check_supported(head: &[u8]) -> Result<(), TableError> {
    let mut signatures = SIGNATURES.iter();
    let signature = signatures.find(|signature| head.starts_with(signature.start));
    let (name, advice) = if head.get(257..262) == Some(b"ustar") {
        ("a tar archive", "extract it first")
    } else if head.starts_with(b"BZh") && head.get(4..10) == Some(b"1AY&SY") {
        (
            "compressed with bzip2",
            "pipe it in: `bzcat FILE | topicmill … -`",
        )
    } else if let Some(signature) = signature {
        (signature.name, signature.advice)
    } else if head.starts_with(b"ORC") && head.iter().take(32).any(|byte| is_control(*byte)) {
        // Text may begin with these letters, as in `ORCID`.
        ("ORC", PARQUET)
    } else if !is_binary(head) {
        return Ok(());
    } else {
        (
            "neither text nor a known format",
            "decompress it, or write it as CSV, NDJSON or Parquet",
        )
    };
    Err(TableError::UnsupportedFormat { name, advice })
}

/// Returns true if more than three bytes, and more than one in twenty, are control characters that text does not have.
fn is_binary(head: &[u8]) -> bool {
    let searched = &head[..head.len().min(SEARCHED_BYTES)];
    let controls = searched.iter().filter(|byte| is_control(**byte)).count();
    controls > 3 && controls * 20 > searched.len()
}

fn is_control(byte: u8) -> bool {
    byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_may_begin_like_a_signature() {
        assert!(check_supported(b"BZhou asked: is rye bread sour?\n").is_ok());
        assert!(check_supported(b"<!-- a comment --> and a text\n").is_ok());
        assert!(check_supported(b"BZh91AY&SY\xb1").is_err());
        assert!(check_supported(b"ORCID,text\n0000-0001,rye bread\n").is_ok());
        // An uncompressed column of text.
        let stripe = [b"ORC\n\x12\x08\x08".as_slice(), &[b'a'; 1_000]].concat();
        assert!(check_supported(&stripe).is_err());
    }
}
