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

/// The names of a table's columns, and its rows.
type Table = (Vec<String>, Vec<Vec<Box<RawValue>>>);

fn parse<'de, T: Deserialize<'de>>(json: &'de RawValue) -> Option<T> {
    serde_json::from_str(json.get()).ok()
}

fn is_number(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit())
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

    pub(super) fn wrapped(&self) -> Option<Records> {
        if let Some(rows) = self.table_rows() {
            return Some(rows);
        }
        if RECORD_MEMBERS.iter().any(|name| self.get(name).is_some()) {
            return None;
        }
        WRAPPERS
            .iter()
            .find_map(|name| {
                let value = self.get(name)?;
                match value.get().as_bytes()[0] {
                    b'[' if looks_like_json(value.get().as_bytes()) => parse(value),
                    b'{' => parse::<Self>(value)?.wrapped(),
                    _ => None,
                }
            })
            .or_else(|| self.keyed())
    }

    /// Returns the rows of a table that pandas wrote as `split`, `{"columns": ["id"], "data": [["1a2b"]]}`, or by
    /// column.
    fn table_rows(&self) -> Option<Records> {
        let (names, rows): Table = match self.get("columns") {
            Some(names) => (parse(names)?, parse(self.get("data")?)?),
            None => self.transposed()?,
        };
        let record = |cells: Vec<Box<RawValue>>| {
            let members = names.iter().zip(cells);
            let members: Vec<String> = members
                .map(|(name, cell)| format!("{}:{}", super::quoted(name), cell.get()))
                .collect();
            RawValue::from_string(format!("{{{}}}", members.join(","))).ok()
        };
        rows.into_iter().map(record).collect()
    }

    /// Returns the table of an object of columns, `{"id": {"0": "1a2b"}}`.
    fn transposed(&self) -> Option<Table> {
        let has_row_numbers = |cells: &Self| cells.0.iter().all(|(row, _)| is_number(row));
        let mut columns: Vec<Self> = Vec::new();
        for (_, cells) in &self.0 {
            columns.push(parse(cells).filter(has_row_numbers)?);
        }
        let first = columns.first().filter(|cells| !cells.0.is_empty())?;
        let mut rows = Vec::new();
        for (place, (number, _)) in first.0.iter().enumerate() {
            // All columns usually have the same rows in the same order.
            let cell = |column: &Self| match column.0.get(place) {
                Some((name, cell)) if name == number => Some(cell.clone()),
                _ => column.get(number).map(ToOwned::to_owned),
            };
            rows.push(columns.iter().map(cell).collect::<Option<_>>()?);
        }
        let names = self.0.iter().map(|(name, _)| name.clone());
        Some((names.collect(), rows))
    }

    /// Returns the records of an object of id → record, or of name → records. A record without an id gets its key,
    /// unless the keys are row numbers or words such as `post`.
    fn keyed(&self) -> Option<Records> {
        let has_digit = |key: &str| key.bytes().any(|byte| byte.is_ascii_digit());
        let are_objects = self.0.iter().all(|(_, value)| value.get().starts_with('{'));
        let are_ids = are_objects
            && self.0.iter().any(|(key, _)| has_digit(key))
            && !self.0.iter().all(|(key, _)| is_number(key));
        let mut records = VecDeque::new();
        for (key, value) in &self.0 {
            if WRAPPERS.contains(&&**key) {
                return None;
            }
            match value.get().as_bytes()[0] {
                b'[' if looks_like_json(value.get().as_bytes()) => {
                    records.extend(parse::<Records>(value)?);
                }
                b'{' => {
                    let record: Self = parse(value)?;
                    let has_id = record.get("id").or(record.get("name")).is_some();
                    records.push_back(if has_id || !are_ids {
                        value.clone()
                    } else {
                        let comma = if record.0.is_empty() { "" } else { "," };
                        let rest = &value.get()[1..];
                        let json = format!("{{\"id\":{}{comma}{rest}", super::quoted(key));
                        RawValue::from_string(json).ok()?
                    });
                }
                _ => return None,
            }
        }
        let is_record = |json: &RawValue| {
            let record = parse::<Self>(json).unwrap_or_default();
            RECORD_MEMBERS.iter().any(|name| record.get(name).is_some())
        };
        let has_record = records.iter().any(|json| is_record(json));
        has_record.then_some(records)
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
