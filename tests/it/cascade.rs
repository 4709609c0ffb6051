//! `--cascade`: a small model labels what it is sure of, and the large one the rest.

use serde_json::{Value, json};

use crate::shortlist::{POSTS, Scene, model, posts};
use crate::support::engine::repository;
use crate::support::postgres::databases;
use crate::support::program::Program;

/// So sure must the small model be; of the posts here it is of some.
const SURE: &str = "0.97";

/// The folder of a classifier.
fn moods() -> String {
    let folder = repository("tests/it/fixtures/classifiers/models/tiny-bart-moods");
    folder.display().to_string()
}

fn count(counts: &Value, what: &str) -> u64 {
    counts[what].as_u64().unwrap_or(0)
}

#[test]
fn every_label_says_which_of_two_real_models_decided_it() {
    for database in databases() {
        let scene = Scene::new(&database);
        let (large, small) = (model("tiny-bart-mnli"), model("minilm-reddit-topics"));
        let flags = ["--model", &large, "--cascade", SURE];
        let (counts, said) = scene.classify(&[&flags[..], &["--workers", "2"]].concat());
        let kept = count(&counts, "by_small");
        assert_eq!(count(&counts, "posts"), POSTS as u64);
        assert!((1..POSTS as u64).contains(&kept), "{counts}");
        assert!(said.contains("nobody calibrated the small model"), "{said}");
        assert!(said.contains(&format!("by_small={kept}")), "{said}");
        let name = "tiny-bart-mnli+cascade-0.97-minilm-reddit-topics";
        let models = scene.rows("SELECT name, large, small FROM models WHERE small IS NOT NULL");
        let expected =
            json!([{"name": name, "large": "tiny-bart-mnli", "small": "minilm-reddit-topics"}]);
        assert_eq!(json!(models), expected);
        let decided = "SELECT decided_by, COUNT(*) AS n FROM deciding_models WHERE is_current GROUP BY 1 ORDER BY 1";
        let rest = POSTS as u64 - kept;
        let expected = json!([
            {"decided_by": "minilm-reddit-topics", "n": kept}, {"decided_by": "tiny-bart-mnli", "n": rest},
        ]);
        assert_eq!(json!(scene.rows(decided)), expected);
        // Whoever hands the data on hands that on.
        let head = ["--database", &database.url, "export", "out.ndjson"];
        scene.program.ok(&head);
        let exported = std::fs::read_to_string(scene.program.folder.path().join("out.ndjson"));
        let exported = exported.unwrap();
        let of_small = "\"decided_by\":\"minilm-reddit-topics\"";
        assert_eq!(exported.matches(of_small).count() as u64, kept);
        let told = scene
            .program
            .ok(&["--database", &database.url, "doctor", "--bottleneck"]);
        assert!(
            told.stdout
                .contains(&format!("The small model labelled {kept} of")),
            "{}",
            told.stdout
        );

        // Each alone says the same of what it decided, and neither has the other's logits.
        let before = scene.scores(name);
        let of_large = "SELECT COUNT(*) AS n FROM pair_logits p JOIN models m ON m.id = p.model_id WHERE m.name = 'tiny-bart-mnli'";
        let pairs = scene.rows(of_large)[0]["n"].as_u64().unwrap();
        assert!(pairs <= 16 * rest, "{pairs}");
        let (counts, _) = scene.classify(&["--model", &large]);
        assert_eq!(count(&counts, "pairs"), 16 * (POSTS as u64 - 1) - pairs);
        scene.classify(&["--model", &small]);
        let by = scene.rows(&format!(
            "SELECT fullname, by_small FROM deciding_models WHERE model = '{name}'"
        ));
        let (of_small, of_large) = (
            scene.scores("minilm-reddit-topics"),
            scene.scores("tiny-bart-mnli"),
        );
        for row in by {
            let post = row["fullname"].as_str().unwrap();
            let by_small = [json!(true), json!(1)].contains(&row["by_small"]);
            let alone = if by_small { &of_small } else { &of_large };
            for (label, score) in &before[post] {
                assert!((score - alone[post][label]).abs() < 1e-6, "{post} {label}");
            }
        }
        // A second time nothing is left to do, and the comparison is told.
        let (counts, said) = scene.classify(&flags);
        assert_eq!(count(&counts, "posts"), 0);
        let alike = &counts["without_shortlist"];
        assert_eq!(alike["posts"], POSTS);
        assert!(
            count(alike, "same") >= rest && said.contains("labelled alone"),
            "{said}"
        );
        // The small model's vectors are stored now: with another certainty it reads no text.
        let more = [
            "--model",
            &large,
            "--cascade",
            "0.9",
            "--shortlist",
            "4",
            "--small-temperature",
            "0.5",
        ];
        let (counts, said) = scene.classify(&more);
        assert_eq!(count(&counts, "posts"), POSTS as u64);
        assert!(!said.contains("nobody calibrated"), "{said}");
        let name = "tiny-bart-mnli+cascade-0.9-t0.5-shortlist-4-minilm-reddit-topics";
        let kept_by = scene
            .scores(name)
            .into_iter()
            .filter(|(_, scores)| scores.values().filter(|score| **score > 0.0).count() > 4);
        assert_eq!(
            kept_by.count() as u64,
            count(&counts, "by_small"),
            "the others have four scores"
        );
    }
}

#[test]
fn a_classifier_may_be_the_small_model_or_the_large_one() {
    let program = Program::new();
    let texts = program.write("texts.ndjson", posts());
    let (moods, nli) = (moods(), model("tiny-bart-mnli"));
    let topic = |label| format!("[[topic]]\nslug = \"{label}\"\nlabel = \"{label}\"\n");
    let topics: String = ["joy", "sadness", "anger"].map(topic).concat();
    let file = program.write("moods.toml", format!("name = \"moods\"\n{topics}"));
    for (large, small) in [(&nli, &moods), (&moods, &nli)] {
        let args = [
            "score",
            &texts,
            "out.ndjson",
            "--overwrite",
            "--pipeline",
            &file,
            "--model",
            large,
            "--small-model",
            small,
            "--cascade",
            "0.4",
            "--mode",
            "single",
        ];
        let ran = program.ok(&args);
        let lines = std::fs::read_to_string(program.folder.path().join("out.ndjson")).unwrap();
        assert_eq!(
            lines.matches("\"decided_by\"").count(),
            POSTS,
            "{}",
            ran.stderr
        );
    }
    // Labels that it does not have are told.
    let args = [
        "score",
        &texts,
        "other.ndjson",
        "--model",
        &nli,
        "--small-model",
        &moods,
        "--cascade",
        "0.4",
    ];
    let ran = program.run(&args);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("tiny-bart-moods"), "{}", ran.stderr);
    // And before anything is collected: there is no database yet.
    let args = ["run", "--source", "sample", "--model", &nli];
    let ran = program.run(&[&args[..], &["--small-model", &moods, "--cascade", "0.4"]].concat());
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("labels of its own"), "{}", ran.stderr);
    let here = std::fs::read_dir(program.folder.path()).unwrap();
    let names: Vec<_> = here.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().ends_with(".db")),
        "{names:?}"
    );
}

#[test]
fn a_cascade_that_makes_no_sense_is_refused_in_words() {
    let database = &databases()[0];
    let scene = Scene::new(database);
    let (bart, moods) = (model("tiny-bart-mnli"), moods());
    let misuse: [(&[&str], i32, &str); 8] = [
        (&["--cascade", "0"], 2, "above 0 and up to 1"),
        (&["--cascade", "1.01"], 2, "above 0 and up to 1"),
        (&["--cascade", "NaN"], 2, "above 0 and up to 1"),
        (
            &["--cascade", "0.9", "--small-temperature", "0"],
            2,
            "above 0",
        ),
        (&["--small-temperature", "2"], 2, "--cascade <P>"),
        (&["--cascade", "0.9", "--dry-run"], 2, "--dry-run"),
        (
            &["--cascade", "0.9", "--small-model", &bart],
            2,
            "for itself",
        ),
        (
            &["--cascade", "0.9", "--model", &moods, "--mode", "raw"],
            2,
            "in mode raw",
        ),
    ];
    for (args, code, said) in misuse {
        let head = ["--database", &database.url, "classify"];
        let large = ["--model", bart.as_str()];
        let before = if args.contains(&"--model") {
            &[][..]
        } else {
            &large[..]
        };
        let ran = scene.program.run(&[&head[..], before, args].concat());
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
    assert!(scene.rows("SELECT 1 FROM classifications").is_empty());
}

#[test]
fn the_bench_says_what_classify_then_does() {
    let program = Program::new();
    let texts = program.write("texts.ndjson", posts());
    let large = model("tiny-bart-mnli");
    let args = [
        "bench",
        "cascade",
        "--model",
        &large,
        "--texts",
        &texts,
        "--cascade",
        "0.7,0.97,1",
        "--shortlist",
        "4:8:4",
        "--format",
        "json",
        "--out",
        "out",
    ];
    let rows: Vec<Value> = serde_json::from_str(&program.ok(&args).stdout).unwrap();
    // Two shortlists and none, each with three certainties and, but for none, without; and the large model alone.
    assert_eq!(rows.len(), 2 * 4 + 3 + 1);
    let score = |name: &str, flags: &[&str]| -> Vec<Value> {
        program.ok(&[&["score", &texts, name, "--model", &large][..], flags].concat());
        let lines = std::fs::read_to_string(program.folder.path().join(name)).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let alone = score("alone.ndjson", &[]);
    for (name, sure, labels) in [
        ("one.ndjson", 0.97, 16),
        ("two.ndjson", 0.7, 4),
        ("three.ndjson", 1.0, 8),
    ] {
        let row = rows
            .iter()
            .find(|row| row["sure"] == sure && row["labels"] == labels);
        let row = row.unwrap();
        let (sure, shortlist) = (sure.to_string(), labels.to_string());
        let mut flags = vec!["--cascade", &sure];
        flags.extend(
            (labels < 16)
                .then_some(["--shortlist", &shortlist])
                .into_iter()
                .flatten(),
        );
        let lines = score(name, &flags);
        let percent = |n: usize| {
            #[expect(clippy::cast_precision_loss, reason = "a few posts")]
            let percent = (1000.0 * n as f64 / POSTS as f64).round() / 10.0;
            percent
        };
        let kept = lines
            .iter()
            .filter(|line| line["decided_by"] == "minilm-reddit-topics");
        assert_eq!(row["by small %"], percent(kept.count()), "{row}");
        let same = lines
            .iter()
            .zip(&alone)
            .filter(|(a, b)| a["outcome"] == b["outcome"]);
        assert_eq!(row["same %"], percent(same.count()), "{row}");
        let within = |name: &str| row[name].as_f64().unwrap();
        assert!(
            within("at least %") <= within("same %") && within("same %") <= within("at most %")
        );
    }
    let last = rows.last().unwrap();
    assert_eq!(
        (&last["same %"], &last["times"]),
        (&json!(100.0), &json!(1.0))
    );
    let read =
        |name: &str| std::fs::read_to_string(program.folder.path().join("out").join(name)).unwrap();
    let written: Value = serde_json::from_str(&read("cascade.json")).unwrap();
    assert_eq!(written["cascades"], json!(rows));
    assert_eq!(read("cascade.csv").lines().count(), rows.len() + 1);
    let drawn = read("cascade.svg");
    assert!(
        drawn.starts_with("<svg") && drawn.matches("<polyline").count() == 3,
        "{drawn}"
    );
}
