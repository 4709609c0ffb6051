//! Tests collecting from a fake archive: every post is stored once, at any page boundary and after any failure.

mod comments;
mod complete;
mod deletions;
mod keywords;
mod requests;
mod scores;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use topicmill::collect::ReadOptions;
use topicmill::pipeline::Context;
use topicmill_core::{FailureKind, Outcome, RunStatus, SourceKind, Topic, TopicReport};
use topicmill_sources::arctic_shift::ArcticShift;
use wiremock::ResponseTemplate;

use crate::collect::{climate, topic};
use crate::support::arctic_shift::{
    Archive, Bounds, NOW, START, client, minutes, row, row_with, settings, timeout,
};
use crate::support::postgres::sqlite;
use crate::support::program::{Program, RunOutput, finished, on_archive};
use crate::support::scene::{self, READ_OPTIONS};

const SECOND: Duration = Duration::from_secs(1);

type Scene = scene::Scene<Archive, ArcticShift>;

impl Scene {
    fn put(&self, rows: impl IntoIterator<Item = Value>) {
        self.server.state.add_rows(rows);
    }

    fn respond_instead(&self, answer: ResponseTemplate, times: usize) {
        self.server.state.respond_instead(answer, times);
    }

    /// Returns the watermark of a topic, in seconds since [`START`].
    async fn watermark(&self, topic: &str) -> Option<i64> {
        let known = self
            .store()
            .posts()
            .watermark(SourceKind::ArcticShift, topic, "climate");
        let known = known.await.unwrap();
        known.map(|known| known.as_datetime().timestamp() - START)
    }
}

/// Runs the program with the archive at a URL.
fn run_at(url: &str, program: &Program, line: &str) -> RunOutput {
    let mut command = program.command(line);
    finished(on_archive(&mut command, url).output().unwrap())
}

/// Runs the program with an archive, and expects success.
#[track_caller]
fn ok_with(archive: &Archive, program: &Program, line: &str) -> RunOutput {
    let ran = run_at(&archive.server.uri(), program, line);
    ran.expect_code(0);
    ran
}

fn names(ids: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = ids.into_iter().map(|id| format!("t3_{id}")).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_first_run_reads_back_from_the_newest_posts_to_the_limit() {
    let scene = Scene::new().await;
    scene.put(minutes(0..400));
    let report = scene.collect_one(climate(250)).await;
    assert_eq!(
        (report.outcome, report.pages, report.posts),
        (Outcome::Ok, 3, 250)
    );
    assert_eq!(
        scene.stored().await,
        names((150..400).map(|minute| format!("m{minute}")))
    );
    // Each page begins with the last second of the previous page.
    assert_eq!(
        scene.server.requested_pages().await,
        [
            "climate desc 100",
            &format!("climate desc before={} 100", 60 * 300 + 1),
            &format!("climate desc before={} 100", 60 * 201 + 1),
        ]
    );
    let output = "SELECT DISTINCT p.source, w.source, w.listing, w.after_cursor, s.listing, s.best_rank \
                FROM posts p, watermarks w, sightings s";
    assert_eq!(
        scene.rows(output).await,
        ["arctic-shift arctic-shift new null new null"]
    );
    let traffic = &json!(scene.context.records()[0].counts)["arctic_shift"];
    // Three pages and the newest post of the archive, one request per second.
    assert_eq!(traffic["requests"], 4);
    assert_eq!(scene.clock.sleeps(), [SECOND; 3]);
    assert_eq!(scene.watermark("climate").await, Some(60 * 399));
    // The last page reached further back than the limit.
    let posts = scene.store().posts();
    let read_from = posts.read_from(SourceKind::ArcticShift, "climate", "climate");
    let read_from = read_from.await.unwrap().unwrap();
    assert_eq!(read_from.as_datetime().timestamp() - START, 60 * 150);
}

#[tokio::test]
async fn later_runs_read_all_posts_since_the_previous_run() {
    for borders in [Bounds::Inclusive, Bounds::Exclusive] {
        let scene = Scene::with(Archive::start(borders).await).await;
        scene.put(minutes(0..5));
        scene.collect_one(climate(5)).await;
        scene.put(minutes(5..350));
        // This post arrived late, but within the overlap.
        scene.put([row("late", 60 * 2 + 30)]);
        let report = scene.collect_one(climate(5)).await;
        assert_eq!((report.outcome, report.stored.new), (Outcome::Ok, 346));
        assert_eq!(scene.stored().await.len(), 351);
        assert_eq!(scene.watermark("climate").await, Some(60 * 349));
        // The overlap begins before the first run's oldest post, so the run reads from that post, and one second
        // earlier for the boundary.
        let asked = scene.server.requested_pages().await;
        assert_eq!(asked[1], "climate asc after=-1 100");

        let again = scene.collect_one(climate(5)).await;
        assert_eq!(
            (again.outcome, again.pages, again.stored.new),
            (Outcome::Ok, 1, 0)
        );
    }
}

#[tokio::test]
async fn posts_from_one_second_are_all_read_across_page_boundaries() {
    // (posts before, posts in the second, posts after): the boundary falls before, within and after the second.
    for crowd in [
        (99, 3, 120),
        (60, 90, 130),
        (50, 180, 50),
        (20, 350, 40),
        (150, 99, 1),
    ] {
        for borders in [Bounds::Inclusive, Bounds::Exclusive] {
            let (before, within, after) = crowd;
            let scene = Scene::with(Archive::start(borders).await).await;
            let mut rows = minutes(0..before);
            rows.extend((0..within).map(|i| row(&format!("s{i}"), 60 * before)));
            rows.extend(minutes(before + 1..before + 1 + after));
            let ids: Vec<String> = rows
                .iter()
                .map(|row| row["id"].as_str().unwrap().to_owned())
                .collect();

            // Backwards, from the newest post.
            scene.put(rows.clone());
            let report = scene.collect_one(climate(1_000)).await;
            let all = (Outcome::Ok, ids.len() as u64);
            assert_eq!((report.outcome, report.posts), all, "{crowd:?} {borders:?}");
            assert_eq!(scene.stored().await, names(ids.clone()), "{crowd:?}");

            // Forwards, from an old known post.
            let later = Scene::with(Archive::start(borders).await).await;
            later.put([row("old", -60)]);
            later.collect_one(climate(1)).await;
            later.put(rows);
            let report = later.collect_one(climate(1)).await;
            assert_eq!(
                (report.outcome, report.stored.new),
                all,
                "{crowd:?} {borders:?}"
            );
            assert_eq!(later.stored().await.len(), ids.len() + 1);
        }
    }
}

#[tokio::test]
async fn a_second_with_more_posts_than_a_page_ends_only_its_topic() {
    // The archive returns at most 150 rows, and 400 posts share one second.
    let archive = Archive::with(Bounds::Exclusive, 150).await;
    let scene = Scene::with(archive).await;
    scene.put(minutes(0..3));
    scene.collect_one(climate(3)).await;
    scene.put((0..400).map(|i| row(&format!("s{i}"), 600)));
    scene.put(minutes(20..30));
    scene.put([row_with("f", 0, &json!({"subreddit": "food"}))]);
    let topics = [climate(3), topic("food", &["food"], 5)];
    let reports = scene.collect(&topics).await;
    assert_eq!(reports[0].outcome, Outcome::RateLimited, "{:?}", reports[0]);
    let detail = reports[0].detail.as_deref().unwrap();
    assert!(detail.contains("2026-09-10 00:36:40"), "{detail}");
    assert_eq!(reports[1].outcome, Outcome::Ok);
    // The watermark does not pass the unread posts.
    assert_eq!(scene.watermark("climate").await, Some(600));
}

#[tokio::test]
async fn the_page_size_is_halved_after_a_timeout_and_grows_again() {
    let scene = Scene::new().await;
    scene.put(minutes(0..200));
    scene.respond_instead(timeout(), 2);
    let report = scene.collect_one(climate(120)).await;
    assert_eq!((report.outcome, report.posts), (Outcome::Ok, 120));
    let asked = scene.server.requested_pages().await;
    let limits: Vec<&str> = asked
        .iter()
        .map(|page| page.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(limits, ["100", "50", "25", "50", "100"]);
    let sleeps = scene.clock.sleeps();
    // The waits double, with jitter; then one second between pages.
    assert!((1.0..2.0).contains(&sleeps[0].as_secs_f64()), "{sleeps:?}");
    assert!((2.0..4.0).contains(&sleeps[1].as_secs_f64()), "{sleeps:?}");
    assert_eq!(sleeps[2..], [SECOND; 3]);
    let traffic = &json!(scene.context.records()[0].counts)["arctic_shift"];
    assert_eq!(
        (&traffic["smaller"], &traffic["retries"]),
        (&json!(2), &json!(2))
    );
}

#[tokio::test]
async fn archive_rate_limit_headers_are_obeyed() {
    let newest_first: Vec<Value> = minutes(0..100).into_iter().rev().collect();
    let body = json!({"data": newest_first});
    let reset_at = (NOW + 31).to_string();
    for (reset, wait) in [("20", 20), (reset_at.as_str(), 31)] {
        let scene = Scene::new().await;
        scene.put(minutes(0..100));
        let last = ResponseTemplate::new(200)
            .set_body_json(&body)
            .insert_header("X-RateLimit-Remaining", "0")
            .insert_header("X-RateLimit-Reset", reset);
        scene.respond_instead(last, 1);
        let report = scene.collect_one(climate(150)).await;
        assert_eq!(report.outcome, Outcome::Ok);
        assert_eq!(scene.clock.sleeps(), [wait * SECOND, SECOND], "{reset}");
    }
}

#[tokio::test]
async fn transient_errors_are_retried_and_permanent_ones_are_not() {
    let status = |status| ResponseTemplate::new(status);
    let text = |text: &str| ResponseTemplate::new(200).set_body_raw(text, "application/json");
    let moved = status(302).insert_header("Location", "/api/posts/search");
    let children = "{\"data\": {\"children\": []}}";
    // (response, times, requests, outcome)
    let cases = [
        (status(503), 4, 5, Outcome::Ok),
        (status(503), 5, 5, Outcome::Server),
        (status(520), 1, 2, Outcome::Ok),
        (text("{\"data\": [{\"id\": \"m1\", "), 1, 2, Outcome::Ok),
        (text("{\"data\": [{\"id\""), 5, 5, Outcome::Server),
        (text("\u{0}\u{1}nonsense"), 1, 2, Outcome::Ok),
        (text("{}"), 1, 1, Outcome::Server),
        (text("[]"), 1, 1, Outcome::Server),
        (text(children), 1, 1, Outcome::Server),
        (text("{\"data\": [1, 2, 3]}"), 1, 1, Outcome::Server),
        (text("<html>"), 1, 2, Outcome::Ok),
        (text("<html>"), 5, 5, Outcome::Server),
        (status(400), 1, 1, Outcome::Server),
        (status(403), 1, 1, Outcome::EdgeBlocked),
        (status(451), 1, 1, Outcome::Banned),
        (status(422), 1, 1, Outcome::Server),
        (moved, 1, 1, Outcome::Server),
    ];
    for (answer, times, requests, outcome) in cases {
        let scene = Scene::new().await;
        scene.put(minutes(0..3));
        scene.respond_instead(answer, times);
        // An error ends the run if every topic would get it.
        let ended = scene.try_collect(&[climate(3)]).await;
        let report = &scene.record().outcomes[0];
        assert_eq!(report["outcome"], outcome.as_str(), "{report:?}");
        assert_eq!(ended.is_err(), requests == 5 && outcome == Outcome::Server);
        assert_eq!(scene.server.requests().await, requests, "{report:?}");
        assert_eq!(
            scene.stored().await.len(),
            if outcome == Outcome::Ok { 3 } else { 0 }
        );
    }
}

#[tokio::test]
async fn rows_from_every_year_are_read_and_only_the_invalid_row_is_lost() {
    let scene = Scene::new().await;
    let comment = json!({
        "id": "c", "subreddit": "climate", "created_utc": START + 360, "body": "no", "link_id": "t3_x",
    });
    let text = json!({"created_utc": START.to_string(), "url": null});
    let float = json!({"created_utc": 1_789_000_060.0, "score": null, "name": "t3_float"});
    let bare = json!({"selftext": null, "author": null, "permalink": null, "_meta": null});
    let gone = json!({"_meta": {"removal_type": "moderator"}});
    scene.put([
        row_with("text", 0, &text),
        row_with("float", 60, &float),
        row_with("bare", 120, &bare),
        row_with("cut", 180, &json!({"title": "nul \0 byte"})),
        row_with("ad", 240, &json!({"promoted": true})),
        row_with("gone", 300, &gone),
        comment,
    ]);
    let report = scene.collect_one(climate(100)).await;
    assert_eq!((report.outcome, report.posts), (Outcome::Ok, 5));
    assert_eq!(
        json!(report.rejected),
        json!({"a comment, not a post": 1, "an advertisement, not a post": 1})
    );
    let stored = "SELECT fullname, title, reddit_score, removed_at IS NOT NULL FROM posts ORDER BY created_at";
    assert_eq!(
        scene.rows(stored).await,
        [
            "t3_text Title text 40 0",
            "t3_float Title float null 0",
            "t3_bare Title bare 40 0",
            "t3_cut nul  byte 40 0",
            "t3_gone [removed] 40 1",
        ]
    );
}

#[tokio::test]
async fn a_lone_surrogate_becomes_a_replacement_character() {
    let scene = Scene::new().await;
    let page = json!({"data": [row("a", 0)]}).to_string();
    let page = page.replace("Title a", "cut \\ud83d");
    let page = ResponseTemplate::new(200).set_body_raw(page, "application/json");
    scene.respond_instead(page, 1);
    scene.collect_one(climate(100)).await;
    assert_eq!(
        scene.rows("SELECT title FROM posts").await,
        ["cut \u{fffd}"]
    );
}
