//! Tests the report through the program, on both databases, and in a real browser.

use serde_json::Value;

use crate::support::browser::{Browser, Scheme, WIDTHS};
use crate::support::postgres::{databases, sqlite};
use crate::support::program::{Program, RunOutput, run_limited};

/// Returns a pipeline file with these labels.
fn pipeline(mode: &str, labels: &[(&str, &str)]) -> String {
    let topics = labels
        .iter()
        .map(|(slug, label)| format!("[[topic]]\nslug = \"{slug}\"\nlabel = \"{label}\"\n\n"));
    format!(
        "name = \"trial\"\nmode = \"{mode}\"\n\n{}",
        topics.collect::<String>()
    )
}

fn post(id: usize, topic: &str, title: &str, day: usize) -> Value {
    serde_json::json!({
        "id": format!("r{id}"), "subreddit": "trial", "title": title, "selftext": "", "topic": topic,
        "created_utc": 1_790_000_000 + day * 86_400 + (id % 20) * 3_000, "score": 1, "num_comments": 0,
        "permalink": format!("/r/trial/comments/r{id}/"), "url": "https://example.com/", "over_18": false,
        "is_self": true,
    })
}

fn lines(posts: &[Value]) -> String {
    posts.iter().map(|post| format!("{post}\n")).collect()
}

fn report(program: &Program, more: &[&str]) -> (String, RunOutput) {
    let ran = program.ok(&[&["report", "out.html"], more].concat());
    let page = program.read("out.html");
    (page, ran)
}

/// Titles with characters that could break a page.
const EVIL: [&str; 4] = [
    "</title></text><script>alert(1)</script><img src=x onerror=alert(2)>",
    "\u{202e}gnitirw siht\u{2066} \u{200f}turns",
    "a]]>b --> <!-- {{ 7*7 }} {% raw %} &amp; \"quoted\" 'so'",
    "ملخص الأخبار اليوم 日本の料理 👩‍🚀",
];

fn evil_posts() -> Vec<Value> {
    let mut titles: Vec<String> = EVIL.iter().map(|title| (*title).to_owned()).collect();
    titles.push(format!("Z{}algo", "\u{301}".repeat(4_000)));
    titles.push("long ".repeat(14_000));
    let evil = titles.iter().enumerate();
    let mut posts: Vec<_> = evil
        .map(|(id, title)| post(id, "food", title, id % 9))
        .collect();
    for id in 100..180 {
        let (topic, title) = match id % 4 {
            0 => (
                "food",
                "A soup of beans and rice that my grandmother cooked",
            ),
            1 => (
                "travel",
                "Two weeks by train through the mountains of Norway",
            ),
            2 => (
                "</script><b>bold",
                "The match ended three to two after extra time",
            ),
            _ => ("food", "Which knife do you use for onions?"),
        };
        posts.push(post(id, topic, &format!("{title} ({id})"), id % 9));
    }
    posts
}

#[tokio::test]
async fn hostile_posts_do_not_break_the_report() {
    let long = "a label of two hundred letters ".repeat(7);
    let labels = [
        ("food", "food & <cooking>"),
        ("travel", "travel"),
        ("long", long.trim()),
        ("sport", "الرياضة"),
    ];
    let browser = Browser::start().await;
    let database = sqlite();
    let program = Program::with_database(&database.url).with_default_model();
    program.write("posts.ndjson", lines(&evil_posts()));
    program.write("trial.toml", pipeline("single", &labels));
    program.ok(&["import", "posts.ndjson"]);
    // Nothing is labelled yet.
    let (page, _) = report(&program, &[]);
    assert!(page.contains("86 posts are not labelled yet"), "{page}");
    program.ok(&["classify", "--pipeline", "trial.toml"]);

    let (page, ran) = report(&program, &["--svg", "charts", "--json"]);
    let output: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(output["posts"], 86);
    assert_eq!(output["labelled"], 86);
    assert_eq!(output["bytes"], page.len());
    assert!(page.len() < 2_000_000, "{}", page.len());
    for markup in [
        "<script",
        "<img",
        "<b>",
        "onerror=alert(2)>",
        "\u{202e}",
        "\u{2066}",
    ] {
        assert!(!page.contains(markup), "{markup}");
    }
    assert!(
        page.contains("food &amp; &lt;cooking&gt;")
            || page.contains("food &#38; &#60;cooking&#62;")
    );
    assert!(
        !page.contains(&"\u{301}".repeat(5)),
        "stacks of combining marks are shortened"
    );
    let charts = output["charts"].as_array().unwrap();
    assert!(charts.len() >= 6, "{charts:?}");
    let Some(browser) = &browser else { return };
    let file = |path: &str| format!("file://{}", program.folder.path().join(path).display());
    for width in WIDTHS {
        for scheme in Scheme::BOTH {
            browser.open(&file("out.html"), width, scheme).await;
            browser
                .screenshot(&format!("evil-{width}-{}", scheme.as_str()))
                .await;
        }
    }
    for chart in charts {
        browser
            .open(&file(chart.as_str().unwrap()), 1400, Scheme::Dark)
            .await;
    }
}

#[test]
fn small_databases_have_a_report() {
    for database in databases() {
        let program = Program::with_database(&database.url);
        program.ok(&["db", "create"]);
        let (page, _) = report(&program, &[]);
        assert!(page.contains("No posts stored yet"), "{page}");
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");

        program.write(
            "one.ndjson",
            lines(&[post(1, "food", "A soup of beans", 0)]),
        );
        program.write(
            "one.toml",
            pipeline("multi", &[("food", "food and cooking")]),
        );
        program.ok(&["import", "one.ndjson"]);
        program.ok(&["classify", "--pipeline", "one.toml", "--mode", "multi"]);
        let (page, _) = report(&program, &[]);
        assert!(page.contains("of posts</h1>"), "{page}");
        assert!(!page.contains("NaN"), "{page}");
        // A period without posts.
        let (page, _) = report(
            &program,
            &["--since", "2020-01-01", "--until", "2020-02-01"],
        );
        assert!(page.contains("No posts in this period"), "{page}");
    }
}

#[test]
fn the_topic_mix_is_compared_with_the_previous_period() {
    for database in databases() {
        let program = Program::with_database(&database.url).with_default_model();
        let mut posts = Vec::new();
        for id in 0..240 {
            // Ten days of food, then ten days of travel.
            let day = id / 12;
            let title = if day < 10 {
                "A recipe for bean soup with rice and onions, cooked slowly"
            } else {
                "My trip by train and ship to the islands: hotels, flights and sights"
            };
            posts.push(post(id, "food", &format!("{title} {id}"), day));
        }
        program.write("posts.ndjson", lines(&posts));
        program.write(
            "two.toml",
            pipeline(
                "single",
                &[
                    ("food", "food and cooking"),
                    ("travel", "travel and tourism"),
                ],
            ),
        );
        program.ok(&["import", "posts.ndjson"]);
        program.ok(&["classify", "--pipeline", "two.toml"]);
        let (page, ran) = report(&program, &["--json"]);
        let output: Value = serde_json::from_str(&ran.stdout).unwrap();
        let finding = output["finding"].as_str().unwrap();
        assert!(
            finding.contains(" grew from ") || finding.contains(" fell from "),
            "{finding}"
        );
        assert!(page.contains("a large shift"), "the index is over 0.25");
        // Five days within the first ten, compared with the five days before them: no change.
        let start = chrono::DateTime::from_timestamp(1_790_000_000, 0).unwrap();
        let day = |n: i64| {
            (start + chrono::TimeDelta::days(n))
                .format("%Y-%m-%dT%H:%M:%SZ")
                .to_string()
        };
        let (page, _) = report(&program, &["--since", &day(5), "--until", &day(10)]);
        assert!(!page.contains(" grew from "), "{page}");
        assert!(
            page.contains("60 posts"),
            "only posts in the period count: {page}"
        );

        for (args, output) in [
            (
                &["report", "out.html", "--since", "2030-01-01"][..],
                "--since is not before --until",
            ),
            (&["report", "out.html", "--since", "soon"], "is not a time"),
            (&["report", "posts.ndjson"], "is not a report"),
            (&["report", "out.html", "--label-set", "nobody"], "nobody"),
        ] {
            program.run(args).expect_exit(2, output);
        }
        let kept = program.read("posts.ndjson");
        assert_eq!(
            kept.lines().count(),
            240,
            "a file that is not a report is kept"
        );
    }
}

#[test]
fn report_totals_equal_the_views() {
    for database in databases() {
        let program = Program::with_database(&database.url).with_default_model();
        program.write("posts.ndjson", lines(&evil_posts()));
        let labels = [("food", "food"), ("travel", "travel"), ("sport", "sport")];
        let pipeline = pipeline("single", &labels);
        let unsure = format!("threshold = 0.9\nbackground = \"reddit\"\n{pipeline}");
        program.write("trial.toml", &unsure);
        program.write("second.toml", pipeline.replace("\"trial\"", "\"second\""));
        program.ok(&["import", "posts.ndjson"]);
        program.ok(&["classify", "--pipeline", "trial.toml"]);
        let (page, _) = report(&program, &[]);
        let query =
            "SELECT outcome, SUM(posts) AS posts FROM topic_daily GROUP BY outcome ORDER BY 1";
        let rows = program.ok(&["sql", query, "--format", "json"]).stdout;
        let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
        assert!(rows.len() >= 3, "too few outcomes: {rows:?}");
        for row in rows {
            let (outcome, posts) = (row["outcome"].as_str().unwrap(), row["posts"].to_string());
            let posts = posts.trim_matches('"').split('.').next().unwrap();
            let cells = format!("{outcome}</th><td class=\"n posts\">{posts}</td>");
            assert!(page.contains(&cells), "{cells}: {page}");
        }
        assert!(page.contains("threshold 0.90"), "{page}");
        // Labels of a set that is not current.
        program.ok(&["classify", "--pipeline", "second.toml"]);
        let (other, _) = report(&program, &["--label-set", "second"]);
        assert!(other.contains("Label set second,"), "{other}");
        assert!(!other.contains("soft\">unsure</th>"), "its threshold is 0");
        let (current, _) = report(&program, &[]);
        assert!(current.contains("Label set trial,"), "{current}");
    }
}

#[test]
fn the_report_is_written_atomically() {
    let program = Program::with_database("sqlite:posts.db");
    program.write("posts.ndjson", lines(&evil_posts()));
    program.write(
        "trial.toml",
        pipeline("single", &[("food", "food"), ("travel", "travel")]),
    );
    program.ok(&["import", "posts.ndjson"]);
    program.ok(&["classify", "--pipeline", "trial.toml"]);
    // Concurrent commands write one file.
    let args = ["report", "out.html", "--svg", "charts"];
    let running: Vec<_> = (0..4)
        .map(|_| program.command(&args).spawn().unwrap())
        .collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    let path = program.folder.path().join("out.html");
    let whole = std::fs::read_to_string(&path).unwrap();
    assert!(
        whole.ends_with("</html>\n") || whole.ends_with("</html>"),
        "{whole}"
    );
    // A full disk: no file may exceed 48 kB, which is enough for SQLite's own files.
    let report = program.command(&["report", "out.html"]);
    run_limited(&report, "ulimit -f 48").expect_exit(1, "nothing was written");
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        whole,
        "the earlier report is kept"
    );
    program
        .run(&["report", "missing/out.html"])
        .expect_exit(1, "missing/out.html");
    let names = std::fs::read_dir(program.folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|name| name.ends_with(".partial")).collect();
    assert!(left.is_empty(), "{left:?}");
}
