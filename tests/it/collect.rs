//! Tests collecting from a fake Reddit: every post is stored once with its rank, and a topic that cannot be read has
//! the right outcome.
//!
//! A page is served once; a collector that requests it again gets an empty listing.

mod fields;
mod gaps;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use topicmill::collect::ReadOptions;
use topicmill_core::{Keywords, Listing, Outcome, RunStatus, ThingKind, Topic, TopicReport};
use topicmill_sources::reddit::Reddit;
use wiremock::matchers::{method, path, query_param, query_param_is_missing};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::reddit::{page_json, requests};
use crate::support::scene::{self, READ_OPTIONS};

pub type Scene = scene::Scene<MockServer, Reddit>;

impl Scene {
    /// Serves a page of a listing once, to a request with this `after` or with none.
    async fn serve(
        &self,
        listing: &str,
        after: Option<&str>,
        children: &[Value],
        next: Option<&str>,
    ) {
        let page = json!({"kind": "Listing", "data": {"after": next, "children": children}});
        let asked = Mock::given(method("GET")).and(path(listing));
        let asked = match after {
            Some(after) => asked.and(query_param("after", after)),
            None => asked.and(query_param_is_missing("after")),
        };
        asked
            .respond_with(ResponseTemplate::new(200).set_body_json(page))
            .up_to_n_times(1)
            .mount(&self.server)
            .await;
    }

    /// Serves a page of a subreddit's hot posts once.
    pub async fn page(
        &self,
        subreddit: &str,
        after: Option<&str>,
        children: &[Value],
        next: Option<&str>,
    ) {
        let listing = format!("/r/{subreddit}/hot");
        self.serve(&listing, after, children, next).await;
    }

    /// Serves a page of a subreddit's hot posts with these ids once; `after` and `next` may be empty.
    pub async fn hot(&self, subreddit: &str, after: &str, ids: &str, next: &str) {
        let some = |text| Some(text).filter(|text: &&str| !text.is_empty());
        let ids: Vec<&str> = ids.split(' ').collect();
        let posts = children(&ids);
        self.page(subreddit, some(after), &posts, some(next)).await;
    }

    /// Serves a page of `r/climate`'s new posts once.
    pub async fn new_page(&self, after: Option<&str>, children: &[Value], next: Option<&str>) {
        self.serve("/r/climate/new", after, children, next).await;
    }

    /// Responds to one request for `r/climate`'s new posts, once all its pages are used up.
    pub async fn refuse_new(&self, answer: ResponseTemplate) {
        let new = Mock::given(method("GET")).and(path("/r/climate/new"));
        new.respond_with(answer)
            .up_to_n_times(1)
            .with_priority(9)
            .mount(&self.server)
            .await;
    }

    /// Responds to every request for a subreddit, once all its pages are used up.
    pub async fn refuse(&self, subreddit: &str, answer: ResponseTemplate) {
        Mock::given(method("GET"))
            .and(path(format!("/r/{subreddit}/hot")))
            .respond_with(answer)
            .with_priority(9)
            .mount(&self.server)
            .await;
    }

    /// Returns the listing requests: subreddit, `limit` and `after`.
    async fn requested_pages(&self) -> Vec<String> {
        let requests = self.server.received_requests().await.unwrap();
        let of_listings = requests.iter().filter(|request| request.method == "GET");
        of_listings
            .map(|request| {
                let query: BTreeMap<_, _> = request.url.query_pairs().collect();
                let after = query
                    .get("after")
                    .map_or(String::new(), |after| format!(" {after}"));
                let subreddit = request.url.path().split('/').nth(2).unwrap();
                format!("{subreddit} {}{after}", query["limit"])
            })
            .collect()
    }
}

pub fn children(ids: &[&str]) -> Vec<Value> {
    ids.iter().map(|id| child(id, &json!({}))).collect()
}

/// Returns a child of a listing with these fields.
pub fn child(id: &str, fields: &Value) -> Value {
    let mut child = page_json(&[id])["data"]["children"][0].take();
    for (name, value) in fields.as_object().unwrap() {
        child["data"][name] = value.clone();
    }
    child
}

pub fn topic(slug: &str, subreddits: &[&str], limit: u32) -> Topic {
    Topic {
        slug: slug.into(),
        label: format!("{slug} things"),
        descriptions: vec![],
        subreddits: subreddits.iter().map(|name| (*name).into()).collect(),
        listing: Listing::Hot,
        keywords: Keywords::default(),
        kind: ThingKind::Post,
        of_posts: false,
        is_default_listing: false,
        limit,
    }
}

pub fn climate(limit: u32) -> Topic {
    topic("climate", &["climate"], limit)
}

pub fn outcomes(reports: &[TopicReport]) -> Vec<Outcome> {
    reports.iter().map(|report| report.outcome).collect()
}

#[tokio::test]
async fn a_limit_does_not_count_stickied_posts() {
    let scene = Scene::new().await;
    let pinned = |id| child(id, &json!({"stickied": true}));
    let mut first = vec![pinned("p1"), pinned("p2")];
    first.extend(children(&["a", "b"]));
    scene.page("climate", None, &first, Some("t3_b")).await;
    // The page contains more posts than requested: `d` exceeds the limit, and pinned posts do not count.
    let mut second = children(&["c", "d"]);
    second.push(pinned("p3"));
    scene
        .page("climate", Some("t3_b"), &second, Some("t3_d"))
        .await;

    let report = scene.collect_one(climate(3)).await;
    assert_eq!(
        (
            report.outcome,
            report.pages,
            report.posts,
            report.stored.new
        ),
        (Outcome::Ok, 2, 6, 6)
    );
    assert_eq!(
        scene.requested_pages().await,
        ["climate 3", "climate 1 t3_b"]
    );
    assert_eq!(
        scene.stored().await,
        ["t3_a", "t3_b", "t3_c", "t3_p1", "t3_p2", "t3_p3"]
    );
}

#[tokio::test]
async fn a_post_on_two_pages_is_stored_once_with_its_best_rank() {
    const RANKS: &str =
        "SELECT best_rank, fullname, times_seen FROM sightings ORDER BY best_rank, fullname";
    let scene = Scene::new().await;
    scene.hot("climate", "", "a b", "t3_b").await;
    scene.hot("climate", "t3_b", "b c", "t3_c").await;
    scene.hot("climate", "t3_c", "d e f", "t3_f").await;

    let report = scene.collect_one(climate(4)).await;
    assert_eq!((report.pages, report.posts, report.stored.new), (3, 4, 4));
    // The second `b` does not count towards the limit.
    assert_eq!(
        scene.requested_pages().await,
        ["climate 4", "climate 2 t3_b", "climate 1 t3_c"]
    );
    // Ranks are positions in the listing as it was read: `b` was at 1 on the first page and at 2 on the second.
    assert_eq!(
        scene.rows(RANKS).await,
        ["0 t3_a 1", "1 t3_b 1", "3 t3_c 1", "4 t3_d 1"]
    );
    assert_eq!(scene.stored().await, ["t3_a", "t3_b", "t3_c", "t3_d"]);

    // The next run sees different ranks and no new posts.
    scene.hot("climate", "", "d b a", "").await;
    let again = scene.collect_one(climate(4)).await;
    assert_eq!(
        (again.posts, again.stored.new, again.stored.changed),
        (3, 0, 0)
    );
    assert_eq!(
        scene.rows(RANKS).await,
        ["0 t3_a 2", "0 t3_d 2", "1 t3_b 2", "3 t3_c 1"]
    );
    assert_eq!(scene.stored().await, ["t3_a", "t3_b", "t3_c", "t3_d"]);
}

#[tokio::test]
async fn a_topic_ends_with_a_missing_repeated_or_cyclic_after() {
    for (cursors, posts) in [
        (&[""][..], 1),
        (&["t3_b", "t3_b"], 2),
        (&["t3_b", "t3_c", "t3_d", "t3_b"], 4),
    ] {
        let scene = Scene::new().await;
        let mut after = None;
        for (i, next) in cursors.iter().enumerate() {
            let post = child(&format!("p{i}"), &json!({}));
            scene.page("climate", after, &[post], Some(next)).await;
            after = Some(next);
        }
        scene.hot("food", "", "f", "").await;

        let topics = [climate(100), topic("food", &["food"], 100)];
        let reports = scene.collect(&topics).await;
        assert_eq!(outcomes(&reports), [Outcome::Ok, Outcome::Ok]);
        assert_eq!((reports[0].pages, reports[0].posts), (posts, posts));
        assert_eq!(scene.record().status, RunStatus::Done);
        assert_eq!(scene.requested_pages().await.len(), cursors.len() + 1);
        let left = "SELECT topic FROM watermarks WHERE after_cursor IS NOT NULL";
        assert_eq!(scene.rows(left).await, [""; 0]);
    }
}

#[tokio::test]
async fn fallback_subreddits_are_recorded_with_their_outcomes() {
    let scene = Scene::new().await;
    let private = ResponseTemplate::new(403).set_body_json(json!({"reason": "private"}));
    scene.refuse("secret", private).await;
    scene.refuse("gone", ResponseTemplate::new(404)).await;
    scene.page("quiet", None, &[], None).await;
    scene.hot("climate", "", "a", "").await;
    scene.hot("never", "", "n", "").await;

    let names = ["secret", "gone", "quiet", "climate", "never"];
    let topics = [
        topic("climate", &names, 5),
        topic("lost", &["gone", "secret"], 5),
    ];
    let reports = scene.collect(&topics).await;
    assert_eq!(outcomes(&reports), [Outcome::Ok, Outcome::Private]);
    assert_eq!(
        (reports[0].subreddit.as_str(), &reports[0].detail),
        ("climate", &None)
    );
    assert_eq!(reports[1].subreddit, "secret");

    let stored = scene.rows("SELECT outcomes FROM runs").await;
    let stored: Value = serde_json::from_str(&stored[0]).unwrap();
    assert_eq!(stored, json!(reports));
    let skipped = json!([
        ["secret", "private"],
        ["gone", "missing"],
        ["quiet", "empty"]
    ]);
    assert_eq!(stored[0]["skipped"], skipped);
    assert_eq!(stored[1]["skipped"], json!([["gone", "missing"]]));
    assert_eq!(scene.rows("SELECT status FROM runs").await, ["partial"]);
}

#[tokio::test]
async fn a_topic_with_server_errors_ends_and_the_others_continue() {
    let scene = Scene::new().await;
    scene.hot("food", "", "f", "").await;
    // The server fails from the second page on.
    scene.hot("climate", "", "a b", "t3_b").await;
    scene.refuse("climate", ResponseTemplate::new(500)).await;
    scene.hot("music", "", "m", "").await;

    let topics = [
        topic("food", &["food"], 5),
        topic("climate", &["climate", "environment"], 5),
        topic("music", &["music"], 5),
    ];
    let reports = scene.collect(&topics).await;
    assert_eq!(
        outcomes(&reports),
        [Outcome::Ok, Outcome::Server, Outcome::Ok]
    );
    let failed = &reports[1];
    assert_eq!((failed.subreddit.as_str(), failed.posts), ("climate", 2));
    let detail = failed.detail.as_deref().unwrap();
    assert!(detail.contains("status 500"), "{detail}");
    let record = scene.record();
    assert_eq!(record.status, RunStatus::Partial);
    let counts = json!(record.counts);
    assert_eq!([&counts["posts"], &counts["new"]], [4, 4]);

    let mut asked = vec!["food 5", "climate 5"];
    asked.extend(["climate 3 t3_b"; 5]);
    asked.push("music 5");
    // No substitute subreddit is requested.
    assert_eq!(scene.requested_pages().await, asked);
    // One wait before each retry.
    assert_eq!(scene.clock.sleeps().len(), 4);
    assert_eq!(scene.stored().await, ["t3_a", "t3_b", "t3_f", "t3_m"]);
}

#[tokio::test]
async fn a_second_401_ends_the_run() {
    let scene = Scene::new().await;
    scene.hot("food", "", "f", "").await;
    scene.refuse("climate", ResponseTemplate::new(401)).await;
    scene.hot("music", "", "m", "").await;

    let topics = [
        topic("food", &["food"], 5),
        topic("climate", &["climate", "environment"], 5),
        topic("music", &["music"], 5),
    ];
    let reports = scene.collect(&topics).await;
    // The third topic was not read.
    assert_eq!(
        outcomes(&reports),
        [Outcome::Ok, Outcome::Auth, Outcome::Stopped]
    );
    let record = scene.record();
    assert_eq!(record.status, RunStatus::Partial);
    assert_eq!(json!(record.counts)["topics"], 3);
    assert_eq!(
        scene.requested_pages().await,
        ["food 5", "climate 5", "climate 5"]
    );
    assert_eq!(requests(&scene.server, "POST").await, 2, "one new token");
    assert_eq!(scene.clock.sleeps(), []);
    assert_eq!(scene.stored().await, ["t3_f"]);
}

/// Returns children of a listing of new posts, newest first, created at these minutes after a fixed time.
pub fn posted(minutes: std::ops::Range<u64>) -> Vec<Value> {
    let at = |minute| json!({"created_utc": 1_750_000_000 + 60 * minute});
    let newest_first = minutes.rev();
    newest_first
        .map(|minute| child(&format!("m{minute}"), &at(minute)))
        .collect()
}

pub fn new_climate(limit: u32) -> Topic {
    Topic {
        listing: Listing::New,
        ..climate(limit)
    }
}

#[tokio::test]
async fn topics_are_read_concurrently_and_reported_in_order() {
    let scene = Scene::new().await;
    let names: Vec<String> = (0..8).map(|i| format!("topic{i}")).collect();
    for name in &names {
        scene.hot(name, "", &format!("{name}a"), "next").await;
        scene.hot(name, "next", &format!("{name}b"), "").await;
    }
    let topics: Vec<Topic> = names.iter().map(|name| topic(name, &[name], 5)).collect();
    let options = ReadOptions {
        concurrency: 4,
        ..READ_OPTIONS
    };
    let reports = scene.collect_with(&topics, options).await;
    assert_eq!(scene.record().status, RunStatus::Done);
    let read: Vec<&String> = reports.iter().map(|report| &report.topic).collect();
    assert_eq!(read, names.iter().collect::<Vec<_>>());
    assert_eq!(scene.stored().await.len(), 16);
    let asked = scene.requested_pages().await;
    // Sequentially, each second page would follow its first.
    let next = |at: &usize| asked[*at].ends_with("next");
    let of_one = |at: &usize| asked[at - 1].split(' ').next() == asked[*at].split(' ').next();
    let followed = (1..asked.len()).filter(|at| next(at) && of_one(at)).count();
    assert!(
        followed < names.len(),
        "the topics were read one after the other: {asked:?}"
    );
}
