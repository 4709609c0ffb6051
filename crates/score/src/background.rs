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
    /// A topic to be left out that is not there.
    #[error("it has no topic `{0}` to leave out; it has {1}")]
    NoTopic(String, String),
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

    /// Leaves topics out, by their labels: those that a label means in other words, or in another language.
    ///
    /// # Errors
    /// [`BackgroundError::NoTopic`].
    pub fn leave_out(&mut self, topics: &[String]) -> Result<(), BackgroundError> {
        for topic in topics {
            let there = self.topics.iter().position(|one| one.label == *topic);
            let Some(there) = there else {
                let known = self.topics.iter().map(|one| one.label.as_str());
                let known = known.collect::<Vec<_>>().join(", ");
                return Err(BackgroundError::NoTopic(topic.clone(), known));
            };
            self.topics.remove(there);
        }
        Ok(())
    }

    /// Name and version in one word.
    pub fn tag(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// The topics that a kind of model reads beside labels with these words.
    pub fn beside<'a>(&'a self, kind: &ModelKind, words: &Words) -> Vec<&'a BackgroundTopic> {
        // An NLI model computes a row for each topic, so it reads only the few that are marked; vectors cost nothing.
        let nli = matches!(kind, ModelKind::Nli(_));
        let read = self.topics.iter().filter(|topic| !nli || topic.nli);
        read.filter(|topic| !topic.is_in(words)).collect()
    }
}

impl BackgroundTopic {
    /// Whether one of these words is its own.
    pub fn is_in(&self, words: &Words) -> bool {
        let mut own = std::iter::once(&self.label)
            .chain(&self.also)
            .flat_map(|text| stems(text));
        own.any(|word| words.contains(&word))
    }
}

/// Words of labels as they are compared: in lower case, without their endings.
pub type Words = BTreeSet<String>;

/// The words of texts.
pub fn words<'a>(texts: impl IntoIterator<Item = &'a str>) -> Words {
    texts.into_iter().flat_map(stems).collect()
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
    // Fewer letters are no stem: *king* less its *ing* would be *k*.
    let mut long = stems.filter(|stem| stem.chars().count() >= 3);
    long.next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
