//! A study after retention has deleted the text of its posts: everything that needs no text still works.

use serde_json::{Value, json};
use topicmill_core::table;

use crate::support::builders::LABELS;
use crate::support::engine::repository;
use crate::support::program::Program;

/// Posts, of which 40 have an answer.
const POSTS: usize = 60;
const BACKGROUND: &str = "background = \"reddit\"";

/// Returns a study: labelled posts that look collected a week ago, with answers of which some contradict the labels.
fn study(program: Program, background: &str) -> Program {
    let study = program.imported(POSTS);
    study.pipeline("first", background, &LABELS);
    study.ok("classify --pipeline first.toml");
    let posts = study.query("SELECT fullname, label FROM labeled_posts ORDER BY fullname LIMIT 40");
    let answer = |(i, post): (usize, &Value)| {
        let label = post["label"].as_str().filter(|_| i % 7 != 0);
        let label = label.unwrap_or("music");
        format!("{},{label}\n", post["fullname"].as_str().unwrap())
    };
    let answers: String = posts.iter().enumerate().map(answer).collect();
    study.imported_gold(&format!("id,label\n{answers}"), "--annotator ada --random");
    study
        .execute("UPDATE things SET source = 'reddit', collected_at = '2020-01-01T00:00:00+00:00'");
    study
}

/// Returns the figures that a study prints.
fn figures(study: &Program, background: &str) -> Value {
    study.pipeline("strict", &format!("threshold = 0.4\n{background}"), &LABELS);
    let evaluated = study.json("labels evaluate --limit 0");
    let strict = study.json("labels evaluate --limit 0 --label-set strict.toml");
    let calibrated = study.json("labels calibrate");
    let status = study.json("status");
    study.ok("export rows.ndjson --overwrite");
    let rows = study.read_lines("rows.ndjson").into_iter();
    let rows = rows.map(|row| json!([row["fullname"], row["outcome"], row["score"], row["gold"]]));
    json!({
        "evaluation": evaluated["evaluation"],
        "strict": strict_figures(&strict, background),
        "calibrated": rounded(&calibrated),
        "quality": status["quality"],
        "rows": rows.collect::<Vec<_>>(),
    })
}

/// Returns the figures of a label set with other settings. Without a background, they follow from the stored scores.
fn strict_figures(evaluated: &Value, background: &str) -> Value {
    match background {
        "" => evaluated["evaluation"].clone(),
        _ => rounded(&evaluated["evaluation"]),
    }
}

/// Rounds numbers to six digits: scores are stored exactly, but logits are recovered from them.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(format!("{:.6}", number.as_f64().unwrap())),
        Value::Array(all) => all.iter().map(rounded).collect(),
        Value::Object(all) => all
            .iter()
            .map(|(key, one)| (key.clone(), rounded(one)))
            .collect(),
        other => other.clone(),
    }
}

#[test]
fn figures_stay_the_same_after_retention() {
    let weighted = format!("{BACKGROUND}\nbackground_weight = 0.1");
    for (program, background, other) in table! {
        Program::new().with_default_model(), BACKGROUND, weighted.as_str();
        Program::new(), BACKGROUND, weighted.as_str();
        Program::new(), "", "";
    } {
        let study = study(program, background);
        let before = figures(&study, other);
        study.ok("purge --retention 24");
        assert_eq!(study.count("posts WHERE title <> '' OR selftext <> ''"), 0);
        assert_eq!(figures(&study, other), before);
        let rows = study.read_lines("rows.ndjson");
        assert!(
            rows.iter()
                .all(|row| row["text_purged"] == true && row["title"] == "")
        );
        study.ok("report report.html");
        // Scores are kept, and serve a label set with another threshold.
        study.ok("classify --pipeline strict.toml --make-current");
        let strict = study.json("labels evaluate --limit 0");
        assert_eq!(strict_figures(&strict, other), before["strict"]);
        assert_eq!(study.count("labeled_posts WHERE score IS NOT NULL"), 60);
    }
}

#[test]
fn a_label_set_that_would_lose_labels_does_not_become_current() {
    let study = study(Program::new().with_default_model(), BACKGROUND);
    study.pipeline("other", "", &[("cats", "cats"), ("dogs", "dogs")]);
    study.ok("classify --pipeline other.toml --limit 20");
    study.ok("purge --retention 24");
    let shown = || study.count("labeled_posts WHERE score IS NOT NULL");
    for command in [
        "classify --pipeline other.toml --make-current",
        "labels use other",
    ] {
        let refused = study.run(command);
        refused.expect_exit(2, "40 labelled posts");
        assert_eq!(shown(), 60, "{command}");
    }
    let refused = study.run("labels fit");
    refused.expect_exit(2, "retention.keep_vectors");
    study.ok("labels use other --yes");
    assert_eq!(shown(), 20);
}

#[test]
fn a_fit_says_how_many_answers_retention_left_out() {
    let study = study(Program::new().with_default_model(), BACKGROUND);
    study.execute("UPDATE things SET source = 'import' WHERE fullname >= 't3_k00030'");
    study.ok("purge --retention 24");
    let fit = study.run("labels fit");
    fit.expect_stderr("gold posts whose vectors retention deleted are left out");
    assert!(fit.stderr.contains("posts=30"), "{}", fit.stderr);
    assert!(!fit.stderr.contains("no stored results"), "{}", fit.stderr);
}

#[test]
fn too_few_gold_labels_are_explained_by_the_posts_that_cannot_be_used() {
    let study = Program::new().with_default_model().imported(POSTS);
    study.pipeline("first", BACKGROUND, &LABELS);
    study.ok("classify --pipeline first.toml --limit 25");
    // The labelled posts lose their text, and can be used; the others have text, and cannot.
    study.execute(
        "UPDATE things SET source = 'reddit', collected_at = '2020-01-01T00:00:00+00:00' \
         WHERE fullname IN (SELECT fullname FROM classifications)",
    );
    study.ok("purge --retention 24");
    let posts = study
        .column("SELECT fullname FROM labeled_posts ORDER BY score IS NULL, fullname LIMIT 45");
    let posts = posts.iter().map(|post| post.as_str().unwrap());
    let gold: String = posts.map(|post| format!("{post},music\n")).collect();
    study.write("gold.csv", format!("id,label\n{gold}"));
    let refused = study.run("labels calibrate --gold gold.csv");
    refused.expect_exit(2, "only 25 of 45 gold posts can be used");
    refused.expect_stderr("(0 of these no longer have text); run `topicmill classify`");
    study.write("gold.csv", "id,label\nt3_other,music\n");
    let refused = study.run("labels fit --gold gold.csv");
    refused.expect_exit(2, "import these posts");
}

#[test]
fn kept_vectors_serve_a_fit_and_files_are_exempt() {
    let study = study(Program::new().with_default_model(), BACKGROUND);
    study.execute("UPDATE things SET source = 'import' WHERE fullname >= 't3_k00050'");
    study.execute("UPDATE things SET flair = 'News'");
    let settings = [
        ("retention.hours", "24"),
        ("retention.keep_vectors", "true"),
    ];
    let purge = "purge --retention --run-json run.json";
    study.run_with(&settings, purge).expect_code(0);
    assert_eq!(study.read_json("run.json")["counts"]["texts"], 50);
    assert_eq!(study.count("text_vectors"), POSTS as u64);
    study.ok("labels fit");
    study.ok("db check");
    study.purge("t3_k00000");
    assert_eq!(study.count("text_vectors"), POSTS as u64 - 1);
    study.execute("DELETE FROM meta WHERE key = 'vectors_kept'");
    let checked = study.run("db check");
    assert!(checked.code != 0 && checked.stdout.contains("vectors without a text"));
    let imports = [("retention.imports", "true")];
    study
        .run_with(&imports, "purge --retention 24")
        .expect_code(0);
    assert_eq!(study.count("text_vectors"), 49);
}

#[test]
fn kept_vectors_label_posts_with_a_new_label_set() {
    for program in Program::on_each_database() {
        let study = study(program.with_default_model(), BACKGROUND);
        let keep = [("retention.keep_vectors", "true")];
        study.run_with(&keep, "purge --retention 24").expect_code(0);
        study.ok("labels fit --make-current");
        let labels = [("cats", "cats"), ("dogs", "dogs")];
        study.pipeline("other", "background = \"reddit\"", &labels);
        let counts = study.classify("--pipeline other.toml");
        assert_eq!([&counts["posts"], &counts["pairs"]], [POSTS, 0]);
        let labels = "labeled_posts WHERE outcome IN ('cats', 'dogs', 'other')";
        assert_eq!(study.count(labels), POSTS as u64);
        study.ok("db check");
        // A model that needs the text would lose the labels.
        let nli = repository("tests/it/fixtures/models/tiny-bart-mnli");
        let nli = [("classify.model", nli.to_str().unwrap())];
        let refused = study.run_with(&nli, "classify --make-current");
        refused.expect_exit(2, "60 labelled posts");
    }
}

#[test]
fn a_run_labels_posts_before_it_deletes_their_text() {
    let study = study(Program::new(), BACKGROUND);
    study.execute("DELETE FROM classifications WHERE fullname >= 't3_k00055'");
    let ran = study.run_with(
        &[("retention.hours", "24")],
        "run --source sample --limit 1 --topic food --run-json run.json --pipeline first.toml",
    );
    ran.expect_code(0);
    let imported = "fullname LIKE 't3_k%'";
    let with_text = format!("posts WHERE {imported} AND title <> ''");
    assert_eq!(study.count(&with_text), 0);
    let labelled = format!("labeled_posts WHERE {imported} AND score IS NOT NULL");
    assert_eq!(study.count(&labelled), 60);
}

#[test]
fn a_run_deletes_old_text_even_if_it_can_neither_collect_nor_label() {
    for (setting, exit) in [
        (("classify.model", "missing"), 5),
        (("pipeline", "missing.toml"), 2),
    ] {
        let program = Program::new().imported(3);
        program.execute(
            "UPDATE things SET source = 'reddit', collected_at = '2020-01-01T00:00:00+00:00'",
        );
        let run = || {
            let settings = [("retention.hours", "24"), setting];
            let ran = program.run_with(&settings, "run --source sample --limit 1 --topic food");
            ran.expect_exit(exit, "missing");
        };
        run();
        assert_eq!(program.count("posts WHERE title <> ''"), 0);
        assert_eq!(program.count("posts"), 3, "nothing was collected");
        // Retention fails too, because the clock seems wrong: the first error decides.
        program.execute("UPDATE runs SET started_at = '2020-01-01T00:00:00+00:00'");
        run();
    }
}

#[test]
fn texts_lost_without_a_label_are_counted() {
    let program = Program::new().imported(3);
    program.execute("UPDATE things SET collected_at = '2020-01-01T00:00:00+00:00'");
    let settings = [("retention.imports", "true")];
    let purged = program.run_with(&settings, "purge --retention 24 --run-json run.json");
    purged.expect_exit(0, "lost their text");
    assert_eq!(
        program.read_json("run.json")["counts"]["texts_unlabelled"],
        3
    );
}
