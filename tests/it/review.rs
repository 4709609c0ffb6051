//! Tests `serve --review` in a real browser and through plain HTTP: `labels evaluate --gold db` counts the answers
//! given by keyboard.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::gold::Scene;
use crate::support::browser::{Browser, Scheme, WIDTHS};
use crate::support::builders::{self, LABELS, pipeline};
use crate::support::postgres::{databases, sqlite};

/// A server with the review page.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start(scene: &Scene, more: &[&str]) -> Self {
        let base = [
            "serve",
            "--review",
            "--listen",
            "127.0.0.1:0",
            "--reviewer",
            "ada",
        ];
        // Forms are also sent without a browser.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut command = scene.program.command(&[&base[..], more].concat());
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, rest) = line.split_once("http://")?;
                let address = rest.split(['/', ' ']).next()?;
                Some(format!("http://{address}"))
            })
            .expect("the server says where it listens");
        // Keep reading, so that its log does not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url }
    }

    async fn get(&self, path: &str) -> String {
        let got = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        assert_eq!(got.status(), 200, "{path}");
        got.text().await.unwrap()
    }

    /// Sends a form as a browser without JavaScript does; returns the status and the next page.
    async fn post(&self, path: &str, form: &[(&str, &str)], origin: Option<&str>) -> (u16, String) {
        let form: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut request = reqwest::Client::new()
            .post(format!("{}{path}", self.url))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.join("&"));
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let got = request.send().await.unwrap();
        (got.status().as_u16(), got.text().await.unwrap())
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the value of a hidden field.
fn field(page: &str, name: &str) -> String {
    let (_, rest) = page
        .split_once(&format!("name=\"{name}\" value=\""))
        .unwrap_or_else(|| panic!("{name}: {page}"));
    rest.split('"').next().unwrap().to_owned()
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

fn right(scene: &Scene) -> Value {
    let found = scene.json(&["labels", "evaluate", "--gold", "db"]);
    json!([
        found["sample"],
        found["posts"],
        found["evaluation"]["outcome"]["of"],
        found["all_answers"]["posts"],
        found["all_answers"]["outcome"]["of"]
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_posts_reviewed_by_keyboard_match_evaluate() {
    let database = sqlite();
    let Some(browser) = Browser::start().await else {
        return;
    };
    let scene = Scene::new(&database, 40).await;
    let served = Served::start(&scene, &[]);
    let url = format!("{}/review", served.url);
    browser.open(&url, 1400, Scheme::Light).await;
    assert_eq!(browser.count(".choices button").await, 4);
    let (mut answered, mut random) = (0, 0);
    while answered < 10 {
        let title = browser.text(".asked h1").await;
        let is_random = browser.text(".asked .meta").await.contains("random sample");
        // The third is none of these; the fifth is skipped once; the seventh is answered wrongly first.
        let key = match answered {
            2 => "0",
            _ => key_of(&title),
        };
        let press = |key: &'static str| {
            let browser = &browser;
            async move {
                let before = browser
                    .eval("return document.querySelector('.asked [name=post]').value")
                    .await;
                browser.press_and_navigate(key).await;
                browser
                    .until(&format!(
                        "document.querySelector('.asked [name=post]').value !== {before}"
                    ))
                    .await;
            }
        };
        if answered == 6 {
            press(if key == "1" { "2" } else { "1" }).await;
            assert!(browser.text(".told").await.contains("the model predicted"));
            press("u").await;
            assert!(browser.text(".told").await.contains("was undone"));
            assert_eq!(browser.text(".asked h1").await, title);
        }
        press(key).await;
        answered += 1;
        random += u64::from(is_random);
        browser.check().await;
    }
    assert_eq!(random, 2, "one in five");
    // Nine agree with their labels; one of the ten fits none of them.
    let found = right(&scene);
    assert_eq!(found[0], "random");
    assert_eq!((&found[3], &found[4]), (&json!(10), &json!(9)));
    let shown = browser.text(".standing").await;
    assert!(
        shown.contains("100 %") || shown.contains("accuracy (random sample)"),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("{}\nrandom posts reviewed", found[1]))
            || shown.contains("random posts reviewed"),
        "{shown}"
    );
    assert!(shown.contains("Close calls are excluded"), "{shown}");
    // The page and `evaluate` agree on random posts.
    assert!(!shown.contains("will show here"), "{shown}");
    // A skipped post does not come back at once.
    let title = browser.text(".asked h1").await;
    browser.press_and_navigate(" ").await;
    browser
        .until("document.querySelector('.told').textContent.includes('Skipped')")
        .await;
    assert_ne!(browser.text(".asked h1").await, title);
    // Typing in the name field triggers no label key.
    browser.type_into(".who input", "1").await;
    browser.check().await;
    assert_eq!(scene.json(&["labels", "gold", "list"])["answers"], 10);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: browser widths"]
async fn the_review_page_is_legible_at_both_widths_and_in_both_colour_schemes() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let database = sqlite();
    let scene = Scene::new(&database, 30).await;
    // The closest call has every character that could break a page.
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
    let file = scene.program.write("odd.ndjson", format!("{post}\n"));
    scene.ok(&["import", &file]);
    scene.ok(&["classify", "--pipeline", "first.toml"]);
    database
        .run("UPDATE classifications SET margin = 0.0 WHERE fullname = 't3_k00000'")
        .await;
    let served = Served::start(&scene, &["--random-share", "0"]);
    for scheme in Scheme::BOTH {
        for width in WIDTHS {
            browser
                .open(&format!("{}/review", served.url), width, scheme)
                .await;
            browser
                .screenshot(&format!("review-odd-{width}-{}", scheme.as_str()))
                .await;
            // Touch targets need 44 pixels.
            let smallest = browser
                .eval("return Math.min(...[...document.querySelectorAll('.choices button, .others button')].map(b => b.getBoundingClientRect().height))")
                .await;
            assert!(smallest.as_f64().unwrap() >= 44.0, "{smallest}");
            let keys = browser.count(".choices button").await;
            assert_eq!(keys, 4);
        }
    }
    // A typical post, with earlier answers.
    browser.click(".choices button").await;
    browser
        .until("document.querySelector('.told').textContent.length > 5")
        .await;
    for scheme in Scheme::BOTH {
        for width in WIDTHS {
            let who = if width == 380 { "ben" } else { "ada" };
            browser
                .open(&format!("{}/review?as={who}", served.url), width, scheme)
                .await;
            browser
                .screenshot(&format!("review-{width}-{}", scheme.as_str()))
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_annotators_get_different_posts_and_may_both_answer_one() {
    for database in databases() {
        let scene = Scene::new(&database, 6).await;
        let served = Served::start(&scene, &[]);
        let mut seen: Vec<String> = Vec::new();
        for who in ["ada", "ben", "carl"] {
            let page = served.get(&format!("/review?as={who}")).await;
            seen.push(field(&page, "post"));
            // The same post, however often the page is loaded.
            let again = served.get(&format!("/review?as={who}")).await;
            assert_eq!(seen.last(), Some(&field(&again, "post")));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 3, "{seen:?}");
        // First every post gets an answer from either annotator, then a second opinion.
        let mut answers = 0;
        for round in 0..20 {
            let who = ["ada", "ben"][round % 2];
            let page = served.get(&format!("/review?as={who}")).await;
            if page.contains("All labelled posts are reviewed") {
                continue;
            }
            let (post, token) = (field(&page, "post"), field(&page, "token"));
            let (text, set) = (field(&page, "text"), field(&page, "set"));
            let label = if who == "ada" {
                ("none", "1")
            } else {
                ("label", "food")
            };
            let form = [
                ("token", &*token),
                ("who", who),
                ("post", &*post),
                ("text", &*text),
                ("set", &*set),
                label,
            ];
            let (status, page) = served.post("/review/answer", &form, None).await;
            assert_eq!(status, 200, "{page}");
            answers += 1;
        }
        assert_eq!(
            answers, 12,
            "each of two people said something of each post"
        );
        let listed = scene.json(&["labels", "gold", "list"]);
        assert_eq!(listed["disagreements"].as_array().unwrap().len(), 6);
        let page = served.get("/review?as=ada").await;
        assert!(page.contains("disagree on 6 posts"), "{page}");
    }
}

/// If every post was skipped, the page says so and offers them again.
async fn skipped_posts_are_offered_again(served: &Served) {
    let mut page = served.get("/review").await;
    let token = field(&page, "token");
    while page.contains("name=\"text\"") {
        let post = field(&page, "post");
        page = served
            .post(
                "/review/skip",
                &[("token", &*token), ("who", "ada"), ("post", &*post)],
                None,
            )
            .await
            .1;
    }
    assert!(page.contains("Only skipped posts are left"), "{page}");
    let (_, page) = served
        .post("/review/again", &[("token", &*token), ("who", "ada")], None)
        .await;
    assert!(page.contains("name=\"text\""), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cross_site_forms_and_missing_posts_store_nothing_and_lose_nothing() {
    for database in databases() {
        let scene = Scene::new(&database, 8).await;
        let served = Served::start(&scene, &[]);
        let page = served.get("/review").await;
        let (post, token) = (field(&page, "post"), field(&page, "token"));
        let (text, set) = (field(&page, "text"), field(&page, "set"));
        assert_eq!(field(&page, "who"), "ada");
        let form = |token| {
            [
                ("token", token),
                ("who", "ada"),
                ("post", &*post),
                ("text", &*text),
                ("set", &*set),
                ("label", "food"),
            ]
        };
        let wrong = "0".repeat(token.len());
        assert_eq!(
            served.post("/review/answer", &form(&wrong), None).await.0,
            403
        );
        let elsewhere = served
            .post("/review/answer", &form(&token), Some("http://evil.example"))
            .await;
        assert_eq!(elsewhere.0, 403);
        let count = || {
            scene.json(&["labels", "gold", "list"])["answers"]
                .as_u64()
                .unwrap()
        };
        assert_eq!(count(), 0);
        // An unknown label, and an unknown post.
        let (_, page) = served
            .post(
                "/review/answer",
                &[
                    ("token", &*token),
                    ("who", "ada"),
                    ("post", &*post),
                    ("text", &*text),
                    ("set", &*set),
                    ("label", "sailing"),
                ],
                None,
            )
            .await;
        assert!(page.contains("label set changed in the meantime"), "{page}");
        assert_eq!(count(), 0);
        // Purged between display and answer.
        let ids = scene.program.write("ids.txt", format!("{post}\n"));
        scene.ok(&["purge", "--ids", &ids]);
        let (status, page) = served.post("/review/answer", &form(&token), None).await;
        assert_eq!(status, 200);
        assert!(page.contains("purged or edited in the meantime"), "{page}");
        assert_eq!(count(), 0);
        let next = field(&page, "post");
        let text = field(&page, "text");
        assert_ne!(next, post);
        let answered = [
            ("token", &*token),
            ("who", "ada"),
            ("post", &*next),
            ("text", &*text),
            ("set", &*set),
            ("label", "food"),
        ];
        assert_eq!(served.post("/review/answer", &answered, None).await.0, 200);
        assert_eq!(count(), 1);
        // After a kill nothing is lost, and the last answer can be undone.
        served.kill();
        let served = Served::start(&scene, &[]);
        assert_eq!(count(), 1);
        assert_eq!(
            served.post("/review/answer", &answered, None).await.0,
            403,
            "the old form"
        );
        let page = served.get("/review").await;
        let token = field(&page, "token");
        let (_, page) = served
            .post("/review/undo", &[("token", &*token), ("who", "ada")], None)
            .await;
        assert!(page.contains("was undone"), "{page}");
        assert_eq!(field(&page, "post"), next);
        assert_eq!(count(), 0);
        let (_, page) = served
            .post("/review/undo", &[("token", &*token), ("who", "ada")], None)
            .await;
        assert!(page.contains("nothing to undo"), "{page}");
        skipped_posts_are_offered_again(&served).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_refers_to_the_text_and_labels_that_the_page_showed() {
    for database in databases() {
        let scene = Scene::new(&database, 8).await;
        let served = Served::start(&scene, &["--random-share", "0"]);
        let answers = || scene.json(&["labels", "gold", "list"])["answers"].clone();
        // The form that the open page sends for "none of these". The server, not the form, says whether the post is
        // random.
        let form = |page: &str| {
            let hidden = ["token", "who", "post", "text", "set"];
            let mut form = hidden.map(|name| (name, field(page, name))).to_vec();
            form.extend([("chosen", "random".to_owned()), ("none", "1".to_owned())]);
            form
        };
        let send = |form: Vec<(&'static str, String)>| {
            let served = &served;
            async move {
                let form: Vec<(&str, &str)> = form.iter().map(|(n, v)| (*n, v.as_str())).collect();
                served.post("/review/answer", &form, None).await
            }
        };
        let page = served.get("/review").await;
        assert_eq!(field(&page, "post"), "t3_k00000");
        let edited = scene
            .program
            .write("edited.ndjson", builders::line(0, "a new text"));
        scene.ok(&["import", &edited]);
        scene.ok(&["classify", "--pipeline", "first.toml"]);
        let (status, page) = send(form(&page)).await;
        assert_eq!(status, 200);
        assert!(page.contains("purged or edited in the meantime"), "{page}");
        assert_eq!(answers(), 0);
        // A form without both fields is rejected.
        let short = form(&page).into_iter().filter(|(name, _)| *name != "text");
        assert_eq!(send(short.collect()).await.0, 403);
        let (_, page) = send(form(&page)).await;
        assert_eq!(answers(), 1);
        assert!(
            page.contains("<dd>0</dd><dt>random posts reviewed</dt>"),
            "close call"
        );
        // Another set has a label that was not offered, so the answer does not apply to it.
        let more = [&LABELS[..], &[("sailing", "boats and sailing")]].concat();
        let wider = scene
            .program
            .write("wider.toml", pipeline("wider", "", &more));
        scene.ok(&["classify", "--pipeline", &wider]);
        scene.ok(&["labels", "use", "wider"]);
        let (_, page) = send(form(&page)).await;
        assert!(page.contains("label set changed in the meantime"), "{page}");
        assert_eq!(answers(), 1);
        assert!(
            page.contains("<dd>0</dd><dt>random posts reviewed</dt>"),
            "{page}"
        );
        assert!(page.contains("boats and sailing"), "{page}");
        send(form(&page)).await;
        assert_eq!(answers(), 2);
    }
}
