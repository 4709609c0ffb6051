//! The bytes of a gold file into its rows: a post's id, the word for its label, and the line that says so. Pure.
//!
//! A CSV or TSV with a header, one JSON object on each line, or one JSON array of objects; with or without a byte
//! order mark, in UTF-8 or, as spreadsheets write it, in UTF-16.

use std::path::Path;

use serde_json::Value;

use super::{GoldError, GoldRow, RowError};

/// What may stand between the fields of a line.
const DELIMITERS: [u8; 3] = [b',', b'\t', b';'];

/// Reads the rows, in their order.
pub(super) fn rows(bytes: Vec<u8>, path: &Path) -> Result<Vec<GoldRow>, GoldError> {
    if bytes.starts_with(b"PAR1") {
        return Err(GoldError::Parquet(path.to_owned()));
    }
    let text = text(bytes).map_err(|source| GoldError::Read {
        path: path.to_owned(),
        source,
    })?;
    // The reader of CSV counts the second half of a line's end to the next line.
    let text = text.replace("\r\n", "\n");
    let body = text.trim_start();
    if body.starts_with('[') {
        array(body, path)
    } else if body.starts_with('{') {
        lines(&text, path)
    } else {
        table(&text, path)
    }
}

/// The text without its byte order mark.
fn text(bytes: Vec<u8>) -> std::io::Result<String> {
    let utf16 = |of: fn([u8; 2]) -> u16| {
        let pairs = bytes[2..].chunks_exact(2);
        let units: Vec<u16> = pairs.map(|pair| of([pair[0], pair[1]])).collect();
        String::from_utf16(&units).map_err(std::io::Error::other)
    };
    match bytes.get(..2) {
        Some([0xFF, 0xFE]) => utf16(u16::from_le_bytes),
        Some([0xFE, 0xFF]) => utf16(u16::from_be_bytes),
        _ => {
            let text = String::from_utf8(bytes).map_err(std::io::Error::other)?;
            Ok(text
                .strip_prefix('\u{feff}')
                .map(str::to_owned)
                .unwrap_or(text))
        }
    }
}

fn array(text: &str, path: &Path) -> Result<Vec<GoldRow>, GoldError> {
    let list: Vec<Value> =
        serde_json::from_str(text).map_err(|error| wrong(path, error.line() as u64, &error))?;
    let rows = list.iter().zip(1..);
    rows.map(|(row, line)| object(row, line).map_err(|error| wrong(path, line, &error)))
        .collect()
}

fn lines(text: &str, path: &Path) -> Result<Vec<GoldRow>, GoldError> {
    let lines = text.lines().zip(1..);
    lines
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(text, line)| {
            serde_json::from_str(text)
                .map_err(RowError::from)
                .and_then(|row| object(&row, line))
                .map_err(|error| wrong(path, line, &error))
        })
        .collect()
}

fn object(row: &Value, line: u64) -> Result<GoldRow, RowError> {
    let text = |name| match row.get(name) {
        Some(Value::String(text)) => Ok(text.trim().to_owned()),
        Some(Value::Null) if name == "label" => Ok(String::new()),
        _ => Err(RowError::Missing(name)),
    };
    Ok(GoldRow {
        line,
        id: text("id")?.parse()?,
        label: text("label")?,
    })
}

fn table(text: &str, path: &Path) -> Result<Vec<GoldRow>, GoldError> {
    let first = text.lines().next().unwrap_or_default();
    let count = |delimiter: &u8| first.matches(char::from(*delimiter)).count();
    // Of equals the last wins, which is to be the comma.
    let delimiters = DELIMITERS.into_iter().rev();
    let delimiter = delimiters.max_by_key(count).unwrap_or(b',');
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .trim(csv::Trim::All)
        .flexible(true)
        .from_reader(text.as_bytes());
    let header: Vec<String> = reader
        .headers()
        .map(|header| header.iter().map(str::to_owned).collect())
        .unwrap_or_default();
    let column = |column: &'static str| {
        header
            .iter()
            .position(|name| name.eq_ignore_ascii_case(column))
            .ok_or_else(|| GoldError::Column {
                path: path.to_owned(),
                column,
                found: header.clone(),
            })
    };
    let (id, label) = (column("id")?, column("label")?);
    let mut rows = Vec::new();
    let mut record = csv::StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(false) => return Ok(rows),
            Ok(true) => {}
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                return Err(wrong(path, line, &error));
            }
        }
        let line = record.position().map_or(0, csv::Position::line);
        let field = |at: usize, name| record.get(at).ok_or(RowError::Missing(name));
        let row = || -> Result<GoldRow, RowError> {
            Ok(GoldRow {
                line,
                id: field(id, "id")?.parse()?,
                label: field(label, "label")?.to_owned(),
            })
        };
        rows.push(row().map_err(|error| wrong(path, line, &error))?);
    }
}

fn wrong(path: &Path, line: u64, error: &dyn std::error::Error) -> GoldError {
    GoldError::Row {
        path: path.to_owned(),
        line,
        detail: error.to_string(),
    }
}
