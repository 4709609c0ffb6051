//! The review page, on which annotators label posts one at a time. Answers are stored in the table `gold`.
//!
//! Close calls, which improve labels most, are mixed with randomly sampled posts, which give unbiased estimates of
//! quality. The page hides the predicted label until the annotator has answered, to avoid anchoring. With a filter,
//! annotators choose posts by the predicted label and its score; these answers count neither as random nor as close
//! calls.

mod disagreements;
mod filter;
mod fitting;
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
use tokio_util::task::TaskTracker;

use self::filter::{FilterQuery, UNLABELLED, describe};
pub use self::fitting::{FitOutcome, Fitter};
use self::fitting::{FitView, Fitting};
use self::queue::{NextPost, ReviewProgress, ReviewQueue};
use super::listing::address;
use super::pages::{PageError, file, html};
use crate::display;
use topicmill_core::clock::SharedClock;
use topicmill_core::{Fullname, GoldSource, SampleReason, TextHash};
use topicmill_review::gold::{self, PairAgreement};
use topicmill_score::{Label, LabelSet};
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
/// The most characters of a label's descriptions.
const ABOUT: usize = 300;
/// The most labels in one column, which has more room for their descriptions.
const FEW: usize = 8;
/// The most characters of a note in a list.
const NOTE_SHOWN: usize = 300;

/// Options of the review page.
#[derive(Debug, Clone)]
pub struct ReviewOptions {
    /// Read-write connection to the database.
    pub store: Store,
    /// Default name of the annotator.
    pub reviewer: String,
    /// Share of randomly sampled posts among the questions, 0 to 1.
    pub random_share: f64,
    /// Runs "fit now"; without it, the page does not offer it.
    pub fitter: Option<Arc<dyn Fitter>>,
}

struct Review {
    queue: ReviewQueue,
    fitting: Arc<Fitting>,
    reviewer: String,
    /// CSRF token that forms must send.
    token: String,
}

type Shared = Arc<Review>;

/// Returns the routes under `/review`; without options, a page that explains how to enable them. Fits run as `tasks`.
pub fn router<S: Clone + Send + Sync + 'static>(
    options: Option<ReviewOptions>,
    clock: &SharedClock,
    tasks: TaskTracker,
) -> Router<S> {
    let Some(options) = options else {
        return Router::new().route("/review", get(disabled));
    };
    let ReviewOptions {
        store,
        reviewer,
        random_share,
        fitter,
    } = options;
    let review = Arc::new(Review {
        queue: ReviewQueue::new(store, Arc::clone(clock), random_share),
        fitting: Arc::new(Fitting::new(fitter, tasks)),
        reviewer,
        token: csrf_token(),
    });
    Router::new()
        .route("/review", get(page))
        .route("/review/answer", post(answer))
        .route("/review/skip", post(skip))
        .route("/review/undo", post(undo))
        .route("/review/again", post(again))
        .route("/review/reopen", post(reopen))
        .route("/review/fit", get(fit_state).post(fit_now))
        .route("/review/disagreements", get(disagreements::page))
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
    #[serde(flatten)]
    filter: FilterQuery,
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
    note: Option<String>,
}

/// The main content of the page.
enum View {
    Post(Box<PostView>),
    Skipped(usize),
    Done,
    /// No further post matches the filter.
    NoMatch,
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
    /// The note of an earlier answer.
    note: String,
}

/// The message about the previous action.
enum Notice {
    Plain(&'static str),
    /// The title of the post, the answer, the predicted label with its score, and whether both are the same.
    Answered {
        title: String,
        mine: String,
        model: String,
        is_right: bool,
    },
}

struct Choice {
    slug: String,
    words: String,
    /// Its descriptions.
    about: String,
    key: Option<char>,
}

/// The form that selects posts, formatted for display.
struct FilterView {
    /// (value, words, selected) of the options.
    labels: Vec<(String, String, bool)>,
    from: String,
    to: String,
    /// Describes the posts, if a filter is set.
    active: Option<String>,
    /// URL of the page without the filter.
    clear: String,
}

/// The agreement of two annotators, formatted for display.
struct AgreementView {
    names: [String; 2],
    text: String,
    href: String,
}

/// The progress, formatted for display.
struct ProgressView {
    accuracy: String,
    interval: String,
    random: String,
    posts: String,
    sentence: String,
    agreement: Vec<AgreementView>,
    /// URL of the posts on which annotators disagree, if there are any.
    disagreements: Option<String>,
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
    /// True if there are few labels with descriptions, which then have a line each.
    has_few: bool,
    /// The query string of the filter, for the forms.
    query: String,
    filter: Option<FilterView>,
    progress: Option<ProgressView>,
    fit: String,
}

/// The state of the fit, which is also requested alone.
#[derive(Template)]
#[template(path = "serve/fit.html")]
struct FitFragment {
    token: String,
    who: String,
    query: String,
    /// URL of this fragment.
    poll: String,
    fit: Option<FitView>,
}

async fn page(
    State(review): State<Shared>,
    query: Query<PageQuery>,
) -> Result<Response, PageError> {
    let who = name(query.who.as_deref()).unwrap_or_else(|| review.reviewer.clone());
    let Some((target, set)) = review.queue.current().await? else {
        return Ok(html(StatusCode::OK, &review.page(who, View::Nothing)));
    };
    let filter = query.filter.filter(&set);
    let view = match review.queue.next(&who, target, filter.as_ref()).await? {
        NextPost::Ask(post, chosen, note) => {
            View::Post(Box::new(PostView::new(*post, chosen, note)))
        }
        NextPost::Skipped(_) | NextPost::Done if filter.is_some() => View::NoMatch,
        NextPost::Skipped(posts) => View::Skipped(posts),
        NextPost::Done => View::Done,
    };
    let progress = review.queue.progress(target, &set).await?;
    let notice = review.notice(&query, target, &set, &who).await?;
    let fit = review.fit_fragment(&who, &query.filter, &set, progress.posts);
    let page = ReviewPage {
        notice,
        set: offered(&set),
        has_few: set.labels.len() <= FEW
            && set.labels.iter().any(|one| !one.descriptions.is_empty()),
        choices: choices(&set),
        query: query.filter.query(),
        filter: Some(FilterView {
            labels: filter_labels(&set, query.filter.label.as_deref().unwrap_or_default()),
            from: query.filter.from.clone().unwrap_or_default(),
            to: query.filter.to.clone().unwrap_or_default(),
            active: filter.map(|filter| describe(&filter, &set)),
            clear: address("/review", [("as", who.as_str())].into_iter()),
        }),
        progress: Some(ProgressView::new(&progress, &who)),
        // An empty fragment is better than no page.
        fit: fit.render().unwrap_or_default(),
        ..review.page(who, view)
    };
    Ok(html(StatusCode::OK, &page))
}

async fn answer(
    State(review): State<Shared>,
    Query(filter): Query<FilterQuery>,
    Form(form): Form<ReviewForm>,
) -> Result<Response, PageError> {
    let Some((who, post)) = review.checked(&form) else {
        return Ok(stale_form());
    };
    let Some((target, set)) = review.queue.current().await? else {
        return Ok(redirect(&who, &filter, "", None));
    };
    // "None of these" refers to the labels that were offered.
    if form.set.as_deref() != Some(offered(&set).as_str()) {
        return Ok(redirect(&who, &filter, "changed", None));
    }
    let label = match (&form.none, &form.label) {
        (Some(_), _) => None,
        (None, Some(slug)) if set.labels.iter().any(|label| label.slug == *slug) => {
            Some(slug.clone())
        }
        _ => return Ok(redirect(&who, &filter, "changed", None)),
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
        note: form.note.as_deref().and_then(gold::gold_note),
    };
    Ok(if review.queue.answer(answer, target).await? {
        redirect(&who, &filter, "answered", Some(&post))
    } else {
        redirect(&who, &filter, "gone", None)
    })
}

async fn skip(
    State(review): State<Shared>,
    Query(filter): Query<FilterQuery>,
    Form(form): Form<ReviewForm>,
) -> Response {
    let Some((who, Some(post))) = review.checked(&form) else {
        return stale_form();
    };
    review.queue.skip(&who, &post).await;
    redirect(&who, &filter, "skipped", None)
}

async fn undo(
    State(review): State<Shared>,
    Query(filter): Query<FilterQuery>,
    Form(form): Form<ReviewForm>,
) -> Result<Response, PageError> {
    let Some((who, _)) = review.checked(&form) else {
        return Ok(stale_form());
    };
    let Some((_, set)) = review.queue.current().await? else {
        return Ok(redirect(&who, &filter, "", None));
    };
    let did = if review.queue.undo(&who, filter.filter(&set)).await? {
        "undone"
    } else {
        "nothing"
    };
    Ok(redirect(&who, &filter, did, None))
}

async fn reopen(
    State(review): State<Shared>,
    Form(form): Form<ReviewForm>,
) -> Result<Response, PageError> {
    let Some((who, Some(post))) = review.checked(&form) else {
        return Ok(stale_form());
    };
    let did = if review.queue.reopen(&who, &post).await? {
        "reopened"
    } else {
        "gone"
    };
    Ok(redirect(&who, &FilterQuery::default(), did, None))
}

/// Starts a fit, unless one runs. Only a form of this page can: the guard rejects other origins, and the token is
/// checked.
async fn fit_now(
    State(review): State<Shared>,
    Query(filter): Query<FilterQuery>,
    Form(form): Form<ReviewForm>,
) -> Result<Response, PageError> {
    let Some((who, _)) = review.checked(&form) else {
        return Ok(stale_form());
    };
    let answers = review.queue.count().await?;
    review.fitting.start(answers);
    Ok(redirect(&who, &filter, "", None))
}

/// Renders the state of the fit alone.
async fn fit_state(
    State(review): State<Shared>,
    query: Query<PageQuery>,
) -> Result<Response, PageError> {
    let who = name(query.who.as_deref()).unwrap_or_else(|| review.reviewer.clone());
    let Some((_, set)) = review.queue.current().await? else {
        return Err(PageError(
            StatusCode::NOT_FOUND,
            "no posts are labelled yet".to_owned(),
        ));
    };
    let answers = review.queue.count().await?;
    let fragment = review.fit_fragment(&who, &query.filter, &set, answers);
    Ok(html(StatusCode::OK, &fragment))
}

async fn again(
    State(review): State<Shared>,
    Query(filter): Query<FilterQuery>,
    Form(form): Form<ReviewForm>,
) -> Response {
    let Some((who, _)) = review.checked(&form) else {
        return stale_form();
    };
    review.queue.clear_skipped(&who).await;
    redirect(&who, &filter, "", None)
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
fn redirect(
    who: &str,
    filter: &FilterQuery,
    did: &'static str,
    post: Option<&Fullname>,
) -> Response {
    let post = post.map(|post| ("post", post.as_str()));
    let words = [("as", who), ("did", did)].into_iter().chain(post);
    let words = words.chain(filter.pairs());
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
            has_few: false,
            query: String::new(),
            filter: None,
            progress: None,
            fit: String::new(),
        }
    }

    fn fit_fragment(
        &self,
        who: &str,
        filter: &FilterQuery,
        set: &LabelSet,
        answers: usize,
    ) -> FitFragment {
        let learned = set
            .fitted
            .as_ref()
            .map_or(0, |fitted| fitted.provenance.answers);
        let learned = usize::try_from(learned).unwrap_or(usize::MAX);
        let pairs = [("as", who)].into_iter().chain(filter.pairs());
        FitFragment {
            token: self.token.clone(),
            who: who.to_owned(),
            query: filter.query(),
            poll: address("/review/fit", pairs),
            fit: self.fitting.view(answers, learned),
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
            Some("reopened") => "Your new answer will replace the earlier one.",
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
        Ok(Notice::Answered {
            title: display::single_line(&post.title, SHORT_TITLE),
            mine: label_words(answer.as_deref(), &set.labels),
            model: model_words(&post, &set.labels),
            is_right: answer.as_deref() == Some(post.label.as_str()).filter(|_| !post.abstained),
        })
    }
}

/// Identifies the labels that are offered: the version of the label set before it was fitted, because a fit offers the
/// same labels.
fn offered(set: &LabelSet) -> String {
    let base = set.fitted.as_ref().map(|fitted| fitted.base.clone());
    base.unwrap_or_else(|| set.hash())
}

/// Returns the words of an answer.
fn label_words(slug: Option<&str>, labels: &[Label]) -> String {
    let Some(slug) = slug else {
        return gold::NONE_OF_THESE.to_owned();
    };
    let label = labels.iter().find(|label| label.slug == slug);
    label.map_or(slug, |label| &label.label).to_owned()
}

/// Returns the prediction in words, with its score.
fn model_words(post: &ReviewPost, labels: &[Label]) -> String {
    let (best, score) = (
        label_words(Some(&post.label), labels),
        display::score(post.score),
    );
    if post.abstained {
        format!("no label; its best is {best}, {score}")
    } else {
        format!("{best}, {score}")
    }
}

fn agreement_view(pair: &PairAgreement) -> String {
    let PairAgreement {
        posts, same, kappa, ..
    } = pair;
    let counts = format!("the same answer to {same} of {posts} posts");
    match kappa {
        Some(kappa) => format!("Cohen\u{2019}s kappa {}, {counts}", display::score(*kappa)),
        None => format!("{counts}, and always the same label, so that kappa is undefined"),
    }
}

/// Returns (value, words, selected) of the options of the filter.
fn filter_labels(set: &LabelSet, chosen: &str) -> Vec<(String, String, bool)> {
    let labels = choices(set)
        .into_iter()
        .map(|choice| (choice.slug, choice.words));
    let ends = [
        (String::new(), "any label".to_owned()),
        (UNLABELLED.to_owned(), "no label".to_owned()),
    ];
    let [any, none] = ends;
    let all = std::iter::once(any).chain(labels).chain([none]);
    all.map(|(slug, words)| (slug.clone(), words, slug == chosen))
        .collect()
}

impl PostView {
    fn new(post: ReviewPost, chosen: SampleReason, note: String) -> Self {
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
                SampleReason::Closest => "close call",
                SampleReason::Filter => "filter",
                SampleReason::Import => "file",
            },
            note,
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
                about: display::single_line(&label.descriptions.join(" "), ABOUT),
                key,
            }
        })
        .collect()
}

impl ProgressView {
    fn new(of: &ReviewProgress, who: &str) -> Self {
        let random = &of.random;
        let sentence = match random.share {
            Some(_) => {
                "Close calls are excluded, because they are harder than most posts; so are posts of a filter."
            }
            None => {
                "The accuracy will be estimated from answers about randomly sampled posts. Close calls are excluded, \
                 because they are harder than most posts; so are posts of a filter."
            }
        };
        let list = |names: Option<&[String; 2]>| {
            let names = names.map(|[a, b]| [("a", a.as_str()), ("b", b.as_str())]);
            let names = names.into_iter().flatten();
            address(
                "/review/disagreements",
                [("as", who)].into_iter().chain(names),
            )
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
            agreement: of
                .agreement
                .iter()
                .map(|pair| AgreementView {
                    names: pair.annotators.clone(),
                    text: agreement_view(pair),
                    href: list(Some(&pair.annotators)),
                })
                .collect(),
            disagreements: (of.disagreements > 0).then(|| list(None)),
        }
    }
}
