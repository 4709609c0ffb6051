//! The cells of a row that says something about a post. Pure.

use crate::domain::Timestamp;
use crate::tables::{Cell, Row};

/// The cell of a column, whatever the case of its name.
pub(super) fn cell<'a>(row: &'a Row, name: &str) -> Option<&'a Cell> {
    let same = |column: &str| column.trim().eq_ignore_ascii_case(name);
    let found = row.cells.iter().find(|(column, _)| same(column));
    found.map(|(_, cell)| cell)
}

/// The trimmed text of a column; an error where it holds a value of another kind.
pub(super) fn text(row: &Row, name: &str) -> Result<Option<String>, String> {
    match cell(row, name) {
        None | Some(Cell::Null) => Ok(None),
        Some(cell) => match cell.text() {
            Some(text) => Ok(Some(text.trim().to_owned())),
            None => Err(format!("its `{name}` is no text")),
        },
    }
}

/// A time with its zone; whole seconds are kept.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    let time = chrono::DateTime::parse_from_rfc3339(text)
        // As PostgreSQL and pandas print it.
        .or_else(|_| chrono::DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"));
    time.map(|time| time.to_utc().into())
        .map_err(|_| format!("`{text}` is no time with a zone, such as 2026-11-20T08:00:00+00:00"))
}
