//! Fuzz targets for tables: CSV posts with a column map, and the tables that `score` reads.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Cursor, Read as _, Write as _};

use serde::de::IgnoredAny;
use topicmill_sources::file::names::{Column, FIELDS};
use topicmill_sources::file::row::PostRows as _;
use topicmill_sources::file::table::Posts;
use topicmill_sources::file::{FileOptions, dump};
use topicmill_tables::csv::Csv;
use topicmill_tables::json::{JsonRecords, Members};
use topicmill_tables::parquet::Parquet;
use topicmill_tables::{Cell, Row, Rows, TableFormat, bytes};

use super::wire::{assert_valid, read_posts};

/// The first line is a map of space-separated `field=column` pairs; the rest is the file.
pub fn csv_with_map(bytes: &[u8]) {
    let (map, file) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (&b""[..], bytes),
    };
    let map = String::from_utf8_lossy(map);
    let column = |pair: &str| {
        let (field, name) = pair.split_once('=')?;
        let field = FIELDS.iter().find(|known| **known == field)?;
        Some(Column {
            field,
            name: name.to_owned(),
        })
    };
    let options = FileOptions {
        columns: map.split(' ').filter_map(column).collect(),
        ..FileOptions::default()
    };
    let rows = Posts::csv(Box::new(Cursor::new(file.to_vec())), None, &options);
    let Ok(mut rows) = rows.inspect_err(|error| assert!(!error.is_empty())) else {
        return;
    };
    let read = read_posts(&mut rows);
    assert_eq!(rows.position().rows, read.rows);
    assert!(read.rows <= file.len() as u64);
}

/// Returns the text of a file as `score` reads it, decompressed if necessary. It is cut at a megabyte, because
/// compressed data may expand without limit.
fn text(bytes: &[u8]) -> Option<Box<dyn BufRead + Send>> {
    let text = bytes::decode(Box::new(Cursor::new(bytes.to_vec()))).ok()?;
    Some(Box::new(BufReader::new(text.take(1 << 20))))
}

/// Reads a table to its end. Line numbers never decrease, and each cell is valid JSON on one line.
fn read(mut rows: impl Rows) -> Vec<Row> {
    let (mut read, mut line) = (Vec::new(), 0);
    while let Ok(Some(row)) = rows.next_row() {
        // Not strictly: a problem at the end of the file, or an unclosed quote, may have the previous row's line.
        assert!(row.line >= line, "{} after {line}", row.line);
        line = row.line;
        for (_, cell) in &row.cells {
            let mut json = String::new();
            cell.write_json(&mut json);
            assert!(!json.contains(['\n', '\r']), "{json}");
            assert!(serde_json::from_str::<IgnoredAny>(&json).is_ok(), "{json}");
        }
        let problem = row.problem.as_ref();
        assert!(problem.is_none_or(|problem| problem.len() < 300));
        read.push(row);
    }
    read
}

/// Rows written as JSON lines and read again are unchanged.
fn round_trip(rows: &[Row]) {
    let whole: Vec<&Row> = rows.iter().filter(|row| row.problem.is_none()).collect();
    let mut written = String::new();
    for row in &whole {
        let cells = row.cells.iter().map(|(name, cell)| {
            let mut json = serde_json::to_string(&**name).unwrap() + ":";
            cell.write_json(&mut json);
            json
        });
        let cells: Vec<String> = cells.collect();
        written.extend(["{", &cells.join(","), "}\n"]);
    }
    let again = read(JsonRecords::new(Box::new(Cursor::new(written))));
    assert_eq!(again.len(), whole.len());
    for (row, again) in whole.into_iter().zip(again) {
        assert_eq!(again.problem, None);
        assert_eq!(again.cells.len(), row.cells.len());
        for ((name, cell), (name_again, cell_again)) in row.cells.iter().zip(&again.cells) {
            assert_eq!(name_again, name);
            assert_eq!(cell_again.text(), cell.text());
            let is_null = |cell: &Cell| matches!(cell, Cell::Null);
            assert_eq!(is_null(cell_again), is_null(cell));
        }
    }
}

/// CSV and TSV, with any separator.
pub fn csv(bytes: &[u8]) {
    for delimiter in [None, Some(b'\t')] {
        let Some(text) = text(bytes) else { return };
        let Ok(rows) = Csv::new(text, delimiter) else {
            continue;
        };
        let names = rows.names().unwrap().to_vec();
        let distinct: HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        let rows = read(rows);
        for row in rows.iter().filter(|row| row.problem.is_none()) {
            assert_eq!(row.cells.len(), names.len());
        }
        round_trip(&rows);
    }
}

/// JSON lines, or an array.
pub fn json(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let rows = read(JsonRecords::new(text));
    assert!(rows.len() <= 1 << 20);
    round_trip(&rows);
    if let Ok(members) = serde_json::from_slice::<Members>(bytes) {
        let names: HashSet<_> = members.0.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), members.0.len());
    }
    // No object of a valid array is lost.
    if let Ok(whole) = serde_json::from_slice::<Vec<Members>>(bytes) {
        assert_eq!(rows.len(), whole.len());
        for (row, members) in rows.iter().zip(whole) {
            assert!(row.problem.is_none(), "{:?}", row.problem);
            assert_eq!(row.cells.len(), members.0.len());
        }
    }
}

/// Parquet, as read by `import` for posts and by `score` for rows. The reader must turn a panic in the library into an
/// error.
pub fn parquet(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let posts = FileOptions {
        format: Some(TableFormat::Parquet),
        ..FileOptions::default()
    };
    if let Ok(mut blocks) = dump::blocks(file.path(), &posts) {
        let mut ended = false;
        while !ended {
            let block = blocks.next_block();
            block.records.iter().for_each(assert_valid);
            ended = block.end.is_some();
        }
    }
    if let Ok(rows) = Parquet::new(file.reopen().unwrap()) {
        read(rows);
    }
}
