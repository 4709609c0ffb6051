//! Tests that figures of the report, the pages, the data card and `status` equal figures computed from the rows.

use serde_json::{Value, json};
use topicmill_review::calibrate::Proportion;

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
    program
        .ok(&*format!("report out.html --json {flags}"))
        .json()
}

#[test]
fn percentages_name_their_total_and_what_is_left_out() {
    let program = labelled(&mixed());
    program.import(
        &(0..5)
            .map(|n| post(500 + n, "food", "late", n))
            .collect::<String>(),
    );
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
        assert_eq!(
            program.count(&format!("labeled_posts WHERE {condition}")),
            posts,
            "{condition}"
        );
    }

    // Named queries count no disagreement for a topic that is not a label, and show no score for `(none of these)`.
    let wrong = || {
        let rows = program.json("sql --named disagreements");
        let rows = rows.as_array().unwrap().iter();
        let mut posts: Vec<String> = rows.map(|row| row["fullname"].to_string()).collect();
        posts.sort_unstable();
        posts
    };
    let before = wrong();
    let disagreeing = "labeled_posts WHERE topic IN ('food', 'travel', 'sport') AND label <> topic";
    assert_eq!(before.len() as u64, program.count(disagreeing));
    for row in program.json("sql --named topics").as_array().unwrap() {
        let is_none = row["label"] == "(none of these)";
        assert_eq!(row["mean_score"].is_null(), is_none, "{row}");
    }

    // A file may name a topic by its label text, as in the `topic_agreement` view.
    for table in ["things", "classifications"] {
        program.execute(&format!(
            "UPDATE {table} SET topic = 'food and cooking' WHERE topic = 'food' AND substr(fullname, -1) < '5'"
        ));
    }
    assert_eq!(wrong(), before);
    assert_eq!(
        program.scalar("SELECT SUM(agreed) FROM topic_agreement"),
        33
    );
    let agreement = "<dt>of 40 posts have their topic as label (not accuracy); 50 others have no topic among the labels</dt><dd>82 %</dd>";
    assert!(report(&program).contains(agreement));
}

#[test]
fn other_has_its_own_score_and_not_the_best_labels() {
    let program = labelled(&mixed());
    for row in program.json("sql --named provenance").as_array().unwrap() {
        let expected = match row["outcome"].as_str().unwrap() {
            "other" => 0.88,
            "unsure" => 0.3,
            "food" => 0.8,
            _ => 0.9,
        };
        assert!(
            (row["score"].as_f64().unwrap() - expected).abs() < 1e-9,
            "{row}"
        );
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

#[test]
fn measured_quality_has_the_same_wording_everywhere() {
    let program = labelled(&mixed());
    let sentence = || {
        program.json("status")["quality"]["sentence"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let is_everywhere = |sentence: &str| {
        assert!(report(&program).contains(sentence), "{sentence}");
        assert!(
            program
                .ok("status")
                .stdout
                .replace("\n              ", " ")
                .contains(sentence)
        );
        program.ok("export known --overwrite");
        let card = program.read("known/README.md");
        assert!(card.contains(sentence), "{sentence}");
        assert!(!card.contains("not in this data set"), "{card}");
    };
    is_everywhere(&sentence());

    // Ben's file is not a random sample; Ada's is. In hers, every fifth answer contradicts the assigned label.
    let rows = program.rows("SELECT outcome FROM labeled_posts ORDER BY fullname LIMIT 60");
    let answers = rows.as_array().unwrap().iter().enumerate();
    let answers = answers.map(|(id, row)| {
        let label = match row[0].as_str().unwrap() {
            _ if id % 5 == 0 => "sport",
            "other" | "unsure" => "none",
            label => label,
        };
        format!("k{id:05},{label},ada\n")
    });
    let answers = format!("id,label,annotator\n{}", answers.collect::<String>());
    program.write("ada.csv", answers);
    program.write("ben.csv", "id,label,annotator\nk00070,sport,ben\n");
    program.ok("labels gold import ben.csv");
    assert_eq!(
        program.json("status")["quality"]["sample"],
        Value::from("selected")
    );
    program.ok("labels gold import ada.csv --random");

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
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let expected = format!(
        "{} % correct (95 % interval {} to {}), from 60 random answers; {} % of {} assigned labels are correct; 1 \
         answered post is left out: 1 not drawn at random",
        percent(outcome.share.unwrap()),
        percent(outcome.low),
        percent(outcome.high),
        percent(precision.share.unwrap()),
        precision.all
    );
    // Wilson, 48 of 60: (0.8 + 1.96²/120 ± 1.96 √(0.8·0.2/60 + 1.96²/14400)) / (1 + 1.96²/60).
    assert!(
        expected.starts_with("80 % correct (95 % interval 68 to 88),"),
        "{expected}"
    );
    assert_eq!(sentence(), expected);
    is_everywhere(&expected);
    let quality = program.json("status")["quality"].clone();
    assert_eq!(
        (
            &quality["sample"],
            &quality["outcome"]["of"],
            &quality["left_out"]["not_random"]
        ),
        (&json!("random"), &json!(48), &json!(1)),
        "Ben's answer is left out"
    );
    // The shares are those of `labels evaluate`.
    let shares = program.json("labels evaluate --gold db --by topic")["shares"].clone();
    assert_eq!(quality["shares"], shares);
    assert_eq!(shares[0]["assigned"], json!(34.0 / 90.0));
    let summary = report_summary(&program, "");
    assert_eq!(summary["quality"]["shares"], shares);
    assert_eq!(summary["shares"][0]["estimated"], shares[0]["estimated"]);
    let cell = |label: usize, what: &str| {
        let share = shares[label]["estimated"][what].as_f64().unwrap();
        format!("{:.1}", share * 100.0)
    };
    for (place, label) in LABELS.iter().enumerate() {
        let [value, low, high] = ["value", "low", "high"].map(|what| cell(place, what));
        let row = format!("| {} |", label.0);
        let card = program.read("known/README.md");
        let row = card.lines().find(|line| line.starts_with(&row)).unwrap();
        assert!(
            row.ends_with(&format!("| {value} % ({low} to {high}) |")),
            "{row}"
        );
    }
    // A card of some posts says that the answers are about others too, and each card shows what it contains.
    program.execute(
        "UPDATE things SET subreddit = 's' || substr(fullname, -2) WHERE substr(fullname, -2) < '24'",
    );
    program.execute(
        "UPDATE things SET title = '', text_purged_at = collected_at WHERE fullname = 't3_k00003'",
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
    program.execute("UPDATE things SET subreddit = 'trial'");
    // A report of a period estimates the shares of its posts.
    let part = report_summary(&program, "--until 2026-09-26 --by subreddit");
    let posts = program.count("labeled_posts WHERE created_at < '2026-09-27'");
    let food = program.scalar(
        "SELECT 1.0 * COUNT(CASE WHEN outcome = 'food' THEN 1 END) / COUNT(*) AS n FROM labeled_posts \
          WHERE created_at < '2026-09-27'",
    );
    assert_eq!(
        (&part["posts"], &part["quality"]["shares"][0]["assigned"]),
        (&json!(posts), &food)
    );
    assert!(posts < 90 && program.read("out.html").contains("id=\"labels-by-group\""));

    let served = Served::start(&program);
    let page = served.page("/");
    assert!(page.contains(&expected), "{page}");
    let (_, own) = page.rsplit_once("<footer>").unwrap();
    assert_golden("overview.html", own, &HIDDEN[..1]);
    // A further answer changes the page, although no run wrote anything.
    program.execute("DELETE FROM gold WHERE fullname = 't3_k00000'");
    assert!(served.page("/").contains(&sentence()), "{page}");
    assert_ne!(sentence(), expected);
}

#[test]
fn macro_f1_and_label_shares_need_enough_gold_posts() {
    let program = labelled(&mixed());
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
