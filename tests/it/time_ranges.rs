//! Tests that a time range is collected completely or its missing part recorded as a gap, and the default listing.

use std::collections::BTreeSet;

use serde_json::json;
use topicmill::collect::{ReadOptions, TimeRange};
use topicmill_core::{FailureKind, Keywords, Outcome, SourceKind, Timestamp, Topic, TopicReport};
use topicmill_sources::Source;
use topicmill_store::Gap;
use wiremock::ResponseTemplate;

use crate::collect::{Scene, climate, new_climate, posted, topic};
use crate::support::arctic_shift::{Archive, Bounds, client, row_with};
use crate::support::program::Program;
use crate::support::scene::READ_OPTIONS;

/// Returns the time of a minute of [`posted`].
fn minute(minute: i64) -> Timestamp {
    Timestamp::from_epoch_secs(1_750_000_000 + 60 * minute).unwrap()
}

fn names(minutes: std::ops::Range<i64>) -> BTreeSet<String> {
    minutes.map(|minute| format!("t3_m{minute}")).collect()
}

async fn stored(scene: &Scene) -> BTreeSet<String> {
    scene.stored().await.into_iter().collect()
}

async fn collect(
    scene: &Scene,
    source: &dyn Source,
    topics: &[Topic],
    since: i64,
    until: Option<i64>,
) -> Vec<TopicReport> {
    let options = range_options(since, until);
    let collected = scene
        .context
        .collect(source, topics, options, false, &|_| {});
    collected.await.unwrap().0
}

fn range_options(since: i64, until: Option<i64>) -> ReadOptions {
    let time_range = Some(TimeRange {
        since: minute(since),
        until: until.map(minute),
    });
    ReadOptions {
        time_range,
        ..READ_OPTIONS
    }
}

async fn collect_one(scene: &Scene, since: i64, until: Option<i64>) -> TopicReport {
    let topics = [climate(5)];
    let mut reports = collect(scene, &scene.source, &topics, since, until).await;
    reports.remove(0)
}

async fn watermark(scene: &Scene) -> Option<Timestamp> {
    let store = scene.store();
    let known = store
        .posts()
        .watermark(SourceKind::Reddit, "climate", "climate");
    known.await.unwrap()
}

/// Returns the start and end of each remaining gap.
async fn gaps(scene: &Scene) -> Vec<(Timestamp, Timestamp)> {
    let gaps = scene.store().posts().gaps().await.unwrap();
    gaps.iter()
        .map(|gap: &Gap| (gap.from_at, gap.until_at))
        .collect()
}

/// Serves `r/climate`'s new posts between two minutes, a hundred per page.
async fn mount(scene: &Scene, minutes: std::ops::Range<u64>) {
    let (mut after, mut end) = (None, minutes.end);
    while end > minutes.start {
        let start = end.saturating_sub(100).max(minutes.start);
        let next = (start > minutes.start).then(|| format!("t3_m{start}"));
        scene
            .new_page(after.as_deref(), &posted(start..end), next.as_deref())
            .await;
        (after, end) = (next, start);
    }
}

/// Starts an archive with a post of each of these minutes.
async fn archive(bounds: Bounds, minutes: std::ops::Range<i64>) -> Archive {
    let archive = Archive::start(bounds).await;
    let row = |minute: i64| {
        let fields = json!({"created_utc": 1_750_000_000 + 60 * minute});
        row_with(&format!("m{minute}"), 0, &fields)
    };
    archive.state.add_rows(minutes.map(row));
    archive
}

#[tokio::test]
async fn a_time_range_is_read_completely_and_nothing_outside_it() {
    let scene = Scene::new().await;
    mount(&scene, 0..400).await;
    // A time range ignores the topic's limit of five and its listing.
    let report = collect_one(&scene, 120, Some(250)).await;
    assert_eq!(
        (report.outcome, report.pages, report.posts),
        (Outcome::Ok, 3, 130),
        "{report:?}"
    );
    assert_eq!(stored(&scene).await, names(120..250));
    assert_eq!(
        (gaps(&scene).await, watermark(&scene).await),
        (vec![], None)
    );
    let listings = "SELECT DISTINCT listing FROM sightings";
    assert_eq!(scene.rows(listings).await, ["new"]);
}

#[tokio::test]
async fn a_range_moves_the_watermark_only_forward_and_over_no_unread_post() {
    let scene = Scene::new().await;
    // The range ends now, so the next run continues from its end.
    mount(&scene, 0..400).await;
    collect_one(&scene, 250, None).await;
    assert_eq!(
        (gaps(&scene).await, watermark(&scene).await),
        (vec![], Some(minute(399)))
    );
    // The range begins after the watermark; a run without a range reads the posts between them.
    mount(&scene, 0..600).await;
    collect_one(&scene, 500, None).await;
    assert_eq!(
        (gaps(&scene).await, watermark(&scene).await),
        (vec![], Some(minute(399)))
    );
    mount(&scene, 0..600).await;
    scene.collect_one(new_climate(5)).await;
    assert!(stored(&scene).await.is_superset(&names(250..600)));
    assert_eq!(watermark(&scene).await, Some(minute(599)));
    // A range that begins before the watermark advances it; one that ends before it does not move it back.
    mount(&scene, 0..700).await;
    collect_one(&scene, 590, None).await;
    mount(&scene, 0..700).await;
    collect_one(&scene, 300, Some(310)).await;
    assert_eq!(watermark(&scene).await, Some(minute(699)));
}

#[tokio::test]
async fn missing_posts_in_a_time_range_are_a_gap_until_they_are_read() {
    let scene = Scene::new().await;
    mount(&scene, 5_000..6_000).await;
    let report = collect_one(&scene, 4_900, Some(5_500)).await;
    assert_eq!((report.outcome, report.posts), (Outcome::Ok, 500));
    assert_eq!(gaps(&scene).await, [(minute(4_900), minute(5_000))]);
    // The range is too old for Reddit's listings.
    mount(&scene, 5_000..6_000).await;
    let report = collect_one(&scene, 100, Some(200)).await;
    assert_eq!((report.outcome, report.posts), (Outcome::Ok, 0));
    let both = [(minute(4_900), minute(5_000)), (minute(100), minute(200))];
    assert_eq!(gaps(&scene).await, both);
    // A gap in a gap is the same gap.
    mount(&scene, 5_000..6_000).await;
    collect_one(&scene, 120, Some(200)).await;
    assert_eq!(gaps(&scene).await, both);

    // An archive at first contains part of the range, and later all of it.
    let archive = archive(Bounds::Exclusive, 0..6_000).await;
    let (source, _clock) = client(&archive.server.uri());
    let topics = [climate(5)];
    collect(&scene, &source, &topics, 150, Some(160)).await;
    let left = [
        both[0],
        (minute(160), minute(200)),
        (minute(100), minute(150)),
    ];
    assert_eq!(gaps(&scene).await, left);
    collect(&scene, &source, &topics, 90, Some(4_950)).await;
    assert_eq!(gaps(&scene).await, [(minute(4_950), minute(5_000))]);
    collect(&scene, &source, &topics, 4_900, Some(5_000)).await;
    assert_eq!(gaps(&scene).await, []);
    let wanted = "SELECT COUNT(*) FROM posts WHERE source = 'arctic-shift'";
    assert_eq!(scene.rows(wanted).await, ["4910"]);
}

#[tokio::test]
async fn an_interrupted_run_leaves_a_gap_that_the_next_run_closes() {
    let scene = Scene::new().await;
    scene
        .new_page(None, &posted(200..300), Some("t3_m200"))
        .await;
    scene.refuse_new(ResponseTemplate::new(404)).await;
    let report = collect_one(&scene, 120, Some(290)).await;
    assert_eq!((report.outcome, report.posts), (Outcome::Missing, 90));
    assert_eq!(gaps(&scene).await, [(minute(120), minute(290))]);
    assert_eq!(watermark(&scene).await, None);
    mount(&scene, 0..300).await;
    collect_one(&scene, 120, Some(290)).await;
    assert_eq!(stored(&scene).await, names(120..290));
    assert_eq!(gaps(&scene).await, []);
}

#[tokio::test]
async fn an_archive_that_is_down_leaves_a_gap_for_each_topic_of_a_subreddit() {
    let scene = Scene::new().await;
    let archive = archive(Bounds::Inclusive, 0..400).await;
    let (source, _clock) = client(&archive.server.uri());
    // Two topics that share a subreddit.
    let topics = [climate(5), topic("weather", &["climate"], 5)];
    // The archive is down: the first topic ends the run, and the range is a gap of both.
    archive.state.respond_instead(ResponseTemplate::new(500), 5);
    let one_by_one = ReadOptions {
        concurrency: 1,
        ..range_options(50, Some(300))
    };
    let collected = scene
        .context
        .collect(&source, &topics, one_by_one, false, &|_| {});
    let Err(error) = collected.await else {
        panic!("no error")
    };
    assert_eq!(error.kind(), FailureKind::Temporary, "{error}");
    assert_eq!(gaps(&scene).await, [(minute(50), minute(300)); 2]);
    let reports = collect(&scene, &source, &topics, 50, Some(300)).await;
    assert!(
        reports
            .iter()
            .all(|report| (report.outcome, report.posts) == (Outcome::Ok, 250)),
        "{reports:?}"
    );
    assert_eq!(gaps(&scene).await, []);
    let seen = "SELECT topic, COUNT(*) FROM sightings GROUP BY topic ORDER BY topic";
    assert_eq!(scene.rows(seen).await, ["climate 250", "weather 250"]);
    let moved = "SELECT COUNT(*) FROM watermarks WHERE newest_created_at IS NOT NULL AND source = 'arctic-shift'";
    // A run without --since reads the newest posts first.
    assert_eq!(scene.rows(moved).await, ["0"]);
}

#[tokio::test]
async fn the_default_listing_is_hot_at_first_and_new_once_posts_are_known() {
    let scene = Scene::new().await;
    let follows = Topic {
        keywords: Keywords::default(),
        is_default_listing: true,
        ..climate(5)
    };
    scene.page("climate", None, &posted(10..15), None).await;
    scene.collect_one(follows.clone()).await;
    assert_eq!(watermark(&scene).await, Some(minute(14)));
    // An explicit `hot` listing may omit posts, so it does not advance the watermark.
    scene.page("climate", None, &posted(40..42), None).await;
    scene.collect_one(climate(5)).await;
    assert_eq!(watermark(&scene).await, Some(minute(14)));
    mount(&scene, 0..50).await;
    scene.collect_one(follows).await;
    assert_eq!(watermark(&scene).await, Some(minute(49)));
    assert!(stored(&scene).await.is_superset(&names(15..50)));
}

#[test]
fn the_command_line_accepts_dates_times_and_relative_times() {
    let program = Program::new();
    let collect = |flags: &str| {
        let ran = program.run(&format!("collect --source sample --topic climate {flags}"));
        (ran.code, ran.stderr)
    };
    for (flags, named) in [
        ("--since soon", "2026-11-20T08:00:00+01:00"),
        ("--since 2999-01-01", "not in the past"),
        ("--since 1d --until 2d", "not later than"),
        ("--until 1d", "--since"),
        ("--since 1d --limit 5", "--limit"),
        ("--since 1d --listing hot", "--listing hot"),
    ] {
        let (code, stderr) = collect(flags);
        assert!(code == 2 && stderr.contains(named), "{flags}: {stderr}");
    }
    assert_eq!(collect("--since 2h").0, 0);
    let few = program.count("posts");
    assert_eq!(collect("--since 52w --listing new").0, 0);
    let all = program.count("posts");
    assert!(few < all, "{few} of {all}");
    assert_eq!(program.count("gaps"), 0);
    assert!(program.json("status")["gaps"].is_array());
}
