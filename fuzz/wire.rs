//! Fuzz targets for data from the network: listings, dump lines, and HTML-escaped text.

use std::io::Cursor;

use serde_json::{Value, json};
use topicmill_core::reddit::decode_entities;
use topicmill_core::{Fullname, Post, PurgeReason, SourceKind, Timestamp};
use topicmill_sources::file::FileOptions;
use topicmill_sources::file::filter::Filter;
use topicmill_sources::file::json::JsonPosts;
use topicmill_sources::file::row::{FileRow, PostRows, Record};
use topicmill_sources::listing::parse_listing;

/// Asserts the invariants of posts that the store relies on.
pub fn assert_valid_post(post: &Post) {
    let id = post.fullname.id();
    assert!((1..=16).contains(&id.len()) && !id.starts_with('0'), "{id}");
    let is_valid = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
    assert!(id.bytes().all(is_valid), "{id}");
    assert_eq!(post.fullname.as_str().parse(), Ok(post.fullname.clone()));
    let optional = [&post.url, &post.permalink, &post.author, &post.flair];
    let texts = optional.into_iter().flatten();
    for text in texts.chain([&post.title, &post.selftext, &post.subreddit]) {
        assert!(!text.contains('\0') && text.len() <= 64 << 20);
    }
    assert!(!(post.title.trim().is_empty() && post.selftext.trim().is_empty()));
    let secs = post.created_at.as_datetime().timestamp();
    assert!((0..=Timestamp::LATEST_SECS).contains(&secs));
    let ratio = post.upvote_ratio.unwrap_or_default();
    assert!((0.0..=1.0).contains(&ratio));
}

/// Asserts the invariants of a record from a file.
pub fn assert_valid(record: &Record) {
    assert_valid_post(&record.post);
    let topic = record.topic.as_ref();
    assert!(topic.is_none_or(|topic| !topic.contains('\0') && !topic.is_empty()));
}

/// Returns a post in the format of a listing.
pub fn thing(post: &Post) -> Value {
    let (reply, is_comment) = (&post.reply, post.fullname.is_comment());
    json!({"kind": if is_comment { "t1" } else { "t3" }, "data": {
        "link_id": reply.post.as_ref().map(Fullname::as_str), "is_submitter": reply.is_submitter,
        "parent_id": reply.parent.as_ref().map(Fullname::as_str),
        "name": post.fullname.as_str(), "subreddit": post.subreddit, "title": post.title,
        "selftext": post.selftext, "url": post.url, "permalink": post.permalink, "author": post.author,
        "score": post.score, "upvote_ratio": post.upvote_ratio, "num_comments": post.num_comments,
        "link_flair_text": post.flair, "over_18": post.over_18, "is_self": post.is_self,
        "stickied": post.stickied, "created_utc": post.created_at.as_datetime().timestamp(),
        "removed_by_category": post.removal.map(|reason| match reason {
            PurgeReason::Deleted => "deleted",
            _ => "moderator",
        }),
        "crosspost_parent": post.crosspost_parent.as_ref().map(Fullname::as_str),
    }})
}

/// Parsed posts of a listing are valid, and unchanged after writing and parsing them again.
pub fn listing(bytes: &[u8]) {
    // Reddit's text is not HTML-escaped, so the round trip preserves it.
    let Ok(page) = parse_listing(bytes, SourceKind::Reddit, None, |_| ()) else {
        return;
    };
    page.posts.iter().for_each(assert_valid_post);
    let after = page.after.as_ref();
    assert!(after.is_none_or(|after| !after.is_empty() && !after.contains('\0')));
    assert!(page.posts.len() + page.rejected.len() <= bytes.len());
    for rejected in &page.rejected {
        assert!(rejected.reason.to_string().len() < 300, "{rejected:?}");
    }
    let children: Vec<Value> = page.posts.iter().map(thing).collect();
    let written = json!({"kind": "Listing", "data": {"after": page.after, "children": children}});
    let written = written.to_string();
    let again = parse_listing(written.as_bytes(), SourceKind::Reddit, None, |_| ()).unwrap();
    assert!(again.rejected.is_empty(), "{:?}", again.rejected);
    assert_eq!(again.after, page.after);
    assert_eq!(again.posts.len(), page.posts.len());
    for (post, mut again) in page.posts.iter().zip(again.posts) {
        // A float may change in its last bit.
        let ratios = post.upvote_ratio.zip(again.upvote_ratio);
        assert!(ratios.is_none_or(|(a, b)| (a - b).abs() < 1e-15));
        again.upvote_ratio = post.upvote_ratio;
        assert_eq!(&again, post);
    }
    // The same for a source with escaped text.
    let escaped = parse_listing(bytes, SourceKind::Import, None, |_| ()).unwrap();
    escaped.posts.iter().for_each(assert_valid_post);
}

/// The rows of a file.
pub struct ReadPosts {
    pub records: Vec<Record>,
    pub rejected: usize,
    /// Number of rows, including skipped ones.
    pub rows: u64,
}

/// Reads posts to the end. Positions never decrease.
pub fn read_posts(posts: &mut impl PostRows) -> ReadPosts {
    let (mut records, mut rejected, mut rows) = (Vec::new(), 0, 0);
    let mut before = posts.position().bytes;
    while let Some(row) = posts.next_row() {
        rows += 1;
        match row {
            FileRow::Record(record) => records.push(record),
            FileRow::Rejected(row) => {
                assert!(!row.reason.to_string().is_empty());
                rejected += 1;
            }
            FileRow::Skipped => {}
        }
        assert!(posts.position().bytes >= before);
        before = posts.position().bytes;
    }
    records.iter().for_each(assert_valid);
    ReadPosts {
        records,
        rejected,
        rows,
    }
}

/// Reads posts from JSON lines.
fn read_lines(bytes: &[u8], filter: Filter) -> ReadPosts {
    let options = FileOptions {
        filter,
        ..FileOptions::default()
    };
    let mut lines = JsonPosts::new(Box::new(Cursor::new(bytes.to_vec())), &options);
    let read = read_posts(&mut lines);
    let (end, len) = (lines.position().bytes, bytes.len() as u64);
    // An array ends before any trailing data.
    assert!(end == len || lines.broken() && end < len);
    read
}

/// Posts of dump lines are valid, and the fast search for wanted lines misses none.
pub fn dump_line(bytes: &[u8]) {
    let all = read_lines(bytes, Filter::default());
    // A line, an array or an object may hold many posts.
    assert!(all.records.len() + all.rejected <= bytes.len());
    let secs = Timestamp::from_epoch_secs;
    for filter in [
        Filter::new(Some(["food", "a"]), None, None),
        Filter::new(None::<[&str; 0]>, secs(1_000), secs(1_700_000_002)),
    ] {
        let is_wanted = |record: &&Record| filter.matches(&record.post);
        let found = read_lines(bytes, filter.clone()).records;
        let wanted: Vec<&Record> = all.records.iter().filter(is_wanted).collect();
        assert_eq!(found.iter().filter(is_wanted).collect::<Vec<_>>(), wanted);
    }
}

/// Only character references change, and each becomes its character.
pub fn entities(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let plain = decode_entities(&text);
    assert!(plain.len() <= text.len());
    if !text.contains('&') {
        assert_eq!(plain, text);
    }
    let controls = |text: &str| {
        let below_blank = text.chars().filter(|c| *c < ' ');
        below_blank.filter(|c| !c.is_whitespace()).count()
    };
    // No reference becomes a NUL, an escape or the like.
    assert!(controls(&plain) <= controls(&text));
    let mut escaped = text.replace('&', "&amp;");
    escaped = escaped.replace('<', "&lt;").replace('>', "&gt;");
    assert_eq!(decode_entities(&escaped), text);
}
