//! Selects the posts of a list by outcome, topic, subreddit, time and words.

use sqlx::QueryBuilder;

use crate::Target;
use crate::browse::{OutcomeFilter, PostFilter, PostOrder};
use crate::dialect::Dialect;

/// Pushes the SELECT of a list's fullnames, without its order.
pub(super) fn push_filter<DB: Dialect>(
    select: &mut QueryBuilder<DB>,
    target: Option<Target>,
    filter: &PostFilter,
) {
    let Target { model, label_set } = target.unwrap_or(Target::NONE);
    let of_target = format!(
        "c.model_id = {model} AND c.label_set_id = {label_set} AND c.fullname = p.fullname AND c.text_hash = p.text_hash"
    );
    let has_label = match &filter.outcome {
        Some(OutcomeFilter::Label(_) | OutcomeFilter::Other | OutcomeFilter::Unsure) => true,
        _ => matches!(filter.order, PostOrder::Score(_)),
    };
    // Reading labels first is fast for few matches; reading posts in order of time is fast for many.
    if has_label {
        select.push("SELECT p.fullname FROM classifications c CROSS JOIN things p WHERE ");
        select.push(&of_target).push(" AND ");
    } else {
        select.push("SELECT p.fullname FROM things p WHERE ");
    }
    select.push(format!("p.kind = '{}'", filter.kind));
    push_outcome(select, filter.outcome.as_ref(), has_label, &of_target);
    if let Some(topic) = &filter.topic {
        select.push(" AND p.topic = ").push_bind(topic.clone());
    }
    if let Some(subreddit) = &filter.subreddit {
        let name = subreddit.to_ascii_lowercase();
        select.push(" AND lower(p.subreddit) = ").push_bind(name);
    }
    if let Some(since) = filter.since {
        select.push(" AND p.created_at >= ").push_bind(since);
    }
    if let Some(until) = filter.until {
        select.push(" AND p.created_at < ").push_bind(until);
    }
    for word in &filter.words {
        push_word(select, word);
    }
    match &filter.order {
        PostOrder::Newest(Some((time, name))) => {
            select.push(" AND (p.created_at, p.fullname) < (");
            select.push_bind(*time).push(", ");
            select.push_bind(name.to_string()).push(")");
        }
        PostOrder::Score(Some((score, name))) => {
            select.push(" AND (c.score, c.fullname) < (");
            select.push_bind(*score).push(", ");
            select.push_bind(name.to_string()).push(")");
        }
        PostOrder::Newest(None) | PostOrder::Score(None) => {}
    }
}

/// Pushes the condition for an outcome. With `has_label`, the posts are already joined with their labels.
fn push_outcome<DB: Dialect>(
    select: &mut QueryBuilder<DB>,
    outcome: Option<&OutcomeFilter>,
    has_label: bool,
    of_target: &str,
) {
    match outcome {
        None => &mut *select,
        Some(OutcomeFilter::Label(slug)) => select
            .push(" AND NOT c.abstained AND c.label = ")
            .push_bind(slug.clone()),
        Some(OutcomeFilter::Other) => select.push(" AND c.other"),
        Some(OutcomeFilter::Unsure) => select.push(" AND c.abstained AND NOT c.other"),
        Some(OutcomeFilter::Labelled) if has_label => select.push(" AND NOT c.abstained"),
        Some(OutcomeFilter::Labelled) => select.push(format!(
            " AND EXISTS (SELECT 1 FROM classifications c WHERE {of_target} AND NOT c.abstained)"
        )),
        Some(OutcomeFilter::Unlabelled) => select.push(format!(
            " AND NOT EXISTS (SELECT 1 FROM classifications c WHERE {of_target})"
        )),
    };
}

/// Pushes the condition that a post contains a word.
fn push_word<DB: Dialect>(select: &mut QueryBuilder<DB>, word: &str) {
    let mut either = " AND (";
    for form in forms(word) {
        select.push(either).push(DB::SEARCHED).push(" LIKE ");
        select.push_bind(like_pattern(&form)).push(" ESCAPE '~'");
        either = " OR ";
    }
    select.push(")");
}

/// Returns the forms of a word to search for. Databases ignore the case of ASCII letters only.
fn forms(word: &str) -> Vec<String> {
    if word.is_ascii() {
        return vec![word.to_owned()];
    }
    let mut letters = word.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let capital = first.chain(letters.flat_map(char::to_lowercase)).collect();
    vec![
        word.to_owned(),
        word.to_lowercase(),
        word.to_uppercase(),
        capital,
    ]
}

/// Returns a LIKE pattern for texts that contain a string, in upper or lower case.
fn like_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | '~') {
            pattern.push('~');
        }
        pattern.push(c.to_ascii_lowercase());
    }
    pattern + "%"
}
