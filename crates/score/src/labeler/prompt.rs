//! The prompt of a GLiClass model: all labels of a set, and the topics of its background.

use super::LabelerError;
use crate::folder::ModelFolder;
use crate::text::{EncodedText, Encoder};
use topicmill_core::model_kind::GliclassHead;
use topicmill_core::{Label, LabelSet};

/// Returns the prompt of a label set for a GLiClass model: the labels, then the topics of the background.
///
/// # Errors
/// [`LabelerError::Reserved`] and [`LabelerError::TooManyLabels`].
pub fn prompt(
    encoder: &Encoder,
    folder: &ModelFolder,
    head: &GliclassHead,
    set: &LabelSet,
) -> Result<EncodedText, LabelerError> {
    let model = || folder.name.clone();
    let topics = set.background_for(&folder.kind).into_iter();
    let words = |label: &Label| (label.slug.clone(), label.label.clone());
    let topics = topics.map(|topic| ("a background topic".to_owned(), topic.label.clone()));
    let labels: Vec<(String, String)> = set.labels.iter().map(words).chain(topics).collect();
    for (label, words) in &labels {
        if let Some(token) = encoder.reserved_token(words) {
            return Err(LabelerError::Reserved {
                label: label.clone(),
                token: token.to_owned(),
                model: model(),
            });
        }
    }
    let encode = |labels: &[(String, String)]| {
        encoder.encode_labels(labels.iter().map(|(_, words)| words.as_str()))
    };
    let most = head.max_labels.unwrap_or(usize::MAX);
    let all = encode(&labels)?;
    let fits = encoder.has_room(&all);
    if fits && labels.len() <= most {
        return Ok(all);
    }
    let (mut first, mut limit) = (most.min(labels.len()), format!("{most} labels"));
    if !fits {
        let window = encoder.max_tokens();
        limit = match encoder.task_tokens() {
            0 => format!("{window} tokens"),
            task => format!("{window} tokens, of which the task prompt takes {task}"),
        };
        // Slow, but only an error message needs the number of labels that fit.
        while first > 0 && !encoder.has_room(&encode(&labels[..first])?) {
            first -= 1;
        }
    }
    Err(LabelerError::TooManyLabels {
        model: model(),
        labels: list(labels[first..].iter().map(|(label, _)| label.as_str())),
        limit,
    })
}

/// Lists the first few names for a message and counts the rest.
fn list<'n>(mut names: impl ExactSizeIterator<Item = &'n str>) -> String {
    const LISTED: usize = 5;
    let shown: Vec<String> = names
        .by_ref()
        .take(LISTED)
        .map(|name| format!("`{name}`"))
        .collect();
    match names.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
