//! Detects that the schedules of a pipeline file have changed since a scheduler read them.
//!
//! A scheduler reads its file once. It records what it follows in the database, by host and file, so that `status` on
//! the same host can compare.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::ScheduleEntry;
use topicmill_store::{Store, StoreError, host_name};

fn key(file: &Path) -> String {
    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    format!("schedules of {}:{}", host_name(), path.display())
}

/// Returns schedules in the form in which they are recorded and compared.
fn recorded(entries: &[ScheduleEntry]) -> String {
    let recorded = |entry: &ScheduleEntry| {
        json!({
            "name": entry.name, "due": entry.timetable.to_string(), "stages": entry.stages,
            "timeout_secs": entry.timeout.as_ref().map(Duration::as_secs),
        })
    };
    let recorded: Value = entries.iter().map(recorded).collect();
    recorded.to_string()
}

/// Records the schedules of a file that a scheduler follows from now on.
///
/// # Errors
/// Errors of the store.
pub async fn record_followed(
    store: &Store,
    file: &Path,
    entries: &[ScheduleEntry],
) -> Result<(), StoreError> {
    store.set_meta(&key(file), &recorded(entries)).await
}

/// Returns true if the last scheduler that read this file read other schedules.
///
/// # Errors
/// Errors of the store.
pub async fn has_file_changed(
    store: &Store,
    file: &Path,
    entries: &[ScheduleEntry],
) -> Result<bool, StoreError> {
    let followed = store.meta(&key(file)).await?;
    Ok(followed.is_some_and(|followed| followed != recorded(entries)))
}
