//! Tests a signal while another program holds a lock: the command exits soon and stores nothing from its current step.
//! When it is run again once the lock is free, it completes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, Executor, PgConnection, SqliteConnection};
use tokio_util::sync::CancellationToken;
use topicmill_core::clock::SystemClock;
use topicmill_store::{Access, Store, is_cancelled};

use crate::support::builders::lines;
use crate::support::postgres::postgres;
use crate::support::program::{Program, RunOutput, finished, signal};
use crate::support::wait::{BLOCKED, sessions, until, until_blocking};

/// Another program's connection, which locks the `posts` table on PostgreSQL and blocks all writes on SQLite.
enum Holder {
    Server(PgConnection),
    File(SqliteConnection),
}

impl Holder {
    async fn of(url: &str) -> Self {
        if url.starts_with("sqlite:") {
            let mut connection = SqliteConnection::connect(url).await.unwrap();
            connection.execute("BEGIN IMMEDIATE").await.unwrap();
            return Self::File(connection);
        }
        let mut connection = PgConnection::connect(url).await.unwrap();
        connection
            .execute("BEGIN; LOCK TABLE things IN ACCESS EXCLUSIVE MODE")
            .await
            .unwrap();
        Self::Server(connection)
    }

    /// Returns the process that holds the lock.
    async fn pid(&mut self) -> i64 {
        match self {
            Self::Server(connection) => sqlx::query_scalar("SELECT pg_backend_pid()::bigint")
                .fetch_one(connection)
                .await
                .unwrap(),
            Self::File(_) => std::process::id().into(),
        }
    }

    async fn resume(self) {
        match self {
            Self::Server(mut connection) => {
                connection.execute("ROLLBACK").await.unwrap();
                connection.close().await.unwrap();
            }
            Self::File(mut connection) => {
                connection.execute("ROLLBACK").await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }
}

/// Returns true if a process has a file open, which happens after its signal handlers are installed.
pub fn has_open(child: &Child, file: &str) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{}/fd", child.id())) else {
        return false;
    };
    let mut open = open.filter_map(Result::ok);
    open.any(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == Path::new(file)))
}

/// Returns once a program is waiting for the lock, as far as the database shows it.
async fn wait_until_blocked(child: &mut Child, url: &str) {
    let file = url.strip_prefix("sqlite:");
    until("the command is waiting for the lock", async || {
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "the command ended without waiting");
        match file {
            Some(file) => has_open(child, file) || !Path::new("/proc/self/fd").exists(),
            None => sessions(url, BLOCKED).await > 0,
        }
    })
    .await;
    if file.is_some() {
        // SQLite does not report waiters. A program that reaches the lock only after the signal stops there as well.
        SystemClock::shared().sleep(Duration::from_secs(1)).await;
    }
}

/// Runs a command, sends it one signal while it is waiting for the lock, and returns its output.
async fn stopped(mut command: Command, signal: &str, url: &str) -> RunOutput {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_blocked(&mut child, url).await;
    let pid = child.id().to_string();
    let kill = |signal: &str| Command::new("kill").args([signal, &pid]).status().unwrap();
    assert!(kill(signal).success());
    let ended = tokio::task::spawn_blocking(move || finished(child.wait_with_output().unwrap()));
    let Ok(ran) = tokio::time::timeout(Duration::from_mins(1), ended).await else {
        kill("-KILL");
        panic!("{:?} is still waiting after {signal}", command.get_args());
    };
    ran.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_signal_cancels_a_command_that_is_waiting_for_a_lock_and_stores_nothing() {
    for program in Program::on_each_database() {
        let url = program.url();
        let is_file = url.starts_with("sqlite:");
        let posts = lines(50, 50);
        let (first, more) = posts.split_at(lines(40, 40).len());
        program.import(first);
        program.write("more.ndjson", more);
        program.write("ids.txt", "t3_k00001\n");
        program.ok("classify --limit 8");
        for (command, signal, code) in [
            ("import more.ndjson", "-INT", 130),
            ("collect --source sample", "-TERM", 143),
            ("classify", "-INT", 130),
            ("purge --ids ids.txt", "-TERM", 143),
            ("export posts.csv", "-INT", 130),
            ("report r.html", "-TERM", 143),
            ("sql --named topics", "-INT", 130),
            ("status", "-TERM", 143),
            ("db check", "-TERM", 143),
        ] {
            // SQLite readers do not wait for a writer.
            let reads = ["export", "report", "sql", "status", "db"];
            if is_file && reads.iter().any(|word| command.starts_with(word)) {
                continue;
            }
            let holder = Holder::of(&url).await;
            let ran = stopped(program.command(command), signal, &url).await;
            assert_eq!(ran.code, code, "{command}: {}", ran.stderr);
            assert!(!ran.stderr.contains("error:"), "{command}: {}", ran.stderr);
            holder.resume().await;
        }
        let counts = || {
            let tables = ["posts", "classifications", "tombstones", "leases"];
            tables.map(|table| program.count(table))
        };
        assert_eq!(counts(), [40, 8, 0, 0]);
        assert!(!program.path("posts.csv").exists());
        // The lock on PostgreSQL does not block run records. They show stopped runs, not failed ones.
        let ended = program.column("SELECT DISTINCT status FROM runs WHERE id > 2");
        let expected: &[&str] = if is_file { &[] } else { &["stopped"] };
        assert_eq!(ended, expected);

        program.ok("import more.ndjson");
        program.ok("purge --ids ids.txt");
        program.ok("classify");
        assert_eq!(counts(), [49, 49, 1, 0]);
        assert_eq!(program.count("backlog"), 0);
        program.ok("export posts.csv");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_logs_once_who_holds_the_lock_that_it_waits_for() {
    for program in Program::on_each_database() {
        let url = program.url();
        program.import(&lines(5, 5));
        program.write("more.ndjson", lines(10, 10));
        let mut holder = Holder::of(&url).await;
        let pid = holder.pid().await;
        let commands = ["import more.ndjson", "sql --named topics"];
        let commands = if url.starts_with("sqlite:") {
            &commands[..1]
        } else {
            &commands
        };
        let start = |line: &&str| program.spawn(*line);
        let waiting: Vec<Child> = commands.iter().map(start).collect();
        program.pipe("pipe.ndjson");
        let idle = program.spawn("labels gold import pipe.ndjson");
        SystemClock::shared().sleep(Duration::from_secs(12)).await;
        signal(&idle, "-TERM");
        // A command without log lines logs after ten seconds that it is working.
        let idle = finished(idle.wait_with_output().unwrap());
        idle.expect_exit(143, "still working");
        holder.resume().await;
        for (child, command) in waiting.into_iter().zip(commands) {
            let ran = finished(child.wait_with_output().unwrap());
            assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
            let named = ran.stderr.matches(&format!("process {pid} ")).count();
            assert_eq!(named, 1, "{command}: {}", ran.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_lets_a_running_server_statement_finish() {
    let Some(database) = postgres() else { return };
    let stop = CancellationToken::new();
    let store = Store::open_cancellable(&database.url, Access::Create, &stop)
        .await
        .unwrap();
    stop.cancel();
    // Longer than any lock timeout.
    let worked = store.query("SELECT 1 AS one FROM pg_sleep(5)").await;
    assert_eq!(worked.unwrap().rows, [[json!(1)]]);
    let holder = Holder::of(&database.url).await;
    let waited = store.purging().count_purged().await.unwrap_err();
    assert!(is_cancelled(&waited), "{waited}");
    holder.resume().await;
    assert_eq!(store.purging().count_purged().await.unwrap(), 0);
    store.close().await.unwrap();
}

#[test]
fn a_signal_cancels_a_command_that_is_waiting_for_input() {
    let program = Program::new();
    program.ok("db create");
    program.pipe("pipe.ndjson");
    for command in [
        "import pipe.ndjson",
        "import --format ids pipe.ndjson",
        "labels gold import pipe.ndjson",
        "purge --ids pipe.ndjson",
    ] {
        let mut child = program.command(command).spawn().unwrap();
        // Nothing shows from outside that the program is waiting.
        std::thread::sleep(Duration::from_millis(700));
        signal(&child, "-TERM");
        let mut ended = None;
        until_blocking(&format!("`{command}` ends"), || {
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), Some(143), "{command}");
    }
}
