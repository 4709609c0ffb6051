//! Tests `labels drop` and `model drop`.

use std::time::Duration;

use topicmill_core::clock::SystemClock;

use super::*;

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
    // The hypotheses need the keys by which the program looks them up.
    let texts = ["About games.", "About art."].map(str::to_owned);
    store.labels().ensure_hypotheses(&texts).await.unwrap();
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
    for program in Program::on_each_database() {
        let url = program.url();
        filled(&url).await;
        with_another_label_set(&url).await;
        // Without a terminal there is no confirmation, and the current set cannot be dropped.
        program.run("labels drop other").expect_exit(2, "--yes");
        program
            .run("labels drop two --yes")
            .expect_exit(2, "--current");
        assert_eq!(program.count("label_sets"), 2);

        program.ok("labels drop other --yes");
        assert_eq!(program.count("label_sets WHERE name = 'other'"), 0);
        assert_eq!(program.count("labels WHERE label_set_id = 2"), 0);
        assert_eq!(program.count("classifications WHERE label_set_id = 2"), 0);
        // The shared label keeps its logits.
        let left = "SELECT h.text FROM pair_logits l JOIN hypotheses h ON h.id = l.hypothesis_id";
        assert_eq!(program.column(left), ["About games."], "{url}");
        program.ok("db check");

        program.ok("labels drop two --yes --current");
        assert_eq!(program.count("classifications"), 0);
        assert_eq!(program.count("current_target"), 0);
        assert_eq!(program.count("posts"), 4);
        // A worker whose lease has expired writes nothing.
        let store = Store::open(&url, Access::Existing).await.unwrap();
        let now = topicmill_core::Timestamp::from(SystemClock::shared().now());
        let lease = topicmill_store::Lease(1);
        let renewed = store.backlog().renew(lease, now, Duration::from_mins(1));
        assert!(!renewed.await.unwrap());
        store.close().await.unwrap();
        // Gold answers are kept.
        assert_eq!(program.count("gold"), 2);
    }
}

#[tokio::test]
async fn dropping_a_model_removes_everything_it_computed() {
    for program in Program::on_each_database() {
        filled(&program.url()).await;
        program.ok("model drop e --yes");
        for table in ["text_vectors", "label_vectors"] {
            assert_eq!(program.count(table), 0, "{table}");
        }
        assert_eq!(program.count("pair_logits"), 1);
        // A model is not dropped while a worker holds a lease.
        let expire = |year: u32| {
            let update = format!("UPDATE leases SET expires_at = '{year}-01-01T10:00:00+00:00'");
            program.execute(&update);
        };
        expire(2096);
        let drop = "model drop m --yes --current";
        program
            .run(drop)
            .expect_exit(75, "a worker is labelling 1 post with it");
        expire(2026);
        program.ok(drop);
        for table in [
            "models",
            "classifications",
            "packed_scores",
            "pair_logits",
            "backlog",
        ] {
            assert_eq!(program.count(table), 0, "{table}");
        }
        program.run("model drop m --yes").expect_exit(2, "`m`");
        program.ok("db check");
    }
}

#[tokio::test]
async fn drop_is_rejected_while_a_run_uses_the_data() {
    for program in Program::on_each_database() {
        let url = program.url();
        filled(&url).await;
        with_another_label_set(&url).await;
        let now = if url.starts_with("sqlite:") {
            "strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')"
        } else {
            "now()"
        };
        program.execute(&format!(
            "INSERT INTO runs (stage, status, worker, started_at, heartbeat_at) VALUES ('classify', 'running', \
                'elsewhere:1', {now}, {now})"
        ));
        let drop = "labels drop other --yes";
        program
            .run(drop)
            .expect_exit(75, "is in progress and may label with it");
        program.execute("DELETE FROM runs WHERE worker = 'elsewhere:1'");
        program.ok(drop);
    }
}
