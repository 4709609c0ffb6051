//! Queries that do not end, exhaust memory, or are cancelled: long texts, signals, timeouts, limits.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use topicmill_core::clock::SystemClock;
use topicmill_store::{Access, Part, QueryEnd, QueryRequest, Store, part_channel};

use super::{csv, sql_from_stdin, with_a_row};
use crate::support::postgres::postgres;
use crate::support::program::{Program, finished, signal};
use crate::support::wait::{sessions, until};

/// A query that returns rows endlessly, on both databases.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
     SELECT i, 'a text of some length that is the same in each of the rows' AS t FROM n";
/// An endless query that never returns a row.
const SILENT: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n";

#[test]
fn a_query_of_any_length_runs_or_is_rejected() {
    for program in Program::on_each_database().map(with_a_row) {
        let nested = |n: usize| format!("SELECT {}1{}", "(".repeat(n), ")".repeat(n));
        // SQLite has no limit on parentheses.
        let is_sqlite = program.url().starts_with("sqlite");
        for (text, code) in [
            (nested(200_000), if is_sqlite { 0 } else { 2 }),
            (format!("SELECT 1{}", ";".repeat(300_000)), 0),
            (format!("{}SELECT 1", "-- x\n".repeat(100_000)), 0),
            ("SELECT 1;".repeat(100_000), 2),
            (format!("SELECT 1{}", "; -- x\n".repeat(100_000)), 0),
            ("'".repeat(500_001), 2),
            (format!("SELECT {}", "[".repeat(500_000)), 2),
        ] {
            let ran = sql_from_stdin(&program, &text);
            assert_eq!(ran.code, code, "{:.20}: {:.300}", text, ran.stderr);
        }
    }
}

/// Starts a query and returns the process with its output pipe.
fn start(program: &Program, query: &str) -> Child {
    program.spawn(&["sql", "--format", "ndjson", query])
}

/// Waits until the server is running this many queries on this database.
async fn until_running(url: &str, queries: i64) {
    let running = "query LIKE 'WITH RECURSIVE%' AND state = 'active'";
    let so = async || sessions(url, running).await == queries;
    until(&format!("{queries} queries run"), so).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_or_timeout_cancels_a_query_on_postgres() {
    let Some(database) = postgres() else { return };
    let program = with_a_row(Program::on(database));
    let url = program.url();
    for (name, code) in [("-INT", 130), ("-TERM", 143), ("-KILL", -9)] {
        let child = start(&program, SILENT);
        until_running(&url, 1).await;
        signal(&child, name);
        let ran = finished(child.wait_with_output().unwrap());
        ran.expect_code(code);
        until_running(&url, 0).await;
    }
    program
        .run(&["sql", SILENT, "--timeout", "1"])
        .expect_exit(1, "was cancelled after 1 s");
    until_running(&url, 0).await;
}

#[test]
fn a_signal_or_timeout_cancels_a_query_on_sqlite() {
    let program = with_a_row(Program::new());
    let clock = SystemClock::shared();
    let mut child = start(&program, ENDLESS);
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"i\":1,"), "{line}");
    // The output is never read.
    let began = clock.elapsed();
    signal(&child, "-INT");
    let ran = finished(child.wait_with_output().unwrap());
    ran.expect_code(130);
    assert!(clock.elapsed().saturating_sub(began) < Duration::from_secs(3));

    let began = clock.elapsed();
    program
        .run(&["sql", SILENT, "--timeout", "1"])
        .expect_exit(1, "was cancelled after 1 s");
    assert!(clock.elapsed().saturating_sub(began) < Duration::from_secs(5));
}

/// A process that is still alive must not keep computing a cancelled statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_query_leaves_no_thread_running() {
    let program = with_a_row(Program::new());
    let store = Store::open(&program.url(), Access::ReadOnly).await.unwrap();
    let (into, mut parts) = part_channel();
    let stop = CancellationToken::new();
    let request = QueryRequest {
        sql: SILENT.to_owned(),
        stop: stop.clone(),
        ..QueryRequest::default()
    };
    let soon = async {
        assert!(matches!(parts.recv().await, Some(Part::Columns(_))));
        stop.cancel();
    };
    let (asked, ()) = tokio::join!(store.run_query(request, into), soon);
    assert_eq!(asked.unwrap(), QueryEnd::Cancelled);
    // The computing thread holds the other end of the channel, which closes when the thread ends.
    let end = tokio::time::timeout(Duration::from_secs(5), parts.recv()).await;
    assert!(end.expect("the thread ends").is_none());
}

/// If the query continued, a stalled pager would block vacuuming and table rewrites.
#[tokio::test(flavor = "multi_thread")]
async fn unread_rows_cancel_the_query_on_the_server() {
    let Some(database) = postgres() else { return };
    let url = with_a_row(Program::on(database)).url();
    let store = Store::open(&url, Access::ReadOnly).await.unwrap();
    let (into, untaken) = part_channel();
    let request = QueryRequest {
        sql: ENDLESS.to_owned(),
        receive_timeout: Some(Duration::from_secs(1)),
        allow_superuser: true,
        ..QueryRequest::default()
    };
    let asked = tokio::time::timeout(Duration::from_secs(30), store.run_query(request, into)).await;
    let error = asked.expect("the query ends without a reader").unwrap_err();
    assert!(error.to_string().contains("for 1 s"), "{error}");
    drop(untaken);
    until_running(&url, 0).await;
}

#[test]
fn an_endless_result_uses_little_memory_and_ends_quietly_with_its_reader() {
    for program in Program::on_each_database().map(with_a_row) {
        let mut child = start(&program, ENDLESS);
        let mut stdout = child.stdout.take().unwrap();
        let mut taken = vec![0; 1 << 20];
        for _ in 0..24 {
            stdout.read_exact(&mut taken).unwrap();
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        drop(stdout);
        let ran = finished(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (141, ""));
        let Ok(status) = status else { continue }; // This system has no `/proc`.
        let peak = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        let kib: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(kib < 200 * 1024);
    }
}

#[test]
fn csv_cells_can_be_escaped_against_formulas() {
    for program in Program::on_each_database().map(with_a_row) {
        let query = "SELECT '=1+1' AS a, '@x' AS b, -5 AS c, 'a=b' AS d, '-' AS e, NULL AS f";
        assert_eq!(csv(&program, query), "=1+1,@x,-5,a=b,-,");
        let ran = program.ok(&["sql", query, "--format", "csv", "--safe-csv"]);
        assert_eq!(ran.stdout, "a,b,c,d,e,f\n'=1+1,'@x,-5,a=b,'-,\n");
    }
}
