//! Tests gold labels that cannot be fitted, and damaged fits.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_fit_can_be_listed_dropped_and_replaced() {
    for database in databases() {
        let scene = Scene::new(&database);
        let answers = first(&scene, "answers.csv", 24);
        let fit = ["labels", "fit", "--gold", &answers, "--make-current"];
        let damage = if database.url.starts_with("sqlite") {
            "UPDATE label_sets SET fitted = json_remove(fitted, '$.labels[0].weights[0]') WHERE fitted IS NOT NULL"
        } else {
            "UPDATE label_sets SET fitted = fitted #- '{labels,0,weights,0}' WHERE fitted IS NOT NULL"
        };
        let names = || csv(&scene, "SELECT name FROM label_sets ORDER BY name");
        let sql = "SELECT name FROM label_sets s JOIN current_target t ON t.label_set_id = s.id";
        let current = || csv(&scene, sql);
        let version = scene.json(&fit)["hash"].as_str().unwrap()[..12].to_owned();
        database.run(damage).await;

        let remedy = format!("`topicmill labels drop {version}`");
        for command in [
            "labels use first-fit24",
            "labels fit",
            "report out.html",
            &format!("classify --pipeline {}", scene.first),
        ] {
            let ran = scene.run(command);
            ran.expect_exit(4, &format!("`first-fit24` (version {version})"));
            ran.expect_stderr(&remedy);
        }
        let listed = scene.json("labels list");
        assert_eq!(listed[0]["label_set"], "first-fit24", "{listed}");
        assert_eq!(listed[0]["current"], true, "{listed}");
        scene
            .ok("status")
            .expect_stderr("the quality of the labels is unknown");
        let checked = scene.run("db check");
        assert!(checked.stdout.contains("first-fit24"), "{}", checked.stdout);

        // A damaged fit can be dropped after another label set has become current.
        scene
            .run("labels drop first-fit24 --yes")
            .expect_exit(2, "the views show its labels");
        scene.ok("labels use first");
        scene.ok("labels drop first-fit24 --yes");
        assert_eq!(names(), ["first"]);

        // A damaged fit can be replaced by the same fit or by the labels in the file, and dropped while it is current.
        scene.ok(&fit);
        database.run(damage).await;
        scene.ok(&[&fit[..], &["--label-set", "first"]].concat());
        assert_eq!(current(), ["first-fit24"]);
        scene.ok("report out.html");
        database.run(damage).await;
        scene
            .ok(&["classify", "--pipeline", &scene.first, "--make-current"])
            .expect_stderr("without a fit");
        assert_eq!(current(), ["first"]);
        database.run("UPDATE current_target SET label_set_id = (SELECT id FROM label_sets WHERE fitted IS NOT \
            NULL)").await;
        scene.ok(&["labels", "drop", &version, "--yes", "--current"]);
        assert_eq!(names(), ["first"]);
    }
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
        ("db", 2, "the database has no gold labels"),
        (few.as_str(), 2, "3 different texts have answers"),
        (alike.as_str(), 2, "all 30 answers are the same"),
        ("nothing.csv", 2, "nothing.csv"),
    ] {
        scene
            .run(&["labels", "fit", "--gold", gold])
            .expect_exit(code, message);
    }
    let share = format!("labels fit --gold {right} --target-precision 1.5");
    scene.run(&share).expect_exit(2, "1.5 is not a share");
    let sets = csv(&scene, "SELECT COUNT(*) FROM label_sets");
    assert_eq!(sets, ["1"], "nothing is stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_cannot_be_learned_are_left_out_or_stop_the_fit() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let sets = || csv(&scene, "SELECT COUNT(*) FROM label_sets");
    let fit = |gold: &str| scene.run(&["labels", "fit", "--gold", gold]);
    let answers = first(&scene, "answers.csv", 24);
    // Contradictions in a file, and a label that the set lacks.
    let twice = format!("{}\nk00001,music\n", scene.read("answers.csv"));
    let twice = scene.write("twice.csv", twice);
    fit(&twice).expect_exit(2, "`t3_k00001` is `food` in line 3, but `music` in line 26");
    let lacking = scene.read("answers.csv").replace("none", "sailing");
    let lacking = scene.write("lacking.csv", lacking);
    fit(&lacking).expect_exit(2, "has no label `sailing` (8 rows)");
    // No vectors are stored for the other model.
    let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
    let tiny = tiny.to_str().unwrap();
    scene
        .run(&["labels", "fit", "--gold", &answers, "--model", tiny])
        .expect_exit(
            2,
            "the model `minilm-reddit-topics`: set its folder with --model",
        );
    assert_eq!(sets(), ["1"], "nothing is stored");
    let ran = scene.ok(&["labels", "fit", "--gold", &lacking, "--others-out-of-scope"]);
    ran.expect_stderr("out of scope: sailing");

    // In the database: posts on which annotators disagree, and answers about an earlier text.
    scene.ok(&["labels", "gold", "import", &answers, "--annotator", "ada"]);
    let other = scene.write("other.csv", "id,label\nk00001,music\n");
    scene.ok(&["labels", "gold", "import", &other, "--annotator", "ben"]);
    let edited = scene.write("edited.ndjson", line(2, "a new text"));
    scene.ok(&["import", &edited]);
    scene.ok(&["classify", "--pipeline", &scene.first]);
    let ran = scene.ok("labels fit --make-current --format json");
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found["answers"], 23);
    ran.expect_stderr_all(&["annotators disagree", "edited since"]);
    // A different model cannot use the fit.
    let args = format!("classify --pipeline first.toml --model {tiny} --limit 1");
    scene.ok(&args).expect_stderr("other than `tiny-bert-nli`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vector_that_is_not_a_number_stops_the_fit() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let answers = first(&scene, "answers.csv", 24);
    // The scale of the vector, NaN as a little-endian f32.
    database
        .run(
            "UPDATE text_vectors SET vector = CAST(X'0000C07F' || substr(vector, 5) AS BLOB) \
              WHERE text_hash = (SELECT text_hash FROM posts WHERE fullname = 't3_k00004')",
        )
        .await;
    let ran = scene.run(&["labels", "fit", "--gold", &answers, "--make-current"]);
    ran.expect_exit(4, "text_vectors");
    assert_eq!(csv(&scene, "SELECT COUNT(*) FROM label_sets"), ["1"]);
}
