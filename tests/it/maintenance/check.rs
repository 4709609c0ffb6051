//! Tests `db check`: each problem is found and named, and a sound database passes.

use serde_json::json;
use topicmill_core::table;

use super::*;

/// The backend, or an empty string for both; a statement that damages a database; and the check that must fail.
const BREAKS: [(&str, &str, &str); 13] = table! {
    "", "UPDATE label_sets SET threshold = 0.5", "versions of label sets";
    "", "DELETE FROM labels WHERE label = 'food'", "number of scores";
    "", "UPDATE classifications SET label = 'nobody'", "unknown labels";
    "", "UPDATE classifications SET day = 0, topic = 'nobody'", "counted labels";
    "",
        "INSERT INTO tombstones (fullname, reason, purged_at) VALUES ('t3_a2', 'deleted', '2026-01-03T10:00:00+00:00')",
        "purged posts";
    "", "UPDATE text_vectors SET text_hash = BYTES(ffffffffffffffff)", "vectors without a text";
    "", "UPDATE things SET text_purged_at = '2026-01-03T10:00:00+00:00' WHERE fullname = 't3_a4'",
        "texts after retention";
    "", "UPDATE pair_logits SET text_hash = BYTES(ffffffffffffffff)", "logits without a text";
    "", "UPDATE things SET title = 'Changed' WHERE fullname = 't3_a1'", "hashes of texts";
    "", "INSERT INTO text_vectors (model_id, text_hash, vector) VALUES (2, HASH(Alive; body), BYTES(scale010203))",
        "lengths of vectors";
    "sqlite", "PRAGMA foreign_keys = OFF; DELETE FROM runs", "the database";
    "postgres", "ALTER TABLE things DISABLE TRIGGER things_notify", "the database";
    "", "DELETE FROM packed_scores", "labels without scores";
};

/// Returns the remedy for a problem, or `None` if the check finds no such problem.
async fn remedy(url: &str, check: &str) -> Option<&'static str> {
    let store = Store::open(url, Access::ReadOnly).await.unwrap();
    let problems = store.check(&|_| ()).await.unwrap();
    store.close().await.unwrap();
    let problem = problems.into_iter().find(|one| one.check == check);
    problem.map(|problem| problem.remedy)
}

#[tokio::test]
async fn check_finds_each_problem_and_suggests_a_fix() {
    for program in Program::on_each_database() {
        let url = program.url();
        filled(&url).await;
        assert_eq!(program.json("db check"), json!([]));
        for (only, sql, check) in BREAKS {
            if !url.starts_with(only) {
                continue;
            }
            assert_eq!(remedy(&url, check).await, None, "{url} before {sql}");
            execute(&url, sql).await;
            let remedy = remedy(&url, check).await;
            assert!(remedy.is_some_and(|it| !it.is_empty()), "{url} {check}");
        }
        let people = program.run("db check");
        people.expect_code(1);
        let widest = people.stdout.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|it| it <= 80), "{}", people.stdout);
    }
}

#[tokio::test]
async fn check_finds_a_damaged_file() {
    let program = Program::on(crate::support::postgres::sqlite());
    let url = program.url();
    filled(&url).await;
    many(&url, 2_000).await;
    // Overwrite bytes in the file, in the middle of an index.
    let store = Store::open(&url, Access::Existing).await.unwrap();
    let root = "SELECT rootpage FROM sqlite_master WHERE name = 'things_created_at'";
    let page = store.query(root).await.unwrap().rows[0][0]
        .as_u64()
        .unwrap();
    store.checkpoint().await.unwrap();
    store.close().await.unwrap();
    let file = url.strip_prefix("sqlite:").unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    let start = usize::try_from((page - 1) * 4096).unwrap();
    bytes[start + 200..start + 4000].fill(0x5a);
    std::fs::write(file, bytes).unwrap();
    let ran = program.run("db check");
    assert!([1, 4].contains(&ran.code), "{} {}", ran.code, ran.stderr);
    let output = format!("{}{}", ran.stdout, ran.stderr);
    assert!(output.contains("damaged"), "{output}");
}
