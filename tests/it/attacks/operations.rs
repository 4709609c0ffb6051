//! Failures in operation: damaged files, commits and stages that fail, lost output, and lost databases.

use std::process::Child;
use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, Executor, SqliteConnection};
use tokio_util::sync::CancellationToken;
use topicmill::cli::Exit;
use topicmill::pipeline::Context;
use topicmill_core::RunStatus;
use topicmill_core::clock::SystemClock;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::collect::topic;
use crate::doctor::doctor;
use crate::signals::has_open;
use crate::support::builders::lines;
use crate::support::postgres::{TestDatabase, databases, postgres, sqlite};
use crate::support::program::{Program, finished, on_reddit, run_limited};
use crate::support::proxy::Proxy;
use crate::support::reddit;
use crate::support::scene::READ_OPTIONS;

#[tokio::test]
async fn a_run_without_a_token_requests_no_listing() {
    for (status, code, asked) in [(503, 75, 2), (401, 3, 1), (403, 3, 1), (404, 3, 1)] {
        let server = MockServer::start().await;
        Mock::given(method("POST"))
            .respond_with(ResponseTemplate::new(status))
            .mount(&server)
            .await;
        let program = Program::new();
        let mut command = program.command("collect --run-json run.json");
        let ran = on_reddit(&mut command, &server.uri())
            .env("TOPICMILL__REDDIT__API_URL", server.uri())
            .env("TOPICMILL__REDDIT__TRIES", "2");
        let ran = finished(ran.output().unwrap());
        let record = program.read_json("run.json");
        assert_eq!(ran.code, code, "{status}: {}", ran.stderr);
        assert_eq!(reddit::requests(&server, "POST").await, asked, "{status}");
        assert_eq!(reddit::requests(&server, "GET").await, 0);
        let status = if code == 75 { "partial" } else { "failed" };
        assert_eq!(record["status"], status);
        let error = record["error"].as_str().unwrap();
        assert!(error.contains("token"), "{error}");
        ran.expect_stderr(error);
    }
}

#[test]
fn a_damaged_file_is_reported_as_damaged_not_missing() {
    let program = Program::new();
    program.ok("--database sqlite:whole.db db create");
    let whole = std::fs::read(program.path("whole.db")).unwrap();
    program.write(
        "foreign.db",
        "id,title\na,This is a table of a different kind.\n".repeat(99),
    );
    program.write("stump.db", &whole[..100]);
    program.write("cut.db", &whole[..whole.len() / 2]);
    let mut overwritten = whole;
    overwritten[100..8_000].fill(0xa5);
    program.write("overwritten.db", overwritten);
    for name in ["foreign.db", "stump.db", "cut.db", "overwritten.db"] {
        let database = format!("--database sqlite:{name}");
        for command in ["status", "collect --source sample", "db info"] {
            let ran = program.run(&format!("{database} {command}"));
            ran.expect_exit(4, "damaged");
            ran.expect_stderr("integrity_check");
            assert!(!ran.stderr.contains("no such file"), "{}", ran.stderr);
        }
        let (code, row) = doctor(&program, &format!("{database} --source sample"), "database");
        assert_eq!((code, &row["state"]), (4, &json!("wrong")), "{name} {row}");
    }
    program
        .run("--database sqlite:gone.db status")
        .expect_exit(4, "no such file");
}

#[test]
fn a_database_in_a_settings_file_is_in_its_folder() {
    let program = Program::new();
    let there = program.path("there");
    std::fs::create_dir(&there).unwrap();
    let here = program.folder.path().to_owned();
    for (folder, flags) in [(&there, "--config there/topicmill.toml"), (&here, "")] {
        let settings = "[database]\nurl = \"sqlite:data.db\"\n";
        std::fs::write(folder.join("topicmill.toml"), settings).unwrap();
        program.ok(&format!("{flags} db create"));
        assert!(folder.join("data.db").is_file());
        std::fs::remove_file(folder.join("data.db")).unwrap();
        // A flag is relative to the working directory.
        program.ok(&format!("{flags} --database sqlite:flag.db db create"));
        assert!(here.join("flag.db").is_file());
        std::fs::remove_file(folder.join("topicmill.toml")).unwrap();
    }
}

#[test]
fn a_run_whose_commit_fails_is_an_error() {
    let program = Program::new().imported(3);
    // The trigger violates a constraint that is checked by the commit, after the statement has returned its row.
    program.execute(
        "CREATE TABLE disk (id INTEGER PRIMARY KEY); \
         CREATE TABLE full (id INTEGER REFERENCES disk (id) DEFERRABLE INITIALLY DEFERRED); \
         CREATE TRIGGER no_commit AFTER INSERT ON runs BEGIN INSERT INTO full VALUES (1); END",
    );
    program
        .run("purge --retention 24")
        .expect_exit(4, "record the run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_that_panics_is_recorded_as_failed() {
    for database in databases() {
        let clock = topicmill_core::clock::ManualClock::at(chrono::DateTime::UNIX_EPOCH);
        let store = database.open().await;
        let server = reddit::server().await;
        reddit::mount_listing(&server, reddit::page(&["a"]), 9).await;
        let (source, _) = reddit::client(&server.uri());
        let source = std::sync::Arc::into_inner(source).unwrap();
        let stop = CancellationToken::new();
        let context = Context::new(store.clone(), clock, stop, "w".into());
        let ended = tokio::spawn(async move {
            let topics = [topic("food", &["food"], 5)];
            let panics = |_| panic!("on purpose");
            let collected = context.collect(&source, &topics, READ_OPTIONS, false, &panics);
            drop(collected.await);
        });
        assert!(ended.await.unwrap_err().is_panic());
        let run = store.runs().recent_runs(None, 1).await.unwrap().remove(0);
        assert_eq!(run.status, RunStatus::Failed);
        let error = run.error.unwrap();
        assert!(error.contains("panicked"), "{error}");
        assert_eq!(run.counts["posts"], 1, "the run records its counts");
    }
}

/// A pipeline with a schedule that is due each minute.
const MINUTELY: &str = "name = \"s\"\nlabels = [\"food\", \"games\"]\n\n\
    [[schedule]]\nname = \"n\"\ncron = \"* * * * *\"\nstages = [\"purge --retention 2\"]\n";

/// Commands that print to stdout.
const PRINTING: [&str; 12] = [
    "sql 'SELECT 1'",
    "sql --schema",
    "status",
    "db info",
    "db check",
    "config show",
    "completions bash",
    "help",
    "--version",
    "model list",
    "labels validate",
    "schedule list --pipeline s.toml",
];

/// Commands that print nothing to stdout.
const WRITING: [&str; 6] = [
    "db backup backup.db",
    "report out.html",
    "labels new my.toml food games",
    "import more.ndjson",
    "purge --ids ids.txt",
    "collect --source sample --limit 3",
];

#[test]
fn a_command_whose_output_is_lost_does_not_succeed() {
    let program = Program::new().imported(5);
    program.write("more.ndjson", lines(20, 20));
    program.write("ids.txt", "t3_k00001\n");
    program.write("s.toml", MINUTELY);
    let files = || {
        let mut files = program.files();
        // The shell writes `full.txt`, and SQLite the files next to the database.
        files.retain(|name| name != "full.txt" && !name.starts_with("topicmill.db-"));
        files
    };
    let before = files();
    let code_without_output = |line: &str, shell: &str| {
        let ran = run_limited(&program.command(line), shell);
        assert!(ran.code > 0, "{shell}: {line}: {} {}", ran.code, ran.stderr);
        assert_ne!(ran.code, i32::from(Exit::Bug.code()), "{}", ran.stderr);
        ran.code
    };
    for line in PRINTING.iter().chain(&WRITING) {
        code_without_output(line, "ulimit -f 0 && exec >full.txt");
        code_without_output(line, "ulimit -f 0 && exec >/dev/full 2>/dev/full");
    }
    for line in PRINTING {
        // The writer of the pipe starts after its reader has ended.
        let code = code_without_output(line, "exec > >(exec true) && wait $!");
        assert_eq!(code, 141, "{line}");
    }
    assert_eq!(files(), before);
}

/// Commands that use the database from their start to their end.
const MIDWAY: [&str; 12] = [
    "sql --named topics",
    "export out.csv --overwrite",
    "report out.html --overwrite",
    "status",
    "db check",
    "import more.ndjson",
    "purge --ids ids.txt",
    "purge --retention 1",
    "collect --source sample --limit 3",
    "classify --pipeline first.toml",
    "run --source sample --limit 3",
    "schedule run --once --pipeline s.toml",
];

/// Returns once a command has exited, or earlier if `is_reached`; returns true in that case.
async fn reaches(child: &mut Child, is_reached: impl Fn(&Child) -> bool) -> bool {
    while child.try_wait().unwrap().is_none() {
        if is_reached(child) {
            return true;
        }
        SystemClock::shared()
            .sleep(Duration::from_micros(200))
            .await;
    }
    false
}

/// Imports and labels posts, and writes the files that the commands of [`MIDWAY`] read.
fn with_files(database: TestDatabase) -> Program {
    let program = Program::on(database).labelled(6);
    program.write("more.ndjson", lines(20, 20));
    program.write("ids.txt", "t3_k00001\n");
    program.write("s.toml", MINUTELY);
    program
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_sqlite_file_is_moved_or_replaced_midway_does_not_succeed() {
    let program = with_files(sqlite());
    let url = program.url();
    let file = url.strip_prefix("sqlite:").unwrap();
    let old = program.path("old");
    for (line, is_replaced) in MIDWAY.iter().flat_map(|line| [(line, false), (line, true)]) {
        program.execute("DELETE FROM scheduled_runs");
        // The command opens the file and waits for this lock.
        let mut holder = SqliteConnection::connect(&url).await.unwrap();
        let lock = "PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; COMMIT";
        holder.execute(lock).await.unwrap();
        let mut child = program.spawn(*line);
        let is_waiting = reaches(&mut child, |child| has_open(child, file)).await;
        assert!(is_waiting, "{line}");
        std::fs::rename(file, &old).unwrap();
        if is_replaced {
            std::fs::copy(&old, file).unwrap();
        }
        holder.close().await.unwrap();
        let ran = finished(child.wait_with_output().unwrap());
        assert_eq!(ran.code, 4, "{line}: {}", ran.stderr);
        if is_replaced {
            ran.expect_stderr("since this command began");
        }
        std::fs::rename(&old, file).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_loses_its_connections_to_postgres_midway_does_not_succeed() {
    let Some(database) = postgres() else { return };
    let program = with_files(database);
    let url = program.url();
    let proxy = Proxy::in_front_of(&url).await;
    let through = Program::with_database(&proxy.url(&url));
    for name in ["more.ndjson", "ids.txt", "s.toml", "first.toml"] {
        through.write(name, program.read(name));
    }
    // Returns true if the command reached this statement and lost its connections there.
    let loses_at = async |line: &str, statement: usize| {
        program.execute("DELETE FROM scheduled_runs");
        proxy.gate.pause_after(statement);
        let mut child = through.spawn(line);
        let is_lost = reaches(&mut child, |_| proxy.gate.paused_statement().is_some()).await;
        if is_lost {
            proxy.cut();
        }
        proxy.gate.resume();
        let ran = finished(child.wait_with_output().unwrap());
        proxy.restore();
        let code = if is_lost { 4 } else { 0 };
        assert_eq!(ran.code, code, "{line}, {statement}: {}", ran.stderr);
        is_lost
    };
    for line in MIDWAY {
        if line.starts_with("schedule") {
            // A scheduled run waits a minute for its database, so it loses it only once.
            assert!(loses_at(line, 16).await);
            continue;
        }
        let mut losses = 0;
        while loses_at(line, 1 << losses).await {
            losses += 1;
        }
        // Each command runs more than eight statements.
        assert!(losses > 3, "{line}: {losses}");
    }
}
