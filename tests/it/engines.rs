//! Tests OpenVINO against ONNX Runtime: both assign the same labels with the same model, and unsupported configurations
//! fail with a clear message.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::engine::{has_openvino, repository};
use crate::support::postgres::databases;
use crate::support::program::{Program, RunOutput};

const POSTS: usize = 24;
/// A setting that chooses the precision based on a measurement.
const AGREEMENT: (&str, &str) = ("classify.agreement", "0.995");

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

/// Returns the rows of a query.
fn rows(program: &Program, url: &str, query: &str) -> Vec<Value> {
    let ran = program.ok(&["--database", url, "sql", "--format", "ndjson", query]);
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns each score by post and label.
fn scores(program: &Program, url: &str) -> BTreeMap<(String, String), f64> {
    let query = "SELECT s.fullname, l.label, s.score FROM label_scores s JOIN models m ON m.id = s.model_id \
                   JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position \
                  WHERE m.number_format = 'fp32'";
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |row: &Value| {
        let score = row["score"].as_f64().unwrap();
        ((text(&row["fullname"]), text(&row["label"])), score)
    };
    rows(program, url, query).iter().map(of).collect()
}

#[test]
fn engines_share_the_float32_model_identity_and_bf16_has_its_own() {
    if !has_openvino("two engines on one backlog") {
        return;
    }
    for database in databases() {
        let program = Program::new();
        let (file, url) = (
            program.write("posts.ndjson", posts()),
            database.url.as_str(),
        );
        let classify = |engine: &str, more: &[&str]| {
            let first = ["--database", url, "classify", "--threads", "1"];
            let ran = program.run_with(&[("classify.engine", engine)], &[&first, more].concat());
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            ran
        };
        program.ok(&["--database", url, "import", &file]);
        classify("onnxruntime", &["--limit", "10"]);
        classify("openvino", &[]);
        let mixed = scores(&program, url);
        let models = |program: &Program| rows(program, url, "SELECT number_format FROM models");
        assert_eq!(models(&program).len(), 1);
        let shown = "SELECT fullname, label, outcome FROM labeled_posts ORDER BY fullname";
        let shown = || rows(&program, url, shown);
        let before = shown();
        assert_eq!(before.len(), POSTS);

        let alone = Program::new();
        let file = alone.write("posts.ndjson", posts());
        let here = "sqlite:topicmill.db";
        alone.ok(&["import", &file]);
        alone.ok(&["classify", "--threads", "1"]);
        let exact = scores(&alone, here);
        assert_eq!(
            mixed.keys().collect::<Vec<_>>(),
            exact.keys().collect::<Vec<_>>()
        );
        let off = exact.iter().map(|(key, score)| (score - mixed[key]).abs());
        let off = off.fold(0.0, f64::max);
        assert!(off < 1e-4, "{off}");

        classify("auto", &["--precision", "bf16"]).expect_stderr("OpenVINO 20");
        assert_eq!(models(&program).len(), 2, "bf16 is a different model");
        assert_eq!(shown(), before, "the views are unchanged");
        let settings = "SELECT counts FROM runs WHERE stage = 'classify' ORDER BY id DESC LIMIT 1";
        let run = rows(&program, url, settings).remove(0);
        let counts = run["counts"].as_str().map_or_else(
            || run["counts"].clone(),
            |text| serde_json::from_str(text).unwrap(),
        );
        let runtime = counts["settings"]["runtime"].as_str().unwrap();
        assert!(runtime.starts_with("OpenVINO 20"), "{counts}");
    }
}

#[test]
fn an_unsupported_engine_fails_in_one_sentence_with_its_exit_code() {
    let program = Program::new();
    let cases: [((&str, &str), &[&str], &str); 7] = [
        (
            ("classify.engine", "tensorrt"),
            &[],
            "`onnxruntime` or `openvino`",
        ),
        (
            ("classify.engine", "openvino"),
            &["--device", "cuda"],
            "`--device cpu`",
        ),
        (
            ("classify.engine", "onnxruntime"),
            &["--precision", "bf16"],
            "`classify.engine` to \"openvino\"",
        ),
        (("classify.agreement", "1.01"), &[], "above 0 and up to 1"),
        (
            ("classify.agreement", "0.995"),
            &[],
            "`topicmill bench agreement",
        ),
        (("classify.int8_group", "64"), &[], "32 or 128"),
        (("classify.batch_tokens", "0"), &[], "batch_tokens"),
    ];
    for (setting, flags, message) in cases {
        let ran = program.run_with(&[setting], &[&["classify"], flags].concat());
        assert_eq!(ran.code, 2, "{setting:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{setting:?}: {}", ran.stderr);
    }
}

#[test]
fn a_wrong_openvino_library_fails_in_one_sentence_and_only_where_it_is_used() {
    let program = Program::new();
    let foreign = program.write("libforeign.so", "not a library");
    let named = program.write("libopenvino_c.so", "ov_get_openvino_version");
    for library in [foreign.as_str(), &named, "/no/such/libopenvino_c.so"] {
        let run = |engine: &str, flags: &[&str]| {
            let settings = [("openvino.library", library), ("classify.engine", engine)];
            program.run_with(&settings, &[&["classify"], flags].concat())
        };
        let ran = run("openvino", &[]);
        ran.expect_exit(5, library);
        ran.expect_stderr("openvino.library");
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        assert_eq!(run("auto", &["--precision", "bf16"]).code, 5);
    }
}

#[test]
fn agreement_is_measured_on_stored_texts_before_a_precision_is_chosen() {
    if !has_openvino("agreement") {
        return;
    }
    let program = Program::new();
    let run = |args: &[&str]| program.run(args);
    let model = repository("tests/it/fixtures/models/tiny-bart-made");
    let model = model.display().to_string();
    let text = |i: usize| format!("{}\n", json!({"text": format!("a song about game {i}")}));
    let texts = program.write("texts.ndjson", (0..200).map(text).collect::<String>());
    let few = run(&["bench", "agreement", "--texts", &texts, "--posts", "199"]);
    assert_eq!(few.code, 2, "{}", few.stderr);
    let idle = [
        "bench",
        "agreement",
        "--texts",
        &texts,
        "--precision",
        "bf16",
    ];
    run(&idle).expect_exit(2, "leave out --precision");
    let measure = |format: &str| {
        run(&[
            "bench",
            "agreement",
            "--texts",
            &texts,
            "--model",
            &model,
            "--threads",
            "1",
            "--format",
            format,
        ])
    };
    let ran = measure("json");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let found: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    let of = |engine: &str, precision: &str| {
        let row = found
            .iter()
            .find(|row| row["engine"] == engine && row["precision"] == precision);
        row.unwrap_or_else(|| panic!("{engine} {precision}: {found:?}"))
    };
    assert_eq!(of("onnxruntime", "fp32")["agreement"], 1.0);
    assert_eq!(of("openvino", "fp32")["agreement"], 1.0);
    assert_ne!(of("onnxruntime", "int8")["agreement"], 1.0);

    let file = program
        .folder
        .path()
        .join(".cache/topicmill/agreement.json");
    let kept = fs::read_to_string(&file).unwrap();
    // Make one of the two exact configurations the faster one.
    let mut entries: Value = serde_json::from_str(&kept).unwrap();
    for one in entries.as_object_mut().unwrap().values_mut() {
        for way in one.as_array_mut().unwrap() {
            let fast = way["engine"] == "openvino";
            way["texts_per_sec"] = json!(if fast { 1e6 } else { 1.0 });
        }
    }
    fs::write(&file, entries.to_string()).unwrap();
    let posts = program.write("posts.ndjson", posts());
    program.ok(&["import", &posts]);
    let classify = |settings: &[(&str, &str)]| {
        let flags = ["--model", &model, "--threads", "1", "--limit", "4"];
        program.run_with(settings, &[&["classify"][..], &flags].concat())
    };
    let ran = classify(&[AGREEMENT]);
    ran.expect_exit(0, "OpenVINO 20");
    ran.expect_stderr("200 of 200 texts");
    let asked = classify(&[("classify.engine", "onnxruntime")]);
    assert!(!asked.stderr.contains("OpenVINO"), "{}", asked.stderr);
    classify(&[]).expect_stderr("OpenVINO 20");
    measurements_from_other_machines_are_ignored(&file, &entries, classify);
}

/// Checks that measurements from a different CPU or library, and a truncated file, are ignored.
fn measurements_from_other_machines_are_ignored(
    file: &Path,
    entries: &Value,
    classify: impl Fn(&[(&str, &str)]) -> RunOutput,
) {
    let whole = entries.to_string();
    for (content, message) in [
        (
            whole.replace("cpu (", "cpu (another "),
            "has not been measured on this machine",
        ),
        (
            whole.replace("OpenVINO 20", "OpenVINO 19"),
            "a different library",
        ),
        (whole[..whole.len() / 2].to_owned(), "cannot be read"),
    ] {
        fs::write(file, content).unwrap();
        let ran = classify(&[AGREEMENT]);
        ran.expect_exit(2, "bench agreement");
        ran.expect_stderr(message);
        assert!(!classify(&[]).stderr.contains("OpenVINO"));
    }
}
