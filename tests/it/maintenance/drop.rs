//! Tests `labels drop` and `model drop`.

use topicmill_core::clock::SystemClock;

use super::*;

async fn count(url: &str, sql: &str) -> i64 {
    let store = Store::open(url, Access::ReadOnly).await.unwrap();
    let rows = store.query(sql).await.unwrap().rows;
    store.close().await.unwrap();
    rows[0][0].as_i64().unwrap()
}

/// Adds a second label set that shares one label with the first.
async fn with_another_label_set(url: &str) {
    execute(
        url,
        "INSERT INTO label_sets (name, hash, template, mode, threshold, created_at) VALUES \
           ('other', 'abcdef0123', 'About {}.', 'single', 0.0, '2026-01-02T09:00:00+00:00'); \
         INSERT INTO labels (label_set_id, position, label, label_name, hypothesis) VALUES \
           (2, 0, 'games', 'games', 'About games.'), (2, 1, 'art', 'art', 'About art.'); \
         INSERT INTO hypotheses (hash, text) VALUES (BYTES(5123456789abcdef), 'About art.'); \
         INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment, contradiction) VALUES \
           (1, HASH(Alive; body), 2, 0.5, -0.5); \
         INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, \
           mode, run_id, classified_at) VALUES ('t3_a1', 1, 2, HASH(Alive; body), 'games', 0.75, 0.5, FALSE, \
           'single', 1, '2026-01-01T11:00:00+00:00')",
    )
    .await;
    let store = Store::open(url, Access::Existing).await.unwrap();
    for text in ["About games.", "About art."] {
        // The hypothesis needs the key by which the program looks it up.
        store
            .labels()
            .ensure_hypotheses(&[text.to_owned()])
            .await
            .unwrap();
    }
    store.close().await.unwrap();
    execute(
        url,
        "DELETE FROM pair_logits; \
         INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment, contradiction) \
         SELECT 1, HASH(Alive; body), MAX(id), 0.5, -0.5 FROM hypotheses GROUP BY text",
    )
    .await;
}

#[tokio::test]
async fn dropping_a_label_set_removes_its_labels_and_unshared_logits() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        with_another_label_set(url).await;
        let program = Program::new();
        // Without a terminal there is no confirmation, and the current set cannot be dropped.
        on(&program, url, &["labels", "drop", "other"]).expect_exit(2, "--yes");
        on(&program, url, &["labels", "drop", "two", "--yes"]).expect_exit(2, "--current");
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
        // The shared label keeps its logits.
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
        // A worker whose lease has expired writes nothing.
        let store = Store::open(url, Access::Existing).await.unwrap();
        let now = topicmill_core::Timestamp::from(SystemClock::shared().now());
        let lease = topicmill_store::Lease(1);
        assert!(
            !store
                .backlog()
                .renew(lease, now, Duration::from_mins(1))
                .await
                .unwrap()
        );
        store.close().await.unwrap();
        // Gold answers are kept.
        assert_eq!(count(url, "SELECT COUNT(*) FROM gold").await, 2);
    }
}

#[tokio::test]
async fn dropping_a_model_removes_everything_it_computed() {
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
        // A model is not dropped while a worker holds a lease.
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
async fn drop_is_rejected_while_a_run_uses_the_data() {
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
            "INSERT INTO runs (stage, status, worker, started_at, heartbeat_at) VALUES ('classify', 'running', \
                'elsewhere:1', {now}, {now})"
        );
        execute(url, &begin).await;
        let busy = |args: &[&str], why: &str| {
            let ran = on(&program, url, args);
            ran.expect_exit(75, why);
        };
        busy(&["labels", "drop", "other", "--yes"], "is in progress");
        execute(url, "DELETE FROM runs WHERE worker = 'elsewhere:1'").await;
        on_ok(&program, url, &["labels", "drop", "other", "--yes"]);
    }
}
