//! Checks a `tokenizer.json` before the tokenizer library reads it.
//!
//! The library trusts its input: three rules that each replace a letter with a thousand letters exhaust any memory.
//! This module limits the number of entries and the growth of a text. The regex library limits the search time of
//! patterns.

use serde_json::Value;
use serde_json::value::RawValue;

/// Maximum growth factor of a text. Known models need less: a charsmap entry is at most 33 bytes long, and the
/// character that replaces a space, such as `▁`, takes 3 bytes.
const MAX_GROWTH: usize = 256;

/// The parts of a tokenizer whose size is limited.
#[derive(serde::Deserialize)]
struct Parts<'a> {
    #[serde(borrow, default)]
    added_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    normalizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pre_tokenizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    post_processor: Option<&'a RawValue>,
    #[serde(borrow, default)]
    decoder: Option<&'a RawValue>,
    #[serde(borrow)]
    model: &'a RawValue,
}

/// Checks a tokenizer; the error describes the limit that it exceeds.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    let message = |error: serde_json::Error| error.to_string();
    let parts: Parts<'_> = serde_json::from_slice(bytes).map_err(message)?;
    // Maximum numbers of values; known models need at most a quarter.
    for (part, most) in [
        (parts.added_tokens, 1_000_000),
        (parts.normalizer, 10_000),
        (parts.pre_tokenizer, 10_000),
        (parts.post_processor, 10_000),
        (parts.decoder, 10_000),
        (Some(parts.model), 8_000_000),
    ] {
        // One of these characters precedes each nested value.
        let is_before = |byte: &u8| matches!(byte, b',' | b'[' | b'{');
        let bytes = part.map_or("", RawValue::get).bytes();
        if bytes.filter(is_before).count() > most {
            return Err("it has far more entries than any known tokenizer".to_owned());
        }
    }
    let mut growth = 1_usize;
    for part in [parts.normalizer, parts.pre_tokenizer]
        .into_iter()
        .flatten()
    {
        let step: Value = serde_json::from_str(part.get()).map_err(message)?;
        growth = growth.saturating_mul(growth_of(&step)?);
    }
    if growth > MAX_GROWTH {
        return Err(format!(
            "its normalizers may make a text {growth} times as long; the limit is {MAX_GROWTH}"
        ));
    }
    Ok(())
}

/// Returns the product of the growth factors of these steps.
fn product<'v>(mut steps: impl Iterator<Item = &'v Value>) -> Result<usize, String> {
    steps.try_fold(1_usize, |product, step| {
        Ok(product.saturating_mul(growth_of(step)?))
    })
}

/// Returns the maximum growth factor of a text, over all steps.
fn growth_of(step: &Value) -> Result<usize, String> {
    let map = match step {
        Value::Array(values) => return product(values.iter()),
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
    Ok(own.saturating_mul(product(map.values())?))
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
