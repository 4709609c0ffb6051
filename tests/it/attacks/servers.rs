//! Database servers that reject, cancel or cannot store something, and the resulting messages.

use std::process::Stdio;

use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};
use topicmill_core::table;

use crate::support::postgres::{postgres, run_sql};
use crate::support::program::{Program, RunOutput, finished};
use crate::support::wait::{sessions, until};

/// Runs a long query and ends it on the server with a function such as `pg_cancel_backend`, as soon as it is active.
async fn query_ended_by(url: &str, function: &str) -> RunOutput {
    let program = Program::with_database(url);
    let mut command = program.command("sql --allow-superuser 'SELECT pg_sleep(60)'");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
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
    for words in MAKE_TABLES {
        let message = refused(&database.url, words);
        assert!(message.contains("ENCODING 'UTF8'"), "{message}");
    }
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let tables = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'";
    let tables: i64 = sqlx::query_scalar(tables)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(tables, 0);
}

/// Creates an empty database on the server with plain SQL.
async fn made(url: &str) -> PgConnection {
    let server = std::env::var("TEST_DATABASE_URL").unwrap();
    let (_, name) = url.rsplit_once('/').unwrap();
    run_sql(&server, &format!("CREATE DATABASE {name}")).await;
    PgConnection::connect(url).await.unwrap()
}

/// Runs a command whose database is rejected and returns its message.
fn refused(url: &str, words: &[&str]) -> String {
    let ran = Program::new().run(&[&["--database", url], words].concat());
    assert_eq!(ran.code, 4, "{words:?}: {}", ran.stderr);
    assert!(!ran.stderr.contains("at line"), "{}", ran.stderr);
    ran.stderr
}

const MAKE_TABLES: [&[&str]; 2] = [
    &["db", "create"],
    &["collect", "--source", "sample", "--limit", "1"],
];

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_program_are_left_alone_and_a_separate_schema_works() {
    let Some(database) = postgres() else { return };
    let mut connection = made(&database.url).await;
    connection
        .execute("CREATE TABLE things (id integer); CREATE SCHEMA apart")
        .await
        .unwrap();
    for words in MAKE_TABLES {
        let message = refused(&database.url, words);
        assert!(message.contains("`things` already"), "{message}");
        assert!(message.contains("?options=-csearch_path%3D"), "{message}");
    }
    let columns = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = 'public'";
    let columns: i64 = sqlx::query_scalar(columns)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(columns, 1);
    // The message suggests a separate schema, and one works.
    let apart = format!("{}?options=-csearch_path%3Dapart", database.url);
    Program::new().ok(&["--database", &apart, "db", "create"]);
    Program::new().ok(&["--database", &apart, "status"]);
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
        let file = program.folder.path().join("other.db");
        let url = format!("sqlite:{}", file.display());
        std::fs::write(&file, "").unwrap();
        run_sql(&url, tables).await;
        let before = std::fs::read(&file).unwrap();
        for words in MAKE_TABLES {
            let message = refused(&url, words);
            assert!(message.contains(what), "{message}");
        }
        for words in [&["status"][..], &["purge", "--retention", "24"]] {
            refused(&url, words);
        }
        assert_eq!(std::fs::read(&file).unwrap(), before);
        assert!(!program.folder.path().join("other.db-wal").exists());
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
        let file = program.folder.path().join("other.db");
        let url = format!("sqlite:{}", file.display());
        std::fs::write(&file, "").unwrap();
        run_sql(&url, make).await;
        let message = refused(&url, MAKE_TABLES[0]);
        assert!(message.contains(&format!("`{name}` already")), "{message}");
    }
    let of_servers = [("CREATE SEQUENCE runs", "runs")];
    for (make, name) in both.into_iter().chain(of_servers) {
        let Some(database) = postgres() else { return };
        let mut connection = made(&database.url).await;
        connection.execute(make).await.unwrap();
        let message = refused(&database.url, MAKE_TABLES[0]);
        assert!(message.contains(&format!("`{name}` already")), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_search_path_is_reported() {
    let Some(database) = postgres() else { return };
    drop(made(&database.url).await);
    let nowhere = format!("{}?options[search_path]=nowhere", database.url);
    for words in [&["status"][..], &["db", "info"]]
        .into_iter()
        .chain(MAKE_TABLES)
    {
        let message = refused(&nowhere, words);
        assert!(
            message.contains("`search_path` names no schema"),
            "{message}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_create_the_database_is_told_how_to_get_it() {
    let Some(database) = postgres() else { return };
    let server = std::env::var("TEST_DATABASE_URL").unwrap();
    let login = format!("topicmill_test_guest_{}", std::process::id());
    run_sql(&server, &format!("CREATE ROLE {login} LOGIN PASSWORD 'pw'")).await;
    let (_, place) = database.url.rsplit_once('@').unwrap();
    let message = refused(&format!("postgres://{login}:pw@{place}"), MAKE_TABLES[0]);
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
