//! Tests posts that fit no label: the background of a pipeline file, and its effect on the store, on files, and on
//! relabelling.

use serde_json::{Value, json};

use crate::support::builders;
use crate::support::engine::repository;
use crate::support::postgres::{TestDatabase, databases, sqlite};
use crate::support::program::Program;

const GAMING: (&str, &str) = ("gaming", "video games");
const FOOD: (&str, &str) = ("food", "food and cooking");
/// The number of posts; the last has the text of the first.
const POSTS: usize = 31;

fn pipeline(settings: &str, labels: &[(&str, &str)]) -> String {
    builders::pipeline("t", settings, labels)
}

const BACKGROUND: &str = "background = \"reddit\"";

/// Returns NDJSON of posts about games, food and music. No label fits those about music.
fn posts() -> String {
    let titles = [
        "a new boss fight in this game",
        "how long to roast a chicken",
        "my band recorded a song for the album",
    ];
    let post = |i: usize| {
        let of = i % (POSTS - 1);
        json!({
            "id": format!("k{i:05}"), "title": format!("{} {of}", titles[of % 3]), "selftext": "",
            "subreddit": "gaming", "created_utc": 1_700_000_000 + i, "score": i,
        })
    };
    (0..POSTS).map(|i| format!("{}\n", post(i))).collect()
}

struct Scene {
    program: Program,
}

impl std::ops::Deref for Scene {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl Scene {
    fn new(database: &TestDatabase) -> Self {
        let program = Program::with_database(&database.url).with_default_model();
        let file = program.write("posts.ndjson", posts());
        let scene = Self { program };
        scene.ok(&["import", &file]);
        scene
    }

    /// Labels with a pipeline file and additional flags; returns the run's counts.
    fn classify(&self, file: &str, more: &[&str]) -> Value {
        self.run_counts(&[&["classify", "--pipeline", file][..], more].concat())
    }

    fn outcomes(&self) -> Value {
        self.json(&[
            "sql",
            "SELECT outcome, COUNT(*) AS posts FROM labeled_posts GROUP BY outcome ORDER BY outcome",
        ])
    }

    /// Returns the largest score difference between the first and the latest label set.
    fn apart(&self) -> f64 {
        let rows = self.json(&[
            "sql",
            "SELECT COUNT(*) AS n, MAX(ABS(a.score - b.score)) AS apart FROM label_scores a \
               JOIN label_scores b ON b.fullname = a.fullname AND b.position = a.position \
                AND b.model_id = a.model_id \
              WHERE a.label_set_id = (SELECT MIN(id) FROM label_sets) \
                AND b.label_set_id = (SELECT MAX(id) FROM label_sets)",
        ]);
        assert_eq!(rows[0]["n"], 2 * POSTS, "{rows}");
        rows[0]["apart"].as_f64().unwrap()
    }
}

#[test]
fn an_off_topic_post_is_labelled_other_on_both_databases() {
    for database in databases() {
        let scene = Scene::new(&database);
        let without = scene
            .program
            .write("bare.toml", pipeline("", &[GAMING, FOOD]));
        scene.classify(&without, &[]);
        let all = scene.outcomes();
        assert_eq!(
            all.as_array().unwrap().len(),
            2,
            "without a background, posts about music get a label: {all}"
        );

        let file = scene
            .program
            .write("with.toml", pipeline(BACKGROUND, &[GAMING, FOOD]));
        let done = scene.classify(&file, &["--make-current"]);
        // The vectors of the texts are stored, so the background needs no inference.
        assert_eq!(
            (
                &done["pairs"],
                &done["posts"],
                &done["other"],
                &done["unsure"]
            ),
            (&json!(0), &json!(POSTS), &json!(10), &json!(0))
        );
        assert_eq!(
            scene.outcomes(),
            json!([
                { "outcome": "food", "posts": 10 }, { "outcome": "gaming", "posts": 11 },
                { "outcome": "other", "posts": 10 },
            ])
        );
        let shown = scene.json(&[
            "sql",
            "SELECT (SELECT COUNT(*) FROM post_scores) AS scores, \
                    (SELECT COUNT(DISTINCT label) FROM post_scores) AS labels, \
                    (SELECT COUNT(*) FROM labeled_posts WHERE outcome = 'other' AND abstained AND label IS NULL) AS \
                    other, (SELECT COUNT(*) FROM uncertain_posts WHERE outcome = 'other' AND margin >= 0.2) AS \
                    uncertain, (SELECT CAST(SUM(posts) AS BIGINT) FROM topic_daily WHERE outcome = 'other') AS daily, \
                    (SELECT background FROM label_sets WHERE background IS NOT NULL) AS background",
        ]);
        assert_eq!(
            shown[0],
            json!({
                "scores": 2 * POSTS, "labels": 2, "other": 10, "uncertain": 0, "daily": 10, "background": "reddit@1",
            })
        );
        if database.url.starts_with("sqlite:") {
            // The closest calls are read in order from their index, without a sort.
            let plan = "EXPLAIN QUERY PLAN SELECT * FROM uncertain_posts LIMIT 20";
            let plan = scene.json(&["sql", plan]).to_string();
            assert!(plan.contains("INDEX classifications_uncertain"), "{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
            // The index on topics is used to count posts, but not to list them by time.
            let plan = |select: &str| {
                let plan = format!("EXPLAIN QUERY PLAN {select}");
                scene.json(&["sql", &plan]).to_string()
            };
            let counted = plan("SELECT * FROM topic_agreement");
            assert!(
                counted.contains("posts USING COVERING INDEX posts_counted"),
                "{counted}"
            );
            let listed = plan(
                "SELECT title FROM posts WHERE topic = 'food' ORDER BY created_at DESC LIMIT 20",
            );
            assert!(listed.contains("INDEX posts_created_at"), "{listed}");
            // A join of posts and labels does not use the index on texts.
            let joined = plan(
                "SELECT COUNT(*) FROM posts p JOIN classifications c ON c.model_id = 1 AND c.label_set_id = 1 \
                    AND c.fullname = p.fullname AND c.text_hash = p.text_hash",
            );
            assert!(!joined.contains("classifications_text"), "{joined}");
        }
        let status = scene.json(&["status"]);
        assert_eq!(
            (&status["backlog"]["other"], &status["backlog"]["unsure"]),
            (&json!(10), &json!(0))
        );
        // The stored version of the background matches the file's.
        let same = scene.ok(&["labels", "diff", "current", &file]).stdout;
        assert!(same.contains("reddit@1"), "{same}");
        let nothing = scene.classify(&file, &[]);
        assert_eq!(
            (&nothing["posts"], &nothing["pairs"]),
            (&json!(0), &json!(0))
        );
        // The earlier labels become current again and are unchanged.
        scene.classify(&without, &["--make-current"]);
        assert_eq!(scene.outcomes(), all);
    }
}

#[test]
fn stored_logits_reproduce_scores_in_each_mode_for_each_kind_of_model() {
    let nli = repository("tests/it/fixtures/models/tiny-bert-nli");
    let nli = nli.display().to_string();
    for model in [None, Some(nli.as_str())] {
        for mode in ["single", "multi"] {
            for database in databases() {
                let scene = Scene::new(&database);
                let file = pipeline(BACKGROUND, &[GAMING, FOOD]).replace("single", mode);
                let strict = file.replace("name", "threshold = 0.97\nname");
                let file = scene.program.write("with.toml", file);
                let strict = scene.program.write("strict.toml", strict);
                let model: Vec<&str> = model.iter().flat_map(|model| ["--model", *model]).collect();
                let first = scene.classify(&file, &model);
                assert_eq!(first["pairs"], 3 * (POSTS - 1), "{model:?}");
                let again = scene.classify(&strict, &model);
                assert_eq!(
                    (&again["posts"], &again["pairs"]),
                    (&json!(POSTS), &json!(0)),
                    "{model:?}"
                );
                assert!(scene.apart() < 1e-9, "{mode}, {model:?}: {}", scene.apart());
                let same = scene.json(&[
                    "sql",
                    "SELECT COUNT(*) AS posts FROM classifications a JOIN classifications b ON b.fullname = a.fullname \
                      WHERE a.label_set_id < b.label_set_id AND a.other = b.other",
                ]);
                assert_eq!(
                    same[0]["posts"], POSTS,
                    "the threshold does not decide which posts are `other`"
                );
            }
        }
    }
}

#[test]
fn a_shortlist_excludes_labels_and_keeps_the_background() {
    let nli = repository("tests/it/fixtures/models/tiny-bert-nli");
    let small = repository("models/minilm-reddit-topics");
    let database = sqlite();
    let scene = Scene::new(&database);
    let labels = [GAMING, FOOD, ("travel", "travel")];
    let file = scene
        .program
        .write("with.toml", pipeline(BACKGROUND, &labels));
    let done = scene.classify(
        &file,
        &[
            "--model",
            nli.to_str().unwrap(),
            "--shortlist",
            "1",
            "--small-model",
            small.to_str().unwrap(),
        ],
    );
    // Each text costs one pair, for its shortlisted label. The ten texts about music, and a few others, cost another
    // pair, because the small model ranks the background first.
    let pairs = done["pairs"].as_u64().unwrap();
    let texts = POSTS as u64 - 1;
    assert!((texts + 10..texts + 15).contains(&pairs), "{done}");
}

/// Runs `score` with a pipeline file; returns its rows and stderr.
fn scored(program: &Program, file: &str) -> (Vec<Value>, String) {
    let posts = program.write("posts.ndjson", posts());
    let out = program.folder.path().join("out.ndjson");
    let args = [
        "score",
        &posts,
        out.to_str().unwrap(),
        "--pipeline",
        file,
        "--overwrite",
    ];
    let ran = program.ok(&args);
    let lines = std::fs::read_to_string(&out).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (lines.collect(), ran.stderr)
}

#[test]
fn classify_file_reports_the_outcome_of_each_text() {
    let program = Program::new().with_default_model();
    let file = program.write("p.toml", pipeline(BACKGROUND, &[GAMING, FOOD]));
    let (lines, message) = scored(&program, &file);
    assert_eq!(lines.len(), POSTS);
    for (i, line) in lines.iter().enumerate() {
        let expected = ["gaming", "food", "other"][i % (POSTS - 1) % 3];
        assert_eq!(line["outcome"], expected, "{line}");
        let label = (expected != "other").then_some(expected);
        assert_eq!(
            (line["label"].as_str(), &line["abstained"]),
            (label, &json!(label.is_none()))
        );
        assert_eq!(line["scores"].as_object().unwrap().len(), 2);
    }
    assert!(
        message.contains("video games") && message.contains("food and drink"),
        "{message}"
    );
}

#[test]
fn an_invalid_background_is_rejected() {
    let program = Program::new().with_default_model();
    program.write(
        "bad.toml",
        "name = \"x\"\nversion = 1\nweight = 1.0\n[[topic]]\nlabel = \" \"\n",
    );
    program.write("blank.toml", "\n");
    for (settings, labels, message) in [
        (
            "background = \"blank.toml\"",
            &[FOOD][..],
            "the file is empty; use",
        ),
        (
            "background = \"nowhere.toml\"",
            &[FOOD],
            "(os error 2); let this user read it",
        ),
        ("background = \"redit\"", &[FOOD], "use \\\"reddit\\\""),
        ("background = \"bad.toml\"", &[FOOD], "is empty"),
        ("background = 3", &[FOOD], "a string in quotes"),
        (
            "background = \"reddit\"\nbackground_without = [\"chess\"]",
            &[FOOD],
            "there is no topic `chess`",
        ),
        (BACKGROUND, &[("other", "the rest")], "use a different slug"),
    ] {
        let file = program.write("p.toml", pipeline(settings, labels));
        let ran = program.run(&["labels", "validate", "--pipeline", &file]);
        let message = message.replace("\\\"", "\"");
        assert!(
            ran.code == 2 && ran.stderr.contains(&message),
            "{settings}: {}",
            ran.stderr
        );
    }
    let german = ("spiele", "Videospiele");
    let bare = program.write("bare.toml", pipeline(BACKGROUND, &[german]));
    let without = format!("{BACKGROUND}\nbackground_without = [\"video games\"]");
    let without = program.write("without.toml", pipeline(&without, &[german]));
    for (file, topics) in [(&bare, "34 topics"), (&without, "33 topics")] {
        let message = program
            .ok(&["labels", "validate", "--pipeline", file])
            .stderr;
        assert!(message.contains(topics), "{message}");
    }
    let none = program.write("none.toml", pipeline("background = \"none\"", &[FOOD]));
    let absent = program.write("absent.toml", pipeline("", &[FOOD]));
    let hash = |file: &str| {
        let set = program.json(&["labels", "validate", "--pipeline", file]);
        set["hash"].clone()
    };
    assert_eq!(hash(&none), hash(&absent));
}

#[test]
fn a_text_that_fits_no_command_line_label_gets_none() {
    let program = Program::new().with_default_model();
    let file = program.write(
        "texts.txt",
        "The weather is nice\nHow to roast a chicken with lemon\n",
    );
    let labels = [
        "score", &file, "-", "--label", "cooking", "--label", "football",
    ];
    let outcomes = |more: &[&str]| -> Vec<Value> {
        let ran = program.ok(&[&labels[..], more].concat());
        let rows = ran
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.map(|row| row["outcome"].clone()).collect()
    };
    assert_eq!(outcomes(&[]), ["other", "cooking"]);
    assert_eq!(outcomes(&["--background", "none"]), ["cooking", "cooking"]);
    let ran = program.run(&[&labels[..], &["--background", "nowhere.toml"]].concat());
    ran.expect_exit(2, "--background `nowhere.toml`");
}
