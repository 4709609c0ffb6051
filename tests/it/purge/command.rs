//! Tests `purge` through the program: its record, Reddit errors, interruption, and a wrong clock.

use super::*;
use crate::support::wait::until;
use topicmill_core::table;
use wiremock::MockServer;

#[test]
fn the_purge_command_purges_and_records_its_run() {
    let program = Program::new();
    program.ok("collect --source sample --topic gaming --limit 20");
    let before = program.count("posts");
    let first = program.scalar("SELECT MIN(fullname) FROM posts");
    let first = first.as_str().unwrap().trim_start_matches("t3_");
    let ids = program.write(
        "ids.txt",
        format!("Post_ID,reason\n\nhttps://www.reddit.com/r/gaming/comments/{first}/x/\nt3_unknown1,removed\n"),
    );
    let counts = program.run_counts("purge --ids ids.txt");
    assert_eq!(program.count("posts"), before - 1);
    assert_eq!([&counts["requested"], &counts["purged"]], [2, 1]);
    let kept = "SELECT reason FROM tombstones ORDER BY reason";
    assert_eq!(program.rows(kept), json!([["removed"], ["requested"]]));

    program.ok("purge --check-deleted --source sample --max-requests 5");
    let status = program.json("status");
    assert!(status["backlog"]["reconciled_at"].is_string(), "{status:#}");
    assert_eq!(status["runs"][0]["stage"], "purge");
    program.ok("purge --retention 48");

    let bad = program.write("bad.txt", "abc\nt2_user\n");
    let odd = program.write("odd.txt", "abc,because\n");
    for (line, code, message) in table! {
        "purge".to_owned(), 2, "--check-deleted";
        format!("purge --max-requests 3 --ids {ids}"), 2, "--check-deleted";
        "purge --retention".into(), 2, "retention.hours";
        "purge --ids missing.txt".into(), 2, "missing.txt";
        format!("purge --ids {bad}"), 2, "line 2";
        format!("purge --ids {odd}"), 2, "line 1";
        "purge --check-deleted --source reddit".into(), 3, "client_id";
        "purge --check-deleted --source import".into(), 2, "--source";
        format!("--database sqlite:none.db purge --ids {ids}"), 4, "db create";
    } {
        program.run(&line).expect_exit(code, message);
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
    for (store_author, given) in [("false", "u/ONE"), ("true", "/u/one")] {
        for program in Program::on_each_database() {
            let import = |lines: &str| {
                program.write("posts.ndjson", lines);
                let set = [("collect.store_author", store_author)];
                program.run_with(&set, "import posts.ndjson").expect_code(0);
            };
            let posts = || program.rows("SELECT fullname FROM posts ORDER BY fullname");
            import(&known);
            program
                .ok("purge --author nobody")
                .expect_stderr("`nobody`");
            assert_eq!(posts(), json!([["t3_a1"], ["t3_a2"], ["t3_b1"], ["t3_c1"]]));
            program
                .ok(&format!("purge --author {given}"))
                .expect_stderr_all(&["posts=2", "purged=2", "--author"]);
            assert_eq!(posts(), json!([["t3_b1"], ["t3_c1"]]));
            assert_eq!(
                program.rows("SELECT fullname, reason FROM tombstones ORDER BY fullname"),
                json!([["t3_a1", "requested"], ["t3_a2", "requested"]])
            );
            import(&again);
            assert_eq!(posts(), json!([["t3_b1"], ["t3_c1"], ["t3_d1"]]));
        }
    }
    Program::new()
        .run("purge --author u/")
        .expect_exit(2, "--author");
}

/// Returns a `purge --check-deleted` command that uses this server and a database of one post.
fn checking(program: &Program, server: &MockServer) -> std::process::Command {
    let post = r#"{"id": "a1", "title": "A", "subreddit": "food", "created_utc": 1700000000}"#;
    let file = program.write("posts.ndjson", post);
    program.ok(&format!("import {file}"));
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

/// Asserts the status of the only purge.
fn expect_status(program: &Program, status: &str) {
    let found = program.scalar("SELECT status FROM runs WHERE stage = 'purge'");
    assert_eq!(found, status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reddit_error_purges_nothing_and_sets_the_exit_code() {
    for (answer, code, status) in table! {
        ResponseTemplate::new(401), 3, "failed";
        ResponseTemplate::new(429).insert_header("retry-after", "86400"), 75, "partial";
        ResponseTemplate::new(404), 1, "failed";
    } {
        let server = refusing(answer).await;
        let program = Program::new();
        let ran = finished(checking(&program, &server).output().unwrap());
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert_eq!(program.scalar("SELECT fullname FROM posts"), "t3_a1");
        expect_status(&program, status);
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
    until("the program sends a request", async || {
        assert_eq!(running.try_wait().unwrap(), None);
        crate::support::reddit::requests(&server, "GET").await > 0
    })
    .await;
    signal(&running, "-INT");
    assert_eq!(running.wait().unwrap().code(), Some(130));
    expect_status(&program, "stopped");
}

#[test]
fn a_wrong_clock_removes_no_text() {
    for program in Program::on_each_database() {
        program.ok("collect --source sample --topic gaming --limit 20");
        // A clock that is three years ahead of, or behind, the last use of the database.
        for day in ["2023-01-01", "2029-01-01"] {
            let began = format!("'{day}T00:00:00+00:00'");
            program.execute(&format!("UPDATE runs SET started_at = {began}"));
            if program.url().starts_with("sqlite") {
                program.run("purge --retention 1").expect_exit(2, day);
            }
            program.execute(&format!("DELETE FROM runs WHERE started_at <> {began}"));
        }
        let all = program.count("posts WHERE text_purged_at IS NULL");
        // A text that was stored by a clock in the future is due, and reported.
        program.execute(
            "UPDATE things SET collected_at = '2100-01-01T00:00:00+00:00' \
              WHERE fullname = (SELECT MIN(fullname) FROM posts)",
        );
        program
            .ok("purge --retention 48 --yes")
            .expect_stderr_all(&["posts=1", "texts=1"]);
        assert_eq!(program.count("posts WHERE text_purged_at IS NULL"), all - 1);
        // From then on, the clock is trusted, although the last run on a different day is far away.
        program.ok("purge --retention 48");
    }
}
