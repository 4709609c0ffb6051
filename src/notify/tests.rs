//! What is told, when, and by whom of several.

use std::path::Path;

use chrono::{DateTime, TimeDelta};
use serde_json::{Value, json};

use super::*;
use crate::store::Access;

async fn store(folder: &Path) -> Store {
    let url = format!("sqlite:{}", folder.join("n.db").display());
    Store::open(&url, Access::Create).await.unwrap()
}

/// Tells a file of `folder`.
fn notify(folder: &Path) -> Notify {
    let told = folder.join("told").display().to_string();
    let command = ["sh", "-c", "cat >> \"$0\"", &told].map(str::to_owned);
    Notify::new(Way::Command(command.to_vec()), Some(6), Arc::default())
}

fn told(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("told")).unwrap_or_default();
    let events = text.lines().map(|line| {
        let told: Value = serde_json::from_str(line).unwrap();
        told["event"].as_str().unwrap().to_owned()
    });
    events.collect()
}

fn ended(status: RunStatus, counts: &Value) -> Ended<'_> {
    Ended {
        what: "collect",
        run: 7,
        is_slot: false,
        status,
        counts,
        error: None,
        worker: "host:1",
    }
}

fn morning() -> DateTime<Utc> {
    DateTime::from_timestamp(1_790_000_000, 0)
        .unwrap()
        .date_naive()
        .and_hms_opt(5, 59, 0)
        .unwrap()
        .and_utc()
}

#[tokio::test]
async fn the_day_is_told_once_after_its_hour_whoever_looks() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    let (one, other) = (notify(folder.path()), notify(folder.path()));
    let at = |minutes| morning() + TimeDelta::minutes(minutes);
    one.daily(&store, at(0)).await;
    assert_eq!(told(folder.path()).len(), 0, "before its hour");
    tokio::join!(one.daily(&store, at(1)), other.daily(&store, at(1)));
    one.daily(&store, at(60)).await;
    other.daily(&store, at(18 * 60)).await;
    assert_eq!(told(folder.path()), ["summary"]);
    other.daily(&store, at(24 * 60)).await;
    assert_eq!(
        told(folder.path()).len(),
        1,
        "before the hour of the next day"
    );
    other.daily(&store, at(24 * 60 + 1)).await;
    one.daily(&store, at(24 * 60 + 2)).await;
    assert_eq!(told(folder.path()).len(), 2);
}

#[tokio::test]
async fn a_day_of_which_nobody_heard_is_told_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    let broken = Notify::new(Way::Command(vec!["false".into()]), Some(0), Arc::default());
    broken.daily(&store, morning()).await;
    let works = Notify {
        summary_hour: Some(0),
        ..notify(folder.path())
    };
    works.daily(&store, morning()).await;
    broken.daily(&store, morning()).await;
    assert_eq!(told(folder.path()), ["summary"]);
}

#[tokio::test]
async fn only_a_change_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    let quiet = Notify {
        summary_hour: None,
        ..notify(folder.path())
    };
    let (some, none) = (
        json!({"by_outcome": {"ok": 1, "server": 15}}),
        json!({"by_outcome": {"server": 16}}),
    );
    for (status, counts, heard) in [
        (RunStatus::Done, &some, 0),
        (RunStatus::Partial, &some, 0),
        (RunStatus::Stopped, &none, 0),
        (RunStatus::Partial, &none, 1),
        (RunStatus::Failed, &none, 1),
        (RunStatus::Died, &none, 1),
        (RunStatus::Stopped, &some, 1),
        (RunStatus::Partial, &some, 2),
        (RunStatus::Done, &some, 2),
        (RunStatus::Died, &some, 3),
    ] {
        quiet.ended(&store, &ended(status, counts), morning()).await;
        assert_eq!(told(folder.path()).len(), heard, "{status}");
    }
    assert_eq!(told(folder.path()), ["failed", "recovered", "failed"]);
    let text = std::fs::read_to_string(folder.path().join("told")).unwrap();
    assert!(
        text.contains("no topic could be read (16 server in the last run)"),
        "{text}"
    );
}

#[test]
fn a_way_is_an_address_or_none_and_shows_nothing_of_it() {
    for bad in [
        "",
        "s3cret",
        "ftp://host/s3cret",
        "file:///etc/s3cret",
        "http://",
    ] {
        let error = Way::webhook(bad, false).unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
    let way = Way::webhook("https://hooks.example/s3cret", false).unwrap();
    assert!(!format!("{way:?}").contains("s3cret"));
    assert!(Way::default().is_nobody());
}
