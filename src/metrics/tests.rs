//! The output is valid for Prometheus, and the docs and the alert rules name its metrics.

#[path = "../../tests/it/support/exposition.rs"]
mod exposition;

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use topicmill_core::clock::SystemClock;
use topicmill_core::record::RunCounts;
use topicmill_core::{Stage, Timestamp};
use topicmill_store::{Access, Store};

fn at(secs: i64) -> Timestamp {
    Timestamp::from_epoch_secs(secs).unwrap()
}

/// Returns figures in which every metric has a value.
async fn figures() -> DatabaseFigures {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("m.db").display());
    let store = Store::open(&url, Access::Create).await.unwrap();
    let now = at(1_000).as_datetime();
    let mut figures = DatabaseFigures::read(&store, 3, now).await.unwrap();
    figures.newest = Some(at(900));
    figures.archive = Some(topicmill_store::ArchiveState {
        newest_at: at(850),
        measured_at: at(880),
    });
    figures.last_runs = vec![topicmill_store::LastRun {
        stage: Stage::Classify,
        id: topicmill_store::RunId(1),
        status: topicmill_core::RunStatus::Failed,
        finished_at: at(800),
        error: None,
        good_at: Some(at(700)),
        idle: 0,
    }];
    figures.scheduled = vec![topicmill_store::ScheduledRunRow {
        schedule: "nightly \"odd\"\\\nname".into(),
        due_at: at(600),
        status: topicmill_core::ScheduledRunStatus::Done,
        started_at: at(660),
        finished_at: None,
        error: None,
    }];
    let quota = json!({"remaining": 966.0, "used": 1.0, "resets_at": "1970-01-01T00:00:00Z"});
    let counts = json!({"by_outcome": {"ok": 3}, "reddit": {"quota": quota}});
    figures.collected = RunCounts::read(Stage::Collect, &counts);
    figures
}

/// Returns the words of a text that are names of metrics.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("topicmill_") || word.starts_with("process_"))
        .collect()
}

/// Returns the text in which every metric has a value.
async fn full_text() -> String {
    let metrics = Metrics::default();
    metrics.add_labelled(&ClassifyCounts {
        posts: 10,
        leases_lost: 1,
        ..ClassifyCounts::default()
    });
    metrics.text(Some(&figures().await))
}

/// Reads a file of the repository.
fn read(name: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join(name)).unwrap()
}

#[tokio::test]
async fn the_text_has_the_values_and_the_docs_list_every_metric() {
    let text = full_text().await;
    for line in [
        "topicmill_posts_labelled_total 10",
        "topicmill_last_run_failed{stage=\"classify\"} 1",
        "topicmill_last_good_run_timestamp_seconds{stage=\"classify\"} 700",
        "topicmill_quota_remaining{source=\"reddit\"} 966",
        r#"topicmill_scheduled_run_lateness_seconds{schedule="nightly \"odd\"\\\nname"} 60"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let families = exposition::read(&text);
    let row = |(name, family): (&String, &exposition::Family)| {
        let ((_, labels), _) = family.samples.first_key_value().unwrap();
        let label = labels.keys().map(|label| format!("`{label}`"));
        let label: String = label.collect();
        format!("| `{name}` | {} | {label} | {} |", family.kind, family.help)
    };
    let rows: BTreeSet<String> = families.iter().map(row).collect();
    let page = read("docs/monitor.md");
    let is_row = |line: &&str| line.starts_with("| `topicmill_") || line.starts_with("| `process_");
    let listed: BTreeSet<String> = page.lines().filter(is_row).map(str::to_owned).collect();
    assert_eq!(listed, rows, "the table in docs/monitor.md");
}

#[tokio::test]
async fn alert_rules_use_known_metrics_and_each_is_tested_and_documented() {
    let families = exposition::read(&full_text().await);
    let (rules, tested) = (
        read("monitoring/alerts.yml"),
        read("monitoring/alerts_test.yml"),
    );
    for text in [&rules, &tested] {
        let mut names = named(text).into_iter();
        let unknown = names.find(|name| !families.contains_key(*name));
        assert_eq!(unknown, None);
    }
    let page = read("docs/monitor.md");
    let mut alerts = 0;
    for name in rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
    {
        alerts += 1;
        let fires = format!("alertname: {name}\n        exp_alerts:");
        assert!(tested.contains(&fires), "nothing makes {name} fire");
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
    assert!(alerts > 0, "the file has no alerts");
}

/// Returns the response of `/metrics`.
async fn scrape(listening: &Listening) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(listening.address)
        .await
        .unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    exposition::read(body);
    body.to_owned()
}

#[tokio::test]
async fn database_figures_are_cached_and_a_failed_database_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("m.db").display());
    let store = Store::open(&url, Access::Create).await.unwrap();
    let start = async |store: &Store| {
        let listen = "127.0.0.1:0".parse().unwrap();
        let (metrics, clock) = (std::sync::Arc::default(), SystemClock::shared());
        serve(listen, metrics, store.clone(), clock, 5)
            .await
            .unwrap()
    };
    let listening = start(&store).await;
    let first = scrape(&listening).await;
    assert!(first.contains("topicmill_database_up 1\n"), "{first}");
    assert!(first.contains("topicmill_posts 0\n"), "{first}");
    store.close().await.unwrap();
    // The database is not read again within five seconds.
    assert!(scrape(&listening).await.contains("topicmill_posts 0\n"));
    listening.close().await;
    let listening = start(&store).await;
    let text = scrape(&listening).await;
    assert!(text.contains("topicmill_database_up 0\n"), "{text}");
    assert!(!text.contains("topicmill_posts 0"), "{text}");
}
