//! Tests `status`: its screen, the suggested next step, `--check` for a monitor, tables on a terminal, and versions.

mod unusual;

use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use topicmill_core::clock::SystemClock;
use topicmill_core::{RunStatus, Stage, Timestamp};
use topicmill_store::worker_name;
use topicmill_store::{Access, RunId, Store};
use unicode_width::UnicodeWidthStr;

use crate::support::builders;
use crate::support::postgres::{TestDatabase, databases, postgres};
use crate::support::program::{Program, words};
use crate::support::terminal::on_a_terminal;

/// A database, and the program on it.
struct Scene {
    program: Program,
    database: TestDatabase,
}

impl std::ops::Deref for Scene {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl Scene {
    /// Creates one program per backend, without posts.
    fn each() -> impl Iterator<Item = Self> {
        databases().into_iter().map(|database| {
            let scene = Self {
                program: Program::with_database(&database.url),
                database,
            };
            assert_eq!(scene.run(&["db", "create"]).code, 0);
            scene
        })
    }

    fn status(&self) -> String {
        let ran = self.run(&["status"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    }

    fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["--format", "json"]].concat());
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr))
    }

    fn import(&self, n: usize) {
        let file = self.program.write("posts.ndjson", builders::lines(n, n));
        let ran = self.run(&["import", &file]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }

    async fn store(&self) -> Store {
        Store::open(&self.database.url, Access::Existing)
            .await
            .unwrap()
    }
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
fn status_suggests_the_next_step_from_the_first_post_to_the_last_label() {
    for scene in Scene::each() {
        let empty = scene.status();
        assert_eq!(answer(&empty, "Posts"), Some("0"), "{empty}");
        assert!(
            answer(&empty, "Next").unwrap().contains("topicmill run"),
            "{empty}"
        );

        scene.import(30);
        let waiting = scene.status();
        assert!(
            answer(&waiting, "Posts")
                .unwrap()
                .starts_with("30; the last new one was stored"),
            "{waiting}"
        );
        assert!(
            answer(&waiting, "Waiting")
                .unwrap()
                .starts_with("30, the oldest for"),
            "{waiting}"
        );
        assert!(
            answer(&waiting, "Next")
                .unwrap()
                .starts_with("`topicmill classify`: 30 posts are waiting"),
            "{waiting}"
        );

        assert_eq!(scene.run(&["classify"]).code, 0);
        let done = scene.status();
        assert!(
            answer(&done, "Labelled").unwrap().starts_with("30 (all)"),
            "{done}"
        );
        assert_eq!(answer(&done, "Waiting"), Some("none"), "{done}");
        assert_eq!(
            answer(&done, "Next"),
            Some("nothing: every post has a label"),
            "{done}"
        );
        assert!(
            answer(&done, "Labels")
                .unwrap()
                .starts_with("sixteen-topics, version "),
            "{done}"
        );
        for stage in ["classify", "import"] {
            let row: Vec<&str> = answer(&done, stage).unwrap().split_whitespace().collect();
            assert_eq!(row[2..6], ["ago", "1", "0", "30"], "{done}");
        }
        let all = scene.json(&["status"]);
        assert_eq!(all["last_day"][1]["new"], 30, "{all:#}");
        assert_eq!(all["next"]["command"], Value::Null);
        assert_eq!(all["is_estimate"], false);
        assert!(all["newest"]["collected_at"].is_string(), "{all:#}");

        // The screen fits 80 columns and 24 lines. A narrower terminal gets more lines, but none that is too long.
        for columns in [40, 80] {
            let Some((shown, code)) = on_a_terminal(&scene.program, columns, &["status"]) else {
                continue;
            };
            assert_eq!(code, 0);
            for line in shown.lines() {
                assert!(line.width() <= columns as usize, "{line}");
            }
            assert!(columns < 80 || shown.lines().count() < 24, "{shown}");
        }
    }
}

/// Begins a run of a process of this machine that no longer exists: Linux never assigns its id.
async fn killed_run(store: &Store) -> RunId {
    let me = worker_name();
    let (place, _) = me.rsplit_once(':').unwrap();
    let worker = format!("{place}:99999999");
    let runs = store.runs();
    runs.begin_run(Stage::Classify, &worker, now())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_run_is_shown_as_running_and_one_without_a_process_as_crashed() {
    for scene in Scene::each() {
        scene.import(30);
        let store = scene.store().await;
        let elsewhere = store
            .runs()
            .begin_run(Stage::Classify, "elsewhere:boot:1:4242", now())
            .await
            .unwrap();
        store.runs().record_heartbeat(elsewhere).await.unwrap();
        let status = scene.status();
        let running = answer(&status, "Running").unwrap();
        assert!(
            running.starts_with("classify for") && running.contains("process 4242"),
            "{status}"
        );
        assert!(
            answer(&status, "Next").unwrap().contains("is running"),
            "{status}"
        );
        let checked = scene.run(&["status", "--check"]);
        assert_eq!((checked.code, checked.stdout.as_str()), (0, "ok\n"));
        store
            .runs()
            .mark_crashed(elsewhere, "its process was killed")
            .await
            .unwrap();

        let killed = killed_run(&store).await;
        let status = scene.status();
        assert_eq!(answer(&status, "Running"), Some("nothing"), "{status}");
        assert!(
            answer(&status, "Crashed")
                .unwrap()
                .contains("its process was killed"),
            "{status}"
        );
        assert!(
            answer(&status, "Next")
                .unwrap()
                .starts_with("`topicmill classify`"),
            "{status}"
        );
        let all = scene.json(&["status"]);
        assert_eq!(all["runs"][0]["status"], "crashed");
        let checked = scene.run(&["status", "--check"]);
        assert_eq!(checked.code, 1);
        assert!(
            checked
                .stdout
                .contains(&format!("classify ({}) crashed", killed.0)),
            "{}",
            checked.stdout
        );
        // `status` itself records nothing.
        let found = store.runs().run(killed).await.unwrap().unwrap();
        assert_eq!(found.status, RunStatus::Running);
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_topics_are_listed_with_the_time_of_the_first_failure() {
    for scene in Scene::each() {
        scene.import(3);
        let store = scene.store().await;
        let report = |topic: &str, outcome: &str| {
            let detail = "evil\u{1b}[2J";
            json!({"topic": topic, "subreddit": topic, "outcome": outcome, "detail": detail})
        };
        for (climate, days) in [("ok", 3), ("private", 2), ("private", 1)] {
            let began = now().as_datetime() - chrono::TimeDelta::days(days);
            let run = store
                .runs()
                .begin_run(Stage::Collect, "w", began.into())
                .await
                .unwrap();
            let outcomes = json!([report("climate", climate), report("books", "ok")]);
            let counts = json!({"posts": 3, "new": 0, "by_outcome": {"ok": 1, "private": 1}});
            let status = RunStatus::Partial;
            store
                .runs()
                .finish_run(run, status, &counts, &outcomes, None, began.into())
                .await
                .unwrap();
        }
        let status = scene.status();
        let failing = answer(&status, "Failing").unwrap();
        assert!(
            failing.starts_with("climate (r/climate: private) since"),
            "{status}"
        );
        assert!(failing.ends_with("2 runs"), "{status}");
        assert_eq!(scene.run(&["classify"]).code, 0);
        let next = "topics fail: see Failing, and correct their subreddits in your pipeline file";
        assert_eq!(scene.json(&["status"])["next"]["why"], next, "{status}");
        // A partial collect counts as success: one day ago, within a limit of two days. The topic has failed for longer.
        let check = ["status", "--check", "--max-age-collect", "2d"];
        let checked = scene.run(&check);
        let problem = checked.stdout.as_str();
        assert_eq!((checked.code, problem.lines().count()), (1, 1), "{problem}");
        assert!(
            problem.starts_with("problem: the topic climate has failed since 2")
                && problem.contains("UTC (r/climate: private): check its subreddits"),
            "{problem}"
        );
        // The configured pipeline file no longer has the topic.
        let two = scene.program.write("two.toml", unusual::TWO);
        let checked = scene.run_with(&[("pipeline", two.as_str())], &check);
        assert_eq!((checked.code, checked.stdout.as_str()), (0, "ok\n"));
        // The import is not a run of `collect`, so the topic has still failed in two runs.
        assert_eq!(scene.json(&["status"])["failed_topics"][0]["runs"], 2);
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_error_is_shown_to_its_end_on_a_terminal() {
    for scene in Scene::each() {
        let error = format!("{}remedy", "reason ".repeat(40));
        scene
            .database
            .run(&format!(
                "INSERT INTO runs (stage, status, worker, started_at, finished_at, error) VALUES \
                 ('purge', 'failed', 'w', '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:00+00:00', '{error}')"
            ))
            .await;
        if let Some((shown, _)) = on_a_terminal(&scene.program, 80, &["status"]) {
            assert!(shown.contains("remedy"), "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_check_prints_a_line_per_problem_and_sets_the_exit_code() {
    for scene in Scene::each() {
        let never = scene.run(&words(
            "status --check --max-age-post 1d --max-age-collect 1d",
        ));
        assert_eq!(never.code, 1);
        assert_eq!(never.stdout.lines().count(), 2, "{}", never.stdout);
        assert!(
            never
                .stdout
                .contains("no post is stored; the limit is 24 h"),
            "{}",
            never.stdout
        );

        scene.import(3);
        let limits = [
            "--max-age-post",
            "2h",
            "--max-age-collect",
            "1h",
            "--max-age-unlabelled",
            "6h",
        ];
        let check = [&["status", "--check"], &limits[..]].concat();
        let fine = scene.run(&check);
        assert_eq!(
            (fine.code, fine.stdout.as_str()),
            (0, "ok\n"),
            "{}",
            fine.stderr
        );

        scene
            .database
            .run("UPDATE posts SET collected_at = '2026-01-01T00:00:00+00:00'")
            .await;
        let old = scene.run(&check);
        assert_eq!(old.code, 1);
        let lines: Vec<&str> = old.stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].starts_with("problem: the last new post was stored"),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("oldest unlabelled post") && lines[1].ends_with("the limit is 6 h"),
            "{lines:?}"
        );
        let all = scene.json(&check);
        assert_eq!(all["ok"], false);
        assert_eq!(all["problems"][0]["check"], "max_age_post");
        assert_eq!(all["problems"][1]["limit_secs"], 6 * 3_600);
        let csv = scene.run(&[&check[..], &["--format", "csv"]].concat());
        assert!(
            csv.stdout
                .starts_with("check,problem,age_secs,limit_secs\nmax_age_post,"),
            "{}",
            csv.stdout
        );
        // A labelled post is no longer in the backlog.
        assert_eq!(scene.run(&["classify"]).code, 0);
        let labelled = scene.run(&["status", "--check", "--max-age-unlabelled", "6h"]);
        assert_eq!(labelled.code, 0, "{}", labelled.stdout);

        for wrong in [
            &["--max-age-post", "2h"][..],
            &["--check", "--max-age-post", "soon"],
            &["--check", "--max-age-post", ""],
            &["--check", "--max-age-post", "-1h"],
            &["--check", "--max-age-post", "99999999999999999999d"],
            &["--check", "--max-age-post", "9999999999999999w"],
            &["--check", "--max-age-post", "２h"],
        ] {
            let ran = scene.run(&[&["status"], wrong].concat());
            assert_eq!(ran.code, 2, "{wrong:?}: {}", ran.stderr);
        }
    }
    let nowhere = Program::new().run(&["status", "--check"]);
    assert_eq!(nowhere.code, 4, "{}", nowhere.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_check_reports_a_locked_table_instead_of_waiting_for_it() {
    let Some(database) = postgres() else { return };
    let program = Program::with_database(&database.url);
    program.ok(&["db", "create"]);
    let mut holder = PgConnection::connect(&database.url).await.unwrap();
    holder
        .execute("BEGIN; LOCK TABLE posts IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let checked = program.run(&["status", "--check"]);
    checked.expect_exit(4, "the database does not respond");
    checked.expect_stderr("no other session holds a lock");
    holder.close().await.unwrap();
    program.run(&["status", "--check"]).expect_exit(0, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_found_every_post_claimed_does_not_hide_a_crash() {
    for scene in Scene::each() {
        scene.import(3);
        let store = scene.store().await;
        let killed = killed_run(&store).await;
        let idle = store
            .runs()
            .begin_run(Stage::Classify, &worker_name(), now())
            .await
            .unwrap();
        let counts = json!({"posts": 0, "held_elsewhere": 3});
        store
            .runs()
            .finish_run(idle, RunStatus::Done, &counts, &json!([]), None, now())
            .await
            .unwrap();
        let crashed = format!("the last run of classify ({}) crashed", killed.0);
        let check = || {
            let checked = scene.run(&["status", "--check"]);
            assert_eq!(checked.code, 1, "{}", checked.stderr);
            assert!(checked.stdout.contains(&crashed), "{}", checked.stdout);
            // The idle run is not a good run either.
            let stages = &scene.json(&["status"])["stages"];
            let stages = stages.as_array().unwrap();
            let classify = stages.iter().find(|last| last["stage"] == "classify");
            assert_eq!(classify.unwrap()["good_at"], Value::Null);
        };
        check();
        store
            .runs()
            .mark_crashed(killed, "its process was killed")
            .await
            .unwrap();
        check();
        store.close().await.unwrap();
    }
}
