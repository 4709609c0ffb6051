//! Terminal control characters in untrusted text.

use serde_json::{Value, json};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::program::{Program, RunOutput, finished, on_reddit};
use crate::support::reddit::server;
use crate::support::terminal::on_a_terminal;

/// Clears the screen, rings the bell, sets a colour with a C1 code, deletes, and reverses the direction of text.
const EVIL: &str = "evil\u{1b}[2J\u{1b}]0;owned\u{7}\u{7f}\u{9b}31m\u{85}\u{202e}txt\u{2066}\u{200f}\u{61c}\u{8}\r";

/// Characters that must not reach a terminal.
fn is_control(c: char) -> bool {
    let direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}'
        | '\u{61c}');
    direction || (c.is_control() && c != '\n' && c != '\t')
}

fn assert_harmless(what: &str, text: &str) {
    let found = text.chars().find(|c| is_control(*c));
    assert_eq!(found, None, "{what}: {text:?}");
}

/// Returns the program on a database in which every untrusted string is hostile.
fn evil() -> Program {
    let program = Program::new();
    let row = json!({
        "id": "e1", "subreddit": "climate", "title": EVIL, "selftext": EVIL, "author": EVIL,
        "created_utc": 1_700_000_000, "link_flair_text": EVIL, "is_self": true,
    });
    program.write("evil.ndjson", row.to_string());
    program.ok("import --format dump evil.ndjson");
    program
}

#[test]
fn titles_are_escaped_for_terminals_and_unchanged_for_programs() {
    let program = evil();
    let query = format!("SELECT title, flair, 1 AS \"{EVIL}\" FROM posts");
    let query_as = |format: &str| program.ok(&["sql", &query, "--format", format]).stdout;
    let table = query_as("table");
    assert_harmless("table", &table);
    assert!(table.contains("evil␛[2J␛]0;owned␇␡\u{fffd}31m"), "{table}");
    for format in ["json", "ndjson"] {
        let text = query_as(format);
        assert_harmless(format, &text);
        let mut value: Value = serde_json::from_str(&text).unwrap();
        if format == "json" {
            value = value[0].take();
        }
        assert_eq!(value["title"], EVIL, "{format} is exact");
    }
    let csv = query_as("csv");
    let mut rows = csv::Reader::from_reader(csv.as_bytes());
    let row = rows.records().next().unwrap().unwrap();
    assert_eq!(&row[0], EVIL, "csv is exact");
}

#[test]
fn csv_on_a_terminal_is_escaped() {
    let args = ["sql", "SELECT title FROM posts", "--format", "csv"];
    let Some((text, code)) = on_a_terminal(&evil(), 80, &args) else {
        return; // `script` is not installed.
    };
    assert_eq!(code, 0, "{text}");
    assert_harmless("csv", &text);
    assert!(text.contains("evil␛[2J"), "{text}");
}

/// Imports a file with a hostile name and row, and collects from a Reddit that responds with a hostile reason.
#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_contains_terminal_control_codes() {
    let reddit = server().await;
    let refusal =
        ResponseTemplate::new(403).set_body_json(json!({"reason": EVIL, "message": EVIL}));
    Mock::given(method("GET"))
        .and(path("/r/climate/hot"))
        .respond_with(refusal)
        .mount(&reddit)
        .await;
    let program = Program::new();
    program.pipeline("one", "", &[("climate", "climate change")]);
    let broken = json!({"id": "e1", "subreddit": EVIL, "title": "t", "created_utc": EVIL});
    let dump = program.write(
        &format!("{}.ndjson", EVIL.replace('/', "")),
        format!("{broken}\n{{{EVIL}\n"),
    );
    for format in ["text", "json"] {
        let flags = ["-vv", "--log-format", format];
        let run = |args: &[&str]| -> RunOutput {
            let mut command = program.command(&[&flags[..], args].concat());
            finished(on_reddit(&mut command, &reddit.uri()).output().unwrap())
        };
        let collected = run(&["collect", "--pipeline", "one.toml"]);
        assert_ne!(collected.code, 0, "{}", collected.stderr);
        collected.expect_stderr("not collected");
        let imported = run(&["import", "--format", "dump", "--again", &dump]);
        imported.expect_code(1);
        for ran in [collected, imported] {
            assert_harmless(format, &ran.stderr);
            assert_harmless(format, &ran.stdout);
            // No control character started a new line.
            let mut lines = ran.stderr.lines();
            assert_eq!(lines.find(|line| line.starts_with("txt")), None);
        }
        // A fatal error must be harmless too, although the logger does not print it.
        let gone = run(&["--config", EVIL, "status"]);
        gone.expect_code(2);
        assert_harmless(format, &gone.stderr);
    }
    // `status` prints run records with their details.
    assert_harmless("status", &program.ok("status").stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_oauth_scope_is_escaped() {
    let server = MockServer::start().await;
    let grant = json!({"access_token": "t", "expires_in": 86400, "scope": EVIL});
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(200).set_body_json(grant))
        .mount(&server)
        .await;
    let program = Program::new();
    for format in ["table", "json"] {
        let mut command = program.command(&format!("doctor --format {format}"));
        let ran = finished(on_reddit(&mut command, &server.uri()).output().unwrap());
        assert!(ran.stdout.contains("evil"), "{}", ran.stdout);
        assert_harmless(format, &ran.stdout);
        assert_harmless(format, &ran.stderr);
    }
}
