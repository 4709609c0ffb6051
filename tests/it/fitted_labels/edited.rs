//! Tests a fit in a pipeline file: exported, edited, and used without a database.

use super::*;
use topicmill_core::table;

/// Fits the scene's labels, and exports them.
fn exported(scene: &Scene<'_>) -> (Value, String) {
    let answers = first(scene, "answers.csv", 24);
    let fitted = scene.json(&["labels", "fit", "--gold", &answers, "--make-current"]);
    let file = scene.write("exported.toml", scene.ok("labels export").stdout);
    (fitted, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_fit_assigns_the_same_labels_in_another_database_and_without_one() {
    for (database, other) in databases().iter().zip(databases().iter().rev()) {
        let (scene, there) = (Scene::new(database), Scene::unlabelled(other));
        let (fitted, file) = exported(&scene);
        let set = scene.json(&["labels", "validate", "--pipeline", &file]);
        assert_eq!(set["hash"], fitted["hash"]);
        assert_eq!(set["fitted_to"]["answers"], 24);
        let printed = scene.ok("labels export --label-set first-fit24");
        assert_eq!(printed.stdout, std::fs::read_to_string(&file).unwrap());

        there.ok(&["classify", "--pipeline", &file]);
        assert_eq!(csv(&there, ALL_LABELS), csv(&scene, ALL_LABELS));

        let score = "score posts.ndjson scored.ndjson --reddit-text --pipeline";
        scene.ok(&[&words(score)[..], &[&file]].concat());
        let from_database = csv(
            &scene,
            "SELECT outcome FROM labeled_posts ORDER BY fullname",
        );
        let file = scene.read("scored.ndjson");
        let from_file = file
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let from_file: Vec<Value> = from_file.map(|row| row["outcome"].clone()).collect();
        assert_eq!(from_file, from_database);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_fit_is_rejected_with_the_cause() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let (_, file) = exported(&scene);
    let text = std::fs::read_to_string(&file).unwrap();
    // Drops the first weight of every class, so that all have the same wrong length.
    let parts: Vec<&str> = text.split("weights = [").collect();
    let shorter = |part: &&str| part.split_once(", ").unwrap().1.to_owned();
    let tail: Vec<String> = parts[1..].iter().map(shorter).collect();
    assert_eq!(tail.len(), 4);
    let all_shorter = [parts[0].to_owned(), tail.join("weights = [")].join("weights = [");
    let (_, model) = text.split_once("\nmodel = \"").unwrap();
    let of_other = text.replacen(&model[..8], "00000000", 2);
    let with = |from: &str, to: &str| text.replacen(from, to, 1);
    for (edited, expected) in table! {
        all_shorter, "has a fit with 383 weights for each label";
        of_other, "was fitted with the model 00000000";
        with("weights = [", "weights = [0.5, "), "weights of different lengths";
        with("weights = [", "weights = [nan, "), "line ";
        with("bias = ", "bias = inf # "), "a number of the fit is not finite";
        with("scale = ", "scale = \"x\" # "), "column 9: invalid type: string \"x\", expected f64";
        with("label = \"video games\"", "label = \"chess\""), "have changed since the fit";
    } {
        assert_ne!(edited, text, "{expected}");
        let edited = scene.write("edited.toml", edited);
        for command in ["classify", "score posts.ndjson scored.ndjson --overwrite"] {
            let args = [&words(command)[..], &["--pipeline", &edited]].concat();
            scene.run(&args).expect_exit(2, expected);
        }
    }
    for (args, expected) in table! {
        "classify --mode multi --pipeline", "was fitted in mode single";
        "labels calibrate --gold answers.csv --label-set", "is fitted to gold labels";
    } {
        let args = [&words(args)[..], &[&file]].concat();
        scene.run(&args).expect_exit(2, expected);
    }
    let ran = scene.ok("labels new - --from current");
    ran.expect_stderr("without what `labels fit` learned");

    database
        .run("UPDATE label_sets SET fitted = json_remove(fitted, '$.labels[0].weights[0]') WHERE fitted IS NOT NULL")
        .await;
    let ran = scene.run("labels evaluate --gold answers.csv");
    ran.expect_exit(4, "was edited or damaged");
}

#[test]
fn a_fit_without_labels_gets_a_command_that_labels_the_posts() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let answers = first(&scene, "answers.csv", 24);
    let fitted = scene.json(&["labels", "fit", "--gold", &answers]);
    let version = &fitted["hash"].as_str().unwrap()[..12];
    let export = format!("labels export --label-set {version}");
    let classify = "classify --pipeline FILE --make-current";
    scene.run("labels use first-fit24").expect_exit(
        2,
        &format!("`topicmill {export} > FILE && topicmill {classify}`"),
    );
    // The commands work as printed.
    let printed = scene.ok(&export).stdout;
    scene.write("FILE", printed);
    scene.ok(classify);
    let list = scene.json("labels list");
    assert_eq!(list[0]["label_set"], "first-fit24", "{list}");
    assert_eq!(list[0]["current"], true, "{list}");
}
