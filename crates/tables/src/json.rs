//! Reads JSON records: NDJSON, objects that span several lines, arrays, or API responses that wrap an array.
//!
//! Values remain raw JSON so that numbers keep all their digits.

mod members;
mod records;
#[cfg(test)]
mod tests;

pub use self::members::{Members, is_blank, unwrap_records};
pub use self::records::{JsonItem, JsonPosition, JsonRecords};
use crate::lines::MAX_LINE_BYTES;
use crate::not_utf8;

/// Returns true if text that starts with these bytes looks like a JSON object, or an array of objects.
pub(super) fn looks_like_json(start: &[u8]) -> bool {
    let rest = start.get(1..).unwrap_or_default().trim_ascii_start();
    match start.first() {
        Some(b'{') => matches!(rest.first(), None | Some(b'"' | b'}')),
        Some(b'[') => matches!(rest.first(), None | Some(b'{' | b'[' | b']')),
        _ => false,
    }
}

/// Quotes text as a JSON string.
pub fn quoted(text: &str) -> String {
    topicmill_core::to_json(text)
}

/// Puts JSON on one line: if it contains line breaks, removes the white space between values.
pub fn on_one_line(json: &str) -> String {
    if !json.contains(['\n', '\r']) {
        return json.to_owned();
    }
    let mut nesting = Nesting::default();
    let is_kept = |byte: &u8| {
        let in_text = nesting.in_text;
        nesting.push(*byte);
        in_text || !byte.is_ascii_whitespace()
    };
    let kept = json.bytes().filter(is_kept).collect();
    String::from_utf8(kept).expect("only ASCII white space is removed")
}

/// Replaces `NaN`, `Infinity` and `-Infinity`, which Python writes and JSON does not allow, with `null`. Returns the
/// new text and the number of replacements; `None` if there are none.
///
/// ```
/// use topicmill_tables::json::without_nan;
///
/// let (json, count) = without_nan(r#"{"score": NaN, "title": "NaN"}"#).unwrap();
/// assert_eq!((json.as_str(), count), (r#"{"score": null, "title": "NaN"}"#, 1));
/// ```
pub fn without_nan(json: &str) -> Option<(String, u64)> {
    const WORDS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];
    if !json.contains("NaN") && !json.contains("Infinity") {
        return None;
    }
    let (mut out, mut copied, mut count) = (String::with_capacity(json.len()), 0, 0);
    let mut nesting = Nesting::default();
    for (start, byte) in json.bytes().enumerate() {
        let rest = &json.as_bytes()[start..];
        let mut words = WORDS.iter();
        if start >= copied
            && !nesting.in_text
            && let Some(word) = words.find(|word| rest.starts_with(word.as_bytes()))
        {
            out.push_str(&json[copied..start]);
            out.push_str("null");
            copied = start + word.len();
            count += 1;
        }
        nesting.push(byte);
    }
    out.push_str(&json[copied..]);
    (count > 0).then_some((out, count))
}

/// Parses a record's text, with `NaN` and infinities as null. Adds the number of these nulls to `nulls`.
///
/// # Errors
/// Returns a user-facing problem that does not quote the record, such as `is not a JSON object`.
pub fn parse_record<T>(
    json: &[u8],
    parse: impl Fn(&str) -> serde_json::Result<T>,
    nulls: &mut u64,
) -> Result<T, String> {
    let text = std::str::from_utf8(json).map_err(|_| not_utf8(""))?;
    let text = text.trim_start_matches('\u{feff}').trim();
    let parsed = parse(text).or_else(|error| {
        let (text, count) = without_nan(text).ok_or(error)?;
        let parsed = parse(&text)?;
        *nulls += count;
        Ok(parsed)
    });
    parsed.map_err(|error: serde_json::Error| {
        if error.is_data() {
            "is not a JSON object".to_owned()
        } else if error.is_eof() {
            "is truncated JSON".to_owned()
        } else if error.line() > 1 {
            // The record spans several lines.
            let (line, column) = (error.line(), error.column());
            format!("is not JSON (at its line {line}, column {column})")
        } else {
            format!("is not JSON (at column {})", error.column())
        }
    })
}

/// Returns the problem for a record that is too long to hold in memory.
pub fn too_long() -> String {
    format!(
        "is longer than {} MiB: write one object per line",
        MAX_LINE_BYTES >> 20
    )
}

/// The nesting state of a JSON value, byte by byte.
#[derive(Default)]
struct Nesting {
    /// Open brackets and braces.
    open: Vec<u8>,
    in_text: bool,
    escaped: bool,
}

impl Nesting {
    /// Processes a byte; returns true if the array element ended before it.
    fn push(&mut self, byte: u8) -> bool {
        if self.in_text {
            self.in_text = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return false;
        }
        match byte {
            b'"' => self.in_text = true,
            b'[' | b'{' => self.open.push(byte),
            b']' | b'}' if !self.open.is_empty() => _ = self.open.pop(),
            b',' | b']' if self.open.is_empty() => return true,
            _ => {}
        }
        false
    }
}
