//! Tests `purge --thin`: one sighting per post, topic and day is kept, runs become daily sums, and no view changes.

use serde_json::Value;

use std::fmt::Write as _;

use topicmill_core::clock::SystemClock;

use super::*;

async fn rows(url: &str, sql: &str) -> Vec<Vec<Value>> {
    let store = Store::open(url, Access::ReadOnly).await.unwrap();
    let rows = store.query(sql).await.unwrap().rows;
    store.close().await.unwrap();
    rows
}

async fn count(url: &str, sql: &str) -> i64 {
    rows(url, sql).await[0][0].as_i64().unwrap()
}

/// Inserts four days of runs, two of them long ago and two recent: every three hours, a `collect` that sees three
/// posts, and a `classify` with nothing to do.
async fn history(url: &str) {
    let posts: Vec<String> = (0..3)
        .map(|n| {
            format!(
                "('t3_h{n}', 'food', 'Title {n}', '', FALSE, TRUE, 'reddit', BYTES(h{n}23456789abcdef), \
                  '2026-01-01T09:00:00+00:00', '2026-01-01T09:00:00+00:00', '2026-01-01T09:00:00+00:00', 'food')"
            )
        })
        .collect();
    execute(
        url,
        &format!(
            "INSERT INTO posts (fullname, subreddit, title, selftext, over_18, is_self, source, text_hash, created_at, \
               collected_at, updated_at, topic) VALUES {}",
            posts.join(", ")
        ),
    )
    .await;
    let today = SystemClock::shared().now().date_naive();
    let mut sql = String::new();
    let mut id = 2;
    for ago in [60, 59, 1, 0] {
        let day = today - chrono::TimeDelta::days(ago);
        for hour in (0..24).step_by(3) {
            for stage in ["collect", "classify"] {
                id += 1;
                let _ = writeln!(
                    sql,
                    "INSERT INTO runs (stage, status, worker, started_at, finished_at, counts) VALUES ('{stage}', \
                       'done', 'h:1', '{day}T{hour:02}:00:00+00:00', '{day}T{hour:02}:00:10+00:00', '{{\"posts\": \
                       3, \"rate\": 0.5}}');"
                );
                if stage == "collect" {
                    for n in 0..3 {
                        let _ = writeln!(
                            sql,
                            "INSERT INTO sightings VALUES ({id}, 'food', 't3_h{n}', 'hot', {n}, {hour});"
                        );
                    }
                }
            }
        }
    }
    execute(url, &sql).await;
}

#[tokio::test]
async fn thinning_keeps_one_sighting_a_day_and_changes_no_view() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        history(url).await;
        let untouched = async || {
            let changes = [
                "runs",
                "run_days",
                "sightings",
                "meta",
                "classifications",
                "watermarks",
                "gaps",
                "imports",
                "tombstones",
                "leases",
            ];
            let mut all = read_all(url).await;
            all.retain(|(name, _)| !changes.contains(&name.as_str()));
            all
        };
        let before = untouched().await;
        let program = Program::new();
        let old = "SELECT COUNT(*) FROM sightings s JOIN runs r ON r.id = s.run_id WHERE s.fullname LIKE 't3_h%' \
                    AND CAST(r.started_at AS TEXT) < CAST($ AS TEXT)";
        let limit =
            (SystemClock::shared().now().date_naive() - chrono::TimeDelta::days(30)).to_string();
        let old = old.replace('$', &format!("'{limit}'"));
        assert_eq!(count(url, &old).await, 2 * 8 * 3);
        let ran = on_ok(&program, url, &["purge", "--thin"]);
        // 2 days of 8 runs with 3 posts: the last sighting of each day is kept.
        ran.expect_stderr("sightings=42");
        assert_eq!(count(url, &old).await, 2 * 3, "{url}");
        let kept = rows(
            url,
            "SELECT DISTINCT s.reddit_score FROM sightings s WHERE s.fullname LIKE 't3_h%' AND s.run_id < 35",
        )
        .await;
        assert_eq!(
            kept.len(),
            1,
            "only the last sighting of the day is kept: {kept:?}"
        );
        assert_eq!(kept[0][0], 21);
        let recent = "SELECT COUNT(*) FROM sightings WHERE fullname LIKE 't3_h%'";
        assert_eq!(count(url, recent).await, 2 * 8 * 3 + 2 * 3);
        // On both days, 7 of 8 runs of `collect` and all runs of `classify` became sums.
        let days = rows(
            url,
            "SELECT stage, status, runs, seconds FROM run_days WHERE day > '2026' AND stage <> 'import' ORDER BY day, \
                stage",
        )
        .await;
        let days: Vec<String> = days
            .iter()
            .map(|row| serde_json::to_string(row).unwrap())
            .collect();
        let (collect, classify) = (r#"["collect","done",7,70]"#, r#"["classify","done",8,80]"#);
        let ours: Vec<&String> = days
            .iter()
            .filter(|row| [collect, classify].contains(&row.as_str()))
            .collect();
        assert_eq!(ours, [classify, collect, classify, collect], "{days:?}");
        let counts = "SELECT CAST(counts AS TEXT) FROM run_days WHERE runs = 8 LIMIT 1";
        let counts: Value =
            serde_json::from_str(rows(url, counts).await[0][0].as_str().unwrap()).unwrap();
        assert_eq!(counts, serde_json::json!({ "posts": 24 }));
        assert_eq!(untouched().await, before, "{url}");
        on_ok(&program, url, &["db", "check"]);
        // A second thinning changes nothing, and the current run is left alone.
        let again = on_ok(&program, url, &["purge", "--thin", "30"]);
        assert!(!again.stderr.contains("sightings="), "{}", again.stderr);
        assert_eq!(
            count(url, "SELECT COUNT(*) FROM runs WHERE id = 2").await,
            1
        );
    }
}
