//! Tests that repeated runs bring everything that the archive has, late posts too, and that missing posts and an
//! archive that is behind are reported.

use topicmill::collect::TimeRange;
use topicmill_core::Timestamp;
use topicmill_core::clock::SystemClock;
use topicmill_store::Gap;

use super::*;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// The default options.
const TWO_DAYS: ReadOptions = ReadOptions {
    overlap: Duration::from_hours(48),
    ..READ_OPTIONS
};

impl Scene {
    /// Collects with the default overlap, some seconds after [`START`].
    async fn collect_at(&self, secs: i64, topics: &[Topic]) -> Vec<TopicReport> {
        let now = Timestamp::from_epoch_secs(START + secs).unwrap();
        let ahead = now.as_datetime() - topicmill_core::clock::Clock::now(&*self.clock);
        self.clock.jump(ahead);
        self.server.state.set_now(secs);
        self.collect_with(topics, TWO_DAYS).await
    }

    async fn gaps(&self) -> Vec<(i64, i64)> {
        let gaps = self.store().posts().gaps().await.unwrap();
        let secs = |time: Timestamp| time.as_datetime().timestamp() - START;
        gaps.iter()
            .map(|gap: &Gap| (secs(gap.from_at), secs(gap.until_at)))
            .collect()
    }
}

/// Adds posts every six minutes of some hours, which the archive reads at once, or `late` seconds after they were
/// posted.
fn add_hours(archive: &Archive, subreddit: &str, hours: std::ops::Range<i64>, late: i64) {
    for at in (hours.start * HOUR..hours.end * HOUR).step_by(360) {
        let fields = json!({"subreddit": subreddit});
        let post = row_with(&format!("{subreddit}{at}"), at, &fields);
        let edited = json!({"selftext": "Edited", "score": 70});
        archive.state.add_post(&post, late, &edited);
    }
}

#[tokio::test]
async fn a_hole_that_the_archive_fills_a_day_later_is_filled_here_too() {
    let scene = Scene::new().await;
    // An outage of three hours on the second day.
    for subreddit in ["climate", "food"] {
        for (hours, late) in [(0..30, 20), (30..33, DAY), (33..144, 20)] {
            add_hours(&scene.server, subreddit, hours, late);
        }
    }
    let topics = [climate(100), topic("food", &["food"], 100)];
    scene.collect_at(DAY, &topics).await;
    let (mut requests, mut new) = (scene.server.requests().await, Vec::new());
    let mut daily = Vec::new();
    for day in 2..=5 {
        let reports = scene.collect_at(day * DAY, &topics).await;
        assert!(
            reports.iter().all(|report| report.outcome == Outcome::Ok),
            "{reports:?}"
        );
        new.push(reports.iter().map(|report| report.stored.new).sum::<u64>());
        daily.push(scene.server.requests().await - requests);
        requests += daily.last().unwrap();
    }
    // The limit counts no post twice: the first run stores 100 posts of each topic, and the others all that follow.
    assert_eq!(new, [420, 540, 480, 480]);
    assert_eq!(scene.stored().await.len(), 200 + 2 * 4 * 240);
    // Two days of overlap and one new day are 720 posts of each topic, on at most nine pages.
    assert!(daily.iter().all(|requests| *requests <= 18), "{daily:?}");
    // Everything older than 36 hours has its final text and score.
    let provisional = format!(
        "SELECT COUNT(*) FROM posts WHERE (reddit_score_is_placeholder OR selftext = 'A text' OR reddit_score = 1) \
            AND created_at < '{}'",
        (Timestamp::from_epoch_secs(START + 5 * DAY - 130_000)
            .unwrap()
            .as_datetime())
        .to_rfc3339()
    );
    assert_eq!(scene.rows(&provisional).await, ["0"]);
}

#[tokio::test]
async fn the_time_between_a_range_and_the_first_run_without_one_is_a_gap() {
    let scene = Scene::new().await;
    add_hours(&scene.server, "climate", 0..40, 20);
    scene.server.state.set_now(40 * HOUR);
    let at = |hours: i64| Timestamp::from_epoch_secs(START + hours * HOUR).unwrap();
    let collect_range = async |from, to| {
        let time_range = Some(TimeRange {
            since: at(from),
            until: Some(at(to)),
        });
        let options = ReadOptions {
            time_range,
            ..TWO_DAYS
        };
        scene.collect_with(&[climate(20)], options).await
    };
    collect_range(1, 3).await;
    assert_eq!(
        (scene.stored().await.len(), scene.gaps().await),
        (20, vec![])
    );
    scene.collect_at(40 * HOUR, &[climate(20)]).await;
    let gap = (3 * HOUR - 360, 38 * HOUR);
    assert_eq!(scene.gaps().await, [gap]);
    // Another run reads only new posts, and the range of the gap closes it.
    add_hours(&scene.server, "climate", 40..41, 20);
    scene.collect_at(41 * HOUR, &[climate(20)]).await;
    assert_eq!(
        (scene.stored().await.len(), scene.gaps().await),
        (50, vec![gap])
    );
    collect_range(2, 38).await;
    assert_eq!(
        (scene.stored().await.len(), scene.gaps().await),
        (400, vec![])
    );
}

#[tokio::test]
async fn a_page_that_times_out_at_its_size_is_read_in_parts() {
    let scene = Scene::new().await;
    scene.put(minutes(0..1));
    scene.collect_one(climate(1)).await;
    scene.server.state.set_slow_above(30);
    scene.put(minutes(1..150));
    // A busy second: a page of one post, after timeouts, does not reach beyond it.
    scene.put((0..5).map(|i| row(&format!("s{i}"), 0)));
    scene.respond_instead(timeout(), 6);
    let report = scene.collect_one(climate(1)).await;
    assert_eq!(
        (report.outcome, report.stored.new),
        (Outcome::Ok, 154),
        "{report:?}"
    );
}

/// Starts an archive that has read nothing in the last three days.
async fn lagging_archive() -> Archive {
    let archive = Archive::start(Bounds::Exclusive).await;
    let now = SystemClock::shared().now().timestamp() - START;
    archive.state.set_now(now);
    archive.state.set_lag(3 * DAY);
    archive.state.add_rows([row("a", now - 4 * DAY)]);
    archive
}

#[tokio::test(flavor = "multi_thread")]
async fn status_check_reports_an_archive_that_is_three_days_behind() {
    let archive = lagging_archive().await;
    let program = Program::new();
    let collect = || {
        let collect = "collect --source arctic-shift --topic climate";
        ok_with(&archive, &program, collect);
    };
    let check = |limit: &str| {
        let ran = program.run(&format!("status --check --max-lag {limit} --format json"));
        (ran.code, ran.json())
    };
    collect();
    program.ok("status --check");
    assert_eq!(check("4d").0, 0);
    let (code, found) = check("6h");
    let problem = &found["problems"][0];
    assert_eq!((code, &problem["check"]), (1, &json!("max_lag")));
    let behind = problem["age_secs"].as_i64().unwrap();
    assert!((3 * DAY..3 * DAY + HOUR).contains(&behind), "{found:#}");
    let newest = &found["status"]["archive"]["newest_at"];
    let newest: chrono::DateTime<chrono::Utc> = newest.as_str().unwrap().parse().unwrap();
    let age = (SystemClock::shared().now() - newest).num_seconds();
    assert!((3 * DAY..3 * DAY + HOUR).contains(&age), "{found:#}");
    archive.state.set_lag(0);
    collect();
    assert_eq!(check("6h").0, 0);
    // Each `collect` requests the newest post of a busy subreddit and a page of posts; `status` requests nothing.
    assert_eq!(archive.server.received_requests().await.unwrap().len(), 4);
    // It is so far behind that it has no post to return.
    archive.state.set_lag(9 * DAY);
    collect();
    let (_, found) = check("6h");
    let problems = found["problems"].as_array().unwrap();
    assert!(problems.iter().any(|one| one["check"] == "max_lag"));
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_an_archive_that_is_behind_or_does_not_respond() {
    let archive = lagging_archive().await;
    let program = Program::new();
    let doctor = |url: &str| {
        let ran = run_at(url, &program, "doctor --format json");
        let row = ran.json().as_array().unwrap().last().unwrap().clone();
        assert_eq!(row["check"], "Arctic Shift");
        (ran.code, row["state"].clone())
    };
    let url = archive.server.uri();
    assert_eq!(doctor(&url), (75, json!("wrong")));
    assert_eq!(doctor("http://127.0.0.1:9"), (75, json!("wrong")));
    archive.state.set_lag(0);
    assert_eq!(doctor(&url), (0, json!("ok")));
}
