//! Tests that `score` reads and writes CSV, TSV, NDJSON, JSON arrays and Parquet, through the program.
//!
//! No database is involved.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Row;
use serde_json::{Value, json};

use crate::support::engine::repository;
use crate::support::program::{Program, RunOutput, finished, run_limited};

/// Flags of all runs, with two labels.
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
        // Without a column `id`, rows are numbered.
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
fn json_lines_and_arrays_are_read_and_numbers_keep_every_digit() {
    let program = Program::new();
    let array = "[\n {\"id\": 7, \"text\": \"chicken\", \"big\": 123456789012345678901.10,\n\
        \"nested\": {\"a\": [1,\n 2]}, \"label\": \"theirs\"},\n {\"id\": \"x\", \"title\": \"Goal\", \"score\": 3}]";
    program.write("in.json", array);
    ok(&program, &["in.json", "out.json"]).expect_stderr("`label` is renamed to `input_label`");
    let written = text(&program, "out.json");
    assert!(
        written.contains("\"big\":123456789012345678901.10,"),
        "{written}"
    );
    let rows: Vec<Value> = serde_json::from_str(&written).unwrap();
    assert_eq!(rows[0]["nested"], json!({"a": [1, 2]}));
    assert_eq!(rows[0]["input_label"], "theirs");
    assert_eq!(
        (&rows[1]["id"], &rows[1]["input_score"]),
        (&json!("x"), &json!(3))
    );
    // A table has the columns of all objects.
    ok(&program, &["in.json", "out.csv", "--label-scores"]);
    let table = csv(text(&program, "out.csv").as_bytes(), b',');
    assert_eq!(
        table[0],
        [
            "id",
            "text",
            "big",
            "nested",
            "input_label",
            "title",
            "input_score",
            "label",
            "score",
            "margin",
            "abstained",
            "outcome",
            "score_cooking",
            "score_football",
            "error"
        ]
    );
    assert_eq!(
        table[1][2..5],
        ["123456789012345678901.10", "{\"a\":[1,2]}", "theirs"]
    );
    let sum: f64 = table[1][12..14]
        .iter()
        .map(|n| n.parse::<f64>().unwrap())
        .sum();
    assert!((sum - 1.0).abs() < 1e-9);
}

#[test]
fn parquet_keeps_its_types_and_row_groups() {
    let program = Program::new();
    let posts = repository("tests/it/fixtures/typed.parquet");
    let posts = posts.to_str().unwrap();
    ok(&program, &[posts, "out.parquet", "--label-scores"])
        .expect_stderr("`score` is renamed to `input_score`");
    let read =
        |name: &std::path::Path| SerializedFileReader::new(File::open(name).unwrap()).unwrap();
    let (from, to) = (read(posts.as_ref()), read(&path(&program, "out.parquet")));
    assert_eq!(from.num_row_groups(), to.num_row_groups());
    let schema = |reader: &SerializedFileReader<File>| {
        reader
            .metadata()
            .file_metadata()
            .schema()
            .get_fields()
            .to_vec()
    };
    let (theirs, all) = (schema(&from), schema(&to));
    for (before, after) in theirs.iter().zip(&all) {
        let name = if before.name() == "score" {
            "input_score"
        } else {
            before.name()
        };
        assert_eq!(after.name(), name);
        assert_eq!(
            before.get_basic_info().logical_type_ref(),
            after.get_basic_info().logical_type_ref()
        );
    }
    let ours: Vec<&str> = all[theirs.len()..]
        .iter()
        .map(|field| field.name())
        .collect();
    assert_eq!(
        ours,
        [
            "label",
            "score",
            "margin",
            "abstained",
            "outcome",
            "score_cooking",
            "score_football",
            "error"
        ]
    );
    let (from, to) = (
        from.get_row_iter(None).unwrap(),
        to.get_row_iter(None).unwrap(),
    );
    for (before, after) in from.zip(to) {
        let (before, after) = (
            before.unwrap().into_columns(),
            after.unwrap().into_columns(),
        );
        for ((_, before), (name, after)) in before.iter().zip(&after) {
            assert_eq!(before, after, "{name}");
        }
    }
    // As text, times have their usual form, and lists are JSON.
    ok(&program, &[posts, "out.ndjson"]);
    let rows = lines(&text(&program, "out.ndjson"));
    assert_eq!(rows[1]["when"], "2024-01-01T00:37:00");
    assert_eq!(rows[1]["when_tz"], "2023-12-31T23:37:00Z");
    assert_eq!(
        (&rows[1]["tags"], &rows[0]["tags"]),
        (&json!(["x", "t1"]), &Value::Null)
    );
    assert_eq!(
        (&rows[1]["dec"], &rows[1]["day"]),
        (&json!("0.01"), &json!("2024-01-02"))
    );
    assert_eq!(
        (&rows[1]["f32"], &rows[0]["input_score"]),
        (&json!(0.1), &Value::Null)
    );
    // A row without a text has no score, but stays in its place.
    assert_eq!(rows.len(), 20);
}

#[test]
fn json_converts_to_parquet_with_its_types() {
    let program = Program::new().with_default_model();
    program.write(
        "in.ndjson",
        "{\"id\":1,\"text\":\"chicken\",\"n\":1,\"f\":1,\"b\":true,\"m\":1,\"z\":null}\n\
         no json\n\
         {\"id\":9007199254740993,\"text\":\"goal\",\"n\":null,\"f\":0.1,\"b\":null,\"m\":\"x\"}\n",
    );
    score(&program, &["in.ndjson", "out.parquet"]).expect_exit(1, "line 2 is not JSON");
    let rows: Vec<String> = parquet(&program, "out.parquet")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        rows[0].starts_with("{id: 1, text: \"chicken\", n: 1, f: 1.0, b: true, m: \"1\", z: null, label: \"cooking\""),
        "{}",
        rows[0]
    );
    assert!(
        rows[1].contains("label: null") && rows[1].contains("line 2 is not JSON"),
        "{}",
        rows[1]
    );
    assert!(
        rows[2].starts_with(
            "{id: 9007199254740993, text: \"goal\", n: null, f: 0.1, b: null, m: \"x\""
        ),
        "{}",
        rows[2]
    );
}

/// An integer is written with the digits that were read, or as text, never as another number.
#[test]
fn numbers_beyond_64_bits_keep_every_digit() {
    let program = Program::new();
    let rows = [
        ("18446744073709551615", "5"),
        ("9223372036854775808", "1000000000000000000000000000000"),
    ];
    let input: String = rows
        .iter()
        .map(|(id, n)| {
            format!("{{\"id\":{id},\"text\":\"goal\",\"n\":{n},\"mixed\":9007199254740993}}\n")
        })
        .collect();
    // A double cannot represent these integers.
    let last = "{\"id\":1,\"text\":\"goal\",\"n\":1,\"mixed\":0.5,\"vast\":1e400}\n";
    program.write("in.ndjson", input + last);
    ok(&program, &["in.ndjson", "out.ndjson"]);
    ok(&program, &["in.ndjson", "out.csv"]);
    ok(&program, &["in.ndjson", "out.parquet"]);
    let lines = text(&program, "out.ndjson");
    let table = csv(text(&program, "out.csv").as_bytes(), b',');
    let columns = parquet(&program, "out.parquet");
    for (at, (id, n)) in rows.iter().enumerate() {
        assert!(lines.contains(&format!("{{\"id\":{id},")), "{lines}");
        assert!(lines.contains(&format!("\"n\":{n},")), "{lines}");
        assert_eq!(table[at + 1][0], *id);
        assert_eq!(table[at + 1][2..4], [*n, "9007199254740993"]);
        let row = columns[at].to_string();
        let expected = format!(
            "{{id: \"{id}\", text: \"goal\", n: \"{n}\", mixed: \"9007199254740993\", vast: null"
        );
        assert!(row.starts_with(&expected), "{row}");
    }
    let row = columns[2].to_string();
    assert!(row.contains("mixed: \"0.5\", vast: \"1e400\""), "{row}");
}

/// Arrow's `binary`, `large_binary` and `binary_view` are one type in Parquet.
#[test]
fn parquet_binary_columns_are_read_as_utf8_or_rejected() {
    let program = Program::new().with_default_model();
    let texts: [&[u8]; 3] = [b"chicken", b"caf\xe9 ok", b"striker"];
    let hashes: [&[u8]; 3] = [b"\xff\x00", b"ab", b"cd"];
    for kind in ["binary", "fixed_len_byte_array(7)"] {
        let schema = format!("message s {{ required {kind} text; required binary hash; }}");
        let bytes = crate::import::parquet(&schema, &[&texts, &hashes]);
        program.write("in.parquet", bytes);
        for output in ["out.csv", "out.parquet"] {
            let ran = score(&program, &["in.parquet", output, "--overwrite"]);
            assert_eq!(ran.code, 1, "{kind} {}", ran.stderr);
            assert!(
                ran.stderr
                    .contains("line 2 is not UTF-8 (`text` at byte 4)")
                    && ran.stderr.contains("failed=1"),
                "{kind} {}",
                ran.stderr
            );
        }
        let table = csv(text(&program, "out.csv").as_bytes(), b',');
        let kept: Vec<&[String]> = table[1..].iter().map(|row| &row[1..4]).collect();
        // An unused column that is not text is hexadecimal.
        assert_eq!(kept[0], ["chicken", "ff00", "cooking"]);
        assert_eq!(kept[1], ["636166e9206f6b", "ab", ""]);
        assert_eq!(kept[2], ["striker", "cd", "football"]);
    }
}

#[test]
fn a_folder_selects_its_parquet_files_and_a_glob_the_matching_ones() {
    let program = Program::new();
    let schema = "message s { required binary text (STRING); }";
    fs::create_dir_all(path(&program, "in/b/_old")).unwrap();
    for (name, text) in [
        ("in/b/c.parquet", "chicken"),
        ("in/a.pq", "goal"),
        ("in/.hidden.parquet", "hidden"),
        ("in/b/_old/x.parquet", "old"),
        ("in/notes.csv", "notes"),
    ] {
        program.write(name, crate::import::parquet(schema, &[&[text.as_bytes()]]));
    }
    let texts = |input: &str| {
        let args = [input, "out.ndjson", "--overwrite"];
        ok(&program, &args);
        let rows = lines(&text(&program, "out.ndjson"));
        let texts = rows
            .iter()
            .map(|row| row["text"].as_str().unwrap().to_owned());
        texts.collect::<Vec<_>>()
    };
    assert_eq!(texts("in"), ["goal", "chicken"]);
    assert_eq!(texts("in/"), ["goal", "chicken"]);
    assert_eq!(texts("in/*.pq"), ["goal"]);
    assert_eq!(texts("in/**/*.parquet"), ["old", "chicken"]);
    for (input, message) in [
        ("in/b/_old/*.csv", "no such file"),
        ("in/[", "is not a valid pattern"),
        ("empty", "no Parquet file"),
    ] {
        fs::create_dir_all(path(&program, "empty")).unwrap();
        score(&program, &[input, "none.ndjson"]).expect_exit(2, message);
    }
}

/// pyarrow wrote `brotli.parquet`, because this library cannot write Brotli either.
#[test]
fn brotli_parquet_is_rejected_and_leaves_no_file() {
    let program = Program::new();
    let posts = repository("tests/it/fixtures/brotli.parquet");
    for output in ["out.csv", "out.ndjson", "out.parquet", "-"] {
        let ran = score(&program, &[posts.to_str().unwrap(), output]);
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{}", ran.stderr);
        ran.expect_stderr(
            "it is compressed with brotli, which topicmill cannot read: write it again with",
        );
        assert!(!ran.stderr.contains("download it again"), "{}", ran.stderr);
    }
    let left: Vec<String> = fs::read_dir(program.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("out."))
        .collect();
    assert!(left.is_empty(), "{left:?}");
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
        ("", "holds no row"),
        ("id,text\n", "holds no row"),
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
fn a_failed_row_keeps_its_id_and_gives_a_reason() {
    let program = Program::new();
    let bad = b"id,text\n1,chicken\n2\n3,a,b,c\n4,caf\xe9\n5,\n,x\n6,goal\0goal\n";
    program.write("in.csv", bad);
    let ran = score(&program, &["in.csv", "out.csv"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let rows = csv(text(&program, "out.csv").as_bytes(), b',');
    let error = rows[0].iter().position(|name| name == "error").unwrap();
    let shown: Vec<(&str, &str)> = rows[1..]
        .iter()
        .map(|row| (&*row[0], &*row[error]))
        .collect();
    assert_eq!(shown[0], ("1", ""));
    assert_eq!(shown[1], ("2", "line 3 has 1 value, but the header has 2"));
    assert_eq!(shown[2], ("3", "line 4 has 4 values, but the header has 2"));
    assert!(
        shown[3].0 == "4" && shown[3].1.contains("is not UTF-8 (`text` at byte 4)"),
        "{shown:?}"
    );
    assert_eq!(shown[4], ("5", "line 6 has an empty `text`"));
    assert_eq!(shown[5], ("", "line 7 has an empty `id`"));
    assert_eq!(shown[6], ("6", ""));
    // Only the first three reasons are logged.
    assert_eq!(
        ran.stderr.matches("a row cannot be scored").count(),
        3,
        "{}",
        ran.stderr
    );
    ran.expect_stderr("line 3 has 1 value");
}

#[test]
fn a_file_without_a_scorable_row_fails_early_and_leaves_no_file() {
    let program = Program::new();
    let rows: String = (0..200_000)
        .map(|i| format!("{{\"id\":{i},\"foo\":\"x\"}}\n"))
        .collect();
    program.write("in.ndjson", rows);
    for output in ["out.csv", "out.ndjson", "-"] {
        let ran = score(&program, &["in.ndjson", output]);
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{}", ran.stderr);
        ran.expect_stderr("no row can be scored (1000 tried; line 1 has neither");
        assert!(!path(&program, output).exists());
    }
    assert_eq!(
        fs::read_dir(program.folder.path())
            .unwrap()
            .filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .starts_with("out")
            })
            .count(),
        0
    );
}

#[test]
fn an_existing_output_or_an_input_is_not_overwritten() {
    let program = Program::new();
    program.write("in.csv", CSV);
    program.write("precious.csv", "precious");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("in.csv", path(&program, "link.csv")).unwrap();
        fs::hard_link(path(&program, "in.csv"), path(&program, "hard.csv")).unwrap();
        for name in ["in.csv", "link.csv", "hard.csv"] {
            score(&program, &["in.csv", name, "--overwrite"]).expect_exit(2, "one of the inputs");
        }
    }
    score(&program, &["in.csv", "precious.csv"]).expect_exit(2, "--overwrite");
    assert_eq!(
        (text(&program, "in.csv"), text(&program, "precious.csv")),
        (CSV.into(), "precious".into())
    );
}

#[test]
fn a_file_that_is_no_table_is_rejected_before_the_model_loads() {
    let program = Program::new();
    program.write("empty.csv", "");
    program.write("header.csv", "id,text\n");
    program.write("blank.csv", "\n\n");
    let whole = fs::read(repository("tests/it/fixtures/typed.parquet")).unwrap();
    program.write("half.parquet", &whole[..whole.len() / 2]);
    program.write("half.csv.gz", [0x1f, 0x8b, 8, 0, 0, 0]);
    // pyarrow wrote this file, from a table without columns.
    let none = repository("tests/it/fixtures/without-columns.parquet");
    program.write("none.parquet", fs::read(none).unwrap());
    for (input, message) in [
        ("empty.csv", "holds no row"),
        ("header.csv", "holds no row"),
        ("blank.csv", "holds no row"),
        ("half.parquet", "or a damaged one"),
        ("half.csv.gz", "half.csv.gz"),
        ("none.parquet", "the file has no columns"),
    ] {
        for output in ["out.csv", "out.parquet"] {
            let ran = score(&program, &[input, output]);
            ran.expect_exit(2, message);
            assert!(!path(&program, output).exists() && !ran.stderr.contains("panicked"));
        }
    }
}

#[test]
fn a_truncated_file_is_scored_up_to_the_break() {
    let program = Program::new();
    program.write(
        "cut.json",
        "[{\"id\":1,\"text\":\"chicken\"},{\"id\":2,\"te",
    );
    let rows: String = (0..3_000)
        .map(|i| format!("{i},song number {}\n", i * 7919 % 3_001))
        .collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(format!("id,text\n{rows}").as_bytes())
        .unwrap();
    let gzip = gzip.finish().unwrap();
    program.write("cut.csv.gz", &gzip[..gzip.len() / 2]);
    for name in ["cut.json", "cut.csv.gz"] {
        let ran = score(&program, &[name, "out.ndjson", "--overwrite"]);
        ran.expect_exit(1, "truncated");
        let rows = lines(&text(&program, "out.ndjson"));
        let (last, before) = rows.split_last().unwrap();
        assert!(last["error"].is_string(), "{last}");
        assert!(!before.is_empty());
        // A partial file may end with half a row.
        assert!(
            before[..before.len() - 1]
                .iter()
                .all(|row| row["error"].is_null())
        );
    }
}

#[test]
fn a_killed_run_resumes_in_every_format() {
    let program = Program::new();
    let rows: String = (0..6_000)
        .map(|i| format!("{i},\"{}number {i}\"\n", "a song, ".repeat(8)))
        .collect();
    program.write("in.csv", format!("id,text\n{rows}"));
    let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
    let tiny = tiny.to_str().unwrap();
    for output in ["out.csv", "out.parquet"] {
        let args = ["in.csv", output, "--threads", "1", "--model", tiny];
        let mut child = command(&program, &args)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let partial = path(&program, &format!("{output}.partial"));
        // The first window is written, the second is not.
        while !fs::metadata(&partial).is_ok_and(|meta| meta.len() > 0) {
            assert!(
                child.try_wait().unwrap().is_none(),
                "it ended before it was killed"
            );
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!path(&program, output).exists());
        let ran = ok(&program, &args);
        let resumed = ran.stderr.contains("resumed=") && !ran.stderr.contains("resumed=0");
        assert!(resumed, "{}", ran.stderr);
        assert!(!partial.exists());
    }
    let rows = csv(text(&program, "out.csv").as_bytes(), b',');
    assert_eq!(rows.len(), 6_001);
    assert!(
        rows[1..]
            .iter()
            .enumerate()
            .all(|(i, row)| row[0] == i.to_string())
    );
    assert_eq!(parquet(&program, "out.parquet").len(), 6_000);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_loses_no_rows() {
    let program = Program::new();
    let rows: String = (0..400)
        .map(|i| format!("{i},a song,{}\n", "bread ".repeat(300)))
        .collect();
    program.write("in.csv", format!("id,text,note\n{rows}"));
    let args = ["in.csv", "out.csv"];
    let ran = run_limited(&command(&program, &args), "ulimit -f 200");
    assert!(ran.code != 0, "{}", ran.stderr);
    ran.expect_stderr("disk is full");
    assert!(!path(&program, "out.csv").exists());
    ok(&program, &args);
    assert_eq!(csv(text(&program, "out.csv").as_bytes(), b',').len(), 401);
    score(&program, &["in.csv", "/dev/full", "--overwrite"]).expect_exit(2, "not a file");
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
    let shown = "looks like a text, not like the name of a column";
    score(&program, &[&file, "out.csv"]).expect_exit(2, shown);
    ok(&program, &[&file, "out.ndjson", "--format", "txt"]);
    score(&program, &[&file, "out.xz"]).expect_exit(2, "end its name in .gz or .zst");
}
