//! Lines of a text, and what is wrong with a file that cannot be read to its end.

use std::io::{self, BufRead};

use crate::{Row, TableError};

/// No post is as long; a file without line ends must not be read into memory whole.
pub(crate) const MAX_LINE_BYTES: usize = 64 << 20;

/// Whether the file, and not the disk, is at fault: it was packed and breaks off, or was packed wrongly.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    // An error with a number comes from the system: a disk that fails says nothing about the file's content.
    matches!(
        error.kind(),
        InvalidData | InvalidInput | Other | UnexpectedEof
    ) && error.raw_os_error().is_none()
}

/// The last row of a file that cannot be read to its end.
pub(crate) fn last_row(line: u64, error: io::Error) -> Result<Row, TableError> {
    if !is_damage(&error) {
        return Err(error.into());
    }
    let problem = match error.kind() {
        io::ErrorKind::UnexpectedEof => "breaks off: the file is not whole".to_owned(),
        _ => format!("cannot be read, nor what follows: {error}"),
    };
    Ok(Row::broken(line, problem))
}

/// Reads a line into `line`; of one that is longer than `most` nothing is kept. Returns its length with its end: 0 at the
/// end of the file.
pub(crate) fn read_line(
    file: &mut impl BufRead,
    line: &mut Vec<u8>,
    most: usize,
) -> io::Result<usize> {
    line.clear();
    let (mut length, mut ended) = (0, false);
    while !ended {
        let chunk = fill_buffer(file)?;
        let newline = memchr::memchr(b'\n', chunk);
        let taken = newline.map_or(chunk.len(), |at| at + 1);
        ended = newline.is_some() || taken == 0;
        length += taken;
        // A longer line is read to its end without being held, so that the next one is found.
        if length <= most {
            line.extend_from_slice(&chunk[..taken]);
        }
        file.consume(taken);
    }
    if length > most {
        // Gives the memory back, which `clear` would not.
        *line = Vec::new();
    }
    Ok(length)
}

/// What is in hand of a text, after a signal too.
pub(crate) fn fill_buffer(text: &mut impl BufRead) -> io::Result<&[u8]> {
    loop {
        match text.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Asked again, because the borrow of the first answer would last for the loop.
            Ok(_) => return text.fill_buf(),
            Err(error) => return Err(error),
        }
    }
}
