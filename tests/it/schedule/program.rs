//! Tests `schedule` through the program: its errors, `schedule list`, the commands in packaging/, and its exit.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use clap::Parser;
use serde_json::Value;
use topicmill_core::table;

use crate::support::engine::repository;
use crate::support::postgres::sqlite;
use crate::support::program::{Program, signal};

/// Writes `my topics.toml` with these schedules.
fn write(program: &Program, schedules: &str) {
    let labels = "labels = [\"climate change\", \"gaming\"]\n";
    program.write("my topics.toml", format!("{labels}{schedules}"));
}

const LIST: &str = "schedule list --pipeline 'my topics.toml'";

fn schedule(name: &str, cron: &str, stages: &str) -> String {
    format!("[[schedule]]\nname = \"{name}\"\ncron = \"{cron}\"\nstages = [{stages}]\n")
}

/// Returns the checks that `status --check` finds failed, with the pipeline file in the settings.
fn failed_checks(program: &Program) -> Vec<Value> {
    let settings = [("pipeline", "my topics.toml")];
    let ran = program.run_with(&settings, "status --check --format json");
    let found = ran.json();
    let problems = found["problems"].as_array().unwrap();
    assert_eq!(ran.code, i32::from(!problems.is_empty()), "{found}");
    problems.iter().map(|it| it["check"].clone()).collect()
}

#[test]
fn invalid_stages_are_rejected_before_anything_is_created() {
    let program = Program::new();
    for (schedules, expected) in table! {
        String::new(), "has no [[schedule]]";
        schedule("a", "* * * * *", "\"collect --lmit 5\""), "the stage `collect --lmit 5`";
        schedule("a", "* * * * *", "\"classify --watch\""), "it never ends";
    } {
        write(&program, &schedules);
        for line in ["schedule run --pipeline 'my topics.toml'", LIST] {
            program.run(line).expect_exit(2, expected);
        }
    }
    write(&program, &schedule("a", "@daily", "\"db copyy\""));
    program
        .run("labels validate --pipeline 'my topics.toml'")
        .expect_exit(2, "the stage `db copyy`");
    assert!(!program.path("topicmill.db").exists());
}

#[test]
fn a_scheduled_run_executes_its_commands_and_list_shows_the_result() {
    let program = Program::on(sqlite());
    let good = "\"purge --retention 48\", \"report 'my report.html'\"";
    let bad = "\"purge --ids 'no such file'\", \"db backup a.db\"";
    let schedules = [
        schedule("good", "* * * * *", good),
        schedule("bad", "* * * * *", bad),
    ];
    write(&program, &schedules.concat());
    // The program is started when a run is due, as a systemd timer does.
    program
        .run("schedule run --once --pipeline 'my topics.toml'")
        .expect_code(1);
    assert!(program.path("my report.html").exists());
    let list = program.json(LIST);
    for (row, schedule, status) in [(0, "good", "done"), (1, "bad", "failed")] {
        let row = &list[row];
        assert_eq!([&row["schedule"], &row["last_status"]], [schedule, status]);
    }
    let error = list[1]["last_error"].as_str().unwrap();
    assert!(error.contains("`no such file`"), "{error}");
    assert!(program.path("a.db").exists(), "the next stage runs");
    assert_eq!(failed_checks(&program), ["scheduled_run_failed"]);
}

#[test]
fn status_reports_schedules_of_the_pipeline_file_that_no_scheduler_runs() {
    let program = Program::on(sqlite());
    program.ok("db create");
    let row = |schedule: &str, status: &str, end: &str| {
        format!(
            "INSERT INTO scheduled_runs (schedule, due_at, status, worker, started_at, {end}) VALUES \
             ('{schedule}', '2026-01-01T00:00:00+00:00', '{status}', 'elsewhere', '2026-01-01T00:00:00+00:00', \
              '2999-01-01T00:00:00+00:00')"
        )
    };
    program.execute(&row("often", "done", "finished_at"));
    // This schedule is no longer in the file.
    program.execute(&row("removed", "failed", "finished_at"));
    write(&program, &schedule("often", "* * * * *", "\"classify\""));
    assert_eq!(failed_checks(&program), ["schedule_overdue"]);
    let list = program.json(LIST);
    assert_eq!(list[0]["overdue_since"], "2026-01-01T00:01:00Z");
    // A process started with `--once` is running another stage.
    program.execute("DELETE FROM scheduled_runs WHERE schedule = 'often'");
    program.execute(&row("often", "running", "lease_until"));
    assert_eq!(failed_checks(&program), [""; 0]);
}

#[test]
fn a_scheduler_keeps_its_schedules_and_status_reports_a_changed_file() {
    let program = Program::on(sqlite());
    let yearly = schedule("yearly", "0 0 1 1 *", "\"classify\"");
    write(&program, &yearly);
    let mut command = program.command("schedule run --pipeline 'my topics.toml'");
    let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(running.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.contains("following a schedule")));
    assert_eq!(failed_checks(&program), [""; 0]);
    // Other parts of the file are read again by each stage.
    write(&program, &format!("{yearly}\n# A comment."));
    assert_eq!(failed_checks(&program), [""; 0]);
    write(&program, &yearly.replace("0 0 1 1 *", "0 0 2 1 *"));
    assert_eq!(failed_checks(&program), ["scheduler_outdated"]);
    signal(&running, "-TERM");
    assert_eq!(running.wait().unwrap().code(), Some(143));
}

#[test]
fn packaging_files_start_existing_commands() {
    let text = |path: &str| std::fs::read_to_string(repository("packaging").join(path)).unwrap();
    let mut lines = Vec::new();
    for unit in ["schedule", "classify", "serve"] {
        let text = text(&format!("debian/topicmill-{unit}.service"));
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        lines.push(line.unwrap().to_owned());
    }
    for list in text("docker/compose.yaml").split("command: [").skip(1) {
        let words = list.split(']').next().unwrap().replace(',', "");
        lines.push(format!("topicmill {words}"));
    }
    assert_eq!(lines.len(), 5, "{lines:?}");
    for line in lines {
        let parsed = topicmill::cli::Cli::try_parse_from(line.split_whitespace());
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }
}

#[test]
fn the_example_file_has_runnable_schedules() {
    let program = Program::new();
    program.ok("db create");
    let shipped = repository("pipelines/scheduled.toml");
    let list = program.json(&format!("schedule list --pipeline {}", shipped.display()));
    assert_eq!(list.as_array().unwrap().len(), 3);
}
