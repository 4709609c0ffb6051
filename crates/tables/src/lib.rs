//! Rows of a table, whatever its format: CSV, TSV, NDJSON, a JSON array, Parquet, lines of text.
//!
//! A file or a pipe, packed or not, in UTF-8 or UTF-16, becomes [rows](Row) of named cells, one at a time, so that a
//! table of any size fits into memory. What the cells mean is for others to say: `sources` makes posts of them, `files`
//! texts. In the other direction [columns of values](topicmill_core::ColumnCells) become Parquet, and rows CSV.
//!
//! A [`Cell`] that was read keeps a value as the file writes it, with every digit; a
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
    /// Values with commas, semicolons or the like between them, and a line of names.
    Csv,
    /// The same with tabs.
    Tsv,
    /// A JSON object on each line.
    Ndjson,
    /// One JSON array of objects.
    Json,
    /// A Parquet file.
    Parquet,
    /// A text on each line.
    Text,
}

/// How the bytes of a file are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    Plain,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
    /// bzip2.
    Bzip2,
    /// xz.
    Xz,
}

impl TableFormat {
    /// What the ending of a file's name says, with how it is packed.
    pub fn from_path(path: &Path) -> (Option<Self>, Compression) {
        let ending = |name: &Path| {
            let ending = name.extension()?.to_str()?;
            Some(ending.to_ascii_lowercase())
        };
        let packing = match ending(path).as_deref() {
            Some("gz" | "gzip") => Compression::Gzip,
            Some("zst" | "zstd") => Compression::Zstd,
            Some("bz2") => Compression::Bzip2,
            Some("xz") => Compression::Xz,
            _ => Compression::Plain,
        };
        let inner = match packing {
            Compression::Plain => path.to_owned(),
            _ => path.with_extension(""),
        };
        let format = match ending(&inner).as_deref() {
            Some("csv") => Some(Self::Csv),
            Some("tsv" | "tab") => Some(Self::Tsv),
            Some("ndjson" | "jsonl" | "jsonlines") => Some(Self::Ndjson),
            Some("json") => Some(Self::Json),
            Some("parquet" | "pq") => Some(Self::Parquet),
            Some("txt") => Some(Self::Text),
            _ => None,
        };
        (format, packing)
    }

    /// Its name, as people write it.
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

/// A cell of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// Nothing.
    Null,
    /// A text.
    Text(String),
    /// A value as JSON writes it, on one line; a text may be one, too.
    Json(String),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
}

impl Cell {
    /// The value as JSON writes it, put behind `out`; bytes as the text of their hexadecimal digits.
    pub fn write_json(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Text(text) => out.push_str(&json::quoted(text)),
            Self::Json(json) => out.push_str(json),
            Self::Bytes(bytes) => out.push_str(&json::quoted(&topicmill_core::hex(bytes))),
        }
    }

    /// A JSON value as a cell.
    pub fn from_raw_json(raw: &RawValue) -> Self {
        match raw.get() {
            "null" => Self::Null,
            json => Self::Json(json::on_one_line(json)),
        }
    }

    /// The text that it holds; `None` where it holds something else, or one that is no Unicode.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Null | Self::Bytes(_) => None,
            Self::Text(text) => Some(text.clone()),
            Self::Json(json) => serde_json::from_str(json).ok(),
        }
    }
}

/// A row of a table.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Number of its first line, or of the row where the format has no lines; from 1.
    pub line: u64,
    /// Its cells in order, each with the name of its column; of a row with a problem those that could be read.
    pub cells: Vec<(Arc<str>, Cell)>,
    /// What is wrong with the row, without quoting it.
    pub problem: Option<String>,
}

impl Row {
    /// The cell of a column.
    pub fn cell(&self, name: &str) -> Option<&Cell> {
        let found = self.cells.iter().find(|(column, _)| **column == *name);
        found.map(|(_, cell)| cell)
    }

    fn broken(line: u64, problem: impl Into<String>) -> Self {
        Self {
            line,
            problem: Some(problem.into()),
            cells: Vec::new(),
        }
    }
}

/// The rows of a table in order.
pub trait Rows: Send {
    /// Names of the columns, where the table says them before its rows.
    fn names(&self) -> Option<&[Arc<str>]>;

    /// Names that several columns have in the file; in [`Rows::names`] only the first of them does.
    fn repeated(&self) -> &[String] {
        &[]
    }

    /// Chooses columns by their places among the names, before the first row; without this all are read. Where there are
    /// no names, all of a row are.
    ///
    /// # Errors
    /// When these columns cannot be read.
    fn select(&mut self, _columns: &[usize]) -> Result<(), TableError> {
        Ok(())
    }

    /// The next row; `None` at the end, and after a row that says why what follows cannot be read.
    ///
    /// # Errors
    /// When the file cannot be read.
    fn next_row(&mut self) -> Result<Option<Row>, TableError>;
}

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The line of names.
    #[error("{0}")]
    Header(String),
    /// Parquet.
    #[error(transparent)]
    Parquet(#[from] ParquetFault),
    /// A file of another kind: its name, and what to do.
    #[error("it is {0}: {1}")]
    UnsupportedFormat(&'static str, &'static str),
    /// Parquet from a pipe, or packed.
    #[error(
        "Parquet is read from a file that is neither packed nor a pipe: unpack or save it first"
    )]
    NotSeekable,
    /// Parquet of which nobody can say which column is meant.
    #[error("two columns are named `{0}`, and only one of them can be meant: rename one of them")]
    DuplicateColumn(String),
    /// Parquet that is packed as nobody here unpacks it.
    #[error(
        "it is packed with {0}, which topicmill does not read: write it again with zstd or snappy"
    )]
    UnsupportedCodec(&'static str),
}

impl TableError {
    /// Of Parquet. What the system said comes out as it was; what is wrong with packed bytes is an error of the system's
    /// kind, too, and is damage.
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

/// Why a Parquet file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ParquetFault {
    /// Not Parquet, or broken.
    #[error(
        "no Parquet file, or not a whole one: {0}; fetch it again, or write it anew, as CSV for example"
    )]
    Damaged(#[from] ParquetError),
    /// A file whose pages would not fit into memory.
    #[error(
        "{what}, and at most {} MiB are read: write it anew with smaller pages or row groups, or as CSV",
        .most >> 20
    )]
    TooLarge {
        /// What is how large.
        what: String,
        /// What it may be, in bytes.
        most: u64,
    },
}

impl ParquetFault {
    /// A file that contradicts itself.
    pub fn damaged(why: &str) -> Self {
        ParquetError::General(format!("it is damaged ({why})")).into()
    }
}

/// A table that was opened.
pub struct OpenTable {
    /// Its rows.
    pub rows: Box<dyn Rows>,
    /// Its format.
    pub format: TableFormat,
    /// What stands between its values, in CSV and TSV.
    pub delimiter: Option<u8>,
}

/// What is wrong with a row whose bytes are no UTF-8: nobody can say which characters were meant, and a wrong guess would
/// damage the text.
pub(crate) const NOT_UTF8: &str =
    "is not UTF-8: convert the file, with `iconv -f WINDOWS-1252 -t UTF-8` for example";

/// Opens a table, or stdin for `-`; `None` where there is not a byte in it. `format` and `delimiter`: what is known of it;
/// the file's name and its first bytes say the rest.
///
/// # Errors
/// See [`TableError`].
pub fn open(
    path: &Path,
    format: Option<TableFormat>,
    delimiter: Option<u8>,
) -> Result<Option<OpenTable>, TableError> {
    let Some((format, text)) = detect_format(path, bytes::open(path)?, format)? else {
        return Ok(None);
    };
    let mut separator = None;
    let rows: Box<dyn Rows> = match format {
        TableFormat::Json | TableFormat::Ndjson => Box::new(JsonRecords::new(text)),
        TableFormat::Csv | TableFormat::Tsv => {
            let tab = (format == TableFormat::Tsv).then_some(b'\t');
            let rows = Csv::new(text, delimiter.or(tab))?;
            separator = Some(rows.delimiter());
            Box::new(rows)
        }
        TableFormat::Parquet => Box::new(Parquet::new(File::open(path)?)?),
        TableFormat::Text => Box::new(TextLines::new(text)),
    };
    Ok(Some(OpenTable {
        rows,
        format,
        delimiter: separator,
    }))
}

/// Finds the format of a file by its bytes, its name and what was `asked` for, and returns it with the text to read;
/// `None` where there is not a byte in it. Parquet is read from the file anew.
///
/// # Errors
/// See [`TableError`].
pub fn detect_format(
    path: &Path,
    file: ByteReader,
    asked: Option<TableFormat>,
) -> Result<Option<(TableFormat, TextReader)>, TableError> {
    let (packing, text) = bytes::decode_compressed(file)?;
    let (text, start) = bytes::peek_start(text)?;
    let named = TableFormat::from_path(path).0;
    let is_parquet = start.starts_with(b"PAR1");
    if let Some((name, advice)) = unsupported::unsupported_format(&start).filter(|_| !is_parquet) {
        return Err(TableError::UnsupportedFormat(name, advice));
    }
    if is_parquet || asked.or(named) == Some(TableFormat::Parquet) {
        if packing != Compression::Plain || !path.is_file() {
            return Err(TableError::NotSeekable);
        }
        return Ok(Some((TableFormat::Parquet, text)));
    }
    if start.is_empty() {
        let is_json = matches!(
            asked.or(named),
            Some(TableFormat::Json | TableFormat::Ndjson)
        );
        return Ok(is_json.then_some((TableFormat::Ndjson, text)));
    }
    // Of JSON, a text says itself what it is: an array called .ndjson, or .csv, is an array still.
    let format = match (asked, named) {
        (Some(format @ (TableFormat::Csv | TableFormat::Tsv | TableFormat::Text)), _) => format,
        _ if json::looks_like_json(&start) => match start[0] {
            b'[' => TableFormat::Json,
            _ => TableFormat::Ndjson,
        },
        (None, Some(TableFormat::Text)) if csv::has_names(&start) => TableFormat::Csv,
        (Some(format), _) | (None, Some(format)) => format,
        (None, None) if start[0] == b'{' => TableFormat::Ndjson,
        (None, None) if csv::is_prose(&start) => TableFormat::Text,
        (None, None) => TableFormat::Csv,
    };
    Ok(Some((format, text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_say_format_and_packing() {
        let of = |name: &str| TableFormat::from_path(Path::new(name));
        assert_eq!(of("a.csv"), (Some(TableFormat::Csv), Compression::Plain));
        assert_eq!(of("a.CSV.GZ"), (Some(TableFormat::Csv), Compression::Gzip));
        assert_eq!(
            of("a.jsonl.zst"),
            (Some(TableFormat::Ndjson), Compression::Zstd)
        );
        assert_eq!(of("a.b/c"), (None, Compression::Plain));
        assert_eq!(of("RS_2024-01.zst"), (None, Compression::Zstd));
        assert_eq!(of("-"), (None, Compression::Plain));
    }
}
