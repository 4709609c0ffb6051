//! Tests `schedule` through the program: its errors, `schedule list`, the commands in packaging/, and its exit.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use clap::Parser;
use serde_json::Value;
use topicmill_core::clock::SystemClock;
use topicmill_store::{Access, Store};

use crate::support::engine::repository;
use crate::support::postgres::databases;
use crate::support::program::{Program, signal};
use crate::support::terminal::on_a_terminal;

const LABELS: &str = "labels = [\"climate change\", \"gaming\"]\n";

fn file(program: &Program, schedules: &str) -> String {
    program.write("my topics.toml", format!("{LABELS}{schedules}"))
}

fn schedule(name: &str, cron: &str, stages: &str) -> String {
    format!("[[schedule]]\nname = \"{name}\"\ncron = \"{cron}\"\nstages = [{stages}]\n")
}

#[test]
fn an_invalid_pipeline_file_is_rejected_before_anything_is_created() {
    let program = Program::new();
    for (schedules, expected) in [
        (String::new(), "has no [[schedule]]: add one"),
        (schedule("a", "0 0 30 2 *", "\"classify\""), "is never due"),
        (
            schedule("a", "* * * * * *", "\"classify\""),
            "once a minute",
        ),
        (
            [
                schedule("a", "* * * * *", "\"classify\""),
                schedule("a", "@daily", "\"classify\""),
            ]
            .concat(),
            "`a` is listed twice",
        ),
        (
            schedule("a", "* * * * *", "\"classify\"") + "timezone = \"Europe/Pariss\"\n",
            "did you mean `Europe/Paris`?",
        ),
        (
            schedule("a", "* * * * *", "\"collect --lmit 5\""),
            "schedule `a`: the stage `collect --lmit 5`: unexpected argument '--lmit' found",
        ),
        (
            schedule("a", "* * * * *", "\"classify --watch\""),
            "it never ends",
        ),
        (
            schedule("a", "* * * * *", "\"db\""),
            "the stage `db`: it needs a subcommand: ",
        ),
        (
            schedule("a", "0 0 */2 * 1", "\"classify\""),
            "write two schedules",
        ),
    ] {
        let file = file(&program, &schedules);
        for command in ["run", "list"] {
            let args = ["schedule", command, "--pipeline", &file];
            let ran = program.run(&args);
            assert_eq!(ran.code, 2, "{args:?} {}", ran.stderr);
            ran.expect_stderr(expected);
        }
    }
    assert!(!program.folder.path().join("topicmill.db").exists());
}

#[test]
fn a_scheduled_run_executes_its_commands_and_list_shows_the_result() {
    for database in databases() {
        let program = Program::new();
        let with = |args: &[&'static str]| -> Vec<String> {
            let head = ["--database", &database.url];
            let all = head.iter().map(|arg| (*arg).to_owned());
            all.chain(args.iter().map(|arg| (*arg).to_owned()))
                .chain(["--pipeline".to_owned(), "my topics.toml".to_owned()])
                .collect()
        };
        let run = |args: &[&'static str]| {
            let args = with(args);
            program.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
        };
        file(
            &program,
            &[
                schedule(
                    "good",
                    "* * * * *",
                    "\"purge --retention 48\", \"report 'my report.html'\"",
                ),
                schedule(
                    "bad",
                    "* * * * *",
                    "\"purge --ids 'no such file'\", \"db backup a.db\"",
                ),
            ]
            .concat(),
        );
        // The program is started when a run is due, as a systemd timer does.
        let once = run(&["schedule", "run", "--once"]);
        assert_eq!(once.code, 1, "{}", once.stderr);
        assert!(
            once.stderr
                .contains("a scheduled run failed: `purge --ids 'no such file'`")
                || once
                    .stderr
                    .contains("a scheduled run failed: `purge --ids no such file`"),
            "{}",
            once.stderr
        );
        assert!(program.folder.path().join("my report.html").exists());
        let list = run(&["schedule", "list", "--format", "json"]);
        let list: Value = serde_json::from_str(&list.stdout).unwrap();
        assert_eq!(list[0]["schedule"], "good");
        assert_eq!(list[0]["last_status"], "done", "{list}");
        assert_eq!(list[1]["last_status"], "failed", "{list}");
        let error = list[1]["last_error"].as_str().unwrap();
        assert!(error.contains("read the ids in `no such file`"), "{error}");
        assert!(list[1]["failed_7_days"].as_u64() >= Some(1), "{list}");
        let check = ["--database", &database.url, "status", "--check"];
        let check = program.run(&check);
        assert_eq!(check.code, 1, "{}", check.stderr);
        assert!(
            check.stdout.contains("problem: the schedule bad, due at 2")
                && !check.stdout.contains("schedule good"),
            "{}",
            check.stdout
        );
        let screen = program.run(&["--database", &database.url, "status"]).stdout;
        assert!(screen.contains("bad failed "), "{screen}");
        let args = with(&["schedule", "list"]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        if let Some((shown, code)) = on_a_terminal(&program, 80, &args) {
            assert_eq!(code, 0, "{shown}");
            assert!(
                shown.lines().all(|line| line.chars().count() <= 80),
                "{shown}"
            );
            assert!(
                shown.contains(" good ") && shown.contains("missed"),
                "{shown}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_check_reports_schedules_of_the_pipeline_file_that_no_scheduler_runs() {
    for database in databases() {
        let program = Program::with_database(&database.url);
        program.ok(&["db", "create"]);
        database
            .run(
                "INSERT INTO schedules (name, planned_until, cron, timezone) VALUES \
                 ('often', '2026-01-01T00:00:00+00:00', '* * * * *', 'UTC'); \
                 INSERT INTO scheduled_runs (schedule, due_at, status, finished_at, error) VALUES \
                 ('removed', '2026-01-01T00:00:00+00:00', 'failed', CURRENT_TIMESTAMP, 'it fell')",
            )
            .await;
        // Without the setting, the file is unknown.
        let unset = program.run(&["status", "--check"]);
        let removed =
            "problem: the schedule removed, due at 2026-01-01 00:00 UTC, failed: it fell\n";
        assert_eq!((unset.code, unset.stdout.as_str()), (1, removed));
        let topics = file(&program, &schedule("often", "* * * * *", "\"classify\""));
        let with_file = |args: &[&str]| program.run_with(&[("pipeline", topics.as_str())], args);
        let overdue = "`often` was due at 2026-01-01 00:01 UTC, but no scheduler is running: start \
                       `topicmill schedule run`, or check its log";
        let check = with_file(&["status", "--check"]);
        let problem = format!("problem: {overdue}\n");
        assert_eq!((check.code, check.stdout), (1, problem), "{}", check.stderr);
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for command in [&["schedule", "list"][..], &["status"]] {
            let shown = with_file(command).stdout;
            assert!(one_line(&shown).contains(overdue), "{shown}");
        }
        // A process started with `--once` is running another stage.
        database
            .run(
                "INSERT INTO scheduled_runs (schedule, due_at, status, worker, started_at, lease_until) VALUES \
                 ('often', '2026-01-01T00:00:00+00:00', 'running', 'elsewhere', '2026-01-01T00:00:00+00:00', \
                  '2999-01-01T00:00:00+00:00')",
            )
            .await;
        let active = with_file(&["status", "--check"]);
        assert_eq!((active.code, active.stdout.as_str()), (0, "ok\n"));
    }
}

#[test]
fn run_once_names_the_next_schedule_if_nothing_is_due() {
    let program = Program::new();
    let schedules = [
        schedule("later", "0 0 1 1 *", "\"classify\""),
        schedule("leap-day", "0 0 29 2 *", "\"classify\""),
    ];
    let topics = file(&program, &schedules.concat());
    let ran = program.ok(&["schedule", "run", "--once", "--pipeline", &topics]);
    let next = ["later", "leap-day"].map(|name| format!("nothing is due; next: {name} at 2"));
    assert!(
        next.iter().any(|next| ran.stderr.contains(next)),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains(" 00:00 UTC"), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pipeline_file_is_reloaded_and_a_signal_stops_the_scheduler() {
    let program = Program::new();
    let good = schedule("yearly", "0 0 1 1 *", "\"classify\"");
    file(&program, &good);
    let mut command = program.command(&["schedule", "run", "--pipeline", "my topics.toml"]);
    let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines();
    let mut wait_for = |words: &str| {
        let found = lines
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains(words));
        found.unwrap_or_else(|| panic!("no line contains `{words}`"))
    };
    wait_for("following a schedule");
    file(&program, &good.replace("0 0 1 1 *", "0 0 31 2 *"));
    let warned = wait_for("keeping the previous schedules");
    assert!(warned.contains("is never due"), "{warned}");
    file(
        &program,
        &[good, schedule("another", "0 0 2 1 *", "\"classify\"")].concat(),
    );
    wait_for("the pipeline file changed: reloaded its schedules");
    let url = format!(
        "sqlite:{}",
        program.folder.path().join("topicmill.db").display()
    );
    let store = Store::open(&url, Access::ReadOnly).await.unwrap();
    let names = async || {
        let found = store
            .query("SELECT name FROM schedules ORDER BY name")
            .await;
        found.unwrap().rows
    };
    let clock = SystemClock::shared();
    while names().await.len() < 2 && clock.elapsed() < Duration::from_secs(20) {
        clock.sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(names().await, [["another"], ["yearly"]]);
    signal(&running, "-TERM");
    wait_for("stopping");
    assert_eq!(running.wait().unwrap().code(), Some(143));
}

#[test]
fn packaging_files_start_existing_commands() {
    let text = |path: &str| std::fs::read_to_string(repository("packaging").join(path)).unwrap();
    let mut lines: Vec<(String, String)> = Vec::new();
    for unit in [
        "debian/topicmill-schedule.service",
        "debian/topicmill-classify.service",
        "debian/topicmill-serve.service",
        "schedule/topicmill-due.service",
    ] {
        let text = text(unit);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        lines.push((unit.to_owned(), line.unwrap().to_owned()));
    }
    let crontab = text("schedule/crontab");
    let command = crontab.trim_end().rsplit(" && ").next().unwrap();
    lines.push(("crontab".to_owned(), command.to_owned()));
    for (path, key) in [
        ("schedule/cronjob.yaml", "args: ["),
        ("docker/compose.yaml", "command: ["),
    ] {
        for list in text(path).split(key).skip(1) {
            let words = list.split(']').next().unwrap().replace(['"', ','], "");
            lines.push((path.to_owned(), format!("topicmill {words}")));
        }
    }
    let plist = text("schedule/topicmill.plist");
    let array = plist
        .split("<array>")
        .nth(1)
        .unwrap()
        .split("</array>")
        .next()
        .unwrap();
    let words: Vec<&str> = array
        .split("<string>")
        .skip(1)
        .map(|word| word.split("</string>").next().unwrap())
        .collect();
    lines.push(("plist".to_owned(), words.join(" ")));
    assert!(lines.len() >= 9, "{lines:?}");
    for (file, line) in lines {
        let parsed = topicmill::cli::Cli::try_parse_from(line.split_whitespace());
        assert!(parsed.is_ok(), "{file}: {}", parsed.unwrap_err());
    }
}

#[test]
fn the_example_file_has_runnable_schedules() {
    let program = Program::new();
    program.ok(&["db", "create"]);
    let shipped = repository("pipelines/scheduled.toml").display().to_string();
    let ran = program.ok(&["schedule", "list", "--pipeline", &shipped]);
    for name in ["quarter-hourly", "nightly", "weekly"] {
        assert!(ran.stdout.contains(name), "{}", ran.stdout);
    }
}
