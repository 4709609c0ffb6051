//! Tests `doctor --bottleneck`: its report on runs and its message if there are none.

use serde_json::{Value, json};

use crate::support::builders;
use crate::support::postgres::databases;
use crate::support::program::{Program, RunOutput, words};

fn doctor(program: &Program, flags: &[&str]) -> RunOutput {
    program.run(&[&["doctor", "--bottleneck"], flags].concat())
}

fn found(program: &Program, flags: &[&str]) -> Value {
    let ran = doctor(program, &[&["--format", "json"], flags].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Stores posts in an import run, followed by a run of `classify`.
fn label(program: &Program) {
    let posts = program.write("posts.ndjson", builders::lines(40, 40));
    program.ok(&["import", &posts]);
    classify(program);
}

fn classify(program: &Program) {
    let settings = [("classify.batch_tokens", "512")];
    let ran = program.run_with(&settings, &words("classify --device cpu"));
    ran.expect_exit(0, "");
}

#[test]
fn the_latest_labelling_run_is_explained_on_both_databases() {
    for database in databases() {
        let program = Program::with_database(&database.url);
        label(&program);
        // This run has nothing to do.
        classify(&program);

        let output = found(&program, &[]);
        let status = program.json(&["status"]);
        let recorded = &status["runs"][1];
        assert_eq!(output["run"], recorded["id"]);
        assert_eq!(output["posts"], 40);
        assert_eq!(output["stages"], recorded["counts"]["stages"]);
        let secs = |stage: &str| output["stages"][stage].as_f64().unwrap();
        for stage in [
            "engine_busy_secs",
            "claim_secs",
            "tokenize_secs",
            "write_secs",
        ] {
            assert!(secs(stage) > 0.0, "{stage}: {output}");
        }
        let settings = &output["settings"];
        assert_eq!(settings["devices"], json!(["cpu"]));
        assert_eq!(settings["batch_tokens"], 512);
        assert_eq!(settings["batch_tokens_from"], "set");
        let kind = database.url.split(':').next().unwrap();
        assert_eq!(settings["database"], kind, "{}", database.url);
        assert!(output["verdict"]["limit"].is_string(), "{output}");
        assert_eq!(output["verdict"]["on_target"], Value::Null);
        assert_eq!(
            (&output["gpu"], &output["gpu_note"]),
            (&json!([]), &Value::Null)
        );

        let text = doctor(&program, &[]).stdout;
        for part in [
            "40 posts in",
            "tiny-bart-mnli on cpu",
            "engine: computing",
            "The bottleneck is",
        ] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
        assert!(!text.contains("GPU %"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let csv = doctor(&program, &["--format", "csv"]).stdout;
        assert!(
            csv.starts_with("stage,seconds,") && csv.lines().count() == 8,
            "{csv}"
        );
    }
}

#[test]
fn a_run_is_explained_by_its_number() {
    let database = crate::support::postgres::sqlite();
    let program = Program::with_database(&database.url);
    label(&program);
    classify(&program);
    assert_eq!(found(&program, &["--run", "2"])["posts"], 40);
    let nothing = found(&program, &["--run", "3"]);
    assert_eq!(
        (&nothing["posts"], &nothing["verdict"]["limit"]),
        (&json!(0), &Value::Null)
    );
    for (run, message) in [("1", "is a run of `import`"), ("99", "no run 99")] {
        doctor(&program, &["--run", run]).expect_exit(2, message);
    }
}
