//! Reads and writes tables: CSV, TSV, NDJSON, JSON arrays, Parquet and lines of text.
//!
//! [`open`] detects the format and compression of a file or pipe, in UTF-8 or UTF-16, and streams [rows](Row) of named
//! cells, so that memory use does not depend on the table's size. The crate does not interpret cells; its callers turn
//! rows into posts or texts. For output, [columns](topicmill_core::ColumnCells) become Parquet, and rows become CSV.
//!
//! An input [`Cell`] keeps a value as written in the file, with all digits. An output
//! [`ColumnCell`](topicmill_core::ColumnCell) has the type of its column.

pub mod bytes;
pub mod csv;
pub mod json;
mod lines;
mod page_sizes;
pub mod panics;
pub mod parquet;
mod text_lines;
mod unsupported;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ::parquet::errors::ParquetError;
use serde_json::value::RawValue;

use self::bytes::{ByteReader, TextReader};
use self::csv::Csv;
use self::json::JsonRecords;
use self::parquet::Parquet;
use self::text_lines::TextLines;

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

/// A cell in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// No value.
    Null,
    /// A string.
    Text(String),
    /// A JSON value on one line, which may be a JSON string.
    Json(String),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
}

impl Cell {
    /// Appends the value to `out` as JSON; bytes become a string of hexadecimal digits.
    pub fn write_json(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Text(text) => out.push_str(&json::quoted(text)),
            Self::Json(json) => out.push_str(json),
            Self::Bytes(bytes) => out.push_str(&json::quoted(&topicmill_core::hex(bytes))),
        }
    }

    /// Converts a raw JSON value to a cell.
    pub fn from_raw_json(raw: &RawValue) -> Self {
        match raw.get() {
            "null" => Self::Null,
            json => Self::Json(json::on_one_line(json)),
        }
    }

    /// Returns the text; `None` for other values, and for text that is not valid Unicode.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Null | Self::Bytes(_) => None,
            Self::Text(text) => Some(text.clone()),
            Self::Json(json) => serde_json::from_str(json).ok(),
        }
    }
}

/// A row in a table.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Number of the row's first line, or of the row itself if the format is not line-based; both count from 1.
    pub line: u64,
    /// Cells in order, each with its column name. If there is a problem, these are only the readable cells.
    pub cells: Vec<(Arc<str>, Cell)>,
    /// User-facing description of what is malformed; it does not quote the row.
    pub problem: Option<String>,
}

impl Row {
    /// Returns the cell in a column.
    pub fn cell(&self, name: &str) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find_map(|(column, cell)| (**column == *name).then_some(cell))
    }

    /// Returns true if all cells are blank, as in the rows that spreadsheets append to a table.
    pub fn is_blank(&self) -> bool {
        let is_blank = |cell: &Cell| match cell {
            Cell::Null => true,
            Cell::Text(text) => text.trim().is_empty(),
            Cell::Json(json) => json == "\"\"",
            Cell::Bytes(_) => false,
        };
        self.problem.is_none() && self.cells.iter().all(|(_, cell)| is_blank(cell))
    }

    fn broken(line: u64, problem: impl Into<String>) -> Self {
        Self {
            line,
            problem: Some(problem.into()),
            cells: Vec::new(),
        }
    }
}

/// Reads the rows in a table in order.
pub trait Rows: Send {
    /// Returns the column names if the format stores them before the rows.
    fn names(&self) -> Option<&[Arc<str>]>;

    /// Returns the names that several columns in the file share. [`Rows::names`] renames all but the first.
    fn repeated(&self) -> &[String] {
        &[]
    }

    /// Selects columns by their indices in [`Rows::names`], before the first row is read. By default, and if there are
    /// no names, all columns are read.
    ///
    /// # Errors
    /// Returns an error if these columns cannot be read.
    fn select(&mut self, _columns: &[usize]) -> Result<(), TableError> {
        Ok(())
    }

    /// Returns the next row; `None` at the end, and after a row whose problem makes the rest unreadable.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    fn next_row(&mut self) -> Result<Option<Row>, TableError>;
}

/// An error in reading a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The header row is invalid.
    #[error("{0}")]
    Header(String),
    /// The Parquet file is invalid.
    #[error(transparent)]
    Parquet(#[from] ParquetFault),
    /// The file has an unsupported format.
    #[error("it is {name}: {advice}")]
    UnsupportedFormat {
        /// The format's display name.
        name: &'static str,
        /// How to convert the file.
        advice: &'static str,
    },
    /// The input is Parquet, but is compressed or comes from a pipe.
    #[error(
        "Parquet can be read only from an uncompressed file: decompress it first, or save the piped data to a file"
    )]
    NotSeekable,
    /// The Parquet file has two columns with the same name.
    #[error("two columns are named `{0}`: rename one of them")]
    DuplicateColumn(String),
    /// The Parquet file uses an unsupported codec.
    #[error(
        "it is compressed with {0}, which topicmill cannot read: write it again with zstd or snappy"
    )]
    UnsupportedCodec(&'static str),
}

impl TableError {
    /// Converts an error from the Parquet library. Keeps I/O errors from the operating system. A decompressor also
    /// returns I/O errors, but without an error number, so they count as damage.
    pub fn from_parquet(error: ParquetError) -> Self {
        let ParquetError::External(source) = error else {
            return ParquetFault::from(error).into();
        };
        match source.downcast::<io::Error>() {
            Ok(error) if error.raw_os_error().is_some() => Self::Io(*error),
            Ok(error) => ParquetFault::from(ParquetError::External(error)).into(),
            Err(source) => ParquetFault::from(ParquetError::External(source)).into(),
        }
    }
}

/// An error in the content of a Parquet file.
#[derive(Debug, thiserror::Error)]
pub enum ParquetFault {
    /// The file is not Parquet, is truncated or is damaged.
    #[error(
        "not a Parquet file, or a damaged one: {0}; download it again, or write it again, for example as CSV"
    )]
    Damaged(#[from] ParquetError),
    /// The file's pages would exceed the memory limit.
    #[error(
        "{what}, above the limit of {} MiB: write it again with smaller pages or row groups, or as CSV",
        .limit >> 20
    )]
    TooLarge {
        /// A description of the part that exceeds the limit.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
}

impl ParquetFault {
    /// Creates an error for inconsistent metadata.
    pub fn damaged(why: &str) -> Self {
        ParquetError::General(format!("it is damaged ({why})")).into()
    }
}

/// An open table.
pub struct OpenTable {
    /// Reader for the rows.
    pub rows: Box<dyn Rows>,
    /// Detected format.
    pub format: TableFormat,
    /// Delimiter for CSV and TSV.
    pub delimiter: Option<u8>,
}

/// Returns the problem of a row that is not UTF-8. `place`, which may be empty, says where. The encoding is not guessed
/// because a wrong guess would corrupt the text.
pub(crate) fn not_utf8(place: &str) -> String {
    format!(
        "is not UTF-8{place}: convert the file, for example with `iconv -f WINDOWS-1252 -t UTF-8`"
    )
}

/// Opens a table, or stdin for `-`; returns `None` if it is empty, except that empty JSON is a table without rows.
///
/// If `format` is `None`, it is detected from the file name and the first bytes.
///
/// # Errors
/// See [`TableError`].
pub fn open(path: &Path, format: Option<TableFormat>) -> Result<Option<OpenTable>, TableError> {
    let Some((format, text)) = detect_format(path, bytes::open(path)?, format)? else {
        return Ok(None);
    };
    let mut delimiter = None;
    let rows: Box<dyn Rows> = match format {
        TableFormat::Json | TableFormat::Ndjson => Box::new(JsonRecords::new(text)),
        TableFormat::Csv | TableFormat::Tsv => {
            let tab = (format == TableFormat::Tsv).then_some(b'\t');
            let rows = Csv::new(text, tab)?;
            delimiter = Some(rows.delimiter());
            Box::new(rows)
        }
        TableFormat::Parquet => Box::new(Parquet::new(File::open(path)?)?),
        TableFormat::Text => Box::new(TextLines::new(text)),
    };
    Ok(Some(OpenTable {
        rows,
        format,
        delimiter,
    }))
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
