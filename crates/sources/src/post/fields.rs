//! Reads a thing's fields from JSON. "Thing" is Reddit's word for an object with a `kind` and `data`.
//!
//! The wire format is ambiguous: a number may be a string, a name may be missing, a post may be inside a crosspost.
//! This module defines the meaning of each form.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
};
use serde_json::Value;

use super::{A_COMMENT, SETTLED_SECS, time_of_post};
use topicmill_core::reddit::{decode_entities, is_placeholder};
use topicmill_core::{Fullname, FullnameError, SourceKind, Timestamp};

/// A field as received: a number may be a string, and anything may be null or missing.
#[derive(Debug, Default)]
pub(crate) struct Field(Option<Value>);

impl Field {
    pub(super) fn is_present(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn is_null(&self) -> bool {
        self.0.as_ref().is_none_or(Value::is_null)
    }

    /// Returns the value if it is a string.
    pub(crate) fn str(&self) -> Option<&str> {
        self.0.as_ref()?.as_str()
    }

    /// Returns the value if it is a string that is not blank. Removes NUL, which PostgreSQL cannot store.
    pub(super) fn text(&self) -> Option<String> {
        self.clean().map(Cow::into_owned)
    }

    /// Returns [`Self::text`] unless it is a word for NULL.
    pub(super) fn word(&self) -> Option<String> {
        self.text().filter(|text| !is_null(text))
    }

    /// Returns an id. Some programs write an id as a number if it consists only of digits.
    fn id(&self) -> Option<String> {
        match self.0.as_ref()? {
            Value::Number(number) => number.as_u64().map(|number| number.to_string()),
            _ => self.word(),
        }
    }

    /// Returns the same as [`Self::text`], but copies the string only if it contains NUL.
    fn clean(&self) -> Option<Cow<'_, str>> {
        let text = self.str()?;
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

    pub(super) fn number(&self) -> Option<f64> {
        number_of(self.0.as_ref()?)
    }

    /// Returns an integer; `None` if it is missing, not a number or out of range.
    pub(super) fn integer(&self) -> Option<i64> {
        integer_of(self.0.as_ref()?)
    }

    pub(super) fn flag(&self) -> Option<bool> {
        flag_of(self.0.as_ref()?)
    }

    /// Returns the fields of an object.
    pub(super) fn fields(&self) -> Option<Fields> {
        Fields::deserialize(self.0.as_ref()?).ok()
    }
}

/// Returns true for a word that means NULL: `NaN` and `NA` in pandas and R, `None` in Python, and the like.
pub(crate) fn is_null(text: &str) -> bool {
    const WORDS: [&str; 11] = [
        "NaN", "nan", "NaT", "None", "NULL", "Null", "null", "NA", "N/A", "n/a", "<NA>",
    ];
    WORDS.contains(&text.trim())
}

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

/// Declares the fields to read from a thing, from its data, or from objects in its data. A row in a dump contains a
/// hundred fields; the rest are skipped without being copied.
macro_rules! fields {
    ($($field:ident = $name:literal),+ $(,)?) => {
        /// The fields of a thing, or of a post.
        #[derive(Debug, Default)]
        pub(in crate) struct Fields {
            $(pub(in crate) $field: Field),+
        }

        impl Fields {
            fn field_mut(&mut self, name: &str) -> Option<&mut Field> {
                match name {
                    $($name => Some(&mut self.$field),)+
                    _ => None,
                }
            }
        }
    };
}

fields! {
    author = "author", body = "body", created_utc = "created_utc", crosspost_parent = "crosspost_parent",
    crosspost_parent_list = "crosspost_parent_list", data = "data", flair = "link_flair_text", id = "id",
    is_self = "is_self", kind = "kind", link_id = "link_id", meta = "_meta", name = "name",
    num_comments = "num_comments", over_18 = "over_18", permalink = "permalink", promoted = "promoted",
    removal_type = "removal_type", removed_by_category = "removed_by_category",
    retrieved_2nd_on = "retrieved_2nd_on", retrieved_on = "retrieved_on", retrieved_utc = "retrieved_utc",
    score = "score", selftext = "selftext", stickied = "stickied", subreddit = "subreddit", title = "title",
    topic = "topic", ups = "ups", upvote_ratio = "upvote_ratio", url = "url",
}

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
                Some(field) => field.0 = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(fields)
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

impl Fields {
    /// Sets a field; ignores unknown names.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        if let Some(field) = self.field_mut(name) {
            *field = Field(Some(value));
        }
    }

    /// Returns true if this is a thing of kind `t1`, or the data of a comment: a body and a link id, but no title.
    pub(crate) fn is_comment(&self) -> bool {
        let body = self.body.is_present() && self.link_id.is_present() && !self.title.is_present();
        self.kind.str() == Some("t1") || body
    }

    /// Returns a thing's data, or the fields themselves if they are not in a thing.
    pub(super) fn into_post(self) -> Result<Self, String> {
        if !self.data.is_present() {
            return Ok(self);
        }
        match self.kind.str() {
            None => Ok(self),
            Some("t3") => {
                let data = self.data.fields();
                data.ok_or_else(|| "a `t3` without its data".to_owned())
            }
            Some("t1") => Err(A_COMMENT.to_owned()),
            Some(kind) => Err(format!(
                "a thing of kind `{}`, not a post",
                kind.chars().take(20).collect::<String>()
            )),
        }
    }

    /// Returns the fullname. Dumps from some years lack `name`.
    pub(super) fn fullname(&self) -> Result<Fullname, String> {
        let name = self.name.word().or_else(|| self.id.id());
        let name = name.ok_or("neither `name` nor `id`")?;
        // With a wrong `--map`, the value may be any text, so the message omits it.
        name.parse().map_err(|_: FullnameError| {
            "`id` is not a post id, which is `t3_` and a base-36 number".to_owned()
        })
    }

    pub(crate) fn created_at(&self) -> Result<Timestamp, String> {
        let value = self.created_utc.0.as_ref();
        time_of_post(value.ok_or("no `created_utc`")?)
    }

    /// Returns true if a dump marks the post as removed in `_meta`, which replaces `removed_by_category` in dumps since
    /// November 2023.
    pub(super) fn removed_in_dump(&self) -> bool {
        let meta = self.meta.fields();
        meta.is_some_and(|meta| !meta.removal_type.is_null())
    }

    /// Returns true if an archive read the post only once, before most people had voted on it.
    pub(super) fn was_read_early(&self, created_at: Timestamp) -> bool {
        let once = self
            .meta
            .fields()
            .is_none_or(|meta| meta.retrieved_2nd_on.is_null());
        let read = self
            .retrieved_on
            .number()
            .or_else(|| self.retrieved_utc.number());
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds since 1970 have 34 bits"
        )]
        let created = created_at.as_datetime().timestamp() as f64;
        once && read.is_some_and(|read| read - created < SETTLED_SECS)
    }

    /// If the row lacks the time when the archive read the post, sets it to the upper bound `now`, in seconds since
    /// 1970.
    pub(crate) fn set_retrieved_by(&mut self, now: i64) {
        if !self.retrieved_utc.is_present() && !self.retrieved_on.is_present() {
            self.retrieved_on = Field(Some(now.into()));
        }
    }

    /// Returns the post that a crosspost shows, as Reddit includes it.
    pub(super) fn shown(&self) -> Option<Self> {
        let parents = self.crosspost_parent_list.0.as_ref()?;
        Self::deserialize(parents.get(0)?).ok()
    }

    pub(super) fn crosspost_text(&self, source: SourceKind) -> Option<String> {
        let text = self.shown()?.selftext.text_from(source);
        text.filter(|text| !is_placeholder(text))
    }

    /// Returns the post whose text a crosspost shows: for a crosspost of a crosspost, the first one.
    pub(super) fn crosspost_parent(&self, own: &Fullname) -> Option<Fullname> {
        let shown = self.shown();
        let shown = shown.as_ref();
        [
            shown.and_then(|shown| shown.crosspost_parent.word()),
            self.crosspost_parent.word(),
            shown.and_then(|shown| shown.name.word().or_else(|| shown.id.id())),
        ]
        .into_iter()
        .flatten()
        .filter_map(|name| name.parse().ok())
        // An invalid row may name the post itself.
        .find(|name| name != own)
    }
}
