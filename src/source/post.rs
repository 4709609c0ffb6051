//! Reddit's wire form of a post, decoded leniently.
//!
//! What enters is JSON as the API, a saved page, a dump of some year, an archive or a flat table writes it; what leaves
//! is a [`Post`] or the reason why it is none. Nothing here is a closed list, because the wire has changed every few
//! years.

mod fields;

use serde::Deserialize;
use serde_json::Value;

pub(super) use self::fields::{Field, Fields, flag_of, integer_of, number_of};
use crate::domain::{Post, SourceKind, Timestamp, is_placeholder};

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
    // Before `of_the_post`, which drops the kind of the thing.
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
    let permalink = text(&fields.permalink)
        .map(path_on_reddit)
        .filter(|path| !path.trim().is_empty());
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
        // Reddit itself shows the score of now. An archive that read a post at once has a score from before the votes.
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

/// `http://www.reddit.com/r/x/comments/…` as older dumps have it, or the path already.
fn path_on_reddit(permalink: String) -> String {
    match permalink.split_once("://") {
        // What follows a slash is no scheme, but part of a path.
        Some((scheme, _)) if scheme.contains('/') => permalink,
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
mod tests;
