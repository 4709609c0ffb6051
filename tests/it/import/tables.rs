//! Tests imports of CSV and Parquet tables: columns, types, encodings and null values.

use super::*;
use crate::support::parquet_files::parquet;

#[test]
fn csv_columns_are_mapped_and_an_invalid_value_rejects_its_row() {
    let program = Program::new();
    let table = "key,headline,subreddit,posted\na1,One,food,2024-01-01 10:00:00\na2,Two,food,soon\n\
        a3,Three,music,1700000000\n";
    program.write("posts.csv", table);
    let import = "import --format csv posts.csv --map id=key --map created_utc=posted --map";
    let ran = program.run(&format!("{import} title=headline"));
    ran.expect_exit(1, "row 2");
    ran.expect_stderr("posts=2");
    let ran = program.run(&format!("{import} title=heading"));
    ran.expect_exit(2, "`heading`");
    ran.expect_stderr("`key`, `headline`, `subreddit`, `posted`");
    assert_eq!(program.count("posts WHERE created_at > '2023-12-31'"), 1);
    program
        .run("import --format csv posts.csv --map colour=key")
        .expect_exit(2, "created_utc");
}

#[test]
fn an_unstorable_number_rejects_its_table_row_and_is_ignored_elsewhere() {
    let head = "id,title,subreddit,created_utc,score,num_comments\n";
    let most = i64::MAX;
    let rows = format!(
        "a1,One,food,1700000000,99999999999999999999,3\n\
         a2,Two,food,1700000000,5,1e30\n\
         a3,Three,food,99999999999999999999,5,3\n\
         a4,Four,food,1700000000,-9223372036854775809,3\n\
         a5,Five,food,1700000000,{most},7.9\n"
    );
    let table = format!("{head}{rows}");
    let lines: String = [
        ("b1", "99999999999999999999"),
        ("b2", "\"many\""),
        ("b3", "12"),
    ]
    .map(|(id, score)| {
        format!(
            "{{\"id\":\"{id}\",\"title\":\"One\",\"subreddit\":\"food\",\
                 \"created_utc\":1700000000,\"score\":{score}}}\n"
        )
    })
    .concat();
    for program in Program::on_each_database() {
        program.write("posts.csv", &table);
        let ran = program.run("import --format csv posts.csv");
        ran.expect_code(1);
        ran.expect_stderr_all(&[
            "`score` is out of range",
            "`num_comments` is out of range",
            "it is 100000000000000000000",
            "posts=1 ",
            "rejected=4",
        ]);
        program.import(&lines);
        let query = "SELECT fullname, reddit_score, num_comments FROM posts ORDER BY fullname";
        let stored = json!([
            ["t3_a5", most, 7],
            ["t3_b1", null, null],
            ["t3_b2", null, null],
            ["t3_b3", 12, null]
        ]);
        assert_eq!(program.rows(query), stored);
    }
}

/// A fixture written by pyarrow with snappy: `id`, `title` (null in the third row), `subreddit`, `score`
/// and `over_18`, and the same time as `created_utc` (nanoseconds), `ms`, `us`, `text` and `float`. `text` is mapped to
/// the flair; otherwise it would be the body, and the third row a post.
#[test]
fn parquet_columns_are_read_with_every_timestamp_type() {
    let file = crate::support::engine::repository("tests/it/fixtures/posts.parquet");
    let bytes = std::fs::read(&file).unwrap();
    let stored = "SELECT fullname, reddit_score, over_18, substr(CAST(created_at AS TEXT), 1, 10) FROM posts ORDER BY 1";
    for column in ["created_utc", "ms", "us", "text", "float"] {
        let program = Program::new();
        program.write("posts", &bytes);
        let ran = program.run(&format!(
            "import --format parquet posts --map link_flair_text=text --map created_utc={column}"
        ));
        ran.expect_exit(1, "row 3");
        let rows = json!([
            ["t3_p1", 7, 0, "2023-11-14"],
            ["t3_p2", null, 1, "2023-11-14"]
        ]);
        assert_eq!(program.rows(stored), rows, "{column}");
    }
    let program = Program::new();
    program.write("posts", &bytes);
    program.write("half", &bytes[..bytes.len() / 2]);
    for (arguments, named) in [
        ("posts --map title=missing", "`missing`"),
        ("posts --map title=lists", "is nested"),
        ("half", "damaged"),
    ] {
        let ran = program.run(&format!("import --format parquet {arguments}"));
        ran.expect_exit(2, named);
    }
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
            // A nested value in a text column is reported but does not reject its row.
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
        program.write("posts", bytes);
        let ran = program.run(&format!("import --format {format} posts"));
        ran.expect_code(1);
        ran.expect_stderr_all(&["not UTF-8", "posts=2", "rejected=1"]);
        let nested = ran.stderr.contains("the column `author`");
        assert_eq!(nested, format == "parquet", "{}", ran.stderr);
        let titles = program.rows("SELECT fullname, title FROM posts ORDER BY 1");
        let expected = json!([["t3_a2", "Rye"], ["t3_a3", "caf\u{fffd}"]]);
        assert_eq!(titles, expected, "{format}");
    }
}

#[test]
fn a_utf16_file_is_imported() {
    let program = Program::new();
    let table =
        "\u{feff}id,title,subreddit,created_utc\r\na1,caf\u{e9} \u{1f35e},food,1700000000\r\n";
    let bytes: Vec<u8> = table.encode_utf16().flat_map(u16::to_le_bytes).collect();
    program.write("posts.csv", bytes);
    program.ok("import --format csv posts.csv");
    let title = program.scalar("SELECT title FROM posts");
    assert_eq!(title, "caf\u{e9} \u{1f35e}");
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
        program.write("posts", bytes);
        let ran = program.run(&format!("import --format {format} posts"));
        ran.expect_exit(2, "named `title`");
    }
    assert!(!program.path("topicmill.db").exists());
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
    program.write("posts.ndjson", lines.replace("\"3\"", "3"));
    let table = "id,title,subreddit,created_utc,score,author\na1,One,/r/food,1700000000,NaN,None\n\
        a2,NaN,food ,45244.9,2,DELETED\n\
        a3,Three,Food,1700000000,7,DELETED\n";
    program.write("posts.csv", table);
    let ran = program.run("import posts.ndjson");
    ran.expect_exit(0, "2 values were `NaN`");
    let ran = program.run("import --format csv posts.csv");
    ran.expect_exit(1, "2 values were `NaN`");
    ran.expect_stderr("it is 45244.9");
    let query =
        "SELECT fullname, lower(subreddit), reddit_score, author FROM posts ORDER BY fullname";
    let stored = json!([
        ["t3_3", "food", 5, null],
        ["t3_a1", "food", null, null],
        ["t3_a3", "food", 7, null],
        ["t3_b1", "food", null, null],
        ["t3_b2", "food", null, null],
    ]);
    assert_eq!(program.rows(query), stored);
    let counts = program.scalar("SELECT counts FROM runs ORDER BY id DESC LIMIT 1");
    let counts = counts.to_string();
    assert!(counts.contains("in June 2005"), "{counts}");
    assert!(!counts.contains("45244"), "{counts}");
}

#[test]
fn a_missing_field_can_be_set_by_a_flag() {
    let program = Program::new();
    let table = "id,title,created_utc\nb1,Rye,1700000000\n";
    program.write("posts.csv", table);
    let lacking = program.run("import posts.csv");
    lacking.expect_exit(2, "`--map subreddit=COLUMN`");
    let set = "--set subreddit=wallstreetbets --set score=3";
    program.ok(&format!("import posts.csv {set}"));
    let line = "{\"id\":\"b2\",\"title\":\"Rye\",\"created_utc\":1700000000,\"score\":5}\n";
    program.write("posts.ndjson", line);
    program.ok(&format!("import posts.ndjson {set}"));
    let query = "SELECT fullname, subreddit, reddit_score FROM posts ORDER BY 1";
    let stored = json!([
        ["t3_b1", "wallstreetbets", 3],
        ["t3_b2", "wallstreetbets", 5]
    ]);
    assert_eq!(program.rows(query), stored);
    let wrong = program.run("import posts.ndjson --set colour=red");
    wrong.expect_exit(2, "`colour=red`");
}

#[test]
fn a_missing_body_is_reported_with_the_columns_that_are_not_read() {
    let program = Program::new();
    program.write(
        "posts.csv",
        "id,title,essay,subreddit,created_utc\na1,Rye,It rose.,food,1700000000\n",
    );
    program
        .ok("import posts.csv")
        .expect_stderr_all(&["--map selftext=COLUMN", "`essay`"]);
    let mapped = program.ok("import posts.csv --map selftext=essay");
    assert!(!mapped.stderr.contains("COLUMN"), "{}", mapped.stderr);
    assert_eq!(program.scalar("SELECT selftext FROM posts"), "It rose.");
}

#[test]
fn a_backslash_escaped_quote_rejects_its_row_and_is_reported() {
    let program = Program::new();
    let table = "id,title,subreddit,created_utc\na1,\"so \\\"hi\\\" it\",food,1700000000\n\
        a2,\"C:\\new\\\",food,1700000000\n";
    program.write("posts.csv", table);
    let ran = program.run("import posts.csv");
    ran.expect_exit(1, "not doubled");
    assert_eq!(program.scalar("SELECT title FROM posts"), "C:\\new\\");
}

#[test]
fn a_preview_shows_no_purged_post() {
    let program = Program::new().imported(5);
    program.purge("t3_k00001\n");
    let shown = program.ok("import posts.ndjson --dry-run").json();
    let shown = shown.as_array().unwrap().iter();
    let names: Vec<&Value> = shown.map(|post| &post["fullname"]).collect();
    assert_eq!(names, ["t3_k00000", "t3_k00002", "t3_k00003"]);
    let both = program.run("import posts.ndjson --dry-run --run-json run.json");
    both.expect_exit(2, "--run-json");
}
