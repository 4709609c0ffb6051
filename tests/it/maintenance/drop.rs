//! Tests `labels drop` and `model drop`.

use super::*;

/// Adds a second label set that shares one label with the first.
async fn with_another_label_set(url: &str) {
    execute(
        url,
        "INSERT INTO label_sets (name, hash, template, mode, threshold, created_at) VALUES \
           ('other', 'abcdef0123', 'About {}.', 'single', 0.0, '2026-01-02T09:00:00+00:00'); \
         INSERT INTO labels (label_set_id, position, label, label_name, hypothesis) VALUES \
           (2, 0, 'games', 'games', 'About games.'), (2, 1, 'art', 'art', 'About art.'); \
         INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, \
           mode, run_id, classified_at) VALUES ('t3_a1', 1, 2, HASH(Alive; body), 'games', 0.75, 0.5, FALSE, \
           'single', 1, '2026-01-01T11:00:00+00:00')",
    )
    .await;
    // The program looks up a hypothesis by a key that `fill` does not store, so its logits are replaced.
    let store = Store::open(url, Access::Existing).await.unwrap();
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
async fn a_label_set_is_dropped_only_with_the_flags_that_confirm_it() {
    for program in Program::on_each_database() {
        filled(&program.url()).await;
        with_another_label_set(&program.url()).await;
        // Without a terminal, the program cannot ask.
        program.run("labels drop other").expect_exit(2, "--yes");
        program
            .run("labels drop two --yes")
            .expect_exit(2, "--current");
        assert_eq!(program.count("label_sets"), 2);
    }
}

#[tokio::test]
async fn dropping_a_label_set_removes_its_labels_and_unshared_logits() {
    for program in Program::on_each_database() {
        filled(&program.url()).await;
        with_another_label_set(&program.url()).await;
        program.ok("labels drop other --yes");
        assert_eq!(program.count("label_sets WHERE name = 'other'"), 0);
        assert_eq!(program.count("labels WHERE label_set_id = 2"), 0);
        assert_eq!(program.count("classifications WHERE label_set_id = 2"), 0);
        // The shared label keeps its logits.
        let left = "SELECT h.text FROM pair_logits l JOIN hypotheses h ON h.id = l.hypothesis_id";
        assert_eq!(program.column(left), ["About games."], "{}", program.url());
        program.ok("db check");
    }
}

#[tokio::test]
async fn dropping_the_current_label_set_keeps_posts_and_gold_answers() {
    for program in Program::on_each_database() {
        filled(&program.url()).await;
        program.ok("labels drop two --yes --current");
        // Without its expired lease, a paused worker can neither renew it nor write labels.
        for table in ["classifications", "current_target", "leases"] {
            assert_eq!(program.count(table), 0, "{table}");
        }
        assert_eq!(program.count("posts"), 4);
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
        program.ok("model drop m --yes --current");
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
async fn a_model_is_not_dropped_while_a_worker_holds_a_lease() {
    for program in Program::on_each_database() {
        filled(&program.url()).await;
        program.execute("UPDATE leases SET expires_at = '2096-01-01T10:00:00+00:00'");
        program
            .run("model drop m --yes --current")
            .expect_exit(75, "a worker is labelling 1 post with it");
        assert_eq!(program.count("models WHERE name = 'm'"), 1);
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
