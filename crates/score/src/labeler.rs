//! Texts to scores: folder, encoder and engine put together.
//!
//! A [`Labeler`] is owned by the thread that computes; its [`Encoder`] is shared, so that another thread can
//! tokenise the next texts meanwhile. It knows no database and no file: the caller hands in encoded texts and
//! is called back with the result of each, as soon as its last row was computed.

mod compute;
mod error;
mod prepared;
mod times;

use std::sync::Arc;
use std::time::Duration;

pub use self::error::{LabelerError, TextError};
use self::prepared::Labels;
pub use self::prepared::{PreparedLabels, fits_window};
pub use self::times::BatchTimes;
use super::batch::{self, Batch, BatchRow, Grouping, Shapes};
use super::embedding::TextVector;
use super::engine::{Engine, EngineError};
use super::text::{EncodedText, Encoder, Sequence};
use crate::folder::{ModelFolder, ModelKind};
use crate::score::{PairLogits, Scores};

/// Padded tokens of a batch where a score depends on its batch: few, because a CPU's cache is small.
const BATCH_DEPENDENT_TOKENS: usize = 512;

/// What came of one text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextResult {
    /// Its scores.
    pub scores: Scores,
    /// Its logits, one a label, and the background's after them; of what was left out there are none.
    pub logits: Vec<Option<PairLogits>>,
    /// For each label every class logit in the order of the model; of an embedding model the cosine, of a classifier the
    /// label's logit. Empty
    /// where the logits were known, or the label left out, and for a background of several topics.
    pub raw: Vec<Vec<f32>>,
    /// The vector of the text, where an embedding model computed it.
    pub vector: Option<TextVector>,
}

/// How it stands with a text and a label.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum PairState {
    /// To be computed.
    #[default]
    Wanted,
    /// Computed before.
    Known(PairLogits),
    /// Left out by a shortlist: never computed, and its score is 0.
    LeftOut,
}

/// The pairs of a text, one a label, and the background's after them; an empty list where all of them are wanted.
pub type Pairs = Vec<PairState>;

/// How it stands with a text and a label.
fn pair_state(pairs: &[Pairs], text: usize, label: usize) -> PairState {
    let of_text = pairs.get(text).and_then(|pairs| pairs.get(label));
    of_text.copied().unwrap_or_default()
}

/// How a call to [`Labeler::score`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Every text was reported.
    Done,
    /// Asked to stop; texts that were not reported are not done.
    Cancelled,
}

/// What an engine did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ComputeStats {
    /// Tokens of rows, special ones included.
    pub tokens: u64,
    /// With what batches were filled up with: rows × width, summed over batches.
    pub padded_tokens: u64,
    /// Batches that were halved because the memory ran out.
    pub oom_splits: u64,
    /// How long batches took, where there is a clock: see [`Labeler::set_stopwatch`].
    pub batches: BatchTimes,
}

/// The time that passed since some moment.
pub type Stopwatch = Box<dyn Fn() -> Duration + Send>;

impl ComputeStats {
    fn add(&mut self, batch: &Batch, padded_tokens: usize) {
        self.tokens += batch.lens.iter().sum::<usize>() as u64;
        self.padded_tokens += padded_tokens as u64;
    }
}

/// Scores texts against labels with one model.
pub struct Labeler {
    folder: ModelFolder,
    encoder: Arc<Encoder>,
    engine: Box<dyn Engine>,
    budget: usize,
    computed: ComputeStats,
    watch: Option<Stopwatch>,
    /// Numbers of a row, once one was computed.
    width: Option<usize>,
    /// Of which labels it was said last whether their vectors are learned.
    logged_keys: Vec<String>,
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
            // Stays so where a score depends on its batch.
            budget: BATCH_DEPENDENT_TOKENS,
            computed: ComputeStats::default(),
            watch: None,
            width: None,
            logged_keys: Vec::new(),
        };
        labeler.set_batch_tokens(batch_tokens);
        Ok(labeler)
    }

    /// What was computed since this was asked last; a batch that failed does not count.
    pub fn take_stats(&mut self) -> ComputeStats {
        std::mem::take(&mut self.computed)
    }

    /// Measures from now on how long each batch of [`score`](Self::score) takes.
    pub fn set_stopwatch(&mut self, watch: Stopwatch) {
        self.watch = Some(watch);
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
    pub fn rows(&self, prepared: &PreparedLabels, texts: &[EncodedText]) -> Vec<BatchRow> {
        self.rows_of(prepared, texts, |_, _| true)
    }

    /// The rows that texts take for the places that are wanted, of each text by its index.
    fn rows_of(
        &self,
        prepared: &PreparedLabels,
        texts: &[EncodedText],
        is_wanted: impl Fn(usize, usize) -> bool,
    ) -> Vec<BatchRow> {
        let mut rows = Vec::new();
        for (text, ids) in texts.iter().enumerate() {
            let mut owners = prepared.owners.iter();
            if let Labels::Hypotheses(hypotheses) = &prepared.labels {
                for (label, (hypothesis, owner)) in hypotheses.iter().zip(owners).enumerate() {
                    if is_wanted(text, *owner) {
                        let len = self.encoder.pair_len(ids, hypothesis);
                        rows.push(BatchRow { text, label, len });
                    }
                }
            } else if owners.any(|owner| is_wanted(text, *owner)) {
                let (label, len) = (0, self.encoder.single_len(ids));
                rows.push(BatchRow { text, label, len });
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
        batch::plan(rows, batch_tokens, grouping, self.shapes())
    }

    /// Which shapes batches may have: few where the engine wants that, and where a score does not depend on its batch; of
    /// one width where a score depends on that, unless the graph has one width only.
    pub fn shapes(&self) -> Shapes {
        let window = self.folder.max_tokens;
        if self.folder.depends_on_width() && self.folder.fixed.width.is_none() {
            // An embedding is the mean of all tokens, as a rule; a classifier looks at the first one.
            let min_rows = match self.folder.kind {
                ModelKind::Embedding(_) => 1,
                ModelKind::Nli(_) | ModelKind::Classifier(_) => batch::MIN_ROWS,
            };
            Shapes::OneWidth { window, min_rows }
        } else if self.engine.wants_few_shapes() && !self.folder.depends_on_batch() {
            Shapes::Few { window }
        } else {
            Shapes::Any
        }
    }

    /// Computes one batch for its time alone.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn compute_batch(
        &mut self,
        prepared: &PreparedLabels,
        texts: &[EncodedText],
        rows: &[BatchRow],
    ) -> Result<(), EngineError> {
        let sequence = |row: &BatchRow| prepared.sequence(&self.encoder, texts, *row);
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
        prepared: &PreparedLabels,
        texts: &[EncodedText],
        pairs: &[Pairs],
        stop: &dyn Fn() -> bool,
        done: &mut dyn FnMut(usize, Result<TextResult, TextError>),
    ) -> Result<Completion, LabelerError> {
        // A fit reads the vector of a text, and pairs that are known do not have it.
        let pairs = if prepared.needs_vectors() { &[] } else { pairs };
        let finish = |text: usize, raw: Vec<Vec<f32>>, vector: Option<TextVector>| {
            let of_text = |label: usize| pair_state(pairs, text, label);
            prepared.result(&of_text, raw, vector)
        };
        let missing: Vec<usize> = (0..texts.len())
            .map(|text| {
                let owners = prepared.owners.iter();
                owners
                    .filter(|label| pair_state(pairs, text, **label) == PairState::Wanted)
                    .count()
            })
            .collect();
        // They need no batch, and no row of theirs would ever report them.
        for text in (0..texts.len()).filter(|text| missing[*text] == 0) {
            let nothing = vec![Vec::new(); prepared.owners.len()];
            done(text, Ok(finish(text, nothing, None)));
        }
        if texts.is_empty() {
            return Ok(Completion::Done);
        }
        let is_wanted = |text, place| pair_state(pairs, text, place) == PairState::Wanted;
        let rows = self.rows_of(prepared, texts, is_wanted);
        let mut pending: Vec<Pending> = vec![Pending::default(); texts.len()];
        let sequence = |encoder: &Encoder, row| prepared.sequence(encoder, texts, row);
        let ended = self.compute(rows, &sequence, stop, &mut |row, computed| {
            let logits = match computed {
                Ok(logits) => logits,
                Err(error) => return done(row.text, Err(error)),
            };
            if let Labels::Hypotheses(_) = prepared.labels {
                let of_text = &mut pending[row.text];
                let all = prepared.owners.len();
                if of_text.add(row.label, logits, all) == missing[row.text] {
                    let raw = std::mem::take(&mut of_text.raw);
                    done(row.text, Ok(finish(row.text, raw, None)));
                }
            } else {
                let of_places = split_row(&prepared.labels, logits);
                let finished = of_places.map(|(rows, vector)| finish(row.text, rows, vector));
                done(row.text, finished);
            }
        })?;
        Ok(ended)
    }

    /// Scores plain texts and gives what came of each, in their order; `None` where `stop` said so on the way.
    ///
    /// # Errors
    /// As of [`score`](Self::score), and [`LabelerError::Tokenize`].
    pub fn score_all(
        &mut self,
        prepared: &PreparedLabels,
        texts: &[String],
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Result<TextResult, TextError>>>, LabelerError> {
        self.score_with_known(prepared, texts, &[], stop)
    }

    /// The same, where some pairs are known; a text without one that is wanted is not read. `pairs` may be empty.
    ///
    /// # Errors
    /// As of [`score_all`](Self::score_all).
    pub fn score_with_known(
        &mut self,
        prepared: &PreparedLabels,
        texts: &[String],
        pairs: &[Pairs],
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Result<TextResult, TextError>>>, LabelerError> {
        let is_read = |text: usize| {
            let pairs = pairs.get(text);
            pairs.is_none_or(|pairs| pairs.is_empty() || pairs.contains(&PairState::Wanted))
        };
        let encoded = if (0..texts.len()).all(is_read) {
            self.encoder.encode(texts)?
        } else {
            let read = |(text, words): (usize, &String)| {
                if is_read(text) {
                    words.clone()
                } else {
                    String::new()
                }
            };
            let texts: Vec<String> = texts.iter().enumerate().map(read).collect();
            self.encoder.encode(&texts)?
        };
        let mut results = vec![None; texts.len()];
        let ended = self.score(prepared, &encoded, pairs, stop, &mut |text, result| {
            results[text] = Some(result);
        })?;
        if ended == Completion::Cancelled {
            return Ok(None);
        }
        let reported = |result: Option<_>| result.expect("every text is reported");
        Ok(Some(results.into_iter().map(reported).collect()))
    }

    /// Tokens that scoring a text takes, special ones included, padding not.
    #[expect(clippy::cast_precision_loss, reason = "tokens of one text")]
    pub fn tokens(
        &self,
        prepared: &PreparedLabels,
        text: &EncodedText,
        pairs: &[PairState],
    ) -> f64 {
        let missing = |label: usize| {
            pairs
                .get(label)
                .is_none_or(|pair| *pair == PairState::Wanted)
        };
        let rows = self.rows_of(prepared, std::slice::from_ref(text), |_, place| {
            missing(place)
        });
        rows.iter().map(|row| row.len).sum::<usize>() as f64
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
        // Rows of a text come in any order, because batches are made by length.
        self.raw.resize(labels, Vec::new());
        self.raw[label] = logits.to_vec();
        self.found += 1;
        self.found
    }
}

/// What one row of a text says of each label, and the vector that it is, if it is one.
fn split_row(
    labels: &Labels,
    raw: &[f32],
) -> Result<(Vec<Vec<f32>>, Option<TextVector>), TextError> {
    match labels {
        Labels::Vectors(labels) => {
            let vector = TextVector::quantize(raw);
            let cosines = vector.cosines(labels).ok_or_else(|| width_mismatch(raw))?;
            Ok((
                cosines.into_iter().map(|cosine| vec![cosine]).collect(),
                Some(vector),
            ))
        }
        Labels::Classes(classes) => Ok((
            classes.iter().map(|class| vec![raw[*class]]).collect(),
            None,
        )),
        Labels::Hypotheses(_) => unreachable!("a text has a row for each hypothesis"),
    }
}

/// A text's vector that is longer or shorter than a label's.
fn width_mismatch(raw: &[f32]) -> TextError {
    TextError::Engine(EngineError::Shape(format!(
        "it gave {} numbers for a text, and another number of them for a label",
        raw.len()
    )))
}

#[cfg(test)]
mod tests;
