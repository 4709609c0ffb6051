//! Tests `status`: its screen, the suggested next step, `--check` for a monitor, and versions.

mod unusual;

use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use topicmill_core::clock::SystemClock;
use topicmill_core::{RunStatus, Stage, Timestamp};
use topicmill_store::worker_name;
use topicmill_store::{Access, RunId, Store};
use unicode_width::UnicodeWidthStr;

use crate::support::builders::{LABELS, lines};
use crate::support::postgres::{TestDatabase, postgres, sqlite};
use crate::support::program::{Program, find_row};
use crate::support::terminal::on_a_terminal;

/// Returns the program on an empty database.
fn created(database: TestDatabase) -> Program {
    let program = Program::on(database);
    program.ok("db create");
    program
}

/// Returns the checks that `status --check` finds failed.
fn failed_checks(program: &Program, flags: &str) -> Vec<Value> {
    let ran = program.run(&format!("status --check {flags} --format json"));
    let found = ran.json();
    let problems = found["problems"].as_array().unwrap();
    assert_eq!(ran.code, i32::from(!problems.is_empty()), "{found}");
    problems.iter().map(|it| it["check"].clone()).collect()
}

/// Returns the suggested command.
fn next(program: &Program) -> Value {
    program.json("status")["next"]["command"].take()
}

async fn store(program: &Program) -> Store {
    Store::open(&program.url(), Access::Existing).await.unwrap()
}

fn now() -> Timestamp {
    SystemClock::shared().now().into()
}

/// Returns the value next to a name on the screen.
fn answer<'s>(screen: &'s str, word: &str) -> Option<&'s str> {
    let line = screen
        .lines()
        .find_map(|line| line.strip_prefix(&format!(" {word} ")));
    line.map(str::trim)
}

#[test]
fn status_shows_the_way_from_the_first_post_to_the_last_label() {
    let program = created(sqlite());
    let screen = || program.ok("status").stdout;
    assert_eq!(next(&program), "topicmill run");
    assert_eq!(answer(&screen(), "Posts"), Some("0"));
    program.import(&lines(30, 30));
    assert_eq!(next(&program), "topicmill classify");
    let waiting = screen();
    for name in ["Posts", "Waiting"] {
        assert!(
            answer(&waiting, name).unwrap().starts_with("30"),
            "{waiting}"
        );
    }
    program.ok("classify");
    assert_eq!(next(&program), Value::Null);
    let done = screen();
    assert_eq!(answer(&done, "Labelled"), Some("30 (all)"), "{done}");
    assert_eq!(answer(&done, "Waiting"), Some("none"), "{done}");
    for stage in ["classify", "import"] {
        let row: Vec<&str> = answer(&done, stage).unwrap().split_whitespace().collect();
        assert_eq!(row[2..6], ["ago", "1", "0", "30"], "{done}");
    }
    let all = program.json("status");
    assert_eq!(all["last_day"][1]["new"], 30, "{all:#}");
    assert_eq!(all["is_estimate"], false);
    assert!(all["newest"]["collected_at"].is_string(), "{all:#}");

    // The screen fits 80 columns and 24 lines. A narrower terminal gets more lines, but none that is too long.
    for columns in [40, 80] {
        let Some((shown, code)) = on_a_terminal(&program, columns, "status") else {
            continue;
        };
        assert_eq!(code, 0);
        for line in shown.lines() {
            assert!(line.width() <= columns as usize, "{line}");
        }
        assert!(columns < 80 || shown.lines().count() < 24, "{shown}");
    }
}

/// Begins a run of a process of this machine that no longer exists: Linux never assigns its id.
async fn killed_run(store: &Store) -> RunId {
    let me = worker_name();
    let (place, _) = me.rsplit_once(':').unwrap();
    let worker = format!("{place}:99999999");
    let runs = store.runs();
    let run = runs.begin_run(Stage::Classify, &worker, now());
    run.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_run_is_shown_as_running_and_one_without_a_process_as_crashed() {
    let program = created(sqlite());
    program.import(&lines(30, 30));
    let store = store(&program).await;
    let runs = store.runs();
    let elsewhere = runs.begin_run(Stage::Classify, "elsewhere:boot:1:4242", now());
    let elsewhere = elsewhere.await.unwrap();
    runs.record_heartbeat(elsewhere).await.unwrap();
    let all = program.json("status");
    assert_eq!(all["running"][0]["stage"], "classify", "{all:#}");
    assert_eq!(
        all["next"]["command"],
        Value::Null,
        "no command while a run is active"
    );
    assert_eq!(failed_checks(&program, ""), [json!(null); 0]);
    let crashed = runs.mark_crashed(elsewhere, "its process was killed");
    crashed.await.unwrap();

    let killed = killed_run(&store).await;
    let all = program.json("status");
    assert_eq!(all["running"], json!([]));
    assert_eq!(
        (&all["runs"][0]["id"], &all["runs"][0]["status"]),
        (&json!(killed.0), &json!("crashed"))
    );
    assert_eq!(
        all["next"]["command"],
        Value::Null,
        "no command after a failure"
    );
    assert_eq!(failed_checks(&program, ""), ["run_failed"]);
    // `status` itself records nothing.
    let running = format!("runs WHERE id = {} AND status = 'running'", killed.0);
    assert_eq!(program.count(&running), 1);

    // A run that found every post claimed does not hide the crash, and is not a good run.
    let me = worker_name();
    let idle = runs.begin_run(Stage::Classify, &me, now());
    let idle = idle.await.unwrap();
    let (counts, outcomes) = (json!({"posts": 0, "held_elsewhere": 3}), json!([]));
    let ended = runs.finish_run(idle, RunStatus::Done, &counts, &outcomes, None, now());
    ended.await.unwrap();
    for _ in 0..2 {
        assert_eq!(failed_checks(&program, ""), ["run_failed"]);
        let stages = program.json("status")["stages"].take();
        let classify = find_row(&stages, "stage", "classify");
        assert_eq!(
            (&classify["id"], &classify["good_at"]),
            (&json!(killed.0), &Value::Null)
        );
        let crashed = runs.mark_crashed(killed, "its process was killed");
        crashed.await.unwrap();
    }
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_topics_are_listed_with_the_time_of_the_first_failure() {
    let program = created(sqlite());
    program.import(&lines(3, 3));
    let store = store(&program).await;
    let report = |topic: &str, outcome: &str| json!({"topic": topic, "subreddit": topic, "outcome": outcome});
    let mut began = Vec::new();
    for (climate, days) in [("ok", 3), ("private", 2), ("private", 1)] {
        let at = Timestamp::from(now().as_datetime() - chrono::TimeDelta::days(days));
        let runs = store.runs();
        let run = runs.begin_run(Stage::Collect, "w", at).await.unwrap();
        let outcomes = json!([report("climate", climate), report("books", "ok")]);
        let counts = json!({"posts": 3, "new": 0, "by_outcome": {"ok": 1, "private": 1}});
        let ended = runs.finish_run(run, RunStatus::Partial, &counts, &outcomes, None, at);
        ended.await.unwrap();
        began.push(json!(at));
    }
    let failed = program.json("status")["failed_topics"].take();
    let topic = json!([{"topic": "climate", "subreddit": "climate", "outcome": "private", "detail": null,
        "since": began[1], "runs": 2}]);
    assert_eq!(failed, topic);
    // A partial collect counts as success: one day ago, within a limit of two days. The topic has failed for longer.
    let failed = failed_checks(&program, "--max-age-collect 2d");
    assert_eq!(failed, ["topic_failed"]);
    // The configured pipeline file no longer has the topic.
    let two = program.pipeline("two", "", &LABELS[..2]);
    let checked = program.run_with(&[("pipeline", two.as_str())], "status --check");
    assert_eq!((checked.code, checked.stdout.as_str()), (0, "ok\n"));
    store.close().await.unwrap();
}

#[test]
fn a_long_error_is_shown_to_its_end_on_a_terminal() {
    let program = created(sqlite());
    let error = format!("{}remedy", "reason ".repeat(40));
    program.execute(&format!(
        "INSERT INTO runs (stage, status, worker, started_at, finished_at, error) VALUES \
         ('purge', 'failed', 'w', '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:00+00:00', '{error}')"
    ));
    if let Some((shown, _)) = on_a_terminal(&program, 80, "status") {
        assert!(shown.contains("remedy"), "{shown}");
    }
}

#[test]
fn status_check_lists_problems_and_sets_the_exit_code() {
    let program = created(sqlite());
    let never = failed_checks(&program, "--max-age-post 1d --max-age-collect 1d");
    assert_eq!(never, ["max_age_collect", "max_age_post"]);
    program.import(&lines(3, 3));
    let limits = "--max-age-post 2h --max-age-collect 1h --max-age-unlabelled 6h";
    assert_eq!(failed_checks(&program, limits), [json!(null); 0]);
    program.execute("UPDATE things SET collected_at = '2026-01-01T00:00:00+00:00'");
    let two = ["max_age_post", "max_age_unlabelled"];
    assert_eq!(failed_checks(&program, limits), two);
    let check = format!("status --check {limits}");
    let csv = program.run(&format!("{check} --format csv")).stdout;
    let head = csv.lines().next();
    assert_eq!(head, Some("check,problem,age_secs,limit_secs"), "{csv}");
    let shown = program.run(&check).stdout;
    let problems = shown.lines().filter(|line| line.starts_with("problem: "));
    assert_eq!(problems.count(), 2, "{shown}");
    // A labelled post is no longer in the backlog.
    program.ok("classify");
    let unlabelled = failed_checks(&program, "--max-age-unlabelled 6h");
    assert_eq!(unlabelled, [json!(null); 0]);

    for wrong in [
        "--max-age-post 2h",
        "--check --max-age-post soon",
        "--check --max-age-post -1h",
    ] {
        let ran = program.run(&format!("status {wrong}"));
        assert_eq!(ran.code, 2, "{wrong}: {}", ran.stderr);
    }
    Program::new().run("status --check").expect_code(4);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_check_reports_a_locked_table_instead_of_waiting_for_it() {
    let Some(database) = postgres() else { return };
    let program = created(database);
    let mut holder = PgConnection::connect(&program.url()).await.unwrap();
    let lock = "BEGIN; LOCK TABLE things IN ACCESS EXCLUSIVE MODE";
    holder.execute(lock).await.unwrap();
    program.run("status --check").expect_code(4);
    holder.close().await.unwrap();
    assert_eq!(failed_checks(&program, ""), [json!(null); 0]);
}
