//! Tests `topicmill labels` and its effect on the databases: versions, none-of-these answers, and the origin of
//! labels.

use serde_json::{Value, json};
use topicmill_core::table;

use crate::support::builders::{self, pipeline};
use crate::support::engine::repository;
use crate::support::postgres::sqlite;
use crate::support::program::Program;
use crate::support::terminal::on_a_terminal;

/// The version that the built-in label set had before label sets stored a temperature.
const BUILT_IN: &str = "c4682b65ea22a51920bd09d537013e7d8aef4e394bf2248125a86c366d3ddb7f";
pub const GAMING: (&str, &str) = ("gaming", "video games");
pub const FOOD: (&str, &str) = ("food", "food and cooking");
pub const MUSIC: (&str, &str) = ("music", "music");
const TRAVEL: (&str, &str) = ("travel", "travel");

/// Returns the program with posts that the default model has labelled with `first.toml`. The last has the text of the
/// first.
pub fn labelled(program: Program, posts: usize) -> Program {
    let program = program.with_default_model();
    program.import(&builders::lines(posts, posts - 1));
    program.pipeline("first", "", &[GAMING, FOOD, MUSIC]);
    program.ok("classify --pipeline first.toml");
    program
}

#[test]
fn the_built_in_label_set_is_valid_and_keeps_its_version() {
    let program = Program::new().with_default_model();
    let good = program.ok("labels validate --format json");
    let set = good.json();
    assert_eq!(
        set["hash"], BUILT_IN,
        "versions that are stored must not change"
    );
    assert_eq!(set["labels"].as_array().unwrap().len(), 16);
    let hypothesis = &set["labels"][0]["hypothesis"];
    assert_eq!(*hypothesis, "This text is about climate change.");
    assert!(set["labels"][0]["tokens"].as_u64().unwrap() > 5);
    assert_eq!(good.stderr, "", "the built-in file causes no warnings");
    program
        .run("labels validate --model nowhere")
        .expect_code(5);
}

#[test]
fn doubtful_labels_cause_warnings() {
    let program = Program::new().with_default_model();
    let doubtful = pipeline("x", "", &[("film", "movie"), ("films", "the movies")]);
    let doubtful = doubtful.replace("subreddits = [\"films\"]", "subreddits = [\"Film\"]");
    program.write("doubtful.toml", doubtful);
    program
        .ok("labels validate --pipeline doubtful.toml")
        .expect_stderr_all(&["nearly the same", "r/film is read", "no descriptions"]);
}

#[test]
fn diff_predicts_the_cost_of_classify() {
    for program in Program::on_each_database() {
        let program = labelled(program, 31);
        program.pipeline("changed", "", &[GAMING, FOOD, TRAVEL]);
        let diff = program.json("labels diff first.toml changed.toml");
        let changes = diff["labels"].as_array().unwrap().iter();
        let changes: Vec<_> = changes.map(|one| [&one["change"], &one["slug"]]).collect();
        assert_eq!(changes, [["added", "travel"], ["removed", "music"]]);
        // One new label, and 30 different texts with stored vectors.
        let cost = &diff["cost"];
        let ready = json!({
            "labelled": 0, "posts": 31, "texts": 30, "posts_without_inference": 31, "pairs_stored": 90,
            "pairs_missing": 0,
        });
        assert_eq!(*cost, ready);
        // The label of each post is known for both versions.
        let found = &diff["moved"];
        assert_eq!(
            (&found["posts"], &found["lacking"]),
            (&json!(31), &json!([0, 0]))
        );
        let counts = program.classify("--pipeline changed.toml");
        assert_eq!([&counts["posts"], &counts["pairs"]], [31, 0]);
        // Stored scores, a different threshold and a different temperature need no inference.
        let head = "threshold = 0.5\ntemperature = 2.0";
        program.pipeline("fewer", head, &[TRAVEL, MUSIC]);
        let cost = &program.json("labels diff current fewer.toml")["cost"];
        let figures = [&cost["pairs_missing"], &cost["posts_without_inference"]];
        assert_eq!(figures, [0, 31]);
        let counts = program.classify("--pipeline fewer.toml");
        assert_eq!([&counts["posts"], &counts["pairs"]], [31, 0]);
        // Versions by name, by hash prefix, and by file.
        let hash = &diff["a"]["label_set"]["hash"].as_str().unwrap()[..8];
        let by_name = program.json("labels diff first changed");
        assert_eq!(
            by_name,
            program.json(&format!("labels diff {hash} changed.toml"))
        );
        let moved = &by_name["moved"];
        assert_eq!(
            moved, found,
            "the stored labels are the ones that `diff` predicted"
        );
        let counts = moved["moves"].as_array().unwrap().iter();
        let sum: u64 = counts.map(|one| one["posts"].as_u64().unwrap()).sum();
        assert_eq!(moved["moved"], sum);
        assert!(
            sum >= 10,
            "posts about music have different labels: {moved}"
        );
        program
            .run("labels diff first nothing")
            .expect_exit(2, "(changed)");
    }
}

#[test]
fn diff_shows_which_posts_change_and_writes_nothing() {
    let program = labelled(Program::on(sqlite()), 31);
    let before = program.labelled_posts();
    program.pipeline("fewer", "temperature = 1.5", &[FOOD, MUSIC]);
    let found = program.json("labels diff current fewer.toml --limit 3");
    let moved = &found["moved"];
    assert_eq!(moved["posts"], 31);
    assert!(
        moved["moved"].as_u64().unwrap() >= 10,
        "posts about games have different labels"
    );
    let examples = moved["examples"].as_array().unwrap();
    assert_eq!(examples.len(), 3);
    assert!(examples.iter().all(|post| post["from"] != post["to"]));
    assert!(examples[0]["score"].as_f64() >= examples[2]["score"].as_f64());
    assert_eq!(program.labelled_posts(), before);
    // Posts that need inference are left out and reported.
    program.import(&builders::line(99, "a text that nobody read yet"));
    program
        .ok("labels diff current fewer.toml")
        .expect_stderr_all(&["of_first=1", "of_second=1"]);
    // A label set without labelled posts cannot be compared.
    program.ok("labels drop first --yes --current");
    program
        .run("labels diff current fewer.toml")
        .expect_exit(2, "run `topicmill classify` first");
}

/// The number of posts in the gold file, and how many are right for each label.
const GOLD: [(&str, usize); 3] = [("video games", 60), ("food", 20), ("music", 20)];

/// The factor by which the default model multiplies cosines.
fn softmax_scale() -> f64 {
    let config = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/models/minilm-reddit-topics/config.json"
    );
    let config: Value = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
    config["zero_shot"]["softmax_scale"].as_f64().unwrap()
}

/// Labels 101 posts, and writes gold answers about 100 of them and one unknown post. Each post's cosine with games is
/// 0.1 higher than with food and music.
fn with_even_logits(program: Program) -> Program {
    let program = labelled(program, 101);
    let even = "INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment) \
                SELECT v.model_id, v.text_hash, h.id, \
                       CASE WHEN h.text = 'This text is about video games.' THEN 0.1 ELSE 0 END \
                  FROM text_vectors v CROSS JOIN hypotheses h; DELETE FROM text_vectors";
    program.execute(even);
    let labels = GOLD
        .iter()
        .flat_map(|(label, n)| std::iter::repeat_n(*label, *n));
    let rows = labels
        .enumerate()
        .map(|(i, label)| format!("k{i:05},{label}\n"));
    let rows: String = rows.collect();
    program.write("gold.csv", format!("id,label\n{rows}t3_unknown,food\n"));
    program
}

const CALIBRATE: &str =
    "labels calibrate --gold gold.csv --label-set first.toml --target-precision 0.55";

#[test]
fn calibrate_recovers_the_temperature_of_generated_data() {
    for program in Program::on_each_database() {
        let program = with_even_logits(program);
        let ran = program.run(&format!("{CALIBRATE} --out out.toml --format json"));
        ran.expect_exit(0, "unknown=1");
        let found = ran.json();
        let temperature = found["temperature"].as_f64().unwrap();
        // The difference in the softmax is scale / 10 T. Games are right in 60 of 100 posts, so
        // exp(scale / 10 T) = 2 × 0.6 / 0.4, and T = scale / 10 ln 3.
        let expected = softmax_scale() / 10.0 / 3f64.ln();
        assert!((temperature - expected).abs() < 2e-4, "{temperature}");
        assert_eq!(found["threshold"], 0.0);
        assert_eq!(found["before"]["accuracy"], found["after"]["accuracy"]);
        assert!(found["before"]["calibration_error"].as_f64().unwrap() > 0.15);
        assert!(found["after"]["calibration_error"].as_f64().unwrap() < 1e-3);
        assert_eq!(found["held_out"]["accuracy"]["all"], 100);

        // The new version needs no inference, and its scores equal the share of right labels.
        let counts = program.classify("--pipeline out.toml");
        assert_eq!([&counts["posts"], &counts["pairs"]], [101, 0]);
        for end in ["MIN", "MAX"] {
            let score = program.scalar(&format!("SELECT {end}(score) FROM labeled_posts"));
            assert!((score.as_f64().unwrap() - 0.6).abs() < 1e-3, "{score}");
        }
        let stored = program.json("sql --named label-sets");
        assert_eq!(stored[0]["temperature"], temperature);
    }
}

#[test]
fn calibrate_writes_a_file_only_if_it_can_copy_one_and_reach_the_precision() {
    let program = with_even_logits(Program::on(sqlite()));
    // A stored label set has no file to copy, and the one in the settings has other labels.
    for (set, code, message) in table! {
        "first", 2, "name its pipeline file with --label-set";
        "nothing", 2, "neither a pipeline file";
        "first.toml --target-precision 0.7", 1, "nothing was written";
    } {
        let line = format!("labels calibrate --gold gold.csv --label-set {set} --out out.toml");
        program.run(&line).expect_exit(code, message);
        assert!(!program.path("out.toml").exists());
    }
    program.write("out.toml", "mine");
    let ran = program.run(&format!("{CALIBRATE} --out out.toml"));
    ran.expect_exit(2, "--overwrite");
    assert_eq!(program.read("out.toml"), "mine");
    // On a full disk, the advice is to free space, not to use a different file.
    let ran = program.run(&format!("{CALIBRATE} --out /dev/full --overwrite"));
    ran.expect_exit(1, "free some space");
    if let Some((shown, code)) = on_a_terminal(&program, 80, CALIBRATE) {
        assert_eq!(code, 0, "{shown}");
        let widest = shown.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|it| it <= 80), "{shown}");
    }
}

#[test]
fn two_models_are_compared_and_every_label_records_its_origin() {
    let program = labelled(Program::on(sqlite()), 31);
    let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
    let tiny = tiny.to_str().unwrap();
    program.ok(&["classify", "--pipeline", "first.toml", "--model", tiny]);
    let (a, b) = ("first@minilm-reddit-topics", "current@tiny-bert-nli");
    let diff = program.json(&["labels", "diff", a, b]);
    assert_eq!(diff["moved"]["posts"], 31);
    let hash = diff["b"]["model"]["manifest_hash"].as_str().unwrap();
    let by_hash = format!("first@{}", &hash[..10]);
    assert_eq!(program.json(&["labels", "diff", a, &by_hash]), diff);
    let by_folder = format!("current@{tiny}");
    let moved = program.json(&["labels", "diff", "current", &by_folder]);
    assert_eq!(moved["moved"], diff["moved"]);
    program
        .run(&["labels", "diff", a, "current@none"])
        .expect_exit(2, "tiny-bert-nli");

    let agreement = program.json("sql --named model-agreement");
    let agreement = agreement.as_array().unwrap();
    let sum = |same: bool| -> u64 {
        let rows = agreement.iter();
        let rows = rows.filter(|row| (row["later_model"] == row["earlier_model"]) == same);
        rows.map(|row| row["posts"].as_u64().unwrap()).sum()
    };
    assert_eq!(sum(true) + sum(false), 31);
    assert_eq!(diff["moved"]["moved"], sum(false));

    let labels = program.json("sql --named provenance");
    let labels = labels.as_array().unwrap();
    assert_eq!(labels.len(), 62);
    for label in labels {
        for (column, letters) in [
            ("manifest_hash", 64),
            ("tokenizer_hash", 64),
            ("label_set_hash", 64),
            ("text_hash", 32),
        ] {
            let text = label[column].as_str().unwrap();
            let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(text.len() == letters && is_hex, "{column}: {text}");
        }
        assert_eq!(label["number_format"], "fp32");
        assert_eq!(label["template"], "This text is about {}.");
        assert!(
            label["run"].is_number() && label["worker"].is_string(),
            "{label}"
        );
    }
    let of = |model: &str| {
        labels
            .iter()
            .filter(|label| label["model"] == model)
            .count()
    };
    assert_eq!((of("minilm-reddit-topics"), of("tiny-bert-nli")), (31, 31));
}

#[test]
fn none_of_these_is_stored_and_shown() {
    for program in Program::on_each_database() {
        let program = labelled(program, 31);
        let strict = pipeline("strict", "threshold = 1.0", &[GAMING, FOOD, MUSIC]);
        program.write("strict.toml", strict);
        program.classify("--pipeline strict.toml");
        let counts = program.rows(
            "SELECT COUNT(label) AS labels, COUNT(label_name) AS names, COUNT(score) AS scores \
               FROM labeled_posts WHERE abstained",
        );
        assert_eq!(counts, json!([[0, 0, 31]]));
        for (named, word) in [
            ("topics", "(none of these)"),
            ("daily", "unsure"),
            ("uncertain", "unsure"),
            ("provenance", "unsure"),
        ] {
            let shown = program.ok(&["sql", "--named", named]).stdout;
            assert!(shown.contains(word), "{named}: {shown}");
        }
        let status = program.json("status");
        assert_eq!(status["backlog"]["none_of_these"], 31);
        let moved = &program.json("labels diff first current")["moved"];
        for (key, posts) in [
            ("none_of_these_before", 0),
            ("none_of_these_after", 31),
            ("moved", 31),
        ] {
            assert_eq!(moved[key], posts, "{key}");
        }
    }
}
