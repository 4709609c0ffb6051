//! The program: what it says of wrong files, what it lists, what it prints for others to run, and how it ends.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use topicmill::clock::SystemClock;
use topicmill::store::{Access, Store};

use crate::support::engine::repository;
use crate::support::postgres::databases;
use crate::support::program::{Program, finished};
use crate::support::terminal::on_a_terminal;

const LABELS: &str = "labels = [\"climate change\", \"gaming\"]\n";

fn file(program: &Program, schedules: &str) -> String {
    program.write("my topics.toml", format!("{LABELS}{schedules}"))
}

fn schedule(name: &str, cron: &str, stages: &str) -> String {
    format!("[[schedule]]\nname = \"{name}\"\ncron = \"{cron}\"\nstages = [{stages}]\n")
}

#[test]
fn a_file_that_cannot_be_meant_is_refused_before_anything_is_made() {
    let program = Program::new();
    for (schedules, says) in [
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
            "`a` is there twice",
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
            "the stage `db`: it needs a command after it: ",
        ),
        (
            schedule("a", "1,,2 * * * *", "\"classify\""),
            "a comma too many",
        ),
    ] {
        let file = file(&program, &schedules);
        for command in [&["run"][..], &["list"], &["install", "--cron"]] {
            let args = [&["schedule"], command, &["--pipeline", &file]].concat();
            let ran = program.run(&args);
            assert_eq!(ran.code, 2, "{args:?} {}", ran.stderr);
            assert!(ran.stderr.contains(says), "{}", ran.stderr);
        }
    }
    assert!(!program.folder.path().join("topicmill.db").exists());
}

#[test]
fn a_slot_runs_its_commands_and_the_list_shows_how_it_ended() {
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
        // Started when a slot is due, as a timer does it.
        let once = run(&["schedule", "run", "--once"]);
        assert_eq!(once.code, 1, "{}", once.stderr);
        assert!(
            once.stderr
                .contains("a slot failed: `purge --ids 'no such file'`")
                || once
                    .stderr
                    .contains("a slot failed: `purge --ids no such file`"),
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
        assert!(error.contains("read the ids of `no such file`"), "{error}");
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
async fn what_a_clock_ran_that_was_years_ahead_is_neither_last_nor_counted() {
    for database in databases() {
        let program = Program::new();
        file(&program, &schedule("yearly", "0 0 1 1 *", "\"db check\""));
        let run = |args: &[&str]| {
            let url = database.url.as_str();
            let head = ["--database", url, "schedule"];
            program.ok(&[&head, args, &["--pipeline", "my topics.toml"]].concat())
        };
        let listed = || -> Value {
            let list = run(&["list", "--format", "json"]).stdout;
            serde_json::from_str::<Value>(&list).unwrap()[0].clone()
        };
        run(&["run", "--once"]);
        let next = listed()["next_due_at"].clone();
        // As after a day in 2099: a slot ran, and behind it nothing is due for decades.
        database
            .run("UPDATE schedules SET planned_until = '2099-03-01T03:00:00+00:00'")
            .await;
        database
            .run(
                "INSERT INTO slots (schedule, due_at, start_at, status, missed, started_at, finished_at, error) \
                 VALUES ('yearly', '2099-01-01T00:00:00+00:00', '2099-01-01T00:00:00+00:00', 'failed', 399, \
                         '2099-01-01T00:00:00+00:00', '2099-01-01T00:00:01+00:00', 'it broke')",
            )
            .await;
        let found = listed();
        assert_eq!(found["next_due_at"], next, "{found}");
        assert!(found["last_due_at"].is_null(), "{found}");
        assert_eq!(found["missed_7_days"], 0, "{found}");
        assert_eq!(found["failed_7_days"], 0, "{found}");
        let table = run(&["list"]).stdout;
        assert!(
            table.contains("never") && !table.contains("it broke"),
            "{table}"
        );
        // A scheduler does not wait for 2099 either.
        let again = run(&["run", "--once"]).stderr;
        assert!(again.contains("it begins anew"), "{again}");
        assert!(!again.contains("the clock was set back"), "{again}");
        assert_eq!(listed()["next_due_at"], next);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_read_again_and_a_signal_drains() {
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
        found.unwrap_or_else(|| panic!("no line says `{words}`"))
    };
    wait_for("following a schedule");
    file(&program, &good.replace("0 0 1 1 *", "0 0 31 2 *"));
    let warned = wait_for("the former schedules stay in force");
    assert!(warned.contains("is never due"), "{warned}");
    file(
        &program,
        &[good, schedule("another", "0 0 2 1 *", "\"classify\"")].concat(),
    );
    wait_for("the pipeline file changed, and is read again");
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
    let pid = running.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(sent.unwrap().success());
    wait_for("stopping");
    assert_eq!(running.wait().unwrap().code(), Some(143));
}

/// Whether a program is here, to check with it what ours prints.
fn is_here(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|ran| ran.status.success())
}

#[test]
fn units_are_what_their_own_programs_read() {
    let program = Program::new();
    file(
        &program,
        &[
            schedule("often", "*/15 * * * *", "\"classify\""),
            schedule("fridays", "30 3 13 * FRI", "\"classify\""),
            "timezone = \"Europe/Berlin\"\n".to_owned(),
            schedule("last", "0 4 L * *", "\"classify\""),
        ]
        .concat(),
    );
    let folder = program.folder.path().join("a b");
    std::fs::create_dir(&folder).unwrap();
    let install = |flag: &str, more: &[&str]| {
        let args = [
            &["schedule", "install", flag, "--pipeline", "my topics.toml"],
            more,
        ]
        .concat();
        program.ok(&args).stdout
    };
    // systemd
    let env = program.write("secrets 100%.env", "DATABASE_URL=x\n");
    let more = [
        "--folder",
        "a b",
        "--env-file",
        &env,
        "--user",
        "root",
        "--to",
        "units",
    ];
    install("--systemd", &more);
    let more = ["--stay", "--to", "units"];
    install("--systemd", &more);
    let units = program.folder.path().join("units");
    let text = std::fs::read_to_string(units.join("topicmill-schedule-fridays.timer")).unwrap();
    for line in [
        "Persistent=true",
        "OnCalendar=*-*-13 03:30:00 Europe/Berlin",
        "OnCalendar=Fri *-*-* 03:30:00 Europe/Berlin",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let again = program.run(&[
        "schedule",
        "install",
        "--systemd",
        "--to",
        "units",
        "--pipeline",
        "my topics.toml",
    ]);
    assert_eq!(again.code, 2, "{}", again.stderr);
    assert!(
        again.stderr.contains("replaces nothing"),
        "{}",
        again.stderr
    );
    check_with_systemd(&units);
    // cron
    let line = install("--cron", &["--folder", "a b", "--env-file", &env]);
    assert_eq!(line.lines().count(), 1);
    let command = line.strip_prefix("* * * * * ").unwrap();
    // As cron reads it: `\%` is a percent sign.
    let command = command.replace("\\%", "%");
    let args = command.split(" && ").last().unwrap();
    assert!(args.contains("-q schedule run --pipeline '"), "{command}");
    let told = Command::new("sh")
        .args(["-n", "-c", &command])
        .output()
        .unwrap();
    assert!(told.status.success(), "{command}");
    // Kubernetes
    let jobs = install(
        "--k8s",
        &["--folder", "/data", "--image", "registry/topicmill:1"],
    );
    assert_eq!(jobs.matches("concurrencyPolicy: Forbid").count(), 3);
    assert!(
        jobs.contains("timeZone: \"Europe/Berlin\"") && jobs.contains("schedule: \"30 3 13 * 5\""),
        "{jobs}"
    );
    assert!(
        jobs.contains("schedule: \"* * * * *\""),
        "what Kubernetes cannot say: {jobs}"
    );
    // launchd
    let plist = install("--launchd", &["--folder", "a b"]);
    assert!(plist.contains("<key>KeepAlive</key>"), "{plist}");
    check_with_python(&program, &jobs, &plist);
}

/// systemd's own reading of the units, where it is.
fn check_with_systemd(units: &Path) {
    if is_here("systemd-analyze") {
        let files = std::fs::read_dir(units)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let ran = Command::new("systemd-analyze")
            .arg("verify")
            .args(files)
            .output()
            .unwrap();
        let ran = finished(ran);
        let of_ours: Vec<&str> = ran
            .stderr
            .lines()
            .filter(|line| line.contains("topicmill"))
            .collect();
        assert!(ran.code == 0 && of_ours.is_empty(), "{}", ran.stderr);
    }
}

/// `plistlib` of Python reads the plist; `PyYAML`, where it is, reads the jobs.
fn check_with_python(program: &Program, jobs: &str, plist: &str) {
    if !is_here("python3") {
        return;
    }
    let script = program.write(
        "check.py",
        "import plistlib, sys\n\
         agent = plistlib.load(open('agent.plist', 'rb'))\n\
         assert agent['KeepAlive'] is True and agent['ProgramArguments'][1:3] == ['schedule', 'run'], agent\n\
         assert agent['WorkingDirectory'].endswith('a b'), agent\n\
         try:\n    import yaml\nexcept ImportError:\n    sys.exit()\n\
         jobs = list(yaml.safe_load_all(open('jobs.yaml')))\n\
         assert [job['spec']['schedule'] for job in jobs] == ['*/15 * * * *', '30 3 13 * 5', '* * * * *'], jobs\n\
         for job in jobs:\n\
         \x20   spec = job['spec']['jobTemplate']['spec']['template']['spec']\n\
         \x20   assert spec['containers'][0]['args'][:2] == ['schedule', 'run'], spec\n",
    );
    program.write("jobs.yaml", jobs);
    program.write("agent.plist", plist);
    let ran = Command::new("python3")
        .arg(script)
        .current_dir(program.folder.path())
        .output();
    let ran = finished(ran.unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn the_shipped_file_has_schedules_that_can_be_run() {
    let program = Program::new();
    let shipped = repository("pipelines/scheduled.toml").display().to_string();
    let ran = program.ok(&["schedule", "install", "--k8s", "--pipeline", &shipped]);
    assert_eq!(ran.stdout.matches("kind: CronJob").count(), 3);
}

#[test]
fn a_full_disk_leaves_no_unit_that_is_in_the_way() {
    let program = Program::new();
    let two = ["a", "b"].map(|name| schedule(name, "@daily", "\"classify\""));
    let file = file(&program, &two.concat());
    let install = ["schedule", "install", "--systemd", "--to", "units"];
    let install = [&install[..], &["--pipeline", &file]].concat();
    let full = program.run_without_room(&install);
    assert_eq!(full.code, 1, "{}", full.stderr);
    assert!(full.stderr.contains("free some space"), "{}", full.stderr);
    program.ok(&install);
    let units = program.folder.path().join("units").read_dir().unwrap();
    assert_eq!(units.count(), 4, "a timer and a service for each");
}
