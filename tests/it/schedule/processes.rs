//! Real schedulers, two at a time, killed at twenty moments: every slot runs, and none is recorded twice.
//!
//! The seed is fixed, and `KILLS_SEED` sets another one.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use topicmill::store::{Access, Store};

use crate::support::postgres::{TestDatabase, databases};
use crate::support::program::Program;

const KILLS: usize = 20;
const SLOTS: i64 = 40;

/// Forty slots will be due. Stages are quick, and each leaves a run; a second one is left to SQLite, where a stage does not
/// begin with the opening of eight connections.
fn file(stages: usize) -> String {
    let stages = vec!["\"purge --retention 48 --no-rewrite\""; stages].join(", ");
    format!(
        "labels = [\"climate change\", \"gaming\"]\n[[schedule]]\nname = \"often\"\ncron = \"*/15 * * * *\"\n\
         catch_up = \"all\"\noverlap = \"queue\"\nstages = [{stages}]\n"
    )
}

async fn number(url: &str, sql: &str) -> i64 {
    let store = Store::open(url, Access::ReadOnly).await.unwrap();
    let rows = store.query(sql).await.unwrap().rows;
    store.close().await.unwrap();
    rows[0][0].as_i64().unwrap()
}

/// Makes forty slots due: the schedule was looked at for the last time ten hours ago.
async fn prepare(program: &Program, database: &TestDatabase, file: &str) {
    let args = [
        "--database",
        &database.url,
        "schedule",
        "run",
        "--once",
        "--pipeline",
        file,
    ];
    program.ok(&args);
    if database.url.starts_with("sqlite:") {
        database
            .run(
                "UPDATE schedules SET planned_until = strftime('%Y-%m-%dT%H:', 'now', '-10 hours') \
                    || printf('%02d', strftime('%M', 'now') / 15 * 15) || ':00+00:00'",
            )
            .await;
    } else {
        database
            .run(
                "UPDATE schedules SET planned_until = \
                    to_timestamp(floor(extract(epoch FROM now()) / 900) * 900 - 36000)",
            )
            .await;
    }
    database.run("DELETE FROM scheduled_runs").await;
}

fn start(program: &Program, database: &TestDatabase, file: &str) -> Child {
    let mut command: Command =
        program.command(&["--database", &database.url, "-q", "schedule", "run"]);
    command
        .args(["--pipeline", file])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn schedulers_that_are_killed_at_twenty_moments_run_every_slot_once() {
    let given = std::env::var("KILLS_SEED").ok();
    let seed = given.map_or(15, |seed| seed.parse().expect("KILLS_SEED is a number"));
    let mut random = fastrand::Rng::with_seed(seed);
    for database in databases() {
        let program = Program::new();
        let stages = if database.url.starts_with("sqlite:") {
            2
        } else {
            1
        };
        let file = program.write("kills.toml", file(stages));
        prepare(&program, &database, &file).await;
        let ended =
            "SELECT COUNT(*) FROM scheduled_runs WHERE status NOT IN ('waiting', 'running')";
        let mut running = [
            start(&program, &database, &file),
            start(&program, &database, &file),
        ];
        for kill in 0..KILLS {
            let far = i64::try_from(kill).unwrap();
            while number(&database.url, ended).await < far {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::thread::sleep(Duration::from_millis(random.u64(..80)));
            let victim = &mut running[random.usize(..2)];
            victim.kill().unwrap();
            victim.wait().unwrap();
            *victim = start(&program, &database, &file);
        }
        let begun = topicmill::clock::SystemClock::shared();
        while number(&database.url, ended).await < SLOTS {
            assert!(begun.elapsed() < Duration::from_mins(1), "{}", database.url);
            std::thread::sleep(Duration::from_millis(20));
        }
        // A signal lets them end.
        for child in &running {
            let pid = child.id().to_string();
            assert!(
                Command::new("kill")
                    .args(["-TERM", &pid])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        for child in &mut running {
            assert_eq!(child.wait().unwrap().code(), Some(143), "{}", database.url);
        }
        let what = format!("{} seed {seed}", database.url);
        let found = async |sql: &str| number(&database.url, sql).await;
        let slots = found("SELECT COUNT(*) FROM scheduled_runs").await;
        let distinct = "SELECT COUNT(DISTINCT due_at) FROM scheduled_runs";
        assert_eq!(found(distinct).await, slots, "{what}");
        // A quarter of an hour may have begun meanwhile, whose slot the signal stopped.
        assert!((SLOTS..=SLOTS + 1).contains(&slots), "{what}: {slots}");
        let done = found("SELECT COUNT(*) FROM scheduled_runs WHERE status = 'done'").await;
        assert!((SLOTS..=slots).contains(&done), "{what}: {done} done");
        let other = "SELECT COUNT(*) FROM scheduled_runs WHERE status NOT IN ('done', 'waiting')";
        assert_eq!(found(other).await, 0, "{what}");
        // Each stage came to its end once, as the slot has it; one that was cut short was done again.
        let missing = format!(
            "SELECT COUNT(*) FROM scheduled_runs s WHERE s.status = 'done' AND {stages} > \
             (SELECT COUNT(*) FROM runs r WHERE r.scheduled_run_id = s.id AND r.status = 'done')"
        );
        assert_eq!(found(&missing).await, 0, "{what}");
        let deaths = found("SELECT CAST(SUM(deaths) AS BIGINT) FROM scheduled_runs").await;
        assert!(
            deaths >= 3,
            "{what}: only {deaths} kills met a slot at work"
        );
        let again = "SELECT COUNT(*) FROM runs r JOIN scheduled_runs s ON s.id = r.scheduled_run_id \
            WHERE r.status = 'done' AND s.status = 'done'";
        let again = found(again).await - i64::try_from(stages).unwrap() * done;
        assert!(
            again <= deaths,
            "{what}: {again} stages ran again after {deaths} deaths"
        );
        let overlapping = "SELECT COUNT(*) FROM scheduled_runs a JOIN scheduled_runs b ON a.due_at < b.due_at \
            AND b.started_at < a.finished_at";
        assert_eq!(found(overlapping).await, 0, "{what}");
        let list = program.ok(&[
            "--database",
            &database.url,
            "schedule",
            "list",
            "--pipeline",
            &file,
            "--format",
            "json",
        ]);
        let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
        assert_eq!(list[0]["missed_7_days"], 0, "{list}");
        assert_eq!(list[0]["failed_7_days"], 0, "{list}");
    }
}
