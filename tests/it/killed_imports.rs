//! Tests SIGKILL at any moment: running the same command again finishes the work, and the database ends up as if
//! nothing had happened.
//!
//! The real program imports a dump. It is killed repeatedly, a random time after a random part of the work. The
//! seed is fixed; `KILLS_SEED` sets another one. A failure names the kill.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection;
use topicmill_core::clock::SystemClock;
use topicmill_store::{Access, Store};

use crate::support::postgres::{TestDatabase, databases};
use crate::support::program::{Program, finished};

/// The number of databases on which the program is killed, and the number of kills on each.
#[derive(Clone, Copy)]
struct Times {
    databases: usize,
    kills: usize,
}

const FEW: Times = Times {
    databases: 1,
    kills: 2,
};
const MANY: Times = Times {
    databases: 5,
    kills: 4,
};

/// Every column that must not depend on kills.
const TABLES: [&str; 4] = [
    "SELECT fullname, subreddit, title, selftext, url, permalink, author, reddit_score, upvote_ratio, num_comments, \
       flair, over_18, is_self, source, text_hash, created_at, removed_at, text_purged_at, checked_at IS NULL \
       FROM things ORDER BY fullname",
    // One sighting per post and day, from whichever run.
    "SELECT DISTINCT topic, fullname, listing, best_rank, reddit_score FROM sightings ORDER BY topic, fullname",
    "SELECT file, selection, name, byte_offset, rows_read, left_out, posts, rejected, finished_at IS NOT NULL \
       FROM imports",
    "SELECT stage, status FROM runs ORDER BY id DESC LIMIT 1",
];

/// Returns the seed in `KILLS_SEED`, or a fixed one.
fn random() -> fastrand::Rng {
    let given = std::env::var("KILLS_SEED").ok();
    let seed = given.map_or(20, |seed| seed.parse().expect("KILLS_SEED is a number"));
    fastrand::Rng::with_seed(seed)
}

/// Returns the number of stored posts.
async fn stored(url: &str) -> usize {
    // A missing database or table means that nothing is stored yet.
    let Ok(store) = Store::open(url, Access::ReadOnly).await else {
        return 0;
    };
    let sum = "SELECT CAST(SUM(posts) AS BIGINT) FROM imports";
    let stored = store.query(sum).await;
    // No other process has the database open when the program is killed, so the next one finds it as the crash left it.
    store.close().await.unwrap();
    let stored = stored.ok().and_then(|table| table.rows[0][0].as_u64());
    usize::try_from(stored.unwrap_or(0)).unwrap()
}

/// Kills the program some time after it has stored this many posts; returns true if it was still running.
async fn kill(mut command: Command, url: &str, posts: usize, wait: Duration) -> bool {
    let mut running = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while stored(url).await < posts && running.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(wait);
    running.kill().unwrap();
    running.wait().unwrap().signal() == Some(9)
}

async fn rows(url: &str, sql: &str) -> Vec<Vec<Value>> {
    let store = Store::open(url, Access::ReadOnly).await.unwrap();
    let rows = store.query(sql).await.unwrap().rows;
    store.close().await.unwrap();
    rows
}

/// Checks the integrity of a copy, so that the program itself must open the files that the crash left.
async fn check_integrity(program: &Program, database: &TestDatabase, what: &str) {
    let Some(path) = database.url.strip_prefix("sqlite:") else {
        return;
    };
    let copy = program.path("copy.db");
    for part in ["", "-wal"] {
        let to = format!("{}{part}", copy.display());
        if std::fs::copy(format!("{path}{part}"), &to).is_err() {
            std::fs::remove_file(&to).ok();
        }
    }
    if !copy.exists() {
        return; // Killed before there was a file.
    }
    let url = format!("sqlite:{}", copy.display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let answer: String = sqlx::query_scalar("PRAGMA integrity_check")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    assert_eq!(answer, "ok", "{what}");
    std::fs::remove_file(copy).unwrap();
}

/// Asserts that a query finds the same rows in two databases.
async fn compare(calm: &str, killed: &str, sql: &str, what: &str) {
    let (calm, killed) = (rows(calm, sql).await, rows(killed, sql).await);
    assert!(!calm.is_empty(), "{sql}");
    let differ = calm
        .iter()
        .zip(&killed)
        .find(|(calm, killed)| calm != killed);
    assert_eq!(differ, None, "{what}: {sql}");
    assert_eq!(calm.len(), killed.len(), "{what}: {sql}");
}

/// The posts that an import of the dump stores.
const POSTS_STORED: usize = 36_000;
/// The program is killed once it has stored at most this many posts.
const LATEST_KILL: usize = POSTS_STORED * 4 / 5;

/// A program with a dump, of which every fourth post is filtered out.
struct Import {
    program: Program,
}

impl Import {
    fn new() -> Self {
        let program = Program::new();
        let labels = ["food", "music", "books"].map(|name| (name, name));
        program.pipeline("three", "", &labels);
        let post = |i: usize| {
            let subreddit = ["food", "Music", "books", "knitting"][i % 4];
            let row = json!({
                "author": format!("user{}", i % 97), "created_utc": 1_700_000_000 + i, "id": format!("d{i:06}"),
                "score": i, "selftext": "text ".repeat(i % 20), "subreddit": subreddit,
                "title": format!("Title {i}"), "num_comments": 3, "is_self": true,
            });
            format!("{row}\n")
        };
        let dump: String = (0..POSTS_STORED / 3 * 4).map(post).collect();
        program.write("RS.zst", zstd::encode_all(dump.as_bytes(), 3).unwrap());
        Self { program }
    }

    fn command(&self, url: &str) -> Command {
        let import = "import --format dump --pipeline three.toml RS.zst";
        let mut command = self.program.command(&format!("--database {url} {import}"));
        command.env("TOPICMILL__COLLECT__STORE_AUTHOR", "true");
        command
    }

    /// Imports the dump, or the rest of it.
    fn run(&self, url: &str, what: &str) {
        let ran = finished(self.command(url).output().unwrap());
        assert_eq!(ran.code, 0, "{what}: {}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_killed_twice_equals_an_undisturbed_one() {
    kill_and_compare(FEW).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: crashes anywhere"]
async fn an_import_killed_at_any_step_equals_an_undisturbed_one() {
    kill_and_compare(MANY).await;
}

/// Kills imports into some databases, and compares each with an undisturbed import.
async fn kill_and_compare(times: Times) {
    let import = Import::new();
    let clock = SystemClock::shared();
    let mut random = random();
    let seed = random.get_seed();
    for backend in 0..databases().len() {
        let fresh = || databases().swap_remove(backend);
        let calm = fresh();
        let begun = clock.elapsed();
        import.run(&calm.url, "undisturbed");
        let took = clock.elapsed().saturating_sub(begun);
        let longest_wait = usize::try_from(took.as_millis()).unwrap() / 8 + 1;
        let mut hits = 0;
        for round in 0..times.databases {
            let database = fresh();
            let what = format!("{}, seed {seed}, round {round}", database.url);
            // Each run resumes the previous run's work, so the kills are in order of progress.
            let mut marks: Vec<usize> = (0..times.kills)
                .map(|_| random.usize(..LATEST_KILL))
                .collect();
            marks.sort_unstable();
            for posts in marks {
                let wait = Duration::from_millis(random.usize(..longest_wait) as u64);
                let command = import.command(&database.url);
                hits += usize::from(kill(command, &database.url, posts, wait).await);
                let what = format!("{what}: killed {wait:?} after {posts} posts");
                check_integrity(&import.program, &database, &what).await;
            }
            import.run(&database.url, &what);
            for sql in TABLES {
                compare(&calm.url, &database.url, sql, &what).await;
            }
            check_integrity(&import.program, &database, &what).await;
        }
        let kills = times.databases * times.kills;
        assert!(
            hits >= kills * 4 / 5,
            "seed {seed}: only {hits} of {kills} kills found the program running"
        );
    }
}
