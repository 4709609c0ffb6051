//! Tests imports of dumps and tables: filtered, resumed, and damaged in many ways.

mod formats;
mod tables;

use std::io::Write as _;
use std::sync::Arc;

use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArrayType;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};

use crate::support::postgres::databases;
use crate::support::program::{Program, RunOutput, run_limited};

/// Returns a post of a dump; every third one is in r/food.
fn row(i: usize) -> Value {
    let subreddit = ["Food", "knitting", "aquariums"][i % 3];
    json!({
        "author": format!("user{}", i % 97), "created_utc": 1_700_000_000 + i, "id": format!("d{i:06}"),
        "score": i, "selftext": format!("text {i} ").repeat(i % 50), "subreddit": subreddit,
        "title": format!("Title {i}"), "num_comments": 3, "is_self": true,
    })
}

fn dump(rows: impl Iterator<Item = usize>) -> String {
    rows.map(|i| format!("{}\n", row(i))).collect()
}

fn packed(text: impl AsRef<[u8]>) -> Vec<u8> {
    zstd::encode_all(text.as_ref(), 3).unwrap()
}

/// Returns a zstd frame of stored blocks that declares a window of this log2 size.
fn frame(window_log: u8, text: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
    let mut blocks = text.chunks(100_000).peekable();
    while let Some(block) = blocks.next() {
        let size = u32::try_from(block.len()).unwrap();
        let header = (size << 3) | u32::from(blocks.peek().is_none());
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.extend_from_slice(block);
    }
    frame
}

fn sql(program: &Program, database: &str, query: &str) -> String {
    let args = ["--database", database, "sql", query, "--format", "csv"];
    let ran = program.ok(&args);
    ran.stdout.split_once('\n').unwrap().1.trim().to_owned()
}

const SQLITE: &str = "sqlite:topicmill.db";

fn posts(program: &Program) -> String {
    sql(program, SQLITE, "SELECT COUNT(*) FROM posts")
}

/// Runs `import --format dump` and expects this exit code and these words on stderr.
fn expect(program: &Program, args: &[&str], code: i32, words: &[&str]) -> RunOutput {
    let ran = program.run(&[&["import", "--format", "dump"], args].concat());
    assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
    ran.expect_stderr_all(words);
    ran
}

#[test]
fn a_dump_is_filtered_by_subreddit_and_date_during_the_import() {
    let program = Program::new();
    let file = program.write("RS.zst", packed(dump(0..3_000)));
    let day = 24 * 3_600;
    let spread: String = (0..30)
        .map(|i| {
            let mut row = row(i);
            row["created_utc"] = json!((1_700_006_400 + day * i).to_string());
            format!("{row}\n")
        })
        .collect();
    let spread = program.write("spread.ndjson", spread);
    for database in databases() {
        let url = ["--database", &database.url];
        let count = |args: &[&str]| {
            let args = [&url[..], &["import", "--format", "dump"], args].concat();
            program.ok(&args);
            sql(&program, &database.url, "SELECT COUNT(*) FROM posts")
        };
        assert_eq!(count(&[&file]), "1000", "the pipeline reads r/food");
        let seen = "SELECT topic, COUNT(*) FROM sightings GROUP BY topic";
        assert_eq!(sql(&program, &database.url, seen), "food,1000");
        assert_eq!(count(&[&file, "--subreddit", "/r/Knitting"]), "2000");
        assert_eq!(count(&[&file, "--all-subreddits"]), "3000");
        // 1700006400 is 2023-11-15.
        let all = [&spread, "--all-subreddits", "--again"];
        let dates = ["--from", "2023-11-16", "--to", "2023-11-17"];
        sql(&program, &database.url, "SELECT 1");
        let before = "SELECT COUNT(*) FROM posts WHERE created_at >= '2023-11-16'";
        count(&[&all[..], &dates[..]].concat());
        assert_eq!(sql(&program, &database.url, before), "2");
    }
}

#[test]
fn a_finished_dump_is_not_read_again_unless_forced() {
    for database in databases() {
        let program = Program::new();
        let file = program.write("RS.zst", packed(dump(0..30)));
        let expect = |args: &[&str], words: &[&str]| {
            let args = [args, &["--database", &database.url]].concat();
            expect(&program, &args, 0, words);
        };
        expect(&[&file], &["posts=10", "left_out=20"]);
        expect(&[&file], &["imported on", "--again"]);
        expect(&[&file, "--again"], &["posts=10", "new=0"]);
        // Different flags make it a different import; a changed file counts as a different file.
        expect(&[&file, "--all-subreddits"], &["posts=30", "new=20"]);
        program.write("RS.zst", packed(dump(0..33)));
        expect(&[&file], &["posts=11", "new=1"]);
    }
}

#[test]
fn a_zstd_window_of_2_gib_is_decompressed() {
    let program = Program::new();
    let file = program.write("RS.zst", frame(31, dump(0..900).as_bytes()));
    expect(&program, &[&file], 0, &["posts=300", "rejected=0"]);
}

#[test]
#[cfg(target_os = "linux")]
fn an_import_on_a_full_disk_is_reported_and_loses_no_post() {
    let program = Program::new();
    let file = program.write("RS.zst", packed(dump(0..60_000)));
    // The limit suffices for the schema but not for the import.
    let import = program.command(&["import", "--format", "dump", &file]);
    let ran = run_limited(&import, "ulimit -f 4000");
    ran.expect_exit(4, "the file system rejected it");
    ran.expect_stderr("ulimit -f");
    // A failed import is not recorded as finished.
    ran.expect_stderr("stopped before the end of the file");
    assert!(!ran.stderr.contains("imported file="), "{}", ran.stderr);
    assert_import_finishes(&program, &file);
}

/// Checks that the same command finishes the import once there is free space.
#[cfg(target_os = "linux")]
fn assert_import_finishes(program: &Program, file: &str) {
    let sound = "SELECT integrity_check FROM pragma_integrity_check";
    assert_eq!(sql(program, SQLITE, sound), "ok");
    let place = "SELECT COALESCE(SUM(posts), 0) FROM imports";
    let stored: usize = sql(program, SQLITE, place).parse().unwrap();
    assert_eq!(
        posts(program),
        stored.to_string(),
        "as many as the import's progress says"
    );
    assert!(stored < 20_000, "there was room for all of them");
    expect(program, &[file], 0, &["rejected=0"]);
    assert_eq!(posts(program), "20000");
    assert_eq!(
        sql(program, SQLITE, "SELECT COUNT(*) FROM sightings"),
        "20000"
    );
}

#[test]
fn a_truncated_dump_keeps_its_rows_and_reports_the_position() {
    let program = Program::new();
    let mut bytes = packed(dump(0..9_000));
    bytes.truncate(bytes.len() / 2);
    let file = program.write("RS.zst", &bytes);
    expect(&program, &[&file], 1, &["line ", "is truncated here"]);
    let kept: usize = posts(&program).parse().unwrap();
    assert!(kept > 100 && kept < 3_000, "{kept}");
    // The import is not recorded as finished, and the complete file counts as a different file.
    expect(&program, &[&file], 1, &["is truncated here"]);
    program.write("RS.zst", packed(dump(0..9_000)));
    expect(&program, &[&file], 0, &["rejected=0"]);
    assert_eq!(posts(&program), "3000");
}

#[test]
fn a_flipped_bit_loses_only_later_rows() {
    let program = Program::new();
    let text = dump(0..9_000);
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
    let whole = encoder.finish().unwrap();
    for place in [3, 5, 7] {
        let mut bytes = whole.clone();
        let middle = bytes.len() * place / 10;
        bytes[middle] ^= 0x10;
        let file = program.write(&format!("RS{place}.zst"), &bytes);
        let ran = expect(&program, &[&file], 1, &["line "]);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    }
    // The undamaged file corrects the stored rows.
    let file = program.write("RS.zst", &whole);
    expect(&program, &[&file], 0, &["rejected=0"]);
    assert_eq!(posts(&program), "3000");
}

#[test]
fn a_comments_dump_is_identified_and_a_stray_comment_rejected() {
    let program = Program::new();
    let comment = json!({"id": "c1", "body": "Hi", "link_id": "t3_a", "subreddit": "food",
        "created_utc": 1_700_000_000});
    let file = program.write("RC.zst", packed(format!("{comment}\n")));
    expect(
        &program,
        &[&file],
        2,
        &["contains comments, not posts", "RS_"],
    );
    let mixed = program.write("mixed.zst", packed(format!("{}{comment}\n", dump(0..3))));
    expect(&program, &[&mixed], 1, &["line 4", "a comment, not a post"]);
    assert_eq!(posts(&program), "1");
}

#[test]
fn unusual_rows_from_all_years_are_imported_or_rejected_with_a_reason() {
    let program = Program::new();
    let mut rows = vec![row(0), row(3), row(6), row(9), row(12), row(15)];
    rows[1]["created_utc"] = json!("1389000000");
    rows[2]["title"] = Value::Null;
    rows[2]["selftext"] = Value::Null;
    rows[3]["url"] = json!(format!("https://a.example/{}", "x".repeat(23_102)));
    rows[3]["is_self"] = json!(false);
    rows[4]["created_utc"] = json!(1_700_000_000.5);
    rows[4]["edited"] = json!(1.5);
    rows[5]["subreddit"] = Value::Null;
    rows[5]["permalink"] = json!("/r/food/comments/d000015/x/");
    rows[5]["score"] = Value::Null;
    let mut text: Vec<u8> = Vec::new();
    for row in rows {
        text.extend_from_slice(row.to_string().as_bytes());
        text.push(b'\n');
    }
    text.extend_from_slice(
        b"{\"id\":\"u1\",\"subreddit\":\"food\",\"title\":\"caf\xe9\",\"created_utc\":1700000000}",
    );
    let file = program.write("RS.ndjson", text);
    let why = [
        "line 3",
        "neither `title` nor `selftext`",
        "line 7",
        "is not UTF-8",
        "posts=5",
        "rejected=2",
    ];
    expect(&program, &[&file], 1, &why);
    let url = "SELECT LENGTH(url) FROM posts WHERE fullname = 't3_d000009'";
    assert_eq!(sql(&program, SQLITE, url), "23120");
}

#[test]
fn a_file_that_is_not_a_dump_is_rejected_before_anything_is_stored() {
    let program = Program::new();
    let good = program.write("RS.zst", packed(dump(0..3)));
    let empty = program.write("empty.zst", "");
    expect(&program, &[&good, &empty], 2, &["is empty"]);
    let nothing = program.write("nothing.zst", packed(""));
    expect(&program, &[&good, &nothing], 2, &["is empty"]);
    expect(&program, &[&good, "."], 2, &["is a directory"]);
    expect(
        &program,
        &[&good, "missing.zst"],
        2,
        &["no file `missing.zst`"],
    );
    expect(
        &program,
        &[&good, "--subreddit", "a/b"],
        2,
        &["is not a subreddit name"],
    );
    let backwards = ["--from", "2024-02-01", "--to", "2024-01-01"];
    expect(
        &program,
        &[&[&good[..]], &backwards[..]].concat(),
        2,
        &["is later than"],
    );
    expect(
        &program,
        &[&good, "--map", "id=x"],
        2,
        &["--map is for tables"],
    );
    assert!(!program.folder.path().join("topicmill.db").exists());
    let none = program.write("none.zst", packed(dump(1..2)));
    expect(
        &program,
        &[&none],
        0,
        &["because none matched", "--all-subreddits"],
    );
}

/// Writes a Parquet file of binary values: a column for each field of the schema, a value for each row.
pub fn parquet(schema: &str, columns: &[&[&[u8]]]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let written = Arc::new(WriterProperties::builder().build());
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, written).unwrap();
    let mut group = file.next_row_group().unwrap();
    for column_values in columns {
        let mut column = group.next_column().unwrap().unwrap();
        let values = column_values.iter().map(|value| value.to_vec());
        if let ColumnWriter::FixedLenByteArrayColumnWriter(typed) = column.untyped() {
            let values: Vec<_> = values.map(Into::into).collect();
            typed.write_batch(&values, None, None).unwrap();
        } else {
            let values: Vec<_> = values.map(Into::into).collect();
            let typed = column.typed::<ByteArrayType>();
            typed.write_batch(&values, None, None).unwrap();
        }
        column.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    bytes
}
