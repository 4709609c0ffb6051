//! Decodes Reddit's wire format for posts and comments, leniently.
//!
//! The input is JSON from the API, a saved page, a dump from any year, an archive or a flat table. The output is a
//! [`Post`], or the reason for its rejection. Unknown fields are ignored, because the format changes every few years.

mod field;
mod fields;

use serde_json::Value;

pub(super) use self::field::{Field, flag_of, integer_of, is_null, number_of};
pub use self::fields::Fields;
use topicmill_core::{
    Fullname, Post, PurgeReason, RejectReason, SECOND_READING, SourceKind, ThingKind, Timestamp,
    author_name, parse_time,
};

/// The first second of June 2005, the month of Reddit's first post.
const FIRST_POST: f64 = 1_117_584_000.0;
/// The last second of the year 9999; a larger number is not in seconds.
const LATEST_SECS: f64 = Timestamp::LATEST_SECS as f64;

// Reasons to reject a creation time, and what was found instead.
const NOT_A_TIME: &str = "`created_utc` is not a time";
const NO_DATE: &str = "other text: write seconds since 1970, or a date like 2023-11-14, 2023-11-14 22:13 or \
     2023-11-14T22:13:20+01:00, which is in UTC without a zone";
const TOO_LARGE: &str = "too large for seconds since 1970";
const BEFORE_REDDIT: &str = "before Reddit's first post, in June 2005";

/// Decodes a post or a comment from the fields of a thing (`{"kind": "t3", "data": {…}}`), or from its data alone, as
/// in dumps and tables. `wanted` is `None` for both kinds.
///
/// # Errors
/// Returns the reason, a fragment such as `a comment, not a post`.
pub(super) fn decode_post(
    fields: Fields,
    source: SourceKind,
    wanted: Option<ThingKind>,
) -> Result<Post, RejectReason> {
    let fields = fields.into_post()?;
    if fields.promoted.flag() == Some(true) {
        return Err("an advertisement, not a post".into());
    }
    let is_comment = fields.is_comment();
    match wanted {
        Some(ThingKind::Post) if is_comment => return Err("a comment, not a post".into()),
        Some(ThingKind::Comment) if !is_comment => return Err("a post, not a comment".into()),
        _ => {}
    }
    let fullname = fields.fullname()?;
    let text = |field: &Field| field.text_from(source);
    let permalink = page_of(&fields, &fullname, source);
    let subreddit = subreddit_of(&fields.subreddit, permalink.as_deref())?;
    let created_at = fields.created_at()?;

    let title = text(&fields.title)
        .filter(|_| !is_comment)
        .unwrap_or_default();
    let crosspost_parent = fields.shown_names(&fullname).next();
    // The parent's text is used only if the parent is known: the text must be purged with the parent.
    let shown = fields.shown().filter(|_| crosspost_parent.is_some());
    let selftext = selftext_of(&fields, shown, source);
    if title.trim().is_empty() && selftext.trim().is_empty() {
        return Err(if is_comment {
            "no `body`".into()
        } else {
            "neither `title` nor `selftext`".into()
        });
    }
    let url = text(&fields.url).filter(|_| !is_comment);
    let reply = fields.reply();
    // A comment's permalink contains the title of its post, which may be purged before the comment.
    let link = |post: &Fullname| {
        let (post, id) = (post.id(), fullname.id());
        format!("/r/{subreddit}/comments/{post}/comment/{id}/")
    };
    let permalink = reply.post.as_ref().map(link).or(permalink);
    let is_self = fields
        .is_self
        .flag()
        .unwrap_or_else(|| is_own_permalink(url.as_deref(), permalink.as_deref()));

    let score = fields.score.integer().or_else(|| fields.ups.integer());
    let post = Post {
        fullname,
        subreddit,
        title,
        selftext,
        reply,
        crosspost_parent,
        url: url.filter(|_| !is_self),
        permalink,
        author: fields
            .author
            .text()
            .and_then(|author| author_of(&author, source)),
        score,
        // Reddit's API returns the current score.
        score_is_placeholder: score.is_some()
            && !source.is_live()
            && was_read_early(&fields, created_at),
        upvote_ratio: fields
            .upvote_ratio
            .number()
            .filter(|ratio| (0.0..=1.0).contains(ratio)),
        num_comments: fields.num_comments.integer(),
        flair: text(&fields.flair),
        over_18: fields.over_18.flag().unwrap_or(false),
        is_self,
        stickied: fields.stickied.flag().unwrap_or(false),
        removal: fields.removal(),
        created_at,
        source,
    };
    // Some sources keep the title, and an archive all of the text, of a post that was deleted.
    let is_gone = post.removal.is_some();
    Ok(if is_gone { without_text(post) } else { post })
}

/// Returns the body of a post or a comment, or, for a crosspost without one, the body of the post that it shows.
fn selftext_of(fields: &Fields, shown: Option<&Fields>, source: SourceKind) -> String {
    let body = || {
        fields
            .body
            .text_from(source)
            .filter(|_| fields.is_comment())
    };
    let own = fields.selftext.text_from(source).or_else(body);
    let own = own.filter(|text| !text.trim().is_empty());
    let of_shown = || {
        let shown = shown.filter(|shown| shown.removal().is_none())?;
        shown.selftext.text_from(source)
    };
    own.or_else(of_shown).unwrap_or_default()
}

/// Returns true if an archive read the post only once, perhaps before most people had voted on it.
fn was_read_early(fields: &Fields, created_at: Timestamp) -> bool {
    let read = fields.retrieved_on.number();
    let read = read.or_else(|| fields.retrieved_utc.number());
    let created = created_at.as_datetime().timestamp() as f64;
    let meta = fields.meta.object();
    meta.is_none_or(|meta| meta.retrieved_2nd_on.is_null())
        && read.is_some_and(|read| read - created < SECOND_READING.as_seconds_f64())
}

/// Replaces the text with a placeholder, and removes the author and the links, which repeat the title.
fn without_text(post: Post) -> Post {
    let is_deleted = post.removal == Some(PurgeReason::Deleted);
    let placeholder = if is_deleted { "[deleted]" } else { "[removed]" }.to_owned();
    let (title, selftext) = if post.fullname.is_comment() {
        (String::new(), placeholder)
    } else {
        (placeholder, String::new())
    };
    Post {
        title,
        selftext,
        url: None,
        permalink: None,
        author: None,
        ..post
    }
}

/// Returns the name of a post's subreddit, which some sources give only in the permalink.
fn subreddit_of(subreddit: &Field, permalink: Option<&str>) -> Result<String, RejectReason> {
    let named = subreddit.text();
    let named = named.or_else(|| permalink.and_then(subreddit_of_permalink));
    let named = named.ok_or("no `subreddit`, nor one in `permalink`")?;
    let name = bare_subreddit(&named);
    let fits = |c: char| c.is_alphanumeric() || "_-.:".contains(c);
    if name.is_empty() || !name.chars().all(fits) {
        return Err("`subreddit` is not a subreddit name".into());
    }
    Ok(name.to_owned())
}

/// Parses the creation time: seconds since 1970, or a date in a common format, in UTC by default.
///
/// # Errors
/// Returns the reason for the rejection. Reddit has no posts before June 2005, so an earlier time is probably in a
/// different unit.
#[expect(
    clippy::cast_possible_truncation,
    reason = "in the range that was just checked"
)]
pub(super) fn time_of_post(value: &Value) -> Result<Timestamp, RejectReason> {
    let dated = || Some(parse_time(value.as_str()?)?.time.timestamp() as f64);
    let Some(secs) = number_of(value).or_else(dated) else {
        let reason = RejectReason::from(NOT_A_TIME);
        return Err(match value {
            Value::String(_) => reason.with_found(NO_DATE.into()),
            _ => reason,
        });
    };
    if (FIRST_POST..=LATEST_SECS).contains(&secs) {
        let time = Timestamp::from_epoch_secs(secs as i64);
        return time.ok_or_else(|| NOT_A_TIME.into());
    }
    let (fault, meaning) = match secs {
        LATEST_SECS..1e19 => (TOO_LARGE, Some("milliseconds or a smaller unit")),
        LATEST_SECS.. => (TOO_LARGE, None),
        // Excel counts days since 1900. These are the days from June 2005 to 2119.
        38_504.0..80_000.0 => (BEFORE_REDDIT, Some("an Excel date")),
        20_050_601.0..21_000_000.0 => (BEFORE_REDDIT, Some("a date without its hyphens")),
        _ => (BEFORE_REDDIT, None),
    };
    let found = match meaning {
        Some(meaning) => format!(
            "{secs}, which looks like {meaning}: write seconds since 1970, or a date like 2023-11-14"
        ),
        None => secs.to_string(),
    };
    Err(RejectReason::from(format!("`created_utc` is {fault}")).with_found(found))
}

/// Returns the bare name of a subreddit: `/r/food/` and `food ` become `food`.
pub(super) fn bare_subreddit(name: &str) -> &str {
    let address = name.rsplit_once("reddit.com/");
    let name = address.map_or(name, |(_, path)| path).trim();
    let name = name.strip_prefix('/').unwrap_or(name);
    let name = name
        .strip_prefix("r/")
        .or_else(|| name.strip_prefix("R/"))
        .unwrap_or(name);
    let name = name.trim_end_matches('/');
    // An address may be that of a post.
    let end = name.find('/').filter(|_| address.is_some());
    &name[..end.unwrap_or(name.len())]
}

/// Returns an author's name without `u/`; `None` for the placeholder of a deleted author.
fn author_of(name: &str, source: SourceKind) -> Option<String> {
    let name = author_name(name);
    let lower = name.to_lowercase();
    let gone = match &*lower {
        "[deleted]" | "[removed]" | "[unavailable]" => true,
        // Users may have such names, but in a file these words are usually placeholders.
        "deleted" | "removed" | "none" | "null" | "nan" => !source.is_live(),
        _ => is_null(name) && !source.is_live(),
    };
    (!gone && !name.is_empty()).then(|| name.to_owned())
}

/// Returns the path of the post's page. In some files, only `url` has it.
fn page_of(fields: &Fields, fullname: &Fullname, source: SourceKind) -> Option<String> {
    let permalink = fields.permalink.text_from(source);
    let from_url = || {
        let url = fields.url.text().filter(|_| !source.is_live())?;
        let is_own = url.contains('/') && Fullname::from_url(&url).as_ref() == Ok(fullname);
        path_on_reddit(&url).filter(|_| is_own)
    };
    permalink
        .and_then(|link| path_on_reddit(&link))
        .or_else(from_url)
}

/// Returns the path of a permalink, which is a full URL in older dumps: `http://www.reddit.com/r/x/comments/…`. Returns
/// `None` if it is blank or on another site.
fn path_on_reddit(permalink: &str) -> Option<String> {
    let permalink = permalink.trim();
    let url = match permalink.split_once("://") {
        // A scheme contains no slash, so this is a path.
        Some((scheme, _)) if scheme.contains('/') => None,
        Some((_, url)) => Some(url),
        None => Some(permalink).filter(|url| !url.starts_with('/')),
    };
    let Some(url) = url else {
        return Some(permalink.to_owned());
    };
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = url.split_at(url.find('/').unwrap_or(url.len()));
    let host = host.to_ascii_lowercase();
    match &*host {
        "redd.it" | "www.redd.it" => Some(format!("/comments{path}")),
        "r" | "u" | "user" | "comments" => Some(format!("/{url}")),
        _ if host.ends_with("reddit.com") && !path.is_empty() => Some(path.to_owned()),
        _ => None,
    }
}

fn subreddit_of_permalink(permalink: &str) -> Option<String> {
    let mut parts = permalink.trim_start_matches('/').split('/');
    let (kind, name, comments) = (parts.next()?, parts.next()?, parts.next()?);
    let is_post = comments.eq_ignore_ascii_case("comments") && !name.is_empty();
    match &*kind.to_ascii_lowercase() {
        "r" if is_post => Some(name.to_owned()),
        // A profile is a subreddit as well.
        "u" | "user" if is_post => Some(format!("u_{name}")),
        _ => None,
    }
}

/// Returns true if a post has no URL or links to its own permalink; used if `is_self` is missing.
fn is_own_permalink(url: Option<&str>, permalink: Option<&str>) -> bool {
    match (url, permalink) {
        (None, _) => true,
        (Some(url), Some(permalink)) => path_on_reddit(url)
            .is_some_and(|url| url.trim_end_matches('/') == permalink.trim_end_matches('/')),
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests;
