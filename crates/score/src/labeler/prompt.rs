//! The prompt of a GLiClass model: all labels of a set, and the topics of its background.

use super::{LabelerError, name_of};
use crate::folder::ModelFolder;
use crate::text::{EncodedText, Encoder};
use topicmill_core::model_kind::GliclassHead;
use topicmill_core::{LabelSet, first_few};

/// Maximum number of labels to list in a message.
const LISTED: usize = 5;

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
    let topics = set.background_for(&folder.kind);
    let labels = set.labels.iter().map(|label| label.label.as_str());
    let words: Vec<&str> = labels
        .chain(topics.iter().map(|topic| topic.label.as_str()))
        .collect();
    let names: Vec<&str> = (0..words.len()).map(|place| name_of(set, place)).collect();
    for (name, words) in names.iter().zip(&words) {
        if let Some(token) = encoder.reserved_token(words) {
            return Err(LabelerError::Reserved {
                label: (*name).to_owned(),
                token: token.to_owned(),
                model: model(),
            });
        }
    }
    let encode = |words: &[&str]| encoder.encode_labels(words.iter().copied());
    let most = head.max_labels.unwrap_or(usize::MAX);
    let prompt = encode(&words)?;
    let fits = encoder.has_room(&prompt);
    if fits && words.len() <= most {
        return Ok(prompt);
    }
    let (fitting, limit) = if fits {
        (most, format!("{most} labels"))
    } else {
        let mut fitting = most.min(words.len());
        // Slow, but only an error message needs the number of labels that fit.
        while fitting > 0 && !encoder.has_room(&encode(&words[..fitting])?) {
            fitting -= 1;
        }
        let window = encoder.max_tokens();
        let limit = match encoder.task_tokens() {
            0 => format!("{window} tokens"),
            task => format!("{window} tokens, of which the task prompt takes {task}"),
        };
        (fitting, limit)
    };
    Err(LabelerError::TooManyLabels {
        model: model(),
        labels: first_few(&names[fitting..], LISTED),
        limit,
    })
}
