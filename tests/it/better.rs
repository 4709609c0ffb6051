//! `classify --require-better`: a model or a label set that is no better than the current labels labels nothing.

use serde_json::Value;

use crate::evaluate::Scene;
use crate::support::engine::repository;
use crate::support::postgres::databases;
use crate::support::program::Ran;

const SHIPPED: &str = "models/minilm-reddit-topics";
const TINY: &str = "tests/it/fixtures/models/tiny-bert-nli";

/// Everything that labelling writes.
fn written(scene: &Scene) -> Vec<Value> {
    [
        "SELECT fullname, label, model, is_current FROM labeled_posts_all ORDER BY 1, 2, 3",
        "SELECT count(*) AS n FROM classifications",
        "SELECT count(*) AS n FROM models",
        "SELECT count(*) AS n FROM label_sets",
        "SELECT count(*) AS n FROM runs",
    ]
    .map(|sql| scene.json(&["sql", sql]))
    .into()
}

fn classify(scene: &Scene, model: &str, more: &[&str]) -> Ran {
    let model = repository(model);
    let args = ["classify", "--pipeline", &scene.first, "--model"];
    scene.run(&[&args[..], &[model.to_str().unwrap()], more].concat())
}

/// Right labels of gold posts with the new labels, as the log line counts them.
fn right(ran: &Ran) -> u64 {
    let (before, _) = ran.stderr.split_once(" are right with these").unwrap();
    let count = before.rsplit(' ').next().unwrap();
    count.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_no_better_labels_nothing_and_a_better_one_labels() {
    for database in databases() {
        let scene = Scene::new(&database);
        let gold = scene.gold("gold.csv", |_| None);
        let before = written(&scene);
        let gate = ["--require-better", "--gold", &gold];

        // Random weights, and a run that nobody may mistake for one that labelled.
        let ran = classify(&scene, TINY, &[&gate[..], &["--make-current"]].concat());
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        for words in ["nothing is labelled: of 30 gold posts", "collect more gold"] {
            assert!(ran.stderr.contains(words), "{}", ran.stderr);
        }
        assert_eq!(written(&scene), before);

        // What the model of the current labels labels further needs no gold.
        let ran = classify(&scene, SHIPPED, &["--require-better"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains("nothing to compare"), "{}", ran.stderr);

        // Without gold nobody can say which is better.
        let before = written(&scene);
        let ran = classify(&scene, TINY, &["--require-better"]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        for words in ["serve --review", "labels gold import"] {
            assert!(ran.stderr.contains(words), "{}", ran.stderr);
        }
        assert_eq!(written(&scene), before);

        let ran = classify(&scene, TINY, &["--make-current"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let ran = classify(&scene, SHIPPED, &[&gate[..], &["--make-current"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let current = "SELECT DISTINCT model FROM labeled_posts_all WHERE is_current";
        let model = scene.json(&["sql", current]);
        assert_eq!(model[0]["model"], "minilm-reddit-topics");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gate_counts_what_classify_then_stores() {
    let databases = databases();
    let scene = Scene::new(&databases[0]);
    let gold = scene.gold("gold.csv", |_| None);
    // Answers in the database are what is taken where no file is named.
    scene.ok(&["labels", "gold", "import", &gold]);
    for small in [&[][..], &["--cascade", "0.3"], &["--shortlist", "2"]] {
        let ran = classify(&scene, TINY, &[small, &["--require-better"]].concat());
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        let tried = right(&ran);
        let ran = classify(&scene, TINY, small);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let newest = "SELECT manifest_hash FROM models ORDER BY id DESC LIMIT 1";
        let hash = scene.json(&["sql", newest])[0]["manifest_hash"].clone();
        let found = scene.evaluate(&gold, &["--model", hash.as_str().unwrap()]);
        assert_eq!(found["evaluation"]["outcome"]["of"], tried, "{small:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_is_labelled_there_is_nothing_to_be_better_than() {
    for database in databases() {
        let scene = Scene::unlabelled(&database);
        let ran = classify(
            &scene,
            SHIPPED,
            &["--require-better", "--gold", "missing.csv"],
        );
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("missing.csv"), "{}", ran.stderr);
        let ran = classify(&scene, SHIPPED, &["--require-better"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(
            ran.stderr.contains("nothing to be better than"),
            "{}",
            ran.stderr
        );
        let labelled = scene.json(&["sql", "SELECT count(*) AS n FROM labeled_posts"]);
        assert_eq!(labelled[0]["n"], 30);
        let ran = classify(&scene, SHIPPED, &["--require-better", "--dry-run"]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        let ran = classify(&scene, SHIPPED, &["--gold", "topic"]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_a_model_that_is_no_better_collects_and_labels_nothing() {
    for database in databases() {
        let scene = Scene::new(&database);
        let gold = scene.gold("gold.csv", |_| None);
        let before = written(&scene);
        let posts = "SELECT count(*) AS n FROM posts";
        let had = scene.json(&["sql", posts])[0]["n"].as_u64().unwrap();
        let run = |model: &str, gold: &str| {
            let model = repository(model);
            let args = ["run", "--source", "sample", "--pipeline", &scene.first];
            let gate = ["--require-better", "--gold", gold, "--model"];
            scene.run(&[&args[..], &gate, &[model.to_str().unwrap()]].concat())
        };

        // Told before anything is collected.
        let ran = run(TINY, "missing.csv");
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert_eq!(scene.json(&["sql", posts])[0]["n"], had);

        let ran = run(TINY, &gold);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("nothing is labelled"), "{}", ran.stderr);
        let has = scene.json(&["sql", posts])[0]["n"].as_u64().unwrap();
        assert!(has > had, "{had} posts before, {has} after");
        let after = written(&scene);
        // All but the last, the runs: collecting is one.
        assert_eq!(after[..4], before[..4]);

        // Nobody has answered yet.
        let ran = run(TINY, "db");
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert_eq!(written(&scene)[..4], before[..4]);

        let ran = run(SHIPPED, &gold);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let labelled = scene.json(&["sql", "SELECT count(*) AS n FROM labeled_posts"]);
        assert_eq!(labelled[0]["n"], has);
    }
}
