//! Tests the SQL box: read-only, within limits.

use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection};

use super::{Served, escaped, labelled, posts};
use crate::support::postgres::{databases, postgres};

const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n";

#[test]
fn a_select_returns_a_page_csv_or_json() {
    for database in databases() {
        let program = labelled(&database, &posts(12));
        let served = Served::start(&program);
        let query = escaped(
            "SELECT fullname, '=1+1' AS \"=a,b\", NULL AS nil, 0.5 AS half FROM posts ORDER BY fullname LIMIT 2",
        );
        let page = served.page(&format!("/sql?query={query}"));
        assert!(
            page.contains("href=\"/posts/t3_k00000\"") && page.contains("0.5"),
            "{page}"
        );
        let csv = served.get(&format!("/api/sql?query={query}&format=csv"));
        assert!(
            csv.head.contains("attachment; filename=\"answer.csv\""),
            "{}",
            csv.head
        );
        assert_eq!(
            csv.body,
            "fullname,\"'=a,b\",nil,half\nt3_k00000,'=1+1,,0.5\nt3_k00001,'=1+1,,0.5\n"
        );
        let json = served.json(&format!("/api/sql?query={query}"));
        assert_eq!(json["rows"][1][0], "t3_k00001");
        assert_eq!(json["is_cut"], false);
        assert!(served.page("/sql?named=topics").contains("gaming"));
        assert_eq!(served.get("/sql?named=nothing").status, 400);
        let wrong = served.get(&format!("/sql?query={}", escaped("SELECT <b>nonsense")));
        assert_eq!(wrong.status, 400);
        assert!(!wrong.body.contains("<b>nonsense"), "{}", wrong.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_timeout_is_not_reported_as_a_query_error() {
    let Some(database) = postgres() else { return };
    let program = labelled(&database, &posts(3));
    let served = Served::start(&program);
    let mut holder = PgConnection::connect(&database.url).await.unwrap();
    let lock = "BEGIN; LOCK TABLE posts IN ACCESS EXCLUSIVE MODE";
    holder.execute(lock).await.unwrap();
    let query = escaped("SELECT COUNT(*) FROM posts");
    let answer = tokio::task::spawn_blocking(move || {
        let answer = served.get(&format!("/api/sql?query={query}"));
        (served, answer)
    });
    let (_served, answer) = answer.await.unwrap();
    assert_eq!(answer.status, 503, "{}", answer.body);
    holder.execute("ROLLBACK").await.unwrap();
}

#[test]
fn write_statements_are_rejected() {
    for database in databases() {
        let program = labelled(&database, &posts(3));
        let served = Served::start(&program);
        let before = program
            .ok(&[
                "sql",
                "SELECT * FROM posts ORDER BY fullname",
                "--format",
                "json",
            ])
            .stdout;
        for statement in [
            "DELETE FROM posts",
            "UPDATE posts SET title = 'x'",
            "DROP TABLE posts",
            "SELECT 1; DELETE FROM posts",
            "ATTACH 'file:stolen.db' AS stolen",
            "PRAGMA query_only = OFF",
            "VACUUM INTO 'copy.db'",
            "COPY posts TO '/nowhere/posts'",
            "WITH gone AS (DELETE FROM posts RETURNING *) SELECT * FROM gone",
            "CREATE TEMP TABLE t AS SELECT 1",
            "\0",
        ] {
            let answer = served.get(&format!("/api/sql?query={}", escaped(statement)));
            assert_eq!(answer.status, 400, "{statement}: {}", answer.body);
        }
        let after = program
            .ok(&[
                "sql",
                "SELECT * FROM posts ORDER BY fullname",
                "--format",
                "json",
            ])
            .stdout;
        assert_eq!(before, after);
        assert!(!program.folder.path().join("copy.db").exists());
    }
}

#[test]
#[ignore = "deep: two queries that burn ten seconds, on each database"]
fn an_endless_query_times_out_and_delays_no_page() {
    for database in databases() {
        let program = labelled(&database, &posts(12));
        let served = Served::start(&program);
        let ask = |query: &str| served.get(&format!("/api/sql?query={}", escaped(query)));
        std::thread::scope(|scope| {
            let endless: Vec<_> = (0..2).map(|_| scope.spawn(|| ask(ENDLESS))).collect();
            std::thread::sleep(Duration::from_millis(500));
            assert!(served.page("/posts").contains("A new boss fight"));
            // Two queries may run concurrently.
            let third = ask("SELECT 1");
            assert_eq!(third.status, 503, "{}", third.body);
            assert!(third.head.contains("retry-after"), "{}", third.head);
            for answer in endless {
                let answer = answer.join().unwrap();
                assert_eq!(answer.status, 400, "{}", answer.body);
                assert!(
                    answer.body.contains("took longer than 10 s"),
                    "{}",
                    answer.body
                );
            }
        });
        assert_eq!(ask("SELECT 1").status, 200);
        // Ten million rows stop at the row limit, wide ones at the byte limit.
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000000) SELECT i FROM n";
        let many = served.json(&format!("/api/sql?query={}", escaped(many)));
        assert_eq!(many["rows"].as_array().unwrap().len(), 10_000);
        assert_eq!(many["is_cut"], true);
    }
}

#[test]
fn a_few_large_values_reach_the_response_limit() {
    for database in databases() {
        let program = labelled(&database, &posts(3));
        let served = Served::start(&program);
        let path = |query: &str| format!("/api/sql?query={}", escaped(query));
        if database.url.starts_with("sqlite:") {
            let large = served.get(&path("SELECT length(zeroblob(20000000))"));
            assert_eq!(large.status, 400, "{}", large.body);
            assert!(large.body.contains("too big"), "{}", large.body);
            // Many values, each below the limit.
            let wide = vec!["hex(zeroblob(500000))"; 20].join(", ");
            let wide = served.get(&path(&format!("SELECT {wide}")));
            assert_eq!(wide.status, 400, "{}", wide.body);
            assert!(wide.body.contains("too long for a page"), "{}", wide.body);
            let columns = vec!["1"; 257].join(", ");
            let columns = served.get(&path(&format!("SELECT {columns}")));
            assert!(
                columns.body.contains("too many columns"),
                "{}",
                columns.body
            );
            continue;
        }
        let json = "SELECT json_build_array(repeat('x', 1000000)) FROM generate_series(1, 100)";
        let json = served.json(&path(json));
        assert_eq!(json["is_cut"], true);
        let rows = json["rows"].as_array().unwrap().len();
        assert!((10..50).contains(&rows), "{rows} rows");
    }
}

#[test]
fn a_query_is_cancelled_when_its_client_disconnects() {
    for database in databases() {
        let program = labelled(&database, &posts(4));
        let served = Served::start(&program);
        for _ in 0..6 {
            use std::io::Write;
            let mut stream = std::net::TcpStream::connect(served.address).unwrap();
            let request = format!(
                "GET /api/sql?query={} HTTP/1.1\r\nHost: {}\r\n\r\n",
                escaped(ENDLESS),
                served.address
            );
            stream.write_all(request.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        // Six queries of ten seconds, two at a time, would take thirty.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(served.get("/api/sql?query=SELECT%201").status, 200);
    }
}

#[test]
fn unread_responses_share_one_memory_limit() {
    let database = crate::support::postgres::sqlite();
    let program = labelled(&database, &posts(4));
    let served = Served::start(&program);
    let rows = vec!["SELECT hex(zeroblob(400000))"; 18].join(" UNION ALL ");
    let path = format!("/api/sql?query={}", escaped(&rows));
    let mut unread = Vec::new();
    let refused = (0..60).any(|_| {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(served.address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
        stream.write_all(request.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        unread.push(stream);
        status.ends_with(b"503")
    });
    assert!(refused, "{} responses are unread", unread.len());
    drop(unread);
    let again = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        served.get(&path).status == 200
    });
    assert!(again);
}
