//! Tests `topicmill labels evaluate` on both databases.

use serde_json::{Value, json};

use crate::support::builders::{self, LABELS, pipeline};
use crate::support::engine::repository;
use crate::support::postgres::{TestDatabase, databases, sqlite};
use crate::support::program::{Program, words};

const POSTS: usize = 30;
/// The program with a database of labelled posts.
pub struct Scene<'a> {
    program: Program,
    database: &'a TestDatabase,
    pub first: String,
}

impl std::ops::Deref for Scene<'_> {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl<'a> Scene<'a> {
    pub fn new(database: &'a TestDatabase) -> Self {
        let scene = Self::unlabelled(database);
        scene.ok(&["classify", "--pipeline", &scene.first]);
        scene
    }

    /// Creates the scene before anything is labelled.
    pub fn unlabelled(database: &'a TestDatabase) -> Self {
        let program = Program::with_database(&database.url).with_default_model();
        let file = program.write("posts.ndjson", builders::lines(POSTS, POSTS));
        let first = program.write("first.toml", pipeline("first", "", &LABELS));
        let scene = Self {
            program,
            database,
            first,
        };
        scene.ok(&["import", &file]);
        scene
    }

    pub fn evaluate(&self, gold: &str, more: &[&str]) -> Value {
        self.json(&[&["labels", "evaluate", "--gold", gold], more].concat())
    }

    /// Writes a gold file with the right label for each post, or the label that `change` returns; returns its path.
    pub fn gold(&self, name: &str, change: impl Fn(usize) -> Option<&'static str>) -> String {
        let rows = (0..POSTS).map(|i| {
            let label = change(i).unwrap_or(LABELS[i % 3].0);
            format!("k{i:05},{label}\n")
        });
        let text = format!("id,label\n{}", rows.collect::<String>());
        self.program.write(name, text)
    }

    /// Sets the labels of all posts: ten of each label, correct and with a score of 0.75. Exceptions: post 0 is food
    /// with 0.95, and posts 3 and 4 have no label.
    async fn set(&self) {
        let sure = "UPDATE classifications SET score = 0.75, abstained = FALSE, label = CASE \
                      WHEN CAST(substr(fullname, 5) AS INTEGER) % 3 = 0 THEN 'gaming' \
                      WHEN CAST(substr(fullname, 5) AS INTEGER) % 3 = 1 THEN 'food' ELSE 'music' END";
        self.database.run(sure).await;
        let wrong =
            "UPDATE classifications SET score = 0.95, label = 'food' WHERE fullname = 't3_k00000'";
        self.database.run(wrong).await;
        let none = "UPDATE classifications SET score = 0.25, abstained = TRUE \
                     WHERE fullname IN ('t3_k00003', 't3_k00004')";
        self.database.run(none).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_are_compared_with_gold_in_and_out_of_scope_separately() {
    for database in databases() {
        let scene = Scene::new(&database);
        scene.set().await;
        // Post 4 is out of scope and has no label; post 5 is out of scope and labelled music.
        let gold = scene.gold("gold.csv", |i| match i {
            4 => Some("none"),
            5 => Some("OTHER"),
            6 => Some("Video Games"),
            _ => None,
        });
        let found = scene.evaluate(&gold, &[]);
        let of = &found["evaluation"];
        let count = |figure: &str| {
            (
                of[figure]["of"].as_u64().unwrap(),
                of[figure]["all"].as_u64().unwrap(),
            )
        };
        assert_eq!(found["posts"], 30);
        assert_eq!(count("outcome"), (27, 30));
        assert_eq!(count("in_scope"), (26, 28));
        assert_eq!(count("in_scope_labelled"), (27, 28));
        assert_eq!(count("coverage"), (28, 30));
        assert_eq!(count("out_of_scope"), (1, 2));
        assert_eq!(count("precision"), (26, 28));
        let f1 = |label: usize| of["labels"][label]["f1"].as_f64().unwrap();
        // Games: 8 of 10 found, no false positive. Food and music: 9 of 9 found, one false positive each.
        let expected = [16.0 / 18.0, 18.0 / 19.0, 18.0 / 19.0];
        for (label, expected) in expected.iter().enumerate() {
            assert!((f1(label) - expected).abs() < 1e-12, "{of}");
        }
        let mean = expected.iter().sum::<f64>() / 3.0;
        assert!((of["macro_f1"]["value"].as_f64().unwrap() - mean).abs() < 1e-12);
        // 27 labels with a score of 0.75, 26 of them right, and a wrong one with 0.95.
        let error = (27.0 * (26.0 / 27.0 - 0.75) + 0.95) / 28.0;
        assert!(
            (of["calibration_error"].as_f64().unwrap() - error).abs() < 1e-6,
            "{of}"
        );
        let wrong = json!({"gold": "gaming", "given": "food", "posts": 1});
        assert!(of["confusion"].as_array().unwrap().contains(&wrong), "{of}");
        for (label, share) in ["gaming", "food", "music", "(none of these)"]
            .iter()
            .zip([10.0, 9.0, 9.0, 2.0])
        {
            let of_label = found["shares"].as_array().unwrap().iter();
            let of_label: Vec<&Value> = of_label.filter(|one| one["label"] == *label).collect();
            let value = of_label[0]["estimated"]["value"].as_f64().unwrap();
            // All posts have a gold label, so the estimates are the gold labels' shares.
            assert!((value - share / 30.0).abs() < 1e-9, "{label}: {found}");
        }
        let ids: Vec<&Value> = found["wrong"]
            .as_array()
            .unwrap()
            .iter()
            .map(|post| &post["id"])
            .collect();
        assert_eq!(ids, ["t3_k00000", "t3_k00005"], "the highest score first");

        let shown = scene.ok(&["labels", "evaluate", "--gold", &gold]).stdout;
        for message in [
            "30 posts with gold labels",
            "accuracy (including none of these)",
            "out of scope: no label",
            "Each label",
            "Largest confusions",
            "Wrong labels with the highest scores",
        ] {
            assert!(shown.contains(message), "{message}: {shown}");
        }
        let csv = scene
            .ok(&["labels", "evaluate", "--gold", &gold, "--format", "csv"])
            .stdout;
        assert!(
            csv.starts_with(
                "figure,\"value, 95 %\",posts\naccuracy (including none of these),0.900 ("
            ),
            "{csv}"
        );

        // The topic that a post was collected for can serve as its gold label.
        database
            .run("UPDATE posts SET topic = CASE WHEN fullname < 't3_k00004' THEN 'food' END")
            .await;
        let found = scene.evaluate("topic", &[]);
        assert_eq!(
            (&found["posts"], &found["evaluation"]["outcome"]["of"]),
            (&json!(4), &json!(2))
        );
        // These topics are not a random sample.
        assert_eq!(found["shares"], Value::Null, "{found}");
        // With a limit of 0, no wrong post is listed.
        assert_eq!(scene.evaluate(&gold, &["--limit", "0"])["wrong"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_gold_file_is_rejected_and_unknown_posts_are_counted() {
    for database in databases() {
        let scene = Scene::new(&database);
        let write = |name: &str, text: &str| scene.program.write(name, text);
        for (name, text, message) in [
            (
                "unknown.csv",
                "id,label\nk00000,games\nk00001,sailing\n",
                "`sailing` (1 row)",
            ),
            (
                "near.csv",
                "id,label\nk00000,gamin\n",
                "did you mean `gaming`?",
            ),
            (
                "twice.csv",
                "id,label\nk00000,food\nt3_k00000,music\n",
                "`t3_k00000` is `food` in line 2, but `music` in line 3",
            ),
            ("empty.csv", "", "there are no rows"),
            ("header.csv", "id,label\n", "there are no rows"),
            (
                "nobody.csv",
                "id,label\nzz1,food\nzz2,food\n",
                "2 are not in the database",
            ),
            ("cut.ndjson", "{\"id\": \"k00000\"", "line 1"),
            ("no.parquet", "PAR1PAR1", "Parquet"),
        ] {
            let path = write(name, text);
            let ran = scene.run(&["labels", "evaluate", "--gold", &path]);
            ran.expect_exit(2, message);
            assert_eq!(ran.stdout, "", "{name}");
        }
        database.run("UPDATE posts SET topic = NULL").await;
        for (word, message) in [
            ("db", "no gold labels on which annotators agree"),
            ("topic", "no post in the database was collected for a topic"),
            ("nowhere.csv", "nowhere.csv"),
        ] {
            let ran = scene.run(&["labels", "evaluate", "--gold", word]);
            ran.expect_exit(2, message);
        }
        // Unknown and duplicate rows in a spreadsheet's TSV file are counted, reported and left out.
        let rows = "\u{feff}ID\tLabel\r\nT3_K00000\tgaming\r\nk00000\tgaming\r\nzz1\tfood\r\nk00001\tsailing\r\n";
        let path = write("some.tsv", rows);
        let args = [
            "labels",
            "evaluate",
            "--gold",
            &path,
            "--others-out-of-scope",
            "--format",
            "json",
        ];
        let ran = scene.ok(&args);
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            (&found["posts"], &found["left_out"]["unknown"]),
            (&json!(2), &json!(1))
        );
        assert_eq!(found["evaluation"]["out_of_scope"]["all"], 1);
        ran.expect_stderr_all(&["t3_zz1", "sailing", "few gold posts"]);
        let three = ["--label-set", "current"].repeat(3);
        let ran = scene.run(&[&["labels", "evaluate", "--gold", &path], &three[..]].concat());
        assert_eq!(ran.code, 2, "{}", ran.stderr);
    }
    // Without a database, and then with a database that has no labels.
    for database in databases() {
        let program = Program::new();
        let gold = program.write("gold.csv", "id,label\nk00000,food\n");
        let args = [
            "--database",
            &database.url,
            "labels",
            "evaluate",
            "--gold",
            &gold,
        ];
        assert_eq!(program.run(&args).code, 4);
        program.ok(&["--database", &database.url, "db", "create"]);
        program.run(&args).expect_exit(2, "topicmill classify");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn purged_edited_and_unlabelled_posts_are_excluded() {
    for database in databases() {
        let scene = Scene::new(&database);
        let gold = scene.gold("gold.csv", |_| None);
        let ids = scene.program.write("ids.txt", "t3_k00000\nt3_k00001\n");
        scene.ok(&["purge", "--ids", &ids]);
        let edited = scene
            .program
            .write("edited.ndjson", builders::line(2, "another title"));
        scene.ok(&["import", &edited]);
        database
            .run("UPDATE posts SET title = '', selftext = '', text_purged_at = collected_at WHERE fullname = \
                't3_k00003'")
            .await;
        database
            .run("DELETE FROM classifications WHERE fullname = 't3_k00004'")
            .await;
        let ran = scene.ok(&["labels", "evaluate", "--gold", &gold, "--format", "json"]);
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            found["left_out"],
            json!({
                "unknown": 2, "purged": 2, "examples": ["t3_k00000", "t3_k00001"], "without_text": 1, "edited": 1,
                "unlabelled": 1,
            })
        );
        assert_eq!(found["posts"], 25);
        ran.expect_stderr("unlabelled=1");
        ran.expect_stderr("purged=2");
        // The model scores the posts, and the current labels are unchanged.
        let found = scene.evaluate(&gold, &["--compute"]);
        assert_eq!(found["posts"], 27);
        assert_eq!(found["left_out"]["edited"], 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_label_sets_are_compared() {
    for database in databases() {
        let scene = Scene::new(&database);
        let gold = scene.gold("gold.csv", |i| (i % 3 == 2).then_some("none"));
        let second = pipeline("second", "", &LABELS[..2]);
        let second = scene.program.write("second.toml", second);
        let more = ["--label-set", "first", "--label-set", &second];
        let dump = "SELECT * FROM labeled_posts ORDER BY fullname";
        let before = scene.json(&["sql", dump]);

        // The second label set is computed from stored logits; once it is stored, the result is the same.
        let found = scene.evaluate(
            &gold,
            &[&more[..], &["--others-out-of-scope", "--limit", "3"]].concat(),
        );
        assert_eq!(found["a"]["label_set"]["name"], "first");
        scene.ok(&["classify", "--pipeline", &second]);
        let stored = scene.evaluate(
            &gold,
            &[
                "--label-set",
                "first",
                "--label-set",
                "second",
                "--limit",
                "3",
            ],
        );
        assert_eq!(stored["difference"], found["difference"]);
        assert_eq!(stored["differing"], found["differing"]);
        assert_eq!(
            scene.json(&["sql", dump]),
            before,
            "the views are unchanged"
        );

        // Every post about music changes its label and is still wrong: it is out of scope but labelled.
        let difference = &found["difference"];
        assert!(difference["differ"].as_u64().unwrap() >= 9, "{difference}");
        assert!(found["differing"].as_array().unwrap().len() <= 3);
        let shown = scene.ok(&words(&format!(
            "labels evaluate --gold {gold} --label-set first --label-set second"
        )));
        for message in [
            "First: first",
            "McNemar",
            "Posts that the two label differently",
        ] {
            assert!(
                shown.stdout.contains(message),
                "{message}: {}",
                shown.stdout
            );
        }
        let args = [
            "labels",
            "evaluate",
            "--gold",
            &gold,
            "--label-set",
            "first",
            "--label-set",
            "second",
        ];
        let csv = scene.ok(&[&args[..], &["--format", "csv"]].concat()).stdout;
        assert!(
            csv.starts_with("post,gold,first,second,right,title\n"),
            "{csv}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_models_are_compared_without_changing_current_labels() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let gold = scene.gold("gold.csv", |_| None);
    let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
    let tiny = tiny.to_str().unwrap();
    let dump = "SELECT * FROM labeled_posts ORDER BY fullname";
    let before = scene.json(&["sql", dump]);
    let ran = scene.run(&["labels", "evaluate", "--gold", &gold, "--model", tiny]);
    assert_eq!(
        ran.code, 2,
        "the model has labelled no post: {}",
        ran.stderr
    );
    // `--compute` stores nothing and returns the results that `classify` stores later.
    let computed = scene.evaluate(&gold, &["--model", tiny, "--compute"]);
    assert_eq!(computed["model"]["name"], "tiny-bert-nli");
    assert_eq!(computed["posts"], 30);
    let models = "SELECT COUNT(*) AS n FROM models";
    assert_eq!(scene.json(&["sql", models])[0]["n"], 1);
    let label = ["classify", "--pipeline", &scene.first, "--model", tiny];
    scene.ok(&label);
    assert_eq!(scene.json(&["sql", dump]), before);
    let models = [
        "--model",
        "minilm-reddit-topics",
        "--model",
        "tiny-bert-nli",
    ];
    let found = scene.evaluate(&gold, &models);
    assert_eq!(found["b"]["evaluation"], computed["evaluation"]);
    // Random weights are worse than the default model, and no model is better than itself.
    let better = |first: &str, second: &str| {
        let args = ["labels", "evaluate", "--gold", &gold, "--require-better"];
        scene.run(&[&args[..], &["--model", first, "--model", second]].concat())
    };
    let (shipped, random) = ("minilm-reddit-topics", "tiny-bert-nli");
    assert_eq!(better(random, shipped).code, 0);
    for second in [random, shipped] {
        let ran = better(shipped, second);
        ran.expect_exit(1, "not significantly better");
        assert!(ran.stdout.contains("McNemar"), "{}", ran.stdout);
    }
    let ran = scene.run(&["labels", "evaluate", "--gold", &gold, "--require-better"]);
    assert_eq!(
        ran.code, 2,
        "one model alone cannot be better: {}",
        ran.stderr
    );
    scene
        .run(&["labels", "evaluate", "--gold", &gold, "--model", "nobody"])
        .expect_exit(2, "tiny-bert-nli");
}
