//! Reads the JSON lines of a run back from its temporary file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};

use topicmill_tables::json::Members;

/// Returns the lines of a file, from its start.
pub(super) fn lines_of(mut file: &File) -> io::Result<io::Lines<BufReader<&File>>> {
    file.rewind()?;
    Ok(BufReader::with_capacity(1 << 18, file).lines())
}

/// Parses a line.
pub(super) fn members(line: &str) -> io::Result<Members> {
    serde_json::from_str(line).map_err(io::Error::from)
}

/// Formats a JSON value for a text table: strings without quotes, null as empty, everything else as JSON.
pub(super) fn plain(json: &str) -> String {
    if json == "null" {
        return String::new();
    }
    // Only a string parses as one.
    serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
}
