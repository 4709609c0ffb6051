//! Background topics: ordinary topics outside the label set, so that a text that belongs to none of the labels is left
//! unlabelled.
//!
//! The input is a background, usually the built-in one; the output is the list of topics to score along with a given
//! label set. The topics' logits are folded into a single logit, "other" ([`fold`](crate::score::fold)). A topic that
//! shares a word with a label would compete with that label, so it is left out. Words decide this rather than a model,
//! so that a label set means the same for every model, and its stored logits can be found without loading a model.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ModelKind;

/// The name of the built-in background in a pipeline file.
pub const REDDIT: &str = "reddit";

/// Topics outside the label set, with their total weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Display name.
    pub name: String,
    /// Version, incremented with each change.
    pub version: u32,
    /// Combined weight of the topics, relative to the combined weight of the labels; at 1, they are equal.
    pub weight: f64,
    /// The topics, in order. A background without topics has no effect.
    #[serde(rename = "topic")]
    pub topics: Vec<BackgroundTopic>,
}

/// One background topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundTopic {
    /// Candidate label.
    pub label: String,
    /// Plain-language descriptions, for embedding models.
    #[serde(default)]
    pub descriptions: Vec<String>,
    /// Synonyms.
    #[serde(default)]
    pub also: Vec<String>,
    /// True if NLI and GLiClass models also score the topic; each topic costs an NLI model one row per text.
    #[serde(default)]
    pub nli: bool,
}

/// Reasons to reject a background.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackgroundError {
    /// The file is not valid TOML, or has unknown or missing keys.
    #[error("{0}")]
    Toml(String),
    /// The name or a topic's label is empty.
    #[error("the name of the background or the label of a topic is empty: fill it in")]
    Blank,
    /// A topic to leave out does not exist.
    #[error("there is no topic `{0}` to leave out; the topics are {1}")]
    NoTopic(String, String),
    /// The weight is not a positive finite number.
    #[error("the weight {0} is not a number above 0")]
    Weight(String),
}

impl Background {
    /// Parses a background file.
    ///
    /// # Errors
    /// See [`BackgroundError`].
    pub fn parse(text: &str) -> Result<Self, BackgroundError> {
        let background: Self =
            toml::from_str(text).map_err(|error| BackgroundError::Toml(error.to_string()))?;
        background.validate()?;
        Ok(background)
    }

    /// Returns the background that a pipeline file names: the built-in one, `None` for "none", or one from a file.
    /// `read_file` returns the text of a file.
    ///
    /// # Errors
    /// Returns a message if there is no such background.
    pub fn named(
        name: &str,
        read_file: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<Option<Self>, String> {
        let with_advice = |why: &str| {
            format!(
                "{why}; use \"reddit\", \"none\", or the path of a file like pipelines/background/reddit.toml"
            )
        };
        let text = match name {
            "none" => return Ok(None),
            REDDIT => return Ok(Some(Self::built_in())),
            path => read_file(path).map_err(|why| with_advice(&why))?,
        };
        if text.trim().is_empty() {
            return Err(with_advice("the file is empty"));
        }
        Self::parse(&text)
            .map(Some)
            .map_err(|error| error.to_string())
    }

    /// Returns the built-in background.
    pub fn built_in() -> Self {
        let text = include_str!("../../../../pipelines/background/reddit.toml");
        Self::parse(text).expect("the built-in background is valid")
    }

    /// Returns the background of labels that come without one: the built-in background for an embedding model, where
    /// it costs nothing. To the other kinds it adds a pair or more tokens per text and topic, and the scores would not
    /// be those of the model's reference pipeline.
    pub fn default_for(kind: &ModelKind) -> Option<Self> {
        matches!(kind, ModelKind::Embedding(_)).then(Self::built_in)
    }

    /// Validates the fields.
    ///
    /// # Errors
    /// Returns [`BackgroundError::Blank`] or [`BackgroundError::Weight`].
    pub fn validate(&self) -> Result<(), BackgroundError> {
        let mut texts = std::iter::once(&self.name).chain(self.topics.iter().map(|t| &t.label));
        if texts.any(|text| text.trim().is_empty()) {
            return Err(BackgroundError::Blank);
        }
        if !(self.weight > 0.0 && self.weight.is_finite()) {
            return Err(BackgroundError::Weight(self.weight.to_string()));
        }
        Ok(())
    }

    /// Removes the topics with these names: topics that a label of the set covers in different words or a different
    /// language, which [`BackgroundTopic::shares_word_with`] cannot detect.
    ///
    /// # Errors
    /// Returns [`BackgroundError::NoTopic`].
    pub fn leave_out(&mut self, topics: &[String]) -> Result<(), BackgroundError> {
        for topic in topics {
            let labels: Vec<&str> = self.topics.iter().map(|known| &*known.label).collect();
            let Some(position) = labels.iter().position(|label| label == topic) else {
                return Err(BackgroundError::NoTopic(topic.clone(), labels.join(", ")));
            };
            self.topics.remove(position);
        }
        Ok(())
    }

    /// Returns the name and version as `name@version`.
    pub fn tag(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// Returns the topics to score with a model of this kind, given the words of the labels.
    pub fn topics_for<'a>(&'a self, kind: &ModelKind, words: &Words) -> Vec<&'a BackgroundTopic> {
        // An NLI model computes a row for each topic, and a GLiClass model reads the topics with the labels, so both
        // score only the marked topics. For an embedding model, topics cost nothing.
        let is_costly = matches!(kind, ModelKind::Nli(_) | ModelKind::Gliclass(_));
        let scored = self.topics.iter().filter(|topic| topic.nli || !is_costly);
        scored
            .filter(|topic| !topic.shares_word_with(words))
            .collect()
    }
}

impl BackgroundTopic {
    /// Returns true if the topic shares one of these words.
    pub fn shares_word_with(&self, words: &Words) -> bool {
        let mut own = std::iter::once(&self.label)
            .chain(&self.also)
            .flat_map(|text| stems(text));
        own.any(|word| words.contains(&word))
    }
}

/// Stemmed, lower-case words of labels, for comparison with topics.
pub type Words = BTreeSet<String>;

/// Returns the stemmed words in these texts.
pub fn words<'a>(texts: impl IntoIterator<Item = &'a str>) -> Words {
    texts.into_iter().flat_map(stems).collect()
}

/// Words that carry no topic.
const STOP_WORDS: &[&str] = &[
    "a", "about", "an", "and", "for", "general", "in", "news", "of", "on", "or", "other", "the",
    "to", "with",
];

/// Suffixes to strip, longest first: *gaming*, *games* and *gamer* have the same stem.
const SUFFIXES: &[&str] = &["ings", "ing", "ers", "er", "ies", "ie", "es", "s", "e", "y"];

/// Returns a text's words in lower case, stemmed and without stop words.
fn stems(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && !STOP_WORDS.contains(word));
    words.map(|word| stem(word).to_owned()).collect()
}

fn stem(word: &str) -> &str {
    SUFFIXES
        .iter()
        .filter_map(|ending| word.strip_suffix(ending))
        // A shorter remainder is not a stem: *king* without *ing* would be *k*.
        .find(|stem| stem.chars().count() >= 3)
        .unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn words_are_compared_by_stem() {
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
    fn an_invalid_background_is_rejected() {
        for (text, message) in table! {
            "name = \"b\"", "missing field";
            "name = \"b\"\nversion = 1\nweight = 0.0\ntopic = []", "not a number above 0";
            "name = \" \"\nversion = 1\nweight = 1.0\ntopic = []", "is empty";
            "name = \"b\"\nversion = 1\nweight = 1.0\nx = 1\ntopic = []", "unknown field";
        } {
            let error = Background::parse(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
