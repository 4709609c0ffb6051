//! Tests maintenance of a whole database: backup, check, copy, and dropping label sets and models.

mod backup;
mod check;
mod copy;
mod drop;

use topicmill_store::{Access, Store};

use crate::support::program::{Program, RunOutput, run_limited};
use crate::support::rows::{execute, fill as filled, read_all};

/// Inserts this many posts into a SQLite database; with many, a copy takes long enough to be interrupted.
async fn many(url: &str, posts: u32) {
    let text = "a body of some length, ".repeat(50);
    let rows = format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {posts}) \
         INSERT INTO things (fullname, subreddit, title, selftext, over_18, is_self, source, text_hash, created_at, \
           collected_at, updated_at, topic) \
         SELECT 't3_m' || n, 'food', 'Title', '{text}', FALSE, TRUE, 'import', HASH(Title; {text}), \
           '2026-01-01T09:00:00+00:00', '2026-01-01T09:00:00+00:00', '2026-01-01T09:00:00+00:00', 'food' FROM n"
    );
    execute(url, &rows).await;
}

/// Runs the program with a file size limit of `kib`, which simulates a full disk.
pub fn run_on_small_disk(program: &Program, kib: u32, line: &str) -> RunOutput {
    run_limited(&program.command(line), &format!("ulimit -f {kib}"))
}
