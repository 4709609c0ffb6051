//! Where a data set goes, and in which format.

use std::path::PathBuf;

use super::split::Split;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One row a line, with a line of names.
    Csv,
    /// One JSON object a line.
    Ndjson,
    /// Parquet, compressed with zstd.
    Parquet,
    /// A workbook of Excel, with one sheet.
    Xlsx,
    /// The fullnames of the posts alone, one a line.
    Ids,
}

/// Where a data set goes.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The file or folder.
    pub path: PathBuf,
    /// The format of a file; `None` makes a folder.
    pub format: Option<Format>,
    /// Replace what is there.
    pub overwrite: bool,
    /// Begin a CSV with a byte order mark, by which spreadsheets see that it is UTF-8.
    pub bom: bool,
    /// See [`crate::domain::spreadsheet_safe`].
    pub safe_csv: bool,
    /// Into parts: files of a folder, a column of a file.
    pub split: Option<Split>,
}
