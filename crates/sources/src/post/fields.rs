//! Reads a thing's fields from JSON. "Thing" is Reddit's word for an object with a `kind` and `data`.
//!
//! The wire format is ambiguous: a number may be a string, a name may be missing, a post may be inside a crosspost.
//! This module defines the meaning of each form.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;

use super::time_of_post;
use topicmill_core::reddit::{decode_entities, is_placeholder};
use topicmill_core::{
    Fullname, FullnameError, PurgeReason, RejectReason, Reply, SourceKind, ThingKind, Timestamp,
};

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
    pub(super) fn is_present(&self) -> bool {
        !matches!(self, Self::Missing)
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Missing | Self::Value(Value::Null))
    }

    fn value(&self) -> Option<&Value> {
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
    fn has_prefix(&self, prefix: &str) -> bool {
        let start = self.str().and_then(|name| name.trim().get(..3));
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    }

    /// Returns an id. Some programs write an id as a number if it consists only of digits.
    fn id(&self) -> Option<String> {
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

    pub(super) fn number(&self) -> Option<f64> {
        number_of(self.value()?)
    }

    /// Returns an integer; `None` if it is missing, not a number or out of range.
    pub(super) fn integer(&self) -> Option<i64> {
        integer_of(self.value()?)
    }

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
        pub struct Fields {
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
    is_self = "is_self", is_submitter = "is_submitter", kind = "kind", link_id = "link_id", meta = "_meta",
    name = "name", num_comments = "num_comments", over_18 = "over_18", parent = "parent", parent_id = "parent_id",
    permalink = "permalink", promoted = "promoted", removal_type = "removal_type",
    removed_by_category = "removed_by_category",
    retrieved_2nd_on = "retrieved_2nd_on", retrieved_on = "retrieved_on", retrieved_utc = "retrieved_utc",
    score = "score", selftext = "selftext", stickied = "stickied", subreddit = "subreddit", title = "title",
    topic = "topic", ups = "ups", upvote_ratio = "upvote_ratio", url = "url",
    was_deleted_later = "was_deleted_later", was_initially_deleted = "was_initially_deleted",
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

impl Fields {
    /// Sets a field; ignores unknown names.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        if let Some(field) = self.field_mut(name) {
            *field = Field::Value(value);
        }
    }

    /// Sets a field that is missing or null.
    pub(crate) fn set_default(&mut self, name: &str, value: &str) {
        if self.field_mut(name).is_some_and(|field| field.is_null()) {
            self.set(name, value.into());
        }
    }

    /// Returns true if the field is an object.
    pub(crate) fn is_object(&mut self, name: &str) -> bool {
        let field = self.field_mut(name);
        field.is_some_and(|field| field.object().is_some())
    }

    /// Calls `change` with the fields of the post inside a thing, or with these fields.
    pub(crate) fn with_post<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        match &mut self.data {
            Field::Object(post) => change(post),
            _ => change(self),
        }
    }

    /// Returns true if a field is missing that every dump and every response of Reddit has.
    pub(crate) fn is_partial(&self) -> bool {
        let usual = [
            &self.id,
            &self.subreddit,
            &self.created_utc,
            &self.author,
            &self.score,
        ];
        let comment = [&self.body, &self.link_id, &self.parent_id];
        let post = [
            &self.title,
            &self.selftext,
            &self.num_comments,
            &self.over_18,
        ];
        let lacks = |fields: &[&Field]| fields.iter().any(|field| !field.is_present());
        lacks(&usual) || lacks(&post) && lacks(&comment)
    }

    /// Returns true for a comment: its name or its kind says so, it replies to a thing, or it has the address of a
    /// comment.
    pub(crate) fn is_comment(&self) -> bool {
        let is_named = |prefix: &str| self.name.has_prefix(prefix) || self.id.has_prefix(prefix);
        if is_named("t3_") || self.kind.str() == Some("t3") {
            return false;
        }
        let replied_to = [&self.link_id, &self.parent_id];
        let has_parent = || self.parent.word().is_some();
        is_named("t1_")
            || matches!(self.kind.str(), Some("t1" | "comment"))
            || replied_to.iter().any(|name| name.has_prefix("t1_") || name.has_prefix("t3_"))
            // In tables of posts and comments, posts have a title.
            || self.title.text().is_none()
                && (has_parent() || replied_to.iter().any(|name| name.word().is_some()))
            || self.address().is_some_and(|name| name.is_comment())
    }

    /// Returns the fullname in the permalink.
    fn address(&self) -> Option<Fullname> {
        let link = self.permalink.str().filter(|link| link.contains('/'))?;
        Fullname::from_url(link).ok()
    }

    /// Returns what a comment replies to; nothing for a post. Some files have ids without their prefix.
    pub(crate) fn reply(&self) -> Reply {
        fn name(field: &Field) -> Option<&str> {
            field.str().map(str::trim).filter(|name| !is_null(name))
        }
        if !self.is_comment() {
            return Reply::default();
        }
        let path = self.permalink.str().unwrap_or_default();
        let of_path = || path.split("/comments/").nth(1)?.split('/').next();
        let post = name(&self.link_id).or_else(of_path);
        let post = post.and_then(|post| post.parse().ok());
        let post = post.filter(|post: &Fullname| !post.is_comment());
        let parent = [&self.parent_id, &self.parent].into_iter().find_map(name);
        let parent = parent.and_then(|parent| {
            let named: Fullname = parent.parse().ok()?;
            let is_bare = !parent.contains('_') && post.as_ref() != Some(&named);
            if is_bare {
                Fullname::of(ThingKind::Comment, parent).ok()
            } else {
                Some(named)
            }
        });
        Reply {
            post,
            parent,
            is_submitter: self.is_submitter.flag(),
        }
    }

    /// Returns a thing's data, or the fields themselves if they are not in a thing.
    pub(super) fn into_post(self) -> Result<Self, RejectReason> {
        match (self.data, self.kind.str()) {
            (data @ Field::Missing, _) | (data, None) => Ok(Self { data, ..self }),
            (Field::Object(data), Some("t1" | "t3")) => Ok(Self {
                kind: self.kind,
                ..*data
            }),
            (_, Some(kind @ ("t1" | "t3"))) => Err(format!("a `{kind}` without its data").into()),
            (_, Some(kind)) => {
                let kind: String = kind.chars().take(20).collect();
                Err(format!("a thing of kind `{kind}`, not a post").into())
            }
        }
    }

    /// Returns the fullname. Dumps from some years lack `name`, and some files have only the address of the post.
    pub(crate) fn fullname(&self) -> Result<Fullname, RejectReason> {
        // In tables, `name` may be any name.
        let is_fullname = |name: &String| name.as_bytes().get(2) == Some(&b'_');
        let name = self.name.word();
        let name = name.filter(|name| is_fullname(name) || self.id.is_null());
        let Some(name) = name.or_else(|| self.id.id()) else {
            let url = self.url.str().filter(|url| url.contains('/'));
            let url = url.and_then(|url| Fullname::from_url(url).ok());
            // A post may link to a comment.
            let url = url.filter(|name| name.is_comment() == self.is_comment());
            let found = self.address().or(url);
            return found.ok_or_else(|| "neither `name` nor `id`".into());
        };
        let is_bare = !name.contains(['_', '/']);
        let named = match name.as_str() {
            id if is_bare && self.is_comment() => Fullname::of(ThingKind::Comment, id),
            name => Fullname::from_url(name),
        };
        // With a wrong `--map`, the value may be any text, so the message omits it.
        named.map_err(|_: FullnameError| {
            "`id` is not an id, which is `t3_` or `t1_` and a base-36 number".into()
        })
    }

    /// Returns the reason if the post was deleted or removed: by Reddit's category, by the archive's `_meta`, or
    /// because its text is a placeholder.
    pub(crate) fn removal(&self) -> Option<PurgeReason> {
        let placeholder = [&self.selftext, &self.body, &self.title]
            .into_iter()
            .filter_map(Field::str)
            .find(|text| is_placeholder(text));
        let category = match self.meta.object().filter(|meta| meta.is_gone()) {
            // An archive does not always know the type.
            Some(meta) => Some(meta.removal_type.word().unwrap_or_default()),
            None => self.removed_by_category.word(),
        };
        match (category.as_deref().map(str::trim), placeholder) {
            (None, None) => None,
            (Some("deleted" | "author"), _) => Some(PurgeReason::Deleted),
            (None, Some(text)) if text.contains("deleted") => Some(PurgeReason::Deleted),
            // The post was removed by moderators, their filters, or Reddit itself. New categories appear now and then,
            // and all mean that the post is not shown.
            (Some(_), _) | (None, Some(_)) => Some(PurgeReason::Removed),
        }
    }

    /// Returns true if these are the fields of `_meta` for a post that was gone when the archive last read it. A post
    /// that was gone only at first is shown again.
    fn is_gone(&self) -> bool {
        let was = |flag: &Field| flag.flag() == Some(true);
        was(&self.was_deleted_later)
            || self.removal_type.word().is_some() && !was(&self.was_initially_deleted)
    }

    pub(crate) fn created_at(&self) -> Result<Timestamp, RejectReason> {
        match &self.created_utc {
            Field::Missing => Err("no `created_utc`".into()),
            field => time_of_post(field.value().unwrap_or(&Value::Null)),
        }
    }

    /// If the row lacks the time when the archive read the post, sets it to the upper bound `now`, in seconds since
    /// 1970.
    pub(crate) fn set_retrieved_by(&mut self, now: i64) {
        if !self.retrieved_utc.is_present() && !self.retrieved_on.is_present() {
            self.retrieved_on = Field::Value(now.into());
        }
    }

    /// Returns the post that a crosspost shows, as Reddit includes it.
    pub(crate) fn shown(&self) -> Option<&Self> {
        self.crosspost_parent_list.object()
    }

    /// Returns the posts that a crosspost shows. The first one is the post whose text it shows: for a crosspost of a
    /// crosspost, the original.
    pub(crate) fn shown_names(&self, own: &Fullname) -> impl Iterator<Item = Fullname> {
        let shown = self.shown();
        [
            shown.and_then(|shown| shown.crosspost_parent.word()),
            self.crosspost_parent.word(),
            shown.and_then(|shown| shown.name.word().or_else(|| shown.id.id())),
        ]
        .into_iter()
        .flatten()
        .filter_map(|name| Fullname::from_url(&name).ok())
        // An invalid row may name the post itself.
        .filter(move |name| name != own && !name.is_comment())
    }
}
