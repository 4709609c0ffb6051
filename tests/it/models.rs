//! Tests model folders: manifests are checked, invalid models are rejected before a text is scored, and downloads
//! from a hub survive interruptions.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::engine::{has_onnx_runtime, repository};
use crate::support::hub::{Fault, Hub};
use crate::support::program::{Program, RunOutput, finished};

const MADE: &str = "tests/it/fixtures/models/tiny-bart-made";
const EXPORTED: &str = "tests/it/fixtures/models/tiny-bart-mnli";
const WRONG: &str = "tests/it/fixtures/wrong/tiny-bart-mnli-stock-fusion.onnx";

/// Copies the prepared model folder, for the test to change.
fn copy() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(repository(MADE)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    dir
}

/// Changes a file of a folder, and its hash in the manifest if `update_manifest`.
fn change(dir: &Path, file: &str, update_manifest: bool, with: impl Fn(&[u8]) -> Vec<u8>) {
    let path = dir.join(file);
    let before = fs::read(&path).unwrap();
    let after = with(&before);
    assert_ne!(before, after, "{file} was not changed");
    fs::write(&path, &after).unwrap();
    if update_manifest {
        let hash =
            |bytes: &[u8]| topicmill_score::hex(&<sha2::Sha256 as sha2::Digest>::digest(bytes));
        replace(dir, "manifest.toml", &hash(&before), &hash(&after));
    }
}

/// Replaces a string in a text file; the string must occur.
fn replace(dir: &Path, file: &str, old: &str, new: &str) {
    let path = dir.join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "{file} does not contain {old}");
    fs::write(&path, text.replace(old, new)).unwrap();
}

/// Scores a text with a model.
fn score(program: &Program, model: &Path, more: &[&str]) -> RunOutput {
    let texts = program.write("texts.ndjson", "{\"id\": 1, \"text\": \"roast chicken\"}\n");
    let model = model.display().to_string();
    let words = [
        "score",
        &texts,
        "scores.ndjson",
        "--overwrite",
        "--label",
        "food",
        "--label",
        "sports",
    ];
    program.run(&[&words[..], &["--model", &model], more].concat())
}

fn scores(program: &Program) -> Value {
    let text = program.read("scores.ndjson");
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

fn rows(ran: &RunOutput) -> Vec<Value> {
    serde_json::from_str(&ran.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", ran.stdout, ran.stderr))
}

fn row<'r>(rows: &'r [Value], file: &str) -> &'r Value {
    rows.iter().find(|row| row["file"] == file).unwrap()
}

#[test]
fn an_optimised_graph_is_selected_by_precision_and_scores_like_the_export() {
    if !has_onnx_runtime("graphs of a manifest") {
        return;
    }
    let program = Program::new();
    let of = |model: &str, more: &[&str]| {
        let ran = score(&program, &repository(model), more);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        (scores(&program), ran.stderr)
    };
    let (exported, _) = of(EXPORTED, &[]);
    let (made, message) = of(MADE, &[]);
    assert!(
        message.contains("tiny-bart-made in fp32 on cpu"),
        "{message}"
    );
    let (int8, message) = of(MADE, &["--precision", "int8"]);
    assert!(
        message.contains("tiny-bart-made in int8 on cpu"),
        "{message}"
    );
    let distance = |a: &Value, b: &Value| {
        (a["scores"]["food"].as_f64().unwrap() - b["scores"]["food"].as_f64().unwrap()).abs()
    };
    assert!(distance(&exported, &made) < 1e-5);
    assert!(
        distance(&exported, &int8) > 1e-5,
        "the int8 graph was not used"
    );
    let none = score(&program, &repository(MADE), &["--precision", "fp16"]);
    none.expect_exit(5, "no graph for cpu in fp16");
    none.expect_stderr("cpu-fp32, cpu-int8");
}

#[test]
fn model_errors_are_reported_before_any_text_is_scored() {
    if !has_onnx_runtime("refused models") {
        return;
    }
    let program = Program::new();
    let refused = |what: &str, message: &str, spoil: &dyn Fn(&Path)| {
        let dir = copy();
        spoil(dir.path());
        let ran = score(&program, dir.path(), &[]);
        assert_eq!(ran.code, 5, "{what}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{what}: {}", ran.stderr);
    };
    refused(
        "the stock optimizer's fusion of BART",
        "from those in `manifest.toml`",
        &|dir| {
            let wrong = fs::read(repository(WRONG)).unwrap();
            change(dir, "cpu-fp32.onnx", true, |_| wrong.clone());
        },
    );
    refused(
        "truncated weights",
        "differs from `manifest.toml`",
        &|dir| {
            change(dir, "cpu-fp32.onnx", false, |bytes| {
                bytes[..200_000].to_vec()
            });
        },
    );
    refused(
        "truncated weights, with their hash in the manifest",
        "load the graph",
        &|dir| {
            change(dir, "cpu-fp32.onnx", true, |bytes| {
                bytes[..200_000].to_vec()
            });
        },
    );
    refused("another tokenizer", "belongs to another model", &|dir| {
        let other = fs::read(repository(
            "tests/it/fixtures/models/tiny-bert-nli/tokenizer.json",
        ))
        .unwrap();
        change(dir, "tokenizer.json", true, |_| other.clone());
    });
    refused("no label2id", "neither `label2id`", &|dir| {
        change(dir, "config.json", true, |text| {
            let mut config: Value = serde_json::from_slice(text).unwrap();
            config
                .as_object_mut()
                .unwrap()
                .retain(|key, _| !key.ends_with("2id") && !key.starts_with("id2"));
            serde_json::to_vec(&config).unwrap()
        });
    });
    refused(
        "labels in a different order",
        "its kind, classes or output differ from `config.json`",
        &|dir| {
            change(dir, "config.json", true, |text| {
                let mut config: Value = serde_json::from_slice(text).unwrap();
                config["label2id"] =
                    serde_json::json!({"entailment": 0, "neutral": 1, "contradiction": 2});
                serde_json::to_vec(&config).unwrap()
            });
        },
    );
    refused("another logit", "from those in `manifest.toml`", &|dir| {
        replace(dir, "manifest.toml", "logits = [1.", "logits = [2.");
    });
    refused("a manifest of a later format", "its format is 2", &|dir| {
        replace(dir, "manifest.toml", "format = 1", "format = 2");
    });
    refused(
        "a graph in a different folder",
        "is not the name of a file in the same folder",
        &|dir| {
            replace(
                dir,
                "manifest.toml",
                "file = \"cpu-fp32.onnx\"",
                "file = \"../cpu-fp32.onnx\"",
            );
        },
    );
    refused("two graphs and no manifest", "has several graphs", &|dir| {
        fs::remove_file(dir.join("manifest.toml")).unwrap();
    });
}

#[test]
fn one_label_or_a_thousand_are_scored_and_a_template_without_braces_is_rejected() {
    if !has_onnx_runtime("few and many labels") {
        return;
    }
    let program = Program::new();
    let texts = program.write("texts.ndjson", "{\"id\": 1, \"text\": \"a\"}\n");
    let model = repository(MADE).display().to_string();
    let base = [
        "score",
        &texts,
        "scores.ndjson",
        "--overwrite",
        "--model",
        &model,
    ];
    let labels: Vec<String> = (0..1_000).map(|n| format!("--label=label {n}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    for n in [1, 1_000] {
        program.ok(&[&base[..], &labels[..n]].concat());
        assert_eq!(scores(&program)["scores"].as_object().unwrap().len(), n);
    }
    program
        .run(&[&base[..], &["--label", "a", "--template", "About it."]].concat())
        .expect_exit(2, "{}");
}

#[test]
fn verify_reports_every_file_and_graph() {
    if !has_onnx_runtime("model verify") {
        return;
    }
    let program = Program::new();
    let verify = |dir: &Path| {
        let dir = dir.display().to_string();
        program.run(&["model", "verify", &dir, "--format", "json"])
    };
    let dir = copy();
    let good = verify(dir.path());
    assert_eq!(good.code, 0, "{}{}", good.stdout, good.stderr);
    let table = rows(&good);
    assert_eq!(table.len(), 5);
    assert!(
        table
            .iter()
            .all(|row| row["hash"] == "ok" && row["state"] == "ok"),
        "{table:?}"
    );
    let error = |row: &Value| row["logits off"].as_str().unwrap().parse::<f64>().unwrap();
    let (fp32, int8) = (row(&table, "cpu-fp32.onnx"), row(&table, "cpu-int8.onnx"));
    assert!(error(fp32) < 1e-5 && error(int8) > 1e-3, "{table:?}");
    assert_eq!(fp32["allowed"], "1.0e-4");

    let wrong = fs::read(repository(WRONG)).unwrap();
    change(dir.path(), "cpu-fp32.onnx", true, |_| wrong.clone());
    change(dir.path(), "cpu-int8.onnx", false, |bytes| {
        bytes[1..].to_vec()
    });
    let bad = verify(dir.path());
    assert_eq!(bad.code, 5);
    let table = rows(&bad);
    let fp32 = row(&table, "cpu-fp32.onnx");
    assert!(
        error(fp32) > 0.5 && fp32["state"].as_str().unwrap().starts_with("wrong"),
        "{fp32}"
    );
    assert_eq!(row(&table, "cpu-int8.onnx")["hash"], "other");

    let plain = verify(&repository(EXPORTED));
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    assert_eq!(rows(&plain)[0]["hash"], "not known");
}

#[test]
fn list_shows_available_models_and_the_one_in_use() {
    let program = Program::new();
    let models = program.folder.path().join("models");
    fs::create_dir(&models).unwrap();
    std::os::unix::fs::symlink(repository(MADE), models.join("made")).unwrap();
    fs::create_dir(models.join("empty")).unwrap();
    let table = rows(&program.ok(&["model", "list", "--format", "json"]));
    let of = |name: &str| table.iter().find(|row| row["model"] == name).unwrap();
    assert_eq!(of("tiny-bart-made")["graph"], "cpu-fp32");
    assert_eq!(of("tiny-bart-made")["of"], "cpu-fp32, cpu-int8");
    assert_eq!(of("tiny-bart-mnli")["state"], "in use");
    assert!(
        of("empty")["state"]
            .as_str()
            .unwrap()
            .contains("config.json")
    );
}

/// Returns a `model pull` command that uses a hub and its own home.
fn pull(
    program: &Program,
    hub: &Hub,
    words: &[&str],
    token: Option<&str>,
) -> std::process::Command {
    let mut command = program.command(&[&["model", "pull"], words].concat());
    command
        .env("HF_ENDPOINT", &hub.url)
        .env("HF_HOME", program.folder.path().join("hf"))
        .env_remove("HF_TOKEN");
    if let Some(token) = token {
        command.env("HF_TOKEN", token);
    }
    command
}

async fn pulled(program: &Program, hub: &Hub, words: &[&str], token: Option<&str>) -> RunOutput {
    let mut command = pull(program, hub, words, token);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    finished(output.await.unwrap())
}

fn same_files(folder: &Path, original: &Path, names: &[&str]) {
    for name in names {
        assert_eq!(
            fs::read(folder.join(name)).unwrap(),
            fs::read(original.join(name)).unwrap(),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_hub_export_is_downloaded_and_used() {
    if !has_onnx_runtime("model pull") {
        return;
    }
    let (program, hub) = (Program::new(), Hub::start().await);
    hub.add_folder("someone/tiny", &repository(EXPORTED));
    hub.add_files(
        "someone/tiny",
        [
            ("model.safetensors", 9),
            ("onnx/model_fp16.onnx", 9),
            ("../evil.onnx", 9),
        ]
        .map(|(name, bytes)| (name.to_owned(), vec![0; bytes])),
    );
    let ran = pulled(&program, &hub, &["someone/tiny"], None).await;
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "models/tiny\n"),
        "{}",
        ran.stderr
    );
    let folder = program.folder.path().join("models/tiny");
    let wanted = [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "onnx/model.onnx",
    ];
    same_files(&folder, &repository(EXPORTED), &wanted);
    assert_eq!(
        hub.requests("onnx").len(),
        1,
        "only the graph that is used is downloaded"
    );
    assert!(hub.requests("model.safetensors").is_empty());
    let scored = score(&program, &folder, &[]);
    assert_eq!(scored.code, 0, "{}", scored.stderr);

    pulled(&program, &hub, &["someone/tiny"], None)
        .await
        .expect_exit(2, "already exists");
    pulled(
        &program,
        &hub,
        &["someone/tiny", "--precision", "q4", "--to", "q4"],
        None,
    )
    .await
    .expect_exit(5, "onnx/model_fp16.onnx");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_model_is_downloaded_with_the_requested_graphs() {
    let (program, hub) = (Program::new(), Hub::start().await);
    hub.add_folder("someone/made", &repository(MADE));
    let ran = pulled(&program, &hub, &["someone/made", "--to", "one"], None).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let one = program.folder.path().join("one");
    same_files(&one, &repository(MADE), &["manifest.toml", "cpu-fp32.onnx"]);
    assert!(!one.join("cpu-int8.onnx").exists());
    let verified = program.run(&["model", "verify", "one", "--format", "json"]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    assert_eq!(row(&rows(&verified), "cpu-int8.onnx")["hash"], "absent");
    let ran = pulled(
        &program,
        &hub,
        &["someone/made", "--to", "all", "--precision", "all"],
        None,
    )
    .await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    same_files(
        &program.folder.path().join("all"),
        &repository(MADE),
        &["cpu-fp32.onnx", "cpu-int8.onnx"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_download_resumes() {
    let (program, hub) = (Program::new(), Hub::start().await);
    hub.add_folder("someone/made", &repository(MADE));
    hub.set_fault("cpu-fp32.onnx", Some(Fault::Break(2)));
    let ran = pulled(&program, &hub, &["someone/made"], None).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    same_files(
        &program.folder.path().join("models/made"),
        &repository(MADE),
        &["cpu-fp32.onnx"],
    );
    let seen = hub.requests("cpu-fp32.onnx");
    let ranges: Vec<bool> = seen.iter().map(|(_, range, _)| range.is_some()).collect();
    assert_eq!(ranges, [false, true, true], "{seen:?}");

    hub.set_fault("cpu-fp32.onnx", Some(Fault::Damage));
    pulled(&program, &hub, &["someone/made", "--to", "damaged"], None)
        .await
        .expect_exit(75, "does not match the hub's list");
    assert!(!program.folder.path().join("damaged").exists());
    hub.set_fault("cpu-fp32.onnx", None);
    let ran = pulled(&program, &hub, &["someone/made", "--to", "damaged"], None).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_errors_are_reported_without_the_token() {
    let (program, hub) = (Program::new(), Hub::start().await);
    hub.add_folder("someone/gated", &repository(MADE));
    hub.require_token("someone/gated", "hf_secret");
    let shown = |ran: &RunOutput, code: i32, words: &str| {
        ran.expect_exit(code, words);
        assert!(!ran.stderr.contains("hf_"), "{}", ran.stderr);
    };
    let words = ["someone/gated", "-vv"];
    shown(
        &pulled(&program, &hub, &words, None).await,
        3,
        "set HF_TOKEN",
    );
    shown(
        &pulled(&program, &hub, &words, Some("hf_wrong")).await,
        3,
        "accept the model's terms",
    );
    shown(
        &pulled(&program, &hub, &["someone/none"], None).await,
        2,
        "no such repository",
    );
    shown(
        &pulled(&program, &hub, &["some one/x"], None).await,
        2,
        "write it as `owner/name`",
    );
    let ran = pulled(&program, &hub, &words, Some("hf_secret")).await;
    shown(&ran, 0, "downloaded someone/gated");

    let weights = ["config.json", "tokenizer.json", "model.safetensors"];
    hub.add_files(
        "someone/weights",
        weights.map(|name| (name.to_owned(), b"{}".to_vec())),
    );
    shown(
        &pulled(&program, &hub, &["someone/weights"], None).await,
        5,
        "tools/model.py",
    );
    hub.add_files("someone/other", [("model.onnx".to_owned(), vec![0])]);
    shown(
        &pulled(&program, &hub, &["someone/other"], None).await,
        5,
        "has no `config.json`",
    );
    hub.add_files("someone/weights", [("model.onnx".to_owned(), vec![0])]);
    shown(
        &pulled(&program, &hub, &["someone/weights"], None).await,
        5,
        "neither `label2id`",
    );
    assert!(
        hub.requests("model.onnx").is_empty(),
        "no weights of an invalid model are downloaded"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_stored_by_the_hub_client_is_used() {
    let (program, hub) = (Program::new(), Hub::start().await);
    hub.add_folder("someone/made", &repository(MADE));
    hub.require_token("someone/made", "hf_kept");
    fs::create_dir(program.folder.path().join("hf")).unwrap();
    program.write("hf/token", "hf_kept\n");
    let ran = pulled(&program, &hub, &["someone/made"], None).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}
