//! Tests that lists, searches and pages show the current state of the database.

use serde_json::{Value, json};

use super::{Served, escaped, labelled, names, posts};
use crate::support::engine::{has_onnx_runtime, repository};
use crate::support::postgres::{databases, sqlite};
use crate::support::program::Program;

/// Sorts rows of name and score as the pages do: by descending score, rounded to single precision, then by descending
/// name.
fn rows_of(csv: &str, by_score: bool) -> Vec<&str> {
    let rows = csv.lines().skip(1);
    let mut rows: Vec<(&str, &str)> = rows.map(|line| line.split_once(',').unwrap()).collect();
    if by_score {
        let score = |row: &(&str, &str)| row.1.parse::<f32>().unwrap();
        rows.sort_by(|a, b| score(b).total_cmp(&score(a)).then(b.0.cmp(a.0)));
    }
    rows.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn pages_and_the_api_show_what_is_stored() {
    if !has_onnx_runtime("pages_and_the_api_show_what_is_stored") {
        return;
    }
    for database in databases() {
        let program = labelled(&database, &posts(60));
        let served = Served::start(&program);
        served.searched(60);
        let overview = served.json("/api/overview");
        let counted: u64 = overview["outcomes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["posts"].as_u64().unwrap())
            .sum();
        assert_eq!(counted, 60, "{overview}");
        let labels = served.json("/api/labels");
        assert_eq!(labels["labels"].as_array().unwrap().len(), 2);
        let page = served.page("/");
        assert!(
            page.contains("href=\"/posts?outcome=food\"") && page.contains("food and cooking"),
            "{page}"
        );
        let page = served.page("/posts?sort=newest");
        assert!(
            page.contains("A soup of beans 59") && page.contains("rel=\"next\""),
            "{page}"
        );

        // The same rows from `sql`.
        for (filter, condition, order) in [
            ("", "TRUE", "created_at DESC, fullname DESC"),
            (
                "outcome=gaming",
                "outcome = 'gaming'",
                "created_at DESC, fullname DESC",
            ),
            (
                "label=food&min_score=0.7&sort=surest",
                "outcome = 'food' AND score >= 0.7",
                "CAST(score AS REAL) DESC, fullname DESC",
            ),
            (
                "subreddit=r/FOOD&sort=reddit_score",
                "subreddit = 'food'",
                "reddit_score DESC, fullname DESC",
            ),
            (
                "outcome=labelled&sort=closest",
                "NOT abstained",
                "CAST(margin AS REAL), fullname DESC",
            ),
            (
                "since=2023-11-15&until=2023-11-15",
                "created_at >= '2023-11-15T00:00:00+00:00' AND created_at < '2023-11-16T00:00:00+00:00'",
                "created_at DESC, fullname DESC",
            ),
        ] {
            let query = format!(
                "SELECT fullname, score FROM labeled_posts WHERE {condition} ORDER BY {order}"
            );
            let message = program.ok(&["sql", &query, "--format", "csv"]);
            let wanted = rows_of(&message.stdout, order.starts_with("CAST(score"));
            let (mut listed, mut after) = (Vec::new(), String::new());
            loop {
                let page = served.json(&format!("/api/posts?{filter}&limit=7{after}"));
                assert_eq!(page["total"], wanted.len(), "{filter}: {page}");
                listed.extend(names(&page).into_iter().map(str::to_owned));
                match page["next"].as_str() {
                    Some(next) => after = format!("&after={next}"),
                    None => break,
                }
            }
            assert!(!wanted.is_empty(), "{filter}");
            assert_eq!(listed, wanted, "{filter} in {}", database.url);
        }

        let whole = served.json("/api/posts/t3_k00003");
        assert_eq!(whole["verdicts"][0]["scores"].as_array().unwrap().len(), 2);
        assert_eq!(whole["title"], "Bread with rye flour 3");
        let page = served.page("/posts/t3_k00003");
        assert!(
            page.contains("Bread with rye flour 3")
                && page.contains("https://www.reddit.com/r/x/comments/k00003/t/"),
            "{page}"
        );
        // An id without its prefix, in any case, is the same post.
        assert_eq!(served.json("/api/posts/K00003")["fullname"], "t3_k00003");
        assert_eq!(served.get("/posts/t3_nothere").status, 404);
        for odd in ["..%2f..%2fetc", "%FF%FE", "t3_%00", "t3_", "%F0%9F%8E%89"] {
            let answer = served.get(&format!("/api/posts/{odd}"));
            assert!(
                answer.status == 404 && answer.body.starts_with("{\"error\""),
                "{odd}: {}",
                answer.body
            );
            assert_eq!(served.get(&format!("/posts/{odd}")).status, 404, "{odd}");
        }
        let twice = served.json("/api/posts?limit=1&sort=x&sort=surest");
        assert_eq!(names(&twice).len(), 1);
    }
}

#[test]
fn search_matches_words_and_treats_everything_else_as_text() {
    for database in databases() {
        let program = Program::with_database(&database.url);
        let titles = [
            "Cats & dogs at 50% off",
            "say \"hello world\" 🎉",
            "hello again",
            "OR AND NOT NEAR",
            "naïve café",
        ];
        let lines = titles.iter().enumerate().map(|(i, title)| {
            let post = json!({"id": format!("s{i}"), "title": title, "selftext": "", "subreddit": "x",
                "created_utc": 1_700_000_000 + i});
            format!("{post}\n")
        });
        let file = program.write("posts.ndjson", lines.collect::<String>());
        program.ok(&["import", &file]);
        let served = Served::start(&program);
        served.searched(5);
        let found = |search: &str| -> Vec<String> {
            let page = served.json(&format!("/api/posts?q={}", escaped(search)));
            assert_eq!(page["total"], names(&page).len());
            served.page(&format!("/posts?q={}", escaped(search)));
            names(&page).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(found("hello"), ["t3_s2", "t3_s1"]);
        assert_eq!(found("\"hello world\""), ["t3_s1"]);
        assert_eq!(found("hello -world"), ["t3_s2"]);
        assert_eq!(found("hel*"), ["t3_s2", "t3_s1"]);
        assert_eq!(found("50%"), ["t3_s0"]);
        assert_eq!(found("🎉"), ["t3_s1"]);
        assert_eq!(found("near"), ["t3_s3"]);
        assert_eq!(found("CAFE"), ["t3_s4"]);
        for nothing in [
            "%",
            "\"",
            "*",
            "''",
            "NEAR(",
            "x' OR 1=1 --",
            "title:hello",
            "{",
            "hello) OR (cats",
            "\u{0}",
            "\u{202e}",
        ] {
            let found = found(nothing);
            assert!(
                found.is_empty() || nothing == "NEAR(",
                "{nothing:?}: {found:?}"
            );
        }
        assert_eq!(
            served
                .get(&format!("/posts?q={}", "a".repeat(1_001)))
                .status,
            400
        );
        let page = served.page("/posts?q=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E");
        assert!(!page.contains("<script"), "{page}");
    }
}

/// Titles that could break a page.
pub fn evil() -> String {
    let marks = format!("Zalgo{} tail", "\u{301}\u{489}".repeat(2_000));
    let titles = [
        "<script>alert(1)</script><img src=x onerror=alert(2)>".to_owned(),
        "\u{202e}gnp.exe \u{2066}turned".to_owned(),
        marks,
        "long ".repeat(14_000),
        "a\"b'c&amp;<d> {{ 7*7 }} {% raw %}".to_owned(),
        "unbroken".repeat(60),
    ];
    let posts = titles.iter().enumerate().map(|(i, title)| {
        let post = json!({
            "id": format!("e{i}"), "title": title, "selftext":
            format!("</textarea><script>alert(3)</script>\n  {title}\u{1b}[31m"),
            "subreddit": "x", "created_utc": 1_700_000_000 + i, "score": -3,
            "url": "javascript:alert(4)", "permalink": "//evil.example/x",
        });
        format!("{post}\n")
    });
    posts.collect()
}

#[test]
fn post_text_is_escaped_on_every_page() {
    let database = sqlite();
    let program = labelled(&database, &evil());
    let served = Served::start(&program);
    served.searched(6);
    let mut paths = vec![
        "/posts".to_owned(),
        "/sql?query=SELECT%20title,selftext,url%20FROM%20posts".to_owned(),
    ];
    paths.extend((0..6).map(|i| format!("/posts/t3_e{i}")));
    for path in paths {
        let page = served.page(&path);
        for wrong in [
            "<script",
            "<img",
            "onerror=alert(2)>",
            "href=\"javascript",
            "href=\"//",
            "{{",
            "<d>",
        ] {
            let is_text = wrong == "{{" && page.contains("{{ 7*7 }}");
            assert!(is_text || !page.contains(wrong), "{path}: {wrong}");
        }
    }
    let turned = served.page("/posts/t3_e1");
    assert!(turned.contains("\n  gnp.exe turned [31m"), "{turned}");
    assert!(!turned.contains(['\u{1b}', '\u{202e}', '\u{2066}']));
    let list = served.page("/posts");
    assert!(
        list.len() < 40_000,
        "a page of six posts has {} bytes",
        list.len()
    );
    assert!(!list.contains('\u{202e}'));
    let whole = served.json("/api/posts/t3_e3");
    assert_eq!(whole["title"].as_str().unwrap().len(), 70_000);
}

#[test]
fn pages_show_new_posts_and_no_purged_ones() {
    for database in databases() {
        let program = labelled(&database, &posts(20));
        let served = Served::start(&program);
        served.searched(20);
        assert!(served.page("/").contains("roast a chicken 1<"));
        assert_eq!(served.json("/api/posts?q=chicken")["total"], 4);
        let more = program.write("more.ndjson", posts(26));
        program.ok(&["import", &more]);
        served.searched(26);
        assert_eq!(served.json("/api/posts?q=chicken")["total"], 5);
        assert_eq!(served.json("/api/posts?outcome=unlabelled")["total"], 6);

        let gone = program.write("gone.txt", "t3_k00001\nt3_k00009\n");
        program.ok(&["purge", "--ids", &gone]);
        // The posts disappear immediately, before the lists are refreshed.
        assert_eq!(served.get("/posts/t3_k00001").status, 404);
        assert!(!served.page("/").contains("roast a chicken 1<"));
        assert!(
            !served
                .page("/posts?q=chicken")
                .contains("roast a chicken 1<")
        );
        served.searched(24);
        // The search index is in memory, so a purge leaves no byte in a file.
        if let Some(path) = database.url.strip_prefix("sqlite:") {
            for end in ["", "-wal", "-shm"] {
                let bytes = std::fs::read(format!("{path}{end}")).unwrap_or_default();
                let words = b"rye flour 9";
                assert!(
                    !bytes.windows(words.len()).any(|part| part == words),
                    "{end}"
                );
            }
        }
        assert_eq!(served.json("/api/posts?q=chicken")["total"], 4);

        // An edited text is found only by its new words.
        let edited = json!({"id": "k00003", "title": "Pumpernickel", "selftext": "", "subreddit": "food",
            "created_utc": 1_700_010_800, "score": 1, "retrieved_on": 1_800_000_000});
        let edited = program.write("edited.ndjson", format!("{edited}\n"));
        program.ok(&["import", &edited]);
        served.until("/api/posts?q=pumpernickel", |page| page["total"] == 1);
        let rye: Value = served.json("/api/posts?q=rye");
        assert!(!names(&rye).contains(&"t3_k00003"), "{rye}");
    }
}

#[test]
fn empty_and_unlabelled_databases_have_pages() {
    for database in databases() {
        let program = Program::with_database(&database.url);
        program.ok(&["db", "create"]);
        let served = Served::start(&program);
        assert!(served.page("/").contains("No posts stored yet"));
        assert!(served.page("/posts").contains("No posts stored yet"));
        assert_eq!(served.json("/api/labels")["label_set"], Value::Null);
        let file = program.write("posts.ndjson", posts(3));
        program.ok(&["import", &file]);
        served.searched(3);
        assert!(served.page("/").contains("not labelled yet"));
        assert!(served.page("/posts/t3_k00001").contains("not labelled yet"));
    }
}

#[test]
fn the_api_description_lists_its_paths_and_responses() {
    let description: Value = serde_json::from_str(
        &std::fs::read_to_string(repository("crates/pages/src/serve/openapi.json")).unwrap(),
    )
    .unwrap();
    let code = std::fs::read_to_string(repository("crates/pages/src/serve/api.rs")).unwrap();
    let mut routes: Vec<String> = code
        .split(".route(\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect();
    routes.sort();
    let mut described: Vec<&String> = description["paths"].as_object().unwrap().keys().collect();
    described.sort();
    assert_eq!(described, routes.iter().collect::<Vec<_>>());
    let database = sqlite();
    let program = labelled(&database, &posts(12));
    let served = Served::start(&program);
    served.searched(12);
    for (path, asked, status) in [
        ("/api/overview", "/api/overview", 200),
        ("/api/labels", "/api/labels", 200),
        ("/api/posts", "/api/posts?limit=2", 200),
        ("/api/posts", "/api/posts?q=chicken&outcome=food", 200),
        ("/api/posts", "/api/posts?limit=0", 400),
        ("/api/posts", "/api/posts?sort=best", 400),
        ("/api/posts", "/api/posts?min_score=2", 400),
        ("/api/posts", "/api/posts?since=yesterday", 400),
        ("/api/posts", "/api/posts?after=there", 400),
        ("/api/posts", "/api/posts?outcome=food&label=gaming", 200),
        ("/api/posts", "/api/posts?outcome=unsure", 200),
        ("/api/posts", "/api/posts?outcome=nope", 400),
        ("/api/posts/{fullname}", "/api/posts/t3_k00001", 200),
        ("/api/posts/{fullname}", "/api/posts/t3_zz", 404),
        ("/api/sql", "/api/sql?query=SELECT%201%20AS%20n,NULL", 200),
        ("/api/sql", "/api/sql?query=DELETE%20FROM%20posts", 400),
        ("/api/sql", "/api/sql", 400),
        ("/api/sql", "/api/sql?query=SELECT%201&format=xml", 400),
        ("/api/openapi.json", "/api/openapi.json", 200),
    ] {
        let answer = served.get(asked);
        assert_eq!(answer.status, status, "{asked}: {}", answer.body);
        let responses = &description["paths"][path]["get"]["responses"];
        let schema = &responses[status.to_string()]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{path} {status} is not described");
    }
}
