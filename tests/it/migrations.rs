//! Tests that opening a database migrates its schema, and that a database of an earlier, incompatible build is
//! rejected. Only one schema exists yet, so the tests invent the next one.

use std::sync::Arc;

use topicmill_store::{Access, Migration, Store, StoreError};

use crate::support::postgres::{TestDatabase, databases};
use crate::support::program::Program;
use crate::support::rows::{execute, fill, read_all};

/// A migration that adds a column and replaces a view.
const SECOND: Migration = Migration {
    version: 2,
    description: "made up",
    sql: "ALTER TABLE gaps ADD COLUMN why TEXT; UPDATE gaps SET why = 'unknown'; \
     DROP VIEW post_scores; CREATE VIEW post_scores AS SELECT fullname FROM packed_scores",
};

async fn upgraded(database: &TestDatabase, access: Access) -> Result<Store, StoreError> {
    Store::open_with(&database.url, access, &[SECOND]).await
}

async fn schema(store: &Store) -> i64 {
    store.info().await.unwrap().schema
}

#[tokio::test]
async fn an_upgrade_preserves_all_data() {
    for database in databases() {
        fill(&database.url).await;
        let before = read_all(&database.url).await;
        for access in [Access::Existing, Access::ReadOnly] {
            let old = upgraded(&database, access).await.unwrap_err();
            assert!(matches!(old, StoreError::NotMigrated(_)), "{old}");
        }
        let store = upgraded(&database, Access::Create).await.unwrap();
        assert_eq!(schema(&store).await, 2);
        let upgraded_row = store.query("SELECT why FROM gaps").await.unwrap().rows;
        assert_eq!(upgraded_row, [["unknown"]]);
        store.close().await.unwrap();
        let after = read_all(&database.url).await;
        assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            let is_other = ["gaps", "post_scores"].contains(&before.0.as_str());
            assert!(is_other || before == after, "{}", before.0);
        }
    }
}

/// A database as version 0.1.0 writes it: sample posts and comments on two topics, labelled by the default model, four
/// gold labels, and a purged post.
#[test]
fn a_database_of_the_first_release_keeps_its_labels() {
    const DATABASE: &[u8] = include_bytes!("fixtures/release-0.1.0.db.zst");
    const LABELS: &str = include_str!("fixtures/release-0.1.0.csv");
    let program = Program::with_database("sqlite:old.db").with_default_model();
    program.write("old.db", zstd::decode_all(DATABASE).unwrap());
    program.write("topics.toml", include_str!("fixtures/release-0.1.0.toml"));
    let labels = || {
        let select =
            "SELECT fullname, kind, outcome, score, gold FROM labeled_things ORDER BY fullname";
        program.ok(&["sql", select, "--format", "csv"]).stdout
    };
    program.ok("db migrate");
    assert_eq!(labels(), LABELS);
    // The label set and the model have the same hashes, so nothing is labelled again.
    let run = program.classify("--pipeline topics.toml");
    assert_eq!(run["posts"], 0);
    // The purged post does not return.
    let purged =
        r#"{"id":"rkaj0mj","subreddit":"travel","title":"Purged","created_utc":1764000000}"#;
    program.write("purged.ndjson", purged);
    assert_eq!(program.run_counts("import purged.ndjson")["tombstoned"], 1);
    assert_eq!(labels(), LABELS);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_upgrades_run_once() {
    for database in databases() {
        fill(&database.url).await;
        let database = Arc::new(database);
        let opened: Vec<_> = (0..6)
            .map(|_| {
                let database = Arc::clone(&database);
                tokio::spawn(async move { upgraded(&database, Access::Create).await })
            })
            .collect();
        for store in opened {
            let store = store.await.unwrap().unwrap();
            assert_eq!(schema(&store).await, 2);
            store.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_upgrade_is_atomic() {
    const BROKEN: Migration = Migration {
        version: 2,
        description: "made up",
        sql: "ALTER TABLE gaps ADD COLUMN why TEXT; UPDATE gaps SET why = nothing",
    };
    for database in databases() {
        fill(&database.url).await;
        let before = read_all(&database.url).await;
        let failed = Store::open_with(&database.url, Access::Create, &[BROKEN]).await;
        assert!(matches!(failed, Err(StoreError::Statement { .. })));
        assert_eq!(read_all(&database.url).await, before);
        let store = upgraded(&database, Access::Create).await.unwrap();
        assert_eq!(schema(&store).await, 2);
    }
}

#[tokio::test]
async fn a_database_from_an_earlier_build_is_rejected_with_instructions() {
    for database in databases() {
        fill(&database.url).await;
        execute(
            &database.url,
            "UPDATE _sqlx_migrations SET checksum = BYTES(another); \
             INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (26, 'text index', TRUE, BYTES(another), 0)",
        )
        .await;
        let before = read_all(&database.url).await;
        for access in [Access::Create, Access::Existing, Access::ReadOnly] {
            let old = Store::open(&database.url, access).await.unwrap_err();
            assert!(matches!(old, StoreError::EarlierBuild(_)), "{old}");
        }
        let program = Program::with_database(&database.url);
        for command in ["status", "db migrate", "db info"] {
            let ran = program.run(command);
            ran.expect_code(4);
            ran.expect_stderr_all(&[
                "`export`",
                "`labels gold export`",
                "FROM tombstones",
                "`purge --ids`",
            ]);
        }
        assert_eq!(read_all(&database.url).await, before);
    }
}
