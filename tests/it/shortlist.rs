//! Tests `--shortlist`: a small model selects labels, and the large one scores only those labels.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use topicmill_core::table;

use crate::support::builders::lines;
use crate::support::engine::repository;
use crate::support::program::Program;

/// The number of posts; the last has the text of the first.
const POSTS: usize = 31;
const LABELS: usize = 16;
const LARGE: &str = "tiny-bart-mnli";
const SMALL: &str = "minilm-reddit-topics";

fn model(name: &str) -> String {
    let folder = match name {
        SMALL => repository("models"),
        _ => repository("tests/it/fixtures/models"),
    };
    folder.join(name).display().to_string()
}

/// Returns a program with posts about several topics.
fn with_posts() -> Program {
    let program = Program::new();
    program.import(&lines(POSTS, POSTS - 1));
    program
}

/// Each post's scores from one model, by label.
type Scores = BTreeMap<String, BTreeMap<String, f64>>;

/// Returns the scores of the latest label set from a model.
fn scores(program: &Program, model: &str) -> Scores {
    let rows = program.query(&format!(
        "SELECT s.fullname, l.label, s.score FROM label_scores s JOIN models m ON m.id = s.model_id \
           JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position \
          WHERE m.name = '{model}' AND s.label_set_id = (SELECT MAX(id) FROM label_sets)"
    ));
    let mut scores = Scores::new();
    for row in rows {
        let text = |column: &str| row[column].as_str().unwrap().to_owned();
        let of_post = scores.entry(text("fullname")).or_default();
        of_post.insert(text("label"), row["score"].as_f64().unwrap());
    }
    assert_eq!(scores.len(), POSTS, "{model}");
    scores
}

/// Returns the labels with a score, and the best one.
fn picked(scores: &BTreeMap<String, f64>) -> (BTreeSet<&str>, &str) {
    assert_eq!(scores.len(), LABELS);
    let some = scores.iter().filter(|(_, score)| **score > 0.0);
    let best = scores.iter().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    (some.map(|(label, _)| label.as_str()).collect(), best.0)
}

/// Returns the labels that a model ranks first.
fn first(scores: &BTreeMap<String, f64>, labels: usize) -> BTreeSet<&str> {
    let mut sorted: Vec<_> = scores.iter().collect();
    sorted.sort_by(|a, b| b.1.total_cmp(a.1));
    let first = sorted.iter().take(labels);
    first.map(|(label, _)| label.as_str()).collect()
}

fn count(counts: &Value, what: &str) -> u64 {
    counts[what].as_u64().unwrap()
}

#[test]
fn only_shortlisted_labels_are_scored_and_results_are_stored_separately() {
    let texts = POSTS as u64 - 1;
    let program = with_posts();
    let alone = format!("--model {}", model(LARGE));
    for (small, computed) in [(SMALL, 4 * texts), ("tiny-bert-nli", 0)] {
        let folder = model(small);
        let short = format!("{alone} --shortlist 4 --small-model {folder}");
        let name = format!("{LARGE}+shortlist-4-{small}");
        let counts = program.classify(&short);
        assert_eq!(count(&counts, "posts"), POSTS as u64);
        // The second shortlist reuses logits that the model computed on its own.
        let reused = 4 * POSTS as u64 - computed;
        let pairs = (count(&counts, "pairs"), count(&counts, "pairs_reused"));
        assert_eq!(pairs, (computed, reused), "{small}");
        let current = "SELECT m.name FROM current_target t JOIN models m ON m.id = t.model_id";
        assert_eq!(program.scalar(current), name);
        let before = scores(&program, &name);
        let counts = program.classify(&short);
        assert_eq!((count(&counts, "posts"), count(&counts, "pairs")), (0, 0));

        let counts = program.classify(&alone);
        if computed > 0 {
            assert_eq!(count(&counts, "posts"), POSTS as u64);
            assert_eq!(count(&counts, "pairs"), 12 * texts, "4 of 16 were stored");
        }
        program.classify(&format!("--model {folder}"));
        let (of_small, of_large) = (scores(&program, small), scores(&program, LARGE));
        assert_eq!(
            scores(&program, &name),
            before,
            "other runs do not change them"
        );
        let mut same = 0;
        for (post, scores) in &before {
            let (labels, best) = picked(scores);
            assert_eq!(labels, first(&of_small[post], 4), "{small} {post}");
            let sum: f64 = scores.values().sum();
            assert!((sum - 1.0).abs() < 1e-9, "a softmax over the four");
            let (_, best_of_all) = picked(&of_large[post]);
            assert_eq!(best == best_of_all, labels.contains(best_of_all), "{post}");
            same += usize::from(best == best_of_all);
        }
        assert!(same < POSTS);
        let alike = json!({"posts": POSTS, "same": same});
        assert_eq!(program.classify(&short)["without_shortlist"], alike);
    }
}

#[test]
fn a_run_continues_a_shortlist_and_diff_compares_it_with_the_model_alone() {
    let program = with_posts();
    let alone = format!("--model {}", model(LARGE));
    program.classify(&alone);
    let small = model("tiny-bert-nli");
    let short = format!("{alone} --shortlist 4 --small-model {small}");
    program.classify(&short);
    let run = "run --source sample --topic climate --limit 5";
    program.ok(&format!("{run} {short}"));
    let posts = program.count("posts");
    let name = format!("{LARGE}+shortlist-4-tiny-bert-nli");
    let of_model = format!("JOIN models m ON m.id = model_id WHERE m.name = '{name}'");
    assert_eq!(program.count(&format!("classifications {of_model}")), posts);
    let collected = posts - POSTS as u64;
    let found = program.json(&format!("labels diff current current@{}", model(LARGE)));
    assert_eq!(found["a"]["model"]["name"], name);
    assert_eq!(found["b"]["model"]["name"], LARGE);
    assert_eq!(found["moved"]["lacking"], json!([0, collected]));
    assert_ne!(found["moved"]["posts"], 0);
}

#[test]
fn multi_label_scores_are_the_same_with_and_without_a_shortlist() {
    let program = with_posts();
    let alone = format!("--model {} --mode multi", model(LARGE));
    program.classify(&format!("{alone} --shortlist 3"));
    program.classify(&alone);
    let short = scores(&program, &format!("{LARGE}+shortlist-3-{SMALL}"));
    let whole = scores(&program, LARGE);
    for (post, scores) in &short {
        let (labels, _) = picked(scores);
        assert_eq!(labels.len(), 3);
        for label in labels {
            assert!((scores[label] - whole[post][label]).abs() < 1e-12, "{post}");
        }
    }
    // The requested precision is for the large model; the small one has no such graph.
    let made = model("tiny-bart-made");
    let counts = program.classify(&format!("--model {made} --precision int8 --shortlist 3"));
    assert_eq!(count(&counts, "posts"), POSTS as u64);
    let own = format!(
        "pair_logits l JOIN models m ON m.id = l.model_id \
          WHERE m.name = 'tiny-bart-made+shortlist-3-{SMALL}'"
    );
    assert_eq!(program.count(&own), 3 * (POSTS as u64 - 1));
    // A shortlist of every label excludes nothing and is the same as the model alone.
    let counts = program.classify(&format!("{alone} --shortlist 16"));
    assert_eq!(count(&counts, "posts"), 0);
}

#[test]
fn an_invalid_shortlist_is_rejected_with_a_reason() {
    let program = with_posts();
    std::fs::create_dir(program.path("empty")).unwrap();
    let (bart, minilm) = (model(LARGE), model(SMALL));
    for (flags, code, message) in table! {
        "--shortlist 0".to_owned(), 2, "0 is not in 1..";
        format!("--small-model {minilm}"), 2, "--shortlist <K>";
        "--shortlist 4 --dry-run".to_owned(), 2, "--dry-run";
        "--shortlist 4 --small-model nowhere".to_owned(), 5, "`nowhere`";
        "--shortlist 4 --small-model empty".to_owned(), 5, "config.json";
        format!("--shortlist 4 --small-model {bart}"), 2, "is both";
    } {
        let ran = program.run(&format!("classify --model {bart} {flags}"));
        ran.expect_exit(code, message);
    }
    let ran = program.run(&format!("classify --shortlist 4 --model {minilm}"));
    ran.expect_exit(2, "in one pass");
    assert_eq!(program.count("classifications"), 0);
}
