//! Tests format conversions: types, digits, encodings, and folders and globs that select files.

use super::*;
use crate::support::parquet_files;

/// Objects with different columns, two of which have the names of output columns.
const ARRAY: &str = "[\n {\"id\": 7, \"text\": \"chicken\", \"big\": 123456789012345678901.10,\n\
    \"nested\": {\"a\": [1,\n 2]}, \"label\": \"theirs\"},\n {\"id\": \"x\", \"title\": \"Goal\", \"score\": 3}]";

#[test]
fn json_keeps_nested_values_and_the_digits_of_numbers() {
    let program = Program::new();
    program.write("in.json", ARRAY);
    ok(&program, "in.json out.json").expect_stderr("`label` is renamed to `input_label`");
    let written = program.read("out.json");
    assert!(
        written.contains("\"big\":123456789012345678901.10,"),
        "{written}"
    );
    let rows: Vec<Value> = serde_json::from_str(&written).unwrap();
    assert_eq!(rows[0]["nested"], json!({"a": [1, 2]}));
    assert_eq!(rows[0]["input_label"], "theirs");
    assert_eq!(rows[1]["id"], "x");
    assert_eq!(rows[1]["input_score"], 3);
}

#[test]
fn a_table_made_from_json_has_the_columns_of_all_objects() {
    let program = Program::new();
    program.write("in.json", ARRAY);
    ok(&program, "in.json out.csv --label-scores");
    let table = Table::read(&program, "out.csv");
    assert_eq!(
        table.columns.join(" "),
        "id text big nested input_label title input_score label score margin abstained outcome score_cooking score_football error"
    );
    assert_eq!(
        table.values(0, ["big", "nested", "input_label"]),
        ["123456789012345678901.10", "{\"a\":[1,2]}", "theirs"]
    );
    let scores = table.values(0, ["score_cooking", "score_football"]);
    let sum: f64 = scores
        .map(|score| score.parse::<f64>().unwrap())
        .iter()
        .sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
}

#[test]
fn a_renamed_column_does_not_take_the_name_of_a_later_one() {
    let program = Program::new();
    let rows = "{\"text\": \"chicken\", \"score\": 1}\n\
        {\"text\": \"goal\", \"score\": 2, \"input_score\": 3}\n";
    program.write("in.ndjson", rows);
    ok(&program, "in.ndjson out.ndjson");
    let written = program.read("out.ndjson");
    assert_eq!(written.matches("\"input_score\":").count(), 2, "{written}");
    let rows = program.read_lines("out.ndjson");
    assert_eq!(rows[1]["input_score"], 2);
    assert_eq!(rows[1]["input_input_score"], 3);
}

#[test]
fn parquet_keeps_its_types_and_row_groups() {
    let program = Program::new();
    let typed = repository("tests/it/fixtures/typed.parquet");
    let files = format!("{} out.parquet --label-scores", typed.display());
    ok(&program, &files).expect_stderr("`score` is renamed to `input_score`");
    let open = |path: &Path| SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let (before, after) = (open(&typed), open(&program.path("out.parquet")));
    assert_eq!(before.num_row_groups(), after.num_row_groups());
    // The input's columns come first, with the same types.
    let columns = |file: &SerializedFileReader<File>| {
        let schema = file.metadata().file_metadata().schema();
        let columns = schema.get_fields().iter().map(|column| {
            let kind = column.get_basic_info().logical_type_ref().cloned();
            (column.name().to_owned(), kind)
        });
        columns.collect::<Vec<_>>()
    };
    let mut expected = columns(&before);
    for (name, _) in expected.iter_mut().filter(|(name, _)| name == "score") {
        *name = "input_score".into();
    }
    let after_columns = columns(&after);
    let (kept, added) = after_columns.split_at(expected.len());
    assert_eq!(kept, expected);
    let added: Vec<&str> = added.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        added.join(" "),
        "label score margin abstained outcome score_cooking score_football error"
    );
    let rows = |file: SerializedFileReader<File>| {
        let rows = file.into_iter().map(|row| row.unwrap().into_columns());
        let values = rows.map(|row| row.into_iter().map(|(_, value)| value));
        values
            .map(|row| row.take(expected.len()).collect())
            .collect::<Vec<Vec<_>>>()
    };
    let (before, after) = (rows(before), rows(after));
    assert_eq!(before.len(), 20);
    assert_eq!(before, after);
}

#[test]
fn parquet_values_have_their_usual_form_as_text() {
    let program = Program::new();
    let typed = repository("tests/it/fixtures/typed.parquet");
    ok(&program, &format!("{} out.ndjson", typed.display()));
    let rows = program.read_lines("out.ndjson");
    for (column, text) in [
        ("when", json!("2024-01-01T00:37:00")),
        ("when_tz", json!("2023-12-31T23:37:00Z")),
        ("day", json!("2024-01-02")),
        ("tags", json!(["x", "t1"])),
        ("dec", json!("0.01")),
        ("f32", json!(0.1)),
    ] {
        assert_eq!(rows[1][column], text, "{column}");
    }
    for column in ["tags", "input_score"] {
        assert_eq!(rows[0][column], Value::Null, "{column}");
    }
    // A row without text gets no score but keeps its place.
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
    score(&program, "in.ndjson out.parquet").expect_exit(1, "line 2 is not JSON");
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

/// An integer is written with the digits that were read, or as text, never as a different number.
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
    ok(&program, "in.ndjson out.ndjson");
    ok(&program, "in.ndjson out.csv");
    ok(&program, "in.ndjson out.parquet");
    let lines = program.read("out.ndjson");
    let table = Table::read(&program, "out.csv");
    let columns = parquet(&program, "out.parquet");
    for (i, (id, n)) in rows.into_iter().enumerate() {
        assert!(lines.contains(&format!("{{\"id\":{id},")), "{lines}");
        assert!(lines.contains(&format!("\"n\":{n},")), "{lines}");
        let expected = [id, n, "9007199254740993"];
        assert_eq!(table.values(i, ["id", "n", "mixed"]), expected);
        let row = columns[i].to_string();
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
        let bytes = parquet_files::parquet(&schema, &[&texts, &hashes]);
        program.write("in.parquet", bytes);
        for output in ["out.csv", "out.parquet"] {
            let ran = score(&program, &format!("in.parquet {output} --overwrite"));
            ran.expect_exit(1, "line 2 is not UTF-8 (`text` at byte 4)");
            ran.expect_stderr("failed=1");
        }
        let table = Table::read(&program, "out.csv");
        let values = [0, 1, 2].map(|row| table.values(row, ["text", "hash", "label"]));
        // An unused column that is not text is hexadecimal.
        let expected = [
            ["chicken", "ff00", "cooking"],
            ["636166e9206f6b", "ab", ""],
            ["striker", "cd", "football"],
        ];
        assert_eq!(values, expected, "{kind}");
    }
}

#[test]
fn a_folder_selects_its_parquet_files_and_a_glob_the_matching_ones() {
    let program = Program::new();
    let schema = "message s { required binary text (STRING); }";
    fs::create_dir_all(program.path("in/b/_old")).unwrap();
    for (name, text) in [
        ("in/b/c.parquet", "chicken"),
        ("in/a.pq", "goal"),
        ("in/.hidden.parquet", "hidden"),
        ("in/b/_old/x.parquet", "old"),
        ("in/notes.csv", "notes"),
    ] {
        program.write(name, parquet_files::parquet(schema, &[&[text.as_bytes()]]));
    }
    let texts = |input: &str| {
        ok(&program, &format!("{input} out.ndjson --overwrite"));
        let mut rows = program.read_lines("out.ndjson");
        let texts = rows.iter_mut().map(|row| row["text"].take());
        texts.collect::<Vec<Value>>()
    };
    assert_eq!(texts("in"), ["goal", "chicken"]);
    assert_eq!(texts("in/"), ["goal", "chicken"]);
    assert_eq!(texts("in/*.pq"), ["goal"]);
    assert_eq!(texts("in/**/*.parquet"), ["old", "chicken"]);
    fs::create_dir(program.path("empty")).unwrap();
    for (input, message) in [
        ("in/b/_old/*.csv", "no such file"),
        ("in/[", "is not a valid pattern"),
        ("empty", "no Parquet file"),
    ] {
        score(&program, &format!("{input} none.ndjson")).expect_exit(2, message);
    }
}

/// pyarrow wrote `brotli.parquet`, because the Rust library of these tests cannot write Brotli either.
#[test]
fn brotli_parquet_is_rejected_and_leaves_no_file() {
    let program = Program::new();
    let posts = repository("tests/it/fixtures/brotli.parquet");
    for output in ["out.csv", "out.ndjson", "out.parquet", "-"] {
        let ran = score(&program, &format!("{} {output}", posts.display()));
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{}", ran.stderr);
        ran.expect_stderr(
            "it is compressed with brotli, which topicmill cannot read: write it again with",
        );
        assert!(!ran.stderr.contains("download it again"), "{}", ran.stderr);
    }
    assert_eq!(outputs(&program), [""; 0]);
}
