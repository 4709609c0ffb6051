//! The value of a field. A number may be a string, and a string a number, so each form has its meaning here.

use std::borrow::Cow;

use serde_json::Value;

use super::Fields;
use topicmill_core::SourceKind;
use topicmill_core::reddit::decode_entities;

/// A field as received: a number may be a string, and anything may be null or missing.
#[derive(Debug, Default)]
pub(crate) enum Field {
    #[default]
    Missing,
    /// A value. An array is empty here, because none of its elements are read.
    Value(Value),
    /// An object, or an array whose first element is an object: a crosspost's list of parents.
    Object(Box<Fields>),
}

impl Field {
    /// Returns true unless the field is missing.
    pub(super) fn is_present(&self) -> bool {
        !matches!(self, Self::Missing)
    }

    /// Returns true if the field is missing or null.
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Missing | Self::Value(Value::Null))
    }

    /// Returns the value; `None` for an object, or if the field is missing.
    pub(super) fn value(&self) -> Option<&Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::Missing | Self::Object(_) => None,
        }
    }

    /// Returns the fields of an object.
    pub(crate) fn object(&self) -> Option<&Fields> {
        match self {
            Self::Object(fields) => Some(fields),
            Self::Missing | Self::Value(_) => None,
        }
    }

    /// Returns the value if it is a string.
    pub(crate) fn str(&self) -> Option<&str> {
        self.value()?.as_str()
    }

    /// Returns the value if it is a string that is not blank. Removes NUL, which PostgreSQL cannot store.
    pub(super) fn text(&self) -> Option<String> {
        self.clean().map(Cow::into_owned)
    }

    /// Returns [`Self::text`] unless it is a word for NULL.
    pub(super) fn word(&self) -> Option<String> {
        self.text().filter(|text| !is_null(text))
    }

    /// Returns true if the value begins with the prefix of a kind of thing, such as `t3_`, in either case.
    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        let start = self.str().and_then(|name| name.trim().get(..3));
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    }

    /// Returns an id. Some programs write an id as a number if it consists only of digits.
    pub(super) fn id(&self) -> Option<String> {
        match self.value()? {
            Value::Number(number) => number.as_u64().map(|number| number.to_string()),
            _ => self.word(),
        }
    }

    /// Returns the same as [`Self::text`], but copies the string only if it contains NUL. Programs that guess types
    /// write a title such as 1984 as a number.
    fn clean(&self) -> Option<Cow<'_, str>> {
        let text = match self.value()? {
            Value::Number(number) => return Some(number.to_string().into()),
            value => value.as_str()?,
        };
        let text = if memchr::memchr(0, text.as_bytes()).is_some() {
            Cow::Owned(text.replace('\0', ""))
        } else {
            Cow::Borrowed(text)
        };
        (!text.trim().is_empty()).then_some(text)
    }

    /// Returns [`Self::text`], with HTML entities decoded if the source escapes text.
    pub(super) fn text_from(&self, source: SourceKind) -> Option<String> {
        let text = self.clean()?;
        if !source.traits().is_escaped {
            return Some(text.into_owned());
        }
        Some(decode_entities(&text).into_owned()).filter(|text| !text.trim().is_empty())
    }

    /// Returns a finite number; `None` if it is missing or not one.
    pub(super) fn number(&self) -> Option<f64> {
        number_of(self.value()?)
    }

    /// Returns an integer; `None` if it is missing, not a number or out of range.
    pub(super) fn integer(&self) -> Option<i64> {
        integer_of(self.value()?)
    }

    /// Returns a flag, which may be written as a word or a number; `None` if it is missing or neither.
    pub(crate) fn flag(&self) -> Option<bool> {
        flag_of(self.value()?)
    }
}

/// Returns true for a word that means NULL: `NaN` and `NA` in pandas and R, `None` in Python, and the like.
pub(crate) fn is_null(text: &str) -> bool {
    const WORDS: [&str; 11] = [
        "NaN", "nan", "NaT", "None", "NULL", "Null", "null", "NA", "N/A", "n/a", "<NA>",
    ];
    WORDS.contains(&text.trim())
}

/// Returns a flag: a Boolean, a number other than 0, or a word for true or false.
pub(crate) fn flag_of(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => Some(number.as_f64() != Some(0.0)),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "t" | "1" | "yes" => Some(true),
            "false" | "f" | "0" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Returns a finite number, which may be written as text.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number: &f64| number.is_finite())
}

/// Returns an integer, dropping a float's fraction; `None` if the value is not a number or does not fit in 64 bits.
pub(crate) fn integer_of(value: &Value) -> Option<i64> {
    // An integer is tried first because a float would lose digits.
    let exact = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_i64(),
    };
    exact.or_else(|| whole(number_of(value)?))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "in the range that was just checked"
)]
fn whole(number: f64) -> Option<i64> {
    // 2^63: `i64::MAX` itself has no exact `f64` and rounds up to it.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (number.abs() < LIMIT).then_some(number as i64)
}
