//! Recognises unsupported file formats by their first bytes, to give specific advice.

/// File signatures: first bytes, display name, advice.
const KINDS: &[(&[u8], &str, &str)] = &[
    (b"PK\x03\x04", "a zip archive", "extract it first"),
    (b"PK\x05\x06", "an empty zip archive", "download it again"),
    (
        b"\xd0\xcf\x11\xe0",
        "an Excel workbook (.xls)",
        "save its sheet as CSV (UTF-8)",
    ),
    (b"ARROW1", "Arrow IPC (Feather)", PARQUET),
    (b"FEA1", "Feather", PARQUET),
    (b"\xff\xff\xff\xff", "an Arrow stream", PARQUET),
    (b"ORC", "ORC", PARQUET),
    (b"Obj\x01", "Avro", PARQUET),
    (b"\x89HDF", "HDF5", PARQUET),
    (b"%PDF", "a PDF", "copy its text into a CSV or .txt file"),
    (b"{\\rtf", "RTF", "save it as plain text (.txt)"),
    (
        b"SQLite format 3\0",
        "an SQLite database",
        "write the table as CSV: `sqlite3 -csv -header FILE \"SELECT * FROM …\"`",
    ),
    (
        b"PGDMP",
        "a PostgreSQL dump",
        "write the table as CSV with `\\copy`",
    ),
    (b"\x37\x7a\xbc\xaf", "a 7z archive", "extract it first"),
    (b"Rar!", "a RAR archive", "extract it first"),
    (b"\x04\x22\x4d\x18", "compressed with LZ4", DECOMPRESS),
    (
        b"\xff\x06\x00\x00sNaPpY",
        "compressed with Snappy",
        DECOMPRESS,
    ),
    (b"\x1f\x9d", "compressed with compress (.Z)", DECOMPRESS),
    (b"]\0\0", "compressed with raw LZMA (.lzma)", DECOMPRESS),
    (b"\x80\x02", "a Python pickle", PARQUET),
    (b"\x80\x03", "a Python pickle", PARQUET),
    (b"\x80\x04", "a Python pickle", PARQUET),
    (b"\x80\x05", "a Python pickle", PARQUET),
    (b"\x89PNG", "an image", "topicmill reads text"),
    (b"\xff\xd8\xff", "an image", "topicmill reads text"),
    (b"GIF8", "an image", "topicmill reads text"),
    (b"<!DOCTYPE", "a web page", PAGE),
    (b"<!doctype", "a web page", PAGE),
    (b"<html", "a web page", PAGE),
    (b"<?xml", "XML", "write it as CSV or NDJSON"),
];

const PARQUET: &str = "write it as Parquet or CSV";
const DECOMPRESS: &str = "decompress it first, or compress it with zstd instead";
const PAGE: &str = "download the file itself";

/// Number of first bytes that are searched for control characters.
const SEARCHED_BYTES: usize = 1 << 10;

/// Returns the display name of an unsupported format, and advice; `None` if the file may be text or Parquet.
pub(super) fn unsupported_format(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let has = |part: &[u8]| memchr::memmem::find(head, part).is_some();
    if head.starts_with(b"PK\x03\x04") {
        let sheet = "save its sheet as CSV (UTF-8)";
        if has(b"opendocument") {
            return Some(("an OpenDocument file", sheet));
        }
        if has(b"word/") {
            return Some(("a Word document", "save it as plain text (.txt)"));
        }
        if has(b"[Content_Types].xml") || has(b"xl/") {
            return Some(("an Excel workbook (.xlsx)", sheet));
        }
    }
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
        "write it as CSV, NDJSON or Parquet",
    ))
}
