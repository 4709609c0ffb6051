//! Races between a migration, which is paused before each of its statements, and other programs.

use sqlx::{Connection, Executor};
use topicmill_store::{Access, Migration, Store};

use super::{blocked, within_a_minute};
use crate::crashes::count;
use crate::support::postgres::postgres;
use crate::support::proxy::Proxy;

/// A typical later migration: it alters a table that others write to.
const SECOND: Migration = Migration {
    version: 2,
    description: "made up",
    sql: "ALTER TABLE things ADD COLUMN more TEXT; UPDATE things SET more = title",
};

/// The statements that the previous version runs, which does not know later columns.
const EARLIER: [&str; 4] = [
    "BEGIN",
    "INSERT INTO runs (stage, status, worker, started_at) VALUES ('import', 'running', 'w', '2026-01-01T00:00:00Z')",
    "INSERT INTO things (fullname, subreddit, title, selftext, over_18, is_self, source, text_hash, created_at, \
       collected_at, updated_at) VALUES ('t3_late', 'food', 'late', '', FALSE, TRUE, 'import', \
       '\\x0123456789abcdef0123456789abcdef', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z')",
    "COMMIT",
];

/// Migrates a database with a pause after this many statements, during which other work runs on it until it ends or
/// waits for a lock; then this many posts are stored. Returns the statement at which the migration paused.
async fn migrate_with_pause(
    steps: usize,
    other_work: impl AsyncFnOnce(&str),
    posts: u64,
) -> Option<String> {
    let database = postgres().unwrap();
    database.open().await.close().await.unwrap();
    let proxy = Proxy::in_front_of(&database.url).await;
    let url = proxy.url(&database.url);
    let mut onlooker = sqlx::PgConnection::connect(&database.url).await.unwrap();
    proxy.gate.pause_after(steps);
    let migrating = async {
        let store = Store::open_with(&url, Access::Create, &[SECOND]).await;
        proxy.gate.resume();
        store.unwrap()
    };
    let other = async {
        let paused = proxy.gate.wait_for_pause().await;
        let mut working = Box::pin(other_work(&database.url));
        let has_ended = tokio::select! {
            () = &mut working => true,
            () = blocked(&mut onlooker) => false,
        };
        proxy.gate.resume();
        if !has_ended {
            working.await;
        }
        paused
    };
    let both = async { tokio::join!(migrating, other) };
    let (store, paused) = within_a_minute(both, &format!("after {steps} steps")).await;
    assert_eq!(store.info().await.unwrap().schema, 2, "{paused:?}");
    assert_eq!(count(&store, "posts").await, posts, "{paused:?}");
    paused
}

/// Pauses a migration before each of its statements in turn, and finally not at all. In each case, other work runs and
/// `posts` posts are stored.
async fn pause_migration_at_each_step(other_work: impl AsyncFn(&str), posts: u64) {
    if postgres().is_none() {
        return;
    }
    for steps in 0.. {
        let paused = migrate_with_pause(steps, &other_work, posts).await;
        if paused.is_none() {
            assert!(steps > 3, "{steps}");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: all interleavings"]
async fn a_migration_paused_at_any_statement_tolerates_an_earlier_version() {
    let write = async |url: &str| {
        let mut earlier = sqlx::PgConnection::connect(url).await.unwrap();
        for sql in EARLIER {
            earlier.execute(sql).await.unwrap();
        }
    };
    pause_migration_at_each_step(write, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: all interleavings"]
async fn a_migration_paused_at_any_statement_tolerates_another() {
    let migrate = async |url: &str| {
        let store = Store::open_with(url, Access::Create, &[SECOND]).await;
        drop(store.unwrap());
    };
    pause_migration_at_each_step(migrate, 0).await;
}
