//! Tests that `topic_daily` and `topic_agreement` equal a direct count after any change to posts and labels.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use topicmill_core::PurgeReason;
use topicmill_store::{Checked, DropTarget, Target};

use crate::store::{Fixture, fixture, labels, of_file, post, save};
use crate::support::builders::{at, old_texts};
use crate::support::postgres::databases;

/// Every post with its label in the current label set, for its current text.
const BY_HAND: &str = "\
SELECT p.created_at, p.topic, c.score, CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END
  FROM things p LEFT JOIN current_target t ON TRUE
  LEFT JOIN classifications c ON c.model_id = t.model_id AND c.label_set_id = t.label_set_id
       AND c.fullname = p.fullname AND c.text_hash = p.text_hash";
const UNCOUNTED: &str = "SELECT COUNT(*) FROM classifications WHERE day IS NULL";

async fn rows(f: &Fixture, sql: &str) -> Vec<Vec<Value>> {
    f.store.query(sql).await.unwrap().rows
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Labelled posts of a day with one outcome, and the sum of their scores.
#[derive(Default)]
struct DayCounts {
    posts: i64,
    score: f64,
}

/// Posts of a topic.
#[derive(Default)]
struct TopicCounts {
    posts: i64,
    labelled: i64,
    agreed: i64,
}

/// Compares both views with a direct count; returns the number of labelled posts.
async fn labelled(f: &Fixture, step: &str) -> i64 {
    let mut days: BTreeMap<(String, String), DayCounts> = BTreeMap::new();
    let mut topics: BTreeMap<String, TopicCounts> = BTreeMap::new();
    for row in rows(f, BY_HAND).await {
        let [created_at, topic, score, outcome] = <[Value; 4]>::try_from(row).unwrap();
        if !outcome.is_null() {
            let day = text(&created_at)[..10].to_owned();
            let counts = days.entry((day, text(&outcome))).or_default();
            counts.posts += 1;
            counts.score += score.as_f64().unwrap();
        }
        if !topic.is_null() {
            let counts = topics.entry(text(&topic)).or_default();
            counts.posts += 1;
            counts.labelled += i64::from(!outcome.is_null());
            counts.agreed += i64::from(outcome == topic);
        }
    }
    let sum = days.values().map(|counts| counts.posts).sum();
    let days = days.into_iter().map(|((day, outcome), counts)| {
        let slug = (!["other", "unsure"].contains(&&*outcome)).then_some(&outcome);
        let mean_score = counts.score / counts.posts as f64;
        json!([day, slug, counts.posts, mean_score, outcome])
    });
    let view =
        "SELECT day, label, posts, mean_score, outcome FROM topic_daily ORDER BY day, outcome";
    assert_eq!(
        json!(rows(f, view).await),
        days.collect::<Value>(),
        "{step}"
    );
    let topics = topics
        .into_iter()
        .map(|(topic, counts)| json!([topic, counts.posts, counts.labelled, counts.agreed]));
    let view = "SELECT topic, posts, labelled, agreed FROM topic_agreement ORDER BY topic";
    assert_eq!(
        json!(rows(f, view).await),
        topics.collect::<Value>(),
        "{step}"
    );
    sum
}

#[tokio::test]
async fn view_counts_match_a_direct_count_after_every_change() {
    for database in databases() {
        let url = database.url.as_str();
        let f = fixture(database.open().await, 8).await;
        assert_eq!(labelled(&f, "no label").await, 0);
        let claim = f.claim(6, 1).await;
        f.complete(&claim, 2).await;
        assert_eq!(labelled(&f, "six labels").await, 6);
        assert_eq!(
            f.count(UNCOUNTED).await,
            0,
            "{url}: the day is stored with the label"
        );
        let marks = "UPDATE classifications SET abstained = TRUE WHERE fullname IN ('t3_p003', 't3_p004'); \
                     UPDATE classifications SET other = TRUE WHERE fullname = 't3_p004'";
        database.run(marks).await;
        assert_eq!(labelled(&f, "other and unsure").await, 6);

        save(&f.store, f.run, &[post("p000", "Title 0", "edited")], 3).await;
        assert_eq!(labelled(&f, "edited").await, 5);
        save(&f.store, f.run, &[post("p000", "Title 0", "")], 4).await;
        assert_eq!(labelled(&f, "edit undone").await, 6);
        assert_eq!(f.count(UNCOUNTED).await, 0, "{url}");
        let page = of_file(f.run, "food", &[post("p001", "Title 1", "")], 5);
        f.store.posts().save_pages(&[page], None).await.unwrap();
        assert_eq!(labelled(&f, "collected for a different topic").await, 6);
        let mut later = post("p002", "Title 2", "");
        later.created_at = at(2 * 86_400);
        save(&f.store, f.run, &[later], 6).await;
        assert_eq!(labelled(&f, "moved to a different day").await, 6);
        let topicless = "UPDATE things SET topic = NULL WHERE fullname = 't3_p003'";
        database.run(topicless).await;
        assert_eq!(labelled(&f, "without a topic").await, 6);

        let old = old_texts(at(1), at(90_000));
        let purged = f.store.purging().purge_texts(&old, 3, at(7)).await;
        purged.unwrap();
        assert_eq!(labelled(&f, "after retention").await, 6);
        let gone = Checked {
            gone: vec![("t3_p001".parse().unwrap(), PurgeReason::Deleted)],
            ..Checked::default()
        };
        f.store.purging().purge(f.run, &gone, at(8)).await.unwrap();
        assert_eq!(labelled(&f, "purged").await, 5);

        // Hand-written SQL may omit the columns that the views use for counting.
        let by_hand = "INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, \
                          abstained, mode, classified_at) \
                       SELECT p.fullname, t.model_id, t.label_set_id, p.text_hash, 'food', 0.5, 0.25, FALSE, 'single', \
                              p.created_at FROM things p CROSS JOIN current_target t WHERE p.fullname IN ('t3_p006', \
                              't3_p007')";
        database.run(by_hand).await;
        assert_eq!(labelled(&f, "by hand").await, 7);
        assert_eq!(f.count(UNCOUNTED).await, 2);
        let other_topic = "UPDATE things SET topic = 'food' WHERE fullname = 't3_p006'";
        database.run(other_topic).await;
        assert_eq!(labelled(&f, "by hand, for a different topic").await, 7);
        assert_eq!(f.count(UNCOUNTED).await, 1);

        let mut set = labels(0.5);
        set.name = "three".into();
        let label_sets = f.store.labels();
        let other = Target {
            label_set: label_sets.ensure_label_set(&set, at(9)).await.unwrap(),
            ..f.target
        };
        label_sets.set_current(other).await.unwrap();
        assert_eq!(labelled(&f, "in a different label set").await, 0);
        f.store.labels().set_current(f.target).await.unwrap();
        let deleted = "DELETE FROM classifications WHERE fullname = 't3_p005'";
        database.run(deleted).await;
        assert_eq!(labelled(&f, "one label deleted").await, 6);
        f.store.labels().set_current(other).await.unwrap();
        let what = DropTarget::LabelSet(f.target.label_set);
        while f.store.labels().drop_labels(what).await.unwrap() > 0 {}
        f.store.labels().set_current(f.target).await.unwrap();
        assert_eq!(labelled(&f, "label set dropped").await, 0);
        f.store.close().await.unwrap();
    }
}
