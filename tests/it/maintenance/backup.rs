//! Tests `db backup`: a complete copy, or none.

use std::process::Child;

use super::*;
use crate::support::postgres::{postgres, sqlite};

#[tokio::test]
async fn a_backup_is_complete_and_replaces_a_file_only_with_overwrite() {
    let database = sqlite();
    let url = database.url.as_str();
    filled(url).await;
    let before = read_all(url).await;
    let program = Program::new();
    let copy = program.write("copy", "the last one");
    let refused = on(&program, url, &["db", "backup", &copy]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert_eq!(std::fs::read(&copy).unwrap(), b"the last one");
    on_ok(&program, url, &["db", "backup", &copy, "--overwrite"]);
    assert_eq!(names(program.folder.path()), ["copy"]);
    let copied = format!("sqlite:{copy}");
    assert_eq!(read_all(&copied).await, before);
    on_ok(&program, &copied, &["db", "check"]);
}

#[tokio::test]
async fn a_postgres_backup_uses_pg_dump() {
    let Some(database) = postgres() else { return };
    let program = Program::new();
    on_ok(&program, &database.url, &["db", "create"]);
    on(&program, &database.url, &["db", "backup", "copy"]).expect_exit(2, "pg_dump");
}

#[tokio::test]
async fn no_output_overwrites_the_database() {
    let database = sqlite();
    let url = database.url.as_str();
    filled(url).await;
    let before = read_all(url).await;
    let program = Program::new();
    let file = url.strip_prefix("sqlite:").unwrap();
    let link = path(&program, "link");
    std::os::unix::fs::symlink(file, &link).unwrap();
    program.write("texts.ndjson", "{\"id\": 1, \"text\": \"hello\"}\n");
    for name in [file, &link] {
        for args in [
            &["db", "backup", name, "--overwrite"][..],
            &["export", name, "--format", "csv", "--overwrite"],
            &["report", name, "--overwrite"],
            &[
                "labels",
                "calibrate",
                "--gold",
                "gold.csv",
                "--out",
                name,
                "--overwrite",
            ],
            &["score", "texts.ndjson", name, "--overwrite"],
            &["classify", "--run-json", name],
            &["collect", "--source", "sample", "--run-json", name],
        ] {
            let ran = on(&program, url, args);
            assert_eq!(ran.code, 2, "{args:?}\n{}", ran.stderr);
            assert!(
                ran.stderr.contains("it is the database itself"),
                "{args:?}\n{}",
                ran.stderr
            );
        }
    }
    assert_eq!(read_all(url).await, before);
    // A path is also rejected if the database does not exist yet.
    let new = path(&program, "new.db");
    let args = ["collect", "--source", "sample", "--run-json", &new];
    let ran = on(&program, &format!("sqlite:{new}"), &args);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(!Path::new(&new).exists());
}

/// Starts a backup, sends it a signal once a file appears, and returns its output.
fn stopped(mut command: Command, signal: &str, begun: &Path) -> RunOutput {
    let mut running: Child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !begun.exists() && running.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    // The backup may already have ended.
    let pid = running.id().to_string();
    let _ = Command::new("kill").args([signal, &pid]).status().unwrap();
    finished(running.wait_with_output().unwrap())
}

#[tokio::test]
async fn a_stopped_or_killed_backup_leaves_no_partial_file() {
    let database = sqlite();
    let url = database.url.as_str();
    filled(url).await;
    many(url, 12_000).await;
    let mut met = 0;
    for (signal, code) in [("-INT", Some(130)), ("-TERM", Some(143)), ("-KILL", None)].repeat(3) {
        let program = Program::new();
        let copy = path(&program, "copy");
        let command = program.command(&["--database", url, "db", "backup", &copy]);
        let ran = stopped(command, signal, Path::new(&format!("{copy}.part")));
        // If the file exists, the copy was complete before the signal.
        if !Path::new(&copy).exists() {
            met += 1;
            if let Some(code) = code {
                ran.expect_exit(code, "the backup was stopped");
                assert!(names(program.folder.path()).is_empty());
            }
            on_ok(&program, url, &["db", "backup", &copy]);
        }
        assert_eq!(names(program.folder.path()), ["copy"]);
        on_ok(&program, &format!("sqlite:{copy}"), &["db", "check"]);
    }
    assert!(met >= 2, "only {met} signals found a backup in progress");
}

#[tokio::test]
async fn a_full_disk_fails_the_backup_and_leaves_no_file() {
    let database = sqlite();
    let url = database.url.as_str();
    filled(url).await;
    many(url, 2_000).await;
    let program = Program::new();
    let copy = path(&program, "copy");
    let full = run_on_small_disk(&program, 300, &["--database", url, "db", "backup", &copy]);
    assert!([1, 4].contains(&full.code), "{} {}", full.code, full.stderr);
    assert!(
        full.stderr.contains("disk") || full.stderr.contains("large"),
        "{}",
        full.stderr
    );
    assert!(names(program.folder.path()).is_empty());
}
