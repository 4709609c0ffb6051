//! Parses JSON objects into raw members and unwraps records from API responses.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{looks_like_json, parse_record};
use crate::Cell;

/// Names of the members in which APIs return an array of records.
const WRAPPERS: [&str; 8] = [
    "data",
    "children",
    "posts",
    "submissions",
    "results",
    "items",
    "records",
    "rows",
];

/// Member names that mark an object as a record itself.
const RECORD_MEMBERS: [&str; 12] = [
    "id", "title", "text", "selftext", "body", "label", "content", "comment", "message", "review",
    "sentence", "question",
];

/// An object's members, in order. If a name repeats, the last value takes the position of the first, as in other JSON
/// parsers.
#[derive(Debug, Default)]
pub struct Members(pub Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            if let Some(place) = places.get(&name) {
                members[*place].1 = value;
            } else {
                places.insert(name.clone(), members.len());
                members.push((name, value));
            }
        }
        Ok(Members(members))
    }
}

/// The records of a response, as JSON.
type Records = VecDeque<Box<RawValue>>;

fn parse<'de, T: Deserialize<'de>>(json: &'de RawValue) -> Option<T> {
    serde_json::from_str(json.get()).ok()
}

/// Returns the rows of a table as objects.
fn rows_as_records(columns: &[String], rows: Vec<Vec<Box<RawValue>>>) -> Option<Records> {
    let record = |cells: Vec<Box<RawValue>>| {
        let members = columns.iter().zip(cells);
        let members: Vec<String> = members
            .map(|(name, cell)| format!("{}:{}", super::quoted(name), cell.get()))
            .collect();
        RawValue::from_string(format!("{{{}}}", members.join(","))).ok()
    };
    rows.into_iter().map(record).collect()
}

fn is_row_number(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_object(json: &RawValue) -> bool {
    json.get().starts_with('{')
}

/// Returns true for an array of objects or of arrays, and for an empty one.
fn is_array_of_records(json: &RawValue) -> bool {
    json.get().starts_with('[') && looks_like_json(json.get().as_bytes())
}

/// Returns true for `null` and for an object of which every member is null or empty, as a program writes a blank row.
pub fn is_blank(json: &[u8]) -> bool {
    let is_empty = |value: &RawValue| matches!(value.get(), "null" | "\"\"");
    let members = serde_json::from_slice::<Option<Members>>(json).map(Option::unwrap_or_default);
    members.is_ok_and(|members| members.0.iter().all(|(_, value)| is_empty(value)))
}

/// Returns the records in an API response, such as `{"data": [{…}, {…}]}` or a Reddit listing; `None` if the object is
/// itself a record.
pub fn unwrap_records(json: &[u8]) -> Option<Records> {
    Members::parse(json).ok()?.wrapped()
}

impl Members {
    /// Parses a record, or returns a user-facing problem.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        parse_record(json, |text| serde_json::from_str(text), &mut 0)
    }

    fn get(&self, name: &str) -> Option<&RawValue> {
        let mut members = self.0.iter();
        members.find_map(|(known, value)| (known == name).then_some(&**value))
    }

    /// Returns true if the object has a member that only a record has.
    fn is_record(&self) -> bool {
        RECORD_MEMBERS.iter().any(|name| self.get(name).is_some())
    }

    /// Returns the records that the object wraps; `None` if it is itself a record.
    pub(super) fn wrapped(&self) -> Option<Records> {
        if let Some(records) = self.table() {
            return Some(records);
        }
        if self.is_record() {
            return None;
        }
        let mut wrappers = WRAPPERS.iter().filter_map(|name| self.get(name));
        wrappers
            .find_map(|value| {
                if is_array_of_records(value) {
                    parse(value)
                } else if is_object(value) {
                    parse::<Self>(value)?.wrapped()
                } else {
                    None
                }
            })
            .or_else(|| self.keyed())
    }

    /// Returns the rows of a table that pandas wrote, as `split`, `{"columns": ["id"], "data": [["1a2b"]]}`, or by
    /// column.
    fn table(&self) -> Option<Records> {
        let Some(columns) = self.get("columns") else {
            return self.transposed();
        };
        let columns: Vec<String> = parse(columns)?;
        rows_as_records(&columns, parse(self.get("data")?)?)
    }

    /// Returns the rows of an object of columns, `{"id": {"0": "1a2b"}}`.
    fn transposed(&self) -> Option<Records> {
        let mut columns: Vec<Self> = Vec::new();
        for (_, column) in &self.0 {
            let column: Self = parse(column)?;
            if !column.0.iter().all(|(key, _)| is_row_number(key)) {
                return None;
            }
            columns.push(column);
        }
        let first = columns.first().filter(|column| !column.0.is_empty())?;
        let mut rows = Vec::new();
        for (index, (number, _)) in first.0.iter().enumerate() {
            let cells = columns.iter().map(|column| column.cell(index, number));
            rows.push(cells.collect::<Option<_>>()?);
        }
        let names: Vec<String> = self.0.iter().map(|(name, _)| name.clone()).collect();
        rows_as_records(&names, rows)
    }

    /// Returns the cell of a column in the row with this number, which is usually at the same index in all columns.
    fn cell(&self, index: usize, number: &str) -> Option<Box<RawValue>> {
        match self.0.get(index) {
            Some((key, cell)) if key == number => Some(cell.clone()),
            _ => self.get(number).map(ToOwned::to_owned),
        }
    }

    /// Returns the records of an object of id → record, or of name → records. A record without an id gets its key,
    /// unless the keys are row numbers or words such as `post`.
    fn keyed(&self) -> Option<Records> {
        let keys_are_ids = self.keys_are_ids();
        let mut records = VecDeque::new();
        for (key, value) in &self.0 {
            if WRAPPERS.contains(&&**key) {
                return None;
            }
            if is_array_of_records(value) {
                records.extend(parse::<Records>(value)?);
            } else if is_object(value) {
                let record: Self = parse(value)?;
                let has_id = record.get("id").or(record.get("name")).is_some();
                records.push_back(if has_id || !keys_are_ids {
                    value.clone()
                } else {
                    let comma = if record.0.is_empty() { "" } else { "," };
                    let rest = &value.get()[1..];
                    let json = format!("{{\"id\":{}{comma}{rest}", super::quoted(key));
                    RawValue::from_string(json).ok()?
                });
            } else {
                return None;
            }
        }
        let is_record =
            |json: &RawValue| parse(json).is_some_and(|object: Self| object.is_record());
        let has_record = records.iter().any(|json| is_record(json));
        has_record.then_some(records)
    }

    /// Returns true if the values are objects and the keys look like ids: some have digits, and some have letters.
    fn keys_are_ids(&self) -> bool {
        let has_digit = |key: &str| key.bytes().any(|byte| byte.is_ascii_digit());
        self.0.iter().all(|(_, value)| is_object(value))
            && self.0.iter().any(|(key, _)| has_digit(key))
            && !self.0.iter().all(|(key, _)| is_row_number(key))
    }

    /// Unwraps the post in a Reddit "thing", `{"kind": "t3", "data": {…}}`; returns other objects unchanged.
    fn unwrap_thing(self) -> Self {
        match (self.get("kind"), self.get("data")) {
            (Some(kind), Some(data)) if kind.get() == "\"t3\"" => parse(data).unwrap_or(self),
            _ => self,
        }
    }

    pub(super) fn into_cells(self) -> Vec<(Arc<str>, Cell)> {
        let cell =
            |(name, value): (String, Box<RawValue>)| (name.into(), Cell::from_raw_json(&value));
        self.unwrap_thing().0.into_iter().map(cell).collect()
    }
}
