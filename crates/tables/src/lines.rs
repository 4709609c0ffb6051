//! Reads lines of bounded length and reports files that cannot be read to the end.

use std::io::{self, BufRead};

use crate::{Row, TableError};

/// The longest line that is kept in memory. No post is this long, but a file may lack line ends.
pub(crate) const MAX_LINE_BYTES: usize = 64 << 20;

/// Returns true if the content is damaged or truncated; false for an I/O error from the operating system.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    // Only the operating system's errors have an error number.
    matches!(
        error.kind(),
        InvalidData | InvalidInput | Other | UnexpectedEof
    ) && error.raw_os_error().is_none()
}

/// Returns a last row that reports damage, for a file that cannot be read to the end.
///
/// # Errors
/// Returns an error for an I/O error from the operating system.
pub(crate) fn last_row(line: u64, error: io::Error) -> Result<Row, TableError> {
    if !is_damage(&error) {
        return Err(error.into());
    }
    let problem = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the file is truncated here".to_owned(),
        _ => format!("cannot be read, nor can the rest of the file: {error}"),
    };
    Ok(Row::broken(line, problem))
}

/// Reads a line into `line` and returns its length in bytes including the line end; 0 at the end of the file. The
/// content of a line longer than `limit` is discarded.
pub(crate) fn read_line(
    file: &mut impl BufRead,
    line: &mut Vec<u8>,
    limit: usize,
) -> io::Result<usize> {
    line.clear();
    let (mut length, mut ended) = (0, false);
    while !ended {
        let chunk = fill_buffer(file)?;
        let newline = memchr::memchr(b'\n', chunk);
        let taken = newline.map_or(chunk.len(), |at| at + 1);
        ended = newline.is_some() || taken == 0;
        length += taken;
        // The rest of a longer line is not held in memory.
        if length <= limit {
            line.extend_from_slice(&chunk[..taken]);
        }
        file.consume(taken);
    }
    if length > limit {
        // This frees the memory, which `clear` would keep.
        *line = Vec::new();
    }
    Ok(length)
}

/// Calls `fill_buf` and retries when interrupted by a signal.
pub(crate) fn fill_buffer(text: &mut impl BufRead) -> io::Result<&[u8]> {
    loop {
        match text.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // `fill_buf` is called again because the borrow checker extends the first borrow over the loop.
            Ok(_) => return text.fill_buf(),
            Err(error) => return Err(error),
        }
    }
}
