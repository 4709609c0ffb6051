//! Tests failures: rows without scores, existing outputs, damaged inputs, kills and full disks.

use super::*;

#[test]
fn a_failed_row_keeps_its_id_and_has_a_reason() {
    let program = Program::new();
    let bad = b"id,text\n1,chicken\n2\n3,a,b,c\n4,caf\xe9\n5,\n,x\n6,goal\0goal\n";
    program.write("in.csv", bad);
    let ran = score(&program, "in.csv out.csv");
    ran.expect_exit(1, "line 3 has 1 value");
    let table = Table::read(&program, "out.csv");
    for (row, id, error) in [
        (0, "1", ""),
        (1, "2", "line 3 has 1 value, but the header has 2"),
        (2, "3", "line 4 has 4 values, but the header has 2"),
        (4, "5", "line 6 has an empty `text`"),
        (5, "", "line 7 has an empty `id`"),
        (6, "6", ""),
    ] {
        assert_eq!(table.values(row, ["id", "error"]), [id, error]);
    }
    let [id, error] = table.values(3, ["id", "error"]);
    assert_eq!(id, "4");
    let reason = "is not UTF-8 (`text` at byte 4)";
    assert!(error.contains(reason), "{error}");
    // Only the first three reasons are logged.
    let logged = ran.stderr.matches("a row cannot be scored").count();
    assert_eq!(logged, 3, "{}", ran.stderr);
}

#[test]
fn a_file_without_a_scorable_row_fails_early_and_leaves_no_file() {
    let program = Program::new();
    let rows: String = (0..200_000)
        .map(|i| format!("{{\"id\":{i},\"foo\":\"x\"}}\n"))
        .collect();
    program.write("in.ndjson", rows);
    for output in ["out.csv", "out.ndjson", "-"] {
        let ran = score(&program, &format!("in.ndjson {output}"));
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{}", ran.stderr);
        ran.expect_stderr("no row can be scored (1000 tried; line 1 has neither");
        assert!(!program.path(output).exists());
    }
    assert_eq!(outputs(&program), [""; 0]);
}

#[test]
fn an_existing_output_or_an_input_is_not_overwritten() {
    let program = Program::new();
    program.write("in.csv", CSV);
    program.write("precious.csv", "precious");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("in.csv", program.path("link.csv")).unwrap();
        fs::hard_link(program.path("in.csv"), program.path("hard.csv")).unwrap();
        for name in ["in.csv", "link.csv", "hard.csv"] {
            let onto_input = score(&program, &format!("in.csv {name} --overwrite"));
            onto_input.expect_exit(2, "one of the inputs");
        }
    }
    score(&program, "in.csv precious.csv").expect_exit(2, "--overwrite");
    assert_eq!(program.read("in.csv"), CSV);
    assert_eq!(program.read("precious.csv"), "precious");
}

#[test]
fn a_file_that_is_not_a_table_is_rejected_before_the_model_loads() {
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
        ("empty.csv", "has no rows"),
        ("header.csv", "has no rows"),
        ("blank.csv", "has no rows"),
        ("half.parquet", "or a damaged one"),
        ("half.csv.gz", "half.csv.gz"),
        ("none.parquet", "the file has no columns"),
    ] {
        for output in ["out.csv", "out.parquet"] {
            let ran = score(&program, &format!("{input} {output}"));
            ran.expect_exit(2, message);
            assert!(!program.path(output).exists() && !ran.stderr.contains("panicked"));
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
    // The JSON has one whole row; half of the compressed file holds about half of the rows.
    for (name, scorable) in [("cut.json", 1..2), ("cut.csv.gz", 1_000..2_000)] {
        let ran = score(&program, &format!("{name} out.ndjson --overwrite"));
        ran.expect_exit(1, "truncated");
        let rows = program.read_lines("out.ndjson");
        let is_scored = |row: &&Value| row["error"].is_null();
        let scored = rows.iter().take_while(is_scored).count();
        assert!(scorable.contains(&scored), "{name}: {scored}");
        // Then comes the error, after half a row if the break left one.
        assert!((1..=2).contains(&(rows.len() - scored)), "{name}: {rows:?}");
        assert!(rows[rows.len() - 1]["error"].is_string(), "{name}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_run_leaves_no_file() {
    let program = Program::new();
    let mut child = command(&program, "- out.csv --format txt")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"chicken\n").unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut log = log.lines().map(Result::unwrap);
    assert!(log.any(|line| line.contains("reading")));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(program.files(), [""; 0]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_leaves_no_file() {
    let program = Program::new();
    let rows: String = (0..400)
        .map(|i| format!("{i},a song,{}\n", "bread ".repeat(300)))
        .collect();
    program.write("in.csv", format!("id,text,note\n{rows}"));
    let files = "in.csv out.csv";
    let ran = run_limited(&command(&program, files), "ulimit -f 200");
    assert!(ran.code != 0, "{}", ran.stderr);
    ran.expect_stderr("disk is full");
    assert_eq!(program.files(), ["in.csv"]);
    ok(&program, files);
    assert_eq!(Table::read(&program, "out.csv").rows.len(), 400);
    score(&program, "in.csv /dev/full --overwrite").expect_exit(2, "not a file");
}
