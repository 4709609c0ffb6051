//! Tests that no command depends on autovacuum for the planner's statistics.

use std::fmt::Write as _;
use std::time::Duration;

use topicmill_core::clock::SystemClock;

use crate::support::builders::{LABELS, lines};
use crate::support::postgres::postgres;
use crate::support::program::Program;

const POSTS: usize = 120_000;
const LIMIT: Duration = Duration::from_secs(10);

#[test]
#[ignore = "deep: 120,000 posts"]
fn commands_are_fast_before_autovacuum_comes() {
    let Some(database) = postgres() else { return };
    let program = Program::on(database);
    program.ok("db create");
    program.execute(
        "DO $$ DECLARE name text; BEGIN \
           FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP \
             EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = off)', name); END LOOP; END $$",
    );
    program.import(&lines(POSTS, 300));
    program.pipeline("first", "", &LABELS);
    program.pipeline("second", "", &LABELS[..2]);
    program.ok("classify --pipeline first.toml");
    program.ok("classify --pipeline second.toml --make-current");
    let mut gold = "id,label\n".to_owned();
    for i in (0..POSTS).step_by(100) {
        writeln!(gold, "k{i:05},{}", LABELS[i % 2].0).unwrap();
    }
    program.write("gold.csv", gold);
    let clock = SystemClock::shared();
    let mut slow = Vec::new();
    for command in [
        "labels gold import gold.csv --label-set second",
        "export posts.csv --unlabelled",
        "export posts.parquet",
        "labels evaluate --gold db",
        "labels diff first second",
        "report report.html",
        "status --exact",
        "sql --named topics",
    ] {
        let before = clock.elapsed();
        program.ok(command);
        let took = clock.elapsed().saturating_sub(before);
        if took > LIMIT {
            slow.push((command, took));
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
}
