//! Tests `topicmill labels fit`: labels learn from gold answers without inference, on both databases.

use serde_json::{Value, json};

use crate::evaluate::Scene;
use crate::support::builders::{LABELS, line, pipeline};
use crate::support::postgres::{databases, sqlite};
use crate::support::program::words;

/// Returns `none` for the posts about games, which are every third one.
fn not_games(i: usize) -> Option<&'static str> {
    i.is_multiple_of(3).then_some("none")
}

/// Returns the gold labels of the first posts.
fn first(scene: &Scene<'_>, name: &str, posts: usize) -> String {
    let all = scene.read(scene.gold(name, not_games).rsplit('/').next().unwrap());
    let some: Vec<&str> = all.lines().take(posts + 1).collect();
    scene.write(name, some.join("\n"))
}

fn csv(scene: &Scene<'_>, sql: &str) -> Vec<String> {
    let ran = scene.ok(&["sql", sql, "--format", "csv"]);
    ran.stdout.lines().skip(1).map(str::to_owned).collect()
}

fn outcome(scene: &Scene<'_>, gold: &str) -> (u64, u64) {
    let found = scene.evaluate(gold, &[]);
    let of = &found["evaluation"]["outcome"];
    (of["of"].as_u64().unwrap(), of["all"].as_u64().unwrap())
}

const LABEL_OF: &str = "SELECT label, ROUND(CAST(score AS NUMERIC), 5) FROM labeled_posts WHERE fullname = 't3_k00025'";

#[tokio::test(flavor = "multi_thread")]
async fn a_fit_labels_stored_and_new_posts_by_the_gold_answers() {
    for database in databases() {
        let scene = Scene::new(&database);
        let answers = first(&scene, "answers.csv", 24);
        let all = scene.gold("all.csv", not_games);
        assert_eq!(outcome(&scene, &all), (20, 30), "the words alone");

        let fit = ["labels", "fit", "--gold", &answers, "--make-current"];
        let found = scene.json(&fit);
        assert_eq!((&found["answers"], &found["none"]), (&json!(24), &json!(8)));
        assert!(found["gain"][0].as_f64().unwrap() > 0.1, "{found}");
        assert_eq!(
            outcome(&scene, &all),
            (30, 30),
            "also the six posts without an answer"
        );

        // The stored fit reads back as the same version; otherwise later posts would get another label set.
        let read = scene.evaluate(&all, &[]);
        assert_eq!(read["label_set"]["hash"], found["hash"]);

        // A new post gets a fitted label from the same pipeline file.
        let new = scene.write("new.ndjson", line(30, "a new boss fight in this game 30"));
        scene.ok(&["import", &new]);
        let ran = scene.ok(&["classify", "--pipeline", &scene.first]);
        ran.expect_stderr("labelling with `first-fit24`");
        let label = csv(
            &scene,
            "SELECT abstained FROM classifications WHERE fullname = 't3_k00030'",
        );
        assert!(["1", "true"].contains(&label[0].as_str()), "{label:?}");

        // The engine and the stored vector give the same score.
        let stored = csv(&scene, LABEL_OF);
        database
            .run("DELETE FROM classifications WHERE fullname = 't3_k00025'")
            .await;
        database
            .run("DELETE FROM text_vectors WHERE text_hash = (SELECT text_hash FROM posts WHERE fullname = 't3_k00025')")
            .await;
        let counts = scene.run_counts(&["classify", "--pipeline", &scene.first]);
        assert_eq!(counts["posts"], 1, "{counts}");
        assert_eq!(csv(&scene, LABEL_OF), stored);

        // A fit always starts from the label words, so a fit to the same answers is the same version.
        let again = scene.json(&fit);
        assert_eq!(again["hash"], found["hash"]);
        assert_eq!(again["before"], found["before"]);

        // Once the labels of the file change, its words apply again.
        let changed = pipeline("first", "", &[LABELS[0], LABELS[1], ("music", "songs")]);
        let changed = scene.write("first.toml", changed);
        let ran = scene.ok(&["classify", "--pipeline", &changed]);
        ran.expect_stderr("the labels of `first` have changed since they were fitted");
    }
}

#[test]
fn a_fit_that_is_not_current_changes_no_label() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let answers = first(&scene, "answers.csv", 24);
    let before = csv(
        &scene,
        "SELECT fullname, label, score FROM labeled_posts ORDER BY fullname",
    );
    let ran = scene.ok(&words(&format!(
        "labels fit --gold {answers} --target-precision 0.9"
    )));
    ran.expect_stderr("stored as `first-fit24`");
    let after = csv(
        &scene,
        "SELECT fullname, label, score FROM labeled_posts ORDER BY fullname",
    );
    assert_eq!(after, before);
    // The training data is recorded with the fit.
    let kept = csv(
        &scene,
        "SELECT fitted FROM label_sets WHERE name = 'first-fit24'",
    )
    .remove(0);
    let kept: Value = serde_json::from_str(&kept[1..kept.len() - 1].replace("\"\"", "\"")).unwrap();
    assert_eq!(kept["provenance"]["answers"], 24);
    // A fit that is not current can be selected by name.
    scene.ok(&[
        "labels",
        "fit",
        "--gold",
        &answers,
        "--label-set",
        "first",
        "--make-current",
    ]);
    assert_eq!(outcome(&scene, &scene.gold("all.csv", not_games)), (30, 30));
}

#[test]
fn a_purged_post_leaves_the_labels_of_others_and_no_id_in_the_fit() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let answers = first(&scene, "answers.csv", 24);
    scene.ok(&["labels", "gold", "import", &answers, "--reviewer", "ada"]);
    scene.ok(&["labels", "fit", "--make-current"]);
    let others = "SELECT fullname, label, score FROM labeled_posts WHERE fullname <> 't3_k00001' ORDER BY fullname";
    let before = csv(&scene, others);
    let ids = scene.write("ids.txt", "t3_k00001\n");
    scene.ok(&["purge", "--ids", &ids]);
    let counts = scene.run_counts(&["classify", "--pipeline", &scene.first]);
    assert_eq!(counts["posts"], 0, "{counts}");
    assert_eq!(csv(&scene, others), before);
    let kept = csv(
        &scene,
        "SELECT fitted FROM label_sets WHERE fitted IS NOT NULL",
    );
    assert!(!kept[0].contains("k00001"), "{kept:?}");
    assert!(
        kept[0].contains("ada"),
        "the annotator is recorded: {kept:?}"
    );
    // The next fit goes without the purged post.
    let again = scene.json(&["labels", "fit", "--make-current"]);
    assert_eq!(again["answers"], 23);
}

#[test]
fn unusable_answers_are_rejected_and_named() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let few = first(&scene, "few.csv", 3);
    let alike = scene.gold("alike.csv", |_| Some("none"));
    let right = scene.gold("right.csv", |_| None);
    for (gold, code, message) in [
        ("topic", 2, "is not a gold label"),
        ("db", 2, "no gold labels on which annotators agree"),
        (
            few.as_str(),
            2,
            "3 different texts have answers; at least 5 are needed",
        ),
        (alike.as_str(), 2, "all 30 answers are the same"),
        ("nothing.csv", 2, "nothing.csv"),
    ] {
        scene
            .run(&["labels", "fit", "--gold", gold])
            .expect_exit(code, message);
    }
    let share = [
        "labels",
        "fit",
        "--gold",
        &right,
        "--target-precision",
        "1.5",
    ];
    scene.run(&share).expect_exit(2, "1.5 is not a share");
    let sets = csv(&scene, "SELECT COUNT(*) FROM label_sets");
    assert_eq!(sets, ["1"], "nothing is stored");
}
