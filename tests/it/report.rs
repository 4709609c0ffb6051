//! Tests the report through the program and in a real browser.

use serde_json::{Value, json};

use crate::support::browser::{Browser, Scheme, VIEWS};
use crate::support::postgres::sqlite;
use crate::support::program::{Program, find_row, run_limited};

fn post(id: usize, topic: &str, title: &str, day: usize) -> String {
    let post = json!({
        "id": format!("r{id}"), "subreddit": "trial", "title": title, "selftext": "", "topic": topic,
        "created_utc": 1_790_000_000 + day * 86_400 + (id % 20) * 3_000,
        "permalink": format!("/r/trial/comments/r{id}/"),
    });
    format!("{post}\n")
}

/// Writes a report; returns the page and the summary.
fn report(program: &Program, flags: &str) -> (String, Value) {
    let report = format!("report out.html --json {flags}");
    let summary = program.ok(&report).json();
    (program.read("out.html"), summary)
}

/// Titles with characters that could break a page.
const EVIL: [&str; 4] = [
    "</title></text><script>alert(1)</script><img src=x onerror=alert(2)>",
    "\u{202e}gnitirw siht\u{2066} \u{200f}turns",
    "a]]>b --> <!-- {{ 7*7 }} {% raw %} &amp; \"quoted\" 'so'",
    "ملخص الأخبار اليوم 日本の料理 👩‍🚀",
];

fn evil_posts() -> String {
    let mut titles: Vec<String> = EVIL.iter().map(|title| (*title).to_owned()).collect();
    titles.push(format!("Z{}algo", "\u{301}".repeat(4_000)));
    titles.push("long ".repeat(14_000));
    let evil = titles.iter().enumerate();
    let mut posts: String = evil
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
        posts += &post(id, topic, &format!("{title} ({id})"), id % 9);
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
    let program = Program::on(sqlite()).with_default_model();
    program.import(&evil_posts());
    program.pipeline("trial", "", &labels);
    program.ok("classify --pipeline trial.toml");
    let (page, output) = report(&program, "--svg charts");
    assert_eq!([&output["posts"], &output["labelled"]], [86, 86]);
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
        !page.contains(&"\u{301}".repeat(5)),
        "stacks of combining marks are shortened"
    );
    let charts = output["charts"].as_array().unwrap();
    assert!(charts.len() >= 6, "{charts:?}");
    let Some(browser) = &browser else { return };
    let file = |path: &str| format!("file://{}", program.path(path).display());
    for (width, scheme) in VIEWS {
        browser.open(&file("out.html"), width, scheme).await;
        browser
            .screenshot(&format!("evil-{width}-{}", scheme.as_str()))
            .await;
    }
    for chart in charts {
        browser
            .open(&file(chart.as_str().unwrap()), 1400, Scheme::Dark)
            .await;
    }
}

#[test]
fn small_databases_have_a_report() {
    let program = Program::on(sqlite());
    program.ok("db create");
    let counts = |flags: &str| {
        let (page, output) = report(&program, flags);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        (output["posts"].clone(), output["labelled"].clone())
    };
    assert_eq!(counts(""), (json!(0), json!(0)));
    program.import(&post(1, "food", "A soup of beans", 0));
    assert_eq!(counts(""), (json!(1), json!(0)));
    program.pipeline("one", "", &[("food", "food and cooking")]);
    program.ok("classify --pipeline one.toml --mode multi");
    assert_eq!(counts(""), (json!(1), json!(1)));
    // A period without posts.
    let none = "--since 2020-01-01 --until 2020-02-01";
    assert_eq!(counts(none), (json!(0), json!(0)));
}

#[test]
fn the_topic_mix_is_compared_with_the_previous_period() {
    let program = Program::on(sqlite()).with_default_model();
    // Ten days of food, then ten days of travel.
    let posts = (0..240).map(|id| {
        let title = if id < 120 {
            "A recipe for bean soup with rice and onions, cooked slowly"
        } else {
            "My trip by train and ship to the islands: hotels, flights and sights"
        };
        post(id, "food", &format!("{title} {id}"), id / 12)
    });
    program.import(&posts.collect::<String>());
    let labels = [
        ("food", "food and cooking"),
        ("travel", "travel and tourism"),
    ];
    program.pipeline("two", "", &labels);
    program.ok("classify --pipeline two.toml");
    let changed = |finding: &Value| {
        let finding = finding.as_str().unwrap();
        finding.contains(" grew ") || finding.contains(" fell ")
    };
    let (_, output) = report(&program, "");
    assert!(changed(&output["finding"]), "{output}");
    // Five days within the first ten, compared with the five days before them: no change.
    let start = chrono::DateTime::from_timestamp(1_790_000_000, 0).unwrap();
    let [since, until] = [5, 10].map(|n| {
        let day = start + chrono::TimeDelta::days(n);
        day.format("%Y-%m-%dT%H:%M:%SZ").to_string()
    });
    let (_, output) = report(&program, &format!("--since {since} --until {until}"));
    assert!(!changed(&output["finding"]), "{output}");
    assert_eq!(output["posts"], 60, "only posts in the period count");
}

#[test]
fn misuse_is_rejected_and_a_file_that_is_not_a_report_is_kept() {
    let program = Program::on(sqlite());
    let posts = post(1, "food", "A soup of beans", 0);
    program.import(&posts);
    for (line, words) in [
        ("report out.html --since 2030-01-01", "--since"),
        ("report out.html --since soon", "soon"),
        ("report posts.ndjson", "posts.ndjson"),
        ("report out.html --label-set nobody", "nobody"),
    ] {
        program.run(line).expect_exit(2, words);
    }
    assert_eq!(program.read("posts.ndjson"), posts);
}

const EIGHT_DAYS: usize = 8 * 86_400;

/// A post of `busy` about food, or of `calm` about travel, as a line of a file.
fn on_topic(subreddit: &str, n: usize, seconds: usize) -> String {
    let title = match subreddit {
        "busy" => "A recipe for bean soup with rice and onions, cooked slowly",
        _ => "My trip by train and ship to the islands: hotels, flights and sights",
    };
    let post = json!({
        "id": format!("{subreddit}{n}"), "subreddit": subreddit, "title": format!("{title} {n}"), "selftext": "",
        "created_utc": 1_790_000_000 + seconds,
    });
    format!("{post}\n")
}

/// One of 100 posts of `calm`, spread evenly over eight days.
fn calm(n: usize) -> String {
    on_topic("calm", n, n * EIGHT_DAYS / 99)
}

/// Labels the posts and asserts that no change of a label is reported. Returns the page, the difference of the shares
/// of food over all subreddits, and what was compared.
fn report_without_change(program: Program, posts: &str) -> (String, f64, Value) {
    let program = program.with_default_model();
    program.import(posts);
    let labels = [
        ("food", "food and cooking"),
        ("travel", "travel and tourism"),
    ];
    program.pipeline("two", "", &labels);
    program.ok("classify --pipeline two.toml");
    let (page, output) = report(&program, "");
    let food = find_row(&output["shares"], "label", "food");
    assert!(food["posts"].as_u64().unwrap() >= 95, "{food}");
    let change = |of: &str, to: &str| {
        food["change"][to].as_f64().unwrap() - food["change"][of].as_f64().unwrap()
    };
    assert!(change("from", "to").abs() < 0.02, "{food}");
    assert!(food["change"]["p_corrected"].as_f64().unwrap() > 0.05);
    let finding = output["finding"].as_str().unwrap();
    assert!(!finding.contains("grew"), "{finding}");
    assert_eq!(output["compared"]["of_subreddits"], 2);
    let subreddits = output["compared"]["subreddits"].clone();
    (page, change("raw_from", "raw_to"), subreddits)
}

#[test]
fn a_subreddit_that_was_read_for_a_part_of_the_period_is_not_compared() {
    // The newest posts of `busy` span 17 hours: the later half of the period has more posts of it.
    let busy = |n| on_topic("busy", n, 7 * 86_400 + 7 * 3_600 + n * 17 * 3_600 / 99);
    let posts: String = (0..100).map(|n| calm(n) + &busy(n)).collect();
    for program in Program::on_each_database() {
        let (page, raw_change, subreddits) = report_without_change(program, &posts);
        assert_eq!(subreddits, json!(["calm"]));
        assert!(raw_change <= 0.1, "{raw_change}");
        assert!(!page.contains("class=\"raw\""));
    }
}

#[test]
fn the_growth_of_a_subreddit_is_no_change_of_a_label() {
    // Three of four posts of `busy` are in the later half.
    let busy = |n: u32| {
        let spent = f64::sqrt(f64::from(n) / 299.0) * EIGHT_DAYS as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most 8 days"
        )]
        let seconds = spent as usize;
        on_topic("busy", n as usize, seconds)
    };
    let posts: String = (0..100).map(calm).chain((0..300).map(busy)).collect();
    for program in Program::on_each_database() {
        let (page, raw_change, subreddits) = report_without_change(program, &posts);
        assert_eq!(subreddits, json!(["busy", "calm"]));
        assert!(raw_change > 0.1, "{raw_change}");
        assert!(page.contains("class=\"raw\""));
    }
}

#[test]
fn report_totals_equal_the_views() {
    for program in Program::on_each_database() {
        let program = program.with_default_model();
        program.import(&evil_posts());
        let labels = [("food", "food"), ("travel", "travel"), ("sport", "sport")];
        program.pipeline("trial", "threshold = 0.9\nbackground = \"reddit\"", &labels);
        program.pipeline("second", "", &labels);
        program.ok("classify --pipeline trial.toml");
        let (page, _) = report(&program, "");
        let rows = program.query(
            "SELECT outcome, CAST(SUM(posts) AS INTEGER) AS posts FROM topic_daily GROUP BY outcome",
        );
        assert!(rows.len() >= 3, "too few outcomes: {rows:?}");
        for row in rows {
            let (outcome, posts) = (row["outcome"].as_str().unwrap(), &row["posts"]);
            let cells = format!("{outcome}</th><td class=\"n posts\">{posts}</td>");
            assert!(page.contains(&cells), "{cells}: {page}");
        }
        // Labels of a set that is not current.
        program.ok("classify --pipeline second.toml");
        for (flags, name, has_unsure) in
            [("--label-set second", "second", false), ("", "trial", true)]
        {
            let (page, _) = report(&program, flags);
            assert!(page.contains(&format!("Label set {name},")), "{page}");
            assert_eq!(page.contains("soft\">unsure</th>"), has_unsure, "{name}");
        }
    }
}

#[test]
fn the_report_is_written_atomically() {
    let program = Program::on(sqlite());
    program.import(&evil_posts());
    program.pipeline("trial", "", &[("food", "food"), ("travel", "travel")]);
    program.ok("classify --pipeline trial.toml");
    // Concurrent commands write one file.
    let report = || program.command("report out.html --svg charts");
    let running: Vec<_> = (0..4).map(|_| report().spawn().unwrap()).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    let whole = program.read("out.html");
    assert!(whole.trim_end().ends_with("</html>"), "{whole}");
    // A chart replaces only a chart.
    program.write("charts/coverage.svg", "mine");
    let line = "report out.html --svg charts --overwrite";
    program.run(line).expect_exit(2, "coverage.svg");
    assert_eq!(program.read("charts/coverage.svg"), "mine");
    // A full disk: no file may exceed 40 kB, which is enough for SQLite's own files.
    run_limited(&report(), "ulimit -f 40").expect_exit(1, "out.html");
    let kept = program.read("out.html");
    assert_eq!(kept, whole, "the earlier report is kept");
    program
        .run("report missing/out.html")
        .expect_exit(1, "missing/out.html");
    let mut files = program.files().into_iter();
    assert_eq!(files.find(|name| name.ends_with(".partial")), None);
}
