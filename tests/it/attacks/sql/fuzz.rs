//! Texts that nobody thought of.

use std::path::Path;

use tokio_util::sync::CancellationToken;
use topicmill::store::{Access, Inquiry, Store, StoreError, parts};

use super::{files, sqlite_beside};
use crate::support::program::Program;

/// Statements, of which the fuzzer takes pieces.
const CORPUS: [&str; 14] = [
    "SELECT * FROM runs WHERE worker = 'a' AND id > 1",
    "SELECT COUNT(*) AS [a;b], \"worker\" FROM runs GROUP BY 2; -- done",
    "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT * FROM n",
    "EXPLAIN QUERY PLAN SELECT * FROM labeled_posts",
    "PRAGMA table_info(runs)",
    "PRAGMA query_only = OFF",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "VACUUM INTO 'copy.db'",
    "ATTACH 'copy.db' AS copy",
    "DELETE FROM runs RETURNING *",
    "INSERT INTO runs SELECT * FROM runs /* ; */",
    "CREATE TEMP TABLE x AS SELECT 1 AS [']",
    "SELECT load_extension('x'), x'00ff', zeroblob(9)",
];
const MARKS: [&str; 12] = [
    ";", "'", "\"", "]", "[", "--", "/*", "*/", "\n", "\0", "\u{1b}", "漢",
];

/// Pieces of statements, put together and damaged. `SQL_FUZZ` says how many; `SQL_FUZZ_SEED`, which.
#[tokio::test(flavor = "multi_thread")]
async fn no_text_changes_a_file_or_makes_one() {
    let number = |name: &str, default: u64| {
        let given = std::env::var(name).ok();
        given.map_or(default, |n| n.parse().expect("a number"))
    };
    let (times, seed) = (number("SQL_FUZZ", 400), number("SQL_FUZZ_SEED", 11));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut below = |end: usize| random.usize(..end);
    let program = Program::new();
    let url = sqlite_beside(&program).await;
    program.write("sentinel", "as it was");
    let store = Store::open(&url, Access::ReadOnly).await.unwrap();
    // The reader's own notes are there from the first question on.
    store.query("SELECT 1").await.unwrap();
    let before = files(program.folder.path());
    let here = files(Path::new("."));
    let mut answered = 0;
    for _ in 0..times {
        let mut text = CORPUS[below(CORPUS.len())].to_owned();
        for _ in 0..below(4) {
            let other = CORPUS[below(CORPUS.len())];
            let words: Vec<&str> = text.split_inclusive(' ').collect();
            let others: Vec<&str> = other.split_inclusive(' ').collect();
            let (at, from) = (below(words.len() + 1), below(others.len()));
            text = match below(5) {
                0 => format!("{text}; {other}"),
                1 => [&words[..at], &others[from..]].concat().concat(),
                2 => [&words[..at], &[MARKS[below(MARKS.len())]], &words[at..]]
                    .concat()
                    .concat(),
                3 => [&words[..at], &words[(at + 1).min(words.len())..]]
                    .concat()
                    .concat(),
                _ => [&words[..at], &[others[from]], &words[at..]]
                    .concat()
                    .concat(),
            };
        }
        let (into, mut parts) = parts();
        let inquiry = Inquiry {
            sql: text.clone(),
            limit: Some(100),
            at_most: None,
            patience: None,
            longest: None,
            any_user: false,
            stop: CancellationToken::new(),
        };
        let take = async { while parts.recv().await.is_some() {} };
        let (asked, ()) = tokio::join!(store.ask(inquiry, into), take);
        match asked {
            Ok(_) => answered += 1,
            Err(error) => assert!(matches!(error, StoreError::Query(_)), "{text:?}: {error}"),
        }
        assert!(before == files(program.folder.path()), "{text:?}");
    }
    assert!(
        here == files(Path::new(".")),
        "a file appeared where the program runs"
    );
    assert!(
        answered * 10 > times,
        "{answered} of {times} are few that got past the parser"
    );
}
