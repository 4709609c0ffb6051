//! A label set made ready for a model: hypotheses tokenised, vectors of labels computed, or labels found among a
//! classifier's own, and how the rows of a text become its scores.

use std::borrow::Cow;

use super::{Labeler, LabelerError, PairState, TextResult};
use crate::batch::BatchRow;
use crate::embedding::{LabelVector, TextVector, unit};
use crate::fitted::Fitted;
use crate::folder::{ClassifierHead, ModelKind};
use crate::hypothesis;
use crate::labels::{LabelSet, Mode};
use crate::score::{self, Evidence, PairLogits, Scores};
use crate::text::{EncodedText, Encoder, Sequence};

/// A label set made ready for a model.
#[derive(Debug, Clone)]
pub struct PreparedLabels {
    kind: ModelKind,
    mode: Mode,
    temperature: f64,
    threshold: f64,
    fitted: Option<Fitted>,
    pub(super) keys: Vec<String>,
    /// Labels of the set.
    count: usize,
    /// Of the background, where something of it is left; its place is then after the last label.
    prior: Option<f64>,
    /// For each hypothesis or vector the place that it is for: of a label one, of the background one a topic.
    pub(super) owners: Vec<usize>,
    pub(super) labels: Labels,
}

#[derive(Debug, Clone)]
pub(super) enum Labels {
    /// A hypothesis for each owner.
    Hypotheses(Vec<EncodedText>),
    /// A vector, or several, for each owner.
    Vectors(Vec<LabelVector>),
    /// The number of its logit for each label: the model has labels of its own.
    Classes(Vec<usize>),
}

impl PreparedLabels {
    /// How scores are made.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What is added to the background's logit; `None` without a background.
    pub fn prior(&self) -> Option<f64> {
        self.prior
    }

    /// For each label the key under which its logits are stored, in the order of the set; then the background's, where
    /// something of it is left.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// The vectors of the labels, in the order of the set, and the background's after them; none where the model compares
    /// texts with hypotheses.
    pub fn label_vectors(&self) -> Option<&[LabelVector]> {
        match &self.labels {
            Labels::Hypotheses(_) | Labels::Classes(_) => None,
            Labels::Vectors(vectors) => Some(vectors),
        }
    }

    /// The ids that a row of a text is computed from.
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
        }
    }

    /// Scores of a text by its vector, as [`Labeler::score`] makes them; `None` where the model has no vectors, or others.
    ///
    /// # Panics
    /// Without a label: a label set is never empty.
    pub fn scores_of(&self, vector: &TextVector) -> Option<Scores> {
        let cosines = vector.cosines(self.label_vectors()?)?;
        let logits: Vec<PairLogits> = cosines.into_iter().map(PairLogits::cosine).collect();
        let evidence = score::evidence_with_background(&self.kind, self.mode, &logits, self.prior);
        let all: Vec<usize> = (0..self.count).collect();
        let evidence = self.apply_fit(evidence, &all, Some(vector))?;
        Some(evidence.scores(self.temperature, self.threshold))
    }

    /// True if the scores of a text are made of its vector, and not of its logits alone: pairs that are known do not spare the
    /// model then.
    pub fn needs_vectors(&self) -> bool {
        self.fitted
            .as_ref()
            .is_some_and(|fitted| fitted.dimensions() > 0)
    }

    /// Corrects the logits of a text if the label set is fitted; `None` without the vector that the fit needs.
    fn apply_fit(
        &self,
        evidence: Evidence,
        labels: &[usize],
        vector: Option<&TextVector>,
    ) -> Option<Evidence> {
        match &self.fitted {
            None => Some(evidence),
            Some(fitted) => evidence.fitted(fitted, labels, vector),
        }
    }

    /// What came of a text, given what its rows gave; of an embedding model one row a place.
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
                PairState::LeftOut => None,
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
        // Where the shortlist left the background out, the last logit is a label's and must not be taken for it.
        let prior = self.prior.filter(|_| other.is_some());
        let evidence = score::evidence_with_background(kind, self.mode, &some, prior);
        let evidence = self.apply_fit(evidence, &labels, vector.as_ref());
        let scores = evidence
            .expect("an embedding model gives a vector of its length for each text")
            .scores(self.temperature, self.threshold);
        TextResult {
            scores: score::spread(scores, &labels, self.count),
            raw: raw.collect(),
            logits,
            vector,
        }
    }

    /// How many rows the model computes for each text.
    pub fn rows_per_text(&self) -> usize {
        match &self.labels {
            Labels::Hypotheses(hypotheses) => hypotheses.len(),
            Labels::Vectors(_) | Labels::Classes(_) => 1,
        }
    }
}

impl Labeler {
    /// Makes a label set ready: tokenises its hypotheses, or computes the vectors of its labels.
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn prepare(&mut self, set: &LabelSet) -> Result<PreparedLabels, LabelerError> {
        self.prepare_with_known(set, &[])
    }

    /// The same, where the vectors of some labels are known, one place a label: they are not computed again. An NLI
    /// model has no use for them.
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn prepare_with_known(
        &mut self,
        set: &LabelSet,
        known: &[Option<LabelVector>],
    ) -> Result<PreparedLabels, LabelerError> {
        set.validate()?;
        if let Some(fitted) = set
            .fitted
            .as_ref()
            .filter(|fitted| fitted.model != self.folder.manifest_hash)
        {
            return Err(LabelerError::FittedToOther {
                labels: set.name.clone(),
                model: self.folder.name.clone(),
                fitted_to: fitted.model.chars().take(12).collect(),
            });
        }
        if let Some(background) = &set.background {
            let left_out = set.left_out();
            let left_out: Vec<&str> = left_out.iter().map(|(topic, _)| *topic).collect();
            tracing::info!(
                background = background.tag(),
                topics = set.background_for(&self.folder.kind).len(),
                left_out = left_out.join(", "),
                "a post that fits the background better than every label is other"
            );
        }
        if let Some(head) = self.folder.kind.head() {
            return self.prepare_classes(set, head);
        }
        if set.mode == Mode::Raw {
            return Err(LabelerError::Raw(self.folder.name.clone()));
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
            // Each place has a vector of its own, so nothing is left to fold.
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

    /// Says whether labels are compared by learned vectors, once for the same labels; nothing of a model without any for
    /// these labels.
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

    /// The vectors that the model has learned for the labels of a set, if there is one for each of them.
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

    /// Checks whether the model's learned label vectors, if it has any, are as long as those that it computes.
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

    /// The labels of a classifier: nothing is compared, so nothing is computed either.
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
                own: head.listed() + head.nli_advice(),
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

    /// What each place is compared with: for each of its owners the mean of the vectors of its texts.
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
                    // To length 1 before the mean, so that each text of a label counts as much.
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
        // In the order of the texts, so that the sum is the same on every batch.
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
            ModelKind::Nli(_) | ModelKind::Classifier(_) => {
                unreachable!("only an embedding model has vectors")
            }
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

/// What the owner of a text is called: a label by its slug.
fn name_of(set: &LabelSet, owners: &[usize], owner: usize) -> String {
    match set.labels.get(owners[owner]) {
        Some(label) => label.slug.clone(),
        None => "a topic of the background".to_owned(),
    }
}

/// Whether a label's text of so many tokens leaves room in the model's window.
pub fn fits_window(kind: &ModelKind, encoder: &Encoder, tokens: usize) -> bool {
    match kind {
        ModelKind::Nli(_) => encoder.premise_room(tokens) > 0,
        ModelKind::Embedding(_) => tokens <= encoder.room(),
        // Nothing reads it.
        ModelKind::Classifier(_) => true,
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
        ModelKind::Classifier(_) => PairLogits::class(raw[0]),
    }
}
