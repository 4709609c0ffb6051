//! Tests `topicmill labels evaluate`.

use serde_json::{Value, json};
use topicmill_core::table;

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

#[test]
fn posts_without_a_stored_label_are_evaluated_from_stored_vectors() {
    for database in databases() {
        let scene = Scene::new(&database);
        let gold = scene.gold("gold.csv", |_| None);
        let file = scene.write("fewer.toml", pipeline("fewer", "", &LABELS[1..]));
        let classify = ["classify", "--pipeline", &file];
        scene.ok(&[&classify[..], &["--limit", "10"]].concat());
        let more = ["--label-set", "fewer", "--others-out-of-scope"];
        let partly = scene.evaluate(&gold, &more);
        assert_eq!(partly["posts"], POSTS);
        scene.ok(&classify);
        let wholly = scene.evaluate(&gold, &more);
        assert_eq!(partly["evaluation"], wholly["evaluation"]);
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
        assert_eq!(found["posts"], 30);
        for (figure, right, all) in [
            ("outcome", 27, 30),
            ("in_scope", 26, 28),
            ("in_scope_labelled", 27, 28),
            ("coverage", 28, 30),
            ("out_of_scope", 1, 2),
            ("precision", 26, 28),
        ] {
            assert_eq!(
                (&of[figure]["of"], &of[figure]["all"]),
                (&json!(right), &json!(all))
            );
        }
        // Games: 8 of 10 found, no false positive. Food and music: 9 of 9 found, one false positive each.
        let expected = [16.0 / 18.0, 18.0 / 19.0, 18.0 / 19.0];
        let mean = expected.iter().sum::<f64>() / 3.0;
        // 27 labels with a score of 0.75, 26 of them right, and a wrong one with 0.95.
        let error = (27.0 * (26.0 / 27.0 - 0.75) + 0.95) / 28.0;
        let labels = (0..3).map(|label| (&of["labels"][label]["f1"], expected[label]));
        let figures = [
            (&of["macro_f1"]["value"], mean),
            (&of["calibration_error"], error),
        ];
        for (found, expected) in labels.chain(figures) {
            assert!(
                (found.as_f64().unwrap() - expected).abs() < 1e-6,
                "{expected}: {of}"
            );
        }
        let wrong = json!({"gold": "gaming", "given": "food", "posts": 1});
        assert!(of["confusion"].as_array().unwrap().contains(&wrong), "{of}");
        // A file is not known to be a random sample. Declared as one, it gives estimates: as all posts have a gold
        // label, these are the gold labels' shares.
        assert_eq!(found["shares"], Value::Null);
        scene.ok(&["labels", "gold", "import", &gold, "--random"]);
        let sampled = scene.evaluate("db", &[]);
        let shares = sampled["shares"].as_array().unwrap().iter();
        let shares: Vec<_> = shares
            .map(|of| {
                (
                    &of["label"],
                    30.0 * of["estimated"]["value"].as_f64().unwrap(),
                )
            })
            .collect();
        let expected = [
            ("gaming", 10.0),
            ("food", 9.0),
            ("music", 9.0),
            ("(none of these)", 2.0),
        ];
        for ((label, share), expected) in shares.iter().zip(expected) {
            assert!(
                *label == expected.0 && (share - expected.1).abs() < 1e-7,
                "{shares:?}"
            );
        }
        let wrong = found["wrong"].as_array().unwrap().iter();
        let ids: Vec<&Value> = wrong.map(|post| &post["id"]).collect();
        assert_eq!(ids, ["t3_k00000", "t3_k00005"], "the highest score first");
        assert_eq!(scene.evaluate(&gold, &["--limit", "0"])["wrong"], json!([]));
        let args = ["labels", "evaluate", "--gold", &gold, "--format", "csv"];
        let csv = scene.ok(&args).stdout;
        let row = csv.lines().nth(1).unwrap();
        assert!(
            row.starts_with("accuracy (including none of these),0.900 ("),
            "{csv}"
        );

        // The topic that a post was collected for can serve as its gold label, but such posts are no random sample.
        let topics = "UPDATE things SET topic = CASE WHEN fullname < 't3_k00004' THEN 'food' END";
        database.run(topics).await;
        let found = scene.evaluate("topic", &[]);
        assert_eq!(
            (&found["posts"], &found["shares"]),
            (&json!(4), &Value::Null)
        );
        assert_eq!(found["evaluation"]["outcome"]["of"], 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_gold_file_is_rejected_and_unknown_posts_are_counted() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let evaluate = |gold: &str| scene.run(&["labels", "evaluate", "--gold", gold]);
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
        let ran = evaluate(&scene.write(name, text));
        ran.expect_exit(2, message);
        assert_eq!(ran.stdout, "", "{name}");
    }
    database.run("UPDATE things SET topic = NULL").await;
    for (word, message) in [
        ("db", "the database has no gold labels"),
        ("topic", "no post in the database was collected for a topic"),
        ("nowhere.csv", "nowhere.csv"),
    ] {
        evaluate(word).expect_exit(2, message);
    }
    // Unknown and duplicate rows in a spreadsheet's TSV file are counted, reported and left out.
    let rows = "\u{feff}ID\tLabel\r\nT3_K00000\tgaming\r\nk00000\tgaming\r\nzz1\tfood\r\nk00001\tsailing\r\n";
    scene.write("some.tsv", rows);
    let ran = scene.ok("labels evaluate --gold some.tsv --others-out-of-scope --format json");
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&found["posts"], &found["left_out"]["unknown"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(found["evaluation"]["out_of_scope"]["all"], 1);
    ran.expect_stderr_all(&["t3_zz1", "sailing", "few gold posts"]);
    let three =
        "labels evaluate --gold some.tsv --label-set first --label-set first --label-set first";
    assert_eq!(scene.run(three).code, 2);
    // Without a database, and then with a database that has no labels.
    let program = Program::new();
    program.write("gold.csv", "id,label\nk00000,food\n");
    assert_eq!(program.run("labels evaluate --gold gold.csv").code, 4);
    program.ok("db create");
    program
        .run("labels evaluate --gold gold.csv")
        .expect_exit(2, "topicmill classify");
}

#[tokio::test(flavor = "multi_thread")]
async fn purged_edited_and_unlabelled_posts_are_excluded() {
    for database in databases() {
        let scene = Scene::new(&database);
        let gold = scene.gold("gold.csv", |_| None);
        scene.write("ids.txt", "t3_k00000\nt3_k00001\n");
        scene.ok("purge --ids ids.txt");
        scene.write("edited.ndjson", builders::line(2, "another title"));
        scene.ok("import edited.ndjson");
        database
            .run("UPDATE things SET title = '', selftext = '', text_purged_at = collected_at WHERE fullname IN \
                ('t3_k00003', 't3_k00005')")
            .await;
        database
            .run("DELETE FROM classifications WHERE fullname IN ('t3_k00004', 't3_k00005')")
            .await;
        // The model scores the posts, or its stored logits do, and the current labels are unchanged.
        let found = scene.evaluate(&gold, &["--compute"]);
        assert_eq!(found["posts"], 28);
        assert_eq!(found["left_out"]["edited"], 0);
        // Without the model, only the edited post is left out: the two others without a label have stored logits.
        assert_eq!(scene.evaluate(&gold, &[])["posts"], 27);
        for table in ["pair_logits", "text_vectors"] {
            let these = "SELECT text_hash FROM posts WHERE fullname IN ('t3_k00004', 't3_k00005')";
            let forget = format!("DELETE FROM {table} WHERE text_hash IN ({these})");
            database.run(&forget).await;
        }
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
        ran.expect_stderr_all(&["unlabelled=1", "purged=2"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_label_sets_are_compared() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let gold = scene.gold("gold.csv", |i| (i % 3 == 2).then_some("none"));
    scene.write("second.toml", pipeline("second", "", &LABELS[..2]));
    let compare = |second: &str, more: &str| {
        let args = format!("--label-set first --label-set {second} --limit 3{more}");
        scene.evaluate(&gold, &words(&args))
    };
    let dump = "SELECT * FROM labeled_posts ORDER BY fullname";
    let before = scene.json(&["sql", dump]);
    // The second label set is computed from stored logits; once it is stored, the result is the same.
    let found = compare("second.toml", " --others-out-of-scope");
    assert_eq!(found["a"]["label_set"]["name"], "first");
    scene.ok("classify --pipeline second.toml");
    let stored = compare("second", "");
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
    let args =
        format!("labels evaluate --gold {gold} --label-set first --label-set second --format csv");
    let csv = scene.ok(&args).stdout;
    assert!(
        csv.starts_with("post,gold,first,second,right,title\n"),
        "{csv}"
    );
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
    let models = words("--model minilm-reddit-topics --model tiny-bert-nli");
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
