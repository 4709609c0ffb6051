//! Defines the hash of a post's text. Posts with the same text have the same hash, so the text is scored only once.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::hex;

/// The first 128 bits of the SHA-256 of a post's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextHash([u8; 16]);

impl TextHash {
    /// Hashes text as models read it; see [`thing_text`](crate::reddit::thing_text).
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
        f.write_str(&hex(&self.0))
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
