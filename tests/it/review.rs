//! Tests `serve --review` in a real browser and through plain HTTP: `labels evaluate --gold db` counts the answers
//! entered with the keyboard.

mod fitting;
mod forms;

use std::collections::BTreeSet;

use serde_json::json;

use crate::serve::Served;
use crate::support::browser::{Browser, Scheme, VIEWS};
use crate::support::builders::{LABELS, pipeline};
use crate::support::golden::assert_golden;
use crate::support::postgres::sqlite;
use crate::support::program::Program;

/// Returns the value of a hidden field, or an empty string.
fn field<'p>(page: &'p str, name: &str) -> &'p str {
    let start = format!("name=\"{name}\" value=\"");
    let rest = page.split_once(&start).map_or("\"", |(_, rest)| rest);
    rest.split('"').next().unwrap()
}

/// Returns the key of the right label for a post's title.
fn key_of(title: &str) -> &'static str {
    match title {
        title if title.contains("boss fight") => "1",
        title if title.contains("roast") => "2",
        title if title.contains("band") => "3",
        _ => panic!("{title}"),
    }
}

/// Presses a key, and waits for another post.
async fn press(browser: &Browser, key: &str) {
    let post = "document.querySelector('.asked [name=post]').value";
    let before = browser.eval(&format!("return {post}")).await;
    browser.press_and_navigate(key).await;
    browser.until(&format!("{post} !== {before}")).await;
}

/// Answers wrongly, reads what the model predicted, and undoes the answer.
async fn answer_wrongly_and_undo(browser: &Browser) {
    let title = browser.text(".asked h1").await;
    press(browser, if key_of(&title) == "1" { "2" } else { "1" }).await;
    let notice = browser.text(".notice").await;
    assert!(notice.contains("the model predicted"), "{notice}");
    press(browser, "u").await;
    let notice = browser.text(".notice").await;
    assert!(notice.contains("was undone"), "{notice}");
    assert_eq!(browser.text(".asked h1").await, title);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_posts_reviewed_by_keyboard_match_evaluate() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let program = Program::on(sqlite()).labelled_in_turn(40);
    let served = Served::review(&program, &[]);
    let url = served.url("/review");
    browser.open(&url, 1400, Scheme::Light).await;
    assert_eq!(browser.count(".choices button").await, 4);
    let mut random = 0;
    for answered in 0..10 {
        if answered == 6 {
            answer_wrongly_and_undo(&browser).await;
        }
        let origin = browser.text(".asked .meta").await;
        random += u64::from(origin.contains("random sample"));
        // One answer is none of these, and the others are right.
        let title = browser.text(".asked h1").await;
        let key = if answered == 2 { "0" } else { key_of(&title) };
        press(&browser, key).await;
        browser.check().await;
    }
    assert_eq!(random, 2, "one post in five is random");
    let evaluated = program.json("labels evaluate --gold db");
    assert_eq!(evaluated["sample"], "random");
    let all = &evaluated["all_answers"];
    assert_eq!([&all["posts"], &all["outcome"]["of"]], [10, 9]);
    // The page and `evaluate` agree on random posts.
    let posts = evaluated["posts"].as_u64().unwrap();
    let right = evaluated["evaluation"]["outcome"]["of"].as_u64().unwrap();
    let shown = browser.text(".standing").await;
    for part in [
        &*format!("{posts}\nrandom posts that count"),
        &format!("{} % correct", right * 100 / posts),
        &format!(", from {posts} random answers;"),
        "harder than most",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // A skipped post does not come back immediately.
    press(&browser, " ").await;
    let notice = browser.text(".notice").await;
    assert!(notice.contains("Skipped"), "{notice}");
    // Typing in the name field does not choose a label.
    browser.type_into(".who input", "1").await;
    browser.check().await;
    assert_eq!(program.json("labels gold list")["answers"], 10);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: browser widths"]
async fn the_review_page_is_legible_at_both_widths_and_in_both_colour_schemes() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let program = Program::on(sqlite()).labelled_in_turn(30);
    // The closest call contains every character that could break a page.
    let body = format!(
        "<script>alert(1)</script> & \u{202e}right to left\u{202c}\n\nZ{}algo\n\n{}",
        "\u{301}".repeat(4000),
        "A long paragraph about roasting a chicken with lemon and thyme. ".repeat(40)
    );
    let post = json!({
        "id": "k00000", "title": format!("\u{202e}A title <b>that</b> goes on {}", "and on ".repeat(10_000)),
        "selftext": body, "subreddit": "gaming", "created_utc": 1_700_000_000, "score": 1,
        "permalink": "/r/gaming/comments/k00000/a_title/",
    });
    program.import(&post.to_string());
    program.ok("classify --pipeline first.toml");
    program.execute("UPDATE classifications SET margin = 0.0 WHERE fullname = 't3_k00000'");
    let served = Served::review(&program, &["--random-share", "0"]);
    for (width, scheme) in VIEWS {
        browser.open(&served.url("/review"), width, scheme).await;
        browser
            .screenshot(&format!("review-odd-{width}-{}", scheme.as_str()))
            .await;
        // Touch targets need 44 pixels.
        let smallest = browser
            .eval("return Math.min(...[...document.querySelectorAll('.choices button, .others button')].map(b => \
                b.getBoundingClientRect().height))")
            .await;
        assert!(smallest.as_f64().unwrap() >= 44.0, "{smallest}");
        assert_eq!(browser.count(".choices button").await, 4);
    }
    // A typical post, with earlier answers.
    browser.click(".choices button").await;
    browser
        .until("document.querySelector('.notice').textContent.length > 5")
        .await;
    for (width, scheme) in VIEWS {
        let who = if width == 380 { "ben" } else { "ada" };
        let page = served.url(&format!("/review?as={who}"));
        browser.open(&page, width, scheme).await;
        browser
            .screenshot(&format!("review-{width}-{}", scheme.as_str()))
            .await;
    }
}

#[test]
fn two_annotators_get_different_posts_and_may_both_answer_one() {
    let program = Program::on(sqlite()).labelled_in_turn(6);
    let served = Served::review(&program, &[]);
    let post_of = |who: &str| {
        let page = served.page(&format!("/review?as={who}"));
        field(&page, "post").to_owned()
    };
    let annotators = ["ada", "ben", "carl"];
    let posts = annotators.map(post_of);
    assert_eq!(BTreeSet::from(posts.clone()).len(), 3, "{posts:?}");
    // The same posts, however often the pages are loaded.
    assert_eq!(annotators.map(post_of), posts);
    // First every post gets an answer from either annotator, then a second opinion.
    let mut answers = 0;
    for round in 0..20 {
        let who = ["ada", "ben"][round % 2];
        let page = served.page(&format!("/review?as={who}"));
        if page.contains("No post is left to review") {
            continue;
        }
        let answer = if who == "ada" {
            ("none", "1")
        } else {
            ("label", "food")
        };
        served.answer(&page, "", &[answer]);
        answers += 1;
    }
    assert_eq!(answers, 12, "two annotators answered each post");
    let listed = program.json("labels gold list");
    assert_eq!(listed["disagreements"].as_array().unwrap().len(), 6);
    let page = served.page("/review?as=ada");
    assert!(page.contains("disagree on 6 posts"), "{page}");
}

/// Checks that skipped posts are offered again only on request.
fn skipped_posts_are_offered_again(served: &Served) {
    let mut page = served.page("/review");
    while !field(&page, "post").is_empty() {
        page = served.press(&page, "skip");
    }
    assert_eq!(field(&served.page("/review"), "post"), "");
    assert_ne!(field(&served.press(&page, "again"), "post"), "");
}

/// Returns the hidden fields of a page's form, and `more`.
fn answer_form<'p>(page: &'p str, more: &[(&'p str, &'p str)]) -> Vec<(&'p str, &'p str)> {
    let hidden = ["token", "who", "post", "text", "set"];
    let hidden = hidden.map(|name| (name, field(page, name)));
    hidden.into_iter().chain(more.iter().copied()).collect()
}

impl Served {
    /// Sends an answer to the post on a page; returns the next page.
    fn answer(&self, page: &str, query: &str, more: &[(&str, &str)]) -> String {
        let path = format!("/review/answer{query}");
        let (status, page) = self.post(&path, &answer_form(page, more), "");
        assert_eq!(status, 200, "{page}");
        page
    }

    /// Presses another button than an answer; returns the next page.
    fn press(&self, page: &str, action: &str) -> String {
        let (status, page) = self.post(&format!("/review/{action}"), &answer_form(page, &[]), "");
        assert_eq!(status, 200, "{page}");
        page
    }
}

#[test]
fn a_corrected_answer_from_a_random_file_does_not_make_others_random() {
    let program = Program::on(sqlite()).labelled_in_turn(20);
    let close: String = (0..8)
        .map(|i| format!("k{i:05},food,ada,closest,review\n"))
        .collect();
    program.imported_gold(&format!("id,label,annotator,chosen,source\n{close}"), "");
    let random: String = (8..16).map(|i| format!("k{i:05},food\n")).collect();
    program.imported_gold(&format!("id,label\n{random}"), "--random --annotator ben");
    let in_sample = || program.json("labels gold list")["random"].clone();
    assert_eq!(in_sample(), 8);
    let served = Served::review(&program, &["--random-share", "0"]);
    // A close call answered here does not reduce the weight of the random ones.
    let page = served.page("/review?as=carl");
    let page = served.answer(&page, "", &[("none", "1")]);
    let shown = "<dd>8</dd><dt>random posts that count</dt>";
    assert!(page.contains(shown), "{page}");
    for i in 8..16 {
        let page = served.page("/review?as=ben");
        let post = format!("t3_k{i:05}");
        let form = [
            ("token", field(&page, "token")),
            ("who", "ben"),
            ("post", &post),
        ];
        let (_, page) = served.post("/review/reopen", &form, "");
        assert_eq!(field(&page, "post"), post);
        served.answer(&page, "", &[("label", "music")]);
    }
    assert_eq!(in_sample(), 8, "the close calls are kept out of the sample");
    let labels = program.json("labels gold list")["labels"].clone();
    assert_eq!(labels["music"], 8);
}

#[test]
fn the_page_shows_the_prediction_after_the_answer_and_annotator_agreement() {
    let program = Program::on(sqlite()).labelled_in_turn(12);
    program.execute("UPDATE classifications SET abstained = TRUE WHERE fullname = 't3_k00002'");
    let served = Served::review(&program, &["--random-share", "0"]);
    let mut page = served.page("/review");
    // The prediction is hidden before the answer.
    assert!(!page.contains("0.75"), "{page}");
    for (answer, class) in [
        (&[("label", "gaming")][..], "up"),
        (&[("none", "1"), ("note", "a pan")], "down"),
        (&[("none", "1")], "up"),
    ] {
        page = served.answer(&page, "", answer);
        let (_, notice) = page.split_once("role=\"status\">").unwrap();
        let (notice, _) = notice.split_once("</p>").unwrap();
        for part in [&*format!("<strong class=\"{class}\">"), "0.75"] {
            assert!(notice.contains(part), "{part}: {notice}");
        }
    }
    assert!(!page.contains("Agreement"), "{page}");
    // Ben gives the same answer to two posts and a different one to the post with a note.
    let ben = "id,label\nk00000,gaming\nk00001,food\nk00002,none\nk00007,food\n";
    program.imported_gold(ben, "--annotator ben");
    let page = served.page("/review");
    assert_golden("review.html", &page, &[("name=\"token\" value=\"", "\"")]);
    // Observed 2 of 3; by chance 1/3 · 1/3 (gaming) + 2/3 · 1/3 (none) = 1/3.
    let listed = program.json("labels gold list")["agreement"].clone();
    let kappa = listed[0]["kappa"].as_f64().unwrap();
    assert!((kappa - 0.5).abs() < 1e-12, "{listed}");
    assert_eq!(listed[0]["annotators"], json!(["ada", "ben"]));
    let page = served.page("/review/disagreements?as=ben&a=ada&b=ben");
    for text in [
        "/posts/t3_k00001",
        "none of these",
        "a pan",
        "food and cooking",
        "kappa 0.50",
        "answer again",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(
        !page.contains("t3_k00000") && !page.contains("t3_k00007"),
        "{page}"
    );
    let others = served.page("/review/disagreements?as=carl&a=ada&b=carl");
    assert!(!others.contains("/posts/t3_"), "{others}");
}

#[test]
fn each_label_has_its_descriptions_next_to_it() {
    let program = Program::on(sqlite()).labelled_in_turn(6);
    let described = pipeline("described", "", &LABELS).replace(
        "label = \"music\"\n",
        "label = \"music\"\ndescriptions = [\"Songs & bands.\", \"Concerts.\"]\n",
    );
    program.write("described.toml", described);
    program.classify("--pipeline described.toml");
    let served = Served::review(&program, &[]);
    let page = served.page("/review");
    let about = "Songs &#38; bands. Concerts.";
    assert!(
        page.contains(&format!("<small><bdi>{about}</bdi></small>")),
        "{page}"
    );
    assert!(page.contains(&format!("title=\"{about}\"")), "{page}");
    assert_eq!(page.matches("<small>").count(), 1);
}
