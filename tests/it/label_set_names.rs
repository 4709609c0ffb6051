//! Tests that names of label sets are unambiguous, and that the current label set changes only on request.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::labels::{FOOD, GAMING, MUSIC, Scene};
use crate::support::builders::pipeline;
use crate::support::engine::repository;
use crate::support::postgres::{databases, sqlite};
use crate::support::program::Program;

const IN_ADDITION: &str = "these labels are stored in addition to the current ones";
const STILL: &str = "the views still show";

/// Returns the rows of `labels list`: name, labelled posts, and true for the current version.
fn listed(scene: &Scene) -> Vec<(String, u64, bool)> {
    let list = scene.json(&["labels", "list"]);
    let row = |row: &Value| {
        let name = row["label_set"].as_str().unwrap().to_owned();
        let posts = row["posts"].as_u64().unwrap();
        (name, posts, row["current"].as_bool().unwrap())
    };
    list.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn another_label_set_is_stored_separately_until_it_is_made_current() {
    for database in databases() {
        let scene = Scene::new(&database, 31);
        let before = scene.dump();
        let other = pipeline("other", "", &[GAMING, FOOD]);
        let other = scene.program.write("other.toml", other);
        let message = scene.ok(&["classify", "--pipeline", &other]).stderr;
        for part in [
            IN_ADDITION,
            STILL,
            "`other`",
            "`first`",
            "`topicmill labels use other`",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        // One warning says it all.
        assert_eq!(message.matches("`first`").count(), 1, "{message}");
        assert_eq!(scene.dump(), before);
        // Without a pipeline file, the run uses the built-in topics.
        let message = scene.ok(&["classify"]).stderr;
        assert!(message.contains(IN_ADDITION) && message.contains("`sixteen-topics`"));
        assert_eq!(scene.dump(), before);
        let stored = |name: &str, posts, is_current| (name.to_owned(), posts, is_current);
        assert_eq!(
            listed(&scene),
            [
                stored("sixteen-topics", 31, false),
                stored("other", 31, false),
                stored("first", 31, true)
            ]
        );
        // A daily run with the current file logs neither notice.
        let message = scene.ok(&["classify", "--pipeline", &scene.first]).stderr;
        assert!(
            !message.contains(IN_ADDITION) && !message.contains(STILL),
            "{message}"
        );

        // Labels and scores of `other` appear only in the views that cover all label sets.
        let count = |of: &str| {
            let sql = format!("SELECT COUNT(*) AS n FROM {of}");
            scene.json(&["sql", &sql])[0]["n"].as_u64().unwrap()
        };
        assert_eq!(count("labeled_posts_all WHERE label_set = 'other'"), 31);
        assert_eq!(count("labeled_posts_all WHERE is_current"), 31);
        assert_eq!(count("post_scores_all WHERE label_set = 'other'"), 62);
        assert_eq!(
            count("post_scores_all WHERE is_current"),
            count("post_scores")
        );
        assert_eq!(count("post_scores_all"), 31 * (16 + 2 + 3));

        let message = scene.ok(&["labels", "use", "other"]).stderr;
        assert!(
            message.contains("now show") && message.contains("posts=31"),
            "{message}"
        );
        assert_ne!(scene.dump(), before);
        assert_eq!(listed(&scene)[1], stored("other", 31, true));
        let message = scene.ok(&["labels", "use", "current"]).stderr;
        assert!(message.contains("already"), "{message}");
        scene.ok(&["labels", "use", &scene.first]);
        assert_eq!(scene.dump(), before);
        let make = ["classify", "--make-current", "--pipeline", &other];
        let message = scene.ok(&make).stderr;
        assert!(
            !message.contains(IN_ADDITION) && !message.contains(STILL),
            "{message}"
        );
        assert_ne!(scene.dump(), before);
    }
}

#[test]
fn an_ambiguous_name_is_rejected_with_the_choices() {
    let database = sqlite();
    let scene = Scene::new(&database, 31);
    let before = scene.dump();
    let changed = pipeline("first", "threshold = 0.5", &[GAMING, FOOD, MUSIC]);
    let changed = scene.program.write("changed.toml", changed);
    let message = scene.ok(&["classify", "--pipeline", &changed]).stderr;
    assert!(
        message.contains("show the labels of `first` (version"),
        "{message}"
    );
    assert_eq!(scene.dump(), before);
    let list = scene.json(&["labels", "list"]);
    let versions = [0, 1].map(|i| list[i]["version"].as_str().unwrap().to_owned());
    // The command that the run suggests works as printed.
    let output = format!("`topicmill labels use {}`", versions[0]);
    assert!(message.contains(&output), "{message}");
    for words in [
        &["labels", "use", "first"][..],
        &["labels", "diff", "current", "first"],
        &["labels", "diff", "first", &changed],
        &["labels", "diff", "first@minilm-reddit-topics", "current"],
    ] {
        let ran = scene.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {}", ran.stderr);
        let names_both = versions.iter().all(|version| ran.stderr.contains(version));
        assert!(names_both, "{words:?}: {}", ran.stderr);
    }
    scene.ok(&["labels", "use", &versions[0][..6]]);
    let list = scene.json(&["labels", "list"]);
    let current = |i: usize| {
        (
            list[i]["version"] == versions[0],
            list[i]["current"] == true,
        )
    };
    assert!(
        [0, 1].map(current).iter().all(|(meant, is)| meant == is),
        "{list}"
    );
    scene.ok(&["labels", "use", &scene.first]);
    assert_eq!(scene.dump(), before);

    // A set without labels or an unknown one is rejected.
    let never = pipeline("never", "", &[FOOD, MUSIC]);
    let never = scene.program.write("never.toml", never);
    for (word, message) in [
        (never.as_str(), "--make-current"),
        ("nothing", "neither a pipeline file"),
        ("", "neither a pipeline file"),
    ] {
        let ran = scene.run(&["labels", "use", word]);
        ran.expect_exit(2, message);
    }
    assert_eq!(scene.dump(), before);
    let program = Program::new();
    let ran = program.run(&["--database", "sqlite:no.db", "labels", "use", "x"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    program.ok(&["db", "create"]);
    let ran = program.run(&["labels", "use", "current"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    program
        .ok(&["labels", "list"])
        .expect_stderr("no label set");
}

#[test]
fn labels_from_a_different_model_are_stored_separately_and_selected_by_name() {
    for database in databases() {
        let scene = Scene::new(&database, 31);
        let before = scene.dump();
        let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
        let tiny = ["--model", tiny.to_str().unwrap()];
        let classify = ["classify", "--pipeline", &scene.first];
        let message = scene.ok(&[&classify[..], &tiny].concat()).stderr;
        for part in [
            IN_ADDITION,
            STILL,
            "this run uses the model tiny-bert-nli",
            "use first --model ",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert_eq!(scene.dump(), before);
        // With two models, the current one is used.
        let message = scene.ok(&["labels", "use", "first"]).stderr;
        assert!(message.contains("already"), "{message}");
        scene.ok(&["labels", "use", "first", "--model", "tiny-bert-nli"]);
        assert_ne!(scene.dump(), before);
        scene
            .run(&["labels", "use", "first", "--model", "nobody"])
            .expect_exit(2, "minilm");
        let other = pipeline("other", "", &[GAMING, FOOD]);
        let other = scene.program.write("other.toml", other);
        // The current model has no labels of `other`, so `labels use` selects the model that does.
        scene.ok(&["classify", "--pipeline", &other]);
        scene.ok(&["labels", "use", "other"]);
        scene.ok(&["labels", "use", "first"]);
        assert_eq!(scene.dump(), before);
    }
}

#[test]
fn of_two_concurrent_first_runs_one_becomes_current_and_the_other_reports_it() {
    for database in databases() {
        let program = Program::new();
        let url = ["--database", database.url.as_str()];
        let post = json!({"id": "new1", "title": "roast chicken", "selftext": "", "subreddit": "food",
            "created_utc": 1_700_000_000});
        let posts = program.write("posts.ndjson", post.to_string());
        program.ok(&[&url[..], &["import", &posts]].concat());
        let start = |name: &str, labels| {
            let file = program.write(&format!("{name}.toml"), pipeline(name, "", labels));
            let args = [&url[..], &["classify", "--pipeline", &file]].concat();
            let mut command = program.command(&args);
            command
                .stderr(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        let both = [start("one", &[GAMING, FOOD]), start("two", &[MUSIC, FOOD])];
        let message = both.map(|child| {
            let ended = child.wait_with_output().unwrap();
            let message = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(0), "{message}");
            message
        });
        let second = message
            .iter()
            .filter(|message| message.contains(IN_ADDITION))
            .count();
        assert_eq!(second, 1, "{message:?}");
        let list = program.ok(&[&url[..], &["labels", "list", "--format", "json"]].concat());
        let list: Value = serde_json::from_str(&list.stdout).unwrap();
        let list = list.as_array().unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list.iter().filter(|row| row["current"] == true).count(), 1);
        assert!(list.iter().all(|row| row["posts"] == 1), "{list:?}");
    }
}

#[test]
fn a_purged_post_is_in_no_view() {
    for database in databases() {
        let scene = Scene::new(&database, 31);
        scene.ok(&["classify"]);
        let ids = scene.program.write("ids.txt", "t3_k00003\n");
        scene.ok(&["purge", "--ids", &ids]);
        for view in [
            "labeled_posts",
            "labeled_posts_all",
            "post_scores",
            "post_scores_all",
        ] {
            let rows = format!("SELECT fullname FROM {view} WHERE fullname = 't3_k00003'");
            assert_eq!(scene.json(&["sql", &rows]), json!([]), "{view}");
        }
    }
}

#[test]
fn the_schema_is_shown_without_a_database() {
    let program = Program::new();
    let none = [
        "--database",
        "sqlite:no/such/folder/x.db",
        "sql",
        "--schema",
    ];
    let shown = program.ok(&none).stdout;
    for name in [
        "labeled_posts_all",
        "post_scores_all",
        "sightings",
        "view",
        "table",
    ] {
        assert!(shown.contains(name), "{name}: {shown}");
    }
    let json = |more: &[&str]| -> Value {
        let ran = program.ok(&[&none[..], more, &["--format", "json"]].concat());
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let all = json(&[]);
    assert!(all.as_array().unwrap().len() > 25);
    let posts = json(&["Posts"]);
    let column = |name: &str| {
        let mut columns = posts["columns"].as_array().unwrap().iter();
        columns.find(|column| column["name"] == name).cloned()
    };
    let score = column("reddit_score").unwrap();
    assert_eq!(
        (&score["type"], &score["may_be_null"]),
        (&json!("integer"), &json!(true))
    );
    assert!(column("score").is_none());
    let ran = program.run(&[&none[..], &["label_post"]].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    ran.expect_stderr("`labeled_posts`");
    assert_eq!(program.run(&["sql", "--schema", "posts", "--list"]).code, 2);
}
