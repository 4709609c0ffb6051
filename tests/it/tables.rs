//! Tests that `score` reads and writes CSV, TSV, NDJSON, JSON arrays and Parquet, through the program.
//!
//! No database is involved.

mod failures;
mod formats;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Row;
use serde_json::{Value, json};

use crate::support::engine::repository;
use crate::support::program::{Program, RunOutput, finished, run_limited};

/// Flags for all runs, with two labels.
const LABELS: [&str; 6] = [
    "--label",
    "cooking",
    "--label",
    "football",
    "--background",
    "none",
];

fn flags(more: &[&str]) -> Vec<String> {
    let all = ["score"].iter().chain(more).chain(&LABELS);
    all.map(ToString::to_string).collect()
}

fn command(program: &Program, more: &[&str]) -> Command {
    let words = flags(more);
    program.command(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn score(program: &Program, more: &[&str]) -> RunOutput {
    finished(command(program, more).output().unwrap())
}

fn ok(program: &Program, more: &[&str]) -> RunOutput {
    let ran = score(program, more);
    assert_eq!(ran.code, 0, "{more:?}\n{}", ran.stderr);
    ran
}

/// Runs with these bytes on stdin.
fn piped(program: &Program, input: &[u8], more: &[&str]) -> RunOutput {
    let mut child = command(program, more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writing = std::thread::spawn(move || {
        // A program that rejects its input does not read it.
        let _ = stdin.write_all(&input);
    });
    let ran = finished(child.wait_with_output().unwrap());
    writing.join().unwrap();
    ran
}

fn path(program: &Program, name: &str) -> PathBuf {
    program.folder.path().join(name)
}

fn text(program: &Program, name: &str) -> String {
    fs::read_to_string(path(program, name)).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

/// Parses CSV records, the header first.
fn csv(bytes: &[u8], delimiter: u8) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .from_reader(bytes);
    let record =
        |record: Result<csv::StringRecord, _>| record.unwrap().iter().map(str::to_owned).collect();
    reader.records().map(record).collect()
}

/// Returns the rows of a Parquet file as JSON with the type of each value.
fn parquet(program: &Program, name: &str) -> Vec<Row> {
    let file = File::open(path(program, name)).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    reader
        .get_row_iter(None)
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

const CSV: &str = "id,text,likes\n\
    a1,\"Roast chicken, \"\"the best\"\"\nwith lemon 🍋\",3\n\
    a2,The striker scored a goal,\n";

#[test]
fn csv_output_keeps_the_input_columns_and_adds_label_columns() {
    let program = Program::new().with_default_model();
    program.write("in.csv", CSV);
    ok(&program, &["in.csv", "out.csv"])
        .expect_stderr("as CSV: the text is `text`, the id is `id`");
    let rows = csv(text(&program, "out.csv").as_bytes(), b',');
    assert_eq!(
        rows[0],
        [
            "id",
            "text",
            "likes",
            "label",
            "score",
            "margin",
            "abstained",
            "outcome",
            "error"
        ]
    );
    assert_eq!(
        rows[1][..3],
        ["a1", "Roast chicken, \"the best\"\nwith lemon 🍋", "3"]
    );
    assert_eq!((&*rows[1][3], &*rows[2][3]), ("cooking", "football"));
    assert_eq!(rows[1][6..], ["false", "cooking", ""]);
    assert_eq!(rows.len(), 3);
    let left: Vec<_> = fs::read_dir(program.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("out"))
        .collect();
    assert_eq!(left, ["out.csv"]);
}

#[test]
fn every_format_converts_to_every_other_with_equal_scores() {
    let program = Program::new();
    program.write("in.csv", CSV);
    ok(&program, &["in.csv", "all.ndjson"]);
    let expected = lines(&text(&program, "all.ndjson"));
    for ending in ["tsv", "json", "parquet", "ndjson.gz", "csv.zst"] {
        let there = format!("there.{ending}");
        ok(&program, &["in.csv", &there]);
        let back = format!("back-{ending}.ndjson");
        ok(&program, &[&there, &back, "--id", "id", "--text", "text"]);
        let back = lines(&text(&program, &back));
        for (back, expected) in back.iter().zip(&expected) {
            for name in ["id", "text", "label", "score", "scores"] {
                assert_eq!(back[name], expected[name], "{ending}");
            }
            assert_eq!(back["input_label"], expected["label"], "{ending}");
        }
        assert_eq!(back.len(), 2);
    }
}

#[test]
fn a_localised_spreadsheet_is_read_and_written_unchanged() {
    let program = Program::new();
    let sheet = "\u{feff}Post ID;Text of the post;a,b\r\n7;\"Chicken; with\r\nlemon\";1,5\r\n";
    program.write("de.csv", sheet);
    ok(
        &program,
        &[
            "de.csv",
            "out.csv",
            "--id",
            "Post ID",
            "--text",
            "Text of the post",
        ],
    )
    .expect_stderr("the id is `Post ID`");
    let rows = csv(text(&program, "out.csv").as_bytes(), b';');
    assert_eq!(
        rows[0][..4],
        ["Post ID", "Text of the post", "a,b", "label"]
    );
    assert_eq!(
        rows[1][..4],
        ["7", "Chicken; with\r\nlemon", "1,5", "cooking"]
    );

    let utf16 = |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        let tsv = sheet.replace(';', "\t").replace("en\t with", "en; with");
        tsv.encode_utf16().flat_map(bytes).collect()
    };
    for bytes in [utf16(u16::to_le_bytes), utf16(u16::to_be_bytes)] {
        program.write("u16.tsv", bytes);
        ok(
            &program,
            &[
                "u16.tsv",
                "u16.csv",
                "--text",
                "Text of the post",
                "--overwrite",
            ],
        );
        let rows = csv(text(&program, "u16.csv").as_bytes(), b',');
        // Without an `id` column, rows are numbered.
        assert_eq!(rows[0][..3], ["id", "Post ID", "Text of the post"]);
        assert_eq!(rows[1][..4], ["1", "7", "Chicken; with\r\nlemon", "1,5"]);
    }
}

#[test]
fn text_columns_are_joined_and_a_missing_one_gets_a_suggestion() {
    let program = Program::new();
    program.write(
        "in.csv",
        "key,headline,lead\n1,Roast chicken,[removed]\n2,Goal,The striker scored\n",
    );
    let args = [
        "in.csv",
        "out.ndjson",
        "--text",
        "headline",
        "--text",
        "lead",
    ];
    ok(&program, &[&args[..], &["--id", "key"]].concat());
    let joined = "{\"id\":1,\"text\":\"Roast chicken\"}\n{\"id\":2,\"text\":\"Goal\\n\\nThe striker scored\"}\n";
    program.write("joined.ndjson", joined);
    ok(&program, &["joined.ndjson", "expected.ndjson"]);
    let (found, expected) = (
        text(&program, "out.ndjson"),
        text(&program, "expected.ndjson"),
    );
    for (found, expected) in lines(&found).iter().zip(lines(&expected)) {
        assert_eq!(found["logits"], expected["logits"]);
        assert!(found["key"].is_string());
    }
    for (more, code, message) in [
        (&["--text", "headlin"][..], 2, "did you mean `headline`?"),
        (&["--id", "nr"], 2, "`key`, `headline`, `lead`"),
        (&[], 2, "--text COLUMN"),
    ] {
        program.write("other.csv", "key,headlin_e,lead\n1,a,b\n");
        let input = if more.is_empty() {
            "other.csv"
        } else {
            "in.csv"
        };
        score(&program, &[&[input, "no.csv"][..], more].concat()).expect_exit(code, message);
        assert!(!path(&program, "no.csv").exists());
    }
}

#[test]
fn pipes_can_be_read_and_written() {
    let program = Program::new().with_default_model();
    let ran = piped(&program, CSV.as_bytes(), &["-", "-"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let expected = lines(&ran.stdout);
    assert_eq!(
        (&expected[0]["id"], &expected[0]["label"]),
        (&json!("a1"), &json!("cooking"))
    );
    for (format, more) in [
        ("csv", &["--format", "csv"][..]),
        ("csv", &[]),
        ("tsv", &[]),
        ("json", &[]),
    ] {
        let args = [&["-", "-", "--output-format", format][..], more].concat();
        let ran = piped(&program, CSV.as_bytes(), &args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        if format == "json" {
            assert_eq!(
                serde_json::from_str::<Vec<Value>>(&ran.stdout).unwrap(),
                expected
            );
            continue;
        }
        let rows = csv(
            ran.stdout.as_bytes(),
            if format == "csv" { b',' } else { b'\t' },
        );
        assert_eq!(
            rows[1][..2],
            ["a1", "Roast chicken, \"the best\"\nwith lemon 🍋"]
        );
        assert_eq!(rows[2][3], "football");
    }
    for (input, message) in [
        ("", "has no rows"),
        ("id,text\n", "has no rows"),
        ("PAR1....PAR1", "uncompressed file"),
    ] {
        let ran = piped(&program, input.as_bytes(), &["-", "-"]);
        assert_eq!(
            (ran.code, &*ran.stdout),
            (2, ""),
            "{input:?} {}",
            ran.stderr
        );
        ran.expect_stderr(message);
    }
    piped(&program, b"", &["-", "-", "out.csv"]).expect_exit(2, "once");
}

#[test]
fn a_closed_output_pipe_ends_the_run_quietly() {
    let program = Program::new();
    let rows: String = (0..20_000).map(|i| format!("{i},a song\n")).collect();
    program.write("in.csv", format!("id,text\n{rows}"));
    let mut child = command(&program, &["in.csv", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let ran = finished(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(first.starts_with(b"{\"id\":"), "{first:?}");
}

#[test]
fn a_text_file_has_one_text_per_line_and_no_header() {
    let program = Program::new();
    let texts = "hello world\n\nHow long does bread need?\n";
    let file = program.write("plain.txt", texts);
    let written = ok(&program, &[&file, "-"]).stdout;
    assert_eq!(written.lines().count(), 2, "{written}");
    assert!(written.contains("\"hello world\""), "{written}");
    let from_pipe = piped(&program, texts.as_bytes(), &["-", "-"]);
    assert_eq!(from_pipe.stdout, written);
    let file = program.write("plain.csv", "How long does bread need?\nRye or wheat\n");
    let shown = "looks like text, not like the name of a column";
    score(&program, &[&file, "out.csv"]).expect_exit(2, shown);
    ok(&program, &[&file, "out.ndjson", "--format", "txt"]);
    score(&program, &[&file, "out.xz"]).expect_exit(2, "end its name in .gz or .zst");
}
