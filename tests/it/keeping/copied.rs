//! `db copy`: SQLite to PostgreSQL and back, with equal digests of every table and view.

use serde_json::Value;

use super::*;
use crate::support::postgres::{postgres, sqlite};

const VIEWS: [&str; 9] = [
    "labeled_posts",
    "labeled_posts_all",
    "post_scores",
    "post_scores_all",
    "topic_agreement",
    "topic_daily",
    "uncertain_posts",
    "label_scores",
    "deciding_models",
];

/// A value as both databases mean it: SQLite has numbers for flags.
fn meant(value: &Value) -> String {
    match value {
        Value::Bool(flag) => u8::from(*flag).to_string(),
        Value::String(text) => {
            // One of them writes `2026-01-01 09:00:00+00`.
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
    let rows = store
        .query(&format!("SELECT * FROM {name}"))
        .await
        .unwrap()
        .rows;
    store.close().await.unwrap();
    let line = |row: &Vec<Value>| {
        let cells: Vec<String> = row
            .iter()
            // A flag is a number in one of them.
            .map(|cell| match meant(cell).as_str() {
                "1.0" => "1".to_owned(),
                "0.0" => "0".to_owned(),
                other => other.to_owned(),
            })
            .collect();
        cells.join("|")
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn a_database_goes_to_the_other_kind_and_back_and_stays_the_same() {
    let Some(server) = postgres() else { return };
    let file = sqlite();
    filled(&file.url).await;
    many(&file.url, 300).await;
    execute(
        &file.url,
        "UPDATE posts SET selftext = 'tab\there\nand a \\ and \\N and \\.' WHERE fullname = 't3_m7'; \
         UPDATE runs SET heartbeat_at = '2026-01-01T10:05:00.123+00:00', counts = '{\"b\":1e-7,\"a\":[1,null,\"é\"]}'; \
         UPDATE sqlite_sequence SET seq = 77 WHERE name = 'leases'",
    )
    .await;
    let before = everything(&file.url).await;
    let program = Program::new();
    let ran = program.ok(&["db", "copy", &file.url, &server.url, "--format", "json"]);
    let tables: Value = serde_json::from_str(&ran.stdout).unwrap();
    let posts = tables
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["table"] == "posts");
    assert_eq!(posts.unwrap()["rows"], 304);
    assert!(
        !ran.stderr.contains(password(&server.url)),
        "{}",
        ran.stderr
    );
    for name in VIEWS {
        let rows = view(&file.url, name).await;
        assert!(!rows.is_empty() || name == "uncertain_posts", "{name}");
        assert_eq!(rows, view(&server.url, name).await, "{name}");
    }
    on_ok(&program, &server.url, &["db", "check"]);

    let back = sqlite();
    let ran = program.ok(&["db", "copy", &server.url, &back.url, "--format", "json"]);
    assert_eq!(
        serde_json::from_str::<Value>(&ran.stdout).unwrap(),
        tables,
        "digests"
    );
    let after = everything(&back.url).await;
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        if name != "runs" {
            assert_eq!(before, after, "{name}");
        }
    }
    // JSON comes back in the server's spelling.
    let runs = |contents: &Contents| {
        let (_, rows) = contents
            .iter()
            .find(|(name, _)| name == "runs")
            .unwrap()
            .clone();
        let value = |cell: Option<String>| {
            cell.map(|text| match serde_json::from_str::<Value>(&text) {
                Ok(Value::Object(fields)) => {
                    let sorted: std::collections::BTreeMap<_, _> = fields.into_iter().collect();
                    format!("{sorted:?}")
                }
                _ => text,
            })
        };
        let rows: Vec<Vec<_>> = rows
            .into_iter()
            .map(|row| row.into_iter().map(value).collect())
            .collect();
        rows
    };
    assert_eq!(runs(&before), runs(&after));
    on_ok(&program, &back.url, &["db", "check"]);
    // A key that was given once is not given again: it may be a fencing token.
    let store = back.open().await;
    let next = "SELECT seq FROM sqlite_sequence WHERE name = 'leases'";
    assert_eq!(store.query(next).await.unwrap().rows[0][0], 77);
    store.close().await.unwrap();
}

#[tokio::test]
async fn nothing_is_copied_over_what_is_there_or_into_the_same_kind() {
    let Some([file, server]) = pairs() else {
        return;
    };
    let program = Program::new();
    for url in [&file.url, &server.url] {
        filled(url).await;
    }
    for (from, to) in [(&file, &server), (&server, &file)] {
        let before = everything(&to.url).await;
        let ran = program.run(&["db", "copy", &from.url, &to.url]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("has rows already"), "{}", ran.stderr);
        assert_eq!(everything(&to.url).await, before);
        let ran = program.run(&["db", "copy", &from.url, &from.url]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("db backup"), "{}", ran.stderr);
    }
    // What the other kind cannot hold is named, and nothing of the rest arrives.
    execute(
        &file.url,
        "UPDATE posts SET title = 'a' || char(0) || 'b' WHERE fullname = 't3_a2'",
    )
    .await;
    let fresh = postgres().unwrap();
    let ran = program.run(&["db", "copy", &file.url, &fresh.url]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("`posts`") && ran.stderr.contains("NUL"),
        "{}",
        ran.stderr
    );
    execute(
        &file.url,
        "UPDATE posts SET title = 'a' WHERE fullname = 't3_a2'",
    )
    .await;
    program.ok(&["db", "copy", &file.url, &fresh.url]);
}

#[tokio::test]
async fn a_copy_that_is_killed_or_finds_the_disk_full_begins_anew() {
    let Some([file, server]) = pairs() else {
        return;
    };
    let program = Program::new();
    for url in [&file.url, &server.url] {
        filled(url).await;
        many(url, 12_000).await;
    }
    for from in [&file, &server] {
        let to = if kind(from) == "sqlite" {
            postgres().unwrap()
        } else {
            sqlite()
        };
        program.ok(&["--database", &to.url, "db", "create"]);
        if kind(&to) == "sqlite" {
            let full = on_a_full_disk(&program, 2_000, &["db", "copy", &from.url, &to.url]);
            assert_eq!(full.code, 4, "{}", full.stderr);
            assert!(full.stderr.contains("disk"), "{}", full.stderr);
        }
        let mut at_work = 0;
        for n in 1..=5 {
            let command = program.command(&["db", "copy", &from.url, &to.url]);
            at_work += u32::from(killed_after(command, Duration::from_millis(70 * n)));
        }
        assert!(at_work >= 2, "{at_work} kills met a copy");
        let store = Store::open(&to.url, Access::ReadOnly).await.unwrap();
        let there = store
            .query("SELECT COUNT(*) FROM posts")
            .await
            .unwrap()
            .rows[0][0]
            .clone();
        store.close().await.unwrap();
        assert!(there == 0 || there == 12_004, "{there}");
        if there == 0 {
            // A server may still be about to notice that the killed one is gone.
            program.ok(&["db", "copy", &from.url, &to.url]);
        }
        for name in VIEWS {
            assert_eq!(
                view(&from.url, name).await,
                view(&to.url, name).await,
                "{name}"
            );
        }
    }
}

#[tokio::test]
async fn a_copy_is_of_one_moment_while_others_write() {
    let Some([file, server]) = pairs() else {
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
    // A post and its label come and go together.
    let mut n = 0;
    while copying.try_wait().unwrap().is_none() {
        n += 1;
        execute(
            &file.url,
            &format!(
                "BEGIN IMMEDIATE; \
                 INSERT INTO posts (fullname, subreddit, title, selftext, over_18, is_self, source, text_hash, created_at, \
                   collected_at, updated_at) VALUES ('t3_w{n}', 's', 'w', '', FALSE, TRUE, 'import', CAST(hex(randomblob(8)) AS BLOB), \
                   '2026-01-01T09:00:00+00:00', '2026-01-01T09:00:00+00:00', '2026-01-01T09:00:00+00:00'); \
                 INSERT INTO sightings (run_id, topic, fullname) VALUES (1, 'food', 't3_w{n}'); COMMIT"
            ),
        )
        .await;
    }
    assert!(copying.wait().unwrap().success());
    let store = Store::open(&server.url, Access::ReadOnly).await.unwrap();
    let both = "SELECT (SELECT COUNT(*) FROM posts WHERE fullname LIKE 't3_w%'), \
                       (SELECT COUNT(*) FROM sightings WHERE fullname LIKE 't3_w%')";
    let row = store.query(both).await.unwrap().rows[0].clone();
    store.close().await.unwrap();
    assert_eq!(row[0], row[1]);
}

#[tokio::test]
async fn a_user_who_owns_nothing_else_is_told_of_nothing_else() {
    let (Some(server), file) = (postgres(), sqlite()) else {
        return;
    };
    filled(&file.url).await;
    many(&file.url, 300).await;
    let admin = std::env::var("TEST_DATABASE_URL").unwrap();
    let (rest, name) = server.url.rsplit_once('/').unwrap();
    let (_, place) = rest.rsplit_once('@').unwrap();
    let role = format!("mover_{name}");
    execute(&admin, &format!("CREATE ROLE {role} LOGIN PASSWORD 'pw'")).await;
    execute(&admin, &format!("CREATE DATABASE {name} OWNER {role}")).await;
    let to = format!("postgres://{role}:pw@{place}/{name}");
    let ran = Program::new().ok(&["db", "copy", &file.url, &to]);
    assert!(!ran.stderr.contains("skipping"), "{}", ran.stderr);
    // The server has counted what came.
    let store = Store::open(&to, Access::ReadOnly).await.unwrap();
    let counted = "SELECT CAST(reltuples AS BIGINT) FROM pg_class WHERE oid = 'posts'::regclass";
    assert_eq!(store.query(counted).await.unwrap().rows[0][0], 304);
    store.close().await.unwrap();
    execute(&admin, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
    execute(&admin, &format!("DROP ROLE {role}")).await;
}
