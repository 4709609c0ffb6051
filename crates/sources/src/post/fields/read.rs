//! Deserializes the fields of a thing; all others are skipped without being copied.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;

use super::{Field, Fields};

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReadFields)
    }
}

/// Reads an object. If a field is repeated, its last value is used, as in other parsers.
struct ReadFields;

impl<'de> Visitor<'de> for ReadFields {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        while let Some(field) = map.next_key_seed(FieldByName(&mut fields))? {
            match field {
                Some(field) => *field = map.next_value()?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(fields)
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadField)
    }
}

/// Declares the methods of a visitor that read scalars.
macro_rules! visit_scalars {
    ($($visit:ident: $scalar:ty),+ $(,)?) => {
        $(fn $visit<E: Error>(self, scalar: $scalar) -> Result<Field, E> {
            Ok(Field::Value(scalar.into()))
        })+
    };
}

/// Reads a field of any type. Only the known fields of objects are copied.
struct ReadField;

impl<'de> Visitor<'de> for ReadField {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Field, E> {
        Ok(Field::Value(Value::Null))
    }

    visit_scalars! {
        visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str,
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Field, A::Error> {
        let first = array.next_element::<Field>()?;
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(match first {
            Some(object @ Field::Object(_)) => object,
            _ => Field::Value(Value::Array(Vec::new())),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Field, A::Error> {
        Ok(Field::Object(Box::new(ReadFields.visit_map(map)?)))
    }
}

/// Returns the field with this name, without copying the name.
struct FieldByName<'a>(&'a mut Fields);

impl<'de, 'a> DeserializeSeed<'de> for FieldByName<'a> {
    type Value = Option<&'a mut Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for FieldByName<'a> {
    type Value = Option<&'a mut Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.field_mut(name))
    }
}
