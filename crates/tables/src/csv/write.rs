//! Writes CSV and TSV.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::Value;
use topicmill_core::{ColumnCell, spreadsheet_safe};

/// A CSV writer.
pub struct CsvWriter<W: Write>(csv::Writer<W>);

impl<W: Write> CsvWriter<W> {
    /// Creates a writer with this delimiter.
    pub fn new(to: W, delimiter: u8) -> Self {
        let mut builder = csv::WriterBuilder::new();
        Self(builder.delimiter(delimiter).from_writer(to))
    }

    /// Writes a row; the first one is the header. All rows must have the same number of values.
    ///
    /// # Errors
    /// Returns an error if the row cannot be written.
    pub fn write_row(
        &mut self,
        values: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> io::Result<()> {
        for value in values {
            self.0.write_field(value.as_ref())?;
        }
        Ok(self.0.write_record(None::<&[u8]>)?)
    }

    /// Flushes the buffer and returns the inner writer.
    ///
    /// # Errors
    /// Returns an error if the buffer cannot be written.
    pub fn finish(self) -> io::Result<W> {
        self.0.into_inner().map_err(csv::IntoInnerError::into_error)
    }
}

/// Formats a cell for CSV. With `safe`, escapes formulas; see [`spreadsheet_safe`].
pub fn cell_text(cell: ColumnCell<'_>, safe: bool) -> Cow<'_, str> {
    match cell {
        ColumnCell::Text(text) if safe => spreadsheet_safe(text),
        cell => cell.text(),
    }
}

/// Formats a JSON value for CSV. With `safe`, escapes formulas; see [`spreadsheet_safe`].
pub fn value_text(value: &Value, safe: bool) -> Cow<'_, str> {
    match value {
        Value::Null => Cow::Borrowed(""),
        Value::String(text) => cell_text(ColumnCell::Text(text), safe),
        other => Cow::Owned(other.to_string()),
    }
}

/// Formats rows of JSON values as CSV. With `safe`, escapes formulas; see [`spreadsheet_safe`].
pub fn to_csv<'r>(rows: impl IntoIterator<Item = &'r Vec<Value>>, safe: bool) -> String {
    let mut writer = CsvWriter::new(Vec::new(), b',');
    let written = rows
        .into_iter()
        .try_for_each(|row| writer.write_row(row.iter().map(|value| value_text(value, safe))));
    let bytes = written
        .and_then(|()| writer.finish())
        .expect("writing rows of equal length to memory cannot fail");
    String::from_utf8(bytes).expect("cells are UTF-8")
}
