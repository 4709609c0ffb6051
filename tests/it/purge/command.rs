//! Tests `purge` through the program: its record, Reddit errors, interruption, and a wrong clock.

use super::*;

#[test]
fn the_purge_command_purges_and_records_its_run() {
    let program = Program::new();
    program.ok(&words("collect --source sample --topic gaming --limit 20"));
    let count = |program: &Program| -> u64 {
        let counted = program.ok(&["sql", "--format", "csv", "SELECT COUNT(*) FROM posts"]);
        counted.stdout.lines().nth(1).unwrap().parse().unwrap()
    };
    let before = count(&program);
    let first = program.ok(&["sql", "--format", "csv", "SELECT MIN(fullname) FROM posts"]);
    let first = first
        .stdout
        .lines()
        .nth(1)
        .unwrap()
        .trim_start_matches("t3_")
        .to_owned();
    let ids = program.write(
        "ids.txt",
        format!("Post_ID,reason\n\nhttps://www.reddit.com/r/gaming/comments/{first}/x/\nt3_unknown1,removed\n"),
    );
    program.ok(&["purge", "--ids", &ids, "--run-json", "run.json"]);
    assert_eq!(count(&program), before - 1);
    let record = std::fs::read(program.folder.path().join("run.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let record = record.get(0).unwrap_or(&record);
    assert_eq!(
        (&record["stage"], &record["status"]),
        (&json!("purge"), &json!("done"))
    );
    assert_eq!(record["counts"]["requested"], 2);
    assert_eq!(record["counts"]["purged"], 1);
    let kept = "SELECT reason FROM tombstones WHERE fullname = 't3_unknown1' OR fullname = 't3_";
    let kept = format!("{kept}{first}' ORDER BY reason");
    let kept = program.ok(&["sql", "--format", "csv", &kept]);
    assert_eq!(kept.stdout, "reason\nremoved\nrequested\n");

    program.ok(&words(
        "purge --check-deleted --source sample --max-requests 5",
    ));
    let status = program.json(&["status"]);
    assert!(status["backlog"]["reconciled_at"].is_string(), "{status:#}");
    assert_eq!(status["runs"][0]["stage"], "purge");
    program.ok(&["purge", "--retention", "48"]);

    let bad = program.write("bad.txt", "abc\nt1_comment\n");
    let odd = program.write("odd.txt", "abc,because\n");
    for (args, code, message) in [
        (&["purge"][..], 2, "--check-deleted"),
        (
            &["purge", "--max-requests", "3", "--ids", &ids],
            2,
            "--check-deleted",
        ),
        (&["purge", "--retention"], 2, "retention_hours"),
        (&["purge", "--ids", "missing.txt"], 2, "missing.txt"),
        (&["purge", "--ids", &bad], 2, "line 2"),
        (&["purge", "--ids", &odd], 2, "line 1"),
        (&["purge", "--check-deleted"], 3, "client_id"),
        (
            &["purge", "--check-deleted", "--source", "import"],
            2,
            "--source",
        ),
        (
            &["--database", "sqlite:none.db", "purge", "--ids", &ids],
            4,
            "db create",
        ),
    ] {
        let ran = program.run(args);
        assert_eq!(ran.code, code, "{args:?}\n{}", ran.stderr);
        assert!(ran.stderr.contains(message), "{args:?}\n{}", ran.stderr);
    }
}

#[test]
fn a_purge_by_author_deletes_exactly_that_authors_posts_for_good() {
    let lines = |posts: &[(&str, &str)]| {
        let created = 1_700_000_000;
        let line = |(id, author): &(&str, &str)| {
            json!({"id": id, "title": id, "subreddit": "food", "created_utc": created, "author": author})
                .to_string()
        };
        posts.iter().map(line).collect::<Vec<String>>().join("\n")
    };
    let known = lines(&[
        ("a1", "One"),
        ("a2", "One"),
        ("b1", "Two"),
        ("c1", "[deleted]"),
    ]);
    // A different first line, so that this file does not count as imported.
    let again = lines(&[("d1", "Two"), ("a1", "One"), ("a2", "One"), ("b1", "Two")]);
    for (store_author, given) in [("false", "u/One"), ("true", "/u/one")] {
        for database in databases() {
            let program = Program::with_database(&database.url);
            let import = |name: &str, lines: &str| {
                let file = program.write(name, lines);
                program
                    .run_with(
                        &[("collect.store_author", store_author)],
                        &["import", &file],
                    )
                    .expect_exit(0, "");
            };
            let rows = |sql: &str| program.ok(&["sql", "--format", "csv", sql]).stdout;
            let posts = "SELECT fullname FROM posts ORDER BY fullname";
            import("known.ndjson", &known);

            program
                .ok(&["purge", "--author", "nobody"])
                .expect_stderr("no stored post is by `nobody`");
            assert_eq!(rows(posts), "fullname\nt3_a1\nt3_a2\nt3_b1\nt3_c1\n");
            program
                .ok(&["purge", "--author", given])
                .expect_stderr_all(&["posts=2", "purged=2", "stored without an author"]);
            assert_eq!(rows(posts), "fullname\nt3_b1\nt3_c1\n");
            assert_eq!(
                rows("SELECT fullname, reason FROM tombstones ORDER BY fullname"),
                "fullname,reason\nt3_a1,requested\nt3_a2,requested\n"
            );

            import("again.ndjson", &again);
            assert_eq!(rows(posts), "fullname\nt3_b1\nt3_c1\nt3_d1\n");
        }
    }
    Program::new()
        .run(&["purge", "--author", "u/"])
        .expect_exit(2, "--author");
}

/// Returns a `purge --check-deleted` command that uses this server and a database of one post.
fn checking(program: &Program, server: &MockServer) -> std::process::Command {
    let post = r#"{"id": "a1", "title": "A", "subreddit": "food", "created_utc": 1700000000}"#;
    let file = program.write("posts.ndjson", post);
    program.ok(&["import", &file]);
    let mut command = program.command(&["purge", "--check-deleted"]);
    command
        .env("TOPICMILL__REDDIT__AUTH_URL", server.uri())
        .env("TOPICMILL__REDDIT__API_URL", server.uri())
        .env("TOPICMILL__REDDIT__CLIENT_ID", "x")
        .env(
            "TOPICMILL__REDDIT__USER_AGENT",
            "linux:topicmill:v1 (by /u/someone)",
        );
    command
}

async fn refusing(answer: ResponseTemplate) -> MockServer {
    let server = server().await;
    Mock::given(path("/api/info"))
        .respond_with(answer)
        .mount(&server)
        .await;
    server
}

const STATUS: &[&str] = &[
    "sql",
    "--format",
    "csv",
    "SELECT stage, status FROM runs WHERE stage = 'purge'",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_reddit_error_purges_nothing_and_sets_the_exit_code() {
    for (answer, code) in [
        (ResponseTemplate::new(401), 3),
        (
            ResponseTemplate::new(429).insert_header("retry-after", "86400"),
            75,
        ),
        (ResponseTemplate::new(404), 1),
    ] {
        let server = refusing(answer).await;
        let program = Program::new();
        let ran = finished(checking(&program, &server).output().unwrap());
        assert_eq!(ran.code, code, "{}", ran.stderr);
        let posts = program.ok(&["sql", "--format", "csv", "SELECT fullname FROM posts"]);
        assert!(posts.stdout.contains("t3_a1"));
        let status = program.ok(STATUS).stdout;
        assert!(status.contains("purge,failed"), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_purge_stops_immediately_and_is_recorded() {
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_mins(10));
    let server = refusing(slow).await;
    let program = Program::new();
    let mut running = checking(&program, &server)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while crate::support::reddit::requests(&server, "GET").await == 0 {
        assert!(
            running.try_wait().unwrap().is_none(),
            "the program ended without a request"
        );
        tokio::task::yield_now().await;
    }
    signal(&running, "-INT");
    assert_eq!(running.wait().unwrap().code(), Some(130));
    assert!(program.ok(STATUS).stdout.contains("purge,stopped"));
}

#[test]
fn a_wrong_clock_removes_no_text() {
    for database in databases() {
        let program = Program::with_database(&database.url);
        let is_sqlite = database.url.starts_with("sqlite");
        program.ok(&words("collect --source sample --topic gaming --limit 20"));
        let run = |sql: &str| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(crate::support::rows::execute(&database.url, sql));
        };
        // A clock that is three years ahead of, or behind, the last use of the database.
        for day in ["2023-01-01", "2029-01-01"] {
            run(&format!(
                "UPDATE runs SET started_at = '{day}T00:00:00+00:00'"
            ));
            if is_sqlite {
                let purge = program.run(&words("purge --retention 1"));
                purge.expect_exit(2, day);
            }
            run(&format!(
                "DELETE FROM runs WHERE started_at <> '{day}T00:00:00+00:00'"
            ));
        }
        let kept = "SELECT COUNT(*) FROM posts WHERE text_purged_at IS NULL";
        let count = || program.json(&["sql", kept]);
        let all = count();
        // A text that was stored by a clock in the future is due, and reported.
        run(
            "UPDATE posts SET collected_at = '2100-01-01T00:00:00+00:00' WHERE fullname = (SELECT MIN(fullname) FROM \
                posts)",
        );
        program
            .ok(&words("purge --retention 48 --yes"))
            .expect_stderr_all(&["storage time is in the future", "texts=1"]);
        assert_ne!(count(), all);
    }
}
