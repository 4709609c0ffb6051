//! A page that asks people about labels, one post at a time: the posts that teach most, mixed with some that were drawn at
//! random, without which nobody could say how good the labels are. What people say goes to the table `gold`.
//!
//! The page does not show what the model said before a person answers: who sees an answer, agrees with it.

mod desk;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use askama::Template;
use axum::Form;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use self::desk::{Desk, NextPost, ReviewProgress};
use super::listing::address;
use super::pages::{Failed, file, html};
use crate::display;
use topicmill_core::clock::SharedClock;
use topicmill_core::{Fullname, GoldSource, SampleReason, TextHash};
use topicmill_score::LabelSet;
use topicmill_store::{GoldAnswer, ReviewPost, Store, Target};

/// Keys for labels, in this order. `n`, `u`, space and 0 mean something else.
const KEYS: &str = "123456789abcdefghijklmopqrstvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Characters of a title and of a body that are shown: nobody reads more to label a post.
const TITLE: usize = 300;
const BODY: usize = 6_000;
/// Characters of the title of the post that was just answered.
const SHORT_TITLE: usize = 60;
/// Characters of the name of a person.
const NAME: usize = 60;

#[derive(Debug, Clone)]
pub struct ReviewOptions {
    /// The database, for writing.
    pub store: Store,
    /// Who answers, where the page does not say.
    pub reviewer: String,
    pub random_share: f64,
}

struct Review {
    desk: Desk,
    reviewer: String,
    /// What a form must send along: no page of another site knows it.
    token: String,
}

type Shared = Arc<Review>;

/// The pages under `/review`; without `asking`, one that says how to get them.
pub fn router<S: Clone + Send + Sync + 'static>(
    asking: Option<ReviewOptions>,
    clock: &SharedClock,
) -> Router<S> {
    let Some(asking) = asking else {
        return Router::new().route("/review", get(off));
    };
    let ReviewOptions {
        store,
        reviewer,
        random_share,
    } = asking;
    let review = Arc::new(Review {
        desk: Desk::new(store, Arc::clone(clock), random_share),
        reviewer,
        token: secret(),
    });
    Router::new()
        .route("/review", get(page))
        .route("/review/answer", post(answer))
        .route("/review/skip", post(skip))
        .route("/review/undo", post(undo))
        .route("/review/again", post(again))
        .route("/review/review.js", get(script))
        .route("/review/review.css", get(style))
        .with_state(review)
}

/// 128 bits that nobody can guess: the keys that the standard library draws from the system's random numbers for each
/// process, through its keyed hash.
fn secret() -> String {
    let half = |salt: u64| RandomState::new().hash_one(salt);
    format!("{:016x}{:016x}", half(0), half(1))
}

async fn off() -> Failed {
    let said = "this server only shows; `topicmill serve --review` asks people about labels here, and stores what they say";
    Failed(StatusCode::NOT_FOUND, said.to_owned())
}

async fn script() -> Response {
    file(
        "text/javascript; charset=utf-8",
        include_str!("review.js").to_owned(),
    )
}

async fn style() -> Response {
    file(
        "text/css; charset=utf-8",
        include_str!("review.css").to_owned(),
    )
}

#[derive(Debug, Deserialize)]
struct Address {
    #[serde(rename = "as")]
    who: Option<String>,
    /// What was just done.
    did: Option<String>,
    post: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Sent {
    token: String,
    who: String,
    post: Option<String>,
    text: Option<String>,
    set: Option<String>,
    label: Option<String>,
    none: Option<String>,
}

enum Shown {
    Ask(Box<Ask>),
    Skipped(usize),
    Done,
    Nothing,
}

struct Ask {
    fullname: Fullname,
    text: TextHash,
    subreddit: String,
    day: String,
    why: &'static str,
    title: String,
    body: String,
    link: Option<String>,
    host: String,
    on_reddit: Option<String>,
}

enum Done {
    Plain(&'static str),
    /// What a person said, what the model says with its score where that differs, and of which post.
    Said {
        mine: String,
        differs: Option<(String, String)>,
        title: String,
    },
}

struct Choice {
    slug: String,
    words: String,
    key: Option<char>,
}

/// What people said so far, in words.
struct Told {
    accuracy: String,
    interval: String,
    random: String,
    posts: String,
    sentence: String,
}

#[derive(Template)]
#[template(path = "serve/review.html")]
struct ReviewPage {
    token: String,
    who: String,
    done: Done,
    shown: Shown,
    set: String,
    choices: Vec<Choice>,
    standing: Option<Told>,
}

async fn page(State(review): State<Shared>, asking: Query<Address>) -> Result<Response, Failed> {
    let who = name(asking.who.as_deref()).unwrap_or_else(|| review.reviewer.clone());
    let Some((target, set)) = review.desk.current().await? else {
        return Ok(html(StatusCode::OK, &review.page(who, Shown::Nothing)));
    };
    let shown = match review.desk.next(&who, target).await? {
        NextPost::Ask(post, chosen) => Shown::Ask(Box::new(Ask::new(*post, chosen))),
        NextPost::Skipped(posts) => Shown::Skipped(posts),
        NextPost::Done => Shown::Done,
    };
    let standing = review.desk.standing(target, &set).await?;
    let done = review.done(&asking, target, &set, &who).await?;
    let page = ReviewPage {
        done,
        set: set.hash(),
        choices: choices(&set),
        standing: Some(Told::new(&standing)),
        ..review.page(who, shown)
    };
    Ok(html(StatusCode::OK, &page))
}

async fn answer(State(review): State<Shared>, Form(form): Form<Sent>) -> Result<Response, Failed> {
    let Some((who, post)) = review.checked(&form) else {
        return Ok(refused());
    };
    let Some((target, set)) = review.desk.current().await? else {
        return Ok(onward(&who, "", None));
    };
    // The labels that were offered are those that "none of these" is about.
    if form.set.as_deref() != Some(set.hash().as_str()) {
        return Ok(onward(&who, "changed", None));
    }
    let label = match (&form.none, &form.label) {
        (Some(_), _) => None,
        (None, Some(slug)) if set.labels.iter().any(|label| label.slug == *slug) => {
            Some(slug.clone())
        }
        _ => return Ok(onward(&who, "changed", None)),
    };
    let text = form.text.as_ref().and_then(|text| text.parse().ok());
    let (Some(post), Some(text)) = (post, text) else {
        return Ok(refused());
    };
    let answer = GoldAnswer {
        fullname: post.clone(),
        reviewer: who.clone(),
        label,
        label_set: Some(target.label_set),
        // Unless the desk drew it: only what was drawn at random may stand for all posts.
        chosen: SampleReason::Closest,
        source: GoldSource::Review,
        answered_at: review.desk.clock.now().into(),
        // It may be edited between the look at it and now.
        text_hash: Some(text),
    };
    Ok(if review.desk.answer(answer, target).await? {
        onward(&who, "answered", Some(&post))
    } else {
        onward(&who, "gone", None)
    })
}

async fn skip(State(review): State<Shared>, Form(form): Form<Sent>) -> Response {
    let Some((who, Some(post))) = review.checked(&form) else {
        return refused();
    };
    review.desk.skip(&who, &post).await;
    onward(&who, "skipped", None)
}

async fn undo(State(review): State<Shared>, Form(form): Form<Sent>) -> Result<Response, Failed> {
    let Some((who, _)) = review.checked(&form) else {
        return Ok(refused());
    };
    let did = if review.desk.undo(&who).await? {
        "undone"
    } else {
        "nothing"
    };
    Ok(onward(&who, did, None))
}

async fn again(State(review): State<Shared>, Form(form): Form<Sent>) -> Response {
    let Some((who, _)) = review.checked(&form) else {
        return refused();
    };
    review.desk.again(&who).await;
    onward(&who, "", None)
}

/// The name of a person, of visible characters.
fn name(text: Option<&str>) -> Option<String> {
    let name = display::single_line(text?, NAME);
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn refused() -> Response {
    let said = "this form is from before the server was started, and nothing was stored; open /review again";
    Failed(StatusCode::FORBIDDEN, said.to_owned()).into_response()
}

/// Leads to the next post, by an address that can be loaded again without saying anything twice.
fn onward(who: &str, did: &'static str, post: Option<&Fullname>) -> Response {
    let post = post.map(|post| ("post", post.as_str()));
    let words = [("as", who), ("did", did)].into_iter().chain(post);
    let to = HeaderValue::from_str(&address("/review", words));
    let to = to.unwrap_or(HeaderValue::from_static("/review"));
    (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response()
}

impl Review {
    fn page(&self, who: String, shown: Shown) -> ReviewPage {
        ReviewPage {
            token: self.token.clone(),
            who,
            done: Done::Plain(""),
            shown,
            set: String::new(),
            choices: Vec::new(),
            standing: None,
        }
    }

    /// Who sends a form about which post; `None` unless it is one of ours.
    fn checked(&self, form: &Sent) -> Option<(String, Option<Fullname>)> {
        let who = name(Some(form.who.as_str())).filter(|_| form.token == self.token)?;
        Some((who, form.post.as_ref().and_then(|post| post.parse().ok())))
    }

    async fn done(
        &self,
        asking: &Address,
        target: Target,
        set: &LabelSet,
        who: &str,
    ) -> Result<Done, Failed> {
        // An address picks one of these sentences and says nothing itself: anybody can write one.
        let text = match asking.did.as_deref() {
            Some("answered") => {
                let post = asking.post.as_ref().and_then(|post| post.parse().ok());
                return self.compared(post, target, set, who).await;
            }
            Some("gone") => "That post was purged or edited meanwhile, so nothing was stored.",
            Some("changed") => "The label set was changed meanwhile, so nothing was stored.",
            Some("skipped") => "Skipped.",
            Some("undone") => "Your last answer is taken back: here is its post again.",
            Some("nothing") => "There is nothing to undo.",
            _ => "",
        };
        Ok(Done::Plain(text))
    }

    /// What a person just said of a post beside what the model says.
    async fn compared(
        &self,
        post: Option<Fullname>,
        target: Target,
        set: &LabelSet,
        who: &str,
    ) -> Result<Done, Failed> {
        let said = match post {
            Some(post) => self.desk.said(&post, who, target).await?,
            None => None,
        };
        let Some((said, post)) = said else {
            return Ok(Done::Plain(""));
        };
        let words = |slug: Option<&str>| {
            let label = slug.and_then(|slug| set.labels.iter().find(|label| label.slug == slug));
            label
                .map_or("none of these", |label| &label.label)
                .to_owned()
        };
        let given = Some(post.label.as_str()).filter(|_| !post.abstained);
        let (mine, its) = (words(said.as_deref()), words(given));
        Ok(Done::Said {
            differs: (said.as_deref() != given).then(|| (its, display::score(post.score))),
            mine,
            title: display::single_line(&post.title, SHORT_TITLE),
        })
    }
}

impl Ask {
    fn new(post: ReviewPost, chosen: SampleReason) -> Self {
        let ReviewPost {
            fullname,
            subreddit,
            title,
            selftext,
            url,
            permalink,
            created_at,
            text_hash,
            ..
        } = post;
        // A `javascript:` link would run in this page.
        let link = url.filter(|url| url.starts_with("https://") || url.starts_with("http://"));
        let host = link.as_deref().and_then(|link| link.split('/').nth(2));
        Self {
            host: display::single_line(host.unwrap_or_default(), 80),
            link,
            on_reddit: permalink
                .filter(|path| path.starts_with('/'))
                .map(|path| format!("https://www.reddit.com{path}")),
            day: created_at.as_datetime().format("%-d %B %Y").to_string(),
            why: match chosen {
                SampleReason::Random => "drawn at random",
                _ => "a close call",
            },
            text: text_hash,
            fullname,
            subreddit: display::single_line(&subreddit, NAME),
            title: display::single_line(&title, TITLE),
            body: display::multi_line(&selftext, BODY),
        }
    }
}

fn choices(set: &LabelSet) -> Vec<Choice> {
    let keys = KEYS.chars().map(Some).chain(std::iter::repeat(None));
    let labels = set.labels.iter().zip(keys);
    labels
        .map(|(label, key)| {
            let mut same = set.labels.iter().filter(|other| other.label == label.label);
            Choice {
                words: if same.nth(1).is_some() {
                    format!("{} ({})", label.label, label.slug)
                } else {
                    label.label.clone()
                },
                slug: label.slug.clone(),
                key,
            }
        })
        .collect()
}

impl Told {
    fn new(of: &ReviewProgress) -> Self {
        let random = &of.random;
        let sentence = match random.share {
            Some(_) => "Close calls do not count here: they are harder than most posts.",
            None => {
                "Answers about posts that were drawn at random will show here how many labels are right. Close calls do not \
                 count here: they are harder than most posts."
            }
        };
        let disagree = match of.disagreements {
            0 => String::new(),
            1 => " People disagree on one post, which counts nowhere.".to_owned(),
            posts => format!(" People disagree on {posts} posts, which count nowhere."),
        };
        Self {
            accuracy: random.share.map_or("–".to_owned(), display::percent),
            interval: random.share.map_or("–".to_owned(), |_| {
                let low = display::percent(random.low);
                format!(
                    "{}–{}",
                    low.trim_end_matches(" %"),
                    display::percent(random.high)
                )
            }),
            random: display::thousands(random.all as u64),
            posts: display::thousands(of.posts as u64),
            sentence: format!("{sentence}{disagree}"),
        }
    }
}
