//! The page itself: the current post with the labels to choose from, or the reason why there is no post.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::filter::{FilterQuery, NO_LABEL, describe};
use super::fitting::{FitOutcome, FitView};
use super::notice::Notice;
use super::progress::{ProgressView, Unreviewable};
use super::queue::{Assignment, NextPost};
use super::{NAME, Review, Shared, offered};
use crate::display;
use crate::report::{capital, time};
use crate::serve::pages::{PageError, address, html, other_kind};
use topicmill_core::{Fullname, LabelSet, SampleReason, TextHash, ThingKind};
use topicmill_store::ReviewPost;

/// Hotkeys for the labels, in order. `n`, `u`, space and 0 are taken.
const KEYS: &str = "123456789abcdefghijklmopqrstvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Maximum number of characters in a title.
const TITLE: usize = 300;
/// Maximum number of characters in a body.
const BODY: usize = 6_000;
/// Maximum number of characters in a label's descriptions.
const ABOUT: usize = 300;
/// Maximum number of labels in a single column, which leaves more room for their descriptions than two columns do.
const FEW: usize = 8;

/// The page's query parameters.
#[derive(Debug, Deserialize)]
pub struct PageQuery {
    #[serde(rename = "as")]
    who: Option<String>,
    /// The previous action.
    did: Option<String>,
    post: Option<String>,
    #[serde(flatten)]
    filter: FilterQuery,
}

/// The page's main content.
enum View {
    Post(Box<PostView>),
    Skipped(usize),
    /// No post is left but those that cannot be reviewed.
    Done(Unreviewable),
    /// No more posts match the filter.
    NoMatch,
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
    /// The note from an earlier answer.
    note: String,
}

struct Choice {
    slug: String,
    words: String,
    /// The label's descriptions.
    about: String,
    key: Option<char>,
}

/// The form that selects posts, formatted for display.
struct FilterView {
    labels: Vec<LabelOption>,
    query: FilterQuery,
    /// Describes the posts if a filter is set, or there are comments too.
    active: Option<String>,
    /// URL for the page without the filter.
    clear: String,
    /// The other kind, with the URL for reviewing it, if there are comments.
    others: Option<(&'static str, String)>,
}

/// An option of the filter by label.
struct LabelOption {
    value: String,
    words: String,
    is_selected: bool,
}

/// The page before the first label, or before the annotator has given a name.
#[derive(Template)]
#[template(path = "serve/review_start.html")]
struct StartPage {
    is_labelled: bool,
}

#[derive(Template)]
#[template(path = "serve/review.html")]
struct ReviewPage {
    token: String,
    who: String,
    /// `posts` or `comments`.
    things: &'static str,
    notice: Notice,
    view: View,
    set: String,
    choices: Vec<Choice>,
    /// True if there are few labels, some with descriptions; each label then has its own line.
    has_few: bool,
    /// The filter's query string, for the forms.
    query: String,
    filter: FilterView,
    progress: ProgressView,
    fit: String,
}

/// The fit's state, which can also be requested alone.
#[derive(Template)]
#[template(path = "serve/fit.html")]
struct FitFragment {
    token: String,
    who: String,
    query: String,
    /// URL for this fragment.
    poll: String,
    /// The target that the threshold was chosen for; the next fit also uses it.
    target: Option<String>,
    fit: Option<FitView>,
}

/// Renders the page.
pub async fn page(
    State(review): State<Shared>,
    query: Query<PageQuery>,
) -> Result<Response, PageError> {
    let Some(current) = review.current_labels().await? else {
        return Ok(html(StatusCode::OK, &StartPage { is_labelled: false }));
    };
    let Some(who) = review.annotator(query.who.as_deref()) else {
        return Ok(html(StatusCode::OK, &StartPage { is_labelled: true }));
    };
    let set = &current.set;
    let filter = query.filter.filter(set)?;
    let kind = filter
        .as_ref()
        .map_or(ThingKind::Post, |filter| filter.kind);
    let view = match review.queue.next(&who, &current, filter.as_ref()).await? {
        NextPost::Ask(post, assignment) => View::Post(Box::new(PostView::new(*post, assignment))),
        NextPost::Skipped(_) | NextPost::Done if filter.is_some() => View::NoMatch,
        NextPost::Skipped(posts) => View::Skipped(posts),
        NextPost::Done => View::Done(review.queue.unreviewable().await?),
    };
    let did = query.did.as_deref().and_then(|did| did.parse().ok());
    let previous = query.post.as_deref().and_then(|post| post.parse().ok());
    let notice = review.notice(did, previous, &current, &who).await?;
    let fit = review.fit_fragment(&who, &query.filter, set).await?;
    let link = |kind| address("/review", [("as", who.as_str()), ("kind", kind)]);
    let others = other_kind(&review.queue.store, kind, link).await?;
    let page = ReviewPage {
        token: review.token.clone(),
        things: kind.plural(),
        notice,
        view,
        set: offered(set),
        has_few: set.labels.len() <= FEW
            && set.labels.iter().any(|one| !one.descriptions.is_empty()),
        choices: choices(set),
        query: query.filter.query(),
        filter: FilterView {
            labels: filter_labels(set, &query.filter.label),
            query: query.filter.clone(),
            active: filter
                .map(|filter| describe(&filter, set))
                .or_else(|| others.is_some().then(|| capital(kind.plural()))),
            clear: link(kind.plural()),
            others,
        },
        progress: review.queue.progress(&current, &who).await?,
        fit: fit.render().expect("writing to a string cannot fail"),
        who,
    };
    Ok(html(StatusCode::OK, &page))
}

/// Renders only the fit's state.
pub async fn fit_state(
    State(review): State<Shared>,
    query: Query<PageQuery>,
) -> Result<Response, PageError> {
    let who = review.annotator(query.who.as_deref()).unwrap_or_default();
    let Some(current) = review.current_labels().await? else {
        return Err(PageError(
            StatusCode::NOT_FOUND,
            "no posts are labelled yet".to_owned(),
        ));
    };
    let fragment = review
        .fit_fragment(&who, &query.filter, &current.set)
        .await?;
    Ok(html(StatusCode::OK, &fragment))
}

impl Review {
    async fn fit_fragment(
        &self,
        who: &str,
        filter: &FilterQuery,
        set: &LabelSet,
    ) -> Result<FitFragment, PageError> {
        let fitted = set.fitted.as_ref();
        let target = fitted.and_then(|fitted| fitted.provenance.target);
        let pairs = [("as", who)].into_iter().chain(filter.pairs());
        let answered = self.queue.answered_posts(set).await?;
        Ok(FitFragment {
            token: self.token.clone(),
            who: who.to_owned(),
            query: filter.query(),
            poll: address("/review/fit", pairs),
            target: target.map(|target| target.to_string()),
            fit: self.fitting.view(answered.all, answered.before_fit),
        })
    }
}

/// Returns the filter's options.
fn filter_labels(set: &LabelSet, chosen: &str) -> Vec<LabelOption> {
    let any = (String::new(), "any label".to_owned());
    let none = (NO_LABEL.to_owned(), "no label".to_owned());
    let labels = choices(set).into_iter();
    std::iter::once(any)
        .chain(labels.map(|choice| (choice.slug, choice.words)))
        .chain([none])
        .map(|(value, words)| LabelOption {
            is_selected: value == chosen,
            value,
            words,
        })
        .collect()
}

impl PostView {
    fn new(post: ReviewPost, assignment: Assignment) -> Self {
        let title = match post.title.as_str() {
            "" if post.fullname.is_comment() => "A comment",
            title => title,
        };
        let link = post.url.filter(|url| display::is_web_url(url));
        let host = link.as_deref().and_then(|link| link.split('/').nth(2));
        Self {
            host: display::single_line(host.unwrap_or_default(), 80),
            link,
            on_reddit: post.permalink.as_deref().and_then(display::reddit_url),
            day: time::day(post.created_at),
            why: match assignment.chosen {
                _ if assignment.has_new_labels => {
                    "your answer was “none of these”, before labels were added"
                }
                SampleReason::Random => "random sample",
                SampleReason::Closest => "close call",
                SampleReason::Filter => "filter",
                SampleReason::Import => "file",
            },
            note: assignment.note,
            text: post.text_hash,
            subreddit: display::single_line(&post.subreddit, NAME),
            title: display::single_line(title, TITLE),
            body: display::multi_line(&post.selftext, BODY),
            fullname: post.fullname,
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
