//! Tests the log and the records of runs: the summary line, `-q`, JSON, and that no line contains a secret or a post's
//! text.

use serde_json::{Value, json};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::collect::child;
use crate::support::program::{Program, RunOutput, finished, on_reddit};
use crate::support::reddit::{page, server};

const TWO_TOPICS: &str = r#"
name = "two"
mode = "single"
[[topic]]
slug = "climate"
label = "climate change"
subreddits = ["climate"]
[[topic]]
slug = "secret"
label = "secrets"
subreddits = ["hidden"]
"#;

/// Adds the headers of Reddit's quota to a response.
pub fn with_quota(answer: ResponseTemplate, remaining: &str) -> ResponseTemplate {
    answer
        .insert_header("x-ratelimit-remaining", remaining)
        .insert_header("x-ratelimit-used", "30")
        .insert_header("x-ratelimit-reset", "300")
}

/// Serves the subreddits of [`TWO_TOPICS`], of which the second is private.
async fn half_private() -> MockServer {
    let server = server().await;
    let private = ResponseTemplate::new(403).set_body_json(json!({"reason": "private"}));
    for (subreddit, answer, remaining) in [
        ("climate", page(&["a1", "a2"]), "967.0"),
        ("hidden", private, "966.0"),
    ] {
        Mock::given(path(format!("/r/{subreddit}/hot")))
            .respond_with(with_quota(answer, remaining))
            .mount(&server)
            .await;
    }
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_logs_one_summary_line_and_records_its_counts() {
    let server = half_private().await;
    let busy = ResponseTemplate::new(429).insert_header("retry-after", "0");
    Mock::given(path("/r/climate/hot"))
        .respond_with(busy)
        .up_to_n_times(1)
        .with_priority(1)
        .mount(&server)
        .await;
    let program = Program::new();
    program.write("two.toml", TWO_TOPICS);
    let mut command = program.command("collect --pipeline two.toml --run-json run.json");
    on_reddit(&mut command, &server.uri()).env("TOPICMILL__COLLECT__CONCURRENCY", "1");
    let ran = finished(command.output().unwrap());
    ran.expect_code(1);
    let last = ran.stderr.lines().last().unwrap();
    let summary = "collected 2 topics: 2 posts (2 new) in 4 requests, waited 1 s; 1 topic private; quota left 966";
    assert!(last.ends_with(summary), "{last}");

    let record = program.read_json("run.json");
    let counts = &record["counts"];
    assert_eq!(counts["by_outcome"], json!({"ok": 1, "private": 1}));
    let traffic = &counts["reddit"];
    let by_status = json!({"200": 2, "403": 1, "429": 1});
    assert_eq!(traffic["by_status"], by_status, "{traffic}");
    for (count, expected) in [("requests", 4), ("retries", 1), ("no_answer", 0)] {
        assert_eq!(traffic[count], expected, "{count}");
    }
    assert!(traffic["waits"]["retry_after"]["secs"].as_f64() >= Some(1.0));
    for other in ["own_pace", "their_quota", "backoff"] {
        assert_eq!(traffic["waits"][other]["times"], 0, "{other}");
    }
    assert_eq!(traffic["quota"]["remaining"], 966.0);
    assert!(traffic["quota"]["resets_at"].is_string(), "{traffic}");
    let outcomes = record["outcomes"].as_array().unwrap();
    let outcomes: Vec<&Value> = outcomes.iter().map(|topic| &topic["outcome"]).collect();
    assert_eq!(outcomes, ["ok", "private"]);
    // The run's row contains the same counts.
    let stored = program.scalar("SELECT counts FROM runs");
    let stored: Value = serde_json::from_str(stored.as_str().unwrap()).unwrap();
    assert_eq!(stored, *counts);
}

/// Collects the topics of [`TWO_TOPICS`].
fn collect(program: &Program, reddit: &MockServer, flags: &str) -> RunOutput {
    program.write("two.toml", TWO_TOPICS);
    let mut command = program.command(&format!("collect --pipeline two.toml {flags}"));
    finished(on_reddit(&mut command, &reddit.uri()).output().unwrap())
}

/// Returns the lines of a log in JSON.
fn lines(ran: &RunOutput) -> Vec<Value> {
    let line = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    ran.stderr.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn quiet_mode_still_names_a_failed_topic() {
    let reddit = half_private().await;
    let ran = collect(&Program::new(), &reddit, "-q");
    ran.expect_code(1);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    ran.expect_stderr_all(&["ERROR", "topic=secret", "private"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_of_a_json_log_is_json_and_those_about_topics_name_the_run() {
    let reddit = half_private().await;
    let program = Program::new();
    for run in 1..=2 {
        let output = lines(&collect(&program, &reddit, "--log-format json"));
        let mut of_topics = output.iter().filter(|line| line["topic"].is_string());
        assert!(of_topics.clone().count() >= 2, "{output:?}");
        assert!(of_topics.all(|line| line["run"] == run), "{output:?}");
        assert_eq!(output.last().unwrap()["run"], run, "the summary line");
    }
}

#[test]
fn a_fatal_error_is_json_even_if_the_settings_are_unreadable() {
    let program = Program::new();
    program.ok("db create");
    for (line, words) in [
        ("--database sqlite:no/such.db status", "no/such.db"),
        ("--config no-such.toml status", "no-such.toml"),
        ("sql 'SELEC 1'", "SELEC"),
    ] {
        let by_flag = program.run(&format!("--log-format json {line}"));
        let by_variable = program.run_with(&[("log.format", "json")], line);
        for ran in [by_flag, by_variable] {
            assert_ne!(ran.code, 0);
            let output = lines(&ran);
            let last = output.last().expect("the error is logged");
            assert_eq!(last["level"], "ERROR", "{last}");
            assert!(last["timestamp"].as_str().unwrap().starts_with("20"));
            assert!(last["message"].as_str().unwrap().contains(words), "{last}");
        }
    }
}

/// Strings that must not be logged: credentials, the token, and every word of a post.
const FORBIDDEN: [&str; 9] = [
    "hush-secret",
    "hush-password",
    "hush-account",
    "hush-token",
    "hush-title",
    "hush-text",
    "hush-author",
    "hush-url",
    "aHVzaC", // The beginning of `hush…` in the header of basic authentication.
];

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_contain_no_secret_and_no_post_text() {
    let server = MockServer::start().await;
    let grant = json!({"access_token": "hush-token", "expires_in": 3600, "scope": "*"});
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(200).set_body_json(grant))
        .mount(&server)
        .await;
    let words = json!({
        "title": "hush-title", "selftext": "hush-text", "author": "hush-author",
        "is_self": false, "url": "https://hush-url.example/",
    });
    let mut broken = child("b", &words);
    broken["data"]["created_utc"] = json!("hush-text");
    let mut odd = child("c", &words);
    odd["data"]["name"] = Value::Null;
    odd["data"]["id"] = Value::Null;
    let comment = json!({"kind": "t1", "data": {"body": "hush-text", "author": "hush-author"}});
    let children = [child("a", &words), broken, odd, comment, json!("hush-text")];
    let listing = json!({"kind": "Listing", "data": {"after": null, "children": children}});
    let listing = ResponseTemplate::new(200).set_body_json(&listing);
    let cut = ResponseTemplate::new(200).set_body_string("{\"data\": {\"title\": \"hush-text");
    let other = ResponseTemplate::new(200).set_body_json(json!({"title": "hush-title"}));
    let refusal = json!({"reason": "private", "message": "hush-text"});
    let refusal = ResponseTemplate::new(403).set_body_json(refusal);
    for (subreddit, answer) in [
        ("climate", &listing),
        ("hidden", &refusal),
        ("cut", &cut),
        ("spare", &other),
    ] {
        Mock::given(path(format!("/r/{subreddit}/hot")))
            .respond_with(answer.clone())
            .mount(&server)
            .await;
    }

    let topic = |name: &str| {
        format!("[[topic]]\nslug = \"{name}\"\nlabel = \"{name}\"\nsubreddits = [\"{name}\"]\n")
    };
    let pipeline = format!("{TWO_TOPICS}{}{}", topic("cut"), topic("spare"));
    for (format, level) in [("text", None), ("json", None), ("text", Some("trace"))] {
        let program = Program::new();
        program.write("four.toml", &pipeline);
        let collect = format!("-vv --log-format {format} collect --pipeline four.toml");
        let mut command = program.command(&collect);
        on_reddit(&mut command, &server.uri())
            .env("TOPICMILL__REDDIT__CLIENT_ID", "hush-id")
            .env("TOPICMILL__REDDIT__CLIENT_SECRET", "hush-secret")
            .env("TOPICMILL__REDDIT__USERNAME", "hush-account")
            .env("TOPICMILL__REDDIT__PASSWORD", "hush-password")
            .env("TOPICMILL__REDDIT__TRIES", "2");
        if let Some(level) = level {
            command.env("TOPICMILL_LOG", level);
        }
        let ran = finished(command.output().unwrap());
        ran.expect_exit(1, "collected 4 topics: 1 post (1 new, 4 rejected)");
        let all = ran.stdout + ran.stderr.as_str();
        for word in FORBIDDEN {
            let line = all.lines().find(|line| line.contains(word));
            assert_eq!(line, None, "{word} is logged");
        }
    }
}
