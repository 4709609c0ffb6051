//! `labels drop`, `model drop` and `topic rename`.

use serde_json::Value;

use topicmill::clock::SystemClock;

use super::*;

async fn count(url: &str, sql: &str) -> i64 {
    let store = Store::open(url, Access::ReadOnly).await.unwrap();
    let rows = store.query(sql).await.unwrap().rows;
    store.close().await.unwrap();
    rows[0][0].as_i64().unwrap()
}

/// A second label set beside the first, which shares one of its labels.
async fn with_another_label_set(url: &str) {
    execute(
        url,
        "INSERT INTO label_sets (name, hash, template, mode, threshold, created_at) VALUES \
           ('other', 'abcdef0123', 'About {}.', 'single', 0.0, '2026-01-02T09:00:00+00:00'); \
         INSERT INTO labels (label_set_id, position, slug, label, hypothesis) VALUES \
           (2, 0, 'games', 'games', 'About games.'), (2, 1, 'art', 'art', 'About art.'); \
         INSERT INTO hypotheses (hash, text) VALUES (BYTES(5123456789abcdef), 'About art.'); \
         INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment, contradiction) VALUES \
           (1, BYTES(0123456789abcdef), 2, 0.5, -0.5); \
         INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, mode, \
           run_id, classified_at) VALUES ('t3_a1', 1, 2, BYTES(0123456789abcdef), 'games', 0.75, 0.5, FALSE, 'single', 1, \
           '2026-01-01T11:00:00+00:00')",
    )
    .await;
    let store = Store::open(url, Access::Existing).await.unwrap();
    for text in ["About games.", "About art."] {
        // Under the key by which the program finds it.
        store.ensure_hypotheses(&[text.to_owned()]).await.unwrap();
    }
    store.close().await.unwrap();
    execute(
        url,
        "DELETE FROM pair_logits; \
         INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment, contradiction) \
         SELECT 1, BYTES(0123456789abcdef), MAX(id), 0.5, -0.5 FROM hypotheses GROUP BY text",
    )
    .await;
}

#[tokio::test]
async fn a_label_set_goes_with_its_labels_and_the_logits_that_only_it_needs() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        with_another_label_set(url).await;
        let program = Program::new();
        // Nobody can be asked, and the current one is not dropped by the way.
        let ran = on(&program, url, &["labels", "drop", "other"]);
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains("--yes"), "{}", ran.stderr);
        let ran = on(&program, url, &["labels", "drop", "two", "--yes"]);
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains("--current"), "{}", ran.stderr);
        assert_eq!(count(url, "SELECT COUNT(*) FROM label_sets").await, 2);

        on_ok(&program, url, &["labels", "drop", "other", "--yes"]);
        assert_eq!(
            count(url, "SELECT COUNT(*) FROM label_sets WHERE name = 'other'").await,
            0
        );
        assert_eq!(
            count(url, "SELECT COUNT(*) FROM labels WHERE label_set_id = 2").await,
            0
        );
        assert_eq!(
            count(
                url,
                "SELECT COUNT(*) FROM classifications WHERE label_set_id = 2"
            )
            .await,
            0
        );
        // The label that the other one shares keeps its logits.
        let left = "SELECT COUNT(*) FROM pair_logits l JOIN hypotheses h ON h.id = l.hypothesis_id WHERE h.text = ";
        assert_eq!(
            count(url, &format!("{left}'About games.'")).await,
            1,
            "{url}"
        );
        assert_eq!(count(url, &format!("{left}'About art.'")).await, 0, "{url}");
        on_ok(&program, url, &["db", "check"]);

        on_ok(
            &program,
            url,
            &["labels", "drop", "two", "--yes", "--current"],
        );
        assert_eq!(count(url, "SELECT COUNT(*) FROM classifications").await, 0);
        assert_eq!(count(url, "SELECT COUNT(*) FROM current_target").await, 0);
        assert_eq!(count(url, "SELECT COUNT(*) FROM posts").await, 4);
        // A worker that comes back after its lease has ended writes nothing.
        let store = Store::open(url, Access::Existing).await.unwrap();
        let now = topicmill::domain::Timestamp::from(SystemClock::shared().now());
        let lease = topicmill::store::Lease(1);
        assert!(
            !store
                .renew(lease, now, Duration::from_mins(1))
                .await
                .unwrap()
        );
        store.close().await.unwrap();
        // What people said stays.
        assert_eq!(count(url, "SELECT COUNT(*) FROM gold").await, 2);
    }
}

#[tokio::test]
async fn a_model_goes_with_all_that_it_computed() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        let program = Program::new();
        on_ok(&program, url, &["model", "drop", "e", "--yes"]);
        for table in ["text_vectors", "label_vectors"] {
            assert_eq!(
                count(url, &format!("SELECT COUNT(*) FROM {table}")).await,
                0,
                "{table}"
            );
        }
        assert_eq!(count(url, "SELECT COUNT(*) FROM pair_logits").await, 1);
        // Under a worker that is at work nothing goes.
        execute(
            url,
            "UPDATE leases SET expires_at = '2096-01-01T10:00:00+00:00'",
        )
        .await;
        let ran = on(&program, url, &["model", "drop", "m", "--yes", "--current"]);
        assert_eq!(ran.code, 75, "{}", ran.stderr);
        execute(
            url,
            "UPDATE leases SET expires_at = '2026-01-01T10:00:00+00:00'",
        )
        .await;
        on_ok(&program, url, &["model", "drop", "m", "--yes", "--current"]);
        for table in [
            "models",
            "classifications",
            "packed_scores",
            "pair_logits",
            "backlog",
        ] {
            assert_eq!(
                count(url, &format!("SELECT COUNT(*) FROM {table}")).await,
                0,
                "{table}"
            );
        }
        let ran = on(&program, url, &["model", "drop", "m", "--yes"]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        on_ok(&program, url, &["db", "check"]);
    }
}

#[tokio::test]
async fn a_topic_is_renamed_everywhere_and_no_post_is_labelled_anew() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        let program = Program::new();
        execute(
            url,
            "UPDATE posts SET topic = 'gaming' WHERE fullname = 't3_a1'",
        )
        .await;
        // A run that is under way would go on under the former name.
        let store = database.open_on_server_time().await;
        let now = topicmill::domain::Timestamp::from(SystemClock::shared().now());
        let run = store
            .begin_run(topicmill::domain::Stage::Collect, "w", now)
            .await
            .unwrap();
        let busy = on(&program, url, &["topic", "rename", "gaming", "games"]);
        assert_eq!(busy.code, 75, "{}", busy.stderr);
        let (counts, outcomes) = (serde_json::json!({}), serde_json::json!([]));
        let done = topicmill::domain::RunStatus::Done;
        store
            .finish_run(run, done, &counts, &outcomes, None, now)
            .await
            .unwrap();
        let before = store.label_set(1).await.unwrap();
        store.close().await.unwrap();

        for (old, new) in [
            ("gaming", "food"),
            ("gaming", "Two Words"),
            ("gaming", "gaming"),
            ("nobody", "games"),
            ("gaming", "other"),
        ] {
            let ran = on(&program, url, &["topic", "rename", old, new]);
            assert_eq!(ran.code, 2, "{old} {new} {}", ran.stderr);
        }
        let ran = on_ok(
            &program,
            url,
            &["topic", "rename", "gaming", "games", "--format", "json"],
        );
        let counts: Value = serde_json::from_str(&ran.stdout).unwrap();
        let counts: Vec<u64> = counts
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["count"].as_u64().unwrap())
            .collect();
        assert!(counts[..5].iter().all(|n| *n > 0), "{counts:?}");
        for (table, column) in [
            ("posts", "topic"),
            ("sightings", "topic"),
            ("watermarks", "topic"),
            ("gaps", "topic"),
            ("labels", "slug"),
            ("classifications", "label"),
            ("gold", "label"),
        ] {
            let left = format!("SELECT COUNT(*) FROM {table} WHERE {column} = 'gaming'");
            assert_eq!(count(url, &left).await, 0, "{table}");
        }
        // The version is that of a pipeline file with the new slug, so nothing is labelled anew.
        let mut expected = before;
        expected.labels[0].slug = "games".into();
        let store = Store::open(url, Access::ReadOnly).await.unwrap();
        assert_eq!(store.label_sets().await.unwrap()[0].hash, expected.hash());
        let row = "SELECT topic, label_topic FROM labeled_posts WHERE fullname = 't3_a1'";
        assert_eq!(
            store.query(row).await.unwrap().rows,
            [["games", "games"].map(Value::from)]
        );
        store.close().await.unwrap();
        on_ok(&program, url, &["db", "check"]);
    }
}

#[tokio::test]
async fn nothing_is_dropped_or_renamed_under_a_run_or_a_slot() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        with_another_label_set(url).await;
        let program = Program::new();
        let now = if url.starts_with("sqlite:") {
            "strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')"
        } else {
            "now()"
        };
        let begin = format!(
            "INSERT INTO runs (stage, status, worker, started_at, heartbeat_at) VALUES ('classify', 'running', 'elsewhere:1', {now}, {now})"
        );
        execute(url, &begin).await;
        let busy = |args: &[&str], why: &str| {
            let ran = on(&program, url, args);
            assert_eq!(ran.code, 75, "{url}: {}", ran.stderr);
            assert!(ran.stderr.contains(why), "{url}: {}", ran.stderr);
        };
        busy(&["labels", "drop", "other", "--yes"], "is under way");
        busy(&["topic", "rename", "food", "dishes"], "is under way");
        execute(url, "DELETE FROM runs WHERE worker = 'elsewhere:1'").await;
        let slot = "INSERT INTO scheduled_runs (schedule, due_at, status, worker, takes, lease_until) VALUES \
            ('s', '2026-01-02T09:00:00+00:00', 'running', 'elsewhere:1', 1, '2999-01-01T00:00:00+00:00')";
        execute(url, slot).await;
        busy(
            &["topic", "rename", "food", "dishes"],
            "a slot of a schedule runs",
        );
        execute(url, "UPDATE scheduled_runs SET status = 'done'").await;
        on_ok(&program, url, &["labels", "drop", "other", "--yes"]);
        on_ok(&program, url, &["topic", "rename", "food", "dishes"]);
    }
}
