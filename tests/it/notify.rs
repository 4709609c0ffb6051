//! Tests that the `[notify]` command runs once when a run fails and once when it recovers, without affecting the run.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use topicmill_core::clock::SystemClock;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::postgres::{TestDatabase, sqlite};
use crate::support::program::{Program, RunOutput, finished, on_reddit};
use crate::support::reddit::{page, server};

const ONE_TOPIC: &str = "name = \"one\"\n[[topic]]\nslug = \"climate\"\nlabel = \"climate change\"\n\
    subreddits = [\"climate\"]\n";

/// Returns a command that appends each object it reads to a file.
fn appending_command(program: &Program) -> (String, PathBuf) {
    let received = program.folder.path().join("received.ndjson");
    let command = json!(["sh", "-c", "cat >> \"$0\"", received]);
    (command.to_string(), received)
}

fn read(received: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(received).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Collects one topic from a fake Reddit, with this notification command.
fn collect(program: &Program, database: &TestDatabase, reddit: &str, command: &str) -> RunOutput {
    let pipeline = program.write("one.toml", ONE_TOPIC);
    let args = [
        "--database",
        &database.url,
        "collect",
        "--pipeline",
        &pipeline,
    ];
    let mut collect = program.command(&args);
    on_reddit(&mut collect, reddit)
        .env("TOPICMILL__REDDIT__TRIES", "1")
        .env("TOPICMILL__NOTIFY__COMMAND", command);
    finished(collect.output().unwrap())
}

async fn reddit_with_posts() -> MockServer {
    let server = server().await;
    for listing in ["/r/climate/hot", "/r/climate/new"] {
        Mock::given(path(listing))
            .respond_with(page(&["a1", "a2"]))
            .mount(&server)
            .await;
    }
    server
}

/// Rejects the credentials.
async fn reddit_that_rejects() -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(401))
        .mount(&server)
        .await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_and_a_recovery_are_each_notified_once() {
    let (good, bad) = (reddit_with_posts().await, reddit_that_rejects().await);
    let (program, database) = (Program::new(), sqlite());
    let (command, output) = appending_command(&program);
    // A repeated success or failure is not notified.
    for (reddit, code, events) in [
        (&good, 0, &[][..]),
        (&bad, 3, &["failed"]),
        (&bad, 3, &["failed"]),
        (&good, 0, &["failed", "recovered"]),
        (&good, 0, &["failed", "recovered"]),
    ] {
        let ran = collect(&program, &database, &reddit.uri(), &command);
        assert_eq!(ran.code, code, "{}", ran.stderr);
        let output = read(&output);
        let output: Vec<&Value> = output.iter().map(|one| &one["event"]).collect();
        assert_eq!(output, events);
    }
    let failed = &read(&output)[0];
    assert_eq!(
        (&failed["what"], &failed["run"], &failed["status"]),
        (&json!("collect"), &json!(2), &json!("failed")),
        "{failed}"
    );
    let text = failed["text"].as_str().unwrap();
    assert!(
        text.starts_with("topicmill: collect failed (run 2 by ")
            && text.ends_with(failed["error"].as_str().unwrap()),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_notification_is_a_warning_and_is_retried_by_the_next_run() {
    let bad = reddit_that_rejects().await;
    let (program, database) = (Program::new(), sqlite());
    let (command, output) = appending_command(&program);
    for (broken, message) in [
        (
            "[\"no-such-program\", \"s3cret\"]",
            "start `no-such-program` of `notify.command`",
        ),
        (
            "[\"false\", \"s3cret\"]",
            "`false` of `notify.command` ended with exit status: 1",
        ),
    ] {
        let ran = collect(&program, &database, &bad.uri(), broken);
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        for message in [message, "the next run retries"] {
            ran.expect_stderr(message);
        }
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    }
    collect(&program, &database, &bad.uri(), &command);
    let output = read(&output);
    assert_eq!((output.len(), &output[0]["run"]), (1, &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_command_is_killed_and_does_not_delay_the_run() {
    let bad = reddit_that_rejects().await;
    let (program, database) = (Program::new(), sqlite());
    let pids = program.folder.path().join("pids");
    let command = json!(["sh", "-c", "sleep 600 & echo $! > \"$0\"; wait", pids]).to_string();
    let clock = SystemClock::shared();
    let ran = collect(&program, &database, &bad.uri(), &command);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let message = "took longer than 5 s and was killed";
    ran.expect_stderr(message);
    assert!(clock.elapsed().as_secs() < 30);
    let sql = "SELECT status FROM runs";
    let runs = program.ok(&["--database", &database.url, "sql", sql, "--format", "csv"]);
    assert_eq!(runs.stdout.lines().last(), Some("failed"));
    // Its child process is gone, too.
    let pid = std::fs::read_to_string(pids).unwrap();
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[test]
fn a_setting_without_a_program_is_rejected() {
    let program = Program::new();
    for (value, message) in [
        ("[\"a\", 1]", "expected a list of strings"),
        ("[\"\"]", "has an empty program name"),
    ] {
        let mut command = program.command(&["config", "show"]);
        command.env("TOPICMILL__NOTIFY__COMMAND", value);
        let ran = finished(command.output().unwrap());
        ran.expect_exit(2, message);
    }
}

#[cfg(unix)]
#[test]
fn a_settings_file_writable_by_others_cannot_name_a_program() {
    use std::os::unix::fs::PermissionsExt;
    let program = Program::new();
    program.write("topicmill.toml", "[notify]\ncommand = [\"evil\"]\n");
    let file = program.folder.path().join("topicmill.toml");
    assert_eq!(program.run(&["config", "show"]).code, 0);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    program
        .run(&["config", "show"])
        .expect_exit(2, "refusing `notify.command` from");
    assert_eq!(
        program
            .run(&["--config", "topicmill.toml", "config", "show"])
            .code,
        0
    );
    std::fs::write(&file, "[notify]\ncommand = []\n").unwrap();
    assert_eq!(program.run(&["config", "show"]).code, 0);
}
