//! Defines the hash of a post's text, and formats values as text. Posts with the same text have the same hash, so the
//! text is scored only once.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use sha2::{Digest, Sha256};

/// The first 128 bits of the SHA-256 of a post's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextHash([u8; 16]);

impl TextHash {
    /// Hashes text as models read it (see [`post_text`](crate::reddit::post_text)).
    pub fn new(text: &str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        Self(digest[..16].try_into().expect("SHA-256 has 32 bytes"))
    }

    /// Returns the 16 bytes as stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&[u8]> for TextHash {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self)
    }
}

impl fmt::Display for TextHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::hex(&self.0))
    }
}

impl Serialize for TextHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An error for text that is not 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a text hash must have 32 hexadecimal digits")]
pub struct InvalidTextHash;

impl FromStr for TextHash {
    type Err = InvalidTextHash;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // `from_str_radix` also accepts a sign and fewer digits.
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(InvalidTextHash);
        }
        let bits = u128::from_str_radix(text, 16).map_err(|_| InvalidTextHash)?;
        Ok(Self(bits.to_be_bytes()))
    }
}

/// Returns a value as JSON.
///
/// # Panics
/// If the value has a map whose keys are not strings, which no caller has.
pub fn to_json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("strings and numbers can be written as JSON")
}

/// Formats a number with thousands separators.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Formats a number of things: `1 post`, `1,200 posts`.
pub fn counted(n: u64, thing: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {thing}{s}", thousands(n))
}

/// Lists the first `most` names for a message, and how many more there are: `` `a`, `b` and 3 more ``.
pub fn first_few(names: &[impl fmt::Display], most: usize) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(most)
        .map(|name| format!("`{name}`"))
        .collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns true if a character changes the direction of text (<https://trojansource.codes>).
pub fn is_direction_override(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect()
}
