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

/// A file in the layout of another tool: its name and text, flags, a word of the log (empty if no column is renamed by
/// itself), and the post's fullname, subreddit, body, number of comments and time.
type OtherFile = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Value,
);

fn other_files() -> [OtherFile; 13] {
    let time = "2023-01-15 08:30";
    [
        (
            "dumps.csv",
            "author,title,score,created,link,text,url\nu/ada,Flour?,12,2023-01-15 08:30,https://www.reddit.com/r/Cooking/\
             comments/10ca1/flour/,I tried.,https://www.reddit.com/r/Cooking/comments/10ca1/flour/\n",
            "",
            "of PushshiftDumps: `text` as `selftext`, `link` as `permalink`, `created` as",
            json!(["t3_10ca1", "Cooking", "I tried.", null, time]),
        ),
        (
            "4cat.csv",
            "thread_id,id,timestamp,body,subject,author,url,subreddit,parent,score,unix_timestamp\n10ca1,10ca1,2023-01-15 \
             08:30:00,I tried.,Flour?,ada,,Cooking,,3,1673771400\n,,,,,,,,,,\n",
            "",
            "of 4CAT: `subject` as `title`, `body` as `selftext`, `unix_timestamp` as",
            json!(["t3_10ca1", "Cooking", "I tried.", null, time]),
        ),
        (
            "extractor.csv",
            "\"\",date_utc,timestamp,title,text,subreddit,comments,url\n1,2023-01-15,1673771400,Flour?,I tried.,Cooking,5,\
             https://www.reddit.com/r/Cooking/comments/10ca1/flour/\n",
            "",
            "of RedditExtractoR: ",
            json!(["t3_10ca1", "Cooking", "I tried.", 5, time]),
        ),
        (
            "urs.json",
            r#"{"scrape_settings": {"subreddit": "cooking"}, "data": [{"author": "u/ada", "created_utc":
            "01-15-2023 08:30:00", "distinguished": null, "id": "10ca1", "is_original_content": false, "nsfw": false,
            "num_comments": 5, "permalink": "/r/Cooking/comments/10ca1/flour/", "selftext": "I tried.", "spoiler": false,
            "title": "Flour?"}]}"#,
            "",
            "of URS: `nsfw` as `over_18`",
            json!(["t3_10ca1", "Cooking", "I tried.", 5, time]),
        ),
        (
            "bdfr.json",
            r#"{"title": "Flour?", "name": "t3_10ca1", "selftext": "I tried.", "permalink": "/r/Cooking/comments/10ca1/f/",
            "id": "10ca1", "num_comments": 1, "pinned": false, "locked": false, "distinguished": null,
            "created_utc": 1673771400.0, "comments": [{"id": "j1", "body": "Rye.", "parent_id": "t3_10ca1", "subreddit":
            "Cooking", "created_utc": 1673771500.0, "replies": []}]}"#,
            "",
            "a file of BDFR",
            json!(["t3_10ca1", "Cooking", "I tried.", 1, time]),
        ),
        (
            "apify.json",
            r#"[{"id": "t3_10ca1", "parsedId": "10ca1", "url": "https://www.reddit.com/r/Cooking/comments/10ca1/f/",
            "username": "ada", "title": "Flour?", "communityName": "r/Cooking", "parsedCommunityName": "Cooking",
            "body": "I tried.", "numberOfComments": 5, "upVotes": 3, "createdAt": "2023-01-15T08:30:00.000Z",
            "dataType": "post"}]"#,
            "",
            "of Apify: ",
            json!(["t3_10ca1", "Cooking", "I tried.", 5, time]),
        ),
        (
            "capitals.csv",
            "ID,Title,Subreddit,Created UTC,SelfText,numComments\n10CA1,Flour?,r/Cooking,2023-01-15T08:30Z,I tried.,5\n",
            "",
            "`ID` as `id`",
            json!(["t3_10ca1", "Cooking", "I tried.", 5, time]),
        ),
        (
            "link.csv",
            "ref,Title,sub,when,Comments\nhttps://redd.it/10ca1?x=1,Flour?,https://www.reddit.com/r/Cooking/,2023/01/15 \
             08:30,[]\n",
            "--map id=ref --map subreddit=sub --map created_utc=when",
            "`Title` as `title`",
            json!(["t3_10ca1", "Cooking", "", null, time]),
        ),
        (
            "praw.ndjson",
            "{}\nnull\n{\"id\":\"10ca1\",\"title\":\"Flour?\",\"body\":\"I tried.\",\"subreddit\":\"Cooking\",\
             \"created\":1673771400,\"comms_num\":5}\n{\"id\":null,\"title\":\"\"}\n",
            "",
            "`comms_num` as `num_comments`",
            json!(["t3_10ca1", "Cooking", "I tried.", 5, time]),
        ),
        (
            "mapped.ndjson",
            r#"{"key": "10ca1", "title": "Flour?", "selftext": "no", "where": {"name": "Cooking"}, "essay": "I tried.",
            "created_utc": 1673771400}"#,
            "--map id=key --map subreddit=where.name --map selftext=essay",
            "",
            json!(["t3_10ca1", "Cooking", "I tried.", null, time]),
        ),
        (
            "profile.json",
            r#"{"https://www.reddit.com/user/ada/comments/10ca1/f/": {"title": 1984, "text": 2.5, "date": "2023-01-15T08:30",
            "url": "https://www.reddit.com/user/ada/comments/10ca1/f/"}}"#,
            "",
            "`date` as `created_utc`",
            json!(["t3_10ca1", "u_ada", "2.5", null, time]),
        ),
        (
            "pandas.json",
            r#"{"id": {"0": "10ca1"}, "title": {"0": "Flour?"}, "selftext": {"0": "I tried."}, "subreddit": {"0":
            "Cooking"}, "created_utc": {"0": 1673771400}}"#,
            "",
            "",
            json!(["t3_10ca1", "Cooking", "I tried.", null, time]),
        ),
        (
            "elsewhere.ndjson",
            r#"{"id":"10ca1","title":"R","selftext":"","body":"no","created_utc":1673771400,"subreddit":"Cooking",
            "link":"https://example.org/comments/zz9/","url":"https://www.reddit.com/r/other/comments/zz9/r/"}"#,
            "",
            "INFO reading `link` as `permalink` file",
            json!(["t3_10ca1", "Cooking", "", null, time]),
        ),
    ]
}

#[test]
fn files_of_other_tools_are_imported() {
    for (name, text, flags, word, post) in other_files() {
        let program = Program::new();
        program.write(name, text.replace("\n            ", " "));
        let shown = program.ok(&format!("import {name} {flags} --dry-run"));
        assert!(!program.path("topicmill.db").exists());
        let ran = program.ok(&format!("import {name} {flags}"));
        if word.is_empty() {
            assert!(!ran.stderr.contains("` as `"), "{}", ran.stderr);
        } else {
            ran.expect_stderr(word);
        }
        let mut shown = shown.json();
        // Comments are tested in `comments.rs`.
        let rows = shown.as_array_mut().unwrap();
        rows.retain(|row| row["fullname"].as_str().unwrap().starts_with("t3_"));
        let columns = shown[0].as_object_mut().unwrap();
        // The hash of a name depends on the database, SQLite has no booleans, and posts have no parents.
        let not_compared = [
            "author",
            "over_18",
            "is_self",
            "post",
            "parent",
            "is_submitter",
        ];
        columns.retain(|name, _| !not_compared.contains(&name.as_str()));
        let names: Vec<&str> = columns.keys().map(String::as_str).collect();
        let rows = program.query(&format!("SELECT {} FROM posts", names.join(", ")));
        assert_eq!(json!(rows), shown, "{name}");
        let stored = "SELECT fullname, subreddit, selftext, num_comments, SUBSTR(REPLACE(created_at, 'T', ' '), 1, 16) \
            FROM posts";
        assert_eq!(program.rows(stored), json!([post]), "{name}");
    }
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
