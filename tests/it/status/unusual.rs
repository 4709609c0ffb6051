//! Tests `status` in unusual cases: labels that the settings do not name, a wrong clock, no text, many posts.

use serde_json::{Value, json};

use super::{Scene, answer};
use crate::shortlist::model;
use crate::support::postgres::sqlite;
use crate::support::program::{Program, finished};

/// A pipeline file whose labels are not the built-in ones.
pub(super) const TWO: &str = "name = \"two\"\nmode = \"single\"\n\
    [[topic]]\nslug = \"gaming\"\nlabel = \"video games\"\nsubreddits = [\"gaming\"]\n\
    [[topic]]\nslug = \"food\"\nlabel = \"food and cooking\"\nsubreddits = [\"food\"]\n";

#[test]
fn a_backlog_of_unconfigured_labels_gets_a_command_that_labels_it() {
    for scene in Scene::each() {
        scene.import(6);
        let two = scene.program.write("two.toml", TWO);
        let classify = ["classify", "--pipeline", &two, "--limit", "2"];
        assert_eq!(scene.run(&classify).code, 0);
        let next = scene.json(&["status"])["next"].take();
        assert_eq!(next["command"], "topicmill classify --pipeline FILE");
        let why = next["why"].as_str().unwrap();
        assert!(
            why.starts_with("4 posts are waiting for a label of `two` (version "),
            "{why}"
        );
        // If the settings name the file, the command needs no flag.
        let with_setting = |args: &[&str]| {
            let mut command = scene.program.command(args);
            command.env("TOPICMILL__PIPELINE", &two);
            finished(command.output().unwrap())
        };
        let output = with_setting(&["status", "--format", "json"]);
        let output: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(output["next"]["command"], "topicmill classify");
        assert_eq!(with_setting(&["classify"]).code, 0);
        let next = scene.json(&["status"])["next"].take();
        assert_eq!(next["command"], Value::Null, "{next}");
    }
}

#[test]
fn an_edited_pipeline_file_gets_a_command_that_labels_posts_with_it() {
    for scene in Scene::each() {
        scene.import(6);
        let two = scene.program.write("two.toml", TWO);
        let run = |args: &[&str]| {
            let ran = scene.run_with(&[("pipeline", two.as_str())], args);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            ran.stdout
        };
        let next = || {
            let screen = run(&["status"]);
            answer(&screen, "Next").unwrap().to_owned()
        };
        run(&["classify"]);
        let done = "nothing: every post has a label";
        assert_eq!(next(), done);
        let edited = TWO.replace("video games", "board games");
        scene.program.write("two.toml", edited);
        assert!(
            next().starts_with("`topicmill classify --make-current`: the pipeline file in the"),
            "{}",
            next()
        );
        // The current set may be a calibrated copy of the file, which should not be undone.
        let all = run(&["status", "--format", "json"]);
        assert!(
            all.contains("or name the file of this set in the setting `pipeline`"),
            "{all}"
        );
        run(&["classify", "--make-current"]);
        assert_eq!(next(), done);
        // Without the setting, the file is unknown.
        scene.program.write("two.toml", TWO);
        assert_eq!(answer(&scene.status(), "Next"), Some(done));
    }
}

#[test]
fn a_calibrated_copy_of_the_file_in_the_settings_is_kept() {
    for scene in Scene::each() {
        scene.import(6);
        let two = scene.program.write("two.toml", TWO);
        let calibrated = TWO.replace("\"two\"", "\"two-calibrated\"\nthreshold = 0.5");
        let calibrated = scene.program.write("calibrated.toml", calibrated);
        let run = |pipeline: &str, args: &[&str]| {
            let ran = scene.run_with(&[("pipeline", pipeline)], args);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            ran
        };
        let next = || {
            let all = run(&two, &["status", "--format", "json"]).stdout;
            let all: Value = serde_json::from_str(&all).unwrap();
            let why = all["next"]["why"].as_str().unwrap();
            assert!(
                why.starts_with("set `pipeline` in the settings to the file of the current"),
                "{why}"
            );
            all["next"]["command"].clone()
        };
        run(&two, &["classify"]);
        let make = ["classify", "--pipeline", &calibrated, "--make-current"];
        let advice = "runs without --pipeline use `";
        run(&two, &make).expect_stderr_all(&[advice, &format!("settings to `{calibrated}`")]);
        assert_eq!(next(), Value::Null);

        scene.import(8);
        assert_eq!(next(), "topicmill classify --pipeline FILE");
        let added = run(&two, &["classify"]).stderr;
        assert!(
            added.contains("the current label set is a calibrated copy: to label new posts"),
            "{added}"
        );
        assert!(!added.contains("labels use"), "{added}");
        // Although all posts have labels of the file in the settings, these are not recommended.
        assert_eq!(next(), "topicmill classify --pipeline FILE");

        let logged = run(&calibrated, &make).stderr;
        assert!(!logged.contains(advice), "{logged}");
        let status = run(&calibrated, &["status"]).stdout;
        let done = "nothing: every post has a label";
        assert_eq!(answer(&status, "Next"), Some(done));
    }
}

#[test]
fn a_backlog_of_a_different_mode_or_model_gets_a_command_that_continues_it() {
    for scene in Scene::each() {
        scene.import(6);
        let large = model("tiny-bart-made");
        let shortlist = ["--model", &large, "--shortlist", "4"];
        let mode = ["--mode", "multi"];
        let go_on = "topicmill classify --mode multi";
        let both = " --model DIR --shortlist 4";
        for (flags, command) in [
            (&mode[..], go_on.to_owned()),
            (
                &[&mode[..], &shortlist[..]].concat()[..],
                go_on.to_owned() + both,
            ),
        ] {
            let some = ["classify", "--limit", "2", "--make-current"];
            let ran = scene.run(&[&some[..], flags].concat());
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            let next = scene.json(&["status"])["next"].take();
            assert_eq!(next["command"], command, "{next}");
        }
        // The suggested command works.
        let both: Vec<&str> = both.split_whitespace().collect();
        let both = both.iter().map(|word| match *word {
            "DIR" => large.as_str(),
            word => word,
        });
        let both: Vec<&str> = both.collect();
        let ran = scene.run(&[&["classify"][..], &mode, &both].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let all = scene.json(&["status"]);
        assert_eq!(all["backlog"]["unlabelled"], 0, "{all:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_from_the_future_does_not_hide_a_stalled_source() {
    for scene in Scene::each() {
        scene.import(2);
        scene
            .database
            .run(
                "UPDATE posts SET collected_at = '2026-01-01T00:00:00+00:00'; \
                 UPDATE posts SET collected_at = '2999-01-01T00:00:00+00:00', created_at = '2999-01-01T00:00:00+00:00' \
                  WHERE fullname = 't3_k00001'",
            )
            .await;
        let newest = scene.json(&["status"])["newest"].take();
        let expected =
            json!({"collected_at": "2026-01-01T00:00:00Z", "created_at": "2023-11-14T22:13:20Z"});
        assert_eq!(newest, expected);
        let screen = scene.status();
        let posts = answer(&screen, "Posts").unwrap();
        assert!(posts.contains("days ago"), "{screen}");
        let late = scene.run(&["status", "--check", "--max-age-post", "2h"]);
        assert_eq!(late.code, 1, "{}", late.stdout);
        assert!(
            late.stdout.contains("the last new post was stored"),
            "{}",
            late.stdout
        );
        scene
            .database
            .run("UPDATE posts SET collected_at = '2999-01-01T00:00:00+00:00'")
            .await;
        let wrong = scene.run(&["status", "--check", "--max-age-post", "2h"]);
        assert_eq!(wrong.code, 1, "{}", wrong.stdout);
        assert!(
            wrong.stdout.contains("at a time in the future"),
            "{}",
            wrong.stdout
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_run_from_the_future_does_not_hide_a_failure() {
    for scene in Scene::each() {
        scene
            .database
            .run(
                "INSERT INTO scheduled_runs (schedule, due_at, status, finished_at, error) VALUES \
                 ('broken', '2026-01-01T00:00:00+00:00', 'failed', CURRENT_TIMESTAMP, 'it fell'), \
                 ('broken', '2999-01-01T00:00:00+00:00', 'done', '2999-01-01T00:00:00+00:00', NULL), \
                 ('mended', '2026-01-01T00:00:00+00:00', 'done', CURRENT_TIMESTAMP, NULL), \
                 ('mended', '2999-01-01T00:00:00+00:00', 'failed', '2999-01-01T00:00:00+00:00', 'it fell')",
            )
            .await;
        let failed = scene.json(&["status"])["failed_scheduled_runs"].take();
        let failed = failed.as_array().unwrap();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(failed[0]["schedule"], "broken");
        scene.import(2);
        assert_eq!(scene.run(&["classify"]).code, 0);
        let next = scene.json(&["status"])["next"].take();
        assert_eq!(next["command"], "topicmill schedule list", "{next}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_is_not_blamed_if_the_database_fails() {
    let database = sqlite();
    let program = Program::with_database(&database.url);
    let scene = Scene { program, database };
    scene.ok(&["db", "create"]);
    // In the sample, r/education is private, and r/Teachers is its fallback.
    let full = "CREATE TRIGGER full BEFORE INSERT ON posts WHEN NEW.subreddit = 'Teachers' \
                BEGIN SELECT RAISE(ABORT, 'no room'); END";
    scene.database.run(full).await;
    let ran = scene.run(&["collect", "--source", "sample", "--limit", "3"]);
    ran.expect_exit(4, "no room");
    assert_eq!(scene.json(&["status"])["failed_topics"], json!([]));
}

/// Inserts 240,000 posts: one in ten is unlabelled, and one in five of the others has a low score.
const MANY: [(&str, &str); 2] = [
    (
        "sqlite",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 240000) \
      INSERT INTO posts (fullname, subreddit, title, selftext, over_18, is_self, source, text_hash, created_at, \
      collected_at, updated_at) SELECT 't3_m' || i, 's', 'a title', '', FALSE, TRUE, 'import', randomblob(16), \
             '2026-01-01T00:00:00+00:00', '2026-01-02T00:00:00+00:00', '2026-01-02T00:00:00+00:00' FROM n;",
    ),
    (
        "postgres",
        "INSERT INTO posts (fullname, subreddit, title, selftext, over_18, is_self, source, text_hash, created_at, \
      collected_at, updated_at) SELECT 't3_m' || i, 's', 'a title', '', FALSE, TRUE, 'import', decode(md5(i::text), \
             'hex'), '2026-01-01T00:00:00+00:00', '2026-01-02T00:00:00+00:00', '2026-01-02T00:00:00+00:00' FROM \
             generate_series(1, 240000) AS n (i); ANALYZE posts;",
    ),
];

const LABELS: &str = "\
INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, mode, \
classified_at) SELECT p.fullname, t.model_id, t.label_set_id, p.text_hash, 'gaming', 0.9, 0.8, p.fullname LIKE '%3' OR \
       p.fullname LIKE '%7', 'single', '2026-01-03T00:00:00+00:00' FROM posts p CROSS JOIN current_target t WHERE \
       p.fullname LIKE 't3_m%' AND p.fullname NOT LIKE '%0'";

#[tokio::test(flavor = "multi_thread")]
async fn large_tables_are_estimated_and_counted_on_request() {
    for scene in Scene::each() {
        scene.import(2);
        assert_eq!(scene.run(&["classify"]).code, 0);
        let backend = scene.database.url.split(':').next().unwrap();
        let posts = MANY.iter().find(|(name, _)| *name == backend).unwrap().1;
        scene.database.run(posts).await;
        scene.database.run(LABELS).await;
        let exact = scene.json(&["status", "--exact"]);
        let about = scene.json(&["status"]);
        assert_eq!(
            (&exact["is_estimate"], &about["is_estimate"]),
            (&json!(false), &json!(true))
        );
        let (exact, about) = (&exact["backlog"], &about["backlog"]);
        assert_eq!(exact["unlabelled"], 24_000);
        for figure in ["posts", "labelled", "unsure", "unlabelled", "unchecked"] {
            let share = |all: &Value| all[figure].as_f64().unwrap() / 240_002.0;
            // Five standard errors of a sample of 2,000, for any share.
            let apart = (share(about) - share(exact)).abs();
            assert!(apart < 0.056, "{figure}: {about} {exact}");
        }
        assert_eq!(about["other"], 0);
        assert_eq!(about["oldest_unlabelled"], exact["oldest_unlabelled"]);
        let screen = scene.status();
        assert!(
            answer(&screen, "Waiting").unwrap().starts_with("about 2"),
            "{screen}"
        );
        assert!(
            answer(&screen, "Posts").unwrap().starts_with("about 240,0"),
            "{screen}"
        );
    }
}
