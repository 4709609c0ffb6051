//! Waits for conditions. A wait fails only after minutes, because the machine may be slow.

use std::time::Duration;

use topicmill_core::clock::SystemClock;

use super::postgres::number;

const DEADLINE: Duration = Duration::from_mins(5);
const PAUSE: Duration = Duration::from_millis(10);

/// Polls until a condition holds.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let clock = SystemClock::shared();
    while !so().await {
        assert!(clock.elapsed() < DEADLINE, "{what}: still not");
        clock.sleep(PAUSE).await;
    }
}

/// Polls until a condition holds, without a runtime.
pub fn until_blocking(what: &str, mut so: impl FnMut() -> bool) {
    let clock = SystemClock::shared();
    while !so() {
        assert!(clock.elapsed() < DEADLINE, "{what}: still not");
        std::thread::sleep(PAUSE);
    }
}

/// The condition of a PostgreSQL session that is waiting for a lock.
pub const BLOCKED: &str = "wait_event_type = 'Lock'";

/// Counts the sessions of a PostgreSQL database for which a condition on `pg_stat_activity` holds.
pub async fn sessions(url: &str, condition: &str) -> i64 {
    let sql = format!(
        "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
            AND pid <> pg_backend_pid() AND {condition}"
    );
    number(url, &sql).await
}
