//! Validates label sets, and lists what is wrong with them.

use std::collections::HashMap;

use super::{Background, BackgroundError, CLASS_TEMPLATE, FittedError, LabelSet, Mode};

/// Reasons to reject a label set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelSetError {
    /// There are no labels.
    #[error("the label set has no labels: give at least one")]
    Empty,
    /// The template contains no `{}` for the label, or more than one.
    #[error("the hypothesis template `{0}` needs exactly one `{{}}`, where the label goes")]
    Template(String),
    /// A label or its slug is empty.
    #[error("label {0} is empty: fill it in")]
    Blank(usize),
    /// Two labels have the same slug.
    #[error("label `{0}` occurs twice: remove one")]
    Twice(String),
    /// Two slugs differ only in case, hyphens and underscores, so their columns would have the same name.
    #[error("labels `{0}` and `{1}` would have the same column: use a different slug")]
    SameColumn(String, String),
    /// The slug is the name of an outcome.
    #[error("label `{0}`: this word is reserved for posts without a label; use a different slug")]
    Taken(String),
    /// A text contains NUL, which PostgreSQL cannot store.
    #[error("label `{0}` contains NUL: remove it")]
    Nul(String),
    /// The threshold is out of range.
    #[error("the threshold {0} is not between 0 and 1")]
    Threshold(String),
    /// A threshold or a temperature was set in mode raw.
    #[error(
        "in mode raw the scores are logits, so threshold and temperature have no effect; remove them"
    )]
    Raw,
    /// The temperature is out of range.
    #[error("the temperature {0} is not between 0.001 and 1000")]
    Temperature(String),
    /// The background is invalid.
    #[error("the background: {0}")]
    Background(#[from] BackgroundError),
    /// The fit is invalid.
    #[error(transparent)]
    Fitted(#[from] FittedError),
}

impl LabelSet {
    /// Validates the fields.
    ///
    /// # Errors
    /// The first of [`Self::faults`].
    pub fn validate(&self) -> Result<(), LabelSetError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns all problems with the fields.
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
        #[expect(clippy::float_cmp, reason = "exactly 0 and 1 are the defaults")]
        if self.mode == Mode::Raw && (self.threshold != 0.0 || self.temperature != 1.0) {
            faults.push(LabelSetError::Raw);
        }
        if !(0.001..=1000.0).contains(&self.temperature) {
            let temperature = format!("{:?}", self.temperature);
            faults.push(LabelSetError::Temperature(temperature));
        }
        if let Some(Err(error)) = self.background.as_ref().map(Background::validate) {
            faults.push(error.into());
        }
        let fitted = self.fitted.as_ref();
        if let Some(Err(error)) = fitted.map(|fitted| fitted.validate(self.labels.len())) {
            faults.push(error.into());
        }
        faults.extend(self.label_faults());
        faults
    }

    /// Returns all problems with the labels.
    fn label_faults(&self) -> Vec<LabelSetError> {
        // Databases and data frames compare names of columns without case, but a classifier's labels have the names
        // that its model gives them.
        let is_of_classifier = self.template == CLASS_TEMPLATE && self.background.is_none();
        let column = |slug: &str| {
            let column = slug.replace('-', "_");
            if is_of_classifier {
                column
            } else {
                column.to_lowercase()
            }
        };
        let (mut faults, mut seen) = (Vec::new(), HashMap::new());
        for (i, label) in self.labels.iter().enumerate() {
            if label.label.trim().is_empty() || label.slug.trim().is_empty() {
                faults.push(LabelSetError::Blank(i + 1));
            } else if let Some(first) = seen.insert(column(&label.slug), &label.slug) {
                faults.push(if *first == label.slug {
                    LabelSetError::Twice(label.slug.clone())
                } else {
                    LabelSetError::SameColumn(first.clone(), label.slug.clone())
                });
            }
            let names = [&label.slug, &label.label].into_iter();
            let mut texts = names.chain(&label.descriptions);
            if texts.any(|text| text.contains('\0')) {
                faults.push(LabelSetError::Nul(label.slug.replace('\0', "")));
            }
            if ["other", "unsure"].contains(&&*label.slug.to_lowercase()) && !is_of_classifier {
                faults.push(LabelSetError::Taken(label.slug.clone()));
            }
        }
        faults
    }
}
