//! Tests that figures of the report, the pages, the data card and `status` equal figures computed from the rows.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Value, json};
use topicmill_review::evaluate::Proportion;

use crate::serve::{Served, names};
use crate::support::golden::assert_golden;
use crate::support::postgres::sqlite;
use crate::support::program::Program;

const LABELS: [(&str, &str); 3] = [
    ("food", "food and cooking"),
    ("travel", "travel"),
    ("sport", "a sport that no post was collected for"),
];

/// Topic, outcome and number of posts.
const POSTS: [(&str, &str, usize); 9] = [
    ("food", "food", 18),
    ("food", "travel", 1),
    ("food", "other", 1),
    ("travel", "travel", 15),
    ("travel", "food", 2),
    ("travel", "unsure", 3),
    ("science", "food", 14),
    ("science", "other", 26),
    ("", "travel", 10),
];

/// Figures that depend on the machine or the time.
const HIDDEN: [(&str, &str); 3] = [
    ("Made by topicmill ", " UTC."),
    (" Model ", ", 3 labels"),
    ("<footer>r/", "</footer>"),
];

fn post(id: usize, topic: &str, title: &str, seconds: usize) -> String {
    let mut post = json!({
        "id": format!("k{id:05}"), "subreddit": "trial", "title": format!("{title} {id}"), "selftext": "",
        "created_utc": 1_789_948_800 + seconds, "permalink": format!("/r/trial/comments/k{id:05}/"),
    });
    if !topic.is_empty() {
        post["topic"] = json!(topic);
    }
    format!("{post}\n")
}

/// Imports posts, labels them, and replaces each label with the outcome in its title.
fn labelled(posts: &str) -> Program {
    let program = Program::on(sqlite()).with_default_model();
    program.import(posts);
    program.pipeline("two", "background = \"reddit\"", &LABELS);
    program.ok("classify --pipeline two.toml");
    for (outcome, label, other, abstained, score, margin) in [
        ("food", "food", false, false, 0.8, 0.7),
        ("travel", "travel", false, false, 0.9, 0.85),
        ("other", "food", true, true, 0.07, 0.81),
        ("unsure", "travel", false, true, 0.3, 0.05),
    ] {
        program.execute(&format!(
            "UPDATE classifications SET label = '{label}', other = {other}, abstained = {abstained}, score = {score}, \
             margin = {margin} WHERE fullname IN (SELECT fullname FROM posts WHERE title LIKE '{outcome} %')"
        ));
    }
    program
}

/// Returns the posts of [`POSTS`], three hours apart, so that they end in the middle of a day.
fn mixed() -> String {
    let outcomes = POSTS
        .iter()
        .flat_map(|(topic, outcome, posts)| std::iter::repeat_n((topic, outcome), *posts));
    let posts = outcomes
        .enumerate()
        // Interleaved in time.
        .map(|(id, (topic, outcome))| post(id, topic, outcome, id * 37 % 90 * 3 * 3_600));
    posts.collect()
}

fn report(program: &Program) -> String {
    program.ok("report out.html");
    program.read("out.html")
}

fn report_summary(program: &Program, flags: &str) -> Value {
    let report = format!("report out.html --json {flags}");
    program.ok(&report).json()
}

/// Returns a program with the posts of [`mixed`], labelled. Each test gets a copy of the same database.
fn labelled_mixed() -> Program {
    static DATABASE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let program = labelled(&mixed());
        std::fs::read(program.url().trim_start_matches("sqlite:")).unwrap()
    });
    let program = Program::on(sqlite()).with_default_model();
    std::fs::write(program.url().trim_start_matches("sqlite:"), &*DATABASE).unwrap();
    program
}

#[test]
fn percentages_name_their_total_and_what_is_left_out() {
    let program = labelled_mixed();
    let unlabelled = (0..5).map(|n| post(500 + n, "food", "late", n));
    program.import(&unlabelled.collect::<String>());
    let page = report(&program);
    assert_golden("report.html", &page, &HIDDEN);
    // A close call whose rival is the background: 0.30 minus the margin of 0.05.
    assert!(page.contains("or other 0.25 · unsure"), "{page}");
    // The counts in that page, from the rows.
    let agreeing = "topic IN ('food', 'travel', 'sport') AND outcome";
    for (posts, condition) in [
        (95, "TRUE"),
        (90, "outcome IS NOT NULL"),
        (30, "abstained"),
        (27, "outcome = 'other'"),
        (3, "outcome = 'unsure'"),
        (40, &format!("{agreeing} IS NOT NULL")),
        (33, &format!("{agreeing} = topic")),
        (80, "topic IS NOT NULL AND outcome IS NOT NULL"),
        (2, "topic = 'travel' AND outcome = 'food'"),
        (14, "topic = 'science' AND outcome = 'food'"),
        (
            45,
            "CAST(strftime('%s', created_at) AS INTEGER) < (SELECT AVG(CAST(strftime('%s', end_at) AS INTEGER)) FROM \
             (SELECT MIN(created_at) AS end_at FROM posts UNION ALL SELECT MAX(created_at) FROM posts)) \
             AND outcome IS NOT NULL",
        ),
    ] {
        let rows = format!("labeled_posts WHERE {condition}");
        assert_eq!(program.count(&rows), posts, "{condition}");
    }
}

#[test]
fn a_topic_that_is_not_a_label_is_no_disagreement_and_none_of_these_has_no_score() {
    let program = labelled_mixed();
    let disagreements = program.json("sql --named disagreements");
    let disagreeing = "labeled_posts WHERE topic IN ('food', 'travel', 'sport') AND label <> topic";
    let expected = program.count(disagreeing);
    assert_eq!(disagreements.as_array().unwrap().len() as u64, expected);
    let topics = program.json("sql --named topics");
    let is_none = |row: &&Value| row["label"] == "(none of these)";
    let topics = topics.as_array().unwrap().iter();
    let (none, labels): (Vec<_>, Vec<_>) = topics.partition(is_none);
    assert!(!none.is_empty() && none.iter().all(|row| row["mean_score"].is_null()));
    assert!(!labels.is_empty() && labels.iter().all(|row| row["mean_score"].is_number()));
}

#[test]
fn a_topic_may_be_named_by_the_text_of_its_label() {
    let program = labelled_mixed();
    let disagreements = || {
        let rows = program.json("sql --named disagreements");
        let rows = rows.as_array().unwrap().iter();
        let posts = rows.map(|row| row["fullname"].to_string());
        posts.collect::<BTreeSet<String>>()
    };
    let before = disagreements();
    for table in ["things", "classifications"] {
        program.execute(&format!(
            "UPDATE {table} SET topic = 'food and cooking' WHERE topic = 'food' AND substr(fullname, -1) < '5'"
        ));
    }
    assert_eq!(disagreements(), before);
    let agreed = program.scalar("SELECT SUM(agreed) FROM topic_agreement");
    assert_eq!(agreed, 33);
    let agreement = "<dt>of 40 posts have their topic as label (not accuracy); 50 others have no topic among the labels</dt><dd>82 %</dd>";
    assert!(report(&program).contains(agreement));
}

#[test]
fn other_has_its_own_score_and_not_the_best_labels() {
    let program = labelled_mixed();
    for row in program.json("sql --named provenance").as_array().unwrap() {
        let expected = match row["outcome"].as_str().unwrap() {
            "other" => 0.88,
            "unsure" => 0.3,
            "food" => 0.8,
            _ => 0.9,
        };
        let off = row["score"].as_f64().unwrap() - expected;
        assert!(off.abs() < 1e-9, "{row}");
    }
    let served = Served::start(&program);
    for (outcome, score, on_page) in [
        ("other", "0.88", ["0.88", "0.07"]),
        ("unsure", "best label 0.30", ["0.30", "unsure"]),
    ] {
        let list = served.page(&format!("/posts?outcome={outcome}"));
        let shown = format!("<span class=\"score\">{score}</span>");
        assert_eq!(list.matches(&shown).count(), names(&list).len(), "{list}");
        let post = served.page(&format!("/posts/{}", names(&list)[0]));
        let (_, lead) = post.split_once("<p class=\"lead\">").unwrap();
        let (lead, _) = lead.split_once("</p>").unwrap();
        assert!(on_page.iter().all(|part| lead.contains(part)), "{lead}");
    }
}

#[test]
fn an_incomplete_last_day_is_marked_and_not_drawn_as_a_drop() {
    // Ten days of 24 posts, and two hours of an eleventh. Without these, the last post is minutes before midnight.
    for (posts, pale) in [(242, 1), (240, 0)] {
        let posts = (0..posts).map(|n| post(n, "food", ["food", "travel"][n % 2], n * 3_600));
        let program = labelled(&posts.collect::<String>());
        let days = "(SELECT day FROM topic_daily GROUP BY day HAVING SUM(posts) = 24)";
        assert_eq!(program.count(days), 10);
        let page = report(&program);
        assert_eq!(page.matches("class=\"mark pale\"").count(), pale, "{page}");
        // Sparklines show the ten complete days, the last of them with twelve posts per label.
        let spark = "aria-label=\"10 data points, the last with 12 posts\"";
        assert_eq!(page.matches(spark).count(), 2);
    }
}

/// Returns the sentence about the quality of the labels.
fn sentence(program: &Program) -> String {
    let sentence = &program.json("status")["quality"]["sentence"];
    sentence.as_str().unwrap().to_owned()
}

/// Asserts that the report, the screen of `status` and the data card contain the sentence.
#[track_caller]
fn expect_everywhere(program: &Program, sentence: &str) {
    assert!(report(program).contains(sentence), "{sentence}");
    let screen = program.ok("status").stdout;
    let unwrapped = screen.replace("\n              ", " ");
    assert!(unwrapped.contains(sentence), "{screen}");
    program.ok("export known");
    let card = program.read("known/README.md");
    assert!(card.contains(sentence), "{card}");
    assert!(!card.contains("not in this data set"), "{card}");
}

#[test]
fn quality_without_answers_has_the_same_wording_everywhere() {
    let program = labelled_mixed();
    let never = sentence(&program);
    assert!(never.starts_with("never measured"), "{never}");
    expect_everywhere(&program, &never);
}

/// Returns a program with Ada's answers, a random sample of 60 in which every fifth contradicts the assigned label, and one
/// answer from Ben, which is not random.
fn answered() -> Program {
    let program = labelled_mixed();
    program.imported_gold("id,label\nk00070,sport\n", "--annotator ben");
    assert_eq!(program.json("status")["quality"]["sample"], "selected");
    let outcomes = program.column("SELECT outcome FROM labeled_posts ORDER BY fullname LIMIT 60");
    let answers = outcomes.iter().enumerate().map(|(id, outcome)| {
        let label = match outcome.as_str().unwrap() {
            _ if id % 5 == 0 => "sport",
            "other" | "unsure" => "none",
            label => label,
        };
        format!("k{id:05},{label}\n")
    });
    let answers = format!("id,label\n{}", answers.collect::<String>());
    program.imported_gold(&answers, "--random --annotator ada");
    program
}

#[test]
fn measured_quality_has_the_same_wording_everywhere() {
    let program = answered();
    // The expected figures, computed from the rows.
    let right = "COALESCE(g.label, '') = CASE WHEN p.abstained THEN '' ELSE p.outcome END";
    let number = |condition: &str| {
        let count = program.count(&format!(
            "gold g JOIN labeled_posts p ON p.fullname = g.fullname WHERE g.in_random_sample AND {condition}"
        ));
        usize::try_from(count).unwrap()
    };
    let outcome = Proportion::new(number(right), number("TRUE"));
    let precision = Proportion::new(
        number(&format!("{right} AND NOT p.abstained")),
        number("NOT p.abstained"),
    );
    assert_eq!((outcome.of, outcome.all), (48, 60));
    let expected = format!(
        // Wilson, 48 of 60: (0.8 + 1.96²/120 ± 1.96 √(0.8·0.2/60 + 1.96²/14400)) / (1 + 1.96²/60).
        "80 % correct (95 % interval 68 to 88), from 60 random answers; {:.0} % of {} assigned labels are correct; 1 \
         answered post is left out: 1 not drawn at random",
        precision.share.unwrap() * 100.0,
        precision.all
    );
    assert_eq!(sentence(&program), expected);
    expect_everywhere(&program, &expected);
    let quality = program.json("status")["quality"].take();
    assert_eq!(quality["sample"], "random");
    assert_eq!(quality["outcome"]["of"], 48);
    // Ben's answer is left out.
    assert_eq!(quality["left_out"]["not_random"], 1);
}

#[test]
fn estimated_shares_are_the_same_in_every_output() {
    let program = answered();
    let shares = program.json("labels evaluate --gold db --by topic")["shares"].take();
    assert_eq!(shares[0]["assigned"], json!(34.0 / 90.0));
    assert_eq!(program.json("status")["quality"]["shares"], shares);
    let summary = report_summary(&program, "");
    assert_eq!(summary["quality"]["shares"], shares);
    assert_eq!(summary["shares"][0]["estimated"], shares[0]["estimated"]);
    program.ok("export known");
    let card = program.read("known/README.md");
    for (place, (slug, _)) in LABELS.iter().enumerate() {
        let estimated = &shares[place]["estimated"];
        let [value, low, high] = ["value", "low", "high"]
            .map(|what| format!("{:.1}", estimated[what].as_f64().unwrap() * 100.0));
        let start = format!("| {slug} |");
        let row = card.lines().find(|line| line.starts_with(&start)).unwrap();
        let end = format!("| {value} % ({low} to {high}) |");
        assert!(row.ends_with(&end), "{row}");
    }
}

#[test]
fn the_card_of_some_posts_says_that_the_answers_are_about_others_too() {
    let program = answered();
    program.execute(
        "UPDATE things SET subreddit = 's' || substr(fullname, -2) WHERE substr(fullname, -2) < '24'; \
         UPDATE things SET title = '', text_purged_at = collected_at WHERE fullname = 't3_k00003'",
    );
    program.ok("export some --where \"subreddit <> 's00'\"");
    let card = program.read("some/README.md");
    for part in [
        "posts that are not in this data set.",
        "| subreddit | posts |\n|---|---|\n| trial | 66 |\n| s01 | 1 |\n",
        "| s19 | 1 |\n| and 4 more | 4 |\n\n",
        "(`text_purged`) | 1 |",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
}

#[test]
fn a_report_of_a_period_estimates_the_shares_of_its_posts() {
    let program = answered();
    let part = report_summary(&program, "--until 2026-09-26 --by subreddit");
    let posts = program.count("labeled_posts WHERE created_at < '2026-09-27'");
    assert!(posts < 90, "{posts}");
    let food = program.scalar(
        "SELECT 1.0 * COUNT(CASE WHEN outcome = 'food' THEN 1 END) / COUNT(*) AS n FROM labeled_posts \
          WHERE created_at < '2026-09-27'",
    );
    assert_eq!(part["posts"], posts);
    assert_eq!(part["quality"]["shares"][0]["assigned"], food);
    assert!(program.read("out.html").contains("id=\"labels-by-group\""));
}

#[test]
fn the_overview_shows_the_quality_and_follows_each_answer() {
    let program = answered();
    let served = Served::start(&program);
    let page = served.page("/");
    let before = sentence(&program);
    assert!(page.contains(&before), "{page}");
    let (_, own) = page.rsplit_once("<footer>").unwrap();
    assert_golden("overview.html", own, &HIDDEN[..1]);
    // No run writes anything.
    program.execute("DELETE FROM gold WHERE fullname = 't3_k00000'");
    let after = sentence(&program);
    assert_ne!(after, before);
    let page = served.page("/");
    assert!(page.contains(&after), "{page}");
}

#[test]
fn macro_f1_and_label_shares_need_enough_gold_posts() {
    let program = labelled_mixed();
    let gold = |posts: usize| {
        let sql = format!(
            "SELECT fullname AS id, outcome AS label FROM labeled_posts WHERE NOT abstained ORDER BY fullname LIMIT \
                {posts}"
        );
        let rows = program.ok(&["sql", &sql, "--format", "csv"]).stdout;
        program.write("gold.csv", rows);
        program.ok("labels evaluate --gold gold.csv").stdout
    };
    let line = |text: &str| {
        text.lines()
            .find(|line| line.starts_with(" macro-F1 "))
            .map(str::to_owned)
    };
    assert_eq!(line(&gold(8)), None);
    let many = gold(50);
    let line = line(&many).unwrap_or_else(|| panic!("{many}"));
    assert!(line.trim_end().ends_with(" 50"), "of 50 posts: {line}");
}
