//! The page for a post, which shows everything that is stored about the post.

use askama::Template;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::line::{PostLine, percent, signed_thousands};
use super::{PageError, address, html, shortened};
use crate::display;
use crate::report::time::moment;
use crate::serve::Shared;
use topicmill_core::Fullname;
use topicmill_core::score::LabelOutcome;
use topicmill_store::browse::{PostDetails, Sighting, Verdict};

/// Maximum number of characters in a body: twice Reddit's limit.
const BODY: usize = 80_000;
/// Maximum number of characters in the title in the heading: Reddit's limit.
const TITLE: usize = 300;
/// Maximum number of sightings in the table.
const ROWS: usize = 60;

#[derive(Template)]
#[template(path = "serve/post.html")]
struct PostPage {
    line: PostLine,
    fullname: Fullname,
    full_title: Option<String>,
    body: String,
    is_cut: bool,
    on_reddit: Option<String>,
    link: Option<LinkView>,
    subreddit_href: String,
    label_href: Option<String>,
    /// The end of the sentence about the outcome, with its score.
    about_outcome: String,
    verdicts: Vec<VerdictView>,
    sightings: Vec<SightingView>,
    more_sightings: usize,
    facts: Vec<(&'static str, String)>,
    /// Related posts and comments: the relation (`crosspost of`, `comment on` or `reply to`) and the fullname.
    related: Vec<(&'static str, String)>,
    same_text: Vec<PostLine>,
}

/// The link of a post, formatted for display.
struct LinkView {
    href: String,
    shown: String,
}

/// A verdict, formatted for display.
struct VerdictView {
    title: String,
    is_current: bool,
    is_old: bool,
    /// The score for `other` if that is the outcome.
    other: Option<String>,
    when: String,
    threshold: String,
    threshold_at: f64,
    scores: Vec<ScoreView>,
}

/// A label's score, formatted for display.
struct ScoreView {
    words: String,
    shown: String,
    percent: f64,
    is_best: bool,
}

/// A sighting, formatted for display.
struct SightingView {
    day: String,
    times: i64,
    topic: String,
    place: String,
    reddit_score: String,
}

/// Renders the page; returns a 404 error if the post is not stored. A path that is not valid UTF-8 counts as unknown.
pub async fn page(
    State(serving): State<Shared>,
    named: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let fullname = named.map_or_else(|_| String::new(), |Path(fullname)| fullname);
    let post = match fullname.parse::<Fullname>() {
        Ok(name) => serving.store.posts().post_details(&name).await?,
        Err(_) => None,
    };
    let post = post.ok_or_else(|| {
        let name = shortened(&fullname);
        let message = format!(
            "`{name}` is not stored: it was not collected, or it was purged after it was deleted on Reddit"
        );
        PageError(StatusCode::NOT_FOUND, message)
    })?;
    Ok(html(StatusCode::OK, &post_page(&post)))
}

/// Formats a post for display.
fn post_page(post: &PostDetails) -> PostPage {
    let listed = &post.listed;
    let is_long = listed.title.chars().count() > TITLE;
    let web_url = post.url.as_deref().filter(|url| display::is_web_url(url));
    let label = listed.label.as_deref().unwrap_or_default();
    let outcome = listed.outcome.map(|outcome| outcome.word(label));
    let kind = listed.fullname.is_comment().then_some(("kind", "comments"));
    let filtered = |key, value| address("/posts", kind.into_iter().chain([(key, value)]));
    let sightings = post.sightings.iter().take(ROWS);
    let mut line = PostLine::new(listed);
    if listed.fullname.is_comment() && listed.title.is_empty() && !listed.text_purged {
        // The body follows.
        "A comment".clone_into(&mut line.title);
    }
    PostPage {
        line,
        fullname: listed.fullname.clone(),
        full_title: is_long.then(|| display::multi_line(&listed.title, BODY)),
        body: display::multi_line(&post.selftext, BODY),
        is_cut: post.selftext.chars().nth(BODY).is_some(),
        on_reddit: post.permalink.as_deref().and_then(display::reddit_url),
        link: web_url.map(|url| LinkView {
            href: url.to_owned(),
            shown: display::single_line(url, TITLE),
        }),
        subreddit_href: filtered("subreddit", &listed.subreddit),
        label_href: outcome.map(|outcome| filtered("outcome", outcome)),
        about_outcome: about_outcome(post),
        verdicts: post.verdicts.iter().map(verdict_view).collect(),
        sightings: sightings.map(sighting_view).collect(),
        more_sightings: post.sightings.len().saturating_sub(ROWS),
        facts: facts(post),
        related: [
            ("crosspost of", &post.crosspost_parent),
            ("comment on", &post.post),
            ("reply to", &post.parent),
        ]
        .into_iter()
        .filter_map(|(what, name)| Some((what, name.clone()?)))
        .collect(),
        same_text: post.same_text.iter().map(PostLine::new).collect(),
    }
}

/// Returns the end of the sentence about the current outcome.
fn about_outcome(post: &PostDetails) -> String {
    let mut verdicts = post.verdicts.iter();
    let is_shown = |verdict: &&Verdict| verdict.is_current && verdict.is_of_this_text;
    let Some(verdict) = verdicts.find(is_shown) else {
        return String::new();
    };
    let first = verdict.scores.first();
    let best = display::single_line(first.map_or(&verdict.best, |first| &first.label_name), 60);
    let score = display::score(verdict.score);
    let margin = display::score(verdict.margin);
    match verdict.outcome {
        LabelOutcome::Other => format!(
            ", with a score of {}. The best label is {best}, with {score}",
            display::score(verdict.score + verdict.margin)
        ),
        LabelOutcome::Unsure => format!(
            ". The best label is {best}, whose score of {score} is below the threshold of {}",
            display::score(verdict.threshold)
        ),
        LabelOutcome::Label => format!(", with a score of {score} and a margin of {margin}"),
    }
}

fn verdict_view(verdict: &Verdict) -> VerdictView {
    let scores = verdict.scores.iter().map(|label| ScoreView {
        words: display::single_line(&label.label_name, 60),
        shown: display::score(label.score),
        percent: percent(label.score),
        is_best: verdict.outcome == LabelOutcome::Label && label.label == verdict.best,
    });
    VerdictView {
        title: format!(
            "{} ({}), {} {}",
            display::single_line(&verdict.label_set, 60),
            verdict.version,
            display::single_line(&verdict.model, 60),
            verdict.precision
        ),
        is_current: verdict.is_current,
        is_old: !verdict.is_of_this_text,
        other: (verdict.outcome == LabelOutcome::Other)
            .then(|| display::score(verdict.score + verdict.margin)),
        when: moment(verdict.classified_at),
        threshold: display::score(verdict.threshold),
        threshold_at: percent(verdict.threshold),
        scores: scores.collect(),
    }
}

fn sighting_view(sighting: &Sighting) -> SightingView {
    let place = match (&sighting.listing, sighting.best_rank) {
        (Some(listing), Some(rank)) => format!("{listing}, best rank {}", rank + 1),
        (Some(listing), None) => listing.clone(),
        (None, _) => "file or archive".to_owned(),
    };
    SightingView {
        day: sighting.day.clone(),
        times: sighting.times_seen,
        topic: display::single_line(&sighting.topic, 40),
        place,
        reddit_score: sighting
            .reddit_score
            .map_or(String::new(), signed_thousands),
    }
}

/// Returns what else is stored about the post, each fact with its name.
fn facts(post: &PostDetails) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("posted", moment(post.listed.created_at)),
        ("first stored", moment(post.collected_at)),
        ("last seen", moment(post.updated_at)),
        ("source", post.source.clone()),
    ];
    let flair = post.flair.clone().filter(|flair| !flair.is_empty());
    let more = [
        ("collected for", post.listed.topic.clone()),
        ("author", post.author.clone()),
        ("flair", flair),
        ("upvotes", post.upvote_ratio.map(display::percent)),
        ("last seen on Reddit", post.checked_at.map(moment)),
        ("removed on Reddit", post.removed_at.map(moment)),
        ("NSFW", post.over_18.then(|| "yes".to_owned())),
    ];
    let more = more.into_iter();
    facts.extend(more.filter_map(|(name, value)| Some((name, display::single_line(&value?, 120)))));
    facts.push(("text hash", post.text_hash.clone()));
    facts
}
