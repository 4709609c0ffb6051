//! Decodes a table's bytes to UTF-8: decompresses them, strips the byte order mark, and decodes UTF-16.

mod utf16;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, Read, Write};
use std::path::Path;

use self::utf16::{CodeUnit, Utf16};
use super::Compression;
use super::lines::fill_buffer;

/// A reader for raw bytes.
pub type ByteReader = Box<dyn Read + Send>;
/// A buffered reader for decoded text.
pub type TextReader = Box<dyn BufRead + Send>;

/// Size of the read buffer. Any size far above a disk block's would do.
const READ_BYTES: usize = 1 << 18;

/// Log2 of the largest zstd window: 2 GiB, which the monthly Reddit dumps use.
const MAX_WINDOW_LOG: u32 = 31;

/// Maximum number of bytes of leading white space that are skipped to detect a format.
const MAX_LEADING_BLANKS: usize = 1 << 20;

/// Returns true if the path is `-`, which means stdin.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a file, or stdin for `-`, without decoding.
///
/// # Errors
/// Returns an error if the file cannot be opened.
pub fn open(path: &Path) -> io::Result<ByteReader> {
    Ok(if is_stdin(path) {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path)?)
    })
}

/// Decodes bytes to UTF-8 text. Bytes that are neither UTF-8 nor UTF-16 pass through.
///
/// # Errors
/// Returns an error if the bytes cannot be read.
pub fn decode(bytes: ByteReader) -> io::Result<TextReader> {
    Ok(decode_compressed(bytes)?.1)
}

/// Decodes bytes as [`decode`] does, and also returns their compression.
///
/// # Errors
/// Returns an error if the bytes cannot be read.
pub fn decode_compressed(bytes: ByteReader) -> io::Result<(Compression, TextReader)> {
    let (head, bytes) = peek(bytes)?;
    let compression = detect_compression(&head);
    let decompressed: ByteReader = match compression {
        Compression::Plain => bytes,
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered(bytes))),
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::new(bytes)?;
            decoder.window_log_max(MAX_WINDOW_LOG)?;
            Box::new(decoder)
        }
    };
    // This peeks again because the decompressed text may start with a byte order mark.
    let (head, decompressed) = peek(decompressed)?;
    let utf16 = |bytes: ByteReader, unit: CodeUnit| buffered(Utf16::new(bytes, unit));
    let text = match head[..] {
        [0xef, 0xbb, 0xbf, ..] => buffered(skip(decompressed, 3)?),
        [0xff, 0xfe, ..] => utf16(skip(decompressed, 2)?, u16::from_le_bytes),
        [0xfe, 0xff, ..] => utf16(skip(decompressed, 2)?, u16::from_be_bytes),
        // This is UTF-16 that has no byte order mark and begins with two ASCII characters.
        [a, 0, b, 0, ..] if a != 0 && b != 0 => utf16(decompressed, u16::from_le_bytes),
        [0, a, 0, b, ..] if a != 0 && b != 0 => utf16(decompressed, u16::from_be_bytes),
        _ => buffered(decompressed),
    };
    Ok((compression, text))
}

/// Detects the compression from the first bytes.
fn detect_compression(head: &[u8]) -> Compression {
    match head {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        // These bytes begin a zstd frame or a skippable frame.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        _ => Compression::Plain,
    }
}

/// Compresses the output of `write` into a file.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn compress(
    to: File,
    compression: Compression,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<File> {
    match compression {
        Compression::Plain => write_buffered(to, write),
        Compression::Gzip => {
            let encoder = flate2::write::GzEncoder::new(to, flate2::Compression::default());
            write_buffered(encoder, write)?.finish()
        }
        Compression::Zstd => write_buffered(zstd::Encoder::new(to, 0)?, write)?.finish(),
    }
}

/// Passes a buffered writer to `write`, flushes it, and returns the inner writer.
fn write_buffered<W: Write>(
    to: W,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<W> {
    let mut out = BufWriter::new(to);
    write(&mut out)?;
    Ok(out.into_inner()?)
}

fn buffered(reader: impl Read + Send + 'static) -> TextReader {
    Box::new(BufReader::with_capacity(READ_BYTES, reader))
}

/// Returns the first six bytes, or fewer at the end of the file, and a reader that starts with them.
fn peek(mut bytes: ByteReader) -> io::Result<(Vec<u8>, ByteReader)> {
    let mut head = Vec::new();
    bytes.by_ref().take(6).read_to_end(&mut head)?;
    // The bytes are replayed because a pipe cannot be rewound.
    let peeked = Peeked {
        head: Cursor::new(head.clone()),
        rest: bytes,
        error: None,
    };
    Ok((head, Box::new(peeked)))
}

/// A reader that replays peeked bytes. Format detection needs more than those, so the first read also returns the bytes
/// that follow.
struct Peeked {
    head: Cursor<Vec<u8>>,
    rest: ByteReader,
    error: Option<io::Error>,
}

impl Read for Peeked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let again = self.head.read(buffer)?;
        match self.rest.read(&mut buffer[again..]) {
            Ok(n) => Ok(again + n),
            Err(error) if again == 0 => Err(error),
            Err(error) => {
                self.error = Some(error);
                Ok(again)
            }
        }
    }
}

fn skip(mut bytes: ByteReader, count: usize) -> io::Result<ByteReader> {
    let mut skipped = vec![0; count];
    bytes.read_exact(&mut skipped)?;
    Ok(bytes)
}

/// Returns the reader and the buffered start of the text without leading white space.
///
/// # Errors
/// Returns an error if nothing can be read.
pub fn peek_start(mut text: TextReader) -> io::Result<(TextReader, Vec<u8>)> {
    let mut blank = Vec::new();
    loop {
        let chunk = fill_buffer(&mut text)?;
        let start = chunk.trim_ascii_start().to_vec();
        if !start.is_empty() || chunk.is_empty() || blank.len() > MAX_LEADING_BLANKS {
            if !blank.is_empty() {
                text = Box::new(Cursor::new(blank).chain(text));
            }
            return Ok((text, start));
        }
        blank.extend_from_slice(chunk);
        let length = chunk.len();
        text.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte per read.
    struct Slow(Cursor<Vec<u8>>);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = buffer.len().min(1);
            self.0.read(&mut buffer[..n])
        }
    }

    fn read(bytes: &[u8]) -> String {
        let mut out = String::new();
        let slow = Box::new(Slow(Cursor::new(bytes.to_vec())));
        decode(slow).unwrap().read_to_string(&mut out).unwrap();
        out
    }

    #[test]
    fn all_encodings_are_decoded_to_utf_8() {
        let sample = "id,text\n1,Æ 日本 👩‍🚀\n";
        let utf16 = |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            sample.encode_utf16().flat_map(bytes).collect()
        };
        let (little, big) = (utf16(u16::to_le_bytes), utf16(u16::to_be_bytes));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(sample.as_bytes()).unwrap();
        for bytes in [
            sample.as_bytes().to_vec(),
            [&b"\xef\xbb\xbf"[..], sample.as_bytes()].concat(),
            [&b"\xff\xfe"[..], &little].concat(),
            [&b"\xfe\xff"[..], &big].concat(),
            little,
            big,
            gzip.finish().unwrap(),
            zstd::encode_all(sample.as_bytes(), 1).unwrap(),
            zstd::encode_all(&[&b"\xef\xbb\xbf"[..], sample.as_bytes()].concat()[..], 1).unwrap(),
        ] {
            assert_eq!(read(&bytes), sample);
        }
        for short in ["", "a", "ab", "\n"] {
            assert_eq!(read(short.as_bytes()), short);
        }
    }

    #[test]
    fn incomplete_utf_16_characters_are_replaced() {
        assert_eq!(read(b"\xff\xfea\0\x3d\xd8b\0c"), "a\u{fffd}b\u{fffd}");
        assert_eq!(read(b"\xff\xfea\0\x3d\xd8"), "a\u{fffd}");
    }
}
