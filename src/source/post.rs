//! Reddit's wire form of a post, decoded leniently.
//!
//! What enters is JSON as the API, a saved page, a dump of some year, an archive or a flat table writes it; what leaves
//! is a [`Post`] or the reason why it is none. Nothing here is a closed list, because the wire has changed every few
//! years.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
};
use serde_json::Value;

use crate::domain::{Fullname, Post, SourceKind, Timestamp, is_placeholder, unescaped};

/// The last second of the year 9999; what lies behind it was not meant as seconds.
const LATEST_SECS: f64 = 253_402_300_799.0;

/// Arctic Shift, and with it the dumps since November 2023, reads a post again this long after it was
/// posted: 36 hours.
const SETTLED_SECS: f64 = 36.0 * 3_600.0;

/// What holds no fields.
pub(super) const NO_OBJECT: &str = "not a JSON object";
const A_COMMENT: &str = "a comment, not a post";

/// Decodes one post: a thing (`{"kind": "t3", "data": {…}}`) or its bare data, as dumps and tables have it.
///
/// # Errors
/// The reason, a fragment such as `a comment, not a post`.
pub fn post_from_value(value: &Value, source: SourceKind) -> Result<Post, String> {
    let fields = Fields::deserialize(value).map_err(|_| NO_OBJECT)?;
    post_from_fields(fields, source)
}

/// The same from fields that were read already.
pub(super) fn post_from_fields(fields: Fields, source: SourceKind) -> Result<Post, String> {
    let comment = fields.is_comment();
    let fields = fields.of_the_post()?;
    if fields.promoted.flag() == Some(true) {
        return Err("an advertisement, not a post".to_owned());
    }
    if comment {
        return Err(A_COMMENT.to_owned());
    }
    let fullname = fields.fullname()?;
    let text = |field: &Field| field.text_from(source);
    let permalink = text(&fields.permalink).map(path_on_reddit);
    let subreddit = fields
        .subreddit
        .text()
        .or_else(|| permalink.as_deref().and_then(subreddit_of_permalink))
        .ok_or("no `subreddit`, nor one in `permalink`")?;
    let created_at = fields.created_at()?;

    let own_text = text(&fields.selftext).unwrap_or_default();
    let removed = fields.removed_by_category.text().is_some()
        || fields.removed_in_dump()
        || is_placeholder(&own_text);
    let crosspost_parent = fields.crosspost_parent(&fullname);
    // A text whose post nobody could name would stay here when that post is purged.
    let selftext = if own_text.trim().is_empty() && crosspost_parent.is_some() {
        fields.crosspost_text(source).unwrap_or_default()
    } else {
        own_text
    };
    let title = text(&fields.title).unwrap_or_default();
    if title.trim().is_empty() && selftext.trim().is_empty() {
        return Err("neither `title` nor `selftext`".to_owned());
    }
    let url = text(&fields.url);
    let is_self = fields
        .is_self
        .flag()
        .unwrap_or_else(|| points_to_itself(url.as_deref(), permalink.as_deref()));

    let score = fields.score.integer().or_else(|| fields.ups.integer());

    Ok(Post {
        fullname,
        subreddit,
        title,
        selftext,
        crosspost_parent,
        url: url.filter(|_| !is_self),
        permalink,
        author: fields.author.text().filter(|author| author != "[deleted]"),
        score,
        score_is_placeholder: score.is_some()
            && !source.is_live()
            && fields.read_too_soon(created_at),
        upvote_ratio: fields
            .upvote_ratio
            .number()
            .filter(|ratio| (0.0..=1.0).contains(ratio)),
        num_comments: fields.num_comments.integer(),
        flair: text(&fields.flair),
        over_18: fields.over_18.flag().unwrap_or(false),
        is_self,
        stickied: fields.stickied.flag().unwrap_or(false),
        removed,
        created_at,
        source,
    })
}

/// A time in seconds since 1970; `None` before that, and where milliseconds must have been meant.
#[expect(
    clippy::cast_possible_truncation,
    reason = "in the range that was just checked"
)]
pub(super) fn time_of_post(secs: f64) -> Option<Timestamp> {
    Some(secs)
        .filter(|secs| (0.0..=LATEST_SECS).contains(secs))
        .and_then(|secs| Timestamp::from_epoch_secs(secs as i64))
}

/// What a thing calls its kind.
pub(super) fn kind_of(value: &Value) -> Option<&str> {
    value.get("kind")?.as_str()
}

/// A field as it comes: a number may be a string, anything may be null or absent.
#[derive(Debug, Default)]
pub(super) struct Field(Option<Value>);

impl Field {
    fn is_there(&self) -> bool {
        self.0.is_some()
    }

    fn is_null(&self) -> bool {
        self.0.as_ref().is_none_or(Value::is_null)
    }

    /// A string.
    pub(super) fn str(&self) -> Option<&str> {
        self.0.as_ref()?.as_str()
    }

    /// A string that is not blank, without NUL, which PostgreSQL refuses.
    fn text(&self) -> Option<String> {
        let text = self.str()?.replace('\0', "");
        (!text.trim().is_empty()).then_some(text)
    }

    /// The same as a person wrote it, whether or not the source escapes it for HTML.
    fn text_from(&self, source: SourceKind) -> Option<String> {
        let text = self.text()?;
        if !source.about().is_escaped {
            return Some(text);
        }
        Some(unescaped(&text).into_owned()).filter(|text| !text.trim().is_empty())
    }

    fn number(&self) -> Option<f64> {
        let number = match self.0.as_ref()? {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number: &f64| number.is_finite())
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a fraction of a vote is noise, and the cast saturates"
    )]
    fn integer(&self) -> Option<i64> {
        let exact = self.0.as_ref().and_then(Value::as_i64);
        exact.or_else(|| self.number().map(|number| number as i64))
    }

    fn flag(&self) -> Option<bool> {
        match self.0.as_ref()? {
            Value::Bool(flag) => Some(*flag),
            Value::Number(number) => Some(number.as_f64() != Some(0.0)),
            Value::String(text) => text.to_ascii_lowercase().parse().ok(),
            _ => None,
        }
    }

    /// An object, or nothing.
    fn fields(&self) -> Option<Fields> {
        Fields::deserialize(self.0.as_ref()?).ok()
    }
}

/// Declares the fields that are ever looked at, in a thing, in its data or in what lies within. A dump's row has a
/// hundred fields, and the others are passed over without being copied.
macro_rules! fields {
    ($($field:ident = $name:literal),+ $(,)?) => {
        /// The fields of a thing, or of a post.
        #[derive(Debug, Default)]
        pub(super) struct Fields {
            $(pub(super) $field: Field),+
        }

        impl Fields {
            fn place(&mut self, name: &str) -> Option<&mut Field> {
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

/// Reads an object. Of a field that is there twice the last one counts, as with any JSON parser.
struct ReadFields;

impl<'de> Visitor<'de> for ReadFields {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        while let Some(field) = map.next_key_seed(PlaceOf(&mut fields))? {
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

/// Finds the place of a field by its name, without a copy of the name.
struct PlaceOf<'a>(&'a mut Fields);

impl<'de, 'a> DeserializeSeed<'de> for PlaceOf<'a> {
    type Value = Option<&'a mut Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for PlaceOf<'a> {
    type Value = Option<&'a mut Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.place(name))
    }
}

impl Fields {
    /// Whether a thing or its bare data is a comment: it has a body, what it belongs to, and no title.
    pub(super) fn is_comment(&self) -> bool {
        let body = self.body.is_there() && self.link_id.is_there() && !self.title.is_there();
        self.kind.str() == Some("t1") || body
    }

    /// The data of a thing, or what is bare already.
    fn of_the_post(self) -> Result<Self, String> {
        if !self.data.is_there() {
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

    /// Dumps of some years come without `name`.
    fn fullname(&self) -> Result<Fullname, String> {
        let name = self.name.text().or_else(|| self.id.text());
        let name = name.ok_or("neither `name` nor `id` as text")?;
        name.parse()
            .map_err(|error: crate::domain::FullnameError| error.to_string())
    }

    fn created_at(&self) -> Result<Timestamp, String> {
        let secs = self
            .created_utc
            .number()
            .ok_or("no `created_utc`, or no number in it")?;
        time_of_post(secs)
            .ok_or_else(|| format!("`created_utc` {secs} is not a time in seconds since 1970"))
    }

    /// What dumps from November 2023 on have in place of `removed_by_category`.
    fn removed_in_dump(&self) -> bool {
        let meta = self.meta.fields();
        meta.is_some_and(|meta| !meta.removal_type.is_null())
    }

    /// Whether an archive read a post while nobody had voted yet, and did not read it again.
    fn read_too_soon(&self, created_at: Timestamp) -> bool {
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

    /// The post that this one shows, as Reddit repeats it.
    fn shown(&self) -> Option<Self> {
        let parents = self.crosspost_parent_list.0.as_ref()?;
        Self::deserialize(parents.get(0)?).ok()
    }

    fn crosspost_text(&self, source: SourceKind) -> Option<String> {
        let text = self.shown()?.selftext.text_from(source);
        text.filter(|text| !is_placeholder(text))
    }

    /// The post whose text a crosspost shows: of a crosspost of a crosspost the first one.
    fn crosspost_parent(&self, own: &Fullname) -> Option<Fullname> {
        let shown = self.shown();
        let shown = shown.as_ref();
        [
            shown.and_then(|shown| shown.crosspost_parent.text()),
            self.crosspost_parent.text(),
            shown.and_then(|shown| shown.name.text().or_else(|| shown.id.text())),
        ]
        .into_iter()
        .flatten()
        .filter_map(|name| name.parse().ok())
        .find(|name| name != own)
    }
}

/// `http://www.reddit.com/r/x/comments/…` as older dumps have it, or the path already.
fn path_on_reddit(permalink: String) -> String {
    match permalink.split_once("://") {
        Some((_, rest)) => rest
            .find('/')
            .map_or_else(String::new, |slash| rest[slash..].to_owned()),
        None => permalink,
    }
}

fn subreddit_of_permalink(permalink: &str) -> Option<String> {
    let mut parts = permalink.trim_start_matches('/').split('/');
    let (r, name, comments) = (parts.next()?, parts.next()?, parts.next()?);
    (r == "r" && comments == "comments" && !name.is_empty()).then(|| name.to_owned())
}

/// Where `is_self` is absent: the URL of a text post is its own permalink.
fn points_to_itself(url: Option<&str>, permalink: Option<&str>) -> bool {
    match (url, permalink) {
        (None, _) => true,
        (Some(url), Some(permalink)) => {
            path_on_reddit(url.to_owned()).trim_end_matches('/') == permalink.trim_end_matches('/')
        }
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(
        clippy::needless_pass_by_value,
        reason = "so that a test can write `json!` in the call"
    )]
    fn post(data: Value) -> Result<Post, String> {
        let mut whole = json!({
            "id": "abc1", "subreddit": "climate", "title": "A title", "created_utc": 1_700_000_000,
        });
        for (name, value) in data.as_object().unwrap() {
            whole[name] = value.clone();
        }
        post_from_value(&whole, SourceKind::Import)
    }

    #[test]
    fn what_is_escaped_is_decoded_once_and_only_where_the_source_escapes() {
        let escaped = json!({
            "title": "Bread &amp;amp; salt &lt;3", "selftext": "&gt; quoted &#39;so&#x27; &quot;&quot;&nbsp;&#x200B;&hellip;",
            "url": "https://a.example/?x=1&amp;y=2&copy=3&amp;amp;", "link_flair_text": "Q&amp;A",
            "is_self": false,
        });
        let decoded = post(escaped.clone()).unwrap();
        assert_eq!(decoded.title, "Bread &amp; salt <3");
        assert_eq!(decoded.selftext, "> quoted 'so' \"\"\u{a0}\u{200b}\u{2026}");
        let url = decoded.url.as_deref();
        assert_eq!(url, Some("https://a.example/?x=1&y=2&copy=3&amp;"));
        assert_eq!(decoded.flair.as_deref(), Some("Q&A"));
        // What is no reference stays, and nothing that PostgreSQL refuses comes of one.
        let plain = "a & b; &c &unknown; &#0; &#xD800; &#; &amp";
        assert_eq!(post(json!({"title": plain})).unwrap().title, plain);
        let blank = post(json!({"title": "&nbsp;", "selftext": "&#32;"}));
        assert_eq!(blank.unwrap_err(), "neither `title` nor `selftext`");
        // Reddit's API is asked for texts as they are, and who wrote `&amp;` there meant it.
        let mut live = escaped;
        for (name, value) in [
            ("id", json!("a")),
            ("subreddit", json!("s")),
            ("created_utc", json!(1)),
        ] {
            live[name] = value;
        }
        for kind in [SourceKind::Reddit, SourceKind::Sample] {
            let title = post_from_value(&live, kind).unwrap().title;
            assert_eq!(title, "Bread &amp;amp; salt &lt;3");
        }
        let archived = post_from_value(&live, SourceKind::ArcticShift).unwrap();
        assert_eq!(archived.title, "Bread &amp; salt <3");
    }

    #[test]
    fn times_come_as_int_float_and_string() {
        let at = Timestamp::from_epoch_secs(1_389_000_000).unwrap();
        for form in [
            json!(1_389_000_000),
            json!(1_389_000_000.9),
            json!("1389000000"),
        ] {
            assert_eq!(post(json!({"created_utc": form})).unwrap().created_at, at);
        }
        for bad in [
            json!(null),
            json!("soon"),
            json!(-1),
            json!(1.4e15),
            json!(true),
        ] {
            let reason = post(json!({"created_utc": bad})).unwrap_err();
            assert!(reason.contains("created_utc"), "{reason}");
        }
    }

    #[test]
    fn names_ids_and_subreddits_are_found_where_they_are() {
        assert_eq!(post(json!({})).unwrap().fullname.as_str(), "t3_abc1");
        assert_eq!(
            post(json!({"id": "t3_abc1"})).unwrap().fullname.as_str(),
            "t3_abc1"
        );
        assert!(
            post(json!({"name": "t1_abc"}))
                .unwrap_err()
                .contains("t1_abc")
        );
        let link = "http://www.reddit.com/r/Music/comments/abc1/x/";
        let found = post(json!({"subreddit": null, "permalink": link})).unwrap();
        assert_eq!(found.subreddit, "Music");
        assert_eq!(
            found.permalink.as_deref(),
            Some("/r/Music/comments/abc1/x/")
        );
        let lost = post(json!({"subreddit": null, "permalink": "/comments/abc1/x/"}));
        assert_eq!(lost.unwrap_err(), "no `subreddit`, nor one in `permalink`");
    }

    #[test]
    fn odd_values_become_none_or_their_meaning() {
        let odd = post(json!({
            "score": null, "upvote_ratio": 7, "num_comments": "12", "edited": 1.5, "over_18": "True",
            "author": "[deleted]", "link_flair_text": "", "stickied": 1, "title": "nul\0 inside",
        }))
        .unwrap();
        assert_eq!(
            (odd.score, odd.upvote_ratio, odd.num_comments),
            (None, None, Some(12))
        );
        assert_eq!((odd.author.as_deref(), odd.flair.as_deref()), (None, None));
        assert!(odd.over_18 && odd.stickied && !odd.removed);
        assert_eq!(odd.title, "nul inside");
        assert_eq!(
            post(json!({"title": null})).unwrap_err(),
            "neither `title` nor `selftext`"
        );
    }

    #[test]
    fn a_comment_of_a_dump_is_called_one() {
        let comment = json!({"id": "c1", "body": "Hello", "link_id": "t3_abc1", "subreddit": "s", "created_utc": 1});
        let reason = post_from_value(&comment, SourceKind::Import).unwrap_err();
        assert_eq!(reason, A_COMMENT);
    }

    #[test]
    fn removal_is_seen_in_all_its_forms() {
        for form in [
            json!({"removed_by_category": "moderator"}),
            json!({"selftext": "[removed]"}),
            json!({"selftext": "[deleted]\n"}),
            json!({"_meta": {"removal_type": "deleted"}}),
        ] {
            assert!(post(form.clone()).unwrap().removed, "{form}");
        }
        let stays = json!({"removed_by_category": null, "_meta": {"removal_type": null}});
        assert!(!post(stays).unwrap().removed);
    }

    #[test]
    fn a_crosspost_without_text_takes_its_parents() {
        let parent = json!([{"name": "t3_first", "selftext": "The parent's text"}]);
        let bare = post(json!({"selftext": "", "crosspost_parent_list": parent})).unwrap();
        assert_eq!(bare.selftext, "The parent's text");
        assert_eq!(bare.crosspost_parent, "first".parse().ok());
        // Whose text nobody can tell is not taken: it could not go with its post.
        let nameless = json!([{"selftext": "The parent's text"}]);
        let bare = post(json!({"selftext": "", "crosspost_parent_list": nameless})).unwrap();
        assert_eq!((bare.selftext.as_str(), bare.crosspost_parent), ("", None));
        let second =
            json!([{"name": "t3_second", "crosspost_parent": "t3_first", "selftext": "x"}]);
        let third = post(json!({"crosspost_parent": "t3_second", "crosspost_parent_list": second}));
        assert_eq!(third.unwrap().crosspost_parent, "first".parse().ok());
        let own = post(json!({"selftext": "Mine", "crosspost_parent_list": parent})).unwrap();
        assert_eq!(own.selftext, "Mine");
        let gone = json!({"crosspost_parent_list": [{"id": "first", "selftext": "[removed]"}]});
        let gone = post(gone).unwrap();
        assert_eq!((gone.selftext.as_str(), gone.removed), ("", false));
    }

    #[test]
    fn only_links_keep_their_url() {
        let permalink = "http://www.reddit.com/r/a/comments/abc1/x/";
        let text = post(json!({"url": permalink, "permalink": permalink})).unwrap();
        assert_eq!((text.is_self, text.url), (true, None));
        let link = post(json!({"url": "https://a.example/", "permalink": permalink})).unwrap();
        assert_eq!(
            (link.is_self, link.url.as_deref()),
            (false, Some("https://a.example/"))
        );
        let said = post(json!({"url": "https://a.example/", "is_self": true})).unwrap();
        assert_eq!(said.url, None);
    }

    #[test]
    fn of_a_field_that_is_there_twice_the_last_one_counts() {
        let row = r#"{"title":"first","titl\u0065":"last","media":{"title":"no"},"_meta":{"x":1}}"#;
        let fields: Fields = serde_json::from_str(row).unwrap();
        assert_eq!(fields.title.str(), Some("last"));
        assert!(!fields.body.is_there() && fields.removal_type.is_null());
    }

    #[test]
    fn what_is_passed_over_must_be_json_all_the_same() {
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
            let error = serde_json::from_str::<Fields>(text).unwrap_err();
            let place = |error: &serde_json::Error| (error.classify(), error.column());
            assert_eq!(place(&error), place(&plain), "{text}");
        }
        let deep = format!("{{\"title\":{}", "[".repeat(100_000));
        assert!(
            serde_json::from_str::<Fields>(&deep).is_err(),
            "and no stack overflow"
        );
    }
}
