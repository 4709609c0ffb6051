//! Posts from files, for `import`.
//!
//! What enters is a file: a saved listing, or NDJSON with one post a line as dumps and other tools write
//! it. What leaves are posts in the order of the file, and for each line that holds none the reason why.
//! A dump may be larger than memory and is older than most of its rules, so it is read line by line, as
//! bytes: broken UTF-8 is replaced, a half line or a garbled one rejected, and reading goes on.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::reddit::listing::{ListingError, mend_surrogates, parse_listing, post_from_value};
use super::{ListingPage, Rejected};
use crate::domain::{Post, SourceKind};

/// A line above this is no post: the longest text Reddit has stored is 80 kB.
const LONGEST_LINE: usize = 16 << 20;

/// A topic's name above this is none.
const LONGEST_TOPIC: usize = 200;

/// A saved listing above this is none: Reddit's own are a few megabytes at most.
const LARGEST_LISTING: u64 = 256 << 20;

/// Why a file could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// No such file.
    #[error("there is no file `{0}`: check the path")]
    Missing(PathBuf),
    /// A directory.
    #[error("`{0}` is a directory: give the files in it, such as `{0}/*.ndjson`")]
    Directory(PathBuf),
    /// Nothing in it.
    #[error("`{0}` is empty: check that it was written to its end")]
    Empty(PathBuf),
    /// Compressed.
    #[error("`{path}` is compressed: unpack it first with `{command}`")]
    Compressed {
        /// The file.
        path: PathBuf,
        /// What unpacks it.
        command: &'static str,
    },
    /// Larger than any listing.
    #[error("`{0}` is larger than any listing: try `--format ndjson`")]
    TooLarge(PathBuf),
    /// Not a listing.
    #[error(
        "`{path}` is not a saved listing: try `--format ndjson` for a file with one post a line"
    )]
    Listing {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ListingError,
    },
    /// Any other failure of the file system.
    #[error("`{path}` cannot be read: check its permissions")]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
}

/// A post of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The post.
    pub post: Post,
    /// The record's own `topic`, a slug, where it has one.
    pub topic: Option<String>,
}

/// The posts of a file in order, and the reason for each record that is none.
pub type Records = Box<dyn Iterator<Item = Result<Record, Rejected>> + Send>;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One saved listing, as the API answers it, or a comments page.
    Listing,
    /// One post a line.
    Ndjson,
}

/// Checks that a file can be read: a listing to its end, of NDJSON that there is something in it.
///
/// # Errors
/// See [`DumpError`].
pub fn check(path: &Path, format: Format) -> Result<(), DumpError> {
    records(path, format).map(drop)
}

/// The records of a file: of NDJSON read as they are asked for, of a listing at once, as it is one document.
///
/// # Errors
/// When the file cannot be read, or is not of this format.
pub fn records(path: &Path, format: Format) -> Result<Records, DumpError> {
    match format {
        Format::Ndjson => Ok(Box::new(Ndjson::new(open(path)?))),
        Format::Listing => {
            let ListingPage {
                posts, rejected, ..
            } = read_listing(path)?;
            let posts = posts
                .into_iter()
                .map(|post| Ok(Record { post, topic: None }));
            Ok(Box::new(posts.chain(rejected.into_iter().map(Err))))
        }
    }
}

/// Opens a file for [`Ndjson`].
///
/// # Errors
/// When there is nothing in it that could be read as lines.
fn open(path: &Path) -> Result<BufReader<File>, DumpError> {
    let io_error = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => DumpError::Missing(path.to_owned()),
        io::ErrorKind::IsADirectory => DumpError::Directory(path.to_owned()),
        _ => DumpError::Io {
            path: path.to_owned(),
            source,
        },
    };
    let file = File::open(path).map_err(io_error)?;
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let start = reader.fill_buf().map_err(io_error)?;
    let command = match start {
        [] => return Err(DumpError::Empty(path.to_owned())),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd -d --long=31",
        [0x1f, 0x8b, ..] => "gzip -d",
        _ => return Ok(reader),
    };
    Err(DumpError::Compressed {
        path: path.to_owned(),
        command,
    })
}

/// Reads a file that holds one listing as the API answers it, or a comments page.
///
/// # Errors
/// When the file cannot be read, or is no listing.
fn read_listing(path: &Path) -> Result<ListingPage, DumpError> {
    let mut bytes = Vec::new();
    let read = open(path)?
        .take(LARGEST_LISTING + 1)
        .read_to_end(&mut bytes);
    let read = read.map_err(|source| DumpError::Io {
        path: path.to_owned(),
        source,
    })?;
    if read as u64 > LARGEST_LISTING {
        return Err(DumpError::TooLarge(path.to_owned()));
    }
    parse_listing(&bytes, SourceKind::Import).map_err(|source| DumpError::Listing {
        path: path.to_owned(),
        source,
    })
}

/// The posts of an NDJSON file, one a line. Blank lines are passed over.
///
/// Holds one line at a time. After a failure to read, which is a [`Rejected`] too, it ends.
#[derive(Debug)]
pub struct Ndjson<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    ended: bool,
}

/// What came of reading a line.
enum Line {
    Whole,
    TooLong,
    End,
}

impl<R: BufRead> Ndjson<R> {
    /// Reads posts from `reader`.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            line: Vec::new(),
            number: 0,
            ended: false,
        }
    }

    /// Lines read so far, blank and rejected ones included.
    pub fn lines(&self) -> u64 {
        self.number
    }

    /// Reads the next line into `self.line`, without its end; of one that is too long nothing is kept.
    fn read_line(&mut self) -> io::Result<Line> {
        self.line.clear();
        let (mut length, mut ended) = (0, false);
        while !ended {
            let chunk = match self.reader.fill_buf() {
                Ok([]) => break,
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            ended = newline.is_some();
            let taken = newline.map_or(chunk.len(), |at| at + 1);
            length += taken;
            if length <= LONGEST_LINE {
                self.line.extend_from_slice(&chunk[..taken]);
            }
            self.reader.consume(taken);
        }
        if length == 0 {
            return Ok(Line::End);
        }
        self.number += 1;
        if length > LONGEST_LINE {
            self.line = Vec::new();
            return Ok(Line::TooLong);
        }
        Ok(Line::Whole)
    }

    fn rejected(&self, reason: String) -> Rejected {
        Rejected {
            at: format!("line {}", self.number),
            reason,
        }
    }
}

impl<R: BufRead> Iterator for Ndjson<R> {
    type Item = Result<Record, Rejected>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.read_line() {
                Ok(Line::End) => self.ended = true,
                Ok(Line::TooLong) => {
                    return Some(Err(
                        self.rejected(format!("longer than {} MiB", LONGEST_LINE >> 20))
                    ));
                }
                Ok(Line::Whole) => {
                    let text = String::from_utf8_lossy(&self.line);
                    let text = text.trim_start_matches('\u{feff}').trim();
                    if text.is_empty() {
                        continue;
                    }
                    return Some(record(text).map_err(|reason| self.rejected(reason)));
                }
                Err(error) => {
                    self.ended = true;
                    self.number += 1;
                    return Some(Err(
                        self.rejected(format!("cannot be read, nor what follows: {error}"))
                    ));
                }
            }
        }
        None
    }
}

fn record(line: &str) -> Result<Record, String> {
    let parsed = serde_json::from_str(line).or_else(|error| match mend_surrogates(line) {
        Some(mended) => serde_json::from_str(&mended),
        None => Err(error),
    });
    let value: Value = parsed.map_err(|error| {
        // serde_json's line is always 1 here, and beside the line of the file it would only confuse.
        if error.is_eof() {
            "JSON that breaks off".to_owned()
        } else {
            format!("not JSON at column {}", error.column())
        }
    })?;
    let topic = value.get("topic").and_then(Value::as_str);
    let topic = topic
        .map(|topic| topic.replace('\0', "").trim().to_owned())
        .filter(|topic| (1..=LONGEST_TOPIC).contains(&topic.len()));
    Ok(Record {
        post: post_from_value(&value, SourceKind::Import)?,
        topic,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: &str = r#"{"id":"abc1","subreddit":"s","title":"A","created_utc":1}"#;

    /// Each line's fate: the fullname, or where and why it was rejected.
    fn fates(bytes: &[u8]) -> Vec<String> {
        Ndjson::new(bytes)
            .map(|fate| match fate {
                Ok(record) => record.post.fullname.to_string(),
                Err(rejected) => format!("{}: {}", rejected.at, rejected.reason),
            })
            .collect()
    }

    #[test]
    fn bad_lines_are_rejected_by_number_and_reading_goes_on() {
        let mut file = format!("{POST}\n\n  \r\nnot json\n{{\"id\": 1\n").into_bytes();
        file.extend_from_slice(b"[1]\n\xff\xfe\n");
        file.extend_from_slice(POST.as_bytes());
        assert_eq!(
            fates(&file),
            [
                "t3_abc1",
                "line 4: not JSON at column 2",
                "line 5: JSON that breaks off",
                "line 6: not a JSON object",
                "line 7: not JSON at column 1",
                "t3_abc1",
            ]
        );
        assert_eq!(fates(b""), [""; 0]);
    }

    #[test]
    fn a_bom_windows_line_ends_and_broken_utf8_are_tolerated() {
        let mut file = format!("\u{feff}{POST}\r\n").into_bytes();
        file.extend_from_slice(br#"{"id":"abc2","subreddit":"s","title":"caf"#);
        file.push(0xe9);
        file.extend_from_slice(br#"","created_utc":1}"#);
        assert_eq!(fates(&file), ["t3_abc1", "t3_abc2"]);
    }

    #[test]
    fn a_record_may_name_its_topic_and_come_as_a_thing() {
        let flat = format!("{},\"topic\":\" climate \"}}", POST.trim_end_matches('}'));
        let thing = format!("{{\"kind\":\"t3\",\"data\":{POST}}}");
        let file = format!("{flat}\n{thing}\n");
        let records: Vec<_> = Ndjson::new(file.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(records[0].topic.as_deref(), Some("climate"));
        assert_eq!(records[1].topic, None);
        assert_eq!(records[0].post, records[1].post);
    }

    /// Endless bytes without a newline for a while, then a post; nothing is ever held whole.
    struct LongLine {
        left: usize,
    }

    impl Read for LongLine {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = buffer.len().min(self.left);
            buffer[..n].fill(b'x');
            self.left -= n;
            Ok(n)
        }
    }

    #[test]
    fn a_line_without_end_is_rejected_without_being_held() {
        let tail = format!("\n{POST}\n");
        let reader = BufReader::new(
            LongLine {
                left: 3 * LONGEST_LINE,
            }
            .chain(tail.as_bytes()),
        );
        let mut lines = Ndjson::new(reader);
        let rejected = lines.next().unwrap().unwrap_err();
        assert_eq!(
            (rejected.at.as_str(), rejected.reason.as_str()),
            ("line 1", "longer than 16 MiB")
        );
        assert!(lines.line.capacity() <= 2 * LONGEST_LINE);
        assert!(lines.next().unwrap().is_ok());
        assert!(lines.next().is_none());
        assert_eq!(lines.lines(), 2);
    }

    #[test]
    fn a_failure_to_read_is_told_and_ends_the_file() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("disk on fire"))
            }
        }
        let head = format!("{POST}\n");
        let mut lines = Ndjson::new(BufReader::new(head.as_bytes().chain(Broken)));
        assert!(lines.next().unwrap().is_ok());
        let rejected = lines.next().unwrap().unwrap_err();
        assert!(rejected.reason.contains("disk on fire"), "{rejected:?}");
        assert!(lines.next().is_none());
    }

    #[test]
    fn a_file_that_cannot_be_read_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let gone = folder.path().join("gone");
        assert!(matches!(open(&gone), Err(DumpError::Missing(_))));
        assert!(matches!(open(folder.path()), Err(DumpError::Directory(_))));
        assert!(matches!(
            open(&write("empty", b"")),
            Err(DumpError::Empty(_))
        ));
        let error = open(&write("RS.zst", b"\x28\xb5\x2f\xfd....")).unwrap_err();
        assert!(error.to_string().contains("zstd -d --long=31"), "{error}");
        assert!(matches!(read_listing(&gone), Err(DumpError::Missing(_))));
        let error = read_listing(&write("posts.ndjson", POST.as_bytes())).unwrap_err();
        assert!(error.to_string().contains("--format ndjson"), "{error}");
        let listing = br#"{"kind":"Listing","data":{"after":null,"children":[]}}"#;
        assert_eq!(
            read_listing(&write("page", listing)).unwrap(),
            ListingPage::default()
        );
    }
}
