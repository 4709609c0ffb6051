//! Tests the forms of the review page: invalid forms, concurrent changes, and the filter.

use serde_json::Value;

use super::*;
use crate::support::builders;

const NO_RANDOM_POSTS: &str = "<dd>0</dd><dt>random posts that count</dt>";

/// Returns the number of answers in the database.
fn answers(program: &Program) -> Value {
    program.json("labels gold list")["answers"].take()
}

#[test]
fn rejected_forms_store_nothing() {
    let program = Program::on(sqlite()).labelled_in_turn(8);
    let served = Served::review(&program, &[]);
    let page = served.page("/review");
    let post = field(&page, "post").to_owned();
    assert_eq!(field(&page, "who"), "ada");
    let food = answer_form(&page, &[("label", "food")]);
    let wrong = [&[("token", "0")][..], &food[1..]].concat();
    let elsewhere = "Origin: http://evil.example\r\n";
    for (form, header) in [(&wrong, ""), (&food, elsewhere)] {
        assert_eq!(served.post("/review/answer", form, header).0, 403);
    }
    // An unknown label.
    served.answer(&page, "", &[("label", "sailing")]);
    // The post is purged after the page has shown it.
    program.purge(&post);
    let page = served.answer(&page, "", &[("label", "food")]);
    assert_eq!(answers(&program), 0);
    assert_ne!(field(&page, "post"), post);
}

#[test]
fn an_answer_is_corrected_and_survives_a_kill_until_it_is_undone() {
    let program = Program::on(sqlite()).labelled_in_turn(8);
    let served = Served::review(&program, &[]);
    let page = served.page("/review");
    let next = field(&page, "post");
    served.answer(&page, "", &[("label", "food")]);
    // A correction is the latest answer, even if another host's clock was ahead.
    let ahead = "UPDATE gold SET answered_at = '2099-01-01T00:00:00+00:00', label = 'gaming'";
    program.execute(ahead);
    served.answer(&page, "", &[("label", "food")]);
    assert_eq!(program.scalar("SELECT label FROM gold"), "food");
    // After a kill nothing is lost, and the last answer can be undone.
    drop(served);
    let served = Served::review(&program, &[]);
    let from_before = answer_form(&page, &[("label", "food")]);
    assert_eq!(served.post("/review/answer", &from_before, "").0, 403);
    assert_eq!(answers(&program), 1);
    let undone = served.press(&served.page("/review"), "undo");
    assert_eq!(
        (field(&undone, "post"), answers(&program)),
        (next, json!(0))
    );
    // There is nothing to undo.
    let page = served.press(&undone, "undo");
    assert_eq!(field(&page, "post"), next);
    skipped_posts_are_offered_again(&served);
}

#[test]
fn an_answer_refers_to_the_text_and_labels_that_the_page_showed() {
    let program = Program::on(sqlite()).labelled_in_turn(8);
    let served = Served::review(&program, &["--random-share", "0"]);
    let answers = || answers(&program);
    // The server, not the form, decides whether the post is random.
    let send = |page: &str, lacking: &str| {
        let mut form = answer_form(page, &[("chosen", "random"), ("none", "1")]);
        form.retain(|(name, _)| *name != lacking);
        served.post("/review/answer", &form, "")
    };
    let page = served.page("/review");
    assert_eq!(field(&page, "post"), "t3_k00000");
    program.import(&builders::line(0, "a new text"));
    program.ok("classify --pipeline first.toml");
    let (status, page) = send(&page, "");
    assert_eq!(status, 200);
    assert_eq!(answers(), 0);
    // A form that lacks the `text` field is rejected.
    assert_eq!(send(&page, "text").0, 403);
    let (_, page) = send(&page, "");
    assert_eq!(answers(), 1);
    // The post was chosen as a close call.
    assert!(page.contains(NO_RANDOM_POSTS), "{page}");
    // A different set has a label that was not offered, so the answer does not apply to it.
    let more = [&LABELS[..], &[("sailing", "boats and sailing")]].concat();
    program.pipeline("wider", "", &more);
    program.ok("classify --pipeline wider.toml");
    program.ok("labels use wider");
    let (_, page) = send(&page, "");
    assert_eq!(answers(), 1);
    assert!(page.contains(NO_RANDOM_POSTS), "{page}");
    assert!(page.contains("boats and sailing"), "{page}");
    send(&page, "");
    assert_eq!(answers(), 2);
}

#[test]
fn a_filter_selects_by_label_and_score_and_its_answers_are_not_random() {
    let program = Program::on(sqlite()).labelled_in_turn(12);
    // Posts 0, 3, 6 and 9 are labelled gaming; 4 has no label.
    program.execute(
        "UPDATE classifications SET score = 0.4 WHERE fullname IN ('t3_k00003', 't3_k00006')",
    );
    program.execute("UPDATE classifications SET abstained = TRUE WHERE fullname = 't3_k00004'");
    let served = Served::review(&program, &["--random-share", "1"]);
    // Without a filter, a random post is assigned; a filter selects different posts.
    served.page("/review");
    let query = "?label=gaming&from=0.3&to=0.5";
    let mut page = served.page(&format!("/review{query}"));
    let mut asked = Vec::new();
    for _ in 0..2 {
        asked.push(field(&page, "post").to_owned());
        page = served.answer(&page, query, &[("label", "gaming")]);
    }
    asked.sort_unstable();
    assert_eq!(asked, ["t3_k00003", "t3_k00006"]);
    assert_eq!(field(&page, "post"), "");
    let page = served.page("/review?label=none");
    assert_eq!(field(&page, "post"), "t3_k00004");
    let chosen = program.json("labels gold list")["chosen"].clone();
    assert_eq!(chosen, json!({"filter": 2}));
    // The page shows no overall estimate.
    let unfiltered = served.page("/review");
    assert!(unfiltered.contains(NO_RANDOM_POSTS), "{unfiltered}");
    assert!(unfiltered.contains("random sample</span>"), "{unfiltered}");
    program
        .ok("labels evaluate --gold db")
        .expect_stderr("are not representative");
    // After an undo, the post is shown again with its filter, which remains the recorded reason for choosing it.
    let page = served.page(&format!("/review{query}"));
    let page = served.press(&page, &format!("undo{query}"));
    assert!(page.contains("<span>filter</span>"), "{page}");
    served.answer(&page, query, &[("none", "1")]);
    let chosen = program.json("labels gold list")["chosen"].clone();
    assert_eq!(chosen, json!({"filter": 2}));
}

#[test]
fn comments_are_reviewed_and_undone_apart_from_posts() {
    let program = Program::on(sqlite()).labelled_in_turn(6);
    let served = Served::review(&program, &[]);
    let link = "kind=comments\">comments</a>";
    let page = served.page("/review");
    assert!(!page.contains(link), "{page}");
    served.answer(&page, "", &[("none", "1")]);
    let comment = json!({
        "name": "t1_c1", "link_id": "t3_k00003", "subreddit": "food", "body": "Bread.", "created_utc": 1_700_000_000,
    });
    program.import(&comment.to_string());
    program.ok("classify --pipeline first.toml");
    assert!(served.page("/review").contains(link));
    let wrong = served.get("/review?kind=zebra");
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    let page = served.page("/review?kind=comments");
    assert_eq!(field(&page, "post"), "t1_c1");
    let page = served.answer(&page, "?kind=comments", &[("label", "food")]);
    assert!(page.contains("<bdi>Bread.</bdi>: you say"), "{page}");
    // The answer about a comment is not random.
    assert_eq!(program.json("labels gold list")["chosen"]["filter"], 1);
    // Nobody but Ada has answered about a post, so the pair has no agreement.
    program.imported_gold("id,label\nt1_c1,music\n", "--annotator ben");
    assert_eq!(program.json("labels gold list")["agreement"], json!([]));
    let page = served.page("/review/disagreements?as=ada&a=ada&b=ben");
    assert!(page.contains("reopen?kind=comments"), "{page}");
    assert!(!page.contains("the same answer to"), "{page}");
    let form = [
        ("token", field(&page, "token")),
        ("who", "ada"),
        ("post", "t1_c1"),
    ];
    let (_, page) = served.post("/review/reopen?kind=comments", &form, "");
    assert_eq!(field(&page, "post"), "t1_c1");
    // Undo is about the kind that the page shows, whatever was answered last.
    let undone = served.press(&served.page("/review"), "undo");
    assert!(field(&undone, "post").starts_with("t3_"), "{undone}");
    let page = served.page("/review?kind=comments");
    let undone = served.press(&page, "undo?kind=comments");
    assert_eq!(field(&undone, "post"), "t1_c1");
    let undone = served.press(&undone, "undo?kind=comments");
    assert!(undone.contains("There is nothing to undo"), "{undone}");
    assert_eq!(program.json("labels gold list")["answers"], 1);
}

#[test]
fn none_of_these_is_asked_again_after_labels_were_added() {
    let program = Program::on(sqlite()).labelled_in_turn(8);
    let gold = "id,label\nk00004,none\nk00005,none\nk00006,food\nk00007,none\n";
    program.imported_gold(gold, "--annotator ada");
    // The answer about this post was about an earlier text.
    program.import(&builders::line(4, "a new text"));
    let more = [&LABELS[..], &[("sailing", "boats and sailing")]].concat();
    program.pipeline("wider", "", &more);
    program.classify("--pipeline wider.toml");
    let served = Served::review(&program, &[]);
    let mut page = served.page("/review");
    for post in ["t3_k00005", "t3_k00007"] {
        assert!(page.contains("before labels were added"), "{page}");
        assert_eq!(field(&page, "post"), post);
        page = served.answer(&page, "", &[("none", "1")]);
    }
    assert!(!page.contains("before labels were added"), "{page}");
    // Only the annotator who gave an answer is asked again.
    let page = served.page("/review?as=carl");
    assert!(!page.contains("before labels were added"), "{page}");
}
