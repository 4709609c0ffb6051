//! Tests the metrics of a worker and a web server.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Child;

use topicmill_core::table;

use crate::support::builders::lines;
use crate::support::exposition::{Family, read};
use crate::support::postgres::sqlite;
use crate::support::program::{Program, signal, start_server};
use crate::support::wait::until_blocking;

type Families = BTreeMap<String, Family>;

/// A program that serves metrics; killed when dropped.
struct Watched {
    child: Child,
    address: SocketAddr,
}

impl Watched {
    fn start(program: &Program, args: &[&str]) -> Self {
        let command = program.command(&[args, &["--metrics-listen", "localhost:0"]].concat());
        let (child, address) = start_server(command, "serving metrics at http://");
        Self { child, address }
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

    fn metrics(&self) -> Families {
        let (head, body) = self.ask("GET /metrics");
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(
            head.contains("content-type: text/plain; version=0.0.4"),
            "{head}"
        );
        read(&body)
    }

    /// Waits until the metrics satisfy a condition and returns them.
    fn until(&self, condition: impl Fn(&Families) -> bool) -> Families {
        let mut families = Families::default();
        until_blocking("the metrics satisfy the condition", || {
            families = self.metrics();
            condition(&families)
        });
        families
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_worker_and_a_web_server_export_their_own_metrics_and_the_databases() {
    let program = Program::on(sqlite()).labelled(20);
    let args = ["classify", "--watch", "--pipeline", "first.toml"];
    let worker = Watched::start(&program, &args);
    // These posts arrive while the worker is watching.
    program.import(&lines(50, 50));
    let of = |families: &Families, name: &str| families[name].samples.values().sum::<f64>();
    let families = worker.until(|families| {
        of(families, "topicmill_posts_labelled_total") >= 30.0
            && of(families, "topicmill_backlog_posts") < 1.0
            && of(families, "topicmill_posts") >= 50.0
    });
    for (name, value) in [
        ("topicmill_posts_labelled_total", "30"),
        ("topicmill_database_up", "1"),
        ("topicmill_last_run_failed", "0"),
    ] {
        assert_eq!(of(&families, name).to_string(), value, "{name}");
    }
    let good = &families["topicmill_last_good_run_timestamp_seconds"];
    assert!(good.samples.values().all(|at| *at > 1.7e9), "{good:?}");
    let server = Watched::start(&program, &["serve", "--listen", "127.0.0.1:0"]);
    let families = server.metrics();
    assert_eq!(of(&families, "topicmill_posts").to_string(), "50");
    assert_eq!(
        of(&families, "topicmill_posts_labelled_total").to_string(),
        "0"
    );
}

#[test]
fn the_metrics_listener_serves_only_two_paths() {
    let program = Program::on(sqlite());
    program.ok("db create");
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
    let url = program.url();
    let file = url.strip_prefix("sqlite:").unwrap();
    assert!(
        !std::path::Path::new(&format!("{file}-wal")).exists(),
        "the WAL is merged into the file"
    );
}

#[test]
fn a_port_in_use_is_reported_before_the_work_as_a_usage_error() {
    let program = Program::on(sqlite()).labelled(2);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (command, listen, message) in table! {
        &["classify"][..], address.as_str(), "the port is in use";
        &["serve", "--listen", "127.0.0.1:0"][..], &address, "choose a different port with --metrics-listen";
        &["classify"][..], "nowhere", "`nowhere` is not an address to listen on";
        &["classify"][..], "192.0.2.1:9187", "this machine does not have this address";
    } {
        let args = [command, &["--metrics-listen", listen]];
        program.run(&args.concat()).expect_exit(2, message);
    }
    assert_eq!(program.count("runs"), 2);
}
