//! Tests `--shortlist`: a small model selects labels, and the large one scores only those labels.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::engine::repository;
use crate::support::postgres::{TestDatabase, databases};
use crate::support::program::Program;

/// The number of posts; the last has the text of the first.
pub const POSTS: usize = 31;
const LABELS: usize = 16;
const SHORTLIST: &str = "4";

pub fn model(name: &str) -> String {
    let folder = match name {
        "minilm-reddit-topics" => repository("models"),
        _ => repository("tests/it/fixtures/models"),
    };
    folder.join(name).display().to_string()
}

/// Returns NDJSON of short posts about several topics.
pub fn posts() -> String {
    let titles = [
        "a new boss fight in this game",
        "how long to roast a chicken",
        "my band recorded a song",
        "glaciers melt and the sea rises",
        "the striker scored in the last minute",
    ];
    let post = |i: usize| {
        let of = i % (POSTS - 1);
        json!({
            "id": format!("k{i}"), "title": format!("{} {of}", titles[of % 5]), "selftext": "",
            "subreddit": "gaming", "created_utc": 1_700_000_000 + i,
        })
    };
    (0..POSTS).map(|i| format!("{}\n", post(i))).collect()
}

pub struct Scene<'a> {
    pub program: Program,
    pub database: &'a TestDatabase,
}

/// Each post's scores from one model, by label.
pub type Scores = BTreeMap<String, BTreeMap<String, f64>>;

impl<'a> Scene<'a> {
    pub fn new(database: &'a TestDatabase) -> Self {
        let program = Program::new();
        let file = program.write("posts.ndjson", posts());
        let scene = Self { program, database };
        scene
            .program
            .ok(&["--database", &scene.database.url, "import", &file]);
        scene
    }

    /// Labels and makes these labels current; returns the run's counts and stderr.
    pub fn classify(&self, args: &[&str]) -> (Value, String) {
        let record = self.program.folder.path().join("run.json");
        let record_to = ["--make-current", "--run-json", record.to_str().unwrap()];
        let head = ["--database", &self.database.url, "classify"];
        let ran = self.program.ok(&[&head[..], &record_to, args].concat());
        let record: Value =
            serde_json::from_str(&std::fs::read_to_string(record).unwrap()).unwrap();
        (record["counts"].clone(), ran.stderr)
    }

    pub fn rows(&self, sql: &str) -> Vec<Value> {
        let args = ["--database", &self.database.url, "sql", sql, "--format"];
        let answer = self.program.ok(&[&args[..], &["json"]].concat()).stdout;
        serde_json::from_str(&answer).unwrap()
    }

    pub fn scores(&self, model: &str) -> Scores {
        let sql = format!(
            "SELECT s.fullname, l.label, s.score FROM label_scores s JOIN models m ON m.id = s.model_id \
               JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position \
              WHERE m.name = '{model}' AND s.label_set_id = (SELECT MAX(id) FROM label_sets)"
        );
        let mut scores = Scores::new();
        for row in self.rows(&sql) {
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            let of_post = scores.entry(text("fullname")).or_default();
            of_post.insert(text("label"), row["score"].as_f64().unwrap());
        }
        assert_eq!(scores.len(), POSTS, "{model}");
        scores
    }
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
    for database in databases() {
        let scene = Scene::new(&database);
        let large = model("tiny-bart-mnli");
        let alone = ["--model", large.as_str()];
        for (small, computed) in [("minilm-reddit-topics", 4 * texts), ("tiny-bert-nli", 0)] {
            let folder = model(small);
            let flags = ["--shortlist", SHORTLIST, "--small-model", &folder];
            let short = [&alone[..], &flags].concat();
            let name = format!("tiny-bart-mnli+shortlist-4-{small}");
            let (counts, _) = scene.classify(&short);
            assert_eq!(count(&counts, "posts"), POSTS as u64);
            // The second shortlist reuses logits that the model computed on its own.
            let reused = 4 * POSTS as u64 - computed;
            let pairs = (count(&counts, "pairs"), count(&counts, "pairs_reused"));
            assert_eq!(pairs, (computed, reused), "{small}");
            let shown = scene
                .rows("SELECT m.name FROM current_target t JOIN models m ON m.id = t.model_id");
            assert_eq!(shown[0]["name"], name);
            let before = scene.scores(&name);
            let (counts, message) = scene.classify(&short);
            assert_eq!((count(&counts, "posts"), count(&counts, "pairs")), (0, 0));
            if computed > 0 {
                assert!(!message.contains("labelled alone"), "{message}");
            }

            let (counts, _) = scene.classify(&alone);
            if computed > 0 {
                assert_eq!(count(&counts, "posts"), POSTS as u64);
                assert_eq!(count(&counts, "pairs"), 12 * texts, "4 of 16 were stored");
            }
            scene.classify(&["--model", &folder]);
            let (of_small, of_large) = (scene.scores(small), scene.scores("tiny-bart-mnli"));
            assert_eq!(scene.scores(&name), before, "other runs do not change them");
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
            let (counts, message) = scene.classify(&short);
            let alike = json!({"posts": POSTS, "same": same});
            assert_eq!(counts["without_shortlist"], alike);
            assert!(
                message.contains(&format!("posts={POSTS} same={same}")),
                "{message}"
            );
        }
    }
}

#[test]
fn a_run_can_use_a_shortlist_and_diff_compares_it_with_the_full_model() {
    let program = Program::new();
    let (large, small) = (model("tiny-bart-mnli"), model("tiny-bert-nli"));
    let alone = ["--model", large.as_str()];
    let what = [
        "run", "--source", "sample", "--topic", "climate", "--limit", "20",
    ];
    let short = ["--shortlist", SHORTLIST, "--small-model", &small];
    program.ok(&[&what[..], &alone, &short].concat());
    program.ok(&[&["classify"], &alone[..]].concat());
    let other = format!("current@{large}");
    let diff = ["labels", "diff", "current", &other, "--format", "json"];
    let found: Value = serde_json::from_str(&program.ok(&diff).stdout).unwrap();
    let name = "tiny-bart-mnli+shortlist-4-tiny-bert-nli";
    assert_eq!(found["a"]["model"]["name"], name);
    assert_eq!(found["b"]["model"]["name"], "tiny-bart-mnli");
    assert_eq!(found["moved"]["lacking"], serde_json::json!([0, 0]));
    assert_ne!(found["moved"]["posts"], 0);
}

#[test]
fn multi_label_scores_are_the_same_with_and_without_a_shortlist() {
    let database = &databases()[0];
    let scene = Scene::new(database);
    let args = ["--model", &model("tiny-bart-mnli"), "--mode", "multi"];
    scene.classify(&[&args[..], &["--shortlist", "3"]].concat());
    scene.classify(&args);
    let short = scene.scores("tiny-bart-mnli+shortlist-3-minilm-reddit-topics");
    let whole = scene.scores("tiny-bart-mnli");
    for (post, scores) in &short {
        let (labels, _) = picked(scores);
        assert_eq!(labels.len(), 3);
        for label in labels {
            assert!((scores[label] - whole[post][label]).abs() < 1e-12, "{post}");
        }
    }
    // The requested precision is for the large model; the small one has no such graph.
    let made = model("tiny-bart-made");
    let bytes = ["--model", &made, "--precision", "int8", "--shortlist", "3"];
    let (counts, _) = scene.classify(&bytes);
    assert_eq!(count(&counts, "posts"), POSTS as u64);
    let own = "SELECT COUNT(*) AS n FROM pair_logits l JOIN models m ON m.id = l.model_id \
                WHERE m.name = 'tiny-bart-made+shortlist-3-minilm-reddit-topics'";
    assert_eq!(scene.rows(own)[0]["n"], 3 * (POSTS - 1));

    // A shortlist of every label excludes nothing and is the same as the model alone.
    let (counts, message) = scene.classify(&[&args[..], &["--shortlist", "16"]].concat());
    assert_eq!(count(&counts, "posts"), 0);
    assert!(
        message.contains("does not exclude any of the 16 labels"),
        "{message}"
    );
}

#[test]
fn an_invalid_shortlist_is_rejected_with_a_reason() {
    let database = &databases()[0];
    let scene = Scene::new(database);
    let (bart, minilm) = (model("tiny-bart-mnli"), model("minilm-reddit-topics"));
    let empty = scene.program.folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let large = ["--model", bart.as_str()];
    let misuse: [(&[&str], i32, &str); 7] = [
        (&["--shortlist", "0"], 2, "0 is not in 1.."),
        (&["--small-model", &minilm], 2, "--shortlist <K>"),
        (&["--shortlist", "4", "--dry-run"], 2, "--dry-run"),
        (
            &["--shortlist", "4", "--small-model", "nowhere"],
            5,
            "`nowhere`",
        ),
        (
            &["--shortlist", "4", "--small-model", "empty"],
            5,
            "config.json",
        ),
        (
            &["--shortlist", "4", "--small-model", &bart],
            2,
            "is both the large and the small model",
        ),
        (&["--shortlist", "4", "--model", &minilm], 2, "in one pass"),
    ];
    for (args, code, message) in misuse {
        let before = if args.contains(&"--model") {
            &[][..]
        } else {
            &large[..]
        };
        let head = ["--database", &database.url, "classify"];
        let ran = scene.program.run(&[&head[..], before, args].concat());
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
    assert!(scene.rows("SELECT 1 FROM classifications").is_empty());
}
