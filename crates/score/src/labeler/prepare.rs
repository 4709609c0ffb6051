//! Prepares a label set for a model. In: a label set, and label vectors that are known already. Out: the set with what
//! the model reads of it, or the reason why the two do not fit.
//!
//! An NLI model needs tokenised hypotheses; an embedding model needs label vectors; a classifier needs the indices of
//! the labels among its own; a GLiClass model needs one prompt with all labels.

use std::borrow::Cow;

use super::prepared::Labels;
use super::prompt::prompt;
use super::vectors::LabelTexts;
use super::{Labeler, LabelerError, PreparedLabels, name_of};
use crate::text::Encoder;
use topicmill_core::labels::hypothesis;
use topicmill_core::model_kind::{ClassifierHead, GliclassHead};
use topicmill_core::{Fitted, LabelSet, LabelVector, Mode, ModelKind};

impl Labeler {
    /// Prepares a label set: tokenises its hypotheses, or computes its label vectors.
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn prepare(&mut self, set: &LabelSet) -> Result<PreparedLabels, LabelerError> {
        self.prepare_with_known(set, &[])
    }

    /// Prepares a label set with some label vectors known, one entry per label. Only embedding models use them.
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn prepare_with_known(
        &mut self,
        set: &LabelSet,
        known: &[Option<LabelVector>],
    ) -> Result<PreparedLabels, LabelerError> {
        set.validate()?;
        if let Some(fitted) = &set.fitted {
            self.check_fit(&set.name, fitted)?;
        }
        self.log_background(set);
        match &self.folder.kind {
            ModelKind::Classifier(head) => self.prepare_classes(set, head),
            _ if set.mode == Mode::Raw => Err(LabelerError::Raw(self.folder.name.clone())),
            ModelKind::Gliclass(head) => self.prepare_prompt(set, head),
            ModelKind::Nli(_) | ModelKind::Embedding(_) => self.prepare_texts(set, known),
        }
    }

    /// Logs, once per background and omitted topics, that texts may become other.
    fn log_background(&mut self, set: &LabelSet) {
        let Some(background) = &set.background else {
            return;
        };
        let omitted = set.omitted_topics().into_iter();
        let omitted: Vec<&str> = omitted.map(|(topic, _)| topic).collect();
        let logged = (background.tag(), omitted.join(", "));
        if self.logged_background != logged {
            tracing::info!(
                background = logged.0,
                topics = set.background_for(&self.folder.kind).len(),
                omitted_topics = logged.1,
                "posts that fit the background better than every label become other"
            );
            self.logged_background = logged;
        }
    }

    /// Prepares the hypotheses of an NLI model, or the label vectors of an embedding model.
    fn prepare_texts(
        &mut self,
        set: &LabelSet,
        known: &[Option<LabelVector>],
    ) -> Result<PreparedLabels, LabelerError> {
        let texts = self.label_texts(set)?;
        let (owners, labels) = if let ModelKind::Nli(_) = self.folder.kind {
            let hypotheses = texts.texts.into_iter().map(|(_, text)| text);
            (texts.owners, Labels::Hypotheses(hypotheses.collect()))
        } else {
            let known: Cow<'_, [Option<LabelVector>]> = match self.learned_vectors(set)? {
                Some(learned) => {
                    // The background has no learned vector.
                    let background = known.iter().skip(learned.len()).cloned();
                    Cow::Owned(learned.into_iter().map(Some).chain(background).collect())
                }
                None => Cow::Borrowed(known),
            };
            // A label vector combines all texts or topics of its key, so there is one owner per key.
            let owners = (0..texts.keys).collect();
            let vectors = self.label_vectors(set, texts, &known)?;
            (owners, Labels::Vectors(vectors))
        };
        self.log_learned_vectors(set);
        Ok(PreparedLabels::new(&self.folder.kind, set, owners, labels))
    }

    /// Tokenises the texts of a label set.
    fn label_texts(&self, set: &LabelSet) -> Result<LabelTexts, LabelerError> {
        let kind = &self.folder.kind;
        let groups = hypothesis::groups(kind, set);
        let mut label_texts = LabelTexts {
            texts: Vec::new(),
            owners: Vec::new(),
            keys: groups.len(),
        };
        for (key, group) in groups.into_iter().enumerate() {
            for texts in group {
                for text in texts {
                    let text = self.encoder.encode_whole(&text)?;
                    if !fits_window(kind, &self.encoder, text.len()) {
                        return Err(LabelerError::TooLong {
                            label: name_of(set, key).to_owned(),
                            tokens: text.len(),
                            window: self.encoder.max_tokens(),
                        });
                    }
                    label_texts.texts.push((label_texts.owners.len(), text));
                }
                label_texts.owners.push(key);
            }
        }
        Ok(label_texts)
    }

    /// Checks that a fit is for this model and reads vectors of the length that the model computes.
    fn check_fit(&mut self, labels: &str, fitted: &Fitted) -> Result<(), LabelerError> {
        let (labels, model) = (labels.to_owned(), self.folder.name.clone());
        if fitted.model != self.folder.manifest_hash {
            return Err(LabelerError::FittedToOther {
                labels,
                model,
                fitted_to: fitted.model.chars().take(12).collect(),
            });
        }
        let weights = fitted.dimensions();
        let width = match self.folder.kind {
            ModelKind::Embedding(_) if weights > 0 => self.width()?,
            _ => 0,
        };
        if weights != width {
            return Err(LabelerError::FittedWidth {
                labels,
                model,
                weights,
                width,
            });
        }
        Ok(())
    }

    /// Prepares the labels of a classifier, without inference.
    fn prepare_classes(
        &self,
        set: &LabelSet,
        head: &ClassifierHead,
    ) -> Result<PreparedLabels, LabelerError> {
        let model = || self.folder.name.clone();
        if set.background.is_some() {
            return Err(LabelerError::NoBackground(model()));
        }
        let classes = set
            .classes_of(head)
            .ok_or_else(|| LabelerError::OwnLabels {
                model: model(),
                own: head.label_list() + head.nli_advice(),
            })?;
        let owners = (0..classes.len()).collect();
        let labels = Labels::Classes(classes);
        Ok(PreparedLabels::new(&self.folder.kind, set, owners, labels))
    }

    /// Prepares the prompt of a GLiClass model, without inference.
    fn prepare_prompt(
        &self,
        set: &LabelSet,
        head: &GliclassHead,
    ) -> Result<PreparedLabels, LabelerError> {
        let kind = &self.folder.kind;
        let prompt = prompt(&self.encoder, &self.folder, head, set)?;
        let groups = hypothesis::groups(kind, set).into_iter().enumerate();
        let owners = groups
            .flat_map(|(place, group)| vec![place; group.len()])
            .collect();
        let labels = Labels::Prompt(prompt);
        Ok(PreparedLabels::new(kind, set, owners, labels))
    }
}

/// Returns true if a label's text with this number of tokens fits in the model's window.
pub fn fits_window(kind: &ModelKind, encoder: &Encoder, tokens: usize) -> bool {
    match kind {
        ModelKind::Nli(_) => encoder.premise_room(tokens) > 0,
        ModelKind::Embedding(_) => tokens <= encoder.room(),
        // A classifier reads no label texts, and a GLiClass model reads all labels together: see `prompt`.
        ModelKind::Classifier(_) | ModelKind::Gliclass(_) => true,
    }
}
