//! Notifications: runs the command of `[notify]` when a stage or schedule fails for the first time, and when it
//! recovers.
//!
//! The command reads one JSON object from stdin. The database stores the last notified state, so that only one of
//! several processes sends a notification. A failed notification never fails a run, and delays it by a few seconds at
//! most: the error is logged, and the next run retries.

use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::metrics::Metrics;
use topicmill_core::record::RunCounts;
use topicmill_core::{RunStatus, Timestamp};
use topicmill_store::{Store, StoreError};

/// Timeout for the command: enough to send a message, and short enough to wait for after every run.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the command and the database statements together.
const TIMEOUT_WITH_DATABASE: Duration = Duration::from_secs(12);
/// Maximum length of an error in a message, in characters.
const MAX_ERROR_CHARS: usize = 600;
/// The states that the database stores.
const FAILED: &str = "failed";
const WORKS: &str = "works";

/// A run that ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedWork<'a> {
    /// The stage, or `schedule NAME`.
    pub what: &'a str,
    /// The id of the run.
    pub run: i64,
    /// The status that it ended with.
    pub status: RunStatus,
    /// The counts of the run.
    pub counts: &'a RunCounts,
    /// The error of the run.
    pub error: Option<&'a str>,
    /// The worker: host and process.
    pub worker: &'a str,
}

/// The command to run; by default none.
#[derive(Default)]
pub struct Notify {
    command: Vec<String>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Notify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The arguments may be secrets.
        f.write_str("Notify")
    }
}

impl Notify {
    /// Creates a notifier. `command` is a program with its arguments; empty disables notifications.
    pub fn new(command: Vec<String>, metrics: Arc<Metrics>) -> Self {
        Self { command, metrics }
    }

    /// Sends a notification if the state changed from working to failed or back. Takes seconds at most and logs its
    /// errors.
    pub async fn notify_ended(&self, store: &Store, ended: &EndedWork<'_>, now: DateTime<Utc>) {
        let works = works(ended.status, ended.counts);
        let Some(works) = works.filter(|_| !self.command.is_empty()) else {
            return;
        };
        let notified = self.notify_if_changed(store, ended, works, now);
        match tokio::time::timeout(TIMEOUT_WITH_DATABASE, notified).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("the notification was not sent: {error}"),
            Err(_) => tracing::warn!(
                "the notification was not sent: the database did not respond in time"
            ),
        }
    }

    async fn notify_if_changed(
        &self,
        store: &Store,
        ended: &EndedWork<'_>,
        works: bool,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let key = format!("notified of {}", ended.what);
        let (from, to, event) = if works {
            (FAILED, WORKS, "recovered")
        } else {
            (WORKS, FAILED, "failed")
        };
        let is_new = if works {
            store.compare_and_set_meta(&key, from, to).await?
        } else {
            store.set_meta_if_changed(&key, to).await?
        };
        if !is_new {
            return Ok(());
        }
        let sent = run(&self.command, &message(event, ended, now)).await;
        self.metrics.notification_ended(event, sent.is_ok());
        if let Err(error) = sent {
            tracing::warn!(
                "the notification was not sent ({event}): {error}; the next run retries"
            );
            store.compare_and_set_meta(&key, to, from).await?;
        }
        Ok(())
    }
}

/// Returns true if the run succeeded, `None` if it was stopped.
fn works(status: RunStatus, counts: &RunCounts) -> Option<bool> {
    match status {
        RunStatus::Failed | RunStatus::Crashed => Some(false),
        RunStatus::Stopped | RunStatus::Running => None,
        // A few failed posts or topics cause no notification; `status` shows them. If all topics fail, the source is
        // down.
        RunStatus::Partial => Some(!no_topic_was_read(counts)),
        RunStatus::Done => Some(true),
    }
}

fn no_topic_was_read(counts: &RunCounts) -> bool {
    let outcomes = counts.outcomes();
    outcomes.is_some_and(|outcomes| !outcomes.is_empty() && !outcomes.contains_key("ok"))
}

/// Builds the object that the command reads; chats show its `text`.
fn message(event: &str, ended: &EndedWork<'_>, now: DateTime<Utc>) -> Value {
    let (what, run, worker) = (ended.what, ended.run, ended.worker);
    let error = ended
        .error
        .map(|it| it.chars().take(MAX_ERROR_CHARS).collect::<String>());
    let which = format!("(run {run} by {worker})");
    let text = match (event, &error) {
        ("recovered", _) => format!("topicmill: {what} works again {which}"),
        (_, Some(error)) => format!("topicmill: {what} failed {which}: {error}"),
        (_, None) => {
            let outcomes = json!(ended.counts.outcomes());
            format!("topicmill: {what} failed {which}: no topic could be read, {outcomes}")
        }
    };
    json!({
        "event": event, "text": text, "what": what, "run": run, "status": ended.status, "error": error,
        "worker": worker, "at": Timestamp::from(now),
    })
}

/// Returns the executable file of a program, which is searched for in `PATH` unless its name is a path.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let name = program.strip_suffix(EXE_SUFFIX).unwrap_or(program);
    let file = format!("{name}{EXE_SUFFIX}");
    if program.contains(std::path::is_separator) {
        return Some(PathBuf::from(file)).filter(|path| is_executable(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(&file))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    #[cfg(unix)]
    let may_run = rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    #[cfg(not(unix))]
    let may_run = true;
    may_run && path.is_file()
}

async fn run(command: &[String], message: &Value) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("no program is set")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        // Stdout of this program is for data, stderr for log lines.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    // A process group, so that a timeout also kills its children, and Ctrl-C in the terminal does not reach it.
    #[cfg(unix)]
    command.process_group(0);
    let not_started = |error| {
        format!(
            "cannot start `{program}` of `notify.command`: {error}; check its path and that it is executable"
        )
    };
    let mut child = command.spawn().map_err(not_started)?;
    let text = format!("{message}\n");
    let stdin = child.stdin.take();
    let work = async {
        if let Some(mut stdin) = stdin {
            // A program may ignore stdin; its exit status decides.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
        child.wait().await
    };
    let Ok(ended) = tokio::time::timeout(TIMEOUT, work).await else {
        kill(&mut child).await;
        let secs = TIMEOUT.as_secs();
        return Err(format!(
            "`{program}` of `notify.command` took longer than {secs} s and was killed"
        ));
    };
    let status = ended.map_err(not_started)?;
    if status.success() {
        return Ok(());
    }
    Err(format!(
        "`{program}` of `notify.command` ended with {status}; try it by hand with a JSON object on stdin"
    ))
}

/// Kills a program and its children.
async fn kill(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::Stage;

    #[test]
    fn only_failures_that_need_attention_count_as_failed() {
        let read = |outcomes: Value| {
            let counts = json!({"by_outcome": outcomes});
            RunCounts::read(Stage::Collect, &counts)
        };
        let some = read(json!({"ok": 1, "server": 15}));
        let none = read(json!({"server": 16}));
        for (status, counts, expected) in [
            (RunStatus::Done, &some, Some(true)),
            (RunStatus::Partial, &some, Some(true)),
            (RunStatus::Partial, &none, Some(false)),
            (RunStatus::Stopped, &none, None),
            (RunStatus::Failed, &none, Some(false)),
            (RunStatus::Crashed, &some, Some(false)),
        ] {
            assert_eq!(works(status, counts), expected, "{status}");
        }
    }
}
