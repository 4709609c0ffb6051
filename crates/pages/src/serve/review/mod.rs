//! The review page, on which annotators label posts one at a time. Answers are stored in the table `gold`.
//!
//! Close calls, which improve labels most, are mixed with randomly sampled posts, which give unbiased estimates of
//! quality. The page hides the predicted label until the annotator has answered, to avoid anchoring.

mod queue;

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

use self::queue::{NextPost, ReviewProgress, ReviewQueue};
use super::listing::address;
use super::pages::{PageError, file, html};
use crate::display;
use topicmill_core::clock::SharedClock;
use topicmill_core::{Fullname, GoldSource, SampleReason, TextHash};
use topicmill_score::LabelSet;
use topicmill_store::{GoldAnswer, ReviewPost, Store, Target};

/// Hotkeys of the labels, in order. `n`, `u`, space and 0 are taken.
const KEYS: &str = "123456789abcdefghijklmopqrstvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// The most characters of a title.
const TITLE: usize = 300;
/// The most characters of a body.
const BODY: usize = 6_000;
/// The most characters of the title of the previous post.
const SHORT_TITLE: usize = 60;
/// The most characters of the name of an annotator.
const NAME: usize = 60;

/// Options of the review page.
#[derive(Debug, Clone)]
pub struct ReviewOptions {
    /// Read-write connection to the database.
    pub store: Store,
    /// Default name of the annotator.
    pub reviewer: String,
    /// Share of randomly sampled posts among the questions, 0 to 1.
    pub random_share: f64,
}

struct Review {
    queue: ReviewQueue,
    reviewer: String,
    /// CSRF token that forms must send.
    token: String,
}

type Shared = Arc<Review>;

/// Returns the routes under `/review`; without options, a page that explains how to enable them.
pub fn router<S: Clone + Send + Sync + 'static>(
    options: Option<ReviewOptions>,
    clock: &SharedClock,
) -> Router<S> {
    let Some(options) = options else {
        return Router::new().route("/review", get(disabled));
    };
    let ReviewOptions {
        store,
        reviewer,
        random_share,
    } = options;
    let review = Arc::new(Review {
        queue: ReviewQueue::new(store, Arc::clone(clock), random_share),
        reviewer,
        token: csrf_token(),
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

/// Returns 128 unpredictable bits in hexadecimal. `RandomState` seeds its keyed hash from the random numbers of the
/// operating system.
fn csrf_token() -> String {
    let half = |salt: u64| RandomState::new().hash_one(salt);
    format!("{:016x}{:016x}", half(0), half(1))
}

async fn disabled() -> PageError {
    let message = "reviewing is disabled; run `topicmill serve --review` to label posts here";
    PageError(StatusCode::NOT_FOUND, message.to_owned())
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

/// Query parameters of the page.
#[derive(Debug, Deserialize)]
struct PageQuery {
    #[serde(rename = "as")]
    who: Option<String>,
    /// The previous action.
    did: Option<String>,
    post: Option<String>,
}

/// The data of a form.
#[derive(Debug, Deserialize)]
struct ReviewForm {
    token: String,
    who: String,
    post: Option<String>,
    text: Option<String>,
    set: Option<String>,
    label: Option<String>,
    none: Option<String>,
}

/// The main content of the page.
enum View {
    Post(Box<PostView>),
    Skipped(usize),
    Done,
    Nothing,
}

/// A post, formatted for display.
struct PostView {
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

/// The message about the previous action.
enum Notice {
    Plain(&'static str),
    /// The answer, the predicted label and its score if they differ, and the title of the post.
    Answered {
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

/// The progress, formatted for display.
struct ProgressView {
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
    notice: Notice,
    view: View,
    set: String,
    choices: Vec<Choice>,
    progress: Option<ProgressView>,
}

async fn page(
    State(review): State<Shared>,
    query: Query<PageQuery>,
) -> Result<Response, PageError> {
    let who = name(query.who.as_deref()).unwrap_or_else(|| review.reviewer.clone());
    let Some((target, set)) = review.queue.current().await? else {
        return Ok(html(StatusCode::OK, &review.page(who, View::Nothing)));
    };
    let view = match review.queue.next(&who, target).await? {
        NextPost::Ask(post, chosen) => View::Post(Box::new(PostView::new(*post, chosen))),
        NextPost::Skipped(posts) => View::Skipped(posts),
        NextPost::Done => View::Done,
    };
    let progress = review.queue.progress(target, &set).await?;
    let notice = review.notice(&query, target, &set, &who).await?;
    let page = ReviewPage {
        notice,
        set: set.hash(),
        choices: choices(&set),
        progress: Some(ProgressView::new(&progress)),
        ..review.page(who, view)
    };
    Ok(html(StatusCode::OK, &page))
}

async fn answer(
    State(review): State<Shared>,
    Form(form): Form<ReviewForm>,
) -> Result<Response, PageError> {
    let Some((who, post)) = review.checked(&form) else {
        return Ok(stale_form());
    };
    let Some((target, set)) = review.queue.current().await? else {
        return Ok(redirect(&who, "", None));
    };
    // "None of these" refers to the labels that were offered.
    if form.set.as_deref() != Some(set.hash().as_str()) {
        return Ok(redirect(&who, "changed", None));
    }
    let label = match (&form.none, &form.label) {
        (Some(_), _) => None,
        (None, Some(slug)) if set.labels.iter().any(|label| label.slug == *slug) => {
            Some(slug.clone())
        }
        _ => return Ok(redirect(&who, "changed", None)),
    };
    let text = form.text.as_ref().and_then(|text| text.parse().ok());
    let (Some(post), Some(text)) = (post, text) else {
        return Ok(stale_form());
    };
    let answer = GoldAnswer {
        fullname: post.clone(),
        reviewer: who.clone(),
        label,
        label_set: Some(target.label_set),
        // The queue replaces this if it sampled the post at random.
        chosen: SampleReason::Closest,
        source: GoldSource::Review,
        answered_at: review.queue.clock.now().into(),
        // Detects edits since the post was shown.
        text_hash: Some(text),
    };
    Ok(if review.queue.answer(answer, target).await? {
        redirect(&who, "answered", Some(&post))
    } else {
        redirect(&who, "gone", None)
    })
}

async fn skip(State(review): State<Shared>, Form(form): Form<ReviewForm>) -> Response {
    let Some((who, Some(post))) = review.checked(&form) else {
        return stale_form();
    };
    review.queue.skip(&who, &post).await;
    redirect(&who, "skipped", None)
}

async fn undo(
    State(review): State<Shared>,
    Form(form): Form<ReviewForm>,
) -> Result<Response, PageError> {
    let Some((who, _)) = review.checked(&form) else {
        return Ok(stale_form());
    };
    let did = if review.queue.undo(&who).await? {
        "undone"
    } else {
        "nothing"
    };
    Ok(redirect(&who, did, None))
}

async fn again(State(review): State<Shared>, Form(form): Form<ReviewForm>) -> Response {
    let Some((who, _)) = review.checked(&form) else {
        return stale_form();
    };
    review.queue.clear_skipped(&who).await;
    redirect(&who, "", None)
}

/// Sanitises the name of an annotator.
fn name(text: Option<&str>) -> Option<String> {
    let name = display::single_line(text?, NAME);
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn stale_form() -> Response {
    let message = "the form is outdated because the server was restarted, and nothing was stored; open /review again";
    PageError(StatusCode::FORBIDDEN, message.to_owned()).into_response()
}

/// Redirects to the next post, so that reloading the page does not send the form again.
fn redirect(who: &str, did: &'static str, post: Option<&Fullname>) -> Response {
    let post = post.map(|post| ("post", post.as_str()));
    let words = [("as", who), ("did", did)].into_iter().chain(post);
    let to = HeaderValue::from_str(&address("/review", words));
    let to = to.unwrap_or(HeaderValue::from_static("/review"));
    (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response()
}

impl Review {
    fn page(&self, who: String, view: View) -> ReviewPage {
        ReviewPage {
            token: self.token.clone(),
            who,
            notice: Notice::Plain(""),
            view,
            set: String::new(),
            choices: Vec::new(),
            progress: None,
        }
    }

    /// Returns the annotator and the post of a form; `None` if its CSRF token is wrong.
    fn checked(&self, form: &ReviewForm) -> Option<(String, Option<Fullname>)> {
        let who = name(Some(form.who.as_str())).filter(|_| form.token == self.token)?;
        Some((who, form.post.as_ref().and_then(|post| post.parse().ok())))
    }

    async fn notice(
        &self,
        query: &PageQuery,
        target: Target,
        set: &LabelSet,
        who: &str,
    ) -> Result<Notice, PageError> {
        // The URL selects one of these fixed messages, because anyone can craft a URL.
        let text = match query.did.as_deref() {
            Some("answered") => {
                let post = query.post.as_ref().and_then(|post| post.parse().ok());
                return self.compare_with_model(post, target, set, who).await;
            }
            Some("gone") => "The post was purged or edited in the meantime; nothing was stored.",
            Some("changed") => "The label set changed in the meantime; nothing was stored.",
            Some("skipped") => "Skipped.",
            Some("undone") => "Your last answer was undone. Here is its post again.",
            Some("nothing") => "There is nothing to undo.",
            _ => "",
        };
        Ok(Notice::Plain(text))
    }

    /// Compares an answer with the predicted label.
    async fn compare_with_model(
        &self,
        post: Option<Fullname>,
        target: Target,
        set: &LabelSet,
        who: &str,
    ) -> Result<Notice, PageError> {
        let answer = match post {
            Some(post) => self.queue.answer_about(&post, who, target).await?,
            None => None,
        };
        let Some((answer, post)) = answer else {
            return Ok(Notice::Plain(""));
        };
        let words = |slug: Option<&str>| {
            let label = slug.and_then(|slug| set.labels.iter().find(|label| label.slug == slug));
            label
                .map_or("none of these", |label| &label.label)
                .to_owned()
        };
        let given = Some(post.label.as_str()).filter(|_| !post.abstained);
        let (mine, its) = (words(answer.as_deref()), words(given));
        Ok(Notice::Answered {
            differs: (answer.as_deref() != given).then(|| (its, display::score(post.score))),
            mine,
            title: display::single_line(&post.title, SHORT_TITLE),
        })
    }
}

impl PostView {
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
        // Rejects `javascript:` and other schemes.
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
                SampleReason::Random => "random sample",
                _ => "close call",
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

impl ProgressView {
    fn new(of: &ReviewProgress) -> Self {
        let random = &of.random;
        let sentence = match random.share {
            Some(_) => "Close calls are excluded, because they are harder than most posts.",
            None => {
                "The accuracy will be estimated from answers about randomly sampled posts. Close calls are excluded, \
                 because they are harder than most posts."
            }
        };
        let disagree = match of.disagreements {
            0 => String::new(),
            1 => " Annotators disagree on 1 post, which is excluded.".to_owned(),
            posts => format!(" Annotators disagree on {posts} posts, which are excluded."),
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
