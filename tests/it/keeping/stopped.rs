//! `db backup` that a signal ends: no half of a copy stays, and no program that was to make one.

use std::os::unix::fs::PermissionsExt;
use std::process::Child;

use super::*;
use crate::support::postgres::{postgres, sqlite};

/// Starts a backup and sends it a signal once a file is there; how it ended.
fn stopped(mut command: Command, signal: &str, begun: &Path) -> Ran {
    let mut running: Child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !begun.exists() && running.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    // One that has ended meanwhile is not there to be told.
    let pid = running.id().to_string();
    let _ = Command::new("kill").args([signal, &pid]).status().unwrap();
    finished(running.wait_with_output().unwrap())
}

#[tokio::test]
async fn a_backup_that_a_signal_ends_leaves_nothing() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        many(url, 12_000).await;
        let mut met = 0;
        for n in 0..8 {
            let program = Program::new();
            let copy = path(&program, "copy");
            let (signal, code) = [("-INT", 130), ("-TERM", 143)][n % 2];
            let command = program.command(&["--database", url, "db", "backup", &copy]);
            let ran = stopped(command, signal, Path::new(&format!("{copy}.part")));
            // Or the copy was whole before the signal came.
            let left = names(program.folder.path());
            if left.is_empty() {
                assert_eq!(ran.code, code, "{url}: {}", ran.stderr);
                assert!(
                    ran.stderr.contains("the copy was stopped"),
                    "{}",
                    ran.stderr
                );
                met += 1;
                on_ok(&program, url, &["db", "backup", &copy]);
            }
            assert_eq!(names(program.folder.path()), ["copy"], "{url}: {left:?}");
        }
        assert!(met >= 2, "{url}: {met} signals met a backup");
    }
}

#[tokio::test]
async fn what_a_killed_backup_left_goes_with_the_next_one() {
    for database in databases() {
        filled(&database.url).await;
        let program = Program::new();
        for left in ["copy.part", "copy.part-journal", "copy.part.lock"] {
            program.write(left, "texts");
        }
        let copy = path(&program, "copy");
        on_ok(&program, &database.url, &["db", "backup", &copy]);
        assert_eq!(names(program.folder.path()), ["copy"]);
    }
}

#[tokio::test]
async fn a_pg_dump_that_says_nothing_is_ended_with_the_backup() {
    let Some(database) = postgres() else { return };
    filled(&database.url).await;
    let store = Store::open(&database.url, Access::ReadOnly).await.unwrap();
    let version = store.server_state().await.unwrap().unwrap().version;
    store.close().await.unwrap();
    let program = Program::new();
    let tools = program.folder.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let pid = tools.join("pid");
    let (tool, noted) = (tools.join("pg_dump"), pid.display());
    // The number stands there whole: whoever sees the file may read it.
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'pg_dump (PostgreSQL) {version}.1'; exit; fi\n\
         echo half\necho $$ > {noted}.new\nmv {noted}.new {noted}\nexec sleep 600\n"
    );
    std::fs::write(&tool, script).unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = path(&program, "copy");
    let mut command = program.command(&["--database", &database.url, "db", "backup", &copy]);
    let usual = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{usual}", tools.display()));
    let ran = stopped(command, "-TERM", &pid);
    assert_eq!(ran.code, 143, "{}", ran.stderr);
    assert_eq!(names(program.folder.path()), ["tools"]);
    let pid = std::fs::read_to_string(&pid).unwrap();
    let asked = Command::new("kill").args(["-0", pid.trim()]).output();
    assert!(!asked.unwrap().status.success(), "it still runs");
}

#[tokio::test]
async fn a_restore_that_a_signal_ends_leaves_no_copy_of_the_backup() {
    let database = sqlite();
    filled(&database.url).await;
    many(&database.url, 12_000).await;
    let program = Program::new();
    let copy = path(&program, "copy");
    on_ok(&program, &database.url, &["db", "backup", &copy]);
    let mut met = 0;
    for n in 0..8 {
        let target = path(&program, &format!("target{n}"));
        let url = format!("sqlite:{target}");
        let command = program.command(&["--database", &url, "db", "restore", &copy]);
        let draft = format!("{target}.restored");
        let ran = stopped(command, "-TERM", Path::new(&draft));
        assert!(!Path::new(&draft).exists(), "{}", ran.stderr);
        if !Path::new(&target).exists() {
            assert_eq!(ran.code, 143, "{}", ran.stderr);
            met += 1;
        }
    }
    assert!(met > 0, "no signal met a restore");
}
