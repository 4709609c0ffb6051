//! Tests stored vectors: a new label set needs no inference and matches a fresh database, and no post is labelled
//! twice.

use serde_json::{Value, json};

use crate::support::builders::{self, LABELS};
use crate::support::program::{Program, finished};

const POSTS: u64 = 40;
const BACKGROUND: &str = "background = \"reddit\"";

/// Returns a pipeline file of three topics; the second has this description.
fn pipeline(settings: &str, description: &str) -> String {
    let food = "label = \"food and cooking\"\n";
    let described = format!("{food}descriptions = [\"{description}\"]\n");
    builders::pipeline("mine", settings, &LABELS).replace(food, &described)
}

/// Labels posts; returns the run's counts.
fn classify(program: &Program, settings: &str, description: &str) -> Value {
    program.write("labels.toml", pipeline(settings, description));
    program.classify("--pipeline labels.toml")
}

/// Labels posts under the first version of a label set. The first and the last have the same text.
fn labelled(program: Program) -> Program {
    let program = program.with_default_model();
    program.import(&builders::lines(40, 39));
    let counts = classify(&program, "", "Recipes and kitchens.");
    assert_eq!(counts["pairs"], 3 * (POSTS - 1));
    program
}

/// Deletes vectors and labels, labels again, and checks that the current scores are the same.
fn check_fresh(program: &Program, settings: &str, description: &str) {
    let scores = || {
        let scores = program.column("SELECT score FROM post_scores ORDER BY fullname, label");
        scores.into_iter().map(|score| score.as_f64().unwrap())
    };
    let stored = scores();
    program.execute(
        "DELETE FROM text_vectors; DELETE FROM label_vectors; DELETE FROM classifications",
    );
    let counts = classify(program, settings, description);
    assert!(counts["tokens"].as_u64() > Some(0), "{counts}");
    let fresh = scores();
    assert_eq!(fresh.len(), stored.len());
    for (fresh, stored) in fresh.zip(stored) {
        assert!((fresh - stored).abs() < 1e-5, "{fresh} is not {stored}");
    }
}

#[test]
fn changed_labels_need_no_inference_and_match_a_fresh_database() {
    let program = labelled(Program::new());
    let counts = |tables: [&str; 3]| tables.map(|table| program.count(table));
    let vectors = ["text_vectors", "label_vectors", "pair_logits"];
    assert_eq!(counts(vectors), [POSTS - 1, 3, 0]);

    program.write("labels.toml", pipeline("", "Bread and soups."));
    let dry = program.ok("classify --dry-run --pipeline labels.toml --format csv");
    let free = "posts that need no inference,40";
    assert!(dry.stdout.contains(free), "{}", dry.stdout);
    let done = classify(&program, "", "Bread and soups.");
    let done = ["posts", "pairs", "tokens"].map(|count| done[count].as_u64().unwrap());
    assert_eq!(done, [POSTS, 0, 0]);
    // One label is new.
    let tables = ["label_vectors", "backlog", "classifications"];
    assert_eq!(counts(tables), [4, 0, 2 * POSTS]);
    // Without stored vectors, the same texts are embedded again, in different batches.
    check_fresh(&program, "", "Bread and soups.");
    assert_eq!(program.count("text_vectors"), POSTS - 1);
}

/// A background has a vector for each of its topics; stored and fresh vectors yield the same scores.
#[test]
fn a_background_over_stored_vectors_matches_a_fresh_database() {
    let program = labelled(Program::new());
    program.import(&builders::line(
        90_000,
        "The senate votes on the new election law",
    ));
    classify(&program, "", "Recipes and kitchens.");
    let counts = classify(&program, BACKGROUND, "Recipes and kitchens.");
    assert_eq!(counts["tokens"], 0, "{counts}");
    // Three labels and a background.
    assert_eq!(program.count("label_vectors"), 4);
    let outcomes = || program.column("SELECT outcome FROM labeled_posts ORDER BY fullname");
    let stored = outcomes();
    assert!(stored.contains(&json!("gaming")), "{stored:?}");
    // The post about an election.
    assert_eq!(*stored.last().unwrap(), "other");
    check_fresh(&program, BACKGROUND, "Recipes and kitchens.");
    assert_eq!(outcomes(), stored);
}

#[test]
fn vectors_are_deleted_with_their_texts() {
    let program = labelled(Program::new());
    let vectors = || program.count("text_vectors");
    // The first and the last post have the same text.
    for (id, left) in [("k00000", POSTS - 1), ("k00039", POSTS - 2)] {
        program.purge(id);
        assert_eq!(vectors(), left);
    }
    program.import(&builders::line(1, "edited"));
    assert_eq!(vectors(), POSTS - 3);
    classify(&program, "", "Recipes and kitchens.");
    assert_eq!(vectors(), POSTS - 2);
    // Retention keeps labels, but nothing that could be used to reconstruct a text.
    program
        .execute("UPDATE things SET source = 'reddit', collected_at = '2020-01-01T00:00:00+00:00'");
    program.ok("purge --retention 48");
    assert_eq!(vectors(), 0);
    assert_eq!(program.count("classifications"), POSTS - 2);
    // Without a text there is no new label.
    program.write("labels.toml", pipeline("", "Other words."));
    let counts = program.classify("--pipeline labels.toml --yes");
    assert_eq!(counts["posts"], 0);
}

#[test]
fn concurrent_runs_label_each_post_once_and_a_limited_run_resumes() {
    for program in Program::on_each_database() {
        let program = labelled(program);
        program.write("labels.toml", pipeline("", "Bread."));
        let counts = program.classify("--pipeline labels.toml --limit 15");
        assert_eq!(counts["posts"], 15);
        let both = |limit: &str| {
            let running = ["one.json", "two.json"].map(|record| {
                let flags = format!("--limit {limit} --run-json {record}");
                let line = format!("classify --pipeline labels.toml {flags}");
                (program.spawn(&line), record)
            });
            running.map(|(child, record)| {
                let ran = finished(child.wait_with_output().unwrap());
                ran.expect_code(0);
                let record = program.read_json(record);
                record["counts"]["posts"].as_u64().unwrap()
            })
        };
        // Posts labelled by the other run do not count towards the limit.
        assert_eq!(both("8"), [8, 8]);
        let rest: u64 = both("1000").iter().sum();
        assert_eq!(rest, POSTS - 15 - 16);
        assert_eq!(program.count("backlog"), 0);
        let whole =
            "classifications c JOIN packed_scores s USING (fullname, model_id, label_set_id)";
        assert_eq!(program.count(whole), 2 * POSTS);
    }
}

#[test]
fn an_invalid_stored_vector_is_reported() {
    let program = labelled(Program::new());
    let set = |bytes: &str| {
        program.execute(&format!(
            "UPDATE text_vectors SET vector = x'{bytes}' \
              WHERE text_hash = (SELECT text_hash FROM things ORDER BY text_hash LIMIT 1)"
        ));
    };
    set("00");
    program.write("labels.toml", pipeline("", "Bread."));
    let ran = program.run("classify --pipeline labels.toml");
    ran.expect_exit(4, "text_vectors row");
    // A vector of a different length belongs to a different model: the text is embedded again.
    set("0000803f0100");
    assert_eq!(classify(&program, "", "Bread.")["failed"], 0);
    let left = "posts p WHERE NOT EXISTS (SELECT 1 FROM labeled_posts l \
                  WHERE l.fullname = p.fullname AND l.label IS NOT NULL)";
    assert_eq!(program.count(left), 0);
}
