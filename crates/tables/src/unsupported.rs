//! Recognises unsupported file formats by their first bytes, to give specific advice.

/// File signatures: first bytes, display name, advice.
const KINDS: &[(&[u8], &str, &str)] = &[
    (
        b"PK\x03\x04",
        "an Excel workbook, an OpenDocument file or a zip archive",
        "save its sheet as CSV (UTF-8), or extract it first",
    ),
    (
        b"\xd0\xcf\x11\xe0",
        "an Excel workbook (.xls)",
        "save its sheet as CSV (UTF-8)",
    ),
    (b"ARROW1", "Arrow IPC (Feather)", PARQUET),
    (b"ORC", "ORC", PARQUET),
    (b"%PDF", "a PDF", "copy its text into a CSV or .txt file"),
    (b"Obj\x01", "Avro", PARQUET),
    (
        b"SQLite format 3\0",
        "an SQLite database",
        "write the table as CSV: `sqlite3 -csv -header FILE \"SELECT * FROM …\"`",
    ),
    (
        b"BZh",
        "compressed with bzip2",
        "pipe it in: `bzcat FILE | topicmill … -`",
    ),
    (
        b"\xfd7zXZ",
        "compressed with xz",
        "pipe it in: `xzcat FILE | topicmill … -`",
    ),
    (b"\x37\x7a\xbc\xaf", "a 7z archive", "extract it first"),
    (b"<!", "a web page", "download the file itself"),
    (b"<html", "a web page", "download the file itself"),
    (b"<?xml", "XML", "write it as CSV or NDJSON"),
];

const PARQUET: &str = "write it as Parquet or CSV";

/// Number of first bytes that are searched for control characters.
const SEARCHED_BYTES: usize = 1 << 10;

/// Returns the display name of an unsupported format, and advice; `None` if the file may be text or Parquet.
pub(super) fn unsupported_format(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if head.get(257..262) == Some(b"ustar") {
        return Some(("a tar archive", "extract it first"));
    }
    let known = KINDS.iter().find(|(start, ..)| head.starts_with(start));
    if let Some((_, name, advice)) = known {
        return Some((name, advice));
    }
    let searched = &head[..head.len().min(SEARCHED_BYTES)];
    let is_control =
        |byte: &&u8| **byte < 0x20 && !matches!(**byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
    let controls = searched.iter().filter(is_control).count();
    (controls > 3 && controls * 20 > searched.len()).then_some((
        "neither text nor a known format",
        "decompress it, or write it as CSV, NDJSON or Parquet",
    ))
}
