//! Tests `doctor`: its exit code, and what it says of Reddit's credentials.

use serde_json::{Value, json};
use topicmill_core::table;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::logging::with_quota;
use crate::support::postgres::databases;
use crate::support::program::{Program, find_row, finished, on_reddit};
use crate::support::reddit::{page, requests, server};

/// Runs `doctor`; returns its exit code, and its row about a check.
pub fn doctor(program: &Program, flags: &str, check: &str) -> (i32, Value) {
    let ran = program.run(&format!("doctor --offline --format json {flags}"));
    (ran.code, find_row(&ran.json(), "check", check).clone())
}

#[tokio::test]
async fn doctor_exits_with_the_code_of_the_first_command_that_would_fail() {
    let program = Program::new();
    // A missing database is not an error. Missing credentials are an error for Reddit, but not for an archive.
    assert_eq!(doctor(&program, "", "Arctic Shift").0, 0);
    let (code, row) = doctor(&program, "--source reddit", "Reddit credentials");
    assert_eq!((code, &row["state"]), (3, &json!("missing")), "{row}");
    program.run("collect --source reddit").expect_code(3);
    for database in databases() {
        drop(database.open().await);
        database.run("DELETE FROM _sqlx_migrations").await;
        let program = Program::on(database);
        let (code, row) = doctor(&program, "--source sample", "database");
        assert_eq!(code, 4, "{row}");
        let detail = row["detail"].as_str().unwrap();
        assert!(detail.contains("db create"), "{detail}");
    }
}

/// Returns `doctor`'s row about the credentials for the Reddit at a URL.
fn credentials(url: &str) -> Value {
    let program = Program::new();
    let mut command = program.command("doctor --format json");
    let ran = finished(on_reddit(&mut command, url).output().unwrap());
    find_row(&ran.json(), "check", "Reddit credentials").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_distinguishes_rejected_credentials_from_a_forbidden_subreddit() {
    let scope = ResponseTemplate::new(403)
        .insert_header("www-authenticate", "Bearer error=\"insufficient_scope\"")
        .set_body_json(json!({"error": 403}));
    let private = ResponseTemplate::new(403).set_body_json(json!({"reason": "private"}));
    for (answer, state, output, tokens) in table! {
        ResponseTemplate::new(401), "wrong", "two tokens in a row", 2;
        scope, "wrong", "`read` scope", 1;
        with_quota(private, "966"), "ok", "quota: 966 of 996", 1;
        page(&["a1"]), "ok", "reports no quota", 1;
    } {
        let server = server().await;
        Mock::given(method("GET"))
            .respond_with(answer)
            .mount(&server)
            .await;
        let row = credentials(&server.uri());
        assert_eq!(row["state"], state, "{row}");
        assert!(row["detail"].as_str().unwrap().contains(output), "{row}");
        assert_eq!(requests(&server, "POST").await, tokens);
    }
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(401))
        .mount(&server)
        .await;
    let row = credentials(&server.uri());
    assert_eq!(row["state"], "wrong");
    let detail = row["detail"].as_str().unwrap();
    assert!(detail.contains("reddit.client_secret"), "{detail}");
    assert_eq!(requests(&server, "GET").await, 0);
}
