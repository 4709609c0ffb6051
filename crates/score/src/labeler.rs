//! Scores texts with one model: combines the model folder, the tokenizer and the engine.
//!
//! A [`Labeler`] is owned by the thread that computes. Its [`Encoder`] is shared, so that another thread can tokenise
//! the next texts at the same time. Scoring accesses no database and no files: the caller passes in encoded texts, and
//! a callback receives each result as soon as the last row of its text is computed.

mod compute;
mod error;
mod prepare;
mod prepared;
mod prompt;
mod vectors;

use std::sync::Arc;

pub use self::error::{LabelerError, TextError};
pub use self::prepare::fits_window;
use self::prepared::Outputs;
pub use self::prepared::PreparedLabels;
pub use self::prompt::prompt;
use super::batch::{self, BatchRow, Grouping, Shapes};
use super::engine::{Engine, EngineError};
use super::text::{EncodedText, Encoder};
use crate::folder::ModelFolder;
use topicmill_core::record::ComputeStats;
use topicmill_core::{LabelSet, ModelKind, PairLogits, Scores, TextVector};

/// Padded tokens of a batch if scores depend on the batch; small enough for a CPU's cache.
const BATCH_DEPENDENT_TOKENS: usize = 512;

/// Result of one text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextResult {
    /// Scores.
    pub scores: Scores,
    /// Logits, one per label, then the background's; `None` for skipped labels.
    pub logits: Vec<Option<PairLogits>>,
    /// Raw output per label: the class logits of an NLI model, in the order of the model; the cosine of an embedding
    /// model; the logit of a classifier or GLiClass model. Empty if the logits were known or the label was skipped, and
    /// for a background of several topics.
    pub raw: Vec<Vec<f32>>,
    /// Vector of the text, if an embedding model computed it.
    pub vector: Option<TextVector>,
}

/// State of a (text, label) pair before scoring.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum PairState {
    /// Must be computed.
    #[default]
    Wanted,
    /// Computed earlier.
    Known(PairLogits),
    /// Skipped by a shortlist: it is never computed, and its score is 0.
    Skipped,
}

impl From<Option<PairLogits>> for PairState {
    /// Returns the state of a pair, given its stored logits.
    fn from(stored: Option<PairLogits>) -> Self {
        stored.map_or(Self::Wanted, Self::Known)
    }
}

/// States of a text's pairs, one per label, then the background's; empty if all are wanted.
pub type Pairs = Vec<PairState>;

/// Returns the state of a (text, label) pair: wanted, unless `pairs` contains a different state for it.
fn pair_state(pairs: &[Pairs], text: usize, label: usize) -> PairState {
    let of_text = pairs.get(text).and_then(|pairs| pairs.get(label));
    of_text.copied().unwrap_or_default()
}

/// Returns the slug of the label at this place of the set for messages; after the labels come background topics.
fn name_of(set: &LabelSet, place: usize) -> &str {
    let label = set.labels.get(place);
    label.map_or("a background topic", |label| &label.slug)
}

/// Outcome of a call to [`Labeler::score`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Every text was reported.
    Done,
    /// Cancelled; any text that was not reported has not been scored.
    Cancelled,
}

/// Scores texts against labels with one model.
pub struct Labeler {
    folder: ModelFolder,
    encoder: Arc<Encoder>,
    engine: Box<dyn Engine>,
    budget: usize,
    computed: ComputeStats,
    /// Number of outputs per row, once known.
    width: Option<usize>,
    /// Keys of the labels for which the learned-vector notice was last logged.
    logged_keys: Vec<String>,
    /// The background that was last logged: its tag, and the topics that were left out because of the labels.
    logged_background: (String, String),
}

impl Labeler {
    /// Combines a model and an engine. `batch_tokens` limits rows × longest row in a batch.
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
            // `set_batch_tokens` replaces this value, unless scores depend on the batch.
            budget: BATCH_DEPENDENT_TOKENS,
            computed: ComputeStats::default(),
            width: None,
            logged_keys: Vec::new(),
            logged_background: (String::new(), String::new()),
        };
        labeler.set_batch_tokens(batch_tokens);
        Ok(labeler)
    }

    /// Returns the counts since the last call and resets them. Failed batches are not counted.
    pub fn take_stats(&mut self) -> ComputeStats {
        std::mem::take(&mut self.computed)
    }

    /// Returns the padded-token budget of a batch, which shrinks after running out of memory.
    pub fn batch_tokens(&self) -> usize {
        self.budget
    }

    /// Sets the padded-token budget of a batch. It has no effect if scores depend on the batch, because a different
    /// size would change them.
    pub fn set_batch_tokens(&mut self, batch_tokens: usize) {
        if !self.folder.depends_on_batch() {
            self.budget = batch_tokens.max(1);
        }
    }

    /// Restarts the engine and frees its memory.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn restart(&mut self) -> Result<(), EngineError> {
        self.engine.restart()
    }

    /// Returns the constraint on the rows that may share a batch.
    pub fn grouping(&self) -> Grouping {
        if self.folder.depends_on_batch() {
            Grouping::ByText
        } else {
            Grouping::Mixed
        }
    }

    /// Returns the constraint on batch shapes: few shapes if the engine prefers that and scores do not depend on the
    /// batch; a single width if scores depend on the width, unless the graph fixes it.
    pub fn shapes(&self) -> Shapes {
        let window = self.folder.max_tokens;
        if self.folder.depends_on_width() && self.folder.fixed.width.is_none() {
            // An embedding is usually the mean of all tokens. The last layers of other models read only a few tokens of
            // each row, so with few rows the order of summation depends on their number.
            let min_rows = match self.folder.kind {
                ModelKind::Embedding(_) => 1,
                ModelKind::Nli(_) | ModelKind::Classifier(_) | ModelKind::Gliclass(_) => {
                    batch::MIN_ROWS
                }
            };
            Shapes::OneWidth { window, min_rows }
        } else if self.engine.wants_few_shapes()
            && !self.folder.depends_on_batch()
            // Batches for a graph with a fixed shape have that shape anyway.
            && !self.folder.fixed.is_fixed()
        {
            Shapes::Few { window }
        } else {
            Shapes::Any
        }
    }

    /// Computes one batch and discards the result, to measure its duration.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn compute_batch(&mut self, rows: &[BatchRow<'_>]) -> Result<(), EngineError> {
        let sequences: Vec<_> = rows.iter().map(|row| row.sequence).collect();
        self.infer(&sequences).map(drop)
    }

    /// Returns the model folder.
    pub fn folder(&self) -> &ModelFolder {
        &self.folder
    }

    /// Returns the model's tokenizer, for use on any thread.
    pub fn encoder(&self) -> Arc<Encoder> {
        Arc::clone(&self.encoder)
    }

    /// Scores texts and calls `done` with each text's index and result as soon as the result is available, in no
    /// particular order. Polls `stop` between batches; scoring is cancelled if `stop` returns true.
    ///
    /// Only wanted pairs are computed; a text without a wanted pair costs no inference. Each text must have a label
    /// that is not skipped.
    ///
    /// A failed batch is retried in halves, down to the failing row. After running out of memory, the budget remains
    /// halved.
    ///
    /// # Errors
    /// [`LabelerError::Engine`] if the engine is broken: it cannot even compute a row without text.
    pub fn score(
        &mut self,
        prepared: &PreparedLabels,
        texts: &[EncodedText],
        pairs: &[Pairs],
        stop: &dyn Fn() -> bool,
        done: &mut dyn FnMut(usize, Result<TextResult, TextError>),
    ) -> Result<Completion, LabelerError> {
        // A fit reads the text's vector, which known pairs do not include.
        let pairs = if prepared.needs_vectors() { &[] } else { pairs };
        let is_wanted = |text, label| pair_state(pairs, text, label) == PairState::Wanted;
        let finish = |text: usize, outputs: &mut Outputs| {
            let state = |label: usize| pair_state(pairs, text, label);
            Ok(prepared.result(&state, std::mem::take(outputs)))
        };
        let mut outputs: Vec<Outputs> = (0..texts.len())
            .map(|text| {
                let labels = prepared.owners.iter();
                Outputs::new(labels.filter(|label| is_wanted(text, **label)).count())
            })
            .collect();
        // Texts without a wanted pair have no row that would report them.
        for (text, outputs) in outputs.iter_mut().enumerate() {
            if outputs.missing == 0 {
                done(text, finish(text, outputs));
            }
        }
        let encoder = self.encoder();
        let rows = prepared.rows(&encoder, texts, is_wanted);
        let completion = self.compute(rows, stop, &mut |row, computed| {
            let outputs = &mut outputs[row.text];
            match computed.and_then(|logits| prepared.add_row(outputs, row.label, logits)) {
                Err(error) => done(row.text, Err(error)),
                Ok(()) if outputs.missing == 0 => done(row.text, finish(row.text, outputs)),
                Ok(()) => {}
            }
        })?;
        Ok(completion)
    }

    /// Scores plain texts, with some pairs known. Returns their results in order, or `None` if `stop` cancelled the
    /// scoring. A text without a wanted pair is not tokenised. `pairs` may be empty.
    ///
    /// # Errors
    /// The errors of [`score`](Self::score), and [`LabelerError::Tokenize`].
    pub fn score_all(
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
        let read: Vec<&str> = texts
            .iter()
            .enumerate()
            .map(|(text, words)| if is_read(text) { words } else { "" })
            .collect();
        let encoded = self.encoder.encode(&read)?;
        let mut results = vec![None; texts.len()];
        let completion = self.score(prepared, &encoded, pairs, stop, &mut |text, result| {
            results[text] = Some(result);
        })?;
        if completion == Completion::Cancelled {
            return Ok(None);
        }
        let reported = |result: Option<_>| result.expect("every text is reported");
        Ok(Some(results.into_iter().map(reported).collect()))
    }

    /// Returns the number of tokens to compute for a text, special tokens included, without padding.
    pub fn tokens(
        &self,
        prepared: &PreparedLabels,
        text: &EncodedText,
        pairs: &[PairState],
    ) -> f64 {
        let is_wanted =
            |label: usize| pairs.get(label).copied().unwrap_or_default() == PairState::Wanted;
        let text = std::slice::from_ref(text);
        let rows = prepared.rows(&self.encoder, text, |_, label| is_wanted(label));
        rows.iter().map(BatchRow::tokens).sum::<usize>() as f64
    }
}

#[cfg(test)]
mod tests;
