//! Tests that names of label sets are unambiguous, and that the current label set changes only on request.

use serde_json::{Value, json};

use crate::labels::{FOOD, GAMING, MUSIC, labelled};
use crate::support::builders::{self, pipeline};
use crate::support::engine::repository;
use crate::support::postgres::sqlite;
use crate::support::program::{Program, finished};

const IN_ADDITION: &str = "these labels are stored in addition to the current ones";
const STILL: &str = "the views still show";

/// Returns the rows of `labels list`: name, labelled posts, and true for the current version.
fn listed(program: &Program) -> Value {
    let list = program.json("labels list");
    let rows = list.as_array().unwrap().iter();
    rows.map(|row| json!([row["label_set"], row["posts"], row["current"]]))
        .collect()
}

#[test]
fn another_label_set_is_stored_separately_until_it_is_made_current() {
    for program in Program::on_each_database() {
        let program = labelled(program, 31);
        let before = program.labelled_posts();
        program.pipeline("other", "", &[GAMING, FOOD]);
        let ran = program.ok("classify --pipeline other.toml");
        ran.expect_stderr_all(&[IN_ADDITION, STILL, "`topicmill labels use other`"]);
        // One warning says it all.
        assert_eq!(ran.stderr.matches("`first`").count(), 1, "{}", ran.stderr);
        assert_eq!(program.labelled_posts(), before);
        // Without a pipeline file, the run uses the built-in topics.
        program
            .ok("classify")
            .expect_stderr_all(&[IN_ADDITION, "`sixteen-topics`"]);
        assert_eq!(program.labelled_posts(), before);
        let expected = json!([
            ["sixteen-topics", 31, false],
            ["other", 31, false],
            ["first", 31, true]
        ]);
        assert_eq!(listed(&program), expected);
        // A daily run with the current file logs neither notice.
        let is_silent = |args: &str| {
            let message = program.ok(args).stderr;
            let notices = [IN_ADDITION, STILL];
            assert!(
                !notices.iter().any(|part| message.contains(part)),
                "{message}"
            );
        };
        is_silent("classify --pipeline first.toml");

        // Labels and scores of `other` appear only in the views that cover all label sets.
        let count = |rows: &str| program.count(rows);
        assert_eq!(count("labeled_posts_all WHERE label_set = 'other'"), 31);
        assert_eq!(count("labeled_posts_all WHERE is_current"), 31);
        assert_eq!(count("post_scores_all WHERE label_set = 'other'"), 62);
        let current = count("post_scores_all WHERE is_current");
        assert_eq!(current, count("post_scores"));
        assert_eq!(count("post_scores_all"), 31 * (16 + 2 + 3));

        program
            .ok("labels use other")
            .expect_stderr_all(&["now show", "posts=31"]);
        assert_ne!(program.labelled_posts(), before);
        assert_eq!(listed(&program)[1], json!(["other", 31, true]));
        program.ok("labels use current").expect_stderr("already");
        program.ok("labels use first.toml");
        assert_eq!(program.labelled_posts(), before);
        is_silent("classify --make-current --pipeline other.toml");
        assert_ne!(program.labelled_posts(), before);
    }
}

#[test]
fn a_file_does_not_silently_replace_a_stored_label_set() {
    let program = labelled(Program::on(sqlite()), 31);
    let stored = program.json("labels list")[0]["version"].clone();
    let version = stored.as_str().unwrap();
    let diff = "labels diff current current";
    let before = program.json(diff);
    let other = pipeline("first", "threshold = 0.5", &[GAMING, FOOD]);
    for name in ["first", &version[..6], "current"] {
        program.write(name, &other);
    }
    for word in ["first", &version[..6]] {
        for command in [
            "labels use",
            "labels export --label-set",
            "labels diff current",
        ] {
            let ran = program.run(&format!("{command} {word}"));
            ran.expect_exit(2, version);
            ran.expect_stderr(&format!("`./{word}`"));
        }
    }
    assert_eq!(program.json(diff), before);
    let of_file = &program.json("labels diff current ./first")["b"]["label_set"];
    assert_eq!(of_file["threshold"], 0.5);
    let named = program.json(&format!("labels diff current {version}"));
    assert_eq!(named, before);
}

#[test]
fn an_ambiguous_name_is_rejected_with_the_choices() {
    let program = labelled(Program::on(sqlite()), 31);
    let before = program.labelled_posts();
    let changed = pipeline("first", "threshold = 0.5", &[GAMING, FOOD, MUSIC]);
    program.write("changed.toml", changed);
    let ran = program.ok("classify --pipeline changed.toml");
    assert_eq!(program.labelled_posts(), before);
    let list = program.json("labels list");
    let versions = [0, 1].map(|i| list[i]["version"].as_str().unwrap().to_owned());
    // The command that the run suggests works as printed.
    ran.expect_stderr(&format!("`topicmill labels use {}`", versions[0]));
    for args in [
        "labels use first",
        "labels diff current first",
        "labels diff first changed.toml",
        "labels diff first@minilm-reddit-topics current",
    ] {
        let ran = program.run(args);
        ran.expect_exit(2, &versions[0]);
        ran.expect_stderr(&versions[1]);
    }
    program.ok(&["labels", "use", &versions[0][..6]]);
    let list = program.json("labels list");
    assert_eq!(
        (&list[0]["version"], &list[0]["current"]),
        (&json!(versions[0]), &json!(true))
    );
    assert_eq!(list[1]["current"], false);
    program.ok("labels use first.toml");
    assert_eq!(program.labelled_posts(), before);

    // A set without labels or an unknown one is rejected.
    program.pipeline("never", "", &[FOOD, MUSIC]);
    for (word, message) in [
        ("never.toml", "--make-current"),
        ("nothing", "neither a pipeline file"),
        ("", "neither a pipeline file"),
    ] {
        program
            .run(&["labels", "use", word])
            .expect_exit(2, message);
    }
    assert_eq!(program.labelled_posts(), before);
    let program = Program::new();
    assert_eq!(program.run("labels use current").code, 4);
    program.ok("db create");
    assert_eq!(program.run("labels use current").code, 2);
    program.ok("labels list").expect_stderr("no label set");
}

#[test]
fn labels_from_a_different_model_are_stored_separately_and_selected_by_name() {
    for program in Program::on_each_database() {
        let program = labelled(program, 31);
        let before = program.labelled_posts();
        let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
        let classify = format!("classify --pipeline first.toml --model {}", tiny.display());
        program.ok(&classify).expect_stderr_all(&[
            IN_ADDITION,
            STILL,
            "tiny-bert-nli",
            "use first --model ",
        ]);
        assert_eq!(program.labelled_posts(), before);
        // With two models, the current one is used.
        program.ok("labels use first").expect_stderr("already");
        program.ok("labels use first --model tiny-bert-nli");
        assert_ne!(program.labelled_posts(), before);
        let nobody = program.run("labels use first --model nobody");
        nobody.expect_exit(2, "minilm");
        // The current model has no labels of `other`, so `labels use` selects the model that does.
        program.pipeline("other", "", &[GAMING, FOOD]);
        program.ok("classify --pipeline other.toml");
        program.ok("labels use other");
        program.ok("labels use first");
        assert_eq!(program.labelled_posts(), before);
    }
}

#[test]
fn of_two_concurrent_first_runs_one_becomes_current_and_the_other_reports_it() {
    for program in Program::on_each_database() {
        program.import(&builders::line(1, "roast chicken"));
        let start = |name: &str, labels| {
            let file = program.pipeline(name, "", labels);
            program.spawn(&format!("classify --pipeline {file}"))
        };
        let both = [start("one", &[GAMING, FOOD]), start("two", &[MUSIC, FOOD])];
        let logs = both.map(|child| {
            let ran = finished(child.wait_with_output().unwrap());
            ran.expect_code(0);
            ran.stderr
        });
        let second = logs.iter().filter(|log| log.contains(IN_ADDITION));
        assert_eq!(second.count(), 1, "{logs:?}");
        let list = program.json("labels list");
        let list = list.as_array().unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list.iter().filter(|row| row["current"] == true).count(), 1);
        assert!(list.iter().all(|row| row["posts"] == 1), "{list:?}");
    }
}
