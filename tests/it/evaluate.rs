//! Tests `topicmill labels evaluate`.

use serde_json::{Value, json};
use topicmill_core::table;

use crate::support::builders::{self, LABELS};
use crate::support::engine::repository;
use crate::support::postgres::sqlite;
use crate::support::program::Program;

/// The number of posts.
const POSTS: usize = 30;

/// Returns the program with posts that the default model has labelled.
pub fn labelled() -> Program {
    let program = Program::on(sqlite()).with_default_model();
    program.labelled(POSTS)
}

/// Returns [`labelled`] for each backend.
pub fn labelled_on_each() -> impl Iterator<Item = Program> {
    Program::on_each_database().map(|program| program.with_default_model().labelled(POSTS))
}

impl Program {
    /// Evaluates the labels with this source of gold labels, which flags may follow.
    #[track_caller]
    pub fn evaluate(&self, gold: &str) -> Value {
        self.json(&format!("labels evaluate --gold {gold}"))
    }

    /// Writes a gold file with the right label for each post, or the label that `change` returns; returns its path.
    pub fn gold_file(&self, name: &str, change: impl Fn(usize) -> Option<&'static str>) -> String {
        let rows = (0..POSTS).map(|i| {
            let label = change(i).unwrap_or(LABELS[i % 3].0);
            format!("k{i:05},{label}\n")
        });
        let text = format!("id,label\n{}", rows.collect::<String>());
        self.write(name, text)
    }

    /// Sets the labels of all posts: ten of each label, correct and with a score of 0.75. Exceptions: post 0 is food
    /// with 0.95, and posts 3 and 4 have no label.
    fn set_labels(&self) {
        self.label_in_turn();
        self.execute(
            "UPDATE classifications SET score = 0.95, label = 'food' WHERE fullname = 't3_k00000'; \
             UPDATE classifications SET score = 0.25, abstained = TRUE \
              WHERE fullname IN ('t3_k00003', 't3_k00004')",
        );
    }
}

#[test]
fn posts_without_a_stored_label_are_evaluated_from_stored_vectors() {
    for program in labelled_on_each() {
        let gold = program.gold_file("gold.csv", |_| None);
        program.pipeline("fewer", "", &LABELS[1..]);
        program.ok("classify --pipeline fewer.toml --limit 10");
        let fewer = format!("{gold} --label-set fewer --others-out-of-scope");
        let partly = program.evaluate(&fewer);
        assert_eq!(partly["posts"], POSTS);
        program.ok("classify --pipeline fewer.toml");
        let wholly = program.evaluate(&fewer);
        assert_eq!(partly["evaluation"], wholly["evaluation"]);
    }
}

#[test]
fn labels_are_compared_with_gold_in_and_out_of_scope_separately() {
    for program in labelled_on_each() {
        program.set_labels();
        // Post 4 is out of scope and has no label; post 5 is out of scope and labelled music.
        let gold = program.gold_file("gold.csv", |i| match i {
            4 => Some("none"),
            5 => Some("OTHER"),
            6 => Some("Video Games"),
            _ => None,
        });
        let found = program.evaluate(&gold);
        let evaluation = &found["evaluation"];
        assert_eq!(found["posts"], 30);
        for (figure, right, all) in [
            ("outcome", 27, 30),
            ("in_scope", 26, 28),
            ("in_scope_labelled", 27, 28),
            ("coverage", 28, 30),
            ("out_of_scope", 1, 2),
            ("precision", 26, 28),
        ] {
            let shown = &evaluation[figure];
            assert_eq!([&shown["of"], &shown["all"]], [right, all], "{figure}");
        }
        // Games: 8 of 10 found, no false positive. Food and music: 9 of 9 found, one false positive each.
        let expected = [16.0 / 18.0, 18.0 / 19.0, 18.0 / 19.0];
        let mean = expected.iter().sum::<f64>() / 3.0;
        // 27 labels with a score of 0.75, 26 of them right, and a wrong one with 0.95.
        let error = (27.0 * (26.0 / 27.0 - 0.75) + 0.95) / 28.0;
        let labels = (0..3).map(|label| (&evaluation["labels"][label]["f1"], expected[label]));
        let figures = [
            (&evaluation["macro_f1"]["value"], mean),
            (&evaluation["calibration_error"], error),
        ];
        for (shown, expected) in labels.chain(figures) {
            let off = shown.as_f64().unwrap() - expected;
            assert!(off.abs() < 1e-6, "{expected}: {evaluation}");
        }
        let wrong = json!({"gold": "gaming", "given": "food", "posts": 1});
        let confusion = evaluation["confusion"].as_array().unwrap();
        assert!(confusion.contains(&wrong), "{evaluation}");
        let wrong = found["wrong"].as_array().unwrap().iter();
        let ids: Vec<&Value> = wrong.map(|post| &post["id"]).collect();
        assert_eq!(ids, ["t3_k00000", "t3_k00005"], "the highest score first");
        let none = program.evaluate(&format!("{gold} --limit 0"));
        assert_eq!(none["wrong"], json!([]));
        let csv = program.ok(&format!("labels evaluate --gold {gold} --format csv"));
        let row = csv.stdout.lines().nth(1).unwrap();
        let start = "accuracy (including none of these),0.900 (";
        assert!(row.starts_with(start), "{row}");
    }
}

#[test]
fn a_gold_file_gives_estimates_only_if_it_is_declared_random() {
    let program = labelled();
    program.gold_file("gold.csv", |i| (i % 10 == 4).then_some("none"));
    assert_eq!(program.evaluate("gold.csv")["shares"], Value::Null);
    program.ok("labels gold import gold.csv --random");
    // As all posts have a gold label, the estimates are the gold labels' shares.
    let sampled = program.evaluate("db");
    let shares = sampled["shares"].as_array().unwrap();
    assert_eq!(shares.len(), 4);
    for (share, (label, posts)) in shares.iter().zip(table! {
        "gaming", 9.0;
        "food", 9.0;
        "music", 9.0;
        "(none of these)", 3.0;
    }) {
        assert_eq!(share["label"], label);
        let estimated = 30.0 * share["estimated"]["value"].as_f64().unwrap();
        assert!((estimated - posts).abs() < 1e-7, "{share}");
    }
}

#[test]
fn topics_as_gold_labels_are_no_random_sample() {
    let program = labelled();
    program.set_labels();
    program.execute("UPDATE things SET topic = CASE WHEN fullname < 't3_k00004' THEN 'food' END");
    let found = program.evaluate("topic");
    let outcome = &found["evaluation"]["outcome"];
    assert_eq!([&outcome["of"], &outcome["all"]], [2, 4]);
    assert_eq!(found["shares"], Value::Null);
}

#[test]
fn an_invalid_gold_file_is_rejected_and_unknown_posts_are_counted() {
    let program = labelled();
    let evaluate = |gold: &str| program.run(&format!("labels evaluate --gold {gold}"));
    for (name, text, message) in table! {
        "unknown.csv", "id,label\nk00000,games\nk00001,sailing\n", "`sailing` (1 row)";
        "near.csv", "id,label\nk00000,gamin\n", "did you mean `gaming`?";
        "twice.csv", "id,label\nk00000,food\nt3_k00000,music\n",
            "`t3_k00000` is `food` in line 2, but `music` in line 3";
        "empty.csv", "", "there are no rows";
        "header.csv", "id,label\n", "there are no rows";
        "nobody.csv", "id,label\nzz1,food\nzz2,food\n", "2 are not in the database";
        "cut.ndjson", "{\"id\": \"k00000\"", "line 1";
        "no.parquet", "PAR1PAR1", "Parquet";
    } {
        let ran = evaluate(&program.write(name, text));
        ran.expect_exit(2, message);
        assert_eq!(ran.stdout, "", "{name}");
    }
    program.execute("UPDATE things SET topic = NULL");
    for (word, message) in [
        ("db", "the database has no gold labels"),
        ("topic", "no post in the database was collected for a topic"),
        ("nowhere.csv", "nowhere.csv"),
    ] {
        evaluate(word).expect_exit(2, message);
    }
    // Unknown and duplicate rows in a spreadsheet's TSV file are counted, reported and left out.
    let rows = "\u{feff}ID\tLabel\r\nT3_K00000\tgaming\r\nk00000\tgaming\r\nzz1\tfood\r\nk00001\tsailing\r\n";
    program.write("some.tsv", rows);
    let ran = program.ok("labels evaluate --gold some.tsv --others-out-of-scope --format json");
    let found = ran.json();
    assert_eq!([&found["posts"], &found["left_out"]["unknown"]], [2, 1]);
    assert_eq!(found["evaluation"]["out_of_scope"]["all"], 1);
    ran.expect_stderr_all(&["t3_zz1", "sailing", "few gold posts"]);
    let three = ["--label-set first"; 3].join(" ");
    evaluate(&format!("some.tsv {three}")).expect_code(2);
}

#[test]
fn without_a_database_or_labels_nothing_is_evaluated() {
    let program = Program::new();
    program.write("gold.csv", "id,label\nk00000,food\n");
    let evaluate = || program.run("labels evaluate --gold gold.csv");
    evaluate().expect_code(4);
    program.ok("db create");
    evaluate().expect_exit(2, "topicmill classify");
}

#[test]
fn purged_edited_and_unlabelled_posts_are_excluded() {
    for program in labelled_on_each() {
        let gold = program.gold_file("gold.csv", |_| None);
        program.purge("t3_k00000\nt3_k00001\n");
        program.import(&builders::line(2, "another title"));
        program.execute(
            "UPDATE things SET title = '', selftext = '', text_purged_at = collected_at \
              WHERE fullname IN ('t3_k00003', 't3_k00005'); \
             DELETE FROM classifications WHERE fullname IN ('t3_k00004', 't3_k00005')",
        );
        // The model scores the posts, or its stored logits do, and the current labels are unchanged.
        let found = program.evaluate(&format!("{gold} --compute"));
        assert_eq!(found["posts"], 28);
        assert_eq!(found["left_out"]["edited"], 0);
        // Without the model, only the edited post is left out: the two others without a label have stored logits.
        assert_eq!(program.evaluate(&gold)["posts"], 27);
        for table in ["pair_logits", "text_vectors"] {
            program.execute(&format!(
                "DELETE FROM {table} WHERE text_hash IN \
                   (SELECT text_hash FROM things WHERE fullname IN ('t3_k00004', 't3_k00005'))"
            ));
        }
        let ran = program.ok(&format!("labels evaluate --gold {gold} --format json"));
        let found = ran.json();
        assert_eq!(
            found["left_out"],
            json!({
                "unknown": 2, "purged": 2, "examples": ["t3_k00000", "t3_k00001"], "without_text": 1, "edited": 1,
                "unlabelled": 1,
            })
        );
        assert_eq!(found["posts"], 25);
        ran.expect_stderr_all(&["unlabelled=1", "purged=2"]);
    }
}

#[test]
fn two_label_sets_are_compared() {
    let program = labelled();
    let gold = program.gold_file("gold.csv", |i| (i % 3 == 2).then_some("none"));
    program.pipeline("second", "", &LABELS[..2]);
    let with_second = |second: &str| {
        let sets = format!("--label-set first --label-set {second}");
        program.evaluate(&format!("{gold} {sets} --limit 3"))
    };
    let before = program.labelled_posts();
    // The second label set is computed from stored logits; once it is stored, the result is the same.
    let found = with_second("second.toml --others-out-of-scope");
    assert_eq!(found["a"]["label_set"]["name"], "first");
    program.ok("classify --pipeline second.toml");
    let stored = with_second("second");
    assert_eq!(stored["difference"], found["difference"]);
    assert_eq!(stored["differing"], found["differing"]);
    assert_eq!(program.labelled_posts(), before, "the views are unchanged");
    // Every post about music changes its label and is still wrong: it is out of scope but labelled.
    let difference = &found["difference"];
    assert!(difference["differ"].as_u64().unwrap() >= 9, "{difference}");
    assert!(found["differing"].as_array().unwrap().len() <= 3);
    let sets = "--label-set first --label-set second";
    let csv = program.ok(&format!(
        "labels evaluate --gold {gold} {sets} --format csv"
    ));
    let header = csv.stdout.lines().next();
    assert_eq!(header, Some("post,gold,first,second,right,title"));
}

#[test]
fn two_models_are_compared_without_changing_current_labels() {
    let program = labelled();
    let gold = program.gold_file("gold.csv", |_| None);
    let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
    let tiny = tiny.display();
    let evaluate = |flags: &str| program.run(&format!("labels evaluate --gold {gold} {flags}"));
    let before = program.labelled_posts();
    // The model has labelled no post.
    evaluate(&format!("--model {tiny}")).expect_code(2);
    // `--compute` stores nothing and returns the results that `classify` stores later.
    let computed = program.evaluate(&format!("{gold} --model {tiny} --compute"));
    assert_eq!(computed["model"]["name"], "tiny-bert-nli");
    assert_eq!(computed["posts"], 30);
    assert_eq!(program.count("models"), 1);
    program.ok(&format!("classify --pipeline first.toml --model {tiny}"));
    assert_eq!(program.labelled_posts(), before);
    let (shipped, random) = ("minilm-reddit-topics", "tiny-bert-nli");
    let found = program.evaluate(&format!("{gold} --model {shipped} --model {random}"));
    assert_eq!(found["b"]["evaluation"], computed["evaluation"]);
    // Random weights are worse than the default model, and no model is better than itself.
    let better = |first, second| {
        let models = format!("--model {first} --model {second}");
        evaluate(&format!("--require-better {models}"))
    };
    better(random, shipped).expect_code(0);
    for second in [random, shipped] {
        let ran = better(shipped, second);
        ran.expect_exit(1, "not significantly better");
        assert!(ran.stdout.contains("McNemar"), "{}", ran.stdout);
    }
    // One model alone cannot be better.
    evaluate("--require-better").expect_exit(2, "--model");
    evaluate("--model nobody").expect_exit(2, "tiny-bert-nli");
}
