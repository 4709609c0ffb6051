//! Tests the metrics of a worker and a web server, on both databases, and that the docs and the alert rules name existing
//! metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use topicmill::metrics::{METRICS, MetricKind};

use crate::serve::{labelled, posts};
use crate::support::engine::repository;
use crate::support::exposition::{Family, read};
use crate::support::postgres::{databases, sqlite};
use crate::support::program::{Program, signal};

/// A program that serves metrics; killed when dropped.
struct Watched {
    child: Child,
    address: SocketAddr,
}

impl Watched {
    fn start(program: &Program, args: &[&str]) -> Self {
        let mut command = program.command(&[args, &["--metrics-listen", "localhost:0"]].concat());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("serving metrics at http://")?;
            rest.split('/').next()?.parse().ok()
        });
        // Keep reading, so that its log does not fill the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Self {
            child,
            address: address.expect("the program logs the address of its metrics"),
        }
    }

    /// Sends a request line; returns the head of the response, in lower case, and its body.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let request = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), body.to_owned())
    }

    fn metrics(&self) -> BTreeMap<String, Family> {
        let (head, body) = self.ask("GET /metrics");
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(
            head.contains("content-type: text/plain; version=0.0.4"),
            "{head}"
        );
        read(&body)
    }

    /// Waits until the metrics satisfy a condition and returns them.
    fn until(
        &self,
        condition: impl Fn(&BTreeMap<String, Family>) -> bool,
    ) -> BTreeMap<String, Family> {
        for _ in 0..300 {
            let families = self.metrics();
            if condition(&families) {
                return families;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!(
            "the condition is still false after a minute: {:#?}",
            self.metrics()
        );
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the sum of a metric's samples with these labels.
fn sum(families: &BTreeMap<String, Family>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let Some(family) = families.get(name) else {
        panic!("no {name}");
    };
    let samples = family.samples.iter().filter(|((_, found), _)| {
        let has = |(label, value): &(&str, &str)| found.get(*label).is_some_and(|is| is == value);
        labels.iter().all(has)
    });
    samples.map(|(_, value)| value).sum()
}

#[test]
fn a_worker_and_a_web_server_export_their_own_metrics_and_the_databases() {
    for database in databases() {
        let program = labelled(&database, &posts(20));
        let pipeline = program.folder.path().join("two.toml").display().to_string();
        let args = ["classify", "--watch", "--pipeline", &pipeline];
        let worker = Watched::start(&program, &args);
        // These posts arrive while the worker is watching.
        let more = posts(50).lines().skip(20).collect::<Vec<_>>().join("\n");
        let more = program.write("more.ndjson", more);
        program.ok(&["import", &more]);
        let families = worker.until(|families| {
            sum(families, "topicmill_posts_labelled_total", &[]) >= 30.0
                && sum(families, "topicmill_backlog_posts", &[]) < 1.0
                && sum(families, "topicmill_posts", &[]) >= 50.0
        });
        let of = |name, labels: &[_]| sum(&families, name, labels);
        for (name, value) in [
            ("topicmill_posts_labelled_total", "30"),
            ("topicmill_database_up", "1"),
            ("topicmill_runs_in_progress", "1"),
        ] {
            assert_eq!(of(name, &[]).to_string(), value, "{name}");
        }
        assert!(of("topicmill_tokens_total", &[]) > 100.0);
        assert!(of("topicmill_padded_tokens_total", &[]) >= of("topicmill_tokens_total", &[]));
        assert!(of("topicmill_batch_duration_seconds", &[("le", "+Inf")]) >= 1.0);
        assert!(of("topicmill_engine_seconds_total", &[("state", "busy")]) > 0.0);
        let ratios = of("topicmill_label_ratio", &[]);
        assert!((ratios - 1.0).abs() < 1e-9, "{ratios}");
        let import = [("stage", "import")];
        assert!(of("topicmill_last_good_run_timestamp_seconds", &import) > 1.7e9);
        assert_eq!(of("topicmill_last_run_failed", &import).to_string(), "0");
        // Every exported metric is in the docs' table, with the same labels.
        for (name, family) in &families {
            let metric = METRICS
                .iter()
                .find(|metric| metric.name == name)
                .expect(name);
            assert_eq!(metric.kind == MetricKind::Counter, name.ends_with("_total"));
            assert_eq!(
                (metric.kind.word(), metric.help),
                (family.kind.as_str(), family.help.as_str())
            );
            let ((_, labels), _) = family.samples.first_key_value().unwrap();
            let labels: BTreeSet<&str> = labels.keys().map(String::as_str).collect();
            let mut known: BTreeSet<&str> = metric.labels.iter().copied().collect();
            known.extend(Some("le").filter(|_| metric.kind == MetricKind::Histogram));
            assert_eq!(labels, known, "{name}");
        }
        let args = ["serve", "--listen", "127.0.0.1:0"];
        let server = Watched::start(&program, &args);
        let families = server.metrics();
        for (name, value) in [
            ("topicmill_posts", "50"),
            ("topicmill_posts_labelled_total", "0"),
        ] {
            assert_eq!(sum(&families, name, &[]).to_string(), value, "{name}");
        }
    }
}

#[test]
fn the_metrics_listener_serves_only_two_paths() {
    let database = sqlite();
    let program = Program::with_database(&database.url);
    program.ok(&["db", "create"]);
    let args = ["classify", "--watch"];
    let worker = Watched::start(&program, &args);
    assert!(worker.address.ip().is_loopback());
    let status = |request: &str| {
        worker
            .ask(request)
            .0
            .split_whitespace()
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert_eq!(worker.ask("GET /healthz").1, "ok\n");
    assert_eq!(status("GET /metrics"), "200");
    for (request, expected) in [
        ("GET /", "404"),
        ("GET /posts", "404"),
        ("GET /metrics/../etc/passwd", "404"),
        ("POST /metrics", "405"),
        ("DELETE /healthz", "405"),
    ] {
        assert_eq!(status(request), expected, "{request}");
    }
    // Idle clients do not delay others, and the worker still exits on a signal.
    let _silent: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(worker.address).unwrap())
        .collect();
    assert_eq!(status("GET /metrics"), "200");
    let mut worker = worker;
    signal(&worker.child, "-TERM");
    assert_eq!(worker.child.wait().unwrap().code(), Some(143));
    let file = database.url.strip_prefix("sqlite:").unwrap();
    assert!(
        !std::path::Path::new(&format!("{file}-wal")).exists(),
        "the WAL is merged into the file"
    );
}

#[test]
fn a_port_in_use_is_reported_before_the_work_as_a_usage_error() {
    let database = sqlite();
    let program = labelled(&database, &posts(2));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (command, listen, message) in [
        (&["classify"][..], address.as_str(), "the port is in use"),
        (
            &["serve", "--listen", "127.0.0.1:0"][..],
            &address,
            "choose a different port with --metrics-listen",
        ),
        (
            &["classify"][..],
            "nowhere",
            "`nowhere` is not an address to listen on",
        ),
        (
            &["classify"][..],
            "192.0.2.1:9187",
            "this machine does not have this address",
        ),
    ] {
        let args = [command, &["--metrics-listen", listen]];
        program.run(&args.concat()).expect_exit(2, message);
    }
    let rows = program.ok(&["sql", "SELECT COUNT(*) AS n FROM runs", "--format", "json"]);
    assert_eq!(
        serde_json::from_str::<Value>(&rows.stdout).unwrap(),
        json!([{"n": 2}])
    );
}

/// Returns topicmill's metric names in a string.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| word.starts_with("topicmill_") || word.starts_with("process_");
    words.filter(ours).map(str::to_owned).collect()
}

#[test]
fn alert_rules_use_existing_metrics_and_the_docs_list_all() {
    let mut known: BTreeSet<String> = METRICS
        .iter()
        .map(|metric| metric.name.to_owned())
        .collect();
    for metric in METRICS
        .iter()
        .filter(|metric| metric.kind == MetricKind::Histogram)
    {
        known.insert(format!("{}_bucket", metric.name));
    }
    let text = |name: &str| std::fs::read_to_string(repository(name)).unwrap();
    for file in ["alerts.yml", "alerts_test.yml"] {
        let names = named(&text(&format!("pipelines/monitoring/{file}")));
        assert!(names.len() > 5, "{file}: {names:?}");
        let unknown: Vec<_> = names.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
    let page = text("docs/monitor.md");
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `topicmill_") || line.starts_with("| `process_"))
        .collect();
    let expected: Vec<String> = METRICS
        .iter()
        .map(|metric| {
            let labels: Vec<String> = metric
                .labels
                .iter()
                .map(|label| format!("`{label}`"))
                .collect();
            let (name, kind, help) = (metric.name, metric.kind.word(), metric.help);
            format!("| `{name}` | {kind} | {} | {help} |", labels.join(", "))
        })
        .collect();
    assert_eq!(rows, expected, "the table in docs/monitor.md");
    let alerts = text("pipelines/monitoring/alerts.yml");
    let alerts = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: Topicmill"));
    let tested = text("pipelines/monitoring/alerts_test.yml");
    for name in alerts {
        let fires = format!("alertname: Topicmill{name}\n        exp_alerts:");
        assert!(tested.contains(&fires), "nothing makes {name} fire");
    }
}
