//! Checks a `tokenizer.json` before the tokenizer library reads it.
//!
//! The library trusts its input: three rules that each replace a letter with a thousand letters exhaust any memory.
//! This module limits the number of entries and the growth of a text. The regex library limits the search time of
//! patterns.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Maximum growth factor of a text. Known models need less: a charsmap entry is at most 33 bytes long, and the
/// character that replaces a space, such as `▁`, takes 3 bytes.
const MAX_GROWTH: usize = 256;

/// A value with at most `MOST` nested values, which are counted and discarded.
struct Counted<const MOST: usize>;

/// The parts of a tokenizer whose size is limited; known models need at most a quarter of these limits.
#[derive(serde::Deserialize)]
#[expect(dead_code, reason = "they are counted while they are read")]
struct Shape {
    #[serde(default)]
    added_tokens: Option<Counted<1_000_000>>,
    #[serde(default)]
    normalizer: Option<Counted<10_000>>,
    #[serde(default)]
    pre_tokenizer: Option<Counted<10_000>>,
    #[serde(default)]
    post_processor: Option<Counted<10_000>>,
    #[serde(default)]
    decoder: Option<Counted<10_000>>,
    model: Counted<8_000_000>,
}

/// The parts of a tokenizer that rewrite text.
#[derive(serde::Deserialize)]
struct Steps {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
}

/// Checks a tokenizer; the error describes the limit that it exceeds.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    let message = |error: serde_json::Error| error.to_string();
    serde_json::from_slice::<Shape>(bytes).map_err(message)?;
    let steps: Steps = serde_json::from_slice(bytes).map_err(message)?;
    let growth = growth(&steps.normalizer)?.saturating_mul(growth(&steps.pre_tokenizer)?);
    if growth > MAX_GROWTH {
        return Err(format!(
            "its normalizers may make a text {growth} times as long; the limit is {MAX_GROWTH}"
        ));
    }
    Ok(())
}

fn all<'v>(mut steps: impl Iterator<Item = &'v Value>) -> Result<usize, String> {
    steps.try_fold(1_usize, |product, step| {
        Ok(product.saturating_mul(growth(step)?))
    })
}

/// Returns the maximum growth factor of a text, over all steps.
fn growth(step: &Value) -> Result<usize, String> {
    let map = match step {
        Value::Array(values) => return all(values.iter()),
        Value::Object(map) => map,
        _ => return Ok(1),
    };
    let length = |key: &str| map.get(key).and_then(Value::as_str).map(str::len);
    let mut own = 1;
    if let Some(content) = length("content") {
        let pattern = &map.get("pattern").unwrap_or(&Value::Null)["String"];
        own = match pattern.as_str().map(str::len) {
            Some(pattern) if pattern > 0 => content.div_ceil(pattern).max(1),
            // The pattern may match between any two letters.
            _ => 1 + content,
        };
    } else if let Some(prefix) = length("prepend") {
        own = 1 + prefix;
    } else if let Some(charsmap) = map.get("precompiled_charsmap").and_then(Value::as_str) {
        own = longest_replacement(charsmap)?;
    } else if map.get("type").is_some_and(|kind| kind == "ByteLevel") {
        // Each byte becomes a letter of at most two bytes.
        own = 2;
    }
    Ok(own.saturating_mul(all(map.values())?))
}

/// Returns the length of the longest replacement in a charsmap, which contains the size of its trie, the trie, and
/// zero-terminated replacements.
fn longest_replacement(charsmap: &str) -> Result<usize, String> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(charsmap);
    let bytes = bytes.map_err(|error| format!("its charsmap is damaged: {error}"))?;
    let texts = bytes.split_first_chunk::<4>().and_then(|(size, rest)| {
        let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
        // The library reads a trie as four-byte integers.
        rest.get(size / 4 * 4..).filter(|_| size > 0)
    });
    let texts = texts.ok_or("its charsmap is truncated")?;
    let longest = texts.split(|byte| *byte == 0).map(<[u8]>::len).max();
    Ok(longest.unwrap_or(0).max(1))
}

impl<'de, const MOST: usize> Deserialize<'de> for Counted<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut left = MOST;
        serde::de::DeserializeSeed::deserialize(Count(&mut left), deserializer)?;
        Ok(Self)
    }
}

/// Counts a value and its nested values.
struct Count<'c>(&'c mut usize);

impl Count<'_> {
    fn one<E: Error>(&mut self) -> Result<(), E> {
        *self.0 = self
            .0
            .checked_sub(1)
            .ok_or_else(|| E::custom("it has far more entries than any known tokenizer"))?;
        Ok(())
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for Count<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        self.one()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Count<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while values.next_element_seed(Count(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while entries.next_key::<IgnoredAny>()?.is_some() {
            entries.next_value_seed(Count(self.0))?;
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
