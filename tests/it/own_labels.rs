//! `score --labels-column`: rows with labels of their own, by real models, get what they get alone.

use serde_json::{Value, json};

use crate::support::engine::{repository, runtime_is_here};
use crate::support::program::Program;

const NLI: &str = "tests/it/fixtures/models/tiny-bart-mnli";
const EMBEDDING: &str = "models/minilm-reddit-topics";

/// Texts of several lengths, with one to nine labels; some labels are in several rows.
fn rows() -> Vec<(String, Vec<String>)> {
    let words = [
        "cooking",
        "football",
        "chess, go",
        "climate change",
        "law",
        "travel",
        "rust",
        "music",
        "health",
    ];
    (0..12)
        .map(|i| {
            let text = format!(
                "A post about {} {}",
                words[i % 9],
                "and more ".repeat(i * 5 % 17)
            );
            let labels = (0..=(i * 4) % 9).map(|k| words[(i + k) % 9].to_owned());
            (text, labels.collect())
        })
        .collect()
}

fn lines(program: &Program, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(program.folder.path().join(file)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn rows_are_scored_together_as_each_is_alone() {
    if !runtime_is_here("labels of rows") {
        return;
    }
    let program = Program::new();
    let own: String = rows()
        .iter()
        .map(|(text, labels)| format!("{}\n", json!({"text": text, "topics": labels})))
        .collect();
    let input = program.write("own.ndjson", own);
    for (model, mode) in [
        (NLI, "single"),
        (NLI, "multi"),
        (EMBEDDING, "single"),
        (EMBEDDING, "multi"),
    ] {
        let model = repository(model).display().to_string();
        let flags = ["--model", &model, "--mode", mode, "--overwrite"];
        let base = [
            "score",
            &input,
            "own-out.ndjson",
            "--labels-column",
            "topics",
        ];
        program.ok(&[&base[..], &flags].concat());
        let together = lines(&program, "own-out.ndjson");
        for (place, ((text, labels), row)) in rows().iter().zip(&together).enumerate() {
            // One in four rows, to spare time: each starts the program.
            if place % 4 != 1 {
                continue;
            }
            let one = program.write("one.ndjson", json!({"text": text}).to_string());
            let mut words = vec!["score", &one, "one-out.ndjson"];
            for label in labels {
                words.extend(["--label", label]);
            }
            program.ok(&[&words[..], &flags].concat());
            let alone = &lines(&program, "one-out.ndjson")[0];
            assert_eq!(row["label"], alone["label"]);
            let scores = |row: &Value| row["scores"].as_object().unwrap().clone();
            let (mine, theirs) = (scores(row), scores(alone));
            assert_eq!(mine.len(), labels.len());
            for (label, score) in &mine {
                let distance = (score.as_f64().unwrap() - theirs[label].as_f64().unwrap()).abs();
                // The rounding of a cosine, times the scale of the model.
                assert!(distance <= 5e-6, "{model} {mode} {label}: {distance}");
            }
        }
    }
}

#[test]
fn a_parquet_list_and_a_cell_of_csv_hold_the_same_labels() {
    if !runtime_is_here("labels of rows") {
        return;
    }
    let program = Program::new();
    let csv = "id,text,labels\n1,Roast chicken,\"cooking; law\"\n2,Nothing said,\n3,Broken,[\n";
    let input = program.write("own.csv", csv);
    let column = [
        "--labels-column",
        "labels",
        "--labels-separator",
        ";",
        "--label",
        "music",
    ];
    let ran = program.run(
        &[
            &["score", &input, "out.parquet", "--label-scores"][..],
            &column,
        ]
        .concat(),
    );
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("line 4 has a `labels` that begins with `[`"),
        "{}",
        ran.stderr
    );
    let ran = program.run(&[&["score", &input, "-"][..], &column].concat());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let rows: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let labels = |row: &Value| -> Vec<String> {
        row["scores"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(labels(&rows[0]), ["cooking", "law"]);
    assert_eq!(labels(&rows[1]), ["music"]);
    assert_eq!(rows[0]["label"], "cooking");
}

#[test]
fn what_does_not_go_together_is_said() {
    if !runtime_is_here("labels of rows") {
        return;
    }
    let program = Program::new();
    let input = program.write("own.csv", "id,text,labels\n1,One,a|b\n");
    let ran = program.run(&["score", &input, "out.csv", "--labels-column", "label"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("did you mean `labels`?"),
        "{}",
        ran.stderr
    );
    let ran = program.run(&["score", &input, "out.csv", "--labels-separator", "|"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let small = repository(EMBEDDING).display().to_string();
    let nli = repository(NLI).display().to_string();
    let ran = program.run(&[
        "score",
        &input,
        "out.csv",
        "--labels-column",
        "labels",
        "--model",
        &nli,
        "--shortlist",
        "2",
        "--shortlist-model",
        &small,
    ]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("leave out --labels-column"),
        "{}",
        ran.stderr
    );
    let unread = program.ok(&["score", &input, "out.csv"]);
    assert!(
        unread.stderr.contains("use `--labels-column labels`"),
        "{}",
        unread.stderr
    );
}
