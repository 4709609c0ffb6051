//! Tests the review page's "fit now" button.

use super::*;
use crate::support::wait::until_blocking;

/// The program with the default model, whose vectors a fit needs.
fn fittable() -> Program {
    let program = Program::on(sqlite()).with_default_model();
    program.labelled_in_turn(40)
}

/// Returns the key of the answer: none of these for posts about games, and the right label for the others.
fn fitting_key(title: &str) -> &'static str {
    match key_of(title) {
        "1" => "0",
        key => key,
    }
}

/// Answers this many posts with [`fitting_key`]; returns the next page.
fn answer_posts(served: &Served, answers: usize) -> String {
    let mut page = served.page("/review");
    for _ in 0..answers {
        let (_, title) = page.split_once("<h1 class=\"post").unwrap();
        let title = title.split("</h1>").next().unwrap();
        let answer = match fitting_key(title) {
            "0" => ("none", "1"),
            "2" => ("label", "food"),
            _ => ("label", "music"),
        };
        page = served.answer(&page, "", &[answer]);
    }
    page
}

/// Presses "fit now" on a page, and returns the fragment about the fit once it has ended.
fn fit_now(served: &Served, page: &str) -> String {
    let form = [("token", field(page, "token")), ("who", "ada")];
    served.post("/review/fit", &form, "");
    fit_result(served)
}

/// Waits until no fit is running and returns the page's fragment about the fit.
fn fit_result(served: &Served) -> String {
    let mut state = String::new();
    until_blocking("the fit has ended", || {
        state = served.page("/review/fit");
        !state.contains("data-poll")
    });
    state
}

#[test]
fn fit_now_learns_once_from_two_presses_and_only_from_this_page() {
    let program = fittable();
    let served = Served::review(&program, &[]);
    let page = answer_posts(&served, 24);
    assert!(!page.contains("fit now"), "{page}");
    let page = served.answer(&page, "", &[("label", "food")]);
    assert!(page.contains("fit now"), "{page}");
    let form = [("token", field(&page, "token")), ("who", "ada")];
    let elsewhere = "Origin: http://evil.example\r\n";
    assert_eq!(served.post("/review/fit", &form, elsewhere).0, 403);
    let wrong = [("token", "0"), ("who", "ada")];
    assert_eq!(served.post("/review/fit", &wrong, "").0, 403);
    let state = served.page("/review/fit");
    assert!(!state.contains("data-poll"), "no fit is running: {state}");
    std::thread::scope(|scope| {
        for press in [0; 2].map(|_| scope.spawn(|| served.post("/review/fit", &form, "").0)) {
            assert_eq!(press.join().unwrap(), 200);
        }
    });
    let state = fit_result(&served);
    for part in [
        "Learned from 25 answers",
        // Five of the answers are about random posts.
        "not a random sample",
        "All posts now have the labels of first-fit25",
        "<a href=\"./\">",
    ] {
        assert!(state.contains(part), "{part}: {state}");
    }
    assert!(!state.contains("fit now"), "{state}");
    // One run from the program and one from the fit.
    assert_eq!(program.count("runs WHERE stage = 'classify'"), 2);
    let current = "SELECT name FROM label_sets s JOIN current_target c ON c.label_set_id = s.id";
    assert_eq!(program.scalar(current), "first-fit25");
    // Each learned answer measures a fit without it; only the random ones count.
    let page = served.page("/review");
    for part in [
        "<dd>6</dd><dt>random posts that count</dt>",
        "from 6 random answers (cross-fitted)",
        "The labels are fitted to 25 answers.",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // A form from before the fit is still valid: the labels that it offers are the same.
    let next = served.answer(&page, "", &[("label", "food")]);
    assert!(!next.contains("changed in the meantime"), "{next}");
    assert_eq!(program.json("labels gold list")["answers"], 26);
}

#[test]
fn fit_now_keeps_the_target_of_the_last_fit() {
    let program = fittable();
    let served = Served::review(&program, &["--random-share", "1"]);
    answer_posts(&served, 10);
    program.ok("labels fit --target-recall 0.5 --make-current");
    let page = answer_posts(&served, 25);
    let promise = "As in that fit, the threshold will be chosen for a recall of 0.5.";
    assert!(page.contains(promise), "{page}");
    let state = fit_now(&served, &page);
    assert!(state.contains("is chosen for a recall of 0.5."), "{state}");
    let page = served.page("/review");
    assert!(page.contains(" for a recall of 0.5."), "{page}");
}

#[test]
fn a_failed_fit_reports_why_and_changes_nothing() {
    // The model's logits and scores are deleted, so a fit has nothing to learn from.
    let program = Program::on(sqlite()).labelled_in_turn(40);
    program.execute("DELETE FROM pair_logits");
    program.execute("DELETE FROM packed_scores");
    let served = Served::review(&program, &[]);
    let page = answer_posts(&served, 25);
    let state = fit_now(&served, &page);
    let reason = "The fit failed: none of the 25 gold posts can be used";
    assert!(state.contains(reason), "{state}");
    assert!(state.contains("fit now"), "it can be repeated: {state}");
    let sets = program.json("labels list");
    assert_eq!(sets.as_array().unwrap().len(), 1, "{sets}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_and_a_fit_work_by_keyboard_and_mouse() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let program = fittable();
    let served = Served::review(&program, &[]);
    answer_posts(&served, 24);
    let url = served.url("/review");
    browser.open(&url, 1280, Scheme::Light).await;
    // A fit needs 25 answers.
    assert_eq!(browser.count(".fit").await, 0);
    let title = browser.text(".asked h1").await;
    // In the note, label keys are text, and Enter leaves the note without answering.
    browser.press("/").await;
    browser
        .until("document.activeElement.name === 'note'")
        .await;
    browser.press("1 u 0").await;
    browser.press("\u{e007}").await;
    browser
        .until("document.activeElement.name !== 'note'")
        .await;
    assert_eq!(browser.text(".asked h1").await, title);
    browser.press_and_navigate(fitting_key(&title)).await;
    browser
        .until("document.querySelector('.notice').textContent.includes('the model predicted')")
        .await;
    let noted = "SELECT note FROM gold WHERE note IS NOT NULL";
    assert_eq!(program.scalar(noted), "1 u 0");
    // Undo restores the note.
    browser.press_and_navigate("u").await;
    browser
        .until("document.querySelector('[name=note]').value === '1 u 0'")
        .await;
    let title = browser.text(".asked h1").await;
    browser.press_and_navigate(fitting_key(&title)).await;
    browser.until("document.querySelector('.fit button')").await;
    browser.screenshot("review-fit-due").await;
    browser.click(".fit button").await;
    let started = "document.querySelector('.fit') && !document.querySelector('.fit button')";
    browser.until(started).await;
    // The outcome replaces the button without a reload, and a note in progress is kept.
    browser.type_into("[name=note]", "in progress").await;
    browser.until("document.querySelector('.fit a')").await;
    let outcome = browser.text(".fit").await;
    assert!(outcome.contains("Learned from 25 answers"), "{outcome}");
    let value = browser
        .eval("return document.querySelector('[name=note]').value")
        .await;
    assert_eq!(value, "in progress");
    browser.check().await;
    browser.screenshot("review-fit-done").await;
    browser.click(".fit a").await;
    browser.until("location.pathname === '/'").await;
}
