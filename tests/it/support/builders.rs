//! Default posts, label sets, models and labels for tests.

use serde_json::json;
use topicmill::purge::Retention;
use topicmill_core::score::LabelOutcome;
use topicmill_core::{
    AuthorPolicy, Label, LabelSet, Mode, PairLogits, Post, Reply, Scores, SourceKind, TextHash,
    Timestamp,
};
use topicmill_store::{
    Claim, Claimant, Classified, CrashFilter, HypothesisId, LabelWrite, Lease, ModelRow, NewLogits,
    OldTexts, Page, RunId, Store, Target,
};

/// Retention of 48 hours, for posts from any source.
pub const RETENTION: Retention = Retention {
    hours: 48,
    keep_vectors: false,
    imports: true,
};

/// Returns the texts stored outside this time range.
pub fn old_texts(before: Timestamp, after: Timestamp) -> OldTexts {
    OldTexts {
        before,
        after,
        imports: true,
        keep_vectors: false,
    }
}

pub fn at(secs: i64) -> Timestamp {
    Timestamp::from_epoch_secs(1_750_000_000 + secs).unwrap()
}

/// Returns an imported post with these fields, and defaults for the others.
pub fn post(id: &str, title: &str, body: &str) -> Post {
    Post {
        fullname: id.parse().unwrap(),
        subreddit: "food".into(),
        title: title.into(),
        selftext: body.into(),
        reply: Reply::default(),
        crosspost_parent: None,
        url: None,
        permalink: None,
        author: None,
        score: None,
        score_is_placeholder: false,
        upvote_ratio: None,
        num_comments: None,
        flair: None,
        over_18: false,
        is_self: true,
        stickied: false,
        removal: None,
        created_at: at(-3_600),
        source: SourceKind::Import,
    }
}

/// Returns a page of imported posts with a topic.
pub fn page<'a>(run: RunId, topic: &'a str, posts: &[Post], now: Timestamp) -> Page<'a> {
    Page {
        run,
        source: SourceKind::Import,
        topic: Some(topic),
        subreddit: "",
        listing: None,
        after: None,
        newest: None,
        read_from: None,
        posts: AuthorPolicy::Stored.prepare(posts.to_vec()),
        now,
    }
}

/// Returns a single-label set in which each label's text is its slug.
pub fn label_set(labels: &[impl AsRef<str>]) -> LabelSet {
    let label = |slug: &str| Label {
        slug: slug.into(),
        label: slug.into(),
        descriptions: vec![],
    };
    LabelSet {
        name: "made".into(),
        template: "This text is about {}.".into(),
        mode: Mode::Single,
        threshold: 0.0,
        temperature: 1.0,
        labels: labels.iter().map(|slug| label(slug.as_ref())).collect(),
        background: None,
        fitted: None,
    }
}

/// Registers a label set and an NLI model that has no folder, and returns both as a target.
pub async fn target(store: &Store, set: &LabelSet) -> Target {
    let model = ModelRow {
        name: "m".into(),
        kind: "nli".into(),
        manifest_hash: "abc".into(),
        precision: "fp32".into(),
        tokenizer_hash: "def".into(),
        max_tokens: 128,
    };
    Target {
        model: store.labels().ensure_model(&model).await.unwrap(),
        label_set: store.labels().ensure_label_set(set, at(0)).await.unwrap(),
    }
}

pub fn logits(hypothesis: HypothesisId, entailment: f32) -> NewLogits {
    NewLogits {
        hypothesis,
        logits: PairLogits::single(entailment),
    }
}

/// Claims posts on which no worker has crashed, or, if there are none, others.
pub async fn claim(
    store: &Store,
    target: Target,
    claimant: &Claimant<'_>,
    limit: u32,
    now: Timestamp,
) -> Claim {
    let claim = async |crashes| {
        let claim = (store.backlog()).claim(target, claimant, crashes, limit, now);
        claim.await.unwrap()
    };
    let clean = claim(CrashFilter::WithoutCrash).await;
    if clean.posts.is_empty() {
        claim(CrashFilter::WithCrash).await
    } else {
        clean
    }
}

/// Returns a write of single-label results under a lease.
pub fn write(target: Target, run: RunId, now: Timestamp, lease: Lease) -> LabelWrite {
    LabelWrite {
        target,
        logits_model: target.model,
        mode: Mode::Single,
        run,
        now,
        lease: Some(lease),
    }
}

/// Returns the result for one post: the first label, and a score for each label.
pub fn classified(
    fullname: &(impl ToString + ?Sized),
    text_hash: TextHash,
    scores: &[f64],
) -> Classified {
    Classified {
        fullname: fullname.to_string().parse().unwrap(),
        text_hash,
        scores: Scores {
            scores: scores.to_vec(),
            best: 0,
            margin: scores[0] - scores.get(1).unwrap_or(&0.0),
            outcome: LabelOutcome::Label,
            other_score: None,
        },
        logits: vec![],
        vector: None,
    }
}

/// Slugs and texts of the labels that fit the posts from [`lines`].
pub const LABELS: [(&str, &str); 3] = [
    ("gaming", "video games"),
    ("food", "food and cooking"),
    ("music", "music"),
];

/// Returns a pipeline file with a topic for each slug and label.
pub fn pipeline(name: &str, settings: &str, labels: &[(&str, &str)]) -> String {
    let topics = labels.iter().map(|(slug, label)| {
        format!("[[topic]]\nslug = \"{slug}\"\nlabel = \"{label}\"\nsubreddits = [\"{slug}\"]\n")
    });
    format!(
        "name = \"{name}\"\nmode = \"single\"\n{settings}\n{}",
        topics.collect::<String>()
    )
}

/// Returns a post as a line of NDJSON.
pub fn line(i: usize, title: &str) -> String {
    let post = json!({
        "id": format!("k{i:05}"), "title": title, "selftext": "", "subreddit": "gaming",
        "created_utc": 1_700_000_000 + i, "score": i,
    });
    format!("{post}\n")
}

/// Returns short posts as NDJSON, about each of [`LABELS`] in turn. They have `texts` different texts, which repeat in
/// order.
pub fn lines(posts: usize, texts: usize) -> String {
    let titles = [
        "a new boss fight in this game",
        "how long to roast a chicken",
        "my band recorded a song",
    ];
    let text = |i: usize| format!("{} {}", titles[i % texts % 3], i % texts);
    (0..posts).map(|i| line(i, &text(i))).collect()
}
