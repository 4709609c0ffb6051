//! The id of the run that a log line belongs to.

use std::sync::atomic::{AtomicI64, Ordering};

/// The last run that began in this process, for log lines outside its task; 0 between runs.
static LAST_RUN: AtomicI64 = AtomicI64::new(0);

tokio::task_local! {
    /// The run that the current task works for.
    static TASK_RUN: i64;
}

/// Runs `work` as part of a run: its JSON log lines carry the run's id, and so do lines of other threads until it ends.
/// After a failure they carry it until the error is logged by [`fatal`](super::fatal).
///
/// # Errors
/// Returns the error of `work`.
pub async fn in_run<T, E>(id: i64, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    LAST_RUN.store(id, Ordering::Relaxed);
    let ended = TASK_RUN.scope(id, work).await;
    if ended.is_ok() {
        // Another run may have begun; its id is kept.
        let _ = LAST_RUN.compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    ended
}

/// Calls `log`, whose JSON log lines carry the id of a run that has ended.
pub fn log_for_run(id: i64, log: impl FnOnce()) {
    TASK_RUN.sync_scope(id, log);
}

/// Returns the current log line's run; 0 between runs.
pub(super) fn current_run() -> i64 {
    TASK_RUN
        .try_with(|id| *id)
        .unwrap_or_else(|_| LAST_RUN.load(Ordering::Relaxed))
}

/// Ends the last run, for the log lines that follow.
pub(super) fn end_last_run() {
    LAST_RUN.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn concurrent_runs_have_separate_log_lines() {
        let seen = async |id| {
            in_run(id, async {
                tokio::task::yield_now().await;
                Ok::<_, ()>(current_run())
            })
            .await
        };
        assert_eq!(tokio::join!(seen(7), seen(8)), (Ok(7), Ok(8)));
    }

    #[tokio::test]
    async fn lines_after_a_run_do_not_carry_its_id() {
        // Tests of this process run concurrently, so their runs may be seen here, but none has this id.
        let id = i64::MAX;
        let during = in_run(id, async { Ok::<_, ()>(current_run()) }).await;
        assert_eq!(during, Ok(id));
        assert_ne!(current_run(), id);
        log_for_run(id, || assert_eq!(current_run(), id));
        assert_ne!(current_run(), id);
    }
}
