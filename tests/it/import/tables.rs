//! Tests imports of CSV and Parquet tables: columns, types, encodings and null values.

use super::*;

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
/// and `over_18`, and the same time as `created_utc` (nanoseconds), `ms`, `us`, `text` and `float`. `text` is mapped to
/// the flair; otherwise it would be the body, and the third row a post.
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
        let flair = ["--map", "link_flair_text=text"];
        let ran = program.run(&[&args[..], &flair, &["--map", &map]].concat());
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
        counts.contains("in June 2005") && !counts.contains("45244"),
        "{counts}"
    );
}

#[test]
fn a_missing_field_can_be_set_by_a_flag() {
    let program = Program::new();
    // The column names of a well-known table from one subreddit.
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
fn a_missing_body_is_reported_with_the_columns_that_are_not_read() {
    let required = [
        "--map",
        "id=post_id",
        "--map",
        "title=headline",
        "--map",
        "subreddit=sub",
        "--map",
        "created_utc=created_at",
    ];
    let message = "no column has the body, `selftext`: name it with `--map selftext=COLUMN`; the columns that were \
                   not read are `essay`";
    for (column, map, length) in [
        ("essay", &["--map", "selftext=essay"][..], "8"),
        ("text", &[], "8"),
        ("essay", &[], "0"),
    ] {
        let program = Program::new();
        let table =
            format!("post_id,headline,{column},sub,created_at\na1,Rye,It rose.,food,1700000000\n");
        let table = program.write("posts.csv", table);
        let ran = program.ok(&[&["import", &table], &required[..], map].concat());
        let warnings = ran.stderr.matches(message).count();
        assert_eq!(warnings, usize::from(length == "0"), "{}", ran.stderr);
        let found = sql(&program, SQLITE, "SELECT LENGTH(selftext) FROM posts");
        assert_eq!(found, length, "{column}");
    }
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
