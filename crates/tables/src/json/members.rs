//! The members of an object, whose values stay as they are written, and the records that an object may wrap.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{looks_like_json, parse_record};
use crate::Cell;

/// Members under which APIs put the array of their records.
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

/// Members of an object that is a record itself.
const OWN: [&str; 12] = [
    "id", "title", "text", "selftext", "body", "label", "content", "comment", "message", "review",
    "sentence", "question",
];

/// The members of an object, in order; of two with one name the last counts, as with any JSON parser, in the
/// place of the first.
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

/// The records in an answer of an API, such as `{"data": [{…}, {…}]}` or a listing of Reddit; `None` where the object is
/// a record itself.
pub fn unwrap_records(json: &[u8]) -> Option<VecDeque<Box<RawValue>>> {
    Members::parse(json).ok()?.wrapped()
}

impl Members {
    /// Parses the text of a record, or returns what is wrong with it.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        parse_record(json, |text| serde_json::from_str(text), &mut 0)
    }

    fn get(&self, name: &str) -> Option<&RawValue> {
        let mut found = self.0.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| &**value)
    }

    pub(super) fn wrapped(&self) -> Option<VecDeque<Box<RawValue>>> {
        if OWN.iter().any(|own| self.get(own).is_some()) {
            return None;
        }
        WRAPPERS.iter().find_map(|name| {
            let value = self.get(name)?.get();
            match value.as_bytes()[0] {
                b'[' if looks_like_json(value.as_bytes()) => serde_json::from_str(value).ok(),
                b'{' => serde_json::from_str::<Self>(value).ok()?.wrapped(),
                _ => None,
            }
        })
    }

    /// The post of a thing of Reddit, `{"kind": "t3", "data": {…}}`, or the object itself.
    fn unwrap_thing(self) -> Self {
        let is_thing = self.get("kind").is_some_and(|kind| kind.get() == "\"t3\"");
        let data = self.get("data").filter(|_| is_thing);
        let data = data.and_then(|data| serde_json::from_str(data.get()).ok());
        data.unwrap_or(self)
    }

    pub(super) fn into_cells(self) -> Vec<(Arc<str>, Cell)> {
        let cell =
            |(name, value): (String, Box<RawValue>)| (name.into(), Cell::from_raw_json(&value));
        self.unwrap_thing().0.into_iter().map(cell).collect()
    }
}
