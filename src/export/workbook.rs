//! Rows as a workbook of Excel: one sheet, whose rows wait in a file without a name until the workbook is whole.

use std::cell::Cell as Flag;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Once;

use rust_xlsxwriter::{Format, Workbook, Worksheet, XlsxError};

use super::columns::{Column, Kind};
use crate::store::{Batch, Cell, ColumnCells};

/// Rows of a sheet without the row of names, by Excel's specification: 1,048,576 rows.
pub(super) const MOST_ROWS: u64 = 1_048_575;
/// UTF-16 units of a cell, by the same specification.
const LONGEST_TEXT: usize = 32_767;
/// The day 0 of Excel's calendar, 1899-12-30, in days before 1970.
const DAYS_BEFORE_1970: f64 = 25_569.0;
const MILLIS_A_DAY: f64 = 86_400_000.0;

/// A workbook that is being written.
pub(super) struct Sheet {
    to: BufWriter<File>,
    workbook: Workbook,
    width: u16,
    /// Rows, with that of names.
    rows: u32,
    time: Format,
    /// Texts that a cell could not hold whole.
    pub cut: u64,
}

impl Sheet {
    /// `folder` is on the disk that the workbook goes to: its rows wait there.
    pub fn new(to: BufWriter<File>, columns: &[Column], folder: &Path) -> io::Result<Self> {
        let mut workbook = Workbook::new();
        let width = u16::try_from(columns.len()).map_err(io::Error::other)?;
        guarded(|| {
            workbook.set_tempdir(folder)?;
            let sheet = workbook.add_worksheet_with_constant_memory()?;
            sheet.set_name("posts")?;
            sheet.set_freeze_panes(1, 0)?;
            for (i, column) in (0..).zip(columns) {
                // In characters: a time fits, a text shows its beginning.
                let wide = match column.kind {
                    Kind::Time => 19.0,
                    Kind::Text | Kind::Hex => 24.0,
                    _ => 12.0,
                };
                sheet.set_column_width(i, wide)?;
            }
            let bold = Format::new().set_bold();
            for (i, column) in (0..).zip(columns) {
                sheet.write_string_with_format(0, i, &column.name, &bold)?;
            }
            Ok(())
        })?;
        Ok(Self {
            to,
            workbook,
            width,
            rows: 1,
            time: Format::new().set_num_format("yyyy-mm-dd hh:mm:ss"),
            cut: 0,
        })
    }

    pub fn add(&mut self, batch: &Batch) -> io::Result<()> {
        let columns = batch.columns.iter();
        let mut columns: Vec<_> = columns.map(ColumnCells::cells).collect();
        guarded(|| {
            let sheet = self.workbook.worksheet_from_index(0)?;
            for _ in 0..batch.rows {
                for (i, column) in (0..).zip(&mut columns) {
                    let cell = column.next().unwrap_or(Cell::Null);
                    self.cut += u64::from(put(sheet, (self.rows, i), cell, &self.time)?);
                }
                self.rows += 1;
            }
            Ok(())
        })
    }

    /// The file, and how many texts were cut.
    pub fn end(mut self) -> io::Result<(BufWriter<File>, u64)> {
        guarded(|| {
            let sheet = self.workbook.worksheet_from_index(0)?;
            sheet.autofilter(0, 0, self.rows - 1, self.width - 1)?;
            self.workbook.save_to_writer(&mut self.to)
        })?;
        self.to.flush()?;
        Ok((self.to, self.cut))
    }
}

/// Writes a cell; whether its text was cut. A text is a text whatever it begins with: no formula comes of it.
fn put(
    sheet: &mut Worksheet,
    (row, column): (u32, u16),
    cell: Cell<'_>,
    time: &Format,
) -> Result<bool, XlsxError> {
    match cell {
        Cell::Text("") | Cell::Null => {}
        Cell::Text(text) => {
            let whole = fitting(text);
            sheet.write_string(row, column, whole)?;
            return Ok(whole.len() < text.len());
        }
        #[expect(clippy::cast_precision_loss, reason = "Excel has no other numbers")]
        Cell::Integer(number) => drop(sheet.write_number(row, column, number as f64)?),
        Cell::Number(number) if number.is_finite() => {
            sheet.write_number(row, column, number)?;
        }
        // Excel has no infinity, and no number for what is none.
        Cell::Number(_) => {}
        Cell::Boolean(is) => drop(sheet.write_boolean(row, column, is)?),
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds of a year are exact"
        )]
        Cell::Time(millis) => {
            let days = millis as f64 / MILLIS_A_DAY + DAYS_BEFORE_1970;
            sheet.write_number_with_format(row, column, days, time)?;
        }
    }
    Ok(false)
}

/// As much of a text as a cell holds.
fn fitting(text: &str) -> &str {
    // No text has more UTF-16 units than bytes.
    if text.len() <= LONGEST_TEXT {
        return text;
    }
    let mut units = 0;
    let end = text.char_indices().find(|(_, letter)| {
        units += letter.len_utf16();
        units > LONGEST_TEXT
    });
    &text[..end.map_or(text.len(), |(end, _)| end)]
}

thread_local! {
    /// Whether this thread is in the library's hands.
    static WRITING: Flag<bool> = const { Flag::new(false) };
}

/// The library panics where its file of waiting rows cannot be written: that is a full disk and no bug, and is told as one.
fn guarded<T>(write: impl FnOnce() -> Result<T, XlsxError>) -> io::Result<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !WRITING.get() {
                told(info);
            }
        }));
    });
    WRITING.set(true);
    let written = panic::catch_unwind(AssertUnwindSafe(write));
    WRITING.set(false);
    match written {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(XlsxError::IoError(error))) => Err(error),
        Ok(Err(error)) => Err(io::Error::other(error)),
        Err(_) => Err(io::Error::other(
            "its rows wait in a file beside it, which cannot be written: see that the disk has room for twice the workbook",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_gets_what_it_can_hold() {
        let long = "🎲".repeat(20_000);
        assert_eq!(fitting(&long).encode_utf16().count(), LONGEST_TEXT - 1);
        let wide = "é".repeat(LONGEST_TEXT);
        assert_eq!(fitting(&wide), wide, "bytes do not count");
        assert_eq!(fitting("short"), "short");
    }

    #[test]
    fn a_panic_of_the_library_is_an_error() {
        assert!(guarded(|| Ok(1)).is_ok());
        let error = guarded::<()>(|| panic!("no room")).unwrap_err();
        assert!(error.to_string().contains("disk"), "{error}");
        assert!(!WRITING.get());
    }
}
