//! Tests `purge` through the program: its flags and record, Reddit errors, interruption, and a wrong clock.

use std::process::{Command, Stdio};

use topicmill_core::table;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::*;
use crate::support::postgres::postgres;
use crate::support::program::{Program, finished, on_reddit, signal};
use crate::support::reddit::{requests, server};
use crate::support::wait::until;

/// Stores posts of the built-in sample.
const COLLECT_SAMPLE: &str = "collect --source sample --topic gaming --limit 20";

#[test]
fn posts_that_a_file_lists_are_purged_each_for_its_reason() {
    let program = Program::new();
    program.ok(COLLECT_SAMPLE);
    let before = program.count("posts");
    let first = program.scalar("SELECT MIN(fullname) FROM posts");
    let first = first.as_str().unwrap().trim_start_matches("t3_");
    program.write(
        "ids.txt",
        format!("Post_ID,reason\n\nhttps://www.reddit.com/r/gaming/comments/{first}/x/\nt3_unknown1,removed\n"),
    );
    let counts = program.run_counts("purge --ids ids.txt");
    assert_eq!([&counts["requested"], &counts["purged"]], [2, 1]);
    assert_eq!(program.count("posts"), before - 1);
    let reasons = program.column("SELECT reason FROM tombstones ORDER BY reason");
    assert_eq!(reasons, ["removed", "requested"]);
}

#[test]
fn a_check_is_recorded_as_a_run_and_in_the_backlog() {
    let program = Program::new();
    program.ok(COLLECT_SAMPLE);
    program.ok("purge --check-deleted --source sample --max-requests 5");
    let status = program.json("status");
    assert!(status["backlog"]["reconciled_at"].is_string(), "{status:#}");
    assert_eq!(status["runs"][0]["stage"], "purge");
}

#[test]
fn a_mistaken_purge_is_rejected_with_the_flag_or_line_to_correct() {
    let program = Program::new();
    program.ok("db create");
    program.write("ids.txt", "abc\n");
    program.write("bad.txt", "abc\nt2_user\n");
    program.write("odd.txt", "abc,because\n");
    for (line, code, message) in table! {
        "purge", 2, "--check-deleted";
        "purge --max-requests 3 --ids ids.txt", 2, "--check-deleted";
        "purge --retention", 2, "retention.hours";
        "purge --author u/", 2, "--author";
        "purge --ids missing.txt", 2, "missing.txt";
        "purge --ids bad.txt", 2, "line 2";
        "purge --ids odd.txt", 2, "line 1";
        "purge --check-deleted --source reddit", 3, "client_id";
        "purge --check-deleted --source import", 2, "--source";
        "--database sqlite:none.db purge --ids ids.txt", 4, "db create";
    } {
        program.run(line).expect_exit(code, message);
    }
}

#[test]
fn a_purge_by_author_deletes_exactly_that_authors_posts_for_good() {
    let post = |id: &str, author: &str| {
        let created = 1_700_000_000;
        json!({"id": id, "title": id, "subreddit": "food", "created_utc": created, "author": author})
            .to_string()
    };
    let [a1, a2, b1] = [post("a1", "One"), post("a2", "One"), post("b1", "Two")];
    let known = [&*a1, &a2, &b1, &post("c1", "[deleted]")].join("\n");
    // A different first line, so that this file does not count as imported.
    let again = [&*post("d1", "Two"), &a1, &a2, &b1].join("\n");
    for (store_author, author) in [("false", "u/ONE"), ("true", "/u/one")] {
        for program in Program::on_each_database() {
            let import = |lines: &str| {
                program.write("posts.ndjson", lines);
                let set = [("collect.store_author", store_author)];
                program.run_with(&set, "import posts.ndjson").expect_code(0);
            };
            let posts = || program.column("SELECT fullname FROM posts ORDER BY fullname");
            import(&known);
            program
                .ok("purge --author nobody")
                .expect_stderr("`nobody`");
            assert_eq!(posts(), ["t3_a1", "t3_a2", "t3_b1", "t3_c1"]);
            program
                .ok(&format!("purge --author {author}"))
                .expect_stderr_all(&["posts=2", "purged=2", "--author"]);
            assert_eq!(posts(), ["t3_b1", "t3_c1"]);
            let requested =
                "SELECT fullname FROM tombstones WHERE reason = 'requested' ORDER BY fullname";
            assert_eq!(program.column(requested), ["t3_a1", "t3_a2"]);
            assert_eq!(program.count("tombstones"), 2);
            import(&again);
            assert_eq!(posts(), ["t3_b1", "t3_c1", "t3_d1"]);
        }
    }
}

/// Returns a `purge --check-deleted` command that uses this server and a database of one post.
fn check_deleted(program: &Program, server: &MockServer) -> Command {
    program.import(r#"{"id": "a1", "title": "A", "subreddit": "food", "created_utc": 1700000000}"#);
    let mut command = program.command("purge --check-deleted");
    on_reddit(&mut command, &server.uri());
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
        let ran = finished(check_deleted(&program, &server).output().unwrap());
        ran.expect_code(code);
        assert_eq!(program.scalar("SELECT fullname FROM posts"), "t3_a1");
        expect_status(&program, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_purge_stops_immediately_and_is_recorded() {
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_mins(10));
    let server = refusing(slow).await;
    let program = Program::new();
    let mut running = check_deleted(&program, &server)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the program sends a request", async || {
        assert_eq!(running.try_wait().unwrap(), None);
        requests(&server, "GET").await > 0
    })
    .await;
    signal(&running, "-INT");
    assert_eq!(running.wait().unwrap().code(), Some(130));
    expect_status(&program, "stopped");
}

/// Moves all runs to a day three years before or after this one, so that the machine's clock seems wrong.
fn run_last_on(program: &Program, day: &str) {
    program.execute(&format!(
        "UPDATE runs SET started_at = '{day}T00:00:00+00:00'"
    ));
}

/// Makes all texts older than any retention.
fn age_texts(program: &Program) {
    program.execute("UPDATE things SET collected_at = '2020-01-01T00:00:00+00:00'");
}

#[test]
fn a_wrong_clock_removes_no_text() {
    let program = Program::new();
    program.ok(COLLECT_SAMPLE);
    age_texts(&program);
    for day in ["2023-01-01", "2029-01-01"] {
        run_last_on(&program, day);
        program.run("purge --retention 1").expect_exit(2, day);
        assert_eq!(program.count("posts WHERE text_purged_at IS NOT NULL"), 0);
    }
}

#[test]
fn postgres_uses_the_clock_of_its_server() {
    let Some(database) = postgres() else { return };
    let program = Program::on(database);
    program.ok(COLLECT_SAMPLE);
    age_texts(&program);
    run_last_on(&program, "2029-01-01");
    program.ok("purge --retention 1");
    assert_eq!(program.count("posts WHERE text_purged_at IS NULL"), 0);
}

#[test]
fn a_clock_that_the_user_trusts_is_not_rejected_again() {
    let program = Program::new();
    program.ok(COLLECT_SAMPLE);
    run_last_on(&program, "2029-01-01");
    program
        .run("purge --retention 48")
        .expect_exit(2, "2029-01-01");
    program.ok("purge --retention 48 --yes");
    program.ok("purge --retention 48");
}

#[test]
fn a_text_stored_by_a_clock_in_the_future_is_due_and_reported() {
    for program in Program::on_each_database() {
        program.ok(COLLECT_SAMPLE);
        let all = program.count("posts WHERE text_purged_at IS NULL");
        program.execute(
            "UPDATE things SET collected_at = '2100-01-01T00:00:00+00:00' \
              WHERE fullname = (SELECT MIN(fullname) FROM posts)",
        );
        program
            .ok("purge --retention 48")
            .expect_stderr_all(&["posts=1", "texts=1"]);
        assert_eq!(program.count("posts WHERE text_purged_at IS NULL"), all - 1);
    }
}
