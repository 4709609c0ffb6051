//! Tests imports of dumps and tables: filtered, resumed, and damaged in every way.

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
        // Other flags are another import; a changed file is another file.
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
fn a_full_database_is_reported_and_loses_nothing() {
    let program = Program::new();
    let file = program.write("RS.zst", packed(dump(0..60_000)));
    // The schema fits, but the import does not.
    let import = program.command(&["import", "--format", "dump", &file]);
    let ran = run_limited(&import, "ulimit -f 4000");
    ran.expect_exit(4, "the file system rejected it");
    ran.expect_stderr("ulimit -f");
    // A failed import is not recorded as finished.
    ran.expect_stderr("stopped before the end of the file");
    assert!(!ran.stderr.contains("imported file="), "{}", ran.stderr);
    goes_on(&program, &file);
}

/// With free space, the same command finishes the import.
#[cfg(target_os = "linux")]
fn goes_on(program: &Program, file: &str) {
    let sound = "SELECT integrity_check FROM pragma_integrity_check";
    assert_eq!(sql(program, SQLITE, sound), "ok");
    let place = "SELECT COALESCE(SUM(posts), 0) FROM imports";
    let stored: usize = sql(program, SQLITE, place).parse().unwrap();
    assert_eq!(
        posts(program),
        stored.to_string(),
        "as many as its place says"
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
    // It is not finished, and the complete file is a different file.
    expect(&program, &[&file], 1, &["is truncated here"]);
    program.write("RS.zst", packed(dump(0..9_000)));
    expect(&program, &[&file], 0, &["rejected=0"]);
    assert_eq!(posts(&program), "3000");
}

#[test]
fn a_flipped_bit_loses_only_what_follows() {
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
fn unusual_rows_of_all_years_are_imported_or_rejected_with_a_reason() {
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
fn a_file_that_is_no_dump_is_rejected_before_anything_is_stored() {
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

#[test]
fn csv_columns_are_mapped_and_an_invalid_value_rejects_its_row() {
    let program = Program::new();
    let table = "key,headline,subreddit,posted\na1,One,food,2024-01-01 10:00:00\na2,Two,food,soon\n\
        a3,Three,music,1700000000\n";
    let file = program.write("posts.csv", table);
    let map = ["--map", "id=key", "--map", "created_utc=posted", "--map"];
    for database in databases() {
        let args = [
            "--database",
            &database.url,
            "import",
            "--format",
            "csv",
            &file,
        ];
        let ran = program.run(&[&args[..], &map, &["title=headline"]].concat());
        ran.expect_exit(1, "row 2");
        ran.expect_stderr("posts=2");
        let ran = program.run(&[&args[..], &map, &["title=heading"]].concat());
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        let output = ["`heading`", "`key`, `headline`, `subreddit`, `posted`"];
        assert!(
            output.iter().all(|word| ran.stderr.contains(word)),
            "{}",
            ran.stderr
        );
        let times = sql(
            &program,
            &database.url,
            "SELECT COUNT(*) FROM posts WHERE created_at > '2023-12-31'",
        );
        assert_eq!(times, "1");
    }
    program
        .run(&["import", "--format", "csv", &file, "--map", "colour=key"])
        .expect_exit(2, "created_utc");
}

#[test]
fn an_unstorable_number_rejects_its_table_row_and_is_ignored_elsewhere() {
    let program = Program::new();
    let head = "id,title,subreddit,created_utc,score,num_comments\n";
    let most = i64::MAX;
    let rows = format!(
        "a1,One,food,1700000000,99999999999999999999,3\n\
         a2,Two,food,1700000000,5,1e30\n\
         a3,Three,food,99999999999999999999,5,3\n\
         a4,Four,food,1700000000,-9223372036854775809,3\n\
         a5,Five,food,1700000000,{most},7.9\n"
    );
    let table = program.write("posts.csv", format!("{head}{rows}"));
    let line = |id: &str, score: &str| {
        format!(
            "{{\"id\":\"{id}\",\"title\":\"One\",\"subreddit\":\"food\",\
             \"created_utc\":1700000000,\"score\":{score}}}\n"
        )
    };
    let lines = [
        line("b1", "99999999999999999999"),
        line("b2", "\"many\""),
        line("b3", "12"),
    ];
    let lines = program.write("posts.ndjson", lines.concat());
    for database in databases() {
        let import = |args: &[&str]| {
            program.run(&[&["--database", database.url.as_str(), "import"], args].concat())
        };
        let ran = import(&["--format", "csv", &table]);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        ran.expect_stderr_all(&[
            "`score` is out of range",
            "`num_comments` is out of range",
            "`created_utc` is too large for seconds since 1970; it is 100000000000000000000",
            "posts=1 ",
            "rejected=4",
        ]);
        let ran = import(&[&lines]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let stored = sql(
            &program,
            &database.url,
            "SELECT fullname, reddit_score, num_comments FROM posts ORDER BY fullname",
        );
        assert_eq!(
            stored,
            format!("t3_a5,{most},7\nt3_b1,,\nt3_b2,,\nt3_b3,12,")
        );
    }
}

/// A fixture written by pyarrow with snappy: `id`, `title` (null in the third row), `subreddit`, `score`
/// and `over_18`, and the same time as `created_utc` (nanoseconds), `ms`, `us`, `text` and `float`.
#[test]
fn parquet_columns_are_read_with_every_timestamp_type() {
    let program = Program::new();
    let file = crate::support::engine::repository("tests/it/fixtures/posts.parquet");
    let file = file.display().to_string();
    let what = "SELECT fullname, reddit_score, over_18, substr(CAST(created_at AS TEXT), 1, 10) FROM posts ORDER BY 1";
    for (n, column) in ["created_utc", "ms", "us", "text", "float"]
        .iter()
        .enumerate()
    {
        let database = format!("sqlite:{n}.db");
        let map = format!("created_utc={column}");
        let args = [
            "--database",
            &database,
            "import",
            "--format",
            "parquet",
            &file,
        ];
        let ran = program.run(&[&args[..], &["--map", &map]].concat());
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("row 3"), "{column}: {}", ran.stderr);
        let rows = "t3_p1,7,false,2023-11-14\nt3_p2,,true,2023-11-14";
        let found = sql(&program, &database, what)
            .replace(",0,", ",false,")
            .replace(",1,", ",true,");
        assert_eq!(found, rows, "{column}");
    }
    for (map, output) in [("title=missing", "`missing`"), ("title=lists", "is nested")] {
        program
            .run(&["import", "--format", "parquet", &file, "--map", map])
            .expect_exit(2, output);
    }
    let broken = std::fs::read(&file).unwrap();
    let half = program.write("half.parquet", &broken[..broken.len() / 2]);
    program
        .run(&["import", "--format", "parquet", &half])
        .expect_exit(2, "or a damaged one");
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

/// Three rows: Latin-1, ASCII, and a replacement character typed by a user.
#[test]
fn invalid_utf8_rejects_its_row_and_is_never_replaced() {
    let line = |id: &str, title: &[u8]| {
        let head = format!(
            "{{\"id\":\"{id}\",\"subreddit\":\"food\",\"created_utc\":1700000000,\"title\":\""
        );
        [head.as_bytes(), title, b"\"}\n"].concat()
    };
    let (latin1, written) = (&b"caf\xe9"[..], "caf\u{fffd}".as_bytes());
    let lines = [line("a1", latin1), line("a2", b"Rye"), line("a3", written)].concat();
    let csv = [
        &b"id,subreddit,created_utc,title\na1,food,1700000000,"[..],
        latin1,
        b"\na2,food,1700000000,Rye\na3,food,1700000000,",
        written,
        b"\n",
    ]
    .concat();
    let schema = "message posts { required binary id (UTF8); required binary subreddit (UTF8); \
                  required binary created_utc (UTF8); required binary title; \
                  required group author { required binary name (UTF8); } }";
    let table = parquet(
        schema,
        &[
            &[b"a1", b"a2", b"a3"],
            &[b"food".as_slice(); 3],
            &[b"1700000000".as_slice(); 3],
            &[latin1, b"Rye", written],
            // A nested value in a text column is reported, and does not reject its row.
            &[b"baker".as_slice(); 3],
        ],
    );
    let packed = packed(&lines);
    for (format, bytes) in [
        ("ndjson", lines),
        ("dump", packed),
        ("csv", csv),
        ("parquet", table),
    ] {
        let program = Program::new();
        let file = program.write("posts", bytes);
        let ran = program.run(&["import", "--format", format, &file]);
        assert_eq!(ran.code, 1, "{format}: {}", ran.stderr);
        let output = ran
            .stderr
            .contains("ignoring the column `author`, because it is nested");
        assert_eq!(output, format == "parquet", "{}", ran.stderr);
        for word in ["is not UTF-8", "posts=2", "rejected=1"] {
            assert!(ran.stderr.contains(word), "{format}: {}", ran.stderr);
        }
        let titles = sql(
            &program,
            SQLITE,
            "SELECT fullname, title FROM posts ORDER BY 1",
        );
        assert_eq!(titles, "t3_a2,Rye\nt3_a3,caf\u{fffd}", "{format}");
    }
}

#[test]
fn a_utf16_file_is_imported() {
    let program = Program::new();
    let table =
        "\u{feff}id,title,subreddit,created_utc\r\na1,caf\u{e9} \u{1f35e},food,1700000000\r\n";
    let bytes: Vec<u8> = table.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let file = program.write("posts.csv", bytes);
    program.ok(&["import", "--format", "csv", &file]);
    let titles = sql(&program, SQLITE, "SELECT title FROM posts");
    assert_eq!(titles, "caf\u{e9} \u{1f35e}");
}

#[test]
fn gzip_files_of_several_members_are_imported_completely() {
    let gzip = |text: &str| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    let program = Program::new();
    let table = [
        "id,title,subreddit,created_utc\na1,One,food,1700000000\n",
        "a2,Two,food,1700000000\n",
    ];
    let table = program.write("posts.csv.gz", table.map(gzip).concat());
    program.ok(&["import", "--format", "csv", &table]);
    assert_eq!(posts(&program), "2");
    let halves = [dump(0..3), dump(3..6)].map(|half| gzip(&half));
    let file = program.write("RS.gz", halves.concat());
    expect(&program, &[&file], 0, &["posts=2"]);
}

#[test]
fn duplicate_column_names_are_rejected_in_csv_and_parquet() {
    let program = Program::new();
    let csv = "id,subreddit,created_utc,title,title\na1,food,1700000000,One,Two\n";
    let schema = "message posts { required binary id (UTF8); required binary subreddit (UTF8); \
                  required binary created_utc (UTF8); required binary title (UTF8); required binary title (UTF8); }";
    let columns: [&[&[u8]]; 5] = [&[b"a1"], &[b"food"], &[b"1"], &[b"One"], &[b"Two"]];
    for (format, bytes) in [
        ("csv", csv.as_bytes().to_vec()),
        ("parquet", parquet(schema, &columns)),
    ] {
        let file = program.write("posts", bytes);
        let ran = program.run(&["import", "--format", format, &file]);
        assert_eq!(ran.code, 2, "{format}: {}", ran.stderr);
        let output = "two columns are named `title`";
        assert!(ran.stderr.contains(output), "{format}: {}", ran.stderr);
    }
    assert!(!program.folder.path().join("topicmill.db").exists());
}

#[test]
fn common_null_spellings_are_null_and_reported_once() {
    let program = Program::new();
    let line = |id: &str, score: &str| {
        format!(
            "{{\"id\":\"{id}\",\"title\":\"Rye\",\"subreddit\":\"r/food\",\
             \"created_utc\":\"2023-11-14\",\"score\":{score}}}\n"
        )
    };
    let lines = [line("b1", "NaN"), line("b2", "-Infinity"), line("3", "5")].concat();
    let lines = program.write("posts.ndjson", lines.replace("\"3\"", "3"));
    let table = "id,title,subreddit,created_utc,score,author\na1,One,/r/food,1700000000,NaN,None\n\
        a2,NaN,food ,45244.9,2,DELETED\n\
        a3,Three,Food,1700000000,7,DELETED\n";
    let table = program.write("posts.csv", table);
    let ran = program.run(&["import", &lines]);
    ran.expect_exit(0, "2 values were `NaN`");
    let ran = program.run(&["import", "--format", "csv", &table]);
    ran.expect_exit(1, "2 values were `NaN`");
    ran.expect_stderr("it is 45244.9, which looks like an Excel date: write seconds since 1970");
    let query =
        "SELECT fullname, lower(subreddit), reddit_score, author FROM posts ORDER BY fullname";
    let stored = [
        "t3_3,food,5,",
        "t3_a1,food,,",
        "t3_a3,food,7,",
        "t3_b1,food,,",
        "t3_b2,food,,",
    ];
    assert_eq!(sql(&program, SQLITE, query), stored.join("\n"));
    let counts = sql(
        &program,
        SQLITE,
        "SELECT counts FROM runs ORDER BY id DESC LIMIT 1",
    );
    assert!(
        counts.contains("of June 2005") && !counts.contains("45244"),
        "{counts}"
    );
}

/// Two posts that differ only in their ids.
fn two(layout: &str) -> String {
    let post = |id| {
        format!(
            "{{\"id\":\"{id}\",\"title\":\"Rye\",\"subreddit\":\"food\",\"created_utc\":1700000000}}"
        )
    };
    layout.replace("$1", &post("a1")).replace("$2", &post("a2"))
}

#[test]
fn the_format_is_detected_from_the_content() {
    let table = "id;title;subreddit;created_utc\na1;Rye;food;1700000000\na2;Rye;food;1700000000\n";
    let pretty = two("$1$2").replace('{', "{\n  ").replace(',', ",\n  ");
    for (name, text) in [
        ("lines", two("$1\n$2\n")),
        ("array.json", two("[$1, $2]")),
        ("array.ndjson", two("[\n$1,\n$2\n]\n")),
        ("pretty.json", pretty.replace('}', "\n}\n")),
        (
            "answer.json",
            two("{\"ok\": true, \"data\": [\n$1,\n$2\n]}"),
        ),
        (
            "listing.json",
            two(
                "{\"kind\":\"Listing\",\"data\":{\"after\":null,\"children\":[{\"kind\":\"t3\",\"data\":$1},\
                    {\"kind\":\"t3\",\"data\":$2}]}}",
            ),
        ),
        ("semicolons.csv", table.to_owned()),
        ("excel.csv", format!("\u{feff}sep=;\r\n{table}")),
        ("tabs.tsv", table.replace(';', "\t")),
        ("tabs.txt", table.replace(';', "\t")),
    ] {
        let program = Program::new();
        let file = program.write(name, text);
        let ran = program.run(&["import", &file]);
        ran.expect_exit(0, "posts=2");
    }
}

#[test]
fn a_broken_json_array_loses_only_the_broken_part() {
    for (layout, good, output) in [
        ("[$1, {\"id\": 7}, $2]", 2, "rejected=1"),
        ("[$1, $2", 2, "truncated"),
        ("[$1,\n{\"id\": \"x},\n$2]", 2, "line 2"),
        ("[$1, $2] and more", 2, "follows the array"),
        ("{\"data\": [$1, null, $2]}", 2, "line 1, record 2"),
        ("{\n\"data\": [$1, $2]", 0, "truncated"),
    ] {
        let program = Program::new();
        let file = program.write("posts.json", two(layout));
        let ran = program.run(&["import", &file]);
        ran.expect_exit(1, output);
        ran.expect_stderr(&format!("posts={good} "));
    }
}

#[test]
fn bzip2_and_xz_dumps_are_read_completely_once() {
    let halves = [dump(0..3_000), dump(3_000..9_000)];
    let bzip2 = |text: &String| {
        let mut packer = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    let program = Program::new();
    let whole = halves.each_ref().map(bzip2).concat();
    let file = program.write("RS_2011-01.bz2", &whole[..whole.len() - 400]);
    let import = ["import", &file, "--subreddit", "food"];
    program.run(&import).expect_exit(1, "is truncated here");
    program.write("RS_2011-01.bz2", &whole);
    program.ok(&import);
    assert_eq!(posts(&program), "3000");
    program.run(&import).expect_exit(0, "imported on");
    // Output of `xz` for `dump(0..3)`, twice.
    let packed = std::process::Command::new("xz")
        .arg("-c")
        .arg(program.write("three", dump(0..3)))
        .output();
    let Ok(packed) = packed else { return };
    let file = program.write(
        "RS_2018-11.xz",
        [&packed.stdout[..], &packed.stdout].concat(),
    );
    let ran = program.run(&["import", &file, "--all-subreddits"]);
    ran.expect_exit(0, "posts=6");
}

#[test]
#[cfg(unix)]
fn pipes_are_read_once_without_hanging() {
    let program = Program::new();
    let file = program.write("posts.ndjson", two("$1\n$2\n"));
    let import = |name: &str, script: &str| {
        let mut shell = std::process::Command::new("sh");
        let import = program.command(&["import", name]);
        let program = import.get_program().to_string_lossy().into_owned();
        let arguments = import
            .get_args()
            .map(|word| format!("'{}'", word.to_string_lossy()));
        let words: Vec<String> = arguments.collect();
        let script = script.replace(
            "IMPORT",
            &format!("timeout 60 '{program}' {}", words.join(" ")),
        );
        shell.current_dir(import.get_current_dir().unwrap_or("/".as_ref()));
        for (name, value) in import.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        crate::support::program::finished(shell.args(["-c", &script]).output().unwrap())
    };
    import("-", &format!("cat '{file}' | IMPORT")).expect_exit(0, "posts=2");
    let fifo = program.folder.path().join("fifo");
    let fifo = fifo.display();
    let script = format!("mkfifo '{fifo}' && (cat '{file}' > '{fifo}' &) && IMPORT");
    import("fifo", &script).expect_exit(0, "posts=2");
    program
        .run(&["import", "-", "-"])
        .expect_exit(2, "only once");
}

#[test]
fn unsupported_formats_are_named() {
    let program = Program::new();
    for (bytes, output) in [
        (
            &b"PK\x03\x04\x14\0\x06\0[Content_Types].xml"[..],
            "an Excel workbook",
        ),
        (
            b"PK\x03\x04\x14\0\0\0posts.csv",
            "a zip archive: extract it",
        ),
        (b"ARROW1\0\0", "Feather): write it as Parquet or CSV"),
        (b"%PDF-1.7\n%\xe2\xe3", "a PDF"),
        (b"SQLite format 3\0\x10\0\x01\x01\0", "an SQLite database"),
        (
            b"<!DOCTYPE html>\n<html>",
            "a web page: download the file itself",
        ),
        (
            b"\x01\x02\x03\x04\xff\xfe\x05\x06",
            "neither text nor a known format",
        ),
    ] {
        let file = program.write("posts.csv", bytes);
        for command in [
            &["import", &file][..],
            &["score", &file, "out.csv", "--label", "a"],
        ] {
            let ran = program.run(command);
            ran.expect_exit(2, output);
            assert!(!ran.stderr.contains("iconv"), "{}", ran.stderr);
        }
    }
    let texts = program.write("texts.txt", "hello world\nsecond text\n");
    program
        .run(&["import", &texts])
        .expect_exit(2, "it has only texts");
}

#[test]
fn a_missing_field_can_be_set_by_a_flag() {
    let program = Program::new();
    // The column names of a well-known table of one subreddit.
    let table = "id,title,created,body,comms_num\nb1,Rye,1700000000,It rose.,7\n";
    let table = program.write("posts.csv", table);
    let lacking = program.run(&["import", &table]);
    lacking.expect_exit(2, "--set subreddit=NAME");
    let set = ["--set", "subreddit=wallstreetbets", "--set", "score=3"];
    program.ok(&[&["import", &table], &set[..]].concat());
    let read = sql(&program, SQLITE, "SELECT selftext, num_comments FROM posts");
    assert_eq!(read, "It rose.,7");
    let lines = "{\"id\":\"b2\",\"title\":\"Rye\",\"created_utc\":1700000000,\"score\":5}\n";
    let lines = program.write("posts.ndjson", lines);
    program.ok(&[&["import", &lines], &set[..]].concat());
    let query = "SELECT fullname, subreddit, reddit_score FROM posts ORDER BY 1";
    let stored = "t3_b1,wallstreetbets,3\nt3_b2,wallstreetbets,5";
    assert_eq!(sql(&program, SQLITE, query), stored);
    let wrong = program.run(&["import", &lines, "--set", "colour=red"]);
    wrong.expect_exit(2, "--set `colour=red` is not FIELD=VALUE");
}

#[test]
fn a_backslash_escaped_quote_rejects_its_row_and_is_reported() {
    let program = Program::new();
    let table = "id,title,subreddit,created_utc\na1,\"so \\\"hi\\\" it\",food,1700000000\n\
        a2,\"C:\\new\\\",food,1700000000\n";
    let file = program.write("posts.csv", table);
    program
        .run(&["import", &file])
        .expect_exit(1, "not doubled");
    assert_eq!(
        sql(&program, SQLITE, "SELECT title FROM posts"),
        "C:\\new\\"
    );
}
