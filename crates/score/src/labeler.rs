//! Texts to scores: folder, encoder and engine put together.
//!
//! A [`Labeler`] is owned by the thread that computes; its [`Encoder`] is shared, so that another thread can
//! tokenise the next texts meanwhile. It knows no database and no file: the caller hands in encoded texts and
//! is called back with the result of each, as soon as its last row was computed.

mod compute;

use std::sync::Arc;

use super::batch::{self, Batch, BatchRow, Grouping};
use super::engine::{Engine, EngineError};
use super::hypothesis;
use super::score;
use super::text::{EncodedText, Encoder, Sequence, TokenizeError};
use crate::folder::{ModelFolder, ModelKind};
use crate::labels::{LabelSet, LabelSetError, Mode};
use crate::score::{PairLogits, Scores};

/// Padded tokens of a batch where a score depends on its batch: few, because a CPU's cache is small.
const TOKENS_OF_ONE_TEXT: usize = 512;

/// Why texts cannot be scored at all.
#[derive(Debug, thiserror::Error)]
pub enum LabelerError {
    /// The tokenizer.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// The label set.
    #[error(transparent)]
    LabelSet(#[from] LabelSetError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A label that leaves no room for a text.
    #[error(
        "label `{label}`: its hypothesis or description has {tokens} tokens, which leaves no room in the model's window of {window}; shorten it"
    )]
    TooLong {
        /// Slug of the label.
        label: String,
        /// Tokens of its text.
        tokens: usize,
        /// Tokens that the model takes.
        window: usize,
    },
    /// A label that the model cannot compute.
    #[error("label `{label}`: {source}")]
    Label {
        /// Slug of the label.
        label: String,
        /// What went wrong.
        #[source]
        source: TextError,
    },
}

/// Why one text has no scores, while others have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Not even a batch of one row fits.
    #[error(
        "a single row of {0} tokens needs more memory than there is: use a smaller model or another device"
    )]
    OutOfMemory(usize),
    /// The model gave no numbers for it.
    #[error("the model's outputs are not finite")]
    NotFinite,
    /// The engine computes other rows, but not one of this text's.
    #[error(transparent)]
    Engine(EngineError),
}

/// A label set made ready for a model.
#[derive(Debug, Clone)]
pub struct Prepared {
    mode: Mode,
    temperature: f64,
    threshold: f64,
    keys: Vec<String>,
    /// Labels of the set.
    count: usize,
    /// Of the background, where something of it is left; its place is then after the last label.
    prior: Option<f64>,
    /// For each hypothesis or vector the place that it is for: of a label one, of the background one a topic.
    owners: Vec<usize>,
    labels: Labels,
}

#[derive(Debug, Clone)]
enum Labels {
    /// A hypothesis for each owner.
    Hypotheses(Vec<EncodedText>),
    /// A vector of length 1 for each owner.
    Vectors(Vec<Vec<f64>>),
}

impl Prepared {
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

    /// What came of a text, given what its rows gave; of an embedding model one row a vector.
    fn result(
        &self,
        kind: &ModelKind,
        pair_of: &dyn Fn(usize) -> Pair,
        rows: Vec<Vec<f32>>,
    ) -> TextResult {
        let places = self.keys.len();
        let mut of_place: Vec<Vec<Vec<f32>>> = vec![Vec::new(); places];
        for (owner, row) in self.owners.iter().zip(rows) {
            of_place[*owner].push(row);
        }
        let logits: Vec<Option<PairLogits>> = (0..places)
            .map(|place| match pair_of(place) {
                Pair::Wanted => {
                    let rows = of_place[place].iter();
                    let logits: Vec<_> = rows.map(|row| pair_logits(kind, row)).collect();
                    Some(score::fold(kind, &logits))
                }
                Pair::Known(logits) => Some(logits),
                Pair::LeftOut => None,
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
        let prior = self.prior.filter(|_| other.is_some());
        let scores = score::evidence_beside(kind, self.mode, &some, prior)
            .scores(self.temperature, self.threshold);
        TextResult {
            scores: score::among(scores, &labels, self.count),
            raw: raw.collect(),
            logits,
        }
    }

    /// How many rows the model computes for each text.
    pub fn rows_per_text(&self) -> usize {
        match &self.labels {
            Labels::Hypotheses(hypotheses) => hypotheses.len(),
            Labels::Vectors(_) => 1,
        }
    }
}

/// What came of one text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextResult {
    /// Its scores.
    pub scores: Scores,
    /// Its logits, one a label, and the background's after them; of what was left out there are none.
    pub logits: Vec<Option<PairLogits>>,
    /// For each label every class logit in the order of the model; of an embedding model the cosine. Empty
    /// where the logits were known, or the label left out, and for a background of several topics.
    pub raw: Vec<Vec<f32>>,
}

/// How it stands with a text and a label.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Pair {
    /// To be computed.
    #[default]
    Wanted,
    /// Computed before.
    Known(PairLogits),
    /// Left out by a shortlist: never computed, and its score is 0.
    LeftOut,
}

/// The pairs of a text, one a label, and the background's after them; an empty list where all of them are wanted.
pub type Pairs = Vec<Pair>;

/// How it stands with a text and a label.
fn pair_of(pairs: &[Pairs], text: usize, label: usize) -> Pair {
    let of_text = pairs.get(text).and_then(|pairs| pairs.get(label));
    of_text.copied().unwrap_or_default()
}

/// How a call to [`Labeler::score`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every text was reported.
    Done,
    /// Asked to stop; texts that were not reported are not done.
    Stopped,
}

/// Tokens that an engine read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Computed {
    /// Tokens of rows, special ones included.
    pub tokens: u64,
    /// With what rows were filled up with: rows × longest row, summed over batches.
    pub padded_tokens: u64,
}

impl Computed {
    fn add(&mut self, batch: &Batch) {
        self.tokens += batch.lens.iter().sum::<usize>() as u64;
        self.padded_tokens += batch.ids.len() as u64;
    }
}

/// Scores texts against labels with one model.
pub struct Labeler {
    folder: ModelFolder,
    encoder: Arc<Encoder>,
    engine: Box<dyn Engine>,
    budget: usize,
    computed: Computed,
}

impl Labeler {
    /// Puts a model and an engine together; `batch_tokens` bounds rows × longest row of a batch.
    ///
    /// # Errors
    /// [`LabelerError::Tokenize`].
    pub fn load(
        folder: ModelFolder,
        engine: Box<dyn Engine>,
        batch_tokens: usize,
    ) -> Result<Self, LabelerError> {
        let encoder = Arc::new(Encoder::load(&folder)?);
        let mut labeler = Self {
            folder,
            encoder,
            engine,
            budget: TOKENS_OF_ONE_TEXT,
            computed: Computed::default(),
        };
        labeler.set_batch_tokens(batch_tokens);
        Ok(labeler)
    }

    /// What was computed since this was asked last; a batch that failed does not count.
    pub fn take_computed(&mut self) -> Computed {
        std::mem::take(&mut self.computed)
    }

    /// Padded tokens that a batch may hold; fewer than was set where the memory ran out.
    pub fn batch_tokens(&self) -> usize {
        self.budget
    }

    /// Sets how many padded tokens a batch may hold. Of a graph whose scores depend on their batch the size stays
    /// as it is, because another one would give other scores.
    pub fn set_batch_tokens(&mut self, batch_tokens: usize) {
        if !self.folder.depends_on_batch() {
            self.budget = batch_tokens.max(1);
        }
    }

    /// Makes the engine anew, and gives back what memory it took.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn restart(&mut self) -> Result<(), EngineError> {
        self.engine.restart()
    }

    /// Every row that scoring texts takes, text by text.
    pub fn rows(&self, prepared: &Prepared, texts: &[EncodedText]) -> Vec<BatchRow> {
        let mut rows = Vec::new();
        for (text, ids) in texts.iter().enumerate() {
            match &prepared.labels {
                Labels::Hypotheses(hypotheses) => {
                    rows.extend(hypotheses.iter().enumerate().map(|(label, hypothesis)| {
                        BatchRow {
                            text,
                            label,
                            len: self.encoder.pair_len(ids, hypothesis),
                        }
                    }));
                }
                Labels::Vectors(_) => rows.push(BatchRow {
                    text,
                    label: 0,
                    len: self.encoder.single_len(ids),
                }),
            }
        }
        rows
    }

    /// Rows in batches, as [`score`](Self::score) would put them together within a budget.
    pub fn plan(&self, rows: Vec<BatchRow>, batch_tokens: usize) -> Vec<Vec<BatchRow>> {
        let grouping = if self.folder.depends_on_batch() {
            Grouping::ByText
        } else {
            Grouping::Mixed
        };
        batch::plan(rows, batch_tokens, grouping)
    }

    /// Computes one batch for its time alone.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn compute_batch(
        &mut self,
        prepared: &Prepared,
        texts: &[EncodedText],
        rows: &[BatchRow],
    ) -> Result<(), EngineError> {
        let sequence = |row: &BatchRow| match &prepared.labels {
            Labels::Hypotheses(hypotheses) => {
                self.encoder.pair(&texts[row.text], &hypotheses[row.label])
            }
            Labels::Vectors(_) => self.encoder.single(&texts[row.text]),
        };
        let sequences: Vec<Sequence> = rows.iter().map(sequence).collect();
        self.infer(&Batch::new(&sequences, self.encoder.pad_id()))
            .map(drop)
    }

    /// The model.
    pub fn folder(&self) -> &ModelFolder {
        &self.folder
    }

    /// Tokenises for this model, on any thread.
    pub fn encoder(&self) -> Arc<Encoder> {
        Arc::clone(&self.encoder)
    }

    /// Makes a label set ready: tokenises its hypotheses, or computes the vectors of its labels.
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn prepare(&mut self, set: &LabelSet) -> Result<Prepared, LabelerError> {
        set.validate()?;
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
            if !fits(kind, &self.encoder, text.len()) {
                return Err(LabelerError::TooLong {
                    label: name(*owner),
                    tokens: text.len(),
                    window: self.encoder.max_tokens(),
                });
            }
        }
        if let Some(background) = &set.background {
            let left_out = set.left_out();
            let left_out: Vec<&str> = left_out.iter().map(|(topic, _)| *topic).collect();
            tracing::info!(
                background = background.tag(),
                topics = set.background_for(kind).len(),
                left_out = left_out.join(", "),
                "a post that fits the background better than every label is other"
            );
        }
        let (keys, prior) = (hypothesis::keys(kind, set), set.prior_for(kind));
        let labels = if nli {
            Labels::Hypotheses(texts.into_iter().map(|(_, text)| text).collect())
        } else {
            Labels::Vectors(self.label_vectors(owners.len(), &name, &texts)?)
        };
        Ok(Prepared {
            mode: set.mode,
            temperature: set.temperature,
            threshold: set.threshold,
            keys,
            count: set.labels.len(),
            prior,
            owners,
            labels,
        })
    }

    /// The mean of the vectors of each label's texts, of length 1.
    fn label_vectors(
        &mut self,
        count: usize,
        name: &dyn Fn(usize) -> String,
        texts: &[(usize, EncodedText)],
    ) -> Result<Vec<Vec<f64>>, LabelerError> {
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
        let mut means: Vec<Vec<f64>> = vec![Vec::new(); count];
        // In the order of the texts, so that the sum is the same on every batch.
        for ((label, _), vector) in texts.iter().zip(vectors) {
            let mean = &mut means[*label];
            mean.resize(vector.len(), 0.0);
            mean.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x);
        }
        Ok(means.into_iter().map(unit).collect())
    }

    /// Scores texts and calls `done` with the index and the outcome of each as soon as it is there, in no
    /// particular order. Between batches `stop` is asked whether to go on.
    ///
    /// Only pairs that are wanted are computed; a text without one costs no inference. At least one label of a
    /// text is not left out.
    ///
    /// A batch that fails is tried again in halves, down to the row at fault; where the memory ran out the
    /// budget is halved too, for good.
    ///
    /// # Errors
    /// [`LabelerError::Engine`], where the trouble is not with one text: the engine does not even compute a
    /// row without text any more.
    pub fn score(
        &mut self,
        prepared: &Prepared,
        texts: &[EncodedText],
        pairs: &[Pairs],
        stop: &dyn Fn() -> bool,
        done: &mut dyn FnMut(usize, Result<TextResult, TextError>),
    ) -> Result<Ended, LabelerError> {
        let kind = self.folder.kind.clone();
        let finish = |text: usize, raw: Vec<Vec<f32>>| {
            let of_text = |label: usize| pair_of(pairs, text, label);
            prepared.result(&kind, &of_text, raw)
        };
        let missing: Vec<usize> = (0..texts.len())
            .map(|text| {
                let owners = prepared.owners.iter();
                owners
                    .filter(|label| pair_of(pairs, text, **label) == Pair::Wanted)
                    .count()
            })
            .collect();
        for text in (0..texts.len()).filter(|text| missing[*text] == 0) {
            done(
                text,
                Ok(finish(text, vec![Vec::new(); prepared.owners.len()])),
            );
        }
        let ended = match &prepared.labels {
            Labels::Hypotheses(hypotheses) => {
                let mut rows = Vec::new();
                for (text, ids) in texts.iter().enumerate() {
                    for (label, hypothesis) in hypotheses.iter().enumerate() {
                        if pair_of(pairs, text, prepared.owners[label]) == Pair::Wanted {
                            let len = self.encoder.pair_len(ids, hypothesis);
                            rows.push(BatchRow { text, label, len });
                        }
                    }
                }
                let mut pending: Vec<Pending> = vec![Pending::default(); texts.len()];
                self.compute(
                    rows,
                    &|encoder, row| encoder.pair(&texts[row.text], &hypotheses[row.label]),
                    stop,
                    &mut |row, computed| match computed {
                        Ok(logits) => {
                            let of_text = &mut pending[row.text];
                            if of_text.add(row.label, logits, hypotheses.len()) == missing[row.text]
                            {
                                let raw = std::mem::take(&mut of_text.raw);
                                done(row.text, Ok(finish(row.text, raw)));
                            }
                        }
                        Err(error) => done(row.text, Err(error)),
                    },
                )?
            }
            Labels::Vectors(labels) => {
                let rows = texts.iter().enumerate();
                let rows = rows
                    .filter(|(text, _)| missing[*text] > 0)
                    .map(|(text, ids)| BatchRow {
                        text,
                        label: 0,
                        len: self.encoder.single_len(ids),
                    })
                    .collect();
                self.compute(
                    rows,
                    &|encoder, row| encoder.single(&texts[row.text]),
                    stop,
                    &mut |row, computed| {
                        let finished = |vector| finish(row.text, cosines(vector, labels));
                        done(row.text, computed.map(finished));
                    },
                )?
            }
        };
        Ok(ended)
    }

    /// Scores plain texts and gives what came of each, in their order; `None` where `stop` said so on the way.
    ///
    /// # Errors
    /// As of [`score`](Self::score), and [`LabelerError::Tokenize`].
    pub fn score_all(
        &mut self,
        prepared: &Prepared,
        texts: &[String],
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Result<TextResult, TextError>>>, LabelerError> {
        let encoded = self.encoder.encode(texts)?;
        let mut results = vec![None; texts.len()];
        let ended = self.score(prepared, &encoded, &[], stop, &mut |text, result| {
            results[text] = Some(result);
        })?;
        if ended == Ended::Stopped {
            return Ok(None);
        }
        let reported = |result: Option<_>| result.expect("every text is reported");
        Ok(Some(results.into_iter().map(reported).collect()))
    }

    /// Tokens that scoring a text takes, special ones included, padding not.
    #[expect(clippy::cast_precision_loss, reason = "tokens of one text")]
    pub fn tokens(&self, prepared: &Prepared, text: &EncodedText, pairs: &[Pair]) -> f64 {
        let missing = |label: usize| pairs.get(label).is_none_or(|pair| *pair == Pair::Wanted);
        let tokens: usize = match &prepared.labels {
            Labels::Hypotheses(hypotheses) => hypotheses
                .iter()
                .enumerate()
                .filter(|(label, _)| missing(prepared.owners[*label]))
                .map(|(_, hypothesis)| self.encoder.pair_len(text, hypothesis))
                .sum(),
            Labels::Vectors(_) if prepared.owners.iter().copied().any(missing) => {
                self.encoder.single_len(text)
            }
            Labels::Vectors(_) => 0,
        };
        tokens as f64
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
pub fn fits(kind: &ModelKind, encoder: &Encoder, tokens: usize) -> bool {
    match kind {
        ModelKind::Nli(_) => encoder.room_beside(tokens) > 0,
        ModelKind::Embedding(_) => tokens <= encoder.room(),
    }
}

/// The rows of a text that were computed so far.
#[derive(Debug, Clone, Default)]
struct Pending {
    raw: Vec<Vec<f32>>,
    found: usize,
}

impl Pending {
    /// Adds a row and tells how many there are now.
    fn add(&mut self, label: usize, logits: &[f32], labels: usize) -> usize {
        self.raw.resize(labels, Vec::new());
        self.raw[label] = logits.to_vec();
        self.found += 1;
        self.found
    }
}

fn pair_logits(kind: &ModelKind, raw: &[f32]) -> PairLogits {
    match kind {
        ModelKind::Nli(classes) => PairLogits {
            entailment: raw[classes.entailment],
            contradiction: Some(raw[classes.contradiction]),
            neutral: classes.neutral.map(|class| raw[class]),
        },
        ModelKind::Embedding(_) => PairLogits {
            entailment: raw[0],
            contradiction: None,
            neutral: None,
        },
    }
}

/// The cosine of a vector with each label's, as the logits of one class.
fn cosines(vector: &[f32], labels: &[Vec<f64>]) -> Vec<Vec<f32>> {
    let vector = unit(vector.iter().map(|x| f64::from(*x)).collect());
    let dot = |label: &Vec<f64>| label.iter().zip(&vector).map(|(a, b)| a * b).sum::<f64>();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "stored as f32, and exact enough"
    )]
    labels.iter().map(|label| vec![dot(label) as f32]).collect()
}

/// A vector scaled to length 1; zeros stay zeros.
fn unit(mut vector: Vec<f64>) -> Vec<f64> {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    if length > 0.0 {
        for x in &mut vector {
            *x /= length;
        }
    }
    vector
}

#[cfg(test)]
mod tests;
