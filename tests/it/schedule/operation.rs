//! Three days of operation on a clock that is moved by hand: a Reddit that refuses, fails and falls silent, and a
//! scheduler that is down for a while. In the end every post is stored or lies in a recorded gap, every stored post has
//! its label, and every slot is accounted for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use topicmill::classify::{MakeCurrent, Options};
use topicmill::clock::{Clock, ManualClock, SharedClock, Sleep, SystemClock};
use topicmill::collect::Pace;
use topicmill::domain::{CatchUp, Listing, RunStatus, SlotStatus, SourceKind, Topic};
use topicmill::gpu::GpuWatch;
use topicmill::pipeline::Context;
use topicmill::purge::PurgePlan;
use topicmill::record::RunSettings;
use topicmill::report::{self, ReportOptions};
use topicmill::schedule::{Entry, Order, Scheduler, StageEnd, Timetable};
use topicmill::source::reddit::Reddit;
use topicmill::store::Store;
use topicmill_score::{Label, LabelSet, Mode};
use wiremock::matchers::{method, path_regex};
use wiremock::{Mock, Request, Respond, ResponseTemplate};

use super::{DONE, EVER, LEASE, entry, utc};
use crate::collect::{PACE, child};
use crate::support::engine::{Scripted, scripted};
use crate::support::postgres::databases;
use crate::support::reddit::{server, settings};

const BEGIN: &str = "2026-03-27T00:00:00Z";
/// Subreddits, and a post of each comes every so many minutes.
const SUBREDDITS: [(&str, i64); 3] = [("climate", 7), ("food", 11), ("gaming", 13)];
/// Pages of 25 posts that are read of a listing: about six hours of the busiest, so that a longer silence leaves a gap.
const PAGES: u32 = 2;
/// Posts that a listing shows.
const LISTED: usize = 1_000;
/// Hours in which Reddit answers nobody, one subreddit is private, and no scheduler runs.
const SILENT: std::ops::Range<i64> = 20..32;
const PRIVATE: std::ops::Range<i64> = 40..43;
const DOWN: std::ops::Range<i64> = 50..53;
const HOURS: i64 = 72;

/// When the posts of a subreddit were posted, until a moment.
fn posted(every: i64, now: DateTime<Utc>) -> impl DoubleEndedIterator<Item = (i64, DateTime<Utc>)> {
    let first = utc(BEGIN) - TimeDelta::hours(2);
    let count = (now - first).num_minutes() / every;
    (0..=count).map(move |n| (n, first + TimeDelta::minutes(n * every)))
}

fn hours_since_begin(now: DateTime<Utc>) -> i64 {
    (now - utc(BEGIN)).num_hours()
}

struct Faulty {
    clock: Arc<ManualClock>,
    random: Mutex<fastrand::Rng>,
}

impl Respond for Faulty {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let now = self.clock.now();
        let subreddit = request.url.path().split('/').nth(2).unwrap().to_owned();
        let hour = hours_since_begin(now);
        let draw = self.random.lock().unwrap().u8(..100);
        if SILENT.contains(&hour) || draw < 4 {
            return ResponseTemplate::new(503);
        }
        if draw < 6 {
            return ResponseTemplate::new(429).insert_header("retry-after", "20");
        }
        if PRIVATE.contains(&hour) && subreddit == "food" {
            return ResponseTemplate::new(403).set_body_json(json!({"reason": "private"}));
        }
        let (_, every) = SUBREDDITS
            .iter()
            .find(|(name, _)| *name == subreddit)
            .unwrap();
        let query = |key: &str| {
            let mut pairs = request.url.query_pairs();
            pairs
                .find(|(name, _)| name == key)
                .map(|(_, value)| value.into_owned())
        };
        let after =
            query("after").map(|name| name.rsplit('z').next().unwrap().parse::<i64>().unwrap());
        let limit = query("limit")
            .map_or(25, |limit| limit.parse::<usize>().unwrap())
            .min(25);
        let listed = posted(*every, now).rev().take(LISTED);
        let rest: Vec<_> = listed
            .filter(|(n, _)| after.is_none_or(|after| *n < after))
            .collect();
        let name = |n: i64| format!("{}z{n}", &subreddit[..2]);
        let page: Vec<Value> = rest
            .iter()
            .take(limit)
            .map(|(n, at)| {
                let title = format!("{subreddit} number {n}");
                let fields =
                    json!({"subreddit": subreddit, "created_utc": at.timestamp(), "title": title});
                child(&name(*n), &fields)
            })
            .collect();
        let next = (rest.len() > limit).then(|| format!("t3_{}", name(rest[limit - 1].0)));
        let body = json!({"kind": "Listing", "data": {"after": next, "children": page}});
        ResponseTemplate::new(200).set_body_json(body)
    }
}

/// Shows what the other clock shows, and sleeps as long as it takes: a worker's heartbeat would move the other one.
#[derive(Debug)]
struct Held(Arc<ManualClock>, SharedClock);

impl Clock for Held {
    fn now(&self) -> DateTime<Utc> {
        self.0.now()
    }

    fn elapsed(&self) -> Duration {
        self.1.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        self.1.sleep(duration)
    }
}

fn context(store: &Store, clock: SharedClock) -> Context {
    Context::new(store.clone(), clock, CancellationToken::new(), "w".into())
}

/// What the stages work with.
struct Work {
    store: Store,
    clock: Arc<ManualClock>,
    reddit: Reddit,
    topics: Vec<Topic>,
    set: LabelSet,
}

impl Work {
    async fn run(&self, order: Order<'_>) -> StageEnd {
        let mut waits = context(&self.store, self.clock.clone());
        let held = Held(self.clock.clone(), SystemClock::shared());
        let mut labels = context(&self.store, Arc::new(held));
        (waits.slot, labels.slot) = (Some(order.slot), Some(order.slot));
        let status = match order.words[0].as_str() {
            "collect" => {
                let pace = Pace {
                    page_cap: PAGES,
                    ..PACE
                };
                let collected = waits.collect(&self.reddit, &self.topics, pace, false, &|_| {});
                collected
                    .await
                    .map(|(_, status)| status)
                    .map_err(|error| error.to_string())
            }
            "classify" => {
                let options = Options {
                    lease: Duration::from_mins(5),
                    max_attempts: 3,
                    limit: None,
                    retry_failed: false,
                    watch: false,
                    make_current: MakeCurrent::IfNone,
                    settings: RunSettings::default(),
                    gpus: GpuWatch::default(),
                };
                let engines = vec![scripted(|_| Scripted::default()).into()];
                let labelled = labels.classify(engines, &self.set, &options, &|_| {});
                labelled
                    .await
                    .map(|(_, status)| status)
                    .map_err(|error| error.to_string())
            }
            "purge" => {
                let plan = PurgePlan {
                    retention_hours: Some(30),
                    leave_file: true,
                    ..PurgePlan::default()
                };
                let purged = waits.purge(&plan, None, &|_| {});
                purged
                    .await
                    .map(|(_, status)| status)
                    .map_err(|error| error.to_string())
            }
            _ => {
                let now = self.clock.now().into();
                let options = ReportOptions::of_all(&self.store, "three days", now)
                    .await
                    .unwrap();
                let numbers = report::gather(&self.store, &options).await.unwrap();
                assert!(report::render_page(&numbers).contains("</html>"));
                Ok(RunStatus::Done)
            }
        };
        match status {
            Ok(RunStatus::Done) => DONE,
            Ok(_) => StageEnd {
                status: SlotStatus::Partial,
                exit: 1,
                ..DONE
            },
            Err(error) => StageEnd {
                status: SlotStatus::Failed,
                exit: 1,
                error: Some(error),
                ends_slot: false,
            },
        }
    }
}

fn entries() -> Vec<Entry> {
    let made = |name: &str, line: &str, place: Tz, stages: &[&str]| Entry {
        timetable: Timetable::new(line, place).unwrap(),
        stages: stages
            .iter()
            .map(|stage| vec![(*stage).to_owned()])
            .collect(),
        ..entry(name, CatchUp::One)
    };
    vec![
        made("collect", "*/15 * * * *", Tz::UTC, &["collect"]),
        made("classify", "10 */4 * * *", Tz::UTC, &["classify"]),
        // Berlin's clock goes forward in the third night.
        made(
            "nightly",
            "30 2 * * *",
            Tz::Europe__Berlin,
            &["purge", "report"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn three_days_leave_no_hole_that_is_not_recorded_and_no_post_without_its_label() {
    for database in databases() {
        let clock = ManualClock::at(utc(BEGIN) - TimeDelta::minutes(1));
        let server = server().await;
        let faulty = Faulty {
            clock: clock.clone(),
            random: Mutex::new(fastrand::Rng::with_seed(3)),
        };
        let listings = Mock::given(method("GET")).and(path_regex("^/r/"));
        listings.respond_with(faulty).mount(&server).await;
        let labels = SUBREDDITS.map(|(name, _)| Label {
            slug: name.into(),
            label: format!("{name} things"),
            descriptions: Vec::new(),
        });
        let work = Work {
            store: database.open().await,
            clock: clock.clone(),
            reddit: Reddit::new(settings(&server.uri()), SourceKind::Reddit, clock.clone())
                .unwrap(),
            topics: SUBREDDITS
                .map(|(name, _)| Topic {
                    listing: Listing::New,
                    ..crate::collect::topic(name, &[name], 100)
                })
                .to_vec(),
            set: LabelSet {
                name: "three".into(),
                template: "This text is about {}.".into(),
                mode: Mode::Single,
                threshold: 0.0,
                temperature: 1.0,
                labels: labels.to_vec(),
                background: None,
            },
        };
        simulate(&work).await;
        check_slots(&work).await;
        check_posts(&work, &database.url).await;
    }
}

async fn simulate(work: &Work) {
    let stop = CancellationToken::new();
    let run = async |order: Order<'_>| work.run(order).await;
    let scheduler = |name: &str| {
        let (store, clock) = (work.store.clone(), work.clock.clone());
        let mut scheduler = Scheduler::new(store, clock, name.to_owned(), LEASE);
        scheduler.follow(entries());
        scheduler
    };
    let mut running = Some(scheduler("first"));
    let end = utc(BEGIN) + TimeDelta::hours(HOURS) + TimeDelta::minutes(11);
    while work.clock.now() < end {
        let is_down = DOWN.contains(&hours_since_begin(work.clock.now()));
        running = match running {
            Some(_) if is_down => None,
            None if !is_down => Some(scheduler("second")),
            same => same,
        };
        if let Some(scheduler) = &mut running {
            scheduler.run_due(&stop, &run, &|_| {}).await.unwrap();
        }
        let now = work.clock.now();
        let next = entries()
            .iter()
            .filter_map(|entry| entry.timetable.after(now))
            .min();
        work.clock.advance((next.unwrap() - now).to_std().unwrap());
    }
}

/// As many slots as the clock had, each with a row or counted.
async fn check_slots(work: &Work) {
    for entry in entries() {
        let state = work
            .store
            .schedule_state(&entry.name, work.clock.now().into())
            .await
            .unwrap();
        let until = state.planned.unwrap().until.as_datetime();
        let from = utc(BEGIN) - TimeDelta::minutes(1);
        let due =
            std::iter::successors(entry.timetable.after(from), |at| entry.timetable.after(*at))
                .take_while(|at| *at <= until)
                .count() as u64;
        let ever = utc(EVER).into();
        let slots = work.store.latest_slots(&entry.name, ever, 1_000);
        let slots = slots.await.unwrap();
        let rows = slots
            .iter()
            .filter(|slot| slot.status != SlotStatus::Missed)
            .count() as u64;
        let missed: u64 = slots.iter().map(|slot| slot.missed).sum();
        assert_eq!(rows + missed, due, "{}", entry.name);
        let waiting = slots
            .iter()
            .filter(|slot| slot.finished_at.is_none())
            .count();
        assert_eq!(waiting, 0, "{}", entry.name);
        if entry.name == "collect" {
            assert!(missed >= 11, "three hours without a scheduler: {missed}");
            assert!(slots.iter().any(|slot| slot.status == SlotStatus::Partial));
        } else {
            let bad: Vec<_> = slots
                .iter()
                .filter(|slot| slot.status != SlotStatus::Done)
                .collect();
            assert!(bad.is_empty(), "{bad:?}");
        }
        if entry.name == "nightly" {
            let due: Vec<_> = slots
                .iter()
                .rev()
                .map(|slot| slot.due_at.as_datetime())
                .collect();
            // Half past two does not exist on the 29th.
            let nights = [
                "2026-03-27T01:30:00Z",
                "2026-03-28T01:30:00Z",
                "2026-03-29T01:00:00Z",
            ];
            assert_eq!(due[..3], nights.map(utc));
        }
    }
}

async fn check_posts(work: &Work, url: &str) {
    let gaps = work.store.gaps().await.unwrap();
    let rows = work
        .store
        .query("SELECT fullname FROM posts")
        .await
        .unwrap()
        .rows;
    let stored: Vec<String> = rows
        .iter()
        .map(|row| row[0].as_str().unwrap().to_owned())
        .collect();
    let ever = utc(EVER).into();
    let slots = work.store.latest_slots("collect", ever, 1).await.unwrap();
    let last = slots[0].started_at.unwrap().as_datetime();
    let mut unseen = 0;
    for (name, every) in SUBREDDITS {
        for (n, at) in posted(every, last) {
            if stored.contains(&format!("t3_{}z{n}", &name[..2])) {
                continue;
            }
            unseen += 1;
            let is_told = gaps.iter().any(|gap| {
                gap.subreddit == name
                    && gap.from_at.as_datetime() <= at
                    && at <= gap.until_at.as_datetime()
            });
            assert!(
                is_told,
                "{url}: {name} {n} of {at} is neither stored nor in a gap: {gaps:?}"
            );
        }
    }
    assert!(unseen > 30, "the long silence lost some: {unseen}");
    assert!(stored.len() > 1_000, "{}", stored.len());
    let without = "SELECT COUNT(*) FROM labeled_posts WHERE label_topic IS NULL";
    let without = work.store.query(without).await.unwrap().rows;
    // What came since the last slot of `classify`, a minute ago, at most.
    assert_eq!(without[0][0], json!(0), "{url}");
    let runs = "SELECT COUNT(*) FROM runs WHERE scheduled_run_id IS NULL OR status = 'running'";
    assert_eq!(
        work.store.query(runs).await.unwrap().rows[0][0],
        json!(0),
        "{url}"
    );
}
