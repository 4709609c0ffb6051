//! Detects the format and the compression of a file from its name and its first bytes.

use std::path::Path;

use crate::bytes::{self, ByteReader, TextReader};
use crate::{TableError, csv, json, unsupported};

/// The formats of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// Delimited values (comma, semicolon or pipe) with a header row.
    Csv,
    /// Tab-separated values with a header row.
    Tsv,
    /// One JSON object per line.
    Ndjson,
    /// One JSON array of objects.
    Json,
    /// A Parquet file.
    Parquet,
    /// Plain text; each line is a row.
    Text,
}

/// The compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    Plain,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

/// Returns a file's extension in lower case.
fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

impl Compression {
    /// Derives the compression from the file extension.
    pub fn from_path(path: &Path) -> Self {
        match extension(path).as_deref() {
            Some("gz" | "gzip") => Self::Gzip,
            Some("zst" | "zstd") => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

impl TableFormat {
    /// Derives the format from the file extension, which may be followed by that of a compression.
    pub fn from_path(path: &Path) -> Option<Self> {
        let decompressed = match Compression::from_path(path) {
            Compression::Plain => path.to_owned(),
            Compression::Gzip | Compression::Zstd => path.with_extension(""),
        };
        match extension(&decompressed)?.as_str() {
            "csv" => Some(Self::Csv),
            "tsv" | "tab" => Some(Self::Tsv),
            "ndjson" | "jsonl" | "jsonlines" => Some(Self::Ndjson),
            "json" => Some(Self::Json),
            "parquet" | "pq" => Some(Self::Parquet),
            "txt" => Some(Self::Text),
            _ => None,
        }
    }

    /// Returns the display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "CSV",
            Self::Tsv => "TSV",
            Self::Ndjson => "NDJSON",
            Self::Json => "a JSON array",
            Self::Parquet => "Parquet",
            Self::Text => "lines of text",
        }
    }
}

/// Detects a file's format from its first bytes, its name and the `requested` format. Returns the format and a reader
/// for the text; `None` if the file is empty, except that empty JSON is a table without rows. For Parquet, reopen the
/// file instead of using the reader.
///
/// # Errors
/// See [`TableError`].
pub fn detect_format(
    path: &Path,
    file: ByteReader,
    requested: Option<TableFormat>,
) -> Result<Option<(TableFormat, TextReader)>, TableError> {
    let (compression, text) = bytes::decode_compressed(file)?;
    let (text, start) = bytes::peek_start(text)?;
    let named = TableFormat::from_path(path);
    let is_parquet = start.starts_with(b"PAR1");
    if !is_parquet {
        unsupported::check_supported(&start)?;
    }
    if is_parquet || requested.or(named) == Some(TableFormat::Parquet) {
        if compression != Compression::Plain || !path.is_file() {
            return Err(TableError::NotSeekable);
        }
        return Ok(Some((TableFormat::Parquet, text)));
    }
    if start.is_empty() {
        let is_json = matches!(
            requested.or(named),
            Some(TableFormat::Json | TableFormat::Ndjson)
        );
        return Ok(is_json.then_some((TableFormat::Ndjson, text)));
    }
    let format = detect_text_format(&start, requested, named);
    Ok(Some((format, text)))
}

/// Detects the format of a file that is not Parquet from its `start`, which is not empty, the `requested` format and
/// the format that the file name suggests.
fn detect_text_format(
    start: &[u8],
    requested: Option<TableFormat>,
    named: Option<TableFormat>,
) -> TableFormat {
    use TableFormat::{Csv, Json, Ndjson, Text, Tsv};
    if let Some(format @ (Csv | Tsv | Text)) = requested {
        return format;
    }
    // JSON is detected by content: an array named .ndjson or .csv is still an array.
    if json::looks_like_json(start) {
        return if start[0] == b'[' { Json } else { Ndjson };
    }
    if let Some(format) = requested {
        return format;
    }
    match named {
        Some(Text) if csv::has_header_row(start) => Csv,
        Some(format) => format,
        None if start[0] == b'{' => Ndjson,
        None if csv::is_prose(start) => Text,
        None => Csv,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_determine_format_and_compression() {
        for (path, format, compression) in [
            ("a.csv", Some(TableFormat::Csv), Compression::Plain),
            ("a.CSV.GZ", Some(TableFormat::Csv), Compression::Gzip),
            ("a.jsonl.zst", Some(TableFormat::Ndjson), Compression::Zstd),
            ("a.b/c", None, Compression::Plain),
            ("RS_2024-01.zst", None, Compression::Zstd),
            ("-", None, Compression::Plain),
        ] {
            let path = Path::new(path);
            assert_eq!(TableFormat::from_path(path), format, "{path:?}");
            assert_eq!(Compression::from_path(path), compression, "{path:?}");
        }
    }
}
