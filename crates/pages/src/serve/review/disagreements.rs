//! The page that lists posts and comments on which annotators disagree, for all annotators or for a pair.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::notice::{label_words, model_words};
use super::progress::agreement_in_words;
use super::{SHORT_TITLE, Shared, name};
use crate::display;
use crate::serve::pages::{PageError, address, html};
use topicmill_core::Fullname;
use topicmill_review::gold::agreement;
use topicmill_store::{GoldAnswer, StoredGold};

/// Maximum number of posts on the page.
const POSTS: usize = 200;
/// Maximum number of characters in a note.
const NOTE: usize = 300;

/// The page's query parameters.
#[derive(Debug, Deserialize)]
pub struct DisagreementQuery {
    #[serde(rename = "as")]
    who: Option<String>,
    a: Option<String>,
    b: Option<String>,
}

/// An answer, formatted for display.
struct AnswerView {
    who: String,
    label: String,
    note: String,
}

/// A post, formatted for display.
struct DisagreementView {
    fullname: Fullname,
    title: String,
    answers: Vec<AnswerView>,
    model: String,
    /// True if the visitor is one of the annotators.
    is_mine: bool,
}

#[derive(Template)]
#[template(path = "serve/disagreements.html")]
struct DisagreementPage {
    token: String,
    /// URL for the review page.
    back: String,
    who: String,
    pair: Option<[String; 2]>,
    /// The agreement between the pair.
    agreement: Option<String>,
    all: usize,
    posts: Vec<DisagreementView>,
}

/// Renders the page.
pub async fn page(
    State(review): State<Shared>,
    query: Query<DisagreementQuery>,
) -> Result<Response, PageError> {
    let who = review.annotator(query.who.as_deref()).unwrap_or_default();
    let pair = match (name(query.a.as_deref()), name(query.b.as_deref())) {
        (Some(a), Some(b)) if a != b => Some([a, b]),
        _ => None,
    };
    // As on the review page, the agreement is about posts.
    let agreements = agreement(&review.queue.answers_about_posts().await?);
    let of_pair = agreements.iter().find(|agreement| {
        let mut names = pair.iter().flatten();
        pair.is_some() && names.all(|name| agreement.annotators.contains(name))
    });
    let gold = review.queue.store.gold();
    let answers = gold.answers().await?;
    let posts = differing(answers, pair.as_ref());
    let names: Vec<Fullname> = posts.keys().take(POSTS).cloned().collect();
    let current = review.current_labels().await?;
    let labelled = match &current {
        Some(current) => gold.review_posts(current.target, &names).await?,
        None => Vec::new(),
    };
    let labels = current.map_or_else(Vec::new, |current| current.set.labels);
    let view = |(fullname, answers): (Fullname, Vec<GoldAnswer>)| {
        let post = labelled.iter().find(|post| post.fullname == fullname);
        DisagreementView {
            title: post.map_or_else(
                || fullname.to_string(),
                |post| display::single_line(post.title_or_body(), SHORT_TITLE * 2),
            ),
            model: post.map_or_else(String::new, |post| model_words(post, &labels)),
            is_mine: answers.iter().any(|answer| answer.annotator == who),
            answers: answers
                .into_iter()
                .map(|answer| AnswerView {
                    label: label_words(answer.label.as_deref(), &labels),
                    note: display::single_line(answer.note.as_deref().unwrap_or_default(), NOTE),
                    who: answer.annotator,
                })
                .collect(),
            fullname,
        }
    };
    let page = DisagreementPage {
        token: review.token.clone(),
        agreement: of_pair.map(agreement_in_words),
        all: posts.len(),
        posts: posts.into_iter().take(POSTS).map(view).collect(),
        pair,
        back: address("/review", [("as", who.as_str())]),
        who,
    };
    Ok(html(StatusCode::OK, &page))
}

/// Returns the posts with different answers about their present text; with a pair, different answers of these two.
fn differing(
    answers: Vec<StoredGold>,
    pair: Option<&[String; 2]>,
) -> BTreeMap<Fullname, Vec<GoldAnswer>> {
    let mut posts: BTreeMap<Fullname, Vec<GoldAnswer>> = BTreeMap::new();
    for StoredGold { answer, .. } in answers.into_iter().filter(|gold| gold.is_of_present_text) {
        if pair.is_none_or(|pair| pair.contains(&answer.annotator)) {
            let answers = posts.entry(answer.fullname.clone()).or_default();
            answers.push(answer);
        }
    }
    posts.retain(|_, answers| {
        let first = &answers[0].label;
        answers.iter().any(|answer| answer.label != *first)
    });
    posts
}
