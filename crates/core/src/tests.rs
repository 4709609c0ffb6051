//! Tests for fullnames and rejection counts.

use super::*;

#[test]
fn spellings_of_an_id_parse_to_one_fullname() {
    for same in ["1a2b", "t3_0001a2b", "T3_1A2B", " 1a2B\n"] {
        assert_eq!(same.parse::<Fullname>().unwrap().as_str(), "t3_1a2b");
    }
    for bad in [
        "",
        "0",
        "t3_",
        "t1_t3_abc",
        "t2_abc",
        "t3_t3_abc",
        "t3_a b",
        "t3_ abc",
        "t3_abc;--",
        "t3_ábc",
        "t3_00000000000000000",
        "t3_12345678901234567",
    ] {
        assert!(bad.parse::<Fullname>().is_err(), "{bad}");
    }
}

#[test]
fn rejections_are_counted_under_a_bounded_number_of_reasons() {
    let mut comments = Rejections::default();
    comments.add(&"a comment, not a post".into());
    comments.add(&"a comment, not a post".into());
    let mut all = Rejections::default();
    for i in 0..100 {
        all.add(&format!("reason {i}").into());
    }
    all.extend(&comments);
    assert_eq!(all.total(), 102);
    assert_eq!(
        serde_json::to_value(&all)
            .unwrap()
            .as_object()
            .unwrap()
            .len(),
        21
    );
    assert_eq!(
        serde_json::to_value(&comments).unwrap(),
        serde_json::json!({"a comment, not a post": 2})
    );
}

#[test]
fn only_urls_of_posts_and_comments_parse_to_fullnames() {
    let addresses = "https://www.reddit.com/r/food/comments/abc123/x/ https://www.reddit.com/comments/ABC123 \
        https://old.reddit.com/r/food/comments/abc123/?utm_source=share reddit.com/r/food/comments/abc123/rye#top \
        /r/food/comments/abc123/x/ https://redd.it/abc123 t3_abc123 abc123 \
        https://www.reddit.com/gallery/abc123 HTTPS://WWW.Reddit.com/R/Food/Comments/abc123/x/ comments/abc123";
    for address in addresses.split(' ') {
        let post = Fullname::from_url(address);
        assert_eq!(post.unwrap().as_str(), "t3_abc123", "{address}");
    }
    let comment =
        Fullname::from_url("https://www.reddit.com/r/food/comments/abc123/x/DEF456/?context=3");
    assert_eq!(comment.unwrap().as_str(), "t1_def456");
    let none = "https://www.reddit.com/r/food/s/aBcDeF \
        https://www.reddit.com/r/food/ https://i.redd.it/abc123.jpg https://a.example/abc123 // \
        https://a.example/comments/abc123 https://imgur.com/gallery/abc123 https://notreddit.com/comments/abc123/x";
    for none in none.split(' ') {
        assert!(Fullname::from_url(none).is_err(), "{none}");
    }
}
