//! Database servers that reject, cancel or cannot store something, and the resulting messages.

use std::path::PathBuf;

use serde_json::json;
use topicmill_core::table;

use crate::support::postgres::{number, postgres, run_sql};
use crate::support::program::{Program, RunOutput, finished};
use crate::support::wait::{sessions, until};

/// Runs a long query and ends it on the server with a function such as `pg_cancel_backend`, as soon as it is active.
async fn query_ended_by(url: &str, function: &str) -> RunOutput {
    let program = Program::with_database(url);
    let child = program.spawn("sql 'SELECT pg_sleep(60)'");
    until("the query is ended", async || {
        // CASE keeps PostgreSQL from calling the function for other sessions.
        let is_running = "state = 'active' AND query LIKE 'SELECT pg_sleep%'";
        let end = format!("CASE WHEN {is_running} THEN {function}(pid) ELSE FALSE END");
        sessions(url, &end).await > 0
    })
    .await;
    finished(child.wait_with_output().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_cancelled_by_the_server_is_not_a_query_error() {
    let Some(database) = postgres() else { return };
    database.open().await.close().await.unwrap();
    for (by, advice) in [
        ("pg_terminate_backend", "run the command again"),
        ("pg_cancel_backend", "statement_timeout"),
    ] {
        query_ended_by(&database.url, by)
            .await
            .expect_exit(4, advice);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_non_utf8_database_is_rejected_before_a_table_is_created() {
    let Some(database) = postgres() else { return };
    let server = std::env::var("TEST_DATABASE_URL").unwrap();
    let (_, name) = database.url.rsplit_once('/').unwrap();
    let create = format!(
        "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
    );
    run_sql(&server, &create).await;
    for line in MAKE_TABLES {
        let message = refused(&database.url, line);
        assert!(message.contains("ENCODING 'UTF8'"), "{message}");
    }
    let tables = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(number(&database.url, tables).await, 0);
}

/// Creates a database on the server without topicmill, and runs SQL in it.
async fn create_with(url: &str, sql: &str) {
    let server = std::env::var("TEST_DATABASE_URL").unwrap();
    let (_, name) = url.rsplit_once('/').unwrap();
    run_sql(&server, &format!("CREATE DATABASE {name}")).await;
    run_sql(url, sql).await;
}

/// Runs a command whose database is rejected and returns its message.
fn refused(url: &str, line: &str) -> String {
    let ran = Program::with_database(url).run(line);
    assert_eq!(ran.code, 4, "{line}: {}", ran.stderr);
    assert!(!ran.stderr.contains("at line"), "{}", ran.stderr);
    ran.stderr
}

const MAKE_TABLES: [&str; 2] = ["db create", "collect --source sample --limit 1"];

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_program_are_left_alone_and_a_separate_schema_works() {
    let Some(database) = postgres() else { return };
    let url = database.url.as_str();
    create_with(url, "CREATE TABLE things (id integer); CREATE SCHEMA apart").await;
    for line in MAKE_TABLES {
        let message = refused(url, line);
        assert!(message.contains("`things` already"), "{message}");
        assert!(message.contains("?options=-csearch_path%3D"), "{message}");
    }
    let columns = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = 'public'";
    assert_eq!(number(url, columns).await, 1);
    // The message suggests a separate schema, and one works.
    let apart = Program::with_database(&format!("{url}?options=-csearch_path%3Dapart"));
    apart.ok("db create");
    apart.ok("status");
}

/// Returns the URL of a SQLite file of another program, and the file, which contains the result of some SQL.
async fn foreign_file(program: &Program, sql: &str) -> (String, PathBuf) {
    let file = program.path("other.db");
    let url = format!("sqlite:{}", file.display());
    std::fs::write(&file, "").unwrap();
    run_sql(&url, sql).await;
    (url, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sqlite_file_of_another_program_is_left_alone() {
    // The second file belongs to a program that also uses the migrations of sqlx.
    let sqlx = "CREATE TABLE _sqlx_migrations (version BIGINT, success BOOLEAN, checksum BLOB); \
                INSERT INTO _sqlx_migrations VALUES (20260101000000, TRUE, '')";
    for (tables, what) in [
        ("CREATE TABLE things (id integer)", "name another file"),
        (sqlx, "20260101000000"),
    ] {
        let program = Program::new();
        let (url, file) = foreign_file(&program, tables).await;
        let before = std::fs::read(&file).unwrap();
        for line in MAKE_TABLES {
            let message = refused(&url, line);
            assert!(message.contains(what), "{message}");
        }
        for line in ["status", "purge --retention 24"] {
            refused(&url, line);
        }
        assert_eq!(std::fs::read(&file).unwrap(), before);
        assert!(!program.path("other.db-wal").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn name_conflicts_are_detected_before_a_table_is_created() {
    let both = [
        ("CREATE TABLE meta (id integer)", "meta"),
        ("CREATE VIEW topic_daily AS SELECT 1 AS one", "topic_daily"),
        (
            "CREATE TABLE other (id integer); CREATE INDEX gold ON other (id)",
            "gold",
        ),
    ];
    // SQLite ignores the case of names, and PostgreSQL does not.
    let of_files = [("CREATE TABLE Posts (id integer)", "Posts")];
    for (make, name) in both.into_iter().chain(of_files) {
        let program = Program::new();
        let (url, _) = foreign_file(&program, make).await;
        let message = refused(&url, "db create");
        assert!(message.contains(&format!("`{name}` already")), "{message}");
    }
    let of_servers = [("CREATE SEQUENCE runs", "runs")];
    for (make, name) in both.into_iter().chain(of_servers) {
        let Some(database) = postgres() else { return };
        create_with(&database.url, make).await;
        let message = refused(&database.url, "db create");
        assert!(message.contains(&format!("`{name}` already")), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_search_path_is_reported() {
    let Some(database) = postgres() else { return };
    create_with(&database.url, "CREATE SCHEMA apart").await;
    let nowhere = format!("{}?options[search_path]=nowhere", database.url);
    for line in ["status", "db info"].into_iter().chain(MAKE_TABLES) {
        let message = refused(&nowhere, line);
        let cause = "`search_path` names no schema";
        assert!(message.contains(cause), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_create_the_database_is_told_how_to_get_it() {
    let Some(database) = postgres() else { return };
    let server = std::env::var("TEST_DATABASE_URL").unwrap();
    let login = format!("topicmill_test_guest_{}", std::process::id());
    run_sql(&server, &format!("CREATE ROLE {login} LOGIN PASSWORD 'pw'")).await;
    let (_, place) = database.url.rsplit_once('@').unwrap();
    let message = refused(&format!("postgres://{login}:pw@{place}"), "db create");
    run_sql(&server, &format!("DROP ROLE {login}")).await;
    assert!(message.contains("OWNER you"), "{message}");
}

#[test]
fn an_invalid_database_url_names_the_faulty_part() {
    let program = Program::new();
    for (url, part) in table! {
        "postgres://me:secret@localhost/db?sslmode=nonsense", "verify-full";
        "postgres://me:secret@localhost:99999/db", "1 to 65535";
        "postgres://me:secret/word@localhost/db", "not escaped";
        "postgres://me:secret@/db", "`postgres://user:password@[::1]/database`";
    } {
        let ran = program.run(&["--database", url, "status"]);
        ran.expect_exit(2, part);
        assert!(!ran.stderr.contains("secret"), "{url}: {}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn non_finite_numbers_are_text_in_json() {
    let Some(database) = postgres() else { return };
    database.open().await.close().await.unwrap();
    let query = "SELECT 'NaN'::float8 AS a, '-Infinity'::float8 AS b, 0.5::float8 AS c, NULL AS d";
    let rows = Program::with_database(&database.url).rows(query);
    assert_eq!(rows, json!([["NaN", "-Infinity", 0.5, null]]));
}
