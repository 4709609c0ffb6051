//! Tests stored vectors: a new label set needs no inference and matches a fresh database, and no post is labelled
//! twice.

use std::cell::Cell;

use serde_json::{Value, json};

use crate::support::builders;
use crate::support::postgres::{TestDatabase, databases};
use crate::support::program::{Program, finished, words};

const POSTS: usize = 40;

/// Returns a pipeline file of three topics; the second has this description.
fn pipeline(description: &str) -> String {
    format!(
        "name = \"mine\"\nmode = \"single\"\n\
         [[topic]]\nslug = \"gaming\"\nlabel = \"video games\"\nsubreddits = [\"gaming\"]\n\
         [[topic]]\nslug = \"food\"\nlabel = \"food and cooking\"\ndescriptions = [\"{description}\"]\n\
         subreddits = [\"food\"]\n\
         [[topic]]\nslug = \"music\"\nlabel = \"music\"\nsubreddits = [\"music\"]\n"
    )
}

/// A program and a database with posts labelled under the first version of a label set.
struct Scene<'a> {
    program: Program,
    database: &'a TestDatabase,
    /// The settings at the top of the pipeline files.
    background: Cell<&'static str>,
}

impl std::ops::Deref for Scene<'_> {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl<'a> Scene<'a> {
    fn new(database: &'a TestDatabase) -> Self {
        let program = Program::with_database(&database.url).with_default_model();
        let background = Cell::new("");
        let scene = Self {
            program,
            database,
            background,
        };
        let file = scene
            .program
            .write("posts.ndjson", builders::lines(POSTS, POSTS - 1));
        scene.ok(&["import", &file]);
        let counts = scene.classify("Recipes and kitchens.");
        assert_eq!(
            counts["pairs"],
            3 * (POSTS - 1),
            "the first and the last post have the same text"
        );
        scene
    }

    fn file(&self, description: &str) -> String {
        let background = self.background.get();
        self.program.write(
            "labels.toml",
            format!("{background}{}", pipeline(description)),
        )
    }

    /// Labels; returns the run's counts.
    fn classify(&self, description: &str) -> Value {
        self.classify_some(description, &[])
    }

    fn classify_some(&self, description: &str, more: &[&str]) -> Value {
        let file = self.file(description);
        let args = ["classify", "--pipeline", &file, "--make-current"];
        self.run_counts(&[&args[..], more].concat())
    }

    fn rows(&self, sql: &str) -> Vec<String> {
        let ran = self.ok(&["sql", sql, "--format", "csv"]);
        ran.stdout.lines().skip(1).map(str::to_owned).collect()
    }

    fn count(&self, what: &str) -> String {
        self.rows(&format!("SELECT COUNT(*) FROM {what}")).remove(0)
    }

    /// Returns every score of the current label set.
    fn scores(&self) -> Vec<f64> {
        self.rows("SELECT score FROM post_scores ORDER BY fullname, label")
            .iter()
            .map(|score| score.parse().unwrap())
            .collect()
    }
}

#[tokio::test]
async fn changed_labels_need_no_inference_and_match_a_fresh_database() {
    for database in databases() {
        let scene = Scene::new(&database);
        assert_eq!(scene.count("text_vectors"), (POSTS - 1).to_string());
        assert_eq!(scene.count("label_vectors"), "3");
        assert_eq!(scene.count("pair_logits"), "0");

        let file = scene.file("Bread and soups.");
        let dry = scene.ok(&words(&format!(
            "classify --dry-run --pipeline {file} --format csv"
        )));
        assert!(
            dry.stdout.contains("posts that need no inference,40"),
            "{}",
            dry.stdout
        );
        let counts = scene.classify("Bread and soups.");
        assert_eq!(
            (&counts["posts"], &counts["pairs"]),
            (&json!(POSTS), &json!(0))
        );
        assert_eq!(counts["tokens"], 0, "{counts}");
        assert_eq!(scene.count("label_vectors"), "4", "one label is new");
        assert_eq!(scene.count("backlog"), "0");
        assert_eq!(scene.count("classifications"), (2 * POSTS).to_string());
        let stored = scene.scores();

        // Without stored vectors, the same texts are embedded again, in different batches.
        scene
            .database
            .run("DELETE FROM text_vectors; DELETE FROM label_vectors; DELETE FROM classifications")
            .await;
        let counts = scene.classify("Bread and soups.");
        assert!(counts["tokens"].as_u64() > Some(0), "{counts}");
        let fresh = scene.scores();
        assert_eq!(fresh.len(), stored.len());
        for (fresh, stored) in fresh.iter().zip(&stored) {
            assert!((fresh - stored).abs() < 1e-5, "{fresh} is not {stored}");
        }
        assert_eq!(scene.count("text_vectors"), (POSTS - 1).to_string());
    }
}

/// A background has a vector for each of its topics; stored and fresh vectors yield the same scores.
#[tokio::test]
async fn a_background_over_stored_vectors_matches_a_fresh_database() {
    for database in databases() {
        let scene = Scene::new(&database);
        let file = scene.program.write(
            "elsewhere.ndjson",
            "{\"id\":\"v90000\",\"title\":\"The senate votes on the new election law\",\"selftext\":\"\",\
             \"subreddit\":\"gaming\",\"created_utc\":1700009999,\"score\":1}\n",
        );
        scene.ok(&["import", &file]);
        scene.classify("Recipes and kitchens.");
        scene.background.set("background = \"reddit\"\n");
        let counts = scene.classify("Recipes and kitchens.");
        assert_eq!(counts["tokens"], 0, "{counts}");
        assert_eq!(
            scene.count("label_vectors"),
            "4",
            "three labels and a background"
        );
        let outcomes =
            || scene.rows("SELECT fullname, outcome FROM labeled_posts ORDER BY fullname");
        let (stored, stored_outcomes) = (scene.scores(), outcomes());
        assert!(
            stored_outcomes.contains(&"t3_v90000,other".to_owned()),
            "{stored_outcomes:?}"
        );
        assert!(stored_outcomes.iter().any(|row| row.ends_with(",gaming")));
        scene
            .database
            .run("DELETE FROM text_vectors; DELETE FROM label_vectors; DELETE FROM classifications")
            .await;
        let counts = scene.classify("Recipes and kitchens.");
        assert!(counts["tokens"].as_u64() > Some(0), "{counts}");
        assert_eq!(outcomes(), stored_outcomes);
        let fresh = scene.scores();
        assert_eq!(fresh.len(), stored.len());
        for (fresh, stored) in fresh.iter().zip(&stored) {
            assert!((fresh - stored).abs() < 1e-5, "{fresh} is not {stored}");
        }
    }
}

#[tokio::test]
async fn vectors_are_deleted_with_their_texts() {
    for database in databases() {
        let scene = Scene::new(&database);
        // The first and the last post have the same text.
        let ids = scene.program.write("ids", "k00000\n");
        scene.ok(&["purge", "--ids", &ids]);
        assert_eq!(scene.count("text_vectors"), (POSTS - 1).to_string());
        let last = format!("k{:05}\n", POSTS - 1);
        let ids = scene.program.write("ids", last);
        scene.ok(&["purge", "--ids", &ids]);
        assert_eq!(scene.count("text_vectors"), (POSTS - 2).to_string());
        let edited = json!({
            "id": "k00001", "title": "edited", "selftext": "", "subreddit": "gaming",
            "created_utc": 1_700_000_001, "score": 1,
        });
        let file = scene.program.write("edited.ndjson", format!("{edited}\n"));
        scene.ok(&["import", &file]);
        assert_eq!(scene.count("text_vectors"), (POSTS - 3).to_string());
        scene.classify("Recipes and kitchens.");
        assert_eq!(scene.count("text_vectors"), (POSTS - 2).to_string());
        // Retention keeps labels, but nothing that could be used to reconstruct a text.
        scene
            .database
            .run("UPDATE posts SET collected_at = '2020-01-01T00:00:00+00:00'")
            .await;
        scene.ok(&["purge", "--retention", "48"]);
        assert_eq!(scene.count("text_vectors"), "0");
        assert_eq!(scene.count("classifications"), (POSTS - 2).to_string());
        assert_eq!(
            scene.classify("Other words.")["posts"],
            0,
            "no text, no label"
        );
        // Deleting a model deletes its vectors.
        scene.database.run("DELETE FROM models").await;
        assert_eq!(scene.count("label_vectors"), "0");
    }
}

#[tokio::test]
async fn concurrent_runs_label_each_post_once_and_a_limited_run_resumes() {
    for database in databases() {
        let scene = Scene::new(&database);
        let counts = scene.classify_some("Bread.", &["--limit", "15"]);
        assert_eq!(counts["posts"], 15);
        let file = scene.file("Bread.");
        let records = ["one.json", "two.json"].map(|name| scene.program.folder.path().join(name));
        let spawn = |record: &std::path::PathBuf, limit: &str| {
            let args = [
                "classify",
                "--pipeline",
                &file,
                "--limit",
                limit,
                "--run-json",
            ];
            let mut command = scene.program.command(&args);
            let piped = std::process::Stdio::piped;
            command
                .arg(record)
                .stdout(piped())
                .stderr(piped())
                .spawn()
                .unwrap()
        };
        let both = |limit: &str| {
            let running = records.each_ref().map(|record| spawn(record, limit));
            let counted = |(child, record): (std::process::Child, &std::path::PathBuf)| {
                let ran = finished(child.wait_with_output().unwrap());
                assert_eq!(ran.code, 0, "{}", ran.stderr);
                let record = std::fs::read_to_string(record).unwrap();
                let record: Value = serde_json::from_str(&record).unwrap();
                record["counts"]["posts"].as_u64().unwrap()
            };
            running
                .into_iter()
                .zip(&records)
                .map(counted)
                .collect::<Vec<u64>>()
        };
        // Posts labelled by the other run do not count towards the limit.
        assert_eq!(both("8"), [8, 8], "{}", database.url);
        let rest: u64 = both("1000").iter().sum();
        assert_eq!(rest, POSTS as u64 - 15 - 16, "{}", database.url);
        assert_eq!(scene.count("backlog"), "0");
        let whole =
            "classifications c JOIN packed_scores s USING (fullname, model_id, label_set_id)";
        assert_eq!(scene.count(whole), (2 * POSTS).to_string());
    }
}

#[tokio::test]
async fn an_invalid_stored_vector_is_reported() {
    for database in databases() {
        let scene = Scene::new(&database);
        let (empty, short) = if database.url.starts_with("sqlite") {
            ("x'00'", "x'0000803f0100'")
        } else {
            ("'\\x00'", "'\\x0000803f0100'")
        };
        let one = "(SELECT text_hash FROM posts ORDER BY text_hash LIMIT 1)";
        scene
            .database
            .run(&format!(
                "UPDATE text_vectors SET vector = {empty} WHERE text_hash = {one}"
            ))
            .await;
        let ran = scene.run(&["classify", "--pipeline", &scene.file("Bread.")]);
        ran.expect_exit(4, "read text_vectors row");
        ran.expect_stderr("delete the row");
        // A vector of a different length belongs to a different model: the text is embedded again.
        scene
            .database
            .run(&format!(
                "UPDATE text_vectors SET vector = {short} WHERE text_hash = {one}"
            ))
            .await;
        let counts = scene.classify("Bread.");
        assert_eq!(counts["failed"], 0, "{counts}");
        let left = "posts p WHERE NOT EXISTS (SELECT 1 FROM labeled_posts l \
                      WHERE l.fullname = p.fullname AND l.label IS NOT NULL)";
        assert_eq!(scene.count(left), "0");
    }
}
