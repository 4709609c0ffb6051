//! Tests `status` in unusual cases: labels that the settings do not name, a wrong clock, many posts.

use serde_json::{Value, json};

use super::{answer, created, failed_checks, next};
use crate::support::builders::{LABELS, lines};
use crate::support::postgres::{databases, sqlite};

#[test]
fn classify_is_suggested_only_if_it_labels_with_the_current_model_and_label_set() {
    let program = created(sqlite());
    program.import(&lines(60, 60));
    let two = program.pipeline("two", "", &LABELS[..2]);
    let next = |settings: &[(&str, &str)]| {
        let all = program.run_with(settings, "status --format json").json();
        let (next, timed) = (&all["next"], all["seconds_left"].is_u64());
        (next["command"].clone(), next["why"].clone(), timed)
    };
    // The reason names what to do, and a wait without an end has no time.
    let waits = |settings: &[(&str, &str)], reason: &str| {
        let (command, why, timed) = next(settings);
        assert_eq!((command, timed), (Value::Null, false), "{why}");
        assert!(why.as_str().unwrap().contains(reason), "{reason}: {why}");
    };
    let with_file = [("pipeline", two.as_str())];
    program.ok("classify --pipeline two.toml --limit 52");
    let (command, _, timed) = next(&with_file);
    assert_eq!((command, timed), (json!("topicmill classify"), true));
    let switch = "8 posts are waiting for a label of `two`, but the settings name a different label set or model: run \
                  `topicmill classify --make-current`";
    waits(&[], switch);
    let other = ("classify.model", "models/minilm-reddit-topics");
    waits(&[with_file[0], other], switch);
    program.pipeline("two", "", &[("gaming", "board games"), LABELS[1]]);
    waits(&with_file, switch);
    let screen = program.run_with(&with_file, "status").stdout;
    assert!(screen.contains("--make-current"), "{screen}");
    assert!(!answer(&screen, "Waiting").unwrap().contains("/s"));
    program.write("two.toml", "no pipeline");
    waits(&with_file, "correct the pipeline file: setting `pipeline`");
    program.pipeline("two", "", &LABELS[..2]);
    program.ok("classify --pipeline two.toml");
    waits(&with_file, "nothing to run");
}

#[test]
fn a_monitor_learns_of_a_pipeline_file_that_cannot_be_read() {
    let program = created(sqlite());
    program.write("typo.toml", "labels = [\"food\"");
    for name in ["missing.toml", "typo.toml"] {
        let ran = program.run_with(&[("pipeline", name)], "status --check");
        ran.expect_code(1);
        assert!(ran.stdout.contains(name), "{}", ran.stdout);
    }
    program.write("topicmill.toml", "pipeline = \"missing.toml\"\n");
    assert_eq!(failed_checks(&program, ""), ["pipeline_unreadable"]);
}

#[test]
fn retries_and_a_vacuum_are_suggested_only_if_they_are_due() {
    let program = created(sqlite());
    program.import(&lines(3, 3));
    program.ok("classify");
    assert_eq!(next(&program), Value::Null);
    let rewrite = "INSERT INTO meta (key, value) VALUES ('rewrite_due', '1')";
    program.execute(rewrite);
    assert_eq!(next(&program), "topicmill db vacuum");
    let parked = "DELETE FROM classifications; INSERT INTO backlog (model_id, label_set_id, fullname, attempts, error) \
                  SELECT t.model_id, t.label_set_id, p.fullname, 9, 'too odd' FROM posts p CROSS JOIN current_target t";
    program.execute(parked);
    assert_eq!(next(&program), "topicmill classify --select failed");
    assert_eq!(failed_checks(&program, ""), ["parked"]);
    let failures = program.json("status")["failures"].take();
    assert_eq!(failures, json!([{"error": "too odd", "posts": 3}]));
}

#[test]
fn a_post_from_the_future_does_not_hide_a_stalled_source() {
    let program = created(sqlite());
    program.import(&lines(2, 2));
    let future = "UPDATE things SET collected_at = '2999-01-01T00:00:00+00:00'";
    let one = "UPDATE things SET collected_at = '2026-01-01T00:00:00+00:00' WHERE fullname <> 't3_k00001'";
    let created =
        "UPDATE things SET created_at = '2999-01-01T00:00:00+00:00' WHERE fullname = 't3_k00001'";
    program.execute(&format!("{future}; {one}; {created}"));
    let newest = program.json("status")["newest"].take();
    let expected =
        json!({"collected_at": "2026-01-01T00:00:00Z", "created_at": "2023-11-14T22:13:20Z"});
    assert_eq!(newest, expected);
    let failed = || failed_checks(&program, "--max-age-post 2h");
    assert_eq!(failed(), ["max_age_post"]);
    program.execute(future);
    assert_eq!(failed(), ["max_age_post"]);
}

#[test]
fn a_scheduled_run_from_the_future_does_not_hide_a_failure() {
    let program = created(sqlite());
    let runs = "INSERT INTO scheduled_runs (schedule, due_at, status, started_at, finished_at) VALUES \
         ('broken', '2026-01-01T00:00:00+00:00', 'failed', '2026-01-01T00:00:00+00:00', '2998-01-01T00:00:00+00:00'), \
         ('broken', '2999-01-01T00:00:00+00:00', 'done', '2026-01-01T00:00:00+00:00', '2998-01-01T00:00:00+00:00'), \
         ('repaired', '2026-01-01T00:00:00+00:00', 'done', '2026-01-01T00:00:00+00:00', '2998-01-01T00:00:00+00:00'), \
         ('repaired', '2999-01-01T00:00:00+00:00', 'failed', '2026-01-01T00:00:00+00:00', '2998-01-01T00:00:00+00:00')";
    program.execute(runs);
    let failed = program.json("status")["failed_scheduled_runs"].take();
    assert_eq!(failed.as_array().unwrap().len(), 1, "{failed}");
    assert_eq!(failed[0]["schedule"], "broken");
}

#[test]
fn a_fallback_is_not_blamed_if_the_database_fails() {
    let program = created(sqlite());
    // In the sample, r/education is private, and r/Teachers is its fallback.
    let full = "CREATE TRIGGER full BEFORE INSERT ON things WHEN NEW.subreddit = 'Teachers' \
                BEGIN SELECT RAISE(ABORT, 'no room'); END";
    program.execute(full);
    let ran = program.run("collect --source sample --limit 3");
    ran.expect_exit(4, "no room");
    assert_eq!(program.json("status")["failed_topics"], json!([]));
}

/// Inserts 240,000 posts.
const MANY_ON_SQLITE: &str = "\
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 240000) \
INSERT INTO things (fullname, subreddit, title, selftext, over_18, is_self, source, text_hash, created_at, \
       collected_at, updated_at) \
SELECT 't3_m' || i, 's', 'a title', '', FALSE, TRUE, 'import', randomblob(16), \
       '2026-01-01T00:00:00+00:00', '2026-01-02T00:00:00+00:00', '2026-01-02T00:00:00+00:00' FROM n";

const MANY_ON_POSTGRES: &str = "\
INSERT INTO things (fullname, subreddit, title, selftext, over_18, is_self, source, text_hash, created_at, \
       collected_at, updated_at) \
SELECT 't3_m' || i, 's', 'a title', '', FALSE, TRUE, 'import', decode(md5(i::text), 'hex'), \
       '2026-01-01T00:00:00+00:00', '2026-01-02T00:00:00+00:00', '2026-01-02T00:00:00+00:00' \
  FROM generate_series(1, 240000) AS n (i); ANALYZE things";

/// Labels nine in ten of these posts, of which one in five has a low score.
const LABEL_MANY: &str = "\
INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, mode, \
       classified_at) \
SELECT p.fullname, t.model_id, t.label_set_id, p.text_hash, 'gaming', 0.9, 0.8, \
       p.fullname LIKE '%3' OR p.fullname LIKE '%7', 'single', '2026-01-03T00:00:00+00:00' \
  FROM things p CROSS JOIN current_target t WHERE p.fullname LIKE 't3_m%' AND p.fullname NOT LIKE '%0'";

#[test]
fn large_tables_are_estimated_and_counted_on_request() {
    for program in databases().into_iter().map(created) {
        program.import(&lines(2, 2));
        program.ok("classify");
        let is_sqlite = program.url().starts_with("sqlite:");
        program.execute(if is_sqlite {
            MANY_ON_SQLITE
        } else {
            MANY_ON_POSTGRES
        });
        program.execute(LABEL_MANY);
        let exact = program.json("status --exact");
        let about = program.json("status");
        assert_eq!(
            [&exact["is_estimate"], &about["is_estimate"]],
            [false, true]
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
        let screen = program.ok("status").stdout;
        for (name, start) in [("Waiting", "about 2"), ("Posts", "about 240,0")] {
            let shown = answer(&screen, name).unwrap();
            assert!(shown.starts_with(start), "{screen}");
        }
    }
}
