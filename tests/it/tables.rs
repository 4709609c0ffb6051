//! Tests that `score` reads and writes CSV, TSV, NDJSON, JSON arrays and Parquet, through the program.
//!
//! No database is involved.

mod failures;
mod formats;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Row;
use serde_json::{Value, json};

use crate::support::engine::repository;
use crate::support::program::{CommandLine, Program, RunOutput, finished, run_limited};

/// Returns a command that scores with two labels.
fn command(program: &Program, line: &(impl CommandLine + ?Sized)) -> Command {
    let labels = "--label cooking --label football --background none";
    let line = [
        &["score".to_owned()],
        &line.arguments()[..],
        &labels.arguments(),
    ]
    .concat();
    program.command(&line)
}

fn score(program: &Program, line: &(impl CommandLine + ?Sized)) -> RunOutput {
    finished(command(program, line).output().unwrap())
}

fn ok(program: &Program, line: &(impl CommandLine + ?Sized)) -> RunOutput {
    let ran = score(program, line);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran
}

/// Runs with these bytes on stdin.
fn piped(program: &Program, input: &[u8], line: &(impl CommandLine + ?Sized)) -> RunOutput {
    let mut command = command(program, line);
    // A file, because a program that rejects its input does not read it.
    program.write("stdin", input);
    command.stdin(File::open(program.path("stdin")).unwrap());
    finished(command.output().unwrap())
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

/// Returns the records of a CSV file, the header first.
fn table(program: &Program, name: &str) -> Vec<Vec<String>> {
    csv(program.read(name).as_bytes(), b',')
}

/// Returns the names of the files that begin with `out`.
fn outputs(program: &Program) -> Vec<String> {
    let entries = fs::read_dir(program.folder.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("out")).collect()
}

/// Returns the rows of a Parquet file as JSON with the type of each value.
fn parquet(program: &Program, name: &str) -> Vec<Row> {
    let file = File::open(program.path(name)).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(Result::unwrap).collect()
}

const CSV: &str = "id,text,likes\n\
    a1,\"Roast chicken, \"\"the best\"\"\nwith lemon 🍋\",3\n\
    a2,The striker scored a goal,\n";

#[test]
fn csv_output_keeps_the_input_columns_and_adds_label_columns() {
    let program = Program::new().with_default_model();
    program.write("in.csv", CSV);
    ok(&program, "in.csv out.csv").expect_stderr("as CSV: the text is `text`, the id is `id`");
    let rows = table(&program, "out.csv");
    assert_eq!(
        rows[0].join(" "),
        "id text likes label score margin abstained outcome error"
    );
    assert_eq!(
        rows[1][..3],
        ["a1", "Roast chicken, \"the best\"\nwith lemon 🍋", "3"]
    );
    assert_eq!((&*rows[1][3], &*rows[2][3]), ("cooking", "football"));
    assert_eq!(rows[1][6..], ["false", "cooking", ""]);
    assert_eq!(rows.len(), 3);
    assert_eq!(outputs(&program), ["out.csv"]);
}

#[test]
fn every_format_converts_to_every_other_with_equal_scores() {
    let program = Program::new();
    program.write("in.csv", CSV);
    ok(&program, "in.csv all.ndjson");
    let expected = program.read_lines("all.ndjson");
    for ending in ["tsv", "json", "parquet", "ndjson.gz", "csv.zst"] {
        let there = format!("there.{ending}");
        ok(&program, &format!("in.csv {there}"));
        ok(
            &program,
            &format!("{there} back.ndjson --id id --text text --overwrite"),
        );
        let back = program.read_lines("back.ndjson");
        for (back, expected) in back.iter().zip(&expected) {
            for name in ["id", "text", "label", "score", "scores"] {
                assert_eq!(back[name], expected[name], "{ending}");
            }
            assert_eq!(back["input_label"], expected["label"], "{ending}");
        }
        assert_eq!(back.len(), 2);
    }
    score(&program, "in.csv out.parquet.gz").expect_exit(2, "compresses its columns itself");
}

#[test]
fn a_localised_spreadsheet_is_read_and_written_unchanged() {
    let program = Program::new();
    let sheet = "\u{feff}Post ID;Text of the post;a,b\r\n7;\"Chicken; with\r\nlemon\";1,5\r\n";
    program.write("de.csv", sheet);
    ok(
        &program,
        "de.csv out.csv --id 'Post ID' --text 'Text of the post'",
    )
    .expect_stderr("the id is `Post ID`");
    let rows = csv(program.read("out.csv").as_bytes(), b';');
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
            "u16.tsv u16.csv --text 'Text of the post' --overwrite",
        );
        let rows = table(&program, "u16.csv");
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
    ok(
        &program,
        "in.csv out.ndjson --text headline --text lead --id key",
    );
    let joined = "{\"id\":1,\"text\":\"Roast chicken\"}\n{\"id\":2,\"text\":\"Goal\\n\\nThe striker scored\"}\n";
    program.write("joined.ndjson", joined);
    ok(&program, "joined.ndjson expected.ndjson");
    let [found, expected] = ["out.ndjson", "expected.ndjson"].map(|name| program.read_lines(name));
    for row in [0, 1] {
        assert_eq!(found[row]["logits"], expected[row]["logits"]);
        assert!(found[row]["key"].is_string());
    }
    program.write("other.csv", "key,headlin_e,lead\n1,a,b\n");
    for (line, message) in [
        ("in.csv no.csv --text headlin", "did you mean `headline`?"),
        ("in.csv no.csv --id nr", "`key`, `headline`, `lead`"),
        ("other.csv no.csv", "--text COLUMN"),
    ] {
        score(&program, line).expect_exit(2, message);
        assert!(!program.path("no.csv").exists());
    }
}

#[test]
fn pipes_can_be_read_and_written() {
    let program = Program::new().with_default_model();
    let ran = piped(&program, CSV.as_bytes(), "- -");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let expected = lines(&ran.stdout);
    assert_eq!(
        (&expected[0]["id"], &expected[0]["label"]),
        (&json!("a1"), &json!("cooking"))
    );
    let array = piped(&program, CSV.as_bytes(), "- - --output-format json");
    assert_eq!(array.json(), json!(expected));
    for (flags, delimiter) in [("csv --format csv", b','), ("csv", b','), ("tsv", b'\t')] {
        let line = format!("- - --output-format {flags}");
        let ran = piped(&program, CSV.as_bytes(), &line);
        let rows = csv(ran.stdout.as_bytes(), delimiter);
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
        let ran = piped(&program, input.as_bytes(), "- -");
        ran.expect_exit(2, message);
        assert_eq!(ran.stdout, "", "{input:?}");
    }
    piped(&program, b"", "- - out.csv").expect_exit(2, "once");
}

#[test]
fn a_closed_output_pipe_ends_the_run_quietly() {
    let program = Program::new();
    let rows: String = (0..20_000).map(|i| format!("{i},a song\n")).collect();
    program.write("in.csv", format!("id,text\n{rows}"));
    let mut child = command(&program, "in.csv -")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let ran = finished(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 141, "{}", ran.stderr);
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
    let from_pipe = piped(&program, texts.as_bytes(), "- -");
    assert_eq!(from_pipe.stdout, written);
    let file = program.write("plain.csv", "How long does bread need?\nRye or wheat\n");
    let shown = "looks like text, not like the name of a column";
    score(&program, &[&file, "out.csv"]).expect_exit(2, shown);
    ok(&program, &[&file, "out.ndjson", "--format", "txt"]);
}
