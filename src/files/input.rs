//! Lines of JSON into windows of tokenised texts.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use serde_json::{Map, Value};

use super::{FileJob, FilesError};
use crate::domain::post_text;
use topicmill_score::text::{EncodedText, Encoder};

/// No post is as long; a file without line ends must not be read into memory whole.
const MAX_LINE_BYTES: usize = 64 << 20;

/// A window ends early when its lines together are this long.
const MAX_WINDOW_BYTES: usize = 32 << 20;

/// Lines that are scored together.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Every line, in order.
    pub(super) entries: Vec<Entry>,
    /// The texts of the entries that have one, in order.
    pub(super) texts: Vec<EncodedText>,
    /// The same as they came, where they are asked for.
    pub(super) plain: Vec<String>,
}

/// A line of an input.
#[derive(Debug)]
pub(super) struct Entry {
    /// Index of the input.
    pub(super) input: usize,
    /// Number of the line, from 1, blank ones counted.
    pub(super) line: u64,
    /// The id as it was, or what is wrong with the line.
    pub(super) id: Result<Value, String>,
}

/// Checks that every input can be opened, before any work is done.
pub(super) fn check(inputs: &[PathBuf]) -> Result<(), FilesError> {
    for path in inputs {
        match path.metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(FilesError::Missing(path.clone()));
            }
            Ok(meta) if meta.is_dir() => return Err(FilesError::Folder(path.clone())),
            Ok(meta) if !meta.is_file() => {}
            _ => drop(open(path)?),
        }
    }
    Ok(())
}

fn open(path: &PathBuf) -> Result<BufReader<File>, FilesError> {
    let file = File::open(path).map_err(|source| FilesError::Read {
        path: path.clone(),
        source,
    })?;
    Ok(BufReader::with_capacity(1 << 18, file))
}

/// Reads the inputs after the first `skip` lines that are not blank, and sends windows of up to `size` lines
/// until the end, an error, or until nobody receives. With `plain` they hold the texts as they came, too.
pub(super) fn read(
    job: &FileJob,
    encoder: &Encoder,
    (skip, size): (u64, usize),
    plain: bool,
    windows: &SyncSender<Result<Window, FilesError>>,
) {
    let mut reader = Reader {
        job,
        encoder,
        skip,
        size,
        plain,
        entries: Vec::new(),
        texts: Vec::new(),
        bytes: 0,
    };
    let mut send = |window| windows.send(window).map_err(|_| Hangup);
    if let Err(Interrupted::Failed(error)) = reader.run(&mut send) {
        // If nobody receives this either, an earlier error is already being reported.
        let _ = windows.send(Err(error));
    }
}

/// Nobody receives any more.
struct Hangup;

enum Interrupted {
    Hangup,
    Failed(FilesError),
}

impl From<Hangup> for Interrupted {
    fn from(_: Hangup) -> Self {
        Self::Hangup
    }
}

impl From<FilesError> for Interrupted {
    fn from(error: FilesError) -> Self {
        Self::Failed(error)
    }
}

struct Reader<'a> {
    job: &'a FileJob,
    encoder: &'a Encoder,
    skip: u64,
    size: usize,
    plain: bool,
    entries: Vec<Entry>,
    texts: Vec<String>,
    bytes: usize,
}

impl Reader<'_> {
    fn run(
        &mut self,
        send: &mut dyn FnMut(Result<Window, FilesError>) -> Result<(), Hangup>,
    ) -> Result<(), Interrupted> {
        let job = self.job;
        let mut buffer = Vec::new();
        for (input, path) in job.inputs.iter().enumerate() {
            let mut file = open(path)?;
            for line in 1.. {
                let read = read_line(&mut file, &mut buffer);
                let whole = match read.map_err(|source| FilesError::Read {
                    path: path.clone(),
                    source,
                })? {
                    Line::End => break,
                    Line::Whole => true,
                    Line::TooLong => false,
                };
                let text = if line == 1 {
                    buffer.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&buffer)
                } else {
                    &buffer
                };
                let text = text.trim_ascii();
                if text.is_empty() {
                    continue;
                }
                if self.skip > 0 {
                    self.skip -= 1;
                    continue;
                }
                let parsed = if whole {
                    parse(text, job.text_column.as_deref())
                } else {
                    Err(format!("is longer than {} MiB", MAX_LINE_BYTES >> 20))
                };
                let id = parsed.map(|(id, text)| {
                    self.texts.push(text);
                    id
                });
                self.entries.push(Entry { input, line, id });
                self.bytes += buffer.len();
                if self.entries.len() >= self.size || self.bytes >= MAX_WINDOW_BYTES {
                    send(Ok(self.window()?))?;
                }
            }
        }
        if !self.entries.is_empty() {
            send(Ok(self.window()?))?;
        }
        Ok(())
    }

    fn window(&mut self) -> Result<Window, FilesError> {
        self.bytes = 0;
        let mut plain = std::mem::take(&mut self.texts);
        let texts = self
            .encoder
            .encode(&plain)
            .map_err(topicmill_score::LabelerError::from)?;
        if !self.plain {
            plain = Vec::new();
        }
        Ok(Window {
            entries: std::mem::take(&mut self.entries),
            texts,
            plain,
        })
    }
}

enum Line {
    Whole,
    /// More than can be kept; the buffer holds its beginning, the rest was passed over.
    TooLong,
    End,
}

/// Reads a line into `buffer`, keeping no more than [`MAX_LINE_BYTES`] of it.
fn read_line(file: &mut impl BufRead, buffer: &mut Vec<u8>) -> io::Result<Line> {
    buffer.clear();
    let (mut any, mut whole) = (false, true);
    loop {
        let available = match file.fill_buf() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        any |= !available.is_empty();
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        whole &= buffer.len() + part.len() <= MAX_LINE_BYTES;
        if whole {
            buffer.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        file.consume(used);
        if end.is_some() || used == 0 {
            return Ok(match (any, whole) {
                (false, _) => Line::End,
                (true, true) => Line::Whole,
                (true, false) => Line::TooLong,
            });
        }
    }
}

/// The id and the text of a line, or what is wrong with it (never quoting what it says).
fn parse(line: &[u8], column: Option<&str>) -> Result<(Value, String), String> {
    let value: Value = serde_json::from_slice(line)
        .map_err(|e| format!("is not JSON (at column {})", e.column()))?;
    let Value::Object(mut fields) = value else {
        return Err("is not a JSON object".to_owned());
    };
    let id = match fields.remove("id") {
        Some(id @ Value::String(_)) => id,
        // Another number would not come out as it went in.
        Some(Value::Number(id)) if id.is_i64() || id.is_u64() => Value::Number(id),
        None => return Err("has no `id`".to_owned()),
        Some(_) => {
            return Err("has an `id` that is neither a string nor a 64-bit integer".to_owned());
        }
    };
    let text = if let Some(column) = column {
        string(&mut fields, column)?.ok_or_else(|| format!("has no `{column}`"))?
    } else if let Some(text) = string(&mut fields, "text")? {
        text
    } else {
        let title = string(&mut fields, "title")?.ok_or("has neither `text` nor `title`")?;
        if fields.get("selftext").is_some_and(Value::is_null) {
            fields.remove("selftext");
        }
        post_text(
            &title,
            &string(&mut fields, "selftext")?.unwrap_or_default(),
        )
    };
    Ok((id, text))
}

fn string(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("has a `{name}` that is not a string")),
    }
}

#[cfg(test)]
#[path = "../../tests/it/support/mutate.rs"]
#[expect(dead_code, reason = "what the attacks on other readers use, too")]
mod mutate;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_id_and_a_text_in_one_of_three_forms() {
        let ok = |line: &str, column| parse(line.as_bytes(), column).unwrap();
        assert_eq!(
            ok(r#"{"id":"a","text":"T"}"#, None),
            ("a".into(), "T".into())
        );
        assert_eq!(
            ok(r#"{"id":18446744073709551615,"body":""}"#, Some("body")),
            (u64::MAX.into(), String::new())
        );
        assert_eq!(
            ok(r#"{"id":1,"title":"T","selftext":"[removed]"}"#, None).1,
            "T"
        );
        assert_eq!(
            ok(r#"{"id":1,"title":"T","selftext":"B"}"#, None).1,
            "T\n\nB"
        );
        assert_eq!(ok(r#"{"id":1,"title":"T","selftext":null}"#, None).1, "T");
        assert_eq!(ok(r#"{"id":1,"text":"X","title":"T"}"#, None).1, "X");
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_without_quoting_it() {
        for (line, column, problem) in [
            ("secret", None, "not JSON"),
            ("\"secret\"", None, "not a JSON object"),
            (r#"{"text":"secret"}"#, None, "no `id`"),
            (r#"{"id":null,"text":"secret"}"#, None, "neither a string"),
            (r#"{"id":1.5,"text":"secret"}"#, None, "neither a string"),
            (
                r#"{"id":123456789012345678901234567890,"text":"secret"}"#,
                None,
                "neither a string",
            ),
            (r#"{"id":1}"#, None, "neither `text` nor `title`"),
            (r#"{"id":1,"text":7}"#, None, "`text` that is not a string"),
            (r#"{"id":1,"text":"secret"}"#, Some("body"), "no `body`"),
            ("{\"id\":1,\"text\":\"secret \u{1}\"}", None, "not JSON"),
        ] {
            let found = parse(line.as_bytes(), column).unwrap_err();
            assert!(
                found.contains(problem) && !found.contains("secret"),
                "{line}: {found}"
            );
        }
        assert!(
            parse(b"{\"id\":1,\"text\":\"\xff\"}", None)
                .unwrap_err()
                .contains("not JSON")
        );
    }

    #[test]
    fn lines_end_where_they_end() {
        let mut file = BufReader::with_capacity(3, &b"abcdef\n\nx\r\nlast"[..]);
        let mut buffer = Vec::new();
        let mut lines = Vec::new();
        while let Line::Whole = read_line(&mut file, &mut buffer).unwrap() {
            lines.push(String::from_utf8(buffer.clone()).unwrap());
        }
        assert_eq!(lines, ["abcdef", "", "x\r", "last"]);
    }

    /// As `attacks::fuzz` does with the other readers.
    #[test]
    fn broken_lines() {
        let seeds: Vec<Vec<u8>> = [
            "{\"id\":\"a\",\"text\":\"T\"}\n{\"id\":1,\"title\":\"T\",\"selftext\":\"[removed]\"}\n",
            "\u{feff}{\"id\":18446744073709551615,\"body\":\"\"}\r\n\n{\"id\":-1,\"title\":\"caf\\u00e9\",\"selftext\":null}",
            "{\"id\":1.5}\n[]\n{\"id\":{},\"text\":7}\n{\"text\":\"\\ud83d\"}\n",
        ]
        .map(|seed| seed.as_bytes().to_vec())
        .to_vec();
        let check = |bytes: &[u8]| {
            let mut file = BufReader::with_capacity(16, bytes);
            let (mut buffer, mut read) = (Vec::new(), 0);
            while !matches!(read_line(&mut file, &mut buffer).unwrap(), Line::End) {
                read += buffer.len();
                assert!(!buffer.contains(&b'\n'));
                for column in [None, Some("body")] {
                    if let Ok((id, _)) = parse(buffer.trim_ascii(), column) {
                        assert!(id.is_string() || id.is_i64() || id.is_u64());
                    }
                }
            }
            let ends = memchr::memchr_iter(b'\n', bytes).count();
            assert_eq!(read + ends, bytes.len(), "every byte is looked at once");
        };
        for seed in &seeds {
            check(seed);
        }
        mutate::fuzz("score", 3_000, |mutator| mutator.broken(&seeds), check);
    }
}
