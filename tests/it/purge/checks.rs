//! Tests which posts are checked with Reddit, in which order, and what is recorded.

use std::collections::BTreeSet;

use tokio_util::sync::CancellationToken;
use topicmill::pipeline::Context;
use topicmill_core::{RunStatus, Stage};
use wiremock::ResponseTemplate;

use super::*;

#[tokio::test]
async fn posts_checked_longest_ago_are_checked_first_within_the_budget() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let ids: Vec<String> = (0..250).map(|i| format!("n{i:03}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        scene.gone(&[]).await;
        // Reddit showed the posts in this order; `n200` and later ones come only from a file.
        for chunk in [&ids[100..200], &ids[..100]] {
            scene.save(SourceKind::Reddit, &some(chunk)).await;
            scene.clock.advance(Duration::from_hours(1));
        }
        scene.save(SourceKind::Import, &some(&ids[200..])).await;

        let report = scene.purge(&checking(Some(1), 0)).await;
        assert_eq!(
            (report.requests, report.checked, report.left),
            (1, 100, 150)
        );
        assert!(!report.reconciled);
        scene.clock.advance(Duration::from_hours(1));
        // The next run continues where the last one ended.
        let report = scene.purge(&checking(Some(2), 0)).await;
        assert_eq!((report.requests, report.checked), (2, 200));

        let questions = scene.questions().await;
        assert!(questions.iter().all(|question| question.len() == 100));
        let ids = |range: std::ops::Range<usize>| -> BTreeSet<String> {
            ids[range].iter().map(|id| format!("t3_{id}")).collect()
        };
        let first: BTreeSet<String> = questions[0].iter().cloned().collect();
        let expected: BTreeSet<String> = &ids(200..250) | &ids(100..150);
        assert_eq!(first, expected);
        let second: BTreeSet<String> = questions[1].iter().cloned().collect();
        assert_eq!(second, &ids(150..200) | &ids(0..50));

        // Posts seen within the last two hours are not checked.
        scene.clock.advance(Duration::from_mins(30));
        let report = scene.purge(&checking(None, 2)).await;
        assert_eq!(
            (report.checked, report.left, report.reconciled),
            (0, 0, true)
        );
    }
}

#[tokio::test]
async fn a_stopped_purge_keeps_its_progress_and_the_next_continues() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let ids: Vec<String> = (0..250).map(|i| format!("n{i:03}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        scene.import(&ids).await;
        scene
            .gone(&[("n001", deleted()), ("n201", deleted())])
            .await;

        let plan = checking(None, 0);
        let stop = scene.context.stop.clone();
        let stopping = |_| stop.cancel();
        let purged = scene
            .context
            .purge(&plan, Some(&scene.source), &stopping)
            .await;
        let (report, status) = purged.unwrap();
        assert_eq!(status, RunStatus::Stopped);
        assert_eq!((report.checked, report.purged, report.left), (100, 1, 150));

        let later = Context::new(
            scene.store().clone(),
            scene.clock.clone(),
            CancellationToken::new(),
            "w".into(),
        );
        let (report, status) = later
            .purge(&plan, Some(&scene.source), &|_| {})
            .await
            .unwrap();
        assert_eq!(status, RunStatus::Done);
        assert_eq!((report.checked, report.purged, report.left), (150, 1, 0));
        let record = later.records().pop().unwrap();
        assert_eq!(record.stage, Stage::Purge);
        let counts = json!(record.counts);
        assert_eq!(counts["requests"], 2);
        assert_eq!(
            counts["reddit"]["requests"], 4,
            "a token, one request from the first run, and two from this one"
        );
    }
}

#[tokio::test]
async fn an_empty_response_does_not_purge_every_post() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let ids: Vec<String> = (0..150).map(|i| format!("n{i:03}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        scene.save(SourceKind::Reddit, &some(&ids)).await;
        scene.clock.advance(Duration::from_hours(1));
        let all: Vec<(&str, Value)> = ids.iter().map(|id| (*id, Value::Null)).collect();
        scene.gone(&all).await;
        let report = scene.check().await;
        assert_eq!((report.purged, report.unclear, report.left), (0, 150, 150));
        assert_eq!(scene.context.records()[0].status, RunStatus::Partial);
        assert_eq!(scene.stored().await.len(), 150);

        // If Reddit still shows recently seen posts, the others are really gone.
        scene.gone(&all[..100]).await;
        let report = scene.check().await;
        assert_eq!(
            (report.purged, report.missing, report.unclear),
            (100, 100, 0)
        );
        assert_eq!(report.requests, 3);

        // One ambiguous post invalidates the response.
        let odd = json!({"kind": "Listing", "data": {"children": [{"kind": "t3", "data": {}}]}});
        scene
            .answer(ResponseTemplate::new(200).set_body_json(odd))
            .await;
        scene.clock.advance(Duration::from_hours(1));
        let report = scene.check().await;
        assert_eq!((report.purged, report.unclear), (0, 50));
    }
}

#[tokio::test]
async fn status_shows_when_the_database_was_last_reconciled() {
    for database in databases() {
        let scene = Scene::of(&database).await;
        let standing = async || {
            let state = scene.state().await;
            (state.reconciled_at, state.unchecked)
        };
        scene.import(&["a", "b"]).await;
        assert_eq!(standing().await, (None, 2));
        scene.gone(&[]).await;
        let first = scene.now();
        assert!(scene.check().await.reconciled);
        assert_eq!(standing().await, (Some(first), 0));
        // A run that checks fewer posts does not reset the result of an earlier one.
        scene.clock.advance(Duration::from_hours(1));
        assert!(scene.purge(&checking(None, 24)).await.reconciled);
        assert_eq!(standing().await, (Some(first), 0));
    }
}
