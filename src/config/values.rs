//! Checks that values have the types of the defaults, and that numbers are within their ranges.

use std::ops::RangeInclusive;

use config::{Value, ValueKind};

use super::{MAX_THREADS, is_secret};

/// Returns the valid range of an integer setting.
fn range_of(key: &str) -> RangeInclusive<u64> {
    match key {
        // Each engine needs its own core or device, and memory for a model.
        "classify.workers" => 1..=64,
        // More than any machine's cores, yet few enough to start.
        "classify.threads" => 0..=MAX_THREADS.into(),
        "classify.lease_secs" => 3..=86_400,
        // Reddit lists no more.
        "collect.limit" => 1..=1_000,
        "collect.comments_limit" | "collect.page_cap" | "classify.max_attempts" => {
            1..=u32::MAX.into()
        }
        _ => 0..=u32::MAX.into(),
    }
}

/// Formats a value; returns a message if it does not have the type of its default.
pub(super) fn check_kind(key: &str, value: &Value, default: &Value) -> Result<String, String> {
    let shown = if is_secret(key) {
        "the value".to_owned()
    } else {
        format!("`{value}`")
    };
    match &default.kind {
        ValueKind::I64(_) => {
            let range = range_of(key);
            let number = whole_number(&value.kind).filter(|number| range.contains(number));
            let (min, max) = range.into_inner();
            number
                .map(|number| number.to_string())
                .ok_or_else(|| format!("{shown} is not a whole number from {min} to {max}"))
        }
        ValueKind::Boolean(_) => match value.clone().into_bool() {
            Ok(is_set) => Ok(is_set.to_string()),
            Err(_) => Err(format!("{shown} is neither true nor false")),
        },
        _ => match value.kind {
            // `batch_tokens = 512` means the same as `"512"`.
            ValueKind::String(_)
            | ValueKind::I64(_)
            | ValueKind::Float(_)
            | ValueKind::Boolean(_) => Ok(value.to_string()),
            _ => Err("expected a string in quotes".to_owned()),
        },
    }
}

/// Reads an integer of 0 or more, or a string with one, as in the environment. The `config` crate is not used for this,
/// because it would round fractions and read `true` as 1.
fn whole_number(kind: &ValueKind) -> Option<u64> {
    match kind {
        ValueKind::I64(number) => u64::try_from(*number).ok(),
        ValueKind::U64(number) => Some(*number),
        ValueKind::String(text) => text.parse().ok(),
        _ => None,
    }
}
