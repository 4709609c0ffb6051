//! A row's JSON without the fields that nobody reads.
//!
//! What enters is one JSON text, what leaves the same value, less every field of an object, at any depth,
//! whose name [`is_read`] does not know. A row of a dump has a hundred fields of which a post needs twenty:
//! the others are passed over without being copied, which halves the time of an import in which every row is
//! wanted.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::source::post::is_read;

/// Parses one JSON text.
///
/// # Errors
/// Where the text is not JSON; of fields that are passed over only the form is looked at.
pub(super) fn parse(text: &str) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = deserializer.deserialize_any(Sparse)?;
    deserializer.end()?;
    Ok(value)
}

/// Makes a value without the fields that are not read.
struct Sparse;

impl<'de> DeserializeSeed<'de> for Sparse {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sparse {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Sparse)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key_seed(Name)? {
            match name {
                Some(name) => {
                    let value = fields.next_value_seed(Sparse)?;
                    object.insert(name, value);
                }
                None => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(object))
    }
}

/// A field's name, copied only if it is read.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(is_read(name).then(|| name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What the plain parser gives, less the fields that are not read.
    fn pruned(value: Value) -> Value {
        match value {
            Value::Object(fields) => fields
                .into_iter()
                .filter(|(name, _)| is_read(name))
                .map(|(name, value)| (name, pruned(value)))
                .collect(),
            Value::Array(items) => items.into_iter().map(pruned).collect(),
            other => other,
        }
    }

    #[test]
    fn what_is_read_is_as_the_plain_parser_gives_it() {
        for text in [
            r#"{"id":"a","title":"caf\u00e9 \"x\" 😀","score":-3,"ups":18446744073709551615,"upvote_ratio":0.5}"#,
            r#"{"kind":"t3","data":{"name":"t3_a","media":{"deep":[1,{"title":"no"}]},"over_18":true}}"#,
            r#"{"crosspost_parent_list":[{"selftext":"x","author":null,"gildings":{}},null,7]}"#,
            r#"{"title":"first","titl\u0065":"last","_meta":{"removal_type":"deleted","x":1}}"#,
            r#"[{"id":1,"x":2}]"#,
            r#"  {"x":{"id":1}}  "#,
            "7",
            "null",
            "\"text\"",
        ] {
            let whole: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text).unwrap(), pruned(whole), "{text}");
        }
        assert_eq!(parse(r#"{"x":1,"id":2}"#).unwrap(), json!({"id": 2}));
    }

    #[test]
    fn what_is_not_json_is_refused_where_the_plain_parser_refuses_it() {
        for text in [
            "",
            "{",
            r#"{"x""#,
            r#"{"x":tru}"#,
            r#"{"id":1}}"#,
            r#"{"x":[1,]}"#,
            r"{7:1}",
            "nan",
            r#"{"title":"\ud83d"}"#,
            r#"{"x":"\q"}"#,
            r#"{"x":01}"#,
        ] {
            let plain = serde_json::from_str::<Value>(text).unwrap_err();
            let error = parse(text).unwrap_err();
            let place = |error: &serde_json::Error| (error.classify(), error.column());
            assert_eq!(place(&error), place(&plain), "{text}");
        }
        let deep = format!("{{\"title\":{}", "[".repeat(100_000));
        assert!(parse(&deep).is_err(), "and no stack overflow");
    }
}
