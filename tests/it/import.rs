//! Tests imports of dumps and tables: filtered, resumed, and damaged in many ways.

mod formats;
mod other_tools;
mod tables;

use std::io::Write as _;

use serde_json::{Value, json};

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

/// Runs `import --format dump` and expects this exit code and these words on stderr.
fn expect(program: &Program, arguments: &str, code: i32, words: &[&str]) -> RunOutput {
    let ran = program.run(&format!("import --format dump {arguments}"));
    assert_eq!(ran.code, code, "{arguments}: {}", ran.stderr);
    ran.expect_stderr_all(words);
    ran
}

/// Runs `import --format dump`; returns the run's counts with these names.
fn counts<const N: usize>(program: &Program, arguments: &str, names: [&str; N]) -> [u64; N] {
    let counts = program.run_counts(&format!("import --format dump {arguments}"));
    names.map(|name| counts[name].as_u64().unwrap())
}

#[test]
fn a_dump_is_filtered_by_subreddit_and_date_during_the_import() {
    let day = 24 * 3_600;
    let spread = (0..30).map(|i| {
        let mut row = row(i);
        row["created_utc"] = json!((1_700_006_400 + day * i).to_string());
        format!("{row}\n")
    });
    let program = Program::new();
    program.write("RS.zst", packed(dump(0..3_000)));
    program.write("spread.ndjson", spread.collect::<String>());
    let count = |arguments: &str| {
        program.ok(&format!("import --format dump {arguments}"));
        program.count("posts")
    };
    // The pipeline reads r/food.
    assert_eq!(count("RS.zst"), 1_000);
    let seen = "SELECT topic, COUNT(*) FROM sightings GROUP BY topic";
    assert_eq!(program.rows(seen), json!([["food", 1_000]]));
    assert_eq!(count("RS.zst --subreddit /r/Knitting"), 2_000);
    assert_eq!(count("RS.zst --all-subreddits"), 3_000);
    // 1700006400 is 2023-11-15.
    count("spread.ndjson --all-subreddits --again --from 2023-11-16 --to 2023-11-17");
    assert_eq!(program.count("posts WHERE created_at >= '2023-11-16'"), 2);
}

#[test]
fn a_finished_dump_is_not_read_again_unless_forced() {
    for program in Program::on_each_database() {
        program.write("RS.zst", packed(dump(0..30)));
        let read = |arguments: &str| counts(&program, arguments, ["posts", "new"]);
        assert_eq!(read("RS.zst"), [10, 10]);
        expect(&program, "RS.zst", 0, &["--again"]);
        assert_eq!(read("RS.zst --again"), [10, 0]);
        // Different flags make it a different import; a changed file counts as a different file.
        assert_eq!(read("RS.zst --all-subreddits"), [30, 20]);
        program.write("RS.zst", packed(dump(0..33)));
        assert_eq!(read("RS.zst"), [11, 1]);
    }
}

#[test]
fn a_zstd_window_of_2_gib_is_decompressed() {
    let program = Program::new();
    program.write("RS.zst", frame(31, dump(0..900).as_bytes()));
    assert_eq!(counts(&program, "RS.zst", ["posts", "rejected"]), [300, 0]);
}

#[test]
#[cfg(target_os = "linux")]
fn an_import_on_a_full_disk_is_reported_and_loses_no_post() {
    let program = Program::new();
    program.write("RS.zst", packed(dump(0..60_000)));
    // The limit suffices for the schema but not for the import.
    let import = program.command("import --format dump RS.zst");
    let ran = run_limited(&import, "ulimit -f 4000");
    ran.expect_exit(4, "ulimit -f");
    // A failed import is not recorded as finished.
    assert!(!ran.stderr.contains("imported file="), "{}", ran.stderr);
    let sound = program.scalar("SELECT integrity_check FROM pragma_integrity_check");
    assert_eq!(sound, "ok");
    // As many posts are stored as the import's progress says.
    let stored = program.scalar("SELECT COALESCE(SUM(posts), 0) FROM imports");
    assert_eq!(stored, program.count("posts"));
    assert!(stored.as_u64().unwrap() < 20_000);
    // The same command finishes the import once there is free space.
    assert_eq!(counts(&program, "RS.zst", ["rejected"]), [0]);
    assert_eq!(program.count("posts"), 20_000);
    assert_eq!(program.count("sightings"), 20_000);
}

#[test]
fn a_truncated_dump_keeps_its_rows_and_reports_the_position() {
    let program = Program::new();
    let mut bytes = packed(dump(0..9_000));
    bytes.truncate(bytes.len() / 2);
    program.write("RS.zst", &bytes);
    expect(&program, "RS.zst", 1, &["line ", "truncated"]);
    let kept = program.count("posts");
    assert!(kept > 100 && kept < 3_000, "{kept}");
    // The import is not recorded as finished, and the complete file counts as a different file.
    expect(&program, "RS.zst", 1, &["truncated"]);
    program.write("RS.zst", packed(dump(0..9_000)));
    assert_eq!(counts(&program, "RS.zst", ["rejected"]), [0]);
    assert_eq!(program.count("posts"), 3_000);
}

#[test]
fn a_flipped_bit_loses_only_later_rows() {
    let program = Program::new();
    let text = dump(0..9_000);
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(text.as_bytes()).unwrap();
    let whole = encoder.finish().unwrap();
    for place in [3, 5, 7] {
        let mut bytes = whole.clone();
        let middle = bytes.len() * place / 10;
        bytes[middle] ^= 0x10;
        program.write("flipped.zst", &bytes);
        let ran = expect(&program, "flipped.zst", 1, &["line "]);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    }
    // The undamaged file corrects the stored rows.
    program.write("RS.zst", &whole);
    assert_eq!(counts(&program, "RS.zst", ["rejected"]), [0]);
    assert_eq!(program.count("posts"), 3_000);
}

#[test]
fn unusual_rows_from_all_years_are_imported_or_rejected_with_a_reason() {
    let program = Program::new();
    let mut rows = [0, 3, 6, 9, 12, 15].map(row);
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
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let latin1 =
        b"{\"id\":\"u1\",\"subreddit\":\"food\",\"title\":\"caf\xe9\",\"created_utc\":1700000000}";
    program.write("RS.ndjson", [lines.as_bytes(), latin1].concat());
    let why = [
        "line 3",
        "neither `title` nor `selftext`",
        "line 7",
        "not UTF-8",
        "posts=5",
        "rejected=2",
    ];
    expect(&program, "RS.ndjson", 1, &why);
    let url = "SELECT LENGTH(url) FROM posts WHERE fullname = 't3_d000009'";
    assert_eq!(program.scalar(url), 23_120);
}

#[test]
fn a_file_that_is_not_a_dump_is_rejected_before_anything_is_stored() {
    let program = Program::new();
    program.write("RS.zst", packed(dump(0..3)));
    program.write("empty.zst", "");
    program.write("nothing.zst", packed(""));
    for (arguments, words) in [
        ("empty.zst", "is empty"),
        ("nothing.zst", "is empty"),
        (".", "a directory"),
        ("missing.zst", "`missing.zst`"),
        ("--subreddit a/b", "a subreddit name"),
        ("--from 2024-02-01 --to 2024-01-01", "later than"),
        ("--map id=x", "--map"),
    ] {
        expect(&program, &format!("RS.zst {arguments}"), 2, &[words]);
    }
    assert!(!program.path("topicmill.db").exists());
    program.write("none.zst", packed(dump(1..2)));
    expect(
        &program,
        "none.zst",
        0,
        &["none matched", "--all-subreddits"],
    );
}
