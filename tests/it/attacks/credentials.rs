//! Passwords, tokens and keys must not appear in messages, logs or requests.

use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::program::{Program, RunOutput, finished, on_reddit};

/// The secret that no output may contain.
const SENTINEL: &str = "hush0sentinel";

/// Runs several commands with one setting, and asserts that nothing that they print or record contains the secret.
#[track_caller]
fn assert_hidden(variable: &str, value: &str) {
    for line in [
        "config show --origin",
        "-vv db info",
        "-vv db create",
        "-vv collect --run-json run.json",
        "-vv collect --source arctic-shift",
        "-vv --log-format json status",
    ] {
        let program = Program::new();
        let mut command = program.command(line);
        // Nothing listens on this port.
        on_reddit(&mut command, "http://127.0.0.1:1")
            .env("TOPICMILL__ARCTIC_SHIFT__API_URL", "ftp://nowhere")
            .env("TOPICMILL__REDDIT__TRIES", "1")
            .env("TOPICMILL__REDDIT__USERNAME", "me")
            .env("TOPICMILL__REDDIT__PASSWORD", SENTINEL)
            .env("TOPICMILL__SERVE__TOKEN", SENTINEL)
            .env(variable, value);
        let RunOutput { stdout, stderr, .. } = finished(command.output().unwrap());
        let record = std::fs::read_to_string(program.path("run.json")).unwrap_or_default();
        let all = [stdout, stderr, record].concat();
        let leak = all.lines().find(|line| line.contains(SENTINEL));
        assert_eq!(leak, None, "{line} with {variable}={value}");
        // The client's secret, which `on_reddit` sets.
        assert!(!all.contains("a-secret"), "{all}");
        assert!(!line.starts_with("config") || all.contains("***"), "{all}");
    }
}

#[test]
fn no_form_of_a_database_url_shows_its_password() {
    for url in [
        "host=127.0.0.1 user=me password=hush0sentinel",
        "host=127.0.0.1 password='a hush0sentinel'",
        "me:hush0sentinel@127.0.0.1",
        "postgres:/me:hush0sentinel@127.0.0.1/db",
        "postgres:me:hush0sentinel@127.0.0.1:1/db",
        "POSTGRES://me:hush0sentinel@127.0.0.1:1/db",
        "postgres://me:hush0sentinel@127.0.0.1:x/db",
        "postgres://127.0.0.1:1/db?%70assword=hush0sentinel",
        "postgres://127.0.0.1:1/db?sslpassword=hush0sentinel",
        "postgres://127.0.0.1:1/db?sslmode=hush0sentinel&sslkey=hush0sentinel",
        "postgres://127.0.0.1:1/db?port=hush0sentinel",
        "postgres://127.0.0.1:1/db?token=hush0sentinel#hush0sentinel",
        "sqlite:x.db?password=hush0sentinel",
        "sqlite://me:hush0sentinel@h/x.db",
    ] {
        assert_hidden("TOPICMILL__DATABASE__URL", url);
    }
}

#[test]
fn neither_demo_nor_doctor_shows_the_password_of_an_unreachable_database() {
    for url in [
        "postgres://me:hush0sentinel@127.0.0.1:1/db",
        "postgres://127.0.0.1:1/db?user=me&password=hush0sentinel",
        "postgres://me:hush0sentinel?@/@127.0.0.1:1/db",
    ] {
        for line in ["-vv demo --database", "-vv doctor --offline --database"] {
            let ran = Program::new().run(&format!("{line} {url}"));
            assert_ne!(ran.code, 0, "{line} {url}");
            let all = ran.stdout + &ran.stderr;
            assert!(!all.contains(SENTINEL), "{line} {url}\n{all}");
        }
    }
}

#[test]
fn no_url_shows_its_password() {
    for variable in [
        "TOPICMILL__REDDIT__AUTH_URL",
        "TOPICMILL__REDDIT__API_URL",
        "TOPICMILL__ARCTIC_SHIFT__API_URL",
    ] {
        for url in [
            "https://me:hush0sentinel@127.0.0.1:1",
            "https://hush0sentinel@127.0.0.1:1/",
            "http://me:hush0sentinel@a.example",
            "https://me:hush0sentinel@127.0.0.1:x",
            "me:hush0sentinel@127.0.0.1",
            "https://127.0.0.1:1/?key=hush0sentinel",
        ] {
            assert_hidden(variable, url);
        }
    }
}

#[test]
fn no_message_shows_a_proxy_password() {
    for level in ["info", "trace"] {
        let program = Program::new();
        let mut command = program.command("-vv collect");
        on_reddit(&mut command, "https://reddit.invalid")
            .env("TOPICMILL__REDDIT__TRIES", "1")
            .env("TOPICMILL_LOG", level)
            .env("HTTPS_PROXY", "http://me:hush0sentinel@127.0.0.1:1")
            .env("HTTP_PROXY", "http://me:hush0sentinel@127.0.0.1:1")
            .env("ALL_PROXY", "http://me:hush0sentinel@127.0.0.1:1");
        let ran = finished(command.output().unwrap());
        ran.expect_code(75);
        let output = ran.stderr.lines().find(|line| line.contains(SENTINEL));
        assert_eq!(output, None, "at {level}");
    }
}

#[test]
fn a_misplaced_url_is_not_echoed_with_its_password() {
    let program = Program::new();
    for args in [
        &["db", "info", "postgres://me:hush0sentinel@h/db"][..],
        &["postgres://me:hush0sentinel@h/db", "status"],
        &["--databse", "postgres://me:hush0sentinel@h/db", "status"],
        &["--databse=postgres://me:hush0sentinel@h/db", "status"],
        &["status", "host=h password=hush0sentinel"],
    ] {
        let ran = program.run(args);
        assert_eq!(ran.code, 2, "{args:?}");
        assert!(!ran.stderr.contains(SENTINEL), "{args:?} {}", ran.stderr);
        ran.expect_stderr("error:");
    }
}

#[test]
fn driver_errors_do_not_quote_the_password_file() {
    let program = Program::new();
    let path = program.write("pgpass", "hush0sentinel without any colon\n");
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    std::fs::set_permissions(&path, mode).unwrap();
    let mut command = program.command("-vv status");
    command
        .env("PGPASSFILE", &path)
        .env("TOPICMILL_LOG", "trace")
        .env("DATABASE_URL", "postgres://me@127.0.0.1:1/db");
    let ran = finished(command.output().unwrap());
    ran.expect_code(4);
    assert!(!ran.stderr.contains(SENTINEL), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_endpoint_that_repeats_the_request_leaks_nothing() {
    let repeated = json!({"message": format!("wrong password {SENTINEL}"), "error": 500});
    for answer in [
        ResponseTemplate::new(500).set_body_json(&repeated),
        ResponseTemplate::new(404).set_body_json(&repeated),
        ResponseTemplate::new(200).set_body_json(SENTINEL),
        ResponseTemplate::new(302).insert_header("location", format!("/{SENTINEL}").as_str()),
    ] {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(answer).mount(&server).await;
        let program = Program::new();
        let mut command = program.command("-vv collect --run-json run.json");
        on_reddit(&mut command, &server.uri())
            .env("TOPICMILL__REDDIT__TRIES", "1")
            .env("TOPICMILL__REDDIT__USERNAME", "me")
            .env("TOPICMILL__REDDIT__PASSWORD", SENTINEL);
        let ran = finished(command.output().unwrap());
        assert_ne!(ran.code, 0);
        let all = ran.stdout + &ran.stderr + &program.read("run.json");
        assert!(!all.contains(SENTINEL), "{all}");
        let errors = program.rows("SELECT error, CAST(outcomes AS TEXT) FROM runs");
        assert!(!errors.to_string().contains(SENTINEL), "{errors}");
    }
}

#[test]
fn a_variable_that_is_not_utf_8_or_would_drop_tls_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let program = Program::new();
    for name in ["DATABASE_URL", "TOPICMILL__DATABASE__URL", "PGPASSWORD"] {
        let mut command = program.command("db create");
        command.env(name, std::ffi::OsStr::from_bytes(b"sqlite:caf\xe9.db"));
        finished(command.output().unwrap()).expect_exit(2, name);
    }
    let url = "postgres://me@127.0.0.1:1/db?sslMode=require";
    let ran = program.run(&["--database", url, "db", "info"]);
    ran.expect_exit(2, "sslmode");
}
