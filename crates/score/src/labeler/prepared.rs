//! Prepares a label set for a model and turns a text's rows into scores.
//!
//! An NLI model needs tokenised hypotheses; an embedding model needs label vectors; a classifier needs the indices of
//! the labels among its own; a GLiClass model needs one prompt with all labels.

use std::borrow::Cow;

use super::{Labeler, LabelerError, PairState, TextResult};
use crate::batch::BatchRow;
use crate::embedding::{LabelVector, TextVector, unit};
use crate::fitted::Fitted;
use crate::folder::{ClassifierHead, GliclassHead, ModelFolder, ModelKind};
use crate::hypothesis;
use crate::labels::{Label, LabelSet, Mode};
use crate::score::{self, Evidence, PairLogits, Scores};
use crate::text::{EncodedText, Encoder, Sequence};

/// A label set prepared for one model.
#[derive(Debug, Clone)]
pub struct PreparedLabels {
    kind: ModelKind,
    mode: Mode,
    temperature: f64,
    threshold: f64,
    fitted: Option<Fitted>,
    pub(super) keys: Vec<String>,
    /// Number of labels, without the background.
    count: usize,
    /// Prior of the background, if any topic remains. The background's index follows the last label's.
    prior: Option<f64>,
    /// Index of the label that each hypothesis, prompt label or vector belongs to. A background has one hypothesis or
    /// prompt label per topic, but a single vector.
    pub(super) owners: Vec<usize>,
    pub(super) labels: Labels,
}

#[derive(Debug, Clone)]
pub(super) enum Labels {
    /// One hypothesis per entry of `owners`.
    Hypotheses(Vec<EncodedText>),
    /// One [`LabelVector`] per entry of `owners`; the background's entry has one vector per topic.
    Vectors(Vec<LabelVector>),
    /// Index of each label's logit, for a classifier.
    Classes(Vec<usize>),
    /// One label per entry of `owners`, read together with each text.
    Prompt(EncodedText),
}

impl PreparedLabels {
    /// Returns the scoring mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the offset of the background's logit; `None` without a background.
    pub fn prior(&self) -> Option<f64> {
        self.prior
    }

    /// Returns the keys to store logits under: one per label, in the order of the set, then one for the background, if
    /// any of its topics remains.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns the label vectors in the order of the set, then the background's; `None` if the model is not an
    /// embedding model.
    pub fn label_vectors(&self) -> Option<&[LabelVector]> {
        match &self.labels {
            Labels::Hypotheses(_) | Labels::Classes(_) | Labels::Prompt(_) => None,
            Labels::Vectors(vectors) => Some(vectors),
        }
    }

    /// Returns the token ids of a row.
    pub(super) fn sequence(
        &self,
        encoder: &Encoder,
        texts: &[EncodedText],
        row: BatchRow,
    ) -> Sequence {
        match &self.labels {
            Labels::Hypotheses(hypotheses) => {
                encoder.pair(&texts[row.text], &hypotheses[row.label])
            }
            Labels::Vectors(_) | Labels::Classes(_) => encoder.single(&texts[row.text]),
            Labels::Prompt(prompt) => encoder.prompted(&texts[row.text], prompt),
        }
    }

    /// Scores a text by its vector, like [`Labeler::score`]; `None` if the vector is from a different model, or the
    /// model is not an embedding model.
    ///
    /// # Panics
    /// If there are no labels; a label set is never empty.
    pub fn scores_of(&self, vector: &TextVector) -> Option<Scores> {
        let cosines = vector.cosines(self.label_vectors()?)?;
        let logits: Vec<PairLogits> = cosines.into_iter().map(PairLogits::cosine).collect();
        let evidence = score::evidence_with_background(&self.kind, self.mode, &logits, self.prior);
        let all: Vec<usize> = (0..self.count).collect();
        let evidence = self.apply_fit(evidence, &all, Some(vector))?;
        Some(evidence.scores(self.temperature, self.threshold))
    }

    /// Returns true if scores depend on the text's vector, and not only on its logits. Known pairs then save no
    /// inference.
    pub fn needs_vectors(&self) -> bool {
        self.fitted
            .as_ref()
            .is_some_and(|fitted| fitted.dimensions() > 0)
    }

    /// Applies the fit of the label set, if it has one; `None` if the fit needs a vector and there is none.
    fn apply_fit(
        &self,
        evidence: Evidence,
        labels: &[usize],
        vector: Option<&TextVector>,
    ) -> Option<Evidence> {
        match &self.fitted {
            None => Some(evidence),
            Some(fitted) => {
                let numbers = vector.map(TextVector::numbers);
                evidence.fitted(fitted, labels, numbers.as_deref())
            }
        }
    }

    /// Builds the result of a text from its rows. For an embedding model, each row is a label's cosine.
    pub(super) fn result(
        &self,
        pair_state: &dyn Fn(usize) -> PairState,
        rows: Vec<Vec<f32>>,
        vector: Option<TextVector>,
    ) -> TextResult {
        let kind = &self.kind;
        let places = self.keys.len();
        let mut of_place: Vec<Vec<Vec<f32>>> = vec![Vec::new(); places];
        for (owner, row) in self.owners.iter().zip(rows) {
            of_place[*owner].push(row);
        }
        let logits: Vec<Option<PairLogits>> = (0..places)
            .map(|place| match pair_state(place) {
                PairState::Wanted => {
                    let rows = of_place[place].iter();
                    let logits: Vec<_> = rows.map(|row| pair_logits(kind, row)).collect();
                    Some(score::fold(kind, &logits))
                }
                PairState::Known(logits) => Some(logits),
                PairState::Skipped => None,
            })
            .collect();
        let raw = of_place.into_iter().map(|mut rows| match rows.len() {
            1 => rows.remove(0),
            _ => Vec::new(),
        });
        let (labels, mut some): (Vec<usize>, Vec<PairLogits>) = (0..)
            .zip(&logits[..self.count])
            .filter_map(|(label, logits)| Some((label, (*logits)?)))
            .unzip();
        let other = logits.get(self.count).copied().flatten();
        some.extend(other);
        // If the shortlist skipped the background, the last logit is a label's.
        let prior = self.prior.filter(|_| other.is_some());
        let evidence = score::evidence_with_background(kind, self.mode, &some, prior);
        let evidence = self.apply_fit(evidence, &labels, vector.as_ref());
        let scores = evidence
            .expect("an embedding model computes a vector for each text")
            .scores(self.temperature, self.threshold);
        TextResult {
            scores: score::spread(scores, &labels, self.count),
            raw: raw.collect(),
            logits,
            vector,
        }
    }

    /// Returns the number of rows per text.
    pub fn rows_per_text(&self) -> usize {
        match &self.labels {
            Labels::Hypotheses(hypotheses) => hypotheses.len(),
            Labels::Vectors(_) | Labels::Classes(_) | Labels::Prompt(_) => 1,
        }
    }
}

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
        if let Some(background) = &set.background {
            let left_out = set.omitted_topics();
            let left_out: Vec<&str> = left_out.iter().map(|(topic, _)| *topic).collect();
            let logged = (background.tag(), left_out.join(", "));
            if self.logged_background != logged {
                tracing::info!(
                    background = logged.0,
                    topics = set.background_for(&self.folder.kind).len(),
                    left_out = logged.1,
                    "posts that fit the background better than every label become other"
                );
                self.logged_background = logged;
            }
        }
        if let Some(head) = self.folder.kind.head() {
            return self.prepare_classes(set, head);
        }
        if set.mode == Mode::Raw {
            return Err(LabelerError::Raw(self.folder.name.clone()));
        }
        if let ModelKind::Gliclass(head) = &self.folder.kind {
            return self.prepare_prompt(set, head);
        }
        let kind = &self.folder.kind;
        let mut texts = Vec::new();
        let mut owners = Vec::new();
        for (place, group) in hypothesis::groups(kind, set).into_iter().enumerate() {
            for of_one in group {
                for text in of_one {
                    texts.push((owners.len(), self.encoder.encode_whole(&text)?));
                }
                owners.push(place);
            }
        }
        let name = |owner: usize| name_of(set, &owners, owner);
        let nli = matches!(kind, ModelKind::Nli(_));
        for (owner, text) in &texts {
            if !fits_window(kind, &self.encoder, text.len()) {
                return Err(LabelerError::TooLong {
                    label: name(*owner),
                    tokens: text.len(),
                    window: self.encoder.max_tokens(),
                });
            }
        }
        let (keys, prior) = (hypothesis::keys(kind, set), set.prior_for(kind));
        let labels = if nli {
            Labels::Hypotheses(texts.into_iter().map(|(_, text)| text).collect())
        } else {
            let mut known = Cow::Borrowed(known);
            if let Some(learned) = self.learned_vectors(set)? {
                let known = known.to_mut();
                known.resize(known.len().max(learned.len()), None);
                for (known, learned) in known.iter_mut().zip(learned) {
                    *known = Some(learned);
                }
            }
            // A label vector combines all texts or topics of its key, so there is one owner per key.
            let vectors = self.label_vectors(&name, &owners, keys.len(), texts, &known)?;
            owners = (0..keys.len()).collect();
            Labels::Vectors(vectors)
        };
        self.log_learned_vectors(set);
        Ok(PreparedLabels {
            kind: self.folder.kind.clone(),
            mode: set.mode,
            temperature: set.temperature,
            threshold: set.threshold,
            fitted: set.fitted.clone(),
            keys,
            count: set.labels.len(),
            prior,
            owners,
            labels,
        })
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

    /// Logs, once per label set, whether learned vectors are used; logs nothing if the model has none for these labels.
    fn log_learned_vectors(&mut self, set: &LabelSet) {
        let keys = hypothesis::keys(&self.folder.kind, set);
        if self.logged_keys == keys {
            return;
        }
        self.logged_keys = keys;
        let (model, kind, labels) = (&self.folder.name, &self.folder.kind, set.labels.len());
        if hypothesis::learned(kind, set).is_some() {
            tracing::info!(
                model,
                labels,
                "the model has learned vectors for these labels"
            );
            return;
        }
        if let Some(why) = hypothesis::missing_learned_vectors(kind, set) {
            tracing::warn!(model, "{why}");
        }
    }

    /// Returns the learned vectors of a label set, if every label has one.
    fn learned_vectors(
        &mut self,
        set: &LabelSet,
    ) -> Result<Option<Vec<LabelVector>>, LabelerError> {
        let ModelKind::Embedding(head) = &self.folder.kind else {
            return Ok(None);
        };
        let Some(found) = hypothesis::learned(&self.folder.kind, set) else {
            return Ok(None);
        };
        let of_label =
            |vector: &[f64]| LabelVector::from_sums(head.softmax_scale, vec![vector.to_vec()]);
        let vectors = found.into_iter().map(of_label).collect();
        self.check_learned()?;
        Ok(Some(vectors))
    }

    /// Checks that the learned label vectors, if any, have as many dimensions as the vectors that the model computes.
    ///
    /// # Errors
    /// [`LabelerError::LearnedWidth`] and [`LabelerError::Engine`].
    pub fn check_learned(&mut self) -> Result<(), LabelerError> {
        let numbers = match &self.folder.kind {
            ModelKind::Embedding(head) if !head.learned.is_empty() => head.learned.dimensions(),
            _ => return Ok(()),
        };
        let width = self.width()?;
        if width == numbers {
            return Ok(());
        }
        let model = self.folder.name.clone();
        Err(LabelerError::LearnedWidth(model, width, numbers))
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
        Ok(PreparedLabels {
            kind: self.folder.kind.clone(),
            mode: set.mode,
            temperature: set.temperature,
            threshold: set.threshold,
            fitted: set.fitted.clone(),
            keys: hypothesis::keys(&self.folder.kind, set),
            count: classes.len(),
            prior: None,
            owners: (0..classes.len()).collect(),
            labels: Labels::Classes(classes),
        })
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
        Ok(PreparedLabels {
            kind: kind.clone(),
            mode: set.mode,
            temperature: set.temperature,
            threshold: set.threshold,
            fitted: set.fitted.clone(),
            keys: hypothesis::keys(kind, set),
            count: set.labels.len(),
            prior: set.prior_for(kind),
            owners: groups
                .flat_map(|(place, group)| vec![place; group.len()])
                .collect(),
            labels: Labels::Prompt(prompt),
        })
    }

    /// Computes the label vectors: the mean of the vectors of each label's texts.
    pub(super) fn label_vectors(
        &mut self,
        name: &dyn Fn(usize) -> String,
        owners: &[usize],
        places: usize,
        mut texts: Vec<(usize, EncodedText)>,
        known: &[Option<LabelVector>],
    ) -> Result<Vec<LabelVector>, LabelerError> {
        let known = |place: usize| known.get(place).and_then(Option::as_ref);
        texts.retain(|(owner, _)| known(owners[*owner]).is_none());
        let rows = texts.iter().enumerate();
        let rows = rows
            .map(|(text, (_, ids))| BatchRow {
                text,
                label: 0,
                len: self.encoder.single_len(ids),
            })
            .collect();
        let mut vectors = vec![Vec::new(); texts.len()];
        let mut failed = None;
        self.compute(
            rows,
            &|encoder, row| encoder.single(&texts[row.text].1),
            &|| false,
            &mut |row, computed| match computed {
                Ok(vector) => {
                    // Normalized before the mean, so that all texts of a label have equal weight.
                    vectors[row.text] = unit(vector.iter().map(|x| f64::from(*x)).collect());
                }
                Err(source) => failed = Some((row.text, source)),
            },
        )?;
        if let Some((text, source)) = failed {
            return Err(LabelerError::Label {
                label: name(texts[text].0),
                source,
            });
        }
        let mut means: Vec<Vec<f64>> = vec![Vec::new(); owners.len()];
        // Summed in the order of the texts, so that batching does not change the result.
        for ((label, _), vector) in texts.iter().zip(vectors) {
            let mean = &mut means[*label];
            mean.resize(vector.len(), 0.0);
            mean.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x);
        }
        let mut of_places: Vec<Vec<Vec<f64>>> = vec![Vec::new(); places];
        for (mean, place) in means.into_iter().zip(owners) {
            of_places[*place].push(mean);
        }
        let scale = match &self.folder.kind {
            ModelKind::Embedding(head) => head.softmax_scale,
            _ => unreachable!("only an embedding model has vectors"),
        };
        let of_places = of_places.into_iter().enumerate();
        let of_place = |(place, means)| {
            known(place)
                .cloned()
                .unwrap_or_else(|| LabelVector::from_sums(scale, means))
        };
        Ok(of_places.map(of_place).collect())
    }
}

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
    let fits = encoder.prompt_room(all.len()) > 0;
    if fits && labels.len() <= most {
        return Ok(all);
    }
    let (mut first, mut limit) = (most.min(labels.len()), format!("{most} labels"));
    if !fits {
        limit = format!("{} tokens", encoder.max_tokens());
        // Slow, but only an error message needs the number of labels that fit.
        while first > 0 && encoder.prompt_room(encode(&labels[..first])?.len()) == 0 {
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

/// Returns the slug of a label for messages, or a description of a background topic.
fn name_of(set: &LabelSet, owners: &[usize], owner: usize) -> String {
    match set.labels.get(owners[owner]) {
        Some(label) => label.slug.clone(),
        None => "a background topic".to_owned(),
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

fn pair_logits(kind: &ModelKind, raw: &[f32]) -> PairLogits {
    match kind {
        ModelKind::Nli(classes) => PairLogits {
            entailment: raw[classes.entailment],
            contradiction: Some(raw[classes.contradiction]),
            neutral: classes.neutral.map(|class| raw[class]),
        },
        ModelKind::Embedding(_) => PairLogits::cosine(raw[0]),
        ModelKind::Classifier(_) | ModelKind::Gliclass(_) => PairLogits::class(raw[0]),
    }
}
