//! Tests OpenVINO against ONNX Runtime: both assign the same labels with the same model, and unsupported configurations
//! fail with a clear message. Also tests what measures and explains the speed of an engine.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use topicmill_core::table;

use crate::support::engine::{has_openvino, repository};
use crate::support::program::{Program, find_row};

const POSTS: usize = 24;

fn posts() -> String {
    let titles = [
        "a new boss fight in this game",
        "how long to roast a chicken",
        "my band recorded a song, and here is how we mixed it in the end",
        "glaciers melt and the sea rises",
        "the striker scored in the last minute",
    ];
    let post = |i: usize| {
        json!({
            "id": format!("k{i}"), "title": format!("{} {i}", titles[i % 5]), "selftext": "more ".repeat(i),
            "subreddit": "gaming", "created_utc": 1_700_000_000 + i,
        })
    };
    (0..POSTS).map(|i| format!("{}\n", post(i))).collect()
}

fn with_posts() -> Program {
    let program = Program::new();
    program.import(&posts());
    program
}

/// Returns each score in float32 by post and label.
fn scores(program: &Program) -> BTreeMap<(String, String), f64> {
    let query = "SELECT s.fullname, l.label, s.score FROM label_scores s JOIN models m ON m.id = s.model_id \
                   JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position \
                  WHERE m.number_format = 'fp32'";
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let entry = |row: &Value| {
        let score = row["score"].as_f64().unwrap();
        ((text(&row["fullname"]), text(&row["label"])), score)
    };
    program.query(query).iter().map(entry).collect()
}

#[test]
fn engines_share_the_float32_model_identity_and_bf16_has_its_own() {
    if !has_openvino("two engines on one backlog") {
        return;
    }
    let [program, alone] = [(); 2].map(|()| with_posts());
    let classify = |engine: &str, flags: &str| {
        let line = format!("classify --threads 1 {flags}");
        let ran = program.run_with(&[("classify.engine", engine)], &line);
        ran.expect_code(0);
    };
    let models = || program.count("models");
    let shown =
        || program.query("SELECT fullname, label, outcome FROM labeled_posts ORDER BY fullname");
    classify("onnxruntime", "--limit 10");
    classify("openvino", "");
    let before = shown();
    assert_eq!((models(), before.len()), (1, POSTS));
    alone.ok("classify --threads 1");
    let (mixed, exact) = (scores(&program), scores(&alone));
    assert!(mixed.keys().eq(exact.keys()));
    let off = exact.iter().map(|(key, score)| (score - mixed[key]).abs());
    let off = off.fold(0.0, f64::max);
    assert!(off < 1e-4, "{off}");

    classify("auto", "--precision bf16");
    assert_eq!(models(), 2, "bf16 is a different model");
    assert_eq!(shown(), before, "the views are unchanged");
    let runs = program.json("status")["runs"].take();
    let settings = &runs[0]["counts"]["settings"];
    let runtime = settings["runtime"].as_str().unwrap();
    assert!(runtime.starts_with("OpenVINO 20"), "{settings}");
    assert_eq!(settings["devices"], json!(["cpu"]));
    assert_eq!(
        settings["batch_tokens"], 512,
        "fixed, because a score depends on it"
    );
}

#[test]
fn an_unsupported_engine_fails_in_one_sentence_with_its_exit_code() {
    let program = Program::new();
    let engine = "classify.engine";
    for (setting, flags, message) in table! {
        (engine, "tensorrt"), "classify", "`onnxruntime`";
        (engine, "openvino"), "classify --device cuda", "`--device cpu`";
        (engine, "onnxruntime"), "classify --precision bf16", "`classify.engine` to \"openvino\"";
        ("classify.batch_tokens", "0"), "classify", "batch_tokens";
    } {
        let ran = program.run_with(&[setting], flags);
        ran.expect_exit(2, message);
    }
}

#[test]
fn a_wrong_openvino_library_fails_in_one_sentence_and_only_where_it_is_used() {
    let program = Program::new();
    let foreign = program.write("libforeign.so", "not a library");
    let named = program.write("libopenvino_c.so", "ov_get_openvino_version");
    for library in [foreign.as_str(), &named, "/no/such/libopenvino_c.so"] {
        let run = |engine: &str, line: &str| {
            let settings = [("openvino.library", library), ("classify.engine", engine)];
            program.run_with(&settings, line)
        };
        let ran = run("openvino", "classify");
        ran.expect_exit(5, library);
        ran.expect_stderr("openvino.library");
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        run("auto", "classify --precision bf16").expect_code(5);
    }
}

#[test]
fn bench_measures_stored_posts_in_each_precision_and_batch_size() {
    if !has_openvino("bench") {
        return;
    }
    let model = repository("tests/it/fixtures/models/tiny-bart-made");
    let bench = format!("bench --threads 1 --model {}", model.display());
    Program::new().run(&bench).expect_exit(4, "topicmill.db");
    let program = with_posts();
    let found = program.json(&bench);
    assert_eq!(found["texts"], POSTS);
    let measured = found["measured"].as_array().unwrap();
    let in_precision = |precision: &'static str| {
        let rows = measured.iter();
        rows.filter(move |row| row["precision"] == precision)
    };
    assert_eq!(in_precision("fp32").count(), 7);
    assert!(in_precision("fp32").all(|row| row["labels as in fp32"] == 1.0));
    // The scores of this model in int8 depend on the batch, so its size is fixed.
    assert_eq!(in_precision("int8").count(), 1);
    for row in measured {
        let [speed, memory, same] = ["texts/s", "peak MiB", "labels as in fp32"]
            .map(|column| row[column].as_f64().unwrap());
        assert!(speed > 0.0 && memory > 0.0 && same <= 1.0, "{row}");
    }
    // So few posts show nothing about the labels of other precisions.
    assert_eq!(found["settings"]["precision"], "auto");
    let size = &found["settings"]["batch_tokens"];
    assert!(in_precision("fp32").any(|row| row["batch tokens"] == *size));
    // A file of texts instead, and one precision besides float32.
    program.write("texts.ndjson", "{\"text\": \"a song\"}\n".repeat(3));
    let flags = "--texts texts.ndjson --posts 2 --precision int8";
    let found = program.json(&format!("{bench} {flags}"));
    assert_eq!(found["texts"], 2);
    assert_eq!(found["measured"].as_array().unwrap().len(), 8);
    program.write("empty.ndjson", "");
    program
        .run("bench --texts empty.ndjson")
        .expect_exit(2, "empty.ndjson");
}

#[test]
fn doctor_says_what_limited_the_latest_labelling_run() {
    let program = with_posts();
    program.ok("classify --device cpu");
    // This run has nothing to do.
    program.ok("classify --device cpu");
    let checks = program.json("doctor --source sample");
    let database = find_row(&checks, "check", "database");
    let stored = format!(" {} posts and comments", program.count("posts"));
    assert!(database["detail"].as_str().unwrap().ends_with(&stored));
    let speed = find_row(&checks, "check", "classify speed");
    let detail = speed["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("run 2 ") && speed["state"] == "ok",
        "{speed}"
    );
    assert!(
        ["CPU", "database"]
            .iter()
            .any(|limit| detail.contains(limit))
    );
}
