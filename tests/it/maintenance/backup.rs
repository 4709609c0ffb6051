//! Tests `db backup`: a complete copy, or none.

use std::process::Command;

use super::*;
use crate::support::postgres::{postgres, sqlite};
use crate::support::program::finished;
use crate::support::wait::until_blocking;

/// Returns a program on a SQLite database with rows in every table and this many more posts.
async fn program_on(posts: u32) -> Program {
    let program = Program::on(sqlite());
    filled(&program.url()).await;
    many(&program.url(), posts).await;
    program
}

#[tokio::test]
async fn a_backup_is_complete_and_replaces_a_file_only_with_overwrite() {
    let program = program_on(0).await;
    let before = read_all(&program.url()).await;
    program.write("copy", "the last one");
    program
        .run("db backup copy")
        .expect_exit(2, "add --overwrite");
    assert_eq!(program.read("copy"), "the last one");
    program.ok("db backup copy --overwrite");
    assert_eq!(program.files(), ["copy"]);
    let copied = program_on_copy(&program);
    assert_eq!(read_all(&copied.url()).await, before);
    copied.ok("db check");
}

/// Returns a program on the file `copy` in another program's folder.
fn program_on_copy(program: &Program) -> Program {
    Program::with_database(&format!("sqlite:{}", program.path("copy").display()))
}

#[test]
fn a_postgres_backup_uses_pg_dump() {
    let Some(database) = postgres() else { return };
    let program = Program::on(database);
    program.ok("db create");
    program.run("db backup copy").expect_exit(2, "pg_dump");
}

#[tokio::test]
async fn no_output_overwrites_the_database() {
    let program = program_on(0).await;
    let url = program.url();
    let before = read_all(&url).await;
    let file = url.strip_prefix("sqlite:").unwrap();
    std::os::unix::fs::symlink(file, program.path("link")).unwrap();
    program.write("texts.ndjson", "{\"id\": 1, \"text\": \"hello\"}\n");
    for name in [file, "link"] {
        for line in [
            "db backup NAME --overwrite",
            "export NAME --format csv --overwrite",
            "report NAME --overwrite",
            "labels calibrate --gold gold.csv --out NAME --overwrite",
            "score texts.ndjson NAME --overwrite",
            "classify --run-json NAME",
            "collect --source sample --run-json NAME",
        ] {
            let ran = program.run(&line.replace("NAME", name));
            ran.expect_exit(2, "it is the database itself");
        }
    }
    assert_eq!(read_all(&url).await, before);
    // A path is also rejected if the database does not exist yet.
    let new = Program::new();
    let line = "--database sqlite:new.db collect --source sample --run-json new.db";
    new.run(line).expect_exit(2, "it is the database itself");
    assert!(!new.path("new.db").exists());
}

#[tokio::test]
async fn no_output_overwrites_another_database_or_a_draft_or_the_input() {
    let program = program_on(0).await;
    program.write("texts.ndjson", "{\"id\": 1, \"text\": \"hello\"}\n");
    program.ok("db backup other.part");
    let draft = Program::with_database(&format!("sqlite:{}", program.path("other.part").display()));
    draft.ok(&format!("db backup {}", program.path("other").display()));
    let other = std::fs::read(program.path("other.part")).unwrap();
    for line in [
        "export other.part --format csv --overwrite",
        "report other.part --overwrite",
        "score texts.ndjson other.part --overwrite",
        "import texts.ndjson --run-json other.part",
        "import texts.ndjson --run-json texts.ndjson",
    ] {
        program.run(line).expect_exit(2, "cannot write");
    }
    assert_eq!(std::fs::read(program.path("other.part")).unwrap(), other);
}

/// Starts a backup, sends it a signal once a file appears, and returns its output.
fn stopped(program: &Program, signal: &str) -> RunOutput {
    let mut running = program.spawn("db backup copy");
    until_blocking("the backup has begun or ended", || {
        !program.files().is_empty() || running.try_wait().unwrap().is_some()
    });
    // The backup may already have ended.
    let pid = running.id().to_string();
    let _ = Command::new("kill").args([signal, &pid]).status().unwrap();
    finished(running.wait_with_output().unwrap())
}

#[tokio::test]
async fn a_stopped_or_killed_backup_leaves_no_partial_file() {
    let source = program_on(12_000).await;
    let mut met = 0;
    for (signal, code) in [("-INT", Some(130)), ("-TERM", Some(143)), ("-KILL", None)].repeat(3) {
        let program = Program::with_database(&source.url());
        let ran = stopped(&program, signal);
        // If the file exists, the copy was complete before the signal.
        if !program.path("copy").exists() {
            met += 1;
            if let Some(code) = code {
                ran.expect_exit(code, "the backup was stopped");
                assert_eq!(program.files(), [""; 0]);
            }
            program.ok("db backup copy");
        }
        let files = program.files().into_iter();
        let drafts = files.filter(|name| name.ends_with(".partial"));
        assert_eq!(drafts.count(), usize::from(ran.code == -9));
        program_on_copy(&program).ok("db check");
    }
    assert!(met >= 2, "only {met} signals found a backup in progress");
}

#[tokio::test]
async fn a_full_disk_fails_the_backup_and_leaves_no_file() {
    let program = program_on(2_000).await;
    let full = run_on_small_disk(&program, 300, "db backup copy");
    assert!([1, 4].contains(&full.code), "{} {}", full.code, full.stderr);
    let is_named = full.stderr.contains("disk") || full.stderr.contains("large");
    assert!(is_named, "{}", full.stderr);
    assert_eq!(program.files(), [""; 0]);
}
