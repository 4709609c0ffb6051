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
use crate::support::program::Program;

/// The number of databases on which the program is killed, and the number of kills on each.
const FEW: (usize, usize) = (1, 2);
const MANY: (usize, usize) = (5, 4);

const SUBREDDITS: [&str; 3] = ["food", "music", "books"];

/// Every column that must not depend on kills.
const POSTS: &str = "SELECT fullname, subreddit, title, selftext, url, permalink, author, reddit_score, upvote_ratio, \
    num_comments, flair, over_18, is_self, source, text_hash, created_at, removed_at, text_purged_at, \
    checked_at IS NULL FROM posts ORDER BY fullname";

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

/// Starts the program and kills it some time after this much progress; returns true if it was still running.
async fn kill(mut command: Command, url: &str, far: usize, wait: Duration) -> bool {
    let mut running = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while stored(url).await < far && running.try_wait().unwrap().is_none() {
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
async fn check_integrity(program: &Program, database: &TestDatabase, kill: &str) {
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
    assert_eq!(answer, "ok", "{kill}");
    std::fs::remove_file(copy).unwrap();
}

fn compare(calm: &[Vec<Value>], found: &[Vec<Value>], what: &str) {
    let differ = calm.iter().zip(found).find(|(calm, found)| calm != found);
    assert_eq!(differ, None, "{what}");
    assert_eq!(calm.len(), found.len(), "{what}");
}

/// Kills the program on some databases and compares each with an undisturbed one.
///
/// `until` is one more than the latest progress at which it is killed; `tables` are compared at the end.
async fn kill_and_compare(
    name: &str,
    program: &Program,
    command: impl Fn(&str) -> Command,
    until: usize,
    (rounds, kills): (usize, usize),
    tables: &[&str],
) {
    let clock = SystemClock::shared();
    let mut random = random();
    let seed = random.get_seed();
    let backends = databases().len();
    for backend in 0..backends {
        let fresh = || databases().swap_remove(backend);
        let begun = clock.elapsed();
        let calm = fresh();
        let ran = command(&calm.url).output().unwrap();
        let took = clock.elapsed().saturating_sub(begun);
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        let step = usize::try_from(took.as_millis()).unwrap() / until.min(8) + 1;
        let mut hit = 0;
        for round in 0..rounds {
            let database = fresh();
            // Each run resumes the previous run's work, so the kills are in order of progress.
            let mut marks: Vec<usize> = (0..kills).map(|_| random.usize(..until)).collect();
            marks.sort_unstable();
            for far in marks {
                let wait = Duration::from_millis(random.usize(..step) as u64);
                let kill_name = format!(
                    "{name}, {}, seed {seed}, round {round}: killed {wait:?} after {far}",
                    database.url.split(':').next().unwrap()
                );
                hit += usize::from(kill(command(&database.url), &database.url, far, wait).await);
                check_integrity(program, &database, &kill_name).await;
            }
            let last = command(&database.url).output().unwrap();
            let what = format!("{name}, {}, seed {seed}, round {round}", database.url);
            assert!(
                last.status.success(),
                "{what}: {}",
                String::from_utf8_lossy(&last.stderr)
            );
            for sql in tables {
                let calm = rows(&calm.url, sql).await;
                assert!(!calm.is_empty(), "{sql}");
                compare(
                    &calm,
                    &rows(&database.url, sql).await,
                    &format!("{what}: {sql}"),
                );
            }
            check_integrity(program, &database, &what).await;
        }
        assert!(
            hit >= rounds * kills * 4 / 5,
            "{name}, seed {seed}: only {hit} of {rounds} × {kills} kills found the program running"
        );
    }
}

fn pipeline(program: &Program) -> String {
    let head = "name = \"six\"\nhypothesis_template = \"{}\"\nmode = \"single\"\nthreshold = 0.0\n";
    let topics = SUBREDDITS.map(|name| {
        format!("[[topic]]\nslug = \"{name}\"\nlabel = \"{name}\"\ndescriptions = []\nsubreddits = [\"{name}\"]\n")
    });
    let text = head.to_owned() + topics.concat().as_str();
    program.write("six.toml", text)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_killed_twice_equals_an_undisturbed_one() {
    import_is_killed(FEW).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: crashes anywhere"]
async fn an_import_killed_at_any_step_equals_an_undisturbed_one() {
    import_is_killed(MANY).await;
}

async fn import_is_killed(times: (usize, usize)) {
    const POSTS_OF_DUMP: usize = 36_000;
    let program = Program::new();
    let pipeline = pipeline(&program);
    // Every fourth post is filtered out.
    let dump: String = (0..POSTS_OF_DUMP / 3 * 4)
        .map(|i| {
            let subreddit = ["food", "Music", "books", "knitting"][i % 4];
            let row = json!({
                "author": format!("user{}", i % 97), "created_utc": 1_700_000_000 + i, "id": format!("d{i:06}"),
                "score": i, "selftext": "text ".repeat(i % 20), "subreddit": subreddit,
                "title": format!("Title {i}"), "num_comments": 3, "is_self": true,
            });
            format!("{row}\n")
        })
        .collect();
    let file = program.write("RS.zst", zstd::encode_all(dump.as_bytes(), 3).unwrap());
    let command = |url: &str| {
        let mut command = program.command(&["--database", url, "import", "--format", "dump"]);
        command
            .args(["--pipeline", &pipeline, &file])
            .env("TOPICMILL__COLLECT__STORE_AUTHOR", "true");
        command
    };
    let tables = [
        POSTS,
        // One sighting per post and day, from whichever run.
        "SELECT DISTINCT topic, fullname, listing, best_rank, reddit_score FROM sightings ORDER BY topic, fullname",
        "SELECT file, selection, name, byte_offset, rows_read, left_out, posts, rejected, \
           finished_at IS NOT NULL FROM imports",
        "SELECT stage, status FROM runs ORDER BY id DESC LIMIT 1",
    ];
    let until = POSTS_OF_DUMP * 4 / 5;
    kill_and_compare("import", &program, command, until, times, &tables).await;
}
