//! People are told of runs: once when one fails, once when it works again, and once a day; and telling costs no run
//! anything.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};
use topicmill::clock::SystemClock;
use wiremock::matchers::{body_partial_json, header, method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::support::postgres::{TestDatabase, databases, sqlite};
use crate::support::program::{Program, Ran, finished, on_reddit};
use crate::support::reddit::{page, server};

const ONE_TOPIC: &str = "name = \"one\"\n[[topic]]\nslug = \"climate\"\nlabel = \"climate change\"\nsubreddits = [\"climate\"]\n";

/// Writes each object that it is told on a line of a file.
fn told_to(program: &Program) -> (String, std::path::PathBuf) {
    let told = program.folder.path().join("told.ndjson");
    let command = json!(["sh", "-c", "cat >> \"$0\"", told]);
    (command.to_string(), told)
}

fn read(told: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(told).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Collects one topic from a Reddit, and tells as `settings` say.
fn collect(
    program: &Program,
    database: &TestDatabase,
    reddit: &str,
    settings: &[(&str, &str)],
) -> Ran {
    let pipeline = program.write("one.toml", ONE_TOPIC);
    let args = [
        "--database",
        &database.url,
        "collect",
        "--pipeline",
        &pipeline,
    ];
    let mut command = program.command(&args);
    on_reddit(&mut command, reddit).env("TOPICMILL__REDDIT__TRIES", "1");
    for (name, value) in settings {
        command.env(format!("TOPICMILL__NOTIFY__{name}"), value);
    }
    finished(command.output().unwrap())
}

async fn reddit_that_answers() -> MockServer {
    let server = server().await;
    Mock::given(path("/r/climate/hot"))
        .respond_with(page(&["a1", "a2"]))
        .mount(&server)
        .await;
    Mock::given(path("/r/climate/new"))
        .respond_with(page(&["a1", "a2"]))
        .mount(&server)
        .await;
    server
}

/// Refuses the credentials.
async fn reddit_that_refuses() -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(401))
        .mount(&server)
        .await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_and_a_recovery_are_told_once_each_and_the_day_once() {
    let (good, bad) = (reddit_that_answers().await, reddit_that_refuses().await);
    for database in databases() {
        let program = Program::new();
        let (command, told) = told_to(&program);
        let always = [("COMMAND", command.as_str()), ("SUMMARY_HOUR", "24")];
        let events = || -> Vec<String> {
            let events = read(&told).into_iter();
            events
                .map(|one| one["event"].as_str().unwrap().to_owned())
                .collect()
        };
        // Something that works is no news.
        let ran = collect(&program, &database, &good.uri(), &always);
        assert_eq!((ran.code, events().len()), (0, 0), "{}", ran.stderr);
        for _ in 0..3 {
            let ran = collect(&program, &database, &bad.uri(), &always);
            assert_eq!(ran.code, 3, "{}", ran.stderr);
        }
        assert_eq!(events(), ["failed"]);
        for _ in 0..2 {
            let ran = collect(&program, &database, &good.uri(), &always);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
        }
        assert_eq!(events(), ["failed", "recovered"]);
        let failed = &read(&told)[0];
        assert_eq!(
            (&failed["what"], &failed["run"]),
            (&json!("collect"), &json!(2)),
            "{failed}"
        );
        let text = failed["text"].as_str().unwrap();
        assert!(
            text.starts_with("topicmill: collect failed\nRun 2 of collect by "),
            "{text}"
        );
        assert!(
            text.contains(failed["error"].as_str().unwrap_or("no topic could be read")),
            "{text}"
        );
        // Two processes at once tell of the day once.
        let daily = [("COMMAND", command.as_str()), ("SUMMARY_HOUR", "0")];
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    assert_eq!(collect(&program, &database, &good.uri(), &daily).code, 0);
                });
            }
        });
        collect(&program, &database, &good.uri(), &daily);
        assert_eq!(events(), ["failed", "recovered", "summary"]);
        let summary = &read(&told)[2];
        let text = summary["text"].as_str().unwrap();
        assert_eq!(text.lines().count(), 6, "a title and five lines: {text}");
        assert!(
            text.contains("failed 3, in part 0") && text.contains("Stored: 2;"),
            "{text}"
        );
        assert_eq!(summary["failed"], 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_sent_is_a_warning_and_is_sent_with_the_next_run() {
    let bad = reddit_that_refuses().await;
    let database = sqlite();
    let program = Program::new();
    let (command, told) = told_to(&program);
    for (broken, said) in [
        (
            "[\"no-such-program\"]",
            "start `no-such-program` of `notify.command`",
        ),
        (
            "[\"false\"]",
            "`false` of `notify.command` ended with exit status: 1",
        ),
    ] {
        let ran = collect(
            &program,
            &database,
            &bad.uri(),
            &[("COMMAND", broken), ("SUMMARY_HOUR", "24")],
        );
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("the next run tries again"),
            "{}",
            ran.stderr
        );
    }
    collect(
        &program,
        &database,
        &bad.uri(),
        &[("COMMAND", &command), ("SUMMARY_HOUR", "24")],
    );
    assert_eq!(read(&told).len(), 1);
    assert_eq!(read(&told)[0]["run"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_gets_json_or_text_and_its_address_is_never_shown() {
    let bad = reddit_that_refuses().await;
    let hook = MockServer::start().await;
    Mock::given(path("/services/s3cret"))
        .and(header("content-type", "application/json"))
        .and(body_partial_json(
            json!({"event": "failed", "what": "collect"}),
        ))
        .respond_with(ResponseTemplate::new(200))
        .expect(1)
        .mount(&hook)
        .await;
    Mock::given(path("/topic-s3cret"))
        .and(header("title", "topicmill: collect failed"))
        .and(|request: &Request| request.body.starts_with(b"Run 1 of collect by "))
        .respond_with(ResponseTemplate::new(200))
        .expect(1)
        .mount(&hook)
        .await;
    // It must not be followed: the secret would go along.
    Mock::given(path("/moved-s3cret"))
        .respond_with(ResponseTemplate::new(302).insert_header("location", "/services/s3cret"))
        .mount(&hook)
        .await;
    for (place, format, said) in [
        ("services/s3cret", "json", None),
        ("topic-s3cret", "text", None),
        ("moved-s3cret", "json", Some("answered 302")),
        ("gone-s3cret", "json", Some("answered 404")),
    ] {
        let (program, database) = (Program::new(), sqlite());
        let url = format!("{}/{place}", hook.uri());
        let settings = [
            ("WEBHOOK", url.as_str()),
            ("WEBHOOK_FORMAT", format),
            ("SUMMARY_HOUR", "24"),
        ];
        let ran = collect(&program, &database, &bad.uri(), &settings);
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert_eq!(
            ran.stderr.contains("nobody was notified"),
            said.is_some(),
            "{}",
            ran.stderr
        );
        assert!(
            said.is_none_or(|said| ran.stderr.contains(said)),
            "{}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
        let shown = finished(
            program
                .command(&["config", "show"])
                .env("TOPICMILL__NOTIFY__WEBHOOK", &url)
                .output()
                .unwrap(),
        );
        assert!(
            shown.stdout.contains("notify.webhook") && !shown.stdout.contains("s3cret"),
            "{}",
            shown.stdout
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_or_a_command_that_hangs_is_cut_off_and_costs_the_run_nothing() {
    let bad = reddit_that_refuses().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || stream.read_to_end(&mut Vec::new()));
        }
    });
    let url = format!("http://{address}/s3cret");
    let program = Program::new();
    let pids = program.folder.path().join("pids");
    let command = json!(["sh", "-c", "sleep 600 & echo $! > \"$0\"; wait", pids]).to_string();
    for setting in [("WEBHOOK", url.as_str()), ("COMMAND", &command)] {
        let database = sqlite();
        let clock = SystemClock::shared();
        let ran = collect(
            &program,
            &database,
            &bad.uri(),
            &[setting, ("SUMMARY_HOUR", "24")],
        );
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert!(
            ran.stderr.contains("took longer than 5 s and was cut off"),
            "{}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
        assert!(clock.elapsed().as_secs() < 30);
        let runs = program.ok(&[
            "--database",
            &database.url,
            "sql",
            "SELECT status FROM runs",
            "--format",
            "csv",
        ]);
        assert_eq!(runs.stdout.lines().last(), Some("failed"));
    }
    // What it started is gone, too.
    let pid = std::fs::read_to_string(pids).unwrap();
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[test]
fn settings_that_name_nobody_or_two_are_refused_with_what_to_do() {
    let program = Program::new();
    for (name, value, said) in [
        ("WEBHOOK", "ftp://s3cret", "no http or https address"),
        ("WEBHOOK", "s3cret", "no http or https address"),
        ("WEBHOOK_FORMAT", "xml", "none of json, text"),
        ("SUMMARY_HOUR", "25", "an hour from 0 to 23"),
        ("SUMMARY_HOUR", "noon", "not a whole number"),
        ("COMMAND", "[\"a\", 1]", "a list of texts is needed"),
        ("COMMAND", "[\"\"]", "names no program"),
    ] {
        let mut command = program.command(&["config", "show"]);
        let ran = finished(
            command
                .env(format!("TOPICMILL__NOTIFY__{name}"), value)
                .output()
                .unwrap(),
        );
        assert_eq!(ran.code, 2, "{name} {value}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{name} {value}: {}", ran.stderr);
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    }
    program.write(
        "topicmill.toml",
        "[notify]\ncommand = [\"a\"]\nwebhook = \"https://x.example/\"\n",
    );
    let ran = program.run(&["config", "show"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("both set: empty one of them"),
        "{}",
        ran.stderr
    );
    program.write("topicmill.toml", "[notify]\ncommand = [\"tell\", \"me\"]\n");
    let shown = program.ok(&["config", "show", "--format", "csv"]);
    assert!(
        shown.stdout.contains("[\"\"tell\"\",\"\"me\"\"]"),
        "{}",
        shown.stdout
    );
}

#[test]
fn the_summary_is_sent_by_hand_to_whom_the_settings_name() {
    let (program, database) = (Program::new(), sqlite());
    program.ok(&["--database", &database.url, "db", "create"]);
    let args = ["--database", &database.url, "status", "--notify"];
    let nobody = program.run(&args);
    assert_eq!(nobody.code, 2, "{}", nobody.stderr);
    assert!(
        nobody
            .stderr
            .contains("set `notify.command` or `notify.webhook`"),
        "{}",
        nobody.stderr
    );
    let (command, told) = told_to(&program);
    let ran = finished(
        program
            .command(&args)
            .env("TOPICMILL__NOTIFY__COMMAND", command)
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let told = read(&told);
    assert_eq!((told.len(), &told[0]["event"]), (1, &json!("summary")));
    let text = told[0]["text"].as_str().unwrap();
    assert!(text.contains("Last good runs: nothing ran yet"), "{text}");
    let ran = finished(
        program
            .command(&args)
            .env("TOPICMILL__NOTIFY__COMMAND", "false")
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, 1, "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn a_settings_file_of_a_stranger_names_no_program_to_run() {
    use std::os::unix::fs::PermissionsExt;
    let program = Program::new();
    program.write("topicmill.toml", "[notify]\ncommand = [\"evil\"]\n");
    let file = program.folder.path().join("topicmill.toml");
    assert_eq!(program.run(&["config", "show"]).code, 0);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let ran = program.run(&["config", "show"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("take `notify.command` from"),
        "{}",
        ran.stderr
    );
    assert_eq!(
        program
            .run(&["--config", "topicmill.toml", "config", "show"])
            .code,
        0
    );
    std::fs::write(&file, "[notify]\ncommand = []\n").unwrap();
    assert_eq!(program.run(&["config", "show"]).code, 0);
}
