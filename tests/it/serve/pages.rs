//! Tests that lists, searches and pages show the current state of the database.

use std::collections::BTreeMap;

use serde_json::json;
use topicmill_core::table;

use super::{Served, escaped, labelled, names, posts, resolved};
use crate::support::program::Program;

const NEWEST: &str = "created_at DESC, fullname DESC";

impl Served {
    /// Returns the fullnames on all pages of a list. Calls a function after each page.
    fn list(&self, query: &str, mut after_each: impl FnMut()) -> Vec<String> {
        let (mut listed, mut path) = (Vec::new(), format!("/posts?{query}"));
        loop {
            let page = self.page(&path);
            listed.extend(names(&page));
            after_each();
            let Some((_, next)) = page.split_once("rel=\"next\" href=\"") else {
                return listed;
            };
            path = resolved(&next.split('"').next().unwrap().replace("&#38;", "&"));
        }
    }
}

/// Labels 130 posts and changes them: every outcome occurs, and many posts have the same time or the same score.
fn with_every_outcome(program: Program) -> Program {
    let program = labelled(program, &posts(130));
    program.execute(
        "UPDATE classifications SET score = 0.5 + 0.1 * (CAST(substr(fullname, 9) AS INTEGER) % 3), \
           other = substr(fullname, 8) = '17', abstained = substr(fullname, 9) = '7'; \
         UPDATE things SET created_at = '2023-11-14T00:00:00+00:00' WHERE substr(fullname, 7) >= '070'; \
         DELETE FROM classifications WHERE substr(fullname, 9) = '5'",
    );
    program
}

/// Returns the fullnames in the rows of a view.
fn rows_of_view(program: &Program, view: &str, condition: &str, order: &str) -> Vec<String> {
    let sql = format!("SELECT fullname FROM {view} WHERE {condition} ORDER BY {order}");
    let names = program.column(&sql).into_iter();
    names
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn lists_equal_the_rows_of_the_views() {
    for program in Program::on_each_database() {
        let program = with_every_outcome(program);
        let served = Served::start(&program);
        for (query, condition, order) in table! {
            "", "TRUE", NEWEST;
            "outcome=gaming", "outcome = 'gaming'", NEWEST;
            "outcome=labelled", "NOT abstained", NEWEST;
            "outcome=other", "outcome = 'other'", NEWEST;
            "outcome=unsure", "outcome = 'unsure'", NEWEST;
            "outcome=unlabelled", "outcome IS NULL", NEWEST;
            "subreddit=r/FOOD", "subreddit = 'food'", NEWEST;
            "topic=none", "FALSE", NEWEST;
            "since=2023-11-15&until=2023-11-15",
                "created_at >= '2023-11-15T00:00:00+00:00' AND created_at < '2023-11-16T00:00:00+00:00'", NEWEST;
            "sort=score", "score IS NOT NULL", "score DESC, fullname DESC";
            "sort=score&outcome=labelled", "NOT abstained", "score DESC, fullname DESC";
            "sort=score&outcome=food&q=CHICKEN", "outcome = 'food' AND title LIKE '%chicken%'",
                "score DESC, fullname DESC";
        } {
            let wanted = rows_of_view(&program, "labeled_posts", condition, order);
            assert_eq!(wanted.is_empty(), query.starts_with("topic"), "{query}");
            assert_eq!(served.list(query, || ()), wanted, "{query}");
        }
    }
}

#[test]
fn each_outcome_is_a_link_with_its_number_of_posts() {
    let program = with_every_outcome(Program::new());
    let served = Served::start(&program);
    let rows = program.query(
        "SELECT COALESCE(outcome, 'unlabelled') AS outcome, COUNT(*) AS posts FROM labeled_posts \
          GROUP BY outcome",
    );
    let counts = rows.iter().map(|row| {
        let posts = row["posts"].as_u64().unwrap();
        (row["outcome"].as_str().unwrap(), posts)
    });
    let mut wanted: BTreeMap<&str, u64> = counts.collect();
    wanted.insert("labelled", wanted["food"] + wanted["gaming"]);
    let page = served.page("/posts");
    let links = page.split("href=\"./posts?outcome=").skip(1);
    let shown: BTreeMap<&str, u64> = links
        .map(|link| {
            let (outcome, rest) = link.split_once('"').unwrap();
            let (_, posts) = rest.split_once("<span>").unwrap();
            (outcome, posts.split('<').next().unwrap().parse().unwrap())
        })
        .collect();
    assert_eq!(shown, wanted);
    // The link of a chosen outcome removes its filter.
    let chosen = served.page("/posts?outcome=food");
    assert!(chosen.contains("href=\"./posts\" aria-current"));
}

#[test]
fn comments_have_a_list_of_their_own_and_link_to_what_they_reply_to() {
    for program in Program::on_each_database() {
        let program = labelled(program, &posts(4));
        let served = Served::start(&program);
        assert!(!served.page("/posts").contains("kind=comments"));
        let comment = |n: u32| {
            json!({
                "name": format!("t1_c{n:02}"), "link_id": "t3_k00001", "parent_id": "t3_k00001", "subreddit": "food",
                "body": format!("I roast a chicken for {n} minutes."), "created_utc": 1_700_000_000 + n,
            })
        };
        let comments = (0..60).map(|n| format!("{}\n", comment(n)));
        program.import(&comments.collect::<String>());
        assert!(served.page("/posts").contains("kind=comments"));
        program.ok("classify --pipeline two.toml");
        for (query, condition) in [
            ("", "TRUE"),
            ("&outcome=food&q=CHICKEN", "outcome = 'food'"),
        ] {
            let wanted = rows_of_view(&program, "labeled_comments", condition, NEWEST);
            assert!(!wanted.is_empty());
            let listed = served.list(&format!("kind=comments{query}"), || ());
            assert_eq!(listed, wanted, "{query}");
        }
        let page = served.page("/posts/t1_c07");
        assert!(page.contains("posts/t3_k00001\"") && page.contains("Where this comment came"));
    }
}

#[test]
fn new_posts_do_not_shift_the_later_pages_of_a_list() {
    for program in Program::on_each_database() {
        program.import(&posts(130));
        let served = Served::start(&program);
        let before = served.list("", || ());
        assert_eq!(before.len(), 130);
        let mut newest = 130;
        let listed = served.list("", || {
            newest += 1;
            let newer = posts(newest).lines().last().unwrap().to_owned();
            program.import(&newer);
        });
        assert_eq!(listed, before);
    }
}

#[test]
fn search_treats_every_character_as_text() {
    for program in Program::on_each_database() {
        let titles = [
            "Cats & dogs at 50% off",
            "say \"hello world\" 🎉",
            "Hello again",
            "under_score ~tilde",
            "naïve Café",
        ];
        let lines = titles.iter().enumerate().map(|(i, title)| {
            let post = json!({"id": format!("s{i}"), "title": title, "selftext": "in the body", "subreddit": "x",
                "created_utc": 1_700_000_000 + i});
            format!("{post}\n")
        });
        program.import(&lines.collect::<String>());
        let served = Served::start(&program);
        let found = |search: &str| names(&served.page(&format!("/posts?q={}", escaped(search))));
        for (search, posts) in [
            ("hello", &["t3_s2", "t3_s1"][..]),
            ("WORLD  hello\u{0}body", &["t3_s1"]),
            ("0%", &["t3_s0"]),
            ("%", &["t3_s0"]),
            ("_", &["t3_s3"]),
            ("~", &["t3_s3"]),
            ("\"", &["t3_s1"]),
            ("🎉", &["t3_s1"]),
            ("CAFÉ", &["t3_s4"]),
            ("x' OR 1=1 --", &[]),
            ("\\", &[]),
        ] {
            assert_eq!(found(search), posts, "{search}");
        }
        let long = "a".repeat(1_001);
        assert_eq!(served.get(&format!("/posts?q={long}")).status, 400);
        let page = served.page("/posts?q=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E");
        assert!(!page.contains("<script"), "{page}");
    }
}

#[test]
fn a_post_is_found_by_its_id() {
    let program = labelled(Program::new(), &posts(4));
    let served = Served::start(&program);
    let page = served.page("/posts/t3_k00003");
    assert!(page.contains("href=\"https://www.reddit.com/r/x/comments/k00003/t/\""));
    assert_eq!(page.matches("<th scope=\"row\"><bdi>").count(), 2, "{page}");
    // An id without its prefix, in any case, is the same post.
    assert_eq!(served.page("/posts/K00003"), page);
    for odd in [
        "t3_nothere",
        "..%2f..%2fetc",
        "%FF%FE",
        "t3_%00",
        "t3_",
        "%F0%9F%8E%89",
    ] {
        assert_eq!(served.get(&format!("/posts/{odd}")).status, 404, "{odd}");
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
    let program = labelled(Program::new(), &evil());
    let served = Served::start(&program);
    let posts = (0..6).map(|i| format!("/posts/t3_e{i}"));
    for path in posts.chain(["/posts".to_owned(), "/".to_owned()]) {
        let page = served.page(&path);
        for wrong in [
            "<script",
            "<img",
            "onerror=alert(2)>",
            "href=\"javascript",
            "href=\"/",
            "action=\"/",
            "href=\".//",
            "href=\"..//",
            "<d>",
            "\u{1b}",
            "\u{202e}",
            "\u{2066}",
        ] {
            assert!(!page.contains(wrong), "{path}: {wrong}");
        }
    }
    let turned = served.page("/posts/t3_e1");
    assert!(turned.contains("\n  gnp.exe turned [31m"), "{turned}");
    let list = served.page("/posts");
    assert!(list.len() < 40_000, "{} bytes", list.len());
}

#[test]
fn pages_show_new_posts_and_no_purged_ones() {
    let program = labelled(Program::new(), &posts(20));
    let served = Served::start(&program);
    let chicken = || names(&served.page("/posts?q=chicken")).len();
    assert!(served.page("/").contains("roast a chicken 1<"));
    assert_eq!(chicken(), 4);
    program.import(&posts(26));
    assert_eq!(chicken(), 5);
    assert_eq!(names(&served.page("/posts?outcome=unlabelled")).len(), 6);

    program.purge("t3_k00001\nt3_k00009\n");
    assert_eq!(served.get("/posts/t3_k00001").status, 404);
    assert!(!served.page("/").contains("roast a chicken 1<"));
    assert_eq!(chicken(), 4);
}

#[test]
fn empty_and_unlabelled_databases_have_pages() {
    let program = Program::new();
    program.ok("db create");
    let served = Served::start(&program);
    for path in [
        "/",
        "/posts",
        "/posts?sort=score",
        "/posts?outcome=labelled",
    ] {
        assert!(names(&served.page(path)).is_empty(), "{path}");
    }
    program.import(&posts(3));
    assert_eq!(names(&served.page("/posts")).len(), 3);
    assert_eq!(names(&served.page("/posts?sort=score")).len(), 0);
    served.page("/");
    served.page("/posts/t3_k00001");
}
