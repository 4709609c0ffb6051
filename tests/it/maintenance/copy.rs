//! Tests `db copy` from SQLite to PostgreSQL: equal rows of every table, and equal views.

use std::process::Stdio;

use serde_json::Value;

use super::*;
use crate::support::postgres::{TestDatabase, databases, postgres, sqlite};
use crate::support::program::find_row;

const VIEWS: [&str; 8] = [
    "labeled_posts",
    "labeled_posts_all",
    "post_scores",
    "post_scores_all",
    "topic_agreement",
    "topic_daily",
    "uncertain_posts",
    "label_scores",
];

/// Normalises a value from either database: SQLite stores booleans as numbers.
fn meant(value: &Value) -> String {
    match value {
        Value::Bool(flag) => format!("{:?}", f64::from(u8::from(*flag))),
        Value::String(text) => {
            // One of the databases prints `2026-01-01 09:00:00+00`.
            let full = text.replacen(' ', "T", 1) + if text.ends_with("+00") { ":00" } else { "" };
            chrono::DateTime::parse_from_rfc3339(&full)
                .map_or_else(|_| text.clone(), |time| time.timestamp_micros().to_string())
        }
        Value::Number(number) => format!("{:?}", number.as_f64().unwrap()),
        other => other.to_string(),
    }
}

async fn view(url: &str, name: &str) -> Vec<String> {
    let store = Store::open(url, Access::ReadOnly).await.unwrap();
    let rows = store.query(&format!("SELECT * FROM {name}")).await;
    store.close().await.unwrap();
    let line = |row: &Vec<Value>| row.iter().map(meant).collect::<Vec<_>>().join("|");
    let mut lines: Vec<String> = rows.unwrap().rows.iter().map(line).collect();
    lines.sort();
    lines
}

/// Returns a SQLite and a PostgreSQL database, or `None` if the tests run without PostgreSQL.
fn one_of_each() -> Option<[TestDatabase; 2]> {
    databases().try_into().ok()
}

fn password(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap();
    rest.split_once('@').unwrap().0.split_once(':').unwrap().1
}

#[tokio::test]
async fn a_sqlite_database_is_copied_completely_to_postgres() {
    let Some(server) = postgres() else { return };
    let file = sqlite();
    filled(&file.url).await;
    many(&file.url, 300).await;
    execute(
        &file.url,
        "UPDATE things SET flair = 'tab\there\nand a \\ and \\N and \\.' WHERE fullname = 't3_m7'; \
         UPDATE runs SET heartbeat_at = '2026-01-01T10:05:00.123+00:00', counts = '{\"b\":1e-7,\"a\":[1,null,\"é\"]}'; \
         UPDATE sqlite_sequence SET seq = 77 WHERE name = 'leases'",
    )
    .await;
    let program = Program::new();
    let ran = program.ok(&["db", "copy", &file.url, &server.url, "--format", "json"]);
    let tables = ran.json();
    assert_eq!(find_row(&tables, "table", "things")["rows"], 304);
    let is_shown = ran.stderr.contains(password(&server.url));
    assert!(!is_shown, "{}", ran.stderr);
    for name in VIEWS {
        let rows = view(&file.url, name).await;
        assert!(!rows.is_empty() || name == "uncertain_posts", "{name}");
        assert_eq!(rows, view(&server.url, name).await, "{name}");
    }
    Program::with_database(&server.url).ok("db check");

    // A used key is not assigned again: it may be a fencing token.
    let store = server.open().await;
    let next = "SELECT last_value FROM leases_id_seq";
    assert_eq!(store.query(next).await.unwrap().rows[0][0], 77);
    store.close().await.unwrap();
}

#[tokio::test]
async fn copy_requires_an_empty_target_and_a_sqlite_source() {
    let Some([file, server]) = one_of_each() else {
        return;
    };
    let program = Program::new();
    for url in [&file.url, &server.url] {
        filled(url).await;
    }
    let before = read_all(&server.url).await;
    program
        .run(&["db", "copy", &file.url, &server.url])
        .expect_exit(2, "has rows already");
    assert_eq!(read_all(&server.url).await, before);
    for (from, to) in [(&server, &file), (&file, &file), (&server, &server)] {
        program
            .run(&["db", "copy", &from.url, &to.url])
            .expect_exit(2, "FROM has to be");
    }
}

#[tokio::test]
async fn a_value_that_postgres_cannot_store_is_named_and_nothing_is_copied() {
    let Some([file, server]) = one_of_each() else {
        return;
    };
    filled(&file.url).await;
    let set_title = async |title: &str| {
        let update = format!("UPDATE things SET title = {title} WHERE fullname = 't3_a2'");
        execute(&file.url, &update).await;
    };
    let program = Program::new();
    let copy = ["db", "copy", &file.url, &server.url];
    set_title("'a' || char(0) || 'b'").await;
    let ran = program.run(&copy);
    ran.expect_exit(4, "`things`");
    ran.expect_stderr("NUL");
    // The target is still empty.
    set_title("'a'").await;
    program.ok(&copy);
}

#[tokio::test]
async fn a_copy_is_a_consistent_snapshot_despite_concurrent_writes() {
    let Some([file, server]) = one_of_each() else {
        return;
    };
    filled(&file.url).await;
    many(&file.url, 3_000).await;
    let program = Program::new();
    let mut copying = program
        .command(&["db", "copy", &file.url, &server.url])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // A post and its label appear and disappear together.
    let mut n = 0;
    while copying.try_wait().unwrap().is_none() {
        n += 1;
        execute(
            &file.url,
            &format!(
                "BEGIN IMMEDIATE; \
                 INSERT INTO things (fullname, subreddit, title, selftext, over_18, is_self, source, text_hash, \
                   created_at, collected_at, updated_at) VALUES ('t3_w{n}', 's', 'w', '', FALSE, TRUE, 'import', \
                   CAST(hex(randomblob(8)) AS BLOB), '2026-01-01T09:00:00+00:00', '2026-01-01T09:00:00+00:00', \
                 '2026-01-01T09:00:00+00:00'); INSERT INTO sightings (fullname, topic, day, times_seen, run_id) \
                 VALUES ('t3_w{n}', 'food', '2026-01-01', 1, 1); COMMIT"
            ),
        )
        .await;
    }
    assert!(copying.wait().unwrap().success());
    let copied = Program::with_database(&server.url);
    assert_eq!(
        copied.count("posts WHERE fullname LIKE 't3_w%'"),
        copied.count("sightings WHERE fullname LIKE 't3_w%'")
    );
}
