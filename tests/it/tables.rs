//! Tests that `score` reads and writes CSV, TSV, NDJSON, JSON arrays and Parquet, through the program.
//!
//! No database is involved.

mod failures;
mod formats;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Row;
use serde_json::{Value, json};

use crate::support::engine::repository;
use crate::support::program::{Program, RunOutput, finished, run_limited};

/// Returns a command that scores with two labels.
fn command(program: &Program, files: &str) -> Command {
    let labels = "--label cooking --label football --background none";
    program.command(&format!("score {files} {labels}"))
}

fn score(program: &Program, files: &str) -> RunOutput {
    finished(command(program, files).output().unwrap())
}

#[track_caller]
fn ok(program: &Program, files: &str) -> RunOutput {
    let ran = score(program, files);
    ran.expect_code(0);
    ran
}

/// Runs with these bytes on stdin.
fn piped(program: &Program, input: &[u8], line: &str) -> RunOutput {
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

/// The header of a table, and its rows by column.
struct Table {
    columns: Vec<String>,
    rows: Vec<BTreeMap<String, String>>,
}

impl Table {
    fn parse(csv: &str, delimiter: u8) -> Self {
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .from_reader(csv.as_bytes());
        let columns = reader.headers().unwrap().iter().map(str::to_owned);
        Self {
            columns: columns.collect(),
            rows: reader.deserialize().map(Result::unwrap).collect(),
        }
    }

    /// Reads a CSV file.
    fn read(program: &Program, name: &str) -> Self {
        Self::parse(&program.read(name), b',')
    }

    /// Returns the values of some columns in a row.
    fn values<const N: usize>(&self, row: usize, columns: [&str; N]) -> [&str; N] {
        columns.map(|column| &*self.rows[row][column])
    }
}

/// Returns the names of the files that begin with `out`.
fn outputs(program: &Program) -> Vec<String> {
    let mut files = program.files();
    files.retain(|name| name.starts_with("out"));
    files
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
    let table = Table::read(&program, "out.csv");
    assert_eq!(
        table.columns.join(" "),
        "id text likes label score margin abstained outcome error"
    );
    assert_eq!(
        table.values(0, ["id", "text", "likes"]),
        ["a1", "Roast chicken, \"the best\"\nwith lemon 🍋", "3"]
    );
    assert_eq!(
        table.values(0, ["label", "abstained", "outcome", "error"]),
        ["cooking", "false", "cooking", ""]
    );
    assert_eq!(table.rows[1]["label"], "football");
    assert_eq!(table.rows.len(), 2);
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
        let convert = format!("{there} back.ndjson --id id --text text --overwrite");
        ok(&program, &convert);
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
    let table = Table::parse(&program.read("out.csv"), b';');
    let columns = ["Post ID", "Text of the post", "a,b", "label"];
    assert_eq!(table.columns[..4], columns);
    assert_eq!(
        table.values(0, columns),
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
        let table = Table::read(&program, "u16.csv");
        // Without an `id` column, rows are numbered.
        let columns = ["id", "Post ID", "Text of the post", "a,b"];
        assert_eq!(table.columns[..4], columns);
        assert_eq!(
            table.values(0, columns),
            ["1", "7", "Chicken; with\r\nlemon", "1,5"]
        );
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
    ran.expect_code(0);
    let expected = lines(&ran.stdout);
    assert_eq!(expected[0]["id"], "a1");
    assert_eq!(expected[0]["label"], "cooking");
    let array = piped(&program, CSV.as_bytes(), "- - --output-format json");
    assert_eq!(array.json(), json!(expected));
    for (flags, delimiter) in [("csv --format csv", b','), ("csv", b','), ("tsv", b'\t')] {
        let line = format!("- - --output-format {flags}");
        let ran = piped(&program, CSV.as_bytes(), &line);
        let table = Table::parse(&ran.stdout, delimiter);
        assert_eq!(
            table.values(0, ["id", "text"]),
            ["a1", "Roast chicken, \"the best\"\nwith lemon 🍋"]
        );
        assert_eq!(table.rows[1]["label"], "football");
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
    ran.expect_code(141);
    assert!(first.starts_with(b"{\"id\":"), "{first:?}");
}

#[test]
fn a_text_file_has_one_text_per_line_and_no_header() {
    let program = Program::new();
    let texts = "hello world\n\nHow long does bread need?\n";
    program.write("plain.txt", texts);
    let written = ok(&program, "plain.txt -").stdout;
    assert_eq!(written.lines().count(), 2, "{written}");
    assert!(written.contains("\"hello world\""), "{written}");
    let from_pipe = piped(&program, texts.as_bytes(), "- -");
    assert_eq!(from_pipe.stdout, written);
    program.write("plain.csv", "How long does bread need?\nRye or wheat\n");
    let shown = "looks like text, not like the name of a column";
    score(&program, "plain.csv out.csv").expect_exit(2, shown);
    ok(&program, "plain.csv out.ndjson --format txt");
}
