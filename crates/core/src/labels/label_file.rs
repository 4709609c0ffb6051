//! The label set in a pipeline file: everything that determines a label, in one TOML file.
//!
//! Input and output are the text of a file. [`write`] writes a label set with its background and fit, so that the file
//! alone reproduces the label set, with the same hash, on any machine. [`read`] stops at the first error.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::{
    Background, Fitted, FittedClass, Label, LabelSet, LabelSetError, Mode, Provenance, slug,
};

/// Template for a label set that does not set one.
pub const DEFAULT_TEMPLATE: &str = "This text is about {}.";

/// Reasons why a file contains no valid label set.
#[derive(Debug, thiserror::Error)]
pub enum LabelFileError {
    /// The file is not TOML, or contains an unknown key or a value of the wrong type.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// The file contains both `labels` and `[[topic]]`.
    #[error(
        "`labels` and [[topic]] cannot be combined: write each label as a [[topic]], or remove the topics"
    )]
    Both,
    /// No slug can be derived from a label.
    #[error("no slug can be made from the label `{0}`: write it as a [[topic]] with a `slug`")]
    NoSlug(String),
    /// The name is empty.
    #[error("`name` is empty: give the label set a name, or leave the key out")]
    NoName,
    /// The background cannot be read.
    #[error("the background: {0}")]
    Background(String),
    /// The label set is invalid.
    #[error(transparent)]
    LabelSet(#[from] LabelSetError),
    /// The fit belongs to different labels.
    #[error(transparent)]
    Fit(#[from] FitSectionError),
}

/// Reasons why a fit does not belong to the labels of its file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FitSectionError {
    /// The labels have changed since the fit.
    #[error(
        "the labels, descriptions, template, mode or background have changed since the fit: undo the change, or remove \
         the section [fitted] and fit again"
    )]
    Changed,
    /// The correction at this position belongs to a different label.
    #[error("[[fitted.label]] {0} is for `{1}`, but label {0} of the file is `{2}`")]
    Label(usize, String, String),
}

/// A pipeline file, with the keys that determine labels.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    #[serde(default = "default_template")]
    hypothesis_template: String,
    #[serde(default = "single")]
    mode: Mode,
    #[serde(default)]
    threshold: f64,
    #[serde(default = "one")]
    temperature: f64,
    background: Option<NamedBackground>,
    #[serde(default, skip_serializing)]
    background_without: OneOrMore,
    #[serde(skip_serializing)]
    background_weight: Option<f64>,
    #[serde(default, skip_serializing)]
    labels: Vec<String>,
    #[serde(default)]
    topic: Vec<Topic>,
    fitted: Option<FitSection>,
    #[serde(default, rename = "schedule", skip_serializing)]
    _schedule: IgnoredAny,
}

/// A label. The ignored keys only configure collection.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Topic {
    slug: Option<String>,
    label: String,
    #[serde(default)]
    descriptions: OneOrMore,
    #[serde(default, rename = "subreddits", skip_serializing)]
    _subreddits: IgnoredAny,
    #[serde(default, rename = "match", skip_serializing)]
    _match: IgnoredAny,
    #[serde(default, rename = "read", skip_serializing)]
    _read: IgnoredAny,
    #[serde(default, rename = "share", skip_serializing)]
    _share: IgnoredAny,
    #[serde(default, rename = "listing", skip_serializing)]
    _listing: IgnoredAny,
    #[serde(default, rename = "limit", skip_serializing)]
    _limit: IgnoredAny,
    #[serde(default, rename = "comments", skip_serializing)]
    _comments: IgnoredAny,
}

/// A background: its name or path, or its topics.
#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "`background` is neither a name in quotes nor a section with `name`, `version`, `weight` and topics"
)]
enum NamedBackground {
    Named(String),
    Topics(Background),
}

/// A list of strings, or one string.
#[derive(Debug, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a list of strings, as in [\"one\", \"two\"]"
)]
pub enum OneOrMore {
    /// One string.
    One(String),
    /// A list.
    More(Vec<String>),
}

/// The `[fitted]` section of a pipeline file: a fit, with the slugs of its labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FitSection {
    /// Hash of the label set that the fit is for.
    base: String,
    /// Hash of the model's manifest.
    model: String,
    /// Hash of the fields that determine zero-shot logits, to detect changes since the fit.
    words: String,
    none_below: Option<f64>,
    provenance: Provenance,
    none: Option<FittedClass>,
    label: Vec<FittedLabel>,
}

/// The correction of a label; see [`FittedClass`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FittedLabel {
    slug: String,
    scale: f64,
    bias: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    weights: Vec<f32>,
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

impl From<OneOrMore> for Vec<String> {
    fn from(texts: OneOrMore) -> Self {
        match texts {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        }
    }
}

fn default_template() -> String {
    DEFAULT_TEMPLATE.to_owned()
}

fn single() -> Mode {
    Mode::Single
}

fn one() -> f64 {
    1.0
}

/// Writes a label set as a pipeline file that depends on no other file.
pub fn write(set: &LabelSet) -> String {
    let topic = |label: &Label| Topic {
        slug: Some(label.slug.clone()),
        label: label.label.clone(),
        descriptions: OneOrMore::More(label.descriptions.clone()),
        ..Topic::default()
    };
    let fitted = set.fitted.as_ref();
    let file = File {
        name: Some(set.name.clone()),
        hypothesis_template: set.template.clone(),
        mode: set.mode,
        threshold: set.threshold,
        temperature: set.temperature,
        background: set.background.clone().map(NamedBackground::Topics),
        background_without: OneOrMore::default(),
        background_weight: None,
        labels: Vec::new(),
        topic: set.labels.iter().map(topic).collect(),
        fitted: fitted.map(|fitted| FitSection::new(fitted, set)),
        _schedule: IgnoredAny,
    };
    toml::to_string(&file).expect("strings and numbers can be written as TOML")
}

/// Reads the label set in a pipeline file. `name` is used if the file sets no name. `read_file` receives the path of a
/// background file, as written in the pipeline file, and returns the file's text or the reason why it cannot be read.
///
/// # Errors
/// See [`LabelFileError`].
pub fn read(
    text: &str,
    name: &str,
    read_file: impl FnOnce(&str) -> Result<String, String>,
) -> Result<LabelSet, LabelFileError> {
    let file: File = toml::from_str(text)?;
    let labels: Result<Vec<Label>, _> = match (file.labels, file.topic) {
        (labels, topics) if labels.is_empty() => topics.into_iter().map(label).collect(),
        (labels, topics) if topics.is_empty() => labels.into_iter().map(short_label).collect(),
        _ => return Err(LabelFileError::Both),
    };
    if let Some(name) = &file.name
        && name.trim().is_empty()
    {
        return Err(LabelFileError::NoName);
    }
    let without: Vec<String> = file.background_without.into();
    let weight = file.background_weight;
    let mut set = LabelSet {
        name: file.name.unwrap_or_else(|| name.to_owned()),
        template: file.hypothesis_template,
        mode: file.mode,
        threshold: file.threshold,
        temperature: file.temperature,
        labels: labels?,
        background: read_background(file.background, &without, weight, read_file)?,
        fitted: None,
    };
    set.validate()?;
    if let Some(section) = file.fitted {
        set.fitted = Some(section.into_fitted(&set)?);
    }
    Ok(set)
}

/// Returns the background of a file, without the topics of `background_without` and with the weight of
/// `background_weight`.
fn read_background(
    background: Option<NamedBackground>,
    without: &[String],
    weight: Option<f64>,
    read_file: impl FnOnce(&str) -> Result<String, String>,
) -> Result<Option<Background>, LabelFileError> {
    let background = match background {
        None if !without.is_empty() || weight.is_some() => {
            let text = "`background_without` and `background_weight` need `background`";
            return Err(LabelFileError::Background(text.to_owned()));
        }
        None => None,
        Some(NamedBackground::Topics(background)) => Some(background),
        Some(NamedBackground::Named(named)) => Background::named(&named, read_file)
            .map_err(|why| LabelFileError::Background(format!("`{named}`: {why}")))?,
    };
    let Some(mut background) = background else {
        return Ok(None);
    };
    background
        .leave_out(without)
        .map_err(LabelSetError::Background)?;
    background.weight = weight.unwrap_or(background.weight);
    Ok(Some(background))
}

fn label(topic: Topic) -> Result<Label, LabelFileError> {
    let slug = topic.slug.map_or_else(|| slug_of_label(&topic.label), Ok)?;
    Ok(Label {
        slug,
        label: topic.label,
        descriptions: topic.descriptions.into(),
    })
}

fn short_label(label: String) -> Result<Label, LabelFileError> {
    Ok(Label {
        slug: slug_of_label(&label)?,
        label,
        descriptions: Vec::new(),
    })
}

fn slug_of_label(label: &str) -> Result<String, LabelFileError> {
    match slug(label) {
        slug if slug.is_empty() => Err(LabelFileError::NoSlug(label.to_owned())),
        slug => Ok(slug),
    }
}

impl FitSection {
    fn new(fitted: &Fitted, set: &LabelSet) -> Self {
        let label = |(class, label): (&FittedClass, &Label)| FittedLabel {
            slug: label.slug.clone(),
            scale: class.scale,
            bias: class.bias,
            weights: class.weights.clone(),
        };
        Self {
            base: fitted.base.clone(),
            model: fitted.model.clone(),
            words: words(set),
            none_below: fitted.none_below,
            provenance: fitted.provenance.clone(),
            none: fitted.none.clone(),
            label: fitted.labels.iter().zip(&set.labels).map(label).collect(),
        }
    }

    /// Converts the section to the fit of a label set, and validates it.
    fn into_fitted(self, set: &LabelSet) -> Result<Fitted, LabelFileError> {
        for (place, (class, label)) in (1..).zip(self.label.iter().zip(&set.labels)) {
            if class.slug != label.slug {
                let (fitted_slug, slug) = (class.slug.clone(), label.slug.clone());
                return Err(FitSectionError::Label(place, fitted_slug, slug).into());
            }
        }
        if self.label.len() == set.labels.len() && self.words != words(set) {
            return Err(FitSectionError::Changed.into());
        }
        let class = |label: FittedLabel| FittedClass {
            scale: label.scale,
            bias: label.bias,
            weights: label.weights,
        };
        let fitted = Fitted {
            base: self.base,
            model: self.model,
            labels: self.label.into_iter().map(class).collect(),
            none: self.none,
            none_below: self.none_below,
            provenance: self.provenance,
        };
        fitted
            .validate(set.labels.len())
            .map_err(LabelSetError::from)?;
        Ok(fitted)
    }
}

/// Returns a hash of the fields that determine zero-shot logits: all but the fit, the threshold and the temperature.
fn words(set: &LabelSet) -> String {
    let words = LabelSet {
        fitted: None,
        threshold: 0.0,
        temperature: 1.0,
        ..set.clone()
    };
    words.hash()
}

#[cfg(test)]
mod tests;
