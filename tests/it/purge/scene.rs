//! Stored posts to purge: collecting, labelling and purging on a [`Scene`], and what Reddit says of the posts.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use topicmill::purge::{Check, PurgePlan};
use topicmill_core::clock::Clock;
use topicmill_core::record::PurgeCounts as Report;
use topicmill_core::{
    Fullname, LabelSet, Listing, Post, PurgeReason, SourceKind, Stage, TextVector, Timestamp,
};
use topicmill_store::{
    Claim, Claimant, ClaimedPost, Classified, LabellingState, Page, RunId, StoredLabels, Target,
    Upserted, Written,
};
use wiremock::matchers::{method, path};
use wiremock::{Mock, Request, Respond, ResponseTemplate};

use crate::collect::Scene;
use crate::support::builders;

/// Returns the result of a write that stored labels for this many posts.
pub fn stored_labels(posts: u64) -> StoredLabels {
    StoredLabels {
        posts,
        ..StoredLabels::default()
    }
}

/// Returns a plan that checks posts with Reddit.
pub fn checking(max_requests: Option<u64>, older_than_hours: u32) -> PurgePlan {
    PurgePlan {
        check: Some(Check {
            max_requests,
            older_than_hours,
        }),
        ..PurgePlan::default()
    }
}

/// Serves `/api/info`: every requested post exists, with the exceptions set by the test.
struct Info(HashMap<String, Value>);

impl Respond for Info {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let child = |id: &str| match self.0.get(id) {
            Some(Value::Null) => None,
            Some(fields) => Some(thing(id, fields)),
            None => Some(thing(id, &json!({}))),
        };
        let children: Vec<Value> = requested_ids(request)
            .iter()
            .filter_map(|id| child(id))
            .collect();
        let listing = json!({"kind": "Listing", "data": {"after": null, "children": children}});
        ResponseTemplate::new(200).set_body_json(listing)
    }
}

fn thing(id: &str, fields: &Value) -> Value {
    let mut data = json!({
        "name": id, "title": "A title", "selftext": "A text", "author": "someone",
        "subreddit": "climate", "created_utc": 1_789_000_000.0, "removed_by_category": null,
    });
    for (name, value) in fields.as_object().unwrap() {
        data[name] = value.clone();
    }
    json!({"kind": "t3", "data": data})
}

/// Returns the fullnames in a request.
fn requested_ids(request: &Request) -> Vec<String> {
    let query: BTreeMap<_, _> = request.url.query_pairs().collect();
    assert_eq!(query["raw_json"], "1");
    query["id"].split(',').map(str::to_owned).collect()
}

impl Scene {
    pub fn now(&self) -> Timestamp {
        self.clock.now().into()
    }

    /// Makes the fake Reddit report these posts with these fields, or as unknown if the value is `null`.
    pub async fn gone(&self, gone: &[(&str, Value)]) {
        let fates = gone
            .iter()
            .map(|(id, fields)| (format!("t3_{id}"), fields.clone()));
        self.answer(Info(fates.collect())).await;
    }

    pub async fn answer(&self, answer: impl Respond + 'static) {
        self.server.reset().await;
        crate::support::reddit::mount_token(&self.server, "token-1", u64::MAX).await;
        Mock::given(method("GET"))
            .and(path("/api/info"))
            .respond_with(answer)
            .mount(&self.server)
            .await;
    }

    /// Returns the posts in each request for `/api/info`.
    pub async fn questions(&self) -> Vec<Vec<String>> {
        let requests = self.server.received_requests().await.unwrap();
        let questions = requests
            .iter()
            .filter(|request| request.url.path() == "/api/info");
        questions.map(requested_ids).collect()
    }

    pub async fn save(&self, source: SourceKind, posts: &[Post]) -> Upserted {
        let run = self.begin(Stage::Collect).await;
        let live = source != SourceKind::Import;
        let posts: Vec<Post> = posts
            .iter()
            .cloned()
            .map(|p| Post { source, ..p })
            .collect();
        let page = Page {
            source,
            subreddit: "climate",
            listing: live.then_some(Listing::Hot),
            ..builders::page(run, "climate", &posts, self.now())
        };
        let saved = self.store().posts().save_pages(&[page], None).await;
        saved.unwrap()
    }

    pub async fn begin(&self, stage: Stage) -> RunId {
        let run = self.store().runs().begin_run(stage, "w", self.now()).await;
        run.unwrap()
    }

    pub async fn purge(&self, plan: &PurgePlan) -> Report {
        let purged = self.context.purge(plan, Some(&self.source), &|_| {}).await;
        purged.unwrap().0
    }

    pub async fn check(&self) -> Report {
        self.purge(&checking(None, 0)).await
    }

    /// Removes text older than 48 hours.
    pub async fn retain(&self) -> Report {
        self.purge(&PurgePlan {
            retention: Some(builders::RETENTION),
            ..PurgePlan::default()
        })
        .await
    }

    /// Imports the posts of [`some`].
    pub async fn import(&self, ids: &[&str]) -> Upserted {
        self.save(SourceKind::Import, &some(ids)).await
    }

    pub async fn save_one(&self, source: SourceKind, post: &Post) -> Upserted {
        self.save(source, std::slice::from_ref(post)).await
    }

    pub async fn request(&self, id: &str) -> Report {
        self.purge(&PurgePlan {
            ids: vec![to_purge(id)],
            ..PurgePlan::default()
        })
        .await
    }

    /// Returns the number of rows of a table, which a condition may follow.
    pub async fn count(&self, table: &str) -> u64 {
        let count = self.rows(&format!("SELECT COUNT(*) FROM {table}")).await;
        count[0].parse().unwrap()
    }

    pub async fn is_rewrite_due(&self) -> bool {
        self.store().purging().is_rewrite_due().await.unwrap()
    }

    pub async fn enqueue(&self, target: Target) {
        let enqueued = self.store().backlog().enqueue_missing(target).await;
        enqueued.unwrap();
    }

    pub async fn state(&self) -> LabellingState {
        let state = self.store().status().labelling_state(3, self.now()).await;
        state.unwrap()
    }

    pub async fn tombstones(&self) -> Vec<String> {
        self.rows("SELECT fullname, reason FROM tombstones ORDER BY fullname")
            .await
    }

    pub async fn target(&self) -> Target {
        let set = LabelSet {
            template: "About {}.".into(),
            ..builders::label_set(&["climate"])
        };
        let target = builders::target(self.store(), &set).await;
        self.store().labels().set_current(target).await.unwrap();
        target
    }

    /// Labels the backlog; returns the number of stored labels.
    pub async fn label(&self) -> u64 {
        let target = self.target().await;
        self.enqueue(target).await;
        let (run, claim) = self.claim(target).await;
        if claim.posts.is_empty() {
            return 0;
        }
        match self.complete(target, run, &claim).await {
            Written::Stored(stored) => stored.posts,
            Written::LeaseLost => panic!("another worker reclaimed the lease"),
        }
    }

    pub async fn claim(&self, target: Target) -> (RunId, Claim) {
        let run = self.begin(Stage::Classify).await;
        let claimant = Claimant {
            worker: "w",
            run,
            max_attempts: 3,
            lease: Duration::from_mins(1),
        };
        let claim = builders::claim(self.store(), target, &claimant, 10_000, self.now());
        (run, claim.await)
    }

    /// Writes labels, logits and vectors for the claimed posts, and releases them.
    pub async fn complete(&self, target: Target, run: RunId, claim: &Claim) -> Written {
        let (backlog, labels) = (self.store().backlog(), self.store().labels());
        let texts = ["About climate.".to_owned()];
        let hypothesis = labels.ensure_hypotheses(&texts).await.unwrap()[0];
        let one = |post: &ClaimedPost| Classified {
            logits: vec![builders::logits(hypothesis, 2.0)],
            vector: Some(vector_containing(&post.text)),
            ..builders::classified(&post.fullname, post.text_hash, &[0.75])
        };
        let done: Vec<Classified> = claim.posts.iter().map(one).collect();
        let write = builders::write(target, run, self.now(), claim.lease);
        let written = backlog.save_labels(&write, &done).await.unwrap();
        backlog.release(claim.lease).await.unwrap();
        written
    }
}

/// Returns a vector whose bytes contain a text, so that a test can find it in a file.
fn vector_containing(text: &str) -> TextVector {
    let mut bytes = 1f32.to_le_bytes().to_vec();
    bytes.extend(text.bytes());
    bytes.resize(bytes.len().next_multiple_of(2).max(6), 0);
    TextVector::from_bytes(bytes).unwrap()
}

pub fn post(id: &str, title: &str) -> Post {
    Post {
        subreddit: "climate".into(),
        permalink: Some(format!("/r/climate/comments/{id}/{title}/")),
        author: Some("someone".into()),
        score: Some(12),
        upvote_ratio: Some(0.9),
        num_comments: Some(3),
        flair: Some("Discussion".into()),
        created_at: Timestamp::from_epoch_secs(1_789_000_000).unwrap(),
        source: SourceKind::Reddit,
        ..builders::post(id, title, &format!("Body of {title}"))
    }
}

/// Returns an entry of a purge plan: the post, and a request as the reason.
pub fn to_purge(id: &str) -> (Fullname, PurgeReason) {
    (id.parse().unwrap(), PurgeReason::Requested)
}

pub fn some(ids: &[&str]) -> Vec<Post> {
    ids.iter()
        .map(|id| post(id, &format!("Title-{id}")))
        .collect()
}

pub fn deleted() -> Value {
    json!({"selftext": "[deleted]", "author": "[deleted]", "removed_by_category": "deleted"})
}

pub fn removed() -> Value {
    json!({"selftext": "[removed]", "author": "[deleted]", "removed_by_category": "moderator"})
}

/// Returns true if a string occurs in the bytes of a SQLite database or its WAL.
pub fn holds(file: &str, text: &str) -> bool {
    let files = [file.to_owned(), format!("{file}-wal")];
    let bytes = files
        .iter()
        .filter_map(|file| std::fs::read(Path::new(file)).ok());
    bytes.into_iter().any(|bytes| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    })
}
