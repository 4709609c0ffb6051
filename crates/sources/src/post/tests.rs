//! Decodes unusual forms of posts.

use super::*;
use serde_json::json;
use topicmill_core::reddit::post_text;

fn decode(value: &Value, source: SourceKind) -> Result<Post, String> {
    let fields: Fields = serde_json::from_value(value.clone()).unwrap();
    decode_post(fields, source, None).map_err(|reason| reason.to_string())
}

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
    decode(&whole, SourceKind::Import)
}

#[test]
fn escaped_texts_are_decoded_once_and_only_for_sources_that_escape() {
    let escaped = json!({
        "title": "Bread &amp;amp; salt &lt;3", "selftext": "&gt; quoted &#39;so&#x27; \
            &quot;&quot;&nbsp;&#x200B;&hellip;",
        "url": "https://a.example/?x=1&amp;y=2&copy=3&amp;amp;", "link_flair_text": "Q&amp;A",
        "is_self": false,
    });
    let decoded = post(escaped.clone()).unwrap();
    assert_eq!(decoded.title, "Bread &amp; salt <3");
    assert_eq!(decoded.selftext, "> quoted 'so' \"\"\u{a0}\u{200b}\u{2026}");
    let url = decoded.url.as_deref();
    assert_eq!(url, Some("https://a.example/?x=1&y=2&copy=3&amp;"));
    assert_eq!(decoded.flair.as_deref(), Some("Q&A"));
    // Text that is not a reference is kept, and no reference becomes a character that PostgreSQL rejects.
    let plain = "a & b; &c &unknown; &#0; &#xD800; &#; &amp";
    assert_eq!(post(json!({"title": plain})).unwrap().title, plain);
    let blank = post(json!({"title": "&nbsp;", "selftext": "&#32;"}));
    assert_eq!(blank.unwrap_err(), "neither `title` nor `selftext`");
    // With `raw_json=1`, Reddit's API sends raw text, in which `&amp;` is literal.
    let mut live = escaped;
    for (name, value) in [
        ("id", json!("a")),
        ("subreddit", json!("s")),
        ("created_utc", json!(1_700_000_000)),
    ] {
        live[name] = value;
    }
    for kind in [SourceKind::Reddit, SourceKind::Sample] {
        let title = decode(&live, kind).unwrap().title;
        assert_eq!(title, "Bread &amp;amp; salt &lt;3");
    }
    let archived = decode(&live, SourceKind::ArcticShift).unwrap();
    assert_eq!(archived.title, "Bread &amp; salt <3");
}

#[test]
fn a_time_is_in_seconds_and_a_number_that_cannot_be_stored_is_none() {
    let times = "1700000000; 1700000000.7; \"1700000000.0\"; \"2023-11-14T22:13:20.123+00:00\"; \"2023-11-14 \
        23:13:20+01:00\"; \"2023-11-14 22:13:20+00\"; \"2023-11-14 22:13:20.5\"; \"2023-11-14T22:13:20\"; \
        \"2023-11-14 22:13:20 UTC\"; \"2023/11/14 22:13:20Z\"; \"2023-11-14T23:13:20+0100\"; \
        \"Tue, 14 Nov 2023 22:13:20 GMT\"; \"Tue Nov 14 22:13:20 2023\"; \"2023-11-14T22:13:20.000Z\"";
    for time in times.split("; ") {
        let value: Value = serde_json::from_str(time).unwrap();
        let at = post(json!({"created_utc": value})).unwrap().created_at;
        assert_eq!(at.as_datetime().timestamp(), 1_700_000_000, "{time}");
    }
    for (time, secs) in [
        ("2023-11-14 22:13", 1_699_999_980),
        ("2023-11-14T22:13Z", 1_699_999_980),
        ("2023-11-14 23:13+01:00", 1_699_999_980),
        ("2023-1-5 8:30:00", 1_672_907_400),
        ("2023/01/05", 1_672_876_800),
    ] {
        let at = post(json!({"created_utc": time})).unwrap().created_at;
        assert_eq!(at.as_datetime().timestamp(), secs, "{time}");
    }
    let excel = "`created_utc` is before Reddit's first post, in June 2005; it is 45244.92, which looks like an Excel \
        date";
    for (bad, expected) in [
        (json!(null), "not a time"),
        (json!("nan"), "not a time"),
        (json!("01/15/2023 08:30"), "2023-11-14 22:13"),
        (json!(true), "not a time"),
        (json!(1e30), "is too large for seconds since 1970; it is 1"),
        (json!(1.4e12), "it is 1400000000000, which looks like milli"),
        (json!(-1), "in June 2005; it is -1"),
        (json!("2005-05-31"), "in June 2005; it is 1117497600"),
        (json!("45244.92"), excel),
        (json!(20_231_114), "it is 20231114, which looks like a date"),
    ] {
        let reason = post(json!({"created_utc": bad})).unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    }
    for (score, stored) in [
        (json!("9223372036854775807"), Some(i64::MAX)),
        (json!(5.9), Some(5)),
        (json!(9_223_372_036_854_775_808_u64), None),
        (json!("1e400"), None),
    ] {
        let post = post(json!({"score": score})).unwrap();
        assert_eq!(post.score, stored, "{score}");
    }
}

#[test]
fn names_are_stored_without_prefixes_and_spaces() {
    let subreddit = |name: &str| post(json!({ "subreddit": name })).map(|post| post.subreddit);
    for name in "food; food ;r/food;/r/food/;R/food;https://www.reddit.com/r/food/".split(';') {
        assert_eq!(subreddit(name).as_deref(), Ok("food"), "{name}");
    }
    for odd in ["reddit.com", "t:1337", "u_baker", "None"] {
        assert_eq!(subreddit(odd).as_deref(), Ok(odd));
    }
    for bad in ["/r/", "u/baker", "food, bread", "r/food+bread", "food/hot"] {
        assert!(subreddit(bad).is_err(), "{bad}");
    }
    let author = |name: &str, source| {
        let post = json!({"id": "a", "subreddit": "s", "title": "T", "created_utc": 1.7e9, "author": name});
        decode(&post, source).unwrap().author
    };
    for gone in "[deleted] [Deleted] [removed] DELETED None nan u/deleted".split(' ') {
        assert_eq!(author(gone, SourceKind::Import), None, "{gone}");
    }
    for name in ["baker", "u/baker", "/u/baker"] {
        assert_eq!(author(name, SourceKind::Import).as_deref(), Some("baker"));
    }
    assert_eq!(author("[deleted]", SourceKind::Reddit), None);
    assert_eq!(
        author("deleted", SourceKind::Reddit).as_deref(),
        Some("deleted")
    );
    assert_eq!(author("null", SourceKind::Reddit).as_deref(), Some("null"));
}

#[test]
fn words_for_null_are_null_except_in_free_text() {
    let odd = json!({"removed_by_category": "NaN", "crosspost_parent": "nan", "score": "NaN"});
    let odd = post(odd).unwrap();
    assert_eq!(
        (odd.score, odd.crosspost_parent, odd.removal),
        (None, None, None)
    );
    // In JSON, strings are literal: `NA` is a flair, and `n/a` is a body.
    let texts = post(json!({"selftext": "n/a", "link_flair_text": "NA", "title": "None"})).unwrap();
    assert_eq!(
        (texts.title.as_str(), texts.selftext.as_str()),
        ("None", "n/a")
    );
    assert_eq!(texts.flair.as_deref(), Some("NA"));
}

#[test]
fn missing_names_and_subreddits_are_derived_from_other_fields() {
    assert_eq!(post(json!({})).unwrap().fullname.as_str(), "t3_abc1");
    assert_eq!(
        post(json!({"id": "t3_abc1"})).unwrap().fullname.as_str(),
        "t3_abc1"
    );
    assert_eq!(
        post(json!({"id": 123_456})).unwrap().fullname.as_str(),
        "t3_123456"
    );
    for (text, id) in [("t5_abc", "abc1"), ("what somebody wrote", "")] {
        let reason = post(json!({ "name": text, "id": id })).unwrap_err();
        assert!(
            reason.contains("`id`") && !reason.contains(text),
            "{reason}"
        );
    }
    let named = post(json!({"name": "what somebody wrote"})).unwrap();
    assert_eq!(named.fullname.as_str(), "t3_abc1");
    assert!(post(json!({"id": "nan"})).is_err());
    let link = "http://www.reddit.com/r/Music/comments/abc1/x/";
    let found = post(json!({"subreddit": null, "permalink": link})).unwrap();
    assert_eq!(found.subreddit, "Music");
    assert_eq!(
        found.permalink.as_deref(),
        Some("/r/Music/comments/abc1/x/")
    );
    let lost = post(json!({"subreddit": null, "permalink": "/comments/abc1/x/"}));
    assert_eq!(lost.unwrap_err(), "no `subreddit`, nor one in `permalink`");
    // A path is never changed, and a URL without a path names no post.
    let path = "/r/climate/comments/abc1/see_http://a.example/";
    let kept = post(json!({"permalink": path})).unwrap();
    assert_eq!(kept.permalink.as_deref(), Some(path));
    let none = post(json!({"permalink": "http://www.reddit.com"})).unwrap();
    assert_eq!(none.permalink, None);
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
    assert!(odd.over_18 && odd.stickied && odd.removal.is_none());
    assert_eq!(odd.title, "nul inside");
    assert_eq!(
        post(json!({"title": null})).unwrap_err(),
        "neither `title` nor `selftext`"
    );
}

#[test]
fn a_post_that_any_source_reports_as_removed_has_no_text() {
    // Reddit, files and archives keep the title; an archive keeps the body, too.
    let (deleted, removed) = (PurgeReason::Deleted, PurgeReason::Removed);
    for (form, reason) in [
        (json!({"removed_by_category": "moderator"}), removed),
        (json!({"removed_by_category": "deleted"}), deleted),
        (json!({"selftext": "[removed]"}), removed),
        (json!({"selftext": "[deleted]\n"}), deleted),
        (json!({"title": "[deleted by user]"}), deleted),
        (json!({"_meta": {"was_deleted_later": true}}), removed),
        (json!({"_meta": {"removal_type": "deleted"}}), deleted),
        (json!({"_meta": {"removal_type": "moderator"}}), removed),
    ] {
        let mut whole = json!({
            "id": "abc1", "subreddit": "climate", "title": "A title", "created_utc": 1_700_000_000,
            "author": "someone", "url": "https://a.example", "permalink": "/r/climate/comments/abc1/a_title/",
        });
        for (name, value) in form.as_object().unwrap() {
            whole[name] = value.clone();
        }
        for source in [
            SourceKind::Reddit,
            SourceKind::ArcticShift,
            SourceKind::Import,
        ] {
            let gone = decode(&whole, source).unwrap();
            assert_eq!(gone.removal, Some(reason), "{source} {form}");
            let text = post_text(&gone.title, &gone.selftext);
            assert_eq!(text, "", "{source} {form}");
            let links = (gone.author, gone.url, gone.permalink);
            assert_eq!(links, (None, None, None), "{source} {form}");
        }
    }
    let restored = json!({"_meta": {"was_initially_deleted": true, "removal_type": "moderator"}});
    let restored = post(restored).unwrap();
    assert!(restored.removal.is_none() && !restored.title.is_empty());
    let stays = json!({"removed_by_category": null, "_meta": {"removal_type": null}});
    assert!(post(stays).unwrap().removal.is_none());
}

#[test]
fn a_crosspost_without_text_takes_its_parents_text() {
    let parent = json!([{"name": "t3_first", "selftext": "The parent's text"}]);
    let bare = post(json!({"selftext": "", "crosspost_parent_list": parent})).unwrap();
    assert_eq!(bare.selftext, "The parent's text");
    assert_eq!(bare.crosspost_parent, "first".parse().ok());
    // An unknown parent's text is not used because it could not be purged with that parent.
    let nameless = json!([{"selftext": "The parent's text"}]);
    let bare = post(json!({"selftext": "", "crosspost_parent_list": nameless})).unwrap();
    assert_eq!((bare.selftext.as_str(), bare.crosspost_parent), ("", None));
    let second = json!([{"name": "t3_second", "crosspost_parent": "t3_first", "selftext": "x"}]);
    let third = post(json!({"crosspost_parent": "t3_second", "crosspost_parent_list": second}));
    assert_eq!(third.unwrap().crosspost_parent, "first".parse().ok());
    let own = post(json!({"selftext": "Mine", "crosspost_parent_list": parent})).unwrap();
    assert_eq!(own.selftext, "Mine");
    let gone = json!({"crosspost_parent_list": [{"id": "first", "selftext": "[removed]"}]});
    let gone = post(gone).unwrap();
    assert_eq!((gone.selftext.as_str(), gone.removal), ("", None));
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
    let text_post = post(json!({"url": "https://a.example/", "is_self": true})).unwrap();
    assert_eq!(text_post.url, None);
}

#[test]
fn the_last_value_of_a_repeated_field_counts() {
    let row = r#"{"title":"first","titl\u0065":"last","media":{"title":"no"},"_meta":{"x":1}}"#;
    let fields: Fields = serde_json::from_str(row).unwrap();
    assert_eq!(fields.title.str(), Some("last"));
    assert!(!fields.body.is_present() && fields.removal_type.is_null());
}
