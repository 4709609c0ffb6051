//! Decodes listings from Reddit's API.
//!
//! The envelope is roux's, but children are decoded one by one: roux's struct requires some thirty fields, so one
//! incomplete child would make the page fail.

use std::collections::VecDeque;

use roux::response::{BasicThing, Listing as Children};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::page::{ListingPage, Rejected};
use super::post::{Fields, decode_post};
use topicmill_core::{Post, RejectReason, SourceKind, ThingKind};
use topicmill_tables::json::unwrap_records;

/// The reason for rejecting a child of a listing, or a row of an archive, that is not an object.
pub(super) const NOT_AN_OBJECT: &str = "not a JSON object";

/// Input that is not a listing.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// Invalid or truncated JSON.
    #[error("the listing is invalid or truncated JSON: fetch it again")]
    Json(#[source] serde_json::Error),
    /// JSON with a different structure.
    #[error(
        "the JSON is not a Reddit listing, `{{\"kind\": \"Listing\", \"data\": {{\"children\": […]}}}}`"
    )]
    Shape(#[source] Option<serde_json::Error>),
}

impl From<serde_json::Error> for ListingError {
    fn from(error: serde_json::Error) -> Self {
        if error.is_data() {
            Self::Shape(Some(error))
        } else {
            Self::Json(error)
        }
    }
}

/// Decodes a listing. A child that is not of the `wanted` kind is rejected. `inspect` receives each child before it is
/// decoded, `None` if it is not an object.
///
/// # Errors
/// Returns [`ListingError`] if the input is not a listing; an invalid child is only rejected.
pub fn parse_listing(
    bytes: &[u8],
    source: SourceKind,
    wanted: Option<ThingKind>,
    mut inspect: impl FnMut(Option<&Fields>),
) -> Result<ListingPage, ListingError> {
    let text = String::from_utf8_lossy(bytes);
    let envelope: BasicThing<Children<&RawValue>> = serde_json::from_str(&text)?;
    let mut page = ListingPage {
        // `after` is stored with the watermark, and PostgreSQL cannot store NUL.
        after: (envelope.data.after)
            .map(|after| after.replace('\0', ""))
            .filter(|after| !after.is_empty()),
        ..ListingPage::default()
    };
    for (position, child) in (1..).zip(envelope.data.children) {
        let fields = parse_fields(child.get());
        inspect(fields.as_ref().ok());
        let fields = fields.map_err(|_| NOT_AN_OBJECT.into());
        match fields.and_then(|fields| decode_post(fields, source, wanted)) {
            Ok(post) => page.posts.push(post),
            Err(reason) => page.rejected.push(Rejected {
                at: format!("child {position}"),
                reason,
            }),
        }
    }
    Ok(page)
}

/// Decodes the comments of a thread with their replies.
pub(super) fn decode_thread(
    mut queue: VecDeque<Box<RawValue>>,
    decode: impl Fn(&RawValue) -> Result<Post, RejectReason>,
) -> ListingPage {
    let (mut page, mut position) = (ListingPage::default(), 0);
    while let Some(thing) = queue.pop_front() {
        position += 1;
        if let Some(comments) = left_out_by(&thing) {
            page.left_out += comments;
            continue;
        }
        queue.extend(replies_in(thing.get().as_bytes()));
        match decode(&thing) {
            Ok(post) => page.posts.push(post),
            Err(reason) => page.rejected.push(Rejected {
                at: format!("comment {position}"),
                reason,
            }),
        }
    }
    page
}

/// Returns the comments inside a record: `comments` and `replies` in a file of BDFR, and the listing of `replies` in a
/// saved page of Reddit.
pub(super) fn replies_in(json: &[u8]) -> VecDeque<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Thread {
        comments: Option<Box<RawValue>>,
        replies: Option<Box<RawValue>>,
        data: Option<Box<Self>>,
    }
    let has = |name: &str| memchr::memmem::find(json, name.as_bytes()).is_some();
    if !has("\"replies\"") && !has("\"comments\"") {
        return VecDeque::new();
    }
    let Ok(mut thread) = serde_json::from_slice::<Thread>(json) else {
        return VecDeque::new();
    };
    let Thread {
        comments, replies, ..
    } = thread.data.take().map_or(thread, |data| *data);
    let lists = [comments, replies].into_iter().flatten();
    let lists = lists.filter_map(|list| match list.get().as_bytes()[0] {
        b'[' => serde_json::from_str::<VecDeque<Box<RawValue>>>(list.get()).ok(),
        b'{' => unwrap_records(list.get().as_bytes()),
        _ => None,
    });
    // BDFR and Reddit may list ids instead.
    let replies = lists.flatten();
    replies
        .filter(|reply| reply.get().starts_with('{'))
        .collect()
}

/// Returns the number of comments that a thing of kind `more` stands for, at least one; `None` for any other thing.
pub(super) fn left_out_by(thing: &RawValue) -> Option<u64> {
    #[derive(Deserialize)]
    struct Thing<'a> {
        kind: &'a str,
        data: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct More {
        count: u64,
    }
    let thing = serde_json::from_str::<Thing<'_>>(thing.get());
    let more = thing.ok().filter(|thing| thing.kind == "more")?;
    let more = serde_json::from_str(more.data.get()).unwrap_or(More { count: 0 });
    // A link to a deeper part of the thread has a count of 0.
    Some(more.count.max(1))
}

/// Parses the fields of an object; if that fails because of lone surrogates, replaces them and parses again.
pub(super) fn parse_fields(json: &str) -> serde_json::Result<Fields> {
    serde_json::from_str(json).or_else(|error| match replace_lone_surrogates(json) {
        Some(repaired) => serde_json::from_str(&repaired),
        None => Err(error),
    })
}

/// Returns the JSON with each lone surrogate replaced by U+FFFD; `None` if there is none.
///
/// A post that was truncated within an emoji contains one and would make the whole page fail.
fn replace_lone_surrogates(json: &str) -> Option<String> {
    let unit = |at: usize| -> Option<u16> {
        let escape = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(escape, 16).ok()
    };
    let (mut repaired, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = json[at..].find('\\') {
        at += found;
        let length = match (unit(at), unit(at + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(0xd800..0xe000), _) => {
                repaired.push_str(&json[copied..at]);
                repaired.push_str("\\ufffd");
                copied = at + 6;
                6
            }
            (Some(_), _) => 6,
            // Any other escape is a backslash and one ASCII character.
            (None, _) => 2,
        };
        at = (at + length).min(json.len());
        // In invalid JSON, a backslash may precede a multi-byte character.
        while !json.is_char_boundary(at) {
            at += 1;
        }
    }
    (copied > 0).then(|| repaired + &json[copied..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lone_surrogate_becomes_a_replacement_character() {
        let listing = r#"{"kind":"Listing","data":{"after":"t3_x\u0000","children":[
            {"kind":"t3","data":{"id":"a","title":"cut \ud83d","subreddit":"food","created_utc":1700000000}},
            {"kind":"t3","data":{"id":"b","title":"\udc00 \ud83d\ude00 \\ud83d","subreddit":"food",
             "created_utc":1700000000}}
        ]}}"#;
        let page = parse_listing(listing.as_bytes(), SourceKind::Reddit, None, |_| ()).unwrap();
        let titles: Vec<_> = page.posts.iter().map(|post| post.title.as_str()).collect();
        assert_eq!(titles, ["cut \u{fffd}", "\u{fffd} 😀 \\ud83d"]);
        assert_eq!(page.after.as_deref(), Some("t3_x"));
        assert_eq!(
            replace_lone_surrogates(r#"{"a":"\\ud83d \u00e9 é\\"}"#),
            None
        );
    }

    #[test]
    fn an_invalid_child_does_not_affect_the_others() {
        let t3 = json!({"kind": "t3", "data": {
            "id": "abc1", "permalink": "/r/climate/comments/abc1/a/", "title": "A", "created_utc": 1.5e9,
        }});
        let page = json!({"kind": "Listing", "data": {"after": "t3_abc1", "children": [
            null, {"kind": "t1", "data": {"id": "c"}}, {"kind": "t5", "data": {}},
            {"kind": "more", "data": {"count": 3}}, t3, {"kind": "t3", "data": null}, {"kind": "t3"}, 7,
            {"kind": "t3", "data": {"promoted": true, "id": "ad1", "title": "Buy"}},
        ]}});
        let posts = Some(ThingKind::Post);
        let page = parse_listing(
            page.to_string().as_bytes(),
            SourceKind::Reddit,
            posts,
            |_| (),
        )
        .unwrap();
        assert_eq!(page.posts.len(), 1);
        assert_eq!(page.posts[0].subreddit, "climate");
        assert_eq!(page.after.as_deref(), Some("t3_abc1"));
        let rejected: Vec<_> = page
            .rejected
            .iter()
            .map(|r| format!("{}: {}", r.at, r.reason))
            .collect();
        assert_eq!(
            rejected,
            [
                "child 1: not a JSON object",
                "child 2: a comment, not a post",
                "child 3: a thing of kind `t5`, not a post",
                "child 4: a thing of kind `more`, not a post",
                "child 6: a `t3` without its data",
                "child 7: neither `name` nor `id`",
                "child 8: not a JSON object",
                "child 9: an advertisement, not a post",
            ]
        );
    }
}
