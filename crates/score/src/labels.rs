//! What texts are labelled with: a versioned set of labels, and everything that turns logits into one of them.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::background::{Background, BackgroundError, BackgroundTopic, Words, words};
use crate::fitted::{Fitted, FittedError};
use crate::folder::{ClassifierHead, HeadFunction, ModelKind, hex};

/// Stands where other label sets have a hypothesis template: a classifier has none, and no pipeline file has this one by chance.
const CLASS_TEMPLATE: &str = "class {}";

/// How scores over labels are made of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One label a text: softmax of the entailment logits over the labels; scores sum to 1.
    Single,
    /// Any number of labels a text: each label scored by itself, softmax of (contradiction, entailment); of a classifier
    /// the sigmoid of its logit.
    Multi,
    /// A classifier's logits as they are, which are no shares of 1: a regression.
    Raw,
}

impl Mode {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Single, Self::Multi, Self::Raw];

    /// `single`, `multi` or `raw`, the one spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Multi => "multi",
            Self::Raw => "raw",
        }
    }
}

impl From<HeadFunction> for Mode {
    fn from(function: HeadFunction) -> Self {
        match function {
            HeadFunction::Softmax => Self::Single,
            HeadFunction::Sigmoid => Self::Multi,
            HeadFunction::None => Self::Raw,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that names no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of single, multi, raw")]
pub struct ModeError(String);

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        let mut modes = Self::ALL.iter().copied();
        modes
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| ModeError(text.to_owned()))
    }
}

/// One label of a label set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Label {
    /// Short name, unique in its set.
    pub slug: String,
    /// Candidate label.
    pub label: String,
    /// Plain descriptions, for embedding models; may be empty.
    pub descriptions: Vec<String>,
}

/// A versioned set of labels with everything that decides a post's label, given its logits.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelSet {
    /// Where it comes from, for people.
    pub name: String,
    /// Hypothesis template with one `{}`.
    pub template: String,
    /// How scores are made of logits.
    pub mode: Mode,
    /// Below this score of the best label the post is given none.
    pub threshold: f64,
    /// What logits are divided by before they become scores: 1 leaves them as the model gave them, more makes
    /// scores less sure, and the order of the labels stays.
    pub temperature: f64,
    /// In order; never empty.
    pub labels: Vec<Label>,
    /// Topics that are none of the labels: a text that fits them better than every label is "other".
    pub background: Option<Background>,
    /// What was learned from gold labels. Scores are then made of the corrected logits, and the temperature divides those.
    pub fitted: Option<Fitted>,
}

/// Why a label set cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelSetError {
    /// No labels.
    #[error("the label set has no labels: give at least one")]
    Empty,
    /// The template does not say where the label goes.
    #[error("the hypothesis template `{0}` needs exactly one `{{}}`, where the label goes")]
    Template(String),
    /// A label without a word.
    #[error("label {0} is empty: give it a text")]
    Blank(usize),
    /// Two labels of one name.
    #[error("label `{0}` is there twice: remove one")]
    Twice(String),
    /// With a background the word says what becomes of a text that gets no label.
    #[error(
        "label `{0}`: with a background, this word stands for posts without a label; use another slug"
    )]
    Taken(String),
    /// A threshold that no score can meet.
    #[error("the threshold {0} is not between 0 and 1")]
    Threshold(String),
    /// A threshold or a temperature for scores that are no shares of 1.
    #[error(
        "in mode raw the scores are the logits: a threshold is 0 and a temperature 1 there; take them out"
    )]
    Raw,
    /// A temperature that gives no scores.
    #[error("the temperature {0} is no number above 0")]
    Temperature(String),
    /// A background that cannot be used.
    #[error("the background: {0}")]
    Background(#[from] BackgroundError),
    /// A fit that cannot be used.
    #[error(transparent)]
    Fitted(#[from] FittedError),
}

impl LabelSet {
    /// Checks what the fields alone can tell.
    ///
    /// # Errors
    /// The first of [`Self::faults`].
    pub fn validate(&self) -> Result<(), LabelSetError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// Everything that is wrong with it, as far as the fields alone can tell.
    pub fn faults(&self) -> Vec<LabelSetError> {
        let mut faults = Vec::new();
        if self.labels.is_empty() {
            faults.push(LabelSetError::Empty);
        }
        if self.template.matches("{}").count() != 1 {
            faults.push(LabelSetError::Template(self.template.clone()));
        }
        if !(0.0..=1.0).contains(&self.threshold) {
            faults.push(LabelSetError::Threshold(self.threshold.to_string()));
        }
        #[expect(clippy::float_cmp, reason = "0 and 1 are what is written")]
        if self.mode == Mode::Raw && (self.threshold != 0.0 || self.temperature != 1.0) {
            faults.push(LabelSetError::Raw);
        }
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            faults.push(LabelSetError::Temperature(self.temperature.to_string()));
        }
        if let Some(Err(error)) = self.background.as_ref().map(Background::validate) {
            faults.push(LabelSetError::Background(error));
        }
        if let Some(Err(error)) = self
            .fitted
            .as_ref()
            .map(|fitted| fitted.validate(self.labels.len()))
        {
            faults.push(LabelSetError::Fitted(error));
        }
        let mut seen = std::collections::HashSet::new();
        for (i, label) in self.labels.iter().enumerate() {
            if label.label.trim().is_empty() || label.slug.trim().is_empty() {
                faults.push(LabelSetError::Blank(i + 1));
            } else if !seen.insert(label.slug.as_str()) {
                faults.push(LabelSetError::Twice(label.slug.clone()));
            }
            let taken = ["other", "unsure"].contains(&label.slug.as_str());
            if taken && self.background.is_some() {
                faults.push(LabelSetError::Taken(label.slug.clone()));
            }
        }
        faults
    }

    /// The hypothesis of a label: the template with the candidate label in it.
    pub fn hypothesis(&self, label: &Label) -> String {
        // Once, because a label may hold `{}` itself.
        self.template.replacen("{}", &label.label, 1)
    }

    /// SHA-256 over what matters: template, mode, threshold and labels, the temperature where it is not 1, the background
    /// and the fit where there is one; not the name. Lower-case hex.
    pub fn hash(&self) -> String {
        #[expect(
            clippy::float_cmp,
            reason = "1 is written as 1, and keeps the hash that sets had before they had a temperature"
        )]
        let temperature = (self.temperature != 1.0).then_some(self.temperature);
        let (template, mode, threshold) = (&self.template, self.mode, self.threshold);
        // Each form is the one that was hashed before the next field came. Another form would give stored label sets
        // new hashes, and every post would be labelled again.
        let content = match (&self.background, temperature) {
            (Some(background), _) => serde_json::to_string(&(
                (template, mode, threshold, &self.labels, self.temperature),
                background,
            )),
            (None, None) => serde_json::to_string(&(template, mode, threshold, &self.labels)),
            (None, Some(temperature)) => {
                serde_json::to_string(&(template, mode, threshold, &self.labels, temperature))
            }
        };
        let mut content = content.expect("strings and numbers can be written as JSON");
        if let Some(fitted) = &self.fitted {
            content += &serde_json::to_string(&fitted.content())
                .expect("strings and numbers can be written as JSON");
        }
        hex(&Sha256::digest(content.as_bytes()))
    }
}

impl LabelSet {
    /// The labels that a classifier was trained on, scored by the function that transformers would apply.
    pub fn of_classifier(name: &str, head: &ClassifierHead) -> Self {
        let label = |label: &String| Label {
            slug: label.clone(),
            label: label.clone(),
            descriptions: Vec::new(),
        };
        Self {
            name: name.to_owned(),
            template: CLASS_TEMPLATE.to_owned(),
            mode: head.function.into(),
            threshold: 0.0,
            temperature: 1.0,
            labels: head.labels.iter().map(label).collect(),
            background: None,
            fitted: None,
        }
    }

    /// For each of its labels the logit of a classifier that it is read from; `None` unless its labels are the
    /// classifier's, in whatever order.
    pub fn classes_of(&self, head: &ClassifierHead) -> Option<Vec<usize>> {
        let mut classes: HashMap<&str, usize> = head
            .labels
            .iter()
            .enumerate()
            .map(|(class, label)| (label.as_str(), class))
            .collect();
        let found: Option<Vec<usize>> = self
            .labels
            .iter()
            .map(|label| classes.remove(label.label.as_str()))
            .collect();
        found.filter(|_| classes.is_empty())
    }

    /// The topics of its background, if any, that a model is asked about.
    pub fn background_for(&self, kind: &ModelKind) -> Vec<&BackgroundTopic> {
        let compares = kind.head().is_none();
        let background = self.background.as_ref().filter(|_| compares);
        background.map_or_else(Vec::new, |some| some.topics_for(kind, &self.words()))
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
        let left = !self.background_for(kind).is_empty();
        // `fold` gives the mean of the topics' odds. Times the number of labels, it weighs as much as all of them
        // together.
        left.then(|| (background.weight * labels).ln())
    }

    fn words(&self) -> Words {
        words(self.labels.iter().flat_map(Label::named))
    }

    /// The topics of its background that are left out, each with the slug of the first label that it shares a word with.
    pub fn left_out(&self) -> Vec<(&str, &str)> {
        let of_label: Vec<Words> = self.labels.iter().map(|one| words(one.named())).collect();
        let topics = self.background.iter().flat_map(|some| &some.topics);
        topics
            .filter_map(|topic| {
                let label = of_label
                    .iter()
                    .position(|words| topic.shares_word_with(words))?;
                Some((topic.label.as_str(), self.labels[label].slug.as_str()))
            })
            .collect()
    }
}

impl Label {
    /// What it is called.
    fn named(&self) -> [&str; 2] {
        [&self.slug, &self.label]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(labels: &[&str], template: &str) -> LabelSet {
        let mut set = crate::scripted::set(labels);
        set.labels
            .iter_mut()
            .for_each(|label| label.descriptions.clear());
        template.clone_into(&mut set.template);
        set
    }

    #[test]
    fn the_hash_of_a_label_set_follows_what_matters_and_nothing_else() {
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
        let beside = with(|set| set.background = Some(crate::scripted::background()));
        assert_ne!(a.hash(), beside.hash());
        let mut later = beside.clone();
        later.background.as_mut().unwrap().version = 2;
        assert_ne!(beside.hash(), later.hash());
        // Stored labels are found by it: it must not change by accident.
        assert_eq!(
            a.hash(),
            "628f74bc667aca4320721d776f55b022ee6a00112ee85e15c2e692cf70aad54e"
        );
    }

    #[test]
    fn a_classifier_has_a_label_set_of_its_own() {
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
        raw.background = Some(crate::scripted::background());
        let kind = ModelKind::Classifier(head);
        assert!(raw.background_for(&kind).is_empty() && raw.prior_for(&kind).is_none());
    }

    #[test]
    fn bad_label_sets_say_what_is_wrong() {
        let fault = |labels: &[&str], template| set(labels, template).validate().unwrap_err();
        assert_eq!(fault(&[], "{}"), LabelSetError::Empty);
        let template = LabelSetError::Template("no braces".into());
        assert_eq!(fault(&["a"], "no braces"), template);
        assert_eq!(fault(&["a", "a"], "{}"), LabelSetError::Twice("a".into()));
        assert_eq!(fault(&["a", " "], "{}"), LabelSetError::Blank(2));
        for (temperature, good) in [(0.5, true), (0.0, false), (-1.0, false), (f64::NAN, false)] {
            let mut set = set(&["a"], "{}");
            set.temperature = temperature;
            assert_eq!(set.validate().is_ok(), good, "{temperature}");
        }
    }

    #[test]
    fn a_topic_that_shares_a_word_with_a_label_is_left_out_and_named() {
        let mut set = set(&["Gaming", "cooking at home", "Olympics"], "{}");
        set.background = Some(crate::scripted::background());
        assert_eq!(
            set.left_out(),
            [("video games", "Gaming"), ("food", "cooking at home")]
        );
        let kind = crate::scripted::nli_folder().kind;
        let beside = set.background_for(&kind);
        let beside: Vec<&str> = beside.iter().map(|topic| topic.label.as_str()).collect();
        assert_eq!(beside, ["sports"], "music is not for NLI models");
    }

    #[test]
    fn the_prior_weighs_all_topics_against_all_labels() {
        let kind = crate::scripted::nli_folder().kind;
        let mut set = set(&["a1", "a2", "a3", "a4"], "{}");
        assert_eq!(set.prior_for(&kind), None);
        set.background = Some(crate::scripted::background());
        assert_eq!(set.prior_for(&kind), Some(2f64.ln()));
        set.labels[0].label = "sports, food, games".into();
        assert_eq!(set.prior_for(&kind), None, "nothing is left");
    }
}
