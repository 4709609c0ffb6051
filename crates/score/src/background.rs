//! Ordinary topics that texts are compared with beside the labels of a label set, so that a text that belongs to none
//! of the labels need not get one.
//!
//! In goes a background, most often the one that topicmill ships; out come the topics that stand beside a given label
//! set. What a model says of all of them becomes one number, "other" ([`fold`](crate::score::fold)). A topic that is
//! also one of the labels would take the label's own texts away, so it is left out. That is decided by words and not by a
//! model: the same label set then means the same under every model, and its stored logits are found without one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::folder::ModelKind;
use crate::labels::{Label, LabelSet};

/// Topics that are nobody's label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// For people.
    pub name: String,
    /// Grows with each change.
    pub version: u32,
    /// What all topics together weigh against all labels together: 1 is as much.
    pub weight: f64,
    /// In order; a background without any changes nothing.
    #[serde(rename = "topic")]
    pub topics: Vec<BackgroundTopic>,
}

/// One of its topics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundTopic {
    /// Candidate label.
    pub label: String,
    /// Plain descriptions, for embedding models.
    #[serde(default)]
    pub descriptions: Vec<String>,
    /// Other words for it.
    #[serde(default)]
    pub also: Vec<String>,
    /// Whether NLI models read it, too: each topic costs them a row a text.
    #[serde(default)]
    pub nli: bool,
}

/// Why a background cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackgroundError {
    /// It is no TOML, or has unknown or missing keys.
    #[error("{0}")]
    Toml(String),
    /// A name or a topic without a word.
    #[error("its name, or a topic's label, is empty: give it a text")]
    Blank,
    /// A weight that weighs nothing.
    #[error("its weight {0} is no number above 0")]
    Weight(String),
}

impl Background {
    /// Reads a background's file.
    ///
    /// # Errors
    /// See [`BackgroundError`].
    pub fn parse(text: &str) -> Result<Self, BackgroundError> {
        let background: Self =
            toml::from_str(text).map_err(|error| BackgroundError::Toml(error.to_string()))?;
        background.validate()?;
        Ok(background)
    }

    /// Checks what the fields alone can tell.
    ///
    /// # Errors
    /// [`BackgroundError::Blank`] and [`BackgroundError::Weight`].
    pub fn validate(&self) -> Result<(), BackgroundError> {
        let mut texts = self.topics.iter().map(|topic| &topic.label);
        if self.name.trim().is_empty() || texts.any(|text| text.trim().is_empty()) {
            return Err(BackgroundError::Blank);
        }
        if !(self.weight > 0.0 && self.weight.is_finite()) {
            return Err(BackgroundError::Weight(self.weight.to_string()));
        }
        Ok(())
    }

    /// Name and version in one word.
    pub fn tag(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// The topics that stand beside labels, for a kind of model.
    pub fn beside<'a>(&'a self, labels: &[Label], kind: &ModelKind) -> Vec<&'a BackgroundTopic> {
        let taken = words_of(labels);
        let topics = self.read_by(kind);
        topics.filter(|topic| !topic.is_in(&taken)).collect()
    }

    /// The topics that a kind of model reads.
    fn read_by(&self, kind: &ModelKind) -> impl Iterator<Item = &BackgroundTopic> {
        let nli = matches!(kind, ModelKind::Nli(_));
        self.topics.iter().filter(move |topic| !nli || topic.nli)
    }

    /// The topics that are left out, each with the slug of the first label that it shares a word with.
    pub fn left_out<'a>(&'a self, labels: &'a [Label]) -> Vec<(&'a str, &'a str)> {
        let of_label: Vec<_> = labels.iter().map(|label| words_of([label])).collect();
        let topics = self.topics.iter();
        topics
            .filter_map(|topic| {
                let label = of_label.iter().position(|words| topic.is_in(words))?;
                Some((topic.label.as_str(), labels[label].slug.as_str()))
            })
            .collect()
    }
}

impl BackgroundTopic {
    /// Whether one of these words is its own.
    fn is_in(&self, words: &BTreeSet<String>) -> bool {
        let mut own = std::iter::once(&self.label)
            .chain(&self.also)
            .flat_map(|text| stems(text));
        own.any(|word| words.contains(&word))
    }

    /// As a label of a set, to be compared like one.
    pub fn as_label(&self) -> Label {
        Label {
            slug: self.label.clone(),
            label: self.label.clone(),
            descriptions: self.descriptions.clone(),
        }
    }
}

impl LabelSet {
    /// The topics of its background, if any, that a model is asked about.
    pub fn background_for(&self, kind: &ModelKind) -> Vec<&BackgroundTopic> {
        let background = self.background.as_ref();
        background.map_or_else(Vec::new, |some| some.beside(&self.labels, kind))
    }

    /// What is added to the background's logit before it stands beside the labels'; `None` without a background, or with
    /// one of which nothing is left.
    ///
    /// The folded logit is that of an average topic. With `ln(weight × labels)` all of them weigh as much as
    /// `weight × labels` labels, however many topics there are.
    pub fn prior_for(&self, kind: &ModelKind) -> Option<f64> {
        let background = self.background.as_ref()?;
        #[expect(clippy::cast_precision_loss, reason = "a number of labels")]
        let labels = self.labels.len().max(1) as f64;
        let left = !background.beside(&self.labels, kind).is_empty();
        left.then(|| (background.weight * labels).ln())
    }
}

fn words_of<'a>(labels: impl IntoIterator<Item = &'a Label>) -> BTreeSet<String> {
    let texts = labels
        .into_iter()
        .flat_map(|label| [&label.slug, &label.label]);
    texts.flat_map(|text| stems(text)).collect()
}

/// Words that say nothing about what a text is about.
const LITTLE: &[&str] = &[
    "a", "about", "an", "and", "for", "general", "in", "news", "of", "on", "or", "other", "the",
    "to", "with",
];

/// Endings that are taken off, the longest first: *gaming*, *games* and *gamer* are one word.
const ENDINGS: &[&str] = &["ings", "ing", "ers", "er", "ies", "ie", "es", "s", "e", "y"];

/// The words of a text, in lower case and without their endings.
fn stems(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && !LITTLE.contains(word));
    words.map(|word| stem(word).to_owned()).collect()
}

fn stem(word: &str) -> &str {
    let stems = ENDINGS
        .iter()
        .filter_map(|ending| word.strip_suffix(ending));
    let mut long = stems.filter(|stem| stem.chars().count() >= 3);
    long.next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{background, nli_folder, set};

    #[test]
    fn a_topic_that_shares_a_word_with_a_label_is_left_out_and_named() {
        let background = background();
        let labels = set(&["Gaming", "cooking at home", "Olympics"]).labels;
        assert_eq!(
            background.left_out(&labels),
            [("video games", "Gaming"), ("food", "cooking at home")]
        );
        let kind = nli_folder().kind;
        let beside = background.beside(&labels, &kind);
        let beside: Vec<&str> = beside.iter().map(|topic| topic.label.as_str()).collect();
        assert_eq!(beside, ["sports"], "music is not for NLI models");
    }

    #[test]
    fn words_are_compared_without_their_endings() {
        for (a, b) in [
            ("gaming", "Games"),
            ("movie", "MOVIES"),
            ("baker", "baking"),
            ("hobby", "hobbies"),
        ] {
            assert_eq!(stems(a), stems(b));
        }
        for (a, b) in [("cars", "cats"), ("art", "arms"), ("tv", "tvs shows")] {
            assert_ne!(stems(a), stems(b));
        }
        assert!(stems("the news of").is_empty());
    }

    #[test]
    fn a_background_without_what_it_needs_is_refused() {
        for (text, said) in [
            ("name = \"b\"", "missing field"),
            (
                "name = \"b\"\nversion = 1\nweight = 0.0\ntopic = []",
                "no number above 0",
            ),
            (
                "name = \" \"\nversion = 1\nweight = 1.0\ntopic = []",
                "is empty",
            ),
            (
                "name = \"b\"\nversion = 1\nweight = 1.0\nx = 1\ntopic = []",
                "unknown field",
            ),
        ] {
            let error = Background::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn the_prior_weighs_all_topics_against_all_labels() {
        let kind = nli_folder().kind;
        let mut set = set(&["a1", "a2", "a3", "a4"]);
        assert_eq!(set.prior_for(&kind), None);
        set.background = Some(background());
        assert_eq!(set.prior_for(&kind), Some(2f64.ln()));
        set.labels[0].label = "sports, food, games".into();
        assert_eq!(set.prior_for(&kind), None, "nothing is left");
    }
}
