//! The label set: versioned labels, with all the settings that turn logits into a label.

pub mod background;
mod fitted;
pub mod hypothesis;
pub mod label_file;
mod slug;
mod validation;

use std::collections::HashMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

pub use self::background::{Background, BackgroundError, BackgroundTopic};
use self::background::{Words, words};
pub use self::fitted::{FitTarget, Fitted, FittedClass, FittedError, Provenance};
pub use self::slug::slug;
pub use self::validation::LabelSetError;
use crate::model_kind::{ClassifierHead, HeadFunction, ModelKind};
use crate::{hex, to_json};

/// Placeholder for the template of a classifier's label set, which has no hypotheses; unlikely in a pipeline file.
const CLASS_TEMPLATE: &str = "class {}";
/// The end of the name of a label set that `labels calibrate` wrote.
pub const CALIBRATED: &str = "-calibrated";

string_enum! {
    /// Scoring mode: the function that turns logits into scores.
    Mode {
        /// One label per text: softmax of the entailment logits over the labels. Scores sum to 1.
        Single = "single",
        /// Any number of labels per text, each scored independently: softmax of (contradiction, entailment) for an NLI
        /// model, and a sigmoid for other models.
        Multi = "multi",
        /// The logits of a classifier, unchanged, for a regression.
        Raw = "raw",
    }
}

impl From<HeadFunction> for Mode {
    fn from(function: HeadFunction) -> Self {
        match function {
            HeadFunction::Softmax => Self::Single,
            HeadFunction::Sigmoid => Self::Multi,
            HeadFunction::Identity => Self::Raw,
        }
    }
}

/// Number of digits of a hash that messages, tables and exports show.
pub const SHORT_HASH: usize = 12;

/// Returns the start of a hash, as it is shown.
pub fn short_hash(hash: &str) -> &str {
    hash.get(..SHORT_HASH).unwrap_or(hash)
}

/// One label of a label set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Label {
    /// Short name, unique in the set.
    pub slug: String,
    /// Candidate label.
    pub label: String,
    /// Plain-language descriptions, for embedding models; may be empty.
    pub descriptions: Vec<String>,
}

impl Label {
    /// Creates a label whose slug is its text, without descriptions.
    pub fn new(text: &str) -> Self {
        Self {
            slug: text.to_owned(),
            label: text.to_owned(),
            descriptions: Vec::new(),
        }
    }

    /// Returns the texts whose words are compared with the topics' words.
    fn named(&self) -> [&str; 2] {
        [&self.slug, &self.label]
    }
}

/// Versioned labels with all the settings that determine a post's label, given its logits.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelSet {
    /// Display name.
    pub name: String,
    /// Hypothesis template with one `{}`.
    pub template: String,
    /// Scoring mode.
    pub mode: Mode,
    /// Minimum score of the best label; below it, a post gets no label.
    pub threshold: f64,
    /// Divides the logits before they become scores: 1 has no effect, and a higher value makes scores less confident.
    /// It does not change the order of the labels.
    pub temperature: f64,
    /// The labels, in order; never empty.
    pub labels: Vec<Label>,
    /// Topics outside the label set: a text that fits them better than every label is "other".
    pub background: Option<Background>,
    /// Corrections learned from gold labels, applied to the logits before the temperature.
    pub fitted: Option<Fitted>,
}

impl LabelSet {
    /// Creates a label set in mode single, without a threshold, a temperature or a background.
    pub fn new(name: String, template: String, labels: Vec<Label>) -> Self {
        Self {
            name,
            template,
            mode: Mode::Single,
            threshold: 0.0,
            temperature: 1.0,
            labels,
            background: None,
            fitted: None,
        }
    }

    /// Returns true if this label set is a calibrated copy of `original`, which has no fit: its name ends with
    /// [`CALIBRATED`], the original's does not, and only the threshold, the temperature and the background's weight may
    /// differ.
    pub fn is_calibrated_copy_of(&self, original: &Self) -> bool {
        self.name.ends_with(CALIBRATED)
            && !original.name.ends_with(CALIBRATED)
            && self.has_same_logits(original)
    }

    /// Returns true if `other` turns the same model output into the same logits, except for the background's
    /// [prior](Self::prior_for): only the name, the threshold, the temperature and, without a fit, the weight of the
    /// background may differ.
    pub fn has_same_logits(&self, other: &Self) -> bool {
        let hash_of_logits = |set: &Self| {
            let mut set = Self {
                threshold: 0.0,
                temperature: 1.0,
                ..set.clone()
            };
            if let (Some(background), None) = (&mut set.background, &set.fitted) {
                background.weight = 1.0;
            }
            set.hash()
        };
        hash_of_logits(self) == hash_of_logits(other)
    }

    /// Returns the label with this slug.
    pub fn label(&self, slug: &str) -> Option<&Label> {
        self.labels.iter().find(|label| label.slug == slug)
    }

    /// Returns the hypothesis of a label: the template with the label inserted.
    pub fn hypothesis(&self, label: &Label) -> String {
        // Replace only once, because a label may contain `{}`.
        self.template.replacen("{}", &label.label, 1)
    }

    /// Returns a SHA-256 in lower-case hex. It covers the template, the mode, the threshold and the labels, and, if
    /// set, the background, the fit and a temperature other than 1. It does not cover the name.
    pub fn hash(&self) -> String {
        #[expect(
            clippy::float_cmp,
            reason = "exactly 1 is left out, so that label sets without a temperature keep their hash"
        )]
        let temperature = (self.temperature != 1.0).then_some(self.temperature);
        let (template, mode, threshold) = (&self.template, self.mode, self.threshold);
        // Fields that later versions added are left out if unset. Otherwise the hashes of stored label sets would
        // change, and all posts would be labelled again.
        let mut content = match (&self.background, temperature) {
            (Some(background), _) => to_json(&(
                (template, mode, threshold, &self.labels, self.temperature),
                background,
            )),
            (None, None) => to_json(&(template, mode, threshold, &self.labels)),
            (None, Some(temperature)) => {
                to_json(&(template, mode, threshold, &self.labels, temperature))
            }
        };
        if let Some(fitted) = &self.fitted {
            content += &to_json(&fitted.content());
        }
        hex(&Sha256::digest(content.as_bytes()))
    }

    /// Returns the label set of a classifier, with the mode that transformers would use.
    pub fn of_classifier(name: &str, head: &ClassifierHead) -> Self {
        let labels = head.labels.iter().map(|label| Label::new(label));
        let (name, template) = (name.to_owned(), CLASS_TEMPLATE.to_owned());
        Self {
            mode: head.function.into(),
            ..Self::new(name, template, labels.collect())
        }
    }

    /// Returns the index of each label's logit in a classifier; `None` unless the labels are exactly the classifier's,
    /// in any order.
    pub fn classes_of(&self, head: &ClassifierHead) -> Option<Vec<usize>> {
        let names = head.labels.iter().map(String::as_str);
        let mut classes: HashMap<&str, usize> = names.zip(0..).collect();
        let class = |label: &Label| classes.remove(label.label.as_str());
        let indices: Vec<usize> = self.labels.iter().map(class).collect::<Option<_>>()?;
        classes.is_empty().then_some(indices)
    }

    /// Returns the background topics to score with a model of this kind.
    pub fn background_for(&self, kind: &ModelKind) -> Vec<&BackgroundTopic> {
        match &self.background {
            Some(background) if kind.head().is_none() => background.topics_for(kind, &self.words()),
            _ => Vec::new(),
        }
    }

    /// Returns the offset of the background's logit; `None` if there is no background, or none of its topics remains.
    ///
    /// The [folded](crate::score::fold) logit is an average topic's logit. The offset `ln(weight × labels)` gives the
    /// topics the combined weight of `weight × labels` labels, for any number of topics.
    pub fn prior_for(&self, kind: &ModelKind) -> Option<f64> {
        let background = self.background.as_ref()?;
        let labels = self.labels.len().max(1) as f64;
        (!self.background_for(kind).is_empty()).then(|| (background.weight * labels).ln())
    }

    fn words(&self) -> Words {
        words(self.labels.iter().flat_map(Label::named))
    }

    /// Returns the background topics that are left out, each with the slug of the first label with a word in common.
    pub fn omitted_topics(&self) -> Vec<(&str, &str)> {
        let labels: Vec<(&str, Words)> = self
            .labels
            .iter()
            .map(|label| (label.slug.as_str(), words(label.named())))
            .collect();
        self.background
            .iter()
            .flat_map(|background| &background.topics)
            .filter_map(|topic| {
                let (slug, _) = labels
                    .iter()
                    .find(|(_, words)| topic.shares_word_with(words))?;
                Some((topic.label.as_str(), *slug))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(labels: &[&str], template: &str) -> LabelSet {
        let mut set = crate::test_examples::set(labels);
        set.labels
            .iter_mut()
            .for_each(|label| label.descriptions.clear());
        template.clone_into(&mut set.template);
        set
    }

    #[test]
    fn the_hash_covers_what_determines_labels_and_nothing_else() {
        let a = set(&["x", "y"], "About {}.");
        let with = |change: fn(&mut LabelSet)| {
            let mut changed = a.clone();
            change(&mut changed);
            changed
        };
        assert_eq!(a.hash(), with(|set| set.name = "other".into()).hash());
        assert_ne!(a.hash(), with(|set| set.mode = Mode::Multi).hash());
        assert_ne!(a.hash(), set(&["y", "x"], "About {}.").hash());
        assert_ne!(a.hash(), with(|set| set.temperature = 1.5).hash());
        let with_background = with(|set| set.background = Some(crate::test_examples::background()));
        assert_ne!(a.hash(), with_background.hash());
        let mut later = with_background.clone();
        later.background.as_mut().unwrap().version = 2;
        assert_ne!(with_background.hash(), later.hash());
        // Stored labels are keyed by the hash, so it must never change.
        assert_eq!(
            a.hash(),
            "628f74bc667aca4320721d776f55b022ee6a00112ee85e15c2e692cf70aad54e"
        );
    }

    #[test]
    fn a_calibrated_copy_has_the_same_labels() {
        let mut original = set(&["x", "y"], "About {}.");
        original.background = Some(crate::test_examples::background());
        let mut copy = LabelSet {
            name: format!("{}-calibrated", original.name),
            threshold: 0.5,
            temperature: 1.5,
            ..original.clone()
        };
        copy.background.as_mut().unwrap().weight = 2.0;
        assert!(copy.is_calibrated_copy_of(&original));
        assert!(!original.is_calibrated_copy_of(&copy));
        assert!(!copy.is_calibrated_copy_of(&copy));
        copy.labels[0].label = "z".into();
        assert!(!copy.is_calibrated_copy_of(&original));
    }

    #[test]
    fn a_classifier_has_its_own_label_set() {
        let head = ClassifierHead {
            labels: vec!["neg".into(), "pos".into()],
            function: HeadFunction::Sigmoid,
        };
        let own = LabelSet::of_classifier("m", &head);
        assert_eq!((own.mode, own.validate()), (Mode::Multi, Ok(())));
        for other in [
            &["pos"][..],
            &["pos", "neg", "x"],
            &["pos", "x"],
            &["Pos", "neg"],
        ] {
            assert_eq!(set(other, "{}").classes_of(&head), None, "{other:?}");
        }
        let mut raw = LabelSet {
            mode: Mode::Raw,
            ..own
        };
        assert_eq!(raw.validate(), Ok(()));
        raw.threshold = 0.5;
        assert_eq!(raw.validate(), Err(LabelSetError::Raw));
        raw.background = Some(crate::test_examples::background());
        let kind = ModelKind::Classifier(head);
        assert!(raw.background_for(&kind).is_empty() && raw.prior_for(&kind).is_none());
    }

    #[test]
    fn invalid_label_sets_are_rejected_with_the_reason() {
        let fault = |labels: &[&str], template| set(labels, template).validate().unwrap_err();
        assert_eq!(fault(&[], "{}"), LabelSetError::Empty);
        let template = LabelSetError::Template("no braces".into());
        assert_eq!(fault(&["a"], "no braces"), template);
        assert_eq!(fault(&["a", "a"], "{}"), LabelSetError::Twice("a".into()));
        let same = LabelSetError::SameColumn("a-b".into(), "A_b".into());
        assert_eq!(fault(&["a-b", "A_b"], "{}"), same);
        assert_eq!(
            fault(&["Other"], "{}"),
            LabelSetError::Taken("Other".into())
        );
        assert_eq!(fault(&["a", " "], "{}"), LabelSetError::Blank(2));
        for (temperature, good) in [(0.5, true), (0.0, false), (-1.0, false), (f64::NAN, false)] {
            let mut set = set(&["a"], "{}");
            set.temperature = temperature;
            assert_eq!(set.validate().is_ok(), good, "{temperature}");
        }
    }

    #[test]
    fn a_topic_that_shares_a_word_with_a_label_is_left_out() {
        let mut set = set(&["Gaming", "cooking at home", "Olympics"], "{}");
        set.background = Some(crate::test_examples::background());
        assert_eq!(
            set.omitted_topics(),
            [("video games", "Gaming"), ("food", "cooking at home")]
        );
        let kind = crate::test_examples::nli();
        let topics = set.background_for(&kind);
        let topics: Vec<&str> = topics.iter().map(|topic| topic.label.as_str()).collect();
        assert_eq!(topics, ["sports"], "music is not for NLI models");
    }

    #[test]
    fn the_prior_balances_all_topics_and_all_labels() {
        let kind = crate::test_examples::nli();
        let mut set = set(&["a1", "a2", "a3", "a4"], "{}");
        assert_eq!(set.prior_for(&kind), None);
        set.background = Some(crate::test_examples::background());
        assert_eq!(set.prior_for(&kind), Some(2f64.ln()));
        set.labels[0].label = "sports, food, games".into();
        assert_eq!(set.prior_for(&kind), None, "no topic remains");
    }
}
