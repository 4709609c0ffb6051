//! The output is valid for Prometheus and contains what was counted.

#[path = "../../tests/it/support/exposition.rs"]
mod exposition;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use topicmill_score::labeler::BatchTimes;

use super::*;
use topicmill_core::clock::SystemClock;
use topicmill_core::record::QuotaLeft;
use topicmill_store::{Access, Store};

fn value(text: &str, line: &str) -> f64 {
    let value = text.lines().find_map(|found| found.strip_prefix(line));
    let value = value.unwrap_or_else(|| panic!("no {line} in\n{text}"));
    value.trim().parse().unwrap()
}

#[test]
fn counters_are_written_in_the_text_format() {
    let metrics = Metrics::default();
    let mut batches = BatchTimes::default();
    batches.add(Duration::from_millis(7));
    batches.add(Duration::from_secs(70));
    for posts in [10, 5] {
        metrics.add_labelled(&ClassifyCounts {
            posts,
            other: 2,
            pairs_reused: 60,
            leases_lost: 1,
            oom_splits: 3,
            batches: std::mem::take(&mut batches),
            ..ClassifyCounts::default()
        });
    }
    metrics.set_gpus(vec![GpuSample {
        device: "cuda:0".into(),
        gpu_percent: Some(87),
        memory_mib: Some((1_024, 2_048)),
        watts: None,
    }]);
    for posts in [120, 10] {
        let counts = json!({"posts": posts, "new": 80});
        metrics.run_ended(
            Stage::Collect,
            RunStatus::Done,
            &RunCounts::read(Stage::Collect, &counts),
        );
    }
    let purged = RunCounts::read(Stage::Purge, &json!({"purged": 7}));
    metrics.run_ended(Stage::Purge, RunStatus::Done, &purged);
    metrics.scheduled_runs_ended("nightly \"odd\"\\\nname", "done", 1);
    metrics.scheduled_run_began("nightly", Duration::from_millis(1_500));
    let text = metrics.text(None, Some((false, Duration::from_secs(5))));
    let families = exposition::read(&text);
    for (line, expected) in [
        ("topicmill_posts_labelled_total{outcome=\"label\"}", 11.0),
        ("topicmill_pairs_total{origin=\"known\"}", 120.0),
        ("topicmill_leases_lost_total", 2.0),
        ("topicmill_oom_splits_total", 6.0),
        ("topicmill_posts_purged_total", 7.0),
        ("topicmill_batch_duration_seconds_bucket{le=\"0.01\"}", 1.0),
        ("topicmill_batch_duration_seconds_bucket{le=\"30\"}", 1.0),
        ("topicmill_batch_duration_seconds_count", 2.0),
        ("topicmill_posts_collected_total{stage=\"collect\"}", 130.0),
        ("topicmill_posts_new_total{stage=\"collect\"}", 160.0),
        (
            "topicmill_runs_total{stage=\"collect\",status=\"done\"}",
            2.0,
        ),
        ("topicmill_gpu_busy_ratio{device=\"cuda:0\"}", 0.87),
        (
            "topicmill_gpu_memory_bytes{device=\"cuda:0\"}",
            2_147_483_648.0,
        ),
        (
            "topicmill_scheduled_run_lateness_seconds{schedule=\"nightly\"}",
            1.5,
        ),
        ("topicmill_database_up", 0.0),
    ] {
        let found = value(&text, line);
        assert!((found - expected).abs() < 1e-9, "{line} is {found}");
    }
    let runs = &families["topicmill_scheduled_runs_total"].samples;
    let (_, labels) = runs.keys().next().unwrap();
    assert_eq!(labels["schedule"], "nightly \"odd\"\\\nname");
}

#[test]
fn metric_names_follow_the_naming_conventions() {
    let mut names = BTreeSet::new();
    for metric in METRICS {
        let name = metric.name;
        assert!(names.insert(name), "{name} is listed twice");
        assert_eq!(
            metric.kind == MetricKind::Counter,
            name.ends_with("_total"),
            "{name}"
        );
        assert!(name.starts_with("topicmill_") || name.starts_with("process_"));
        assert!(
            !metric.help.ends_with('.') && metric.help.is_ascii(),
            "{name}"
        );
        // A label with a value per post or run would create as many time series.
        for label in metric.labels {
            let bounded = [
                "version",
                "stage",
                "status",
                "source",
                "cause",
                "outcome",
                "origin",
                "state",
                "step",
                "device",
                "schedule",
                "label",
                "label_set",
                "model",
            ];
            assert!(bounded.contains(label), "{name} {label}");
        }
    }
}

#[test]
fn requests_of_a_client_count_during_and_after_its_life() {
    let metrics = Metrics::default();
    let meter = Arc::<Meter>::default();
    metrics.count_requests_of(SourceKind::Reddit, &meter);
    metrics.count_requests_of(SourceKind::Reddit, &meter);
    meter.count_request(false);
    meter.count_response(200);
    let other = Arc::<Meter>::default();
    metrics.count_requests_of(SourceKind::Reddit, &other);
    other.update(|traffic| traffic.no_answer += 1);
    let quota = QuotaLeft {
        remaining: 966.0,
        used: 1.0,
        resets_at: topicmill_core::Timestamp::from_epoch_secs(0).unwrap(),
    };
    other.update(|traffic| traffic.quota = Some(quota));
    let count = |status: &str| {
        let text = metrics.text(None, None);
        exposition::read(&text);
        let line = format!("topicmill_requests_total{{source=\"reddit\",status=\"{status}\"}}");
        value(&text, &line)
    };
    assert_eq!((count("200"), count("none")), (1.0, 1.0));
    meter.count_response(200);
    for (meter, secs) in [(&meter, 2), (&other, 3)] {
        meter.update(|traffic| {
            traffic.retries += 1;
            traffic.waits.their_quota.sum += Duration::from_secs(secs);
        });
    }
    drop((meter, other));
    assert_eq!((count("200"), count("none")), (2.0, 1.0));
    assert_eq!((count("200"), count("none")), (2.0, 1.0), "each once");
    let text = metrics.text(None, None);
    let retries = value(&text, "topicmill_request_retries_total{source=\"reddit\"}");
    let waited = "topicmill_request_wait_seconds_total{source=\"reddit\",cause=\"their_quota\"}";
    assert_eq!((retries, value(&text, waited)), (2.0, 5.0));
    assert!(
        text.contains("topicmill_quota_remaining{source=\"reddit\"} 966\n"),
        "{text}"
    );
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
        let clock = SystemClock::shared();
        let listen = "127.0.0.1:0".parse().unwrap();
        let metrics = Arc::<Metrics>::default();
        serve(listen, metrics, Some(store.clone()), clock, 5)
            .await
            .unwrap()
    };
    let listening = start(&store).await;
    let first = scrape(&listening).await;
    assert!(first.contains("topicmill_database_up 1\n"), "{first}");
    assert!(first.contains("topicmill_posts 0\n"), "{first}");
    // The duration is unchanged only if the database was not read again.
    let took = |text: &str| value(text, "topicmill_database_read_seconds").to_string();
    assert_eq!(took(&first), took(&scrape(&listening).await));
    // Closing the listener closes its connections.
    listening.close().await;
    let listening = start(&store).await;
    let text = scrape(&listening).await;
    assert!(text.contains("topicmill_database_up 0\n"), "{text}");
    assert!(!text.contains("topicmill_posts 0"), "{text}");
    assert!(text.contains("topicmill_build_info{version="), "{text}");
}
