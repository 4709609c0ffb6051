//! What lists and searches keep in memory follows what is stored, and says so where it cannot.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Executor};

use super::{Served, labelled, posts};
use crate::support::postgres::{databases, postgres};

fn total(served: &Served, words: &str) -> u64 {
    let page = served.json(&format!("/api/posts?q={words}"));
    page["total"].as_u64().unwrap()
}

#[test]
fn only_the_newest_posts_that_have_a_text_are_searched() {
    for database in databases() {
        let program = labelled(&database, &posts(20));
        let served = Served::with(&program, &database, &["--search-posts", "10"]);
        served.until("/api/overview", |overview| overview["searched"] == 10);
        assert_eq!((total(&served, "10"), total(&served, "9")), (1, 0));
        let more = program.write("more.ndjson", posts(26));
        super::run(&program, &database, &["import", &more]);
        served.until("/api/posts?q=25", |page| page["total"] == 1);
        // Those that are older than the newest ten by now are out.
        assert_eq!((total(&served, "16"), total(&served, "10")), (1, 0));
        served.until("/api/overview", |overview| overview["searched"] == 10);

        // Retention takes a text, and another one takes its place.
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(database.run(
            "UPDATE posts SET title = '', selftext = '', text_purged_at = created_at WHERE fullname = 't3_k00025'; \
             UPDATE runs SET finished_at = NULL WHERE id = 1",
        ));
        served.until("/api/posts?q=15", |page| page["total"] == 1);
        assert_eq!((total(&served, "25"), total(&served, "14")), (0, 0));
        served.until("/api/overview", |overview| overview["searched"] == 10);
    }
}

#[test]
fn a_search_finds_no_placeholders() {
    for database in databases() {
        let program = labelled(&database, &posts(6));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let removed = "UPDATE posts SET selftext = '[removed]' WHERE fullname = 't3_k00001'";
        runtime.block_on(database.run(removed));
        let served = Served::start(&program, &database);
        served.searched(6);
        assert_eq!(total(&served, "removed"), 0);
        assert_eq!(total(&served, "roast"), 1);
    }
}

#[test]
fn a_run_that_ends_in_the_second_of_another_one_is_seen() {
    for database in databases() {
        let program = labelled(&database, &posts(12));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(database.run("UPDATE runs SET finished_at = NULL WHERE id = 1"));
        let served = Served::start(&program, &database);
        served.searched(12);
        runtime.block_on(database.run(
            "UPDATE posts SET subreddit = 'moved' WHERE fullname = 't3_k00001'; \
             UPDATE runs SET finished_at = started_at WHERE id = 1",
        ));
        served.until("/api/posts?subreddit=moved", |page| page["total"] == 1);
    }
}

#[test]
fn a_role_that_lacks_a_right_is_told_so_at_once() {
    let Some(mut database) = postgres() else {
        return;
    };
    let program = labelled(&database, &posts(6));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let owner = database.url.clone();
    let run = |sql: String| {
        runtime.block_on(async {
            let mut connection = sqlx::PgConnection::connect(&owner).await.unwrap();
            let sql = sqlx::raw_sql(AssertSqlSafe(sql));
            connection.execute(sql).await.unwrap();
        });
    };
    let role = format!("reader_{}", owner.rsplit_once('/').unwrap().1);
    run(format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'pw'; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}; \
         REVOKE SELECT ON classifications FROM {role}"
    ));
    let (_, place) = owner.rsplit_once('@').unwrap();
    database.url = format!("postgres://{role}:pw@{place}");
    let served = Served::start(&program, &database);
    for path in ["/", "/posts", "/api/posts", "/api/overview"] {
        let answer = served.get(path);
        assert_eq!(answer.status, 503, "{path}: {}", answer.body);
        // Whoever waits for as long as anybody does is told only that it takes too long.
        for said in ["permission denied", "GRANT SELECT"] {
            assert!(answer.body.contains(said), "{path}: {}", answer.body);
        }
    }
    run(format!("GRANT SELECT ON classifications TO {role}"));
    let mut status = 0;
    for _ in 0..100 {
        status = served.get("/posts").status;
        if status == 200 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(status, 200);
    drop(served);
    run(format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}
