//! Runs rows through the engine batch by batch and recovers from failed batches.

use std::collections::{HashSet, VecDeque};

use super::{Completion, Labeler, TextError};
use crate::batch::{self, BatchRow};
use crate::engine::{EngineError, Logits};
use crate::fixed;
use crate::text::{EncodedText, Sequence};
use topicmill_core::ModelKind;

/// Callback for the result of each row.
type OnRow<'a> = dyn FnMut(BatchRow<'_>, Result<&[f32], TextError>) + 'a;

impl Labeler {
    /// Computes rows batch by batch. If one row of a text fails, the text is reported once and its other rows are
    /// skipped.
    pub(super) fn compute(
        &mut self,
        rows: Vec<BatchRow<'_>>,
        stop: &dyn Fn() -> bool,
        done: &mut OnRow<'_>,
    ) -> Result<Completion, EngineError> {
        let batches = batch::plan(rows, self.budget, self.grouping(), self.shapes());
        let mut queue = VecDeque::from(batches);
        let mut failed: HashSet<usize> = HashSet::new();
        while let Some(mut rows) = queue.pop_front() {
            if stop() {
                return Ok(Completion::Cancelled);
            }
            // Skip texts that were already reported as failed.
            rows.retain(|row| !failed.contains(&row.text));
            let Some(longest) = rows.iter().map(BatchRow::tokens).max() else {
                continue;
            };
            // The budget may have shrunk since the batch was planned.
            let padded = self.shapes().tokens(longest, rows.len());
            if rows.len() > 1 && padded > self.budget {
                queue_halves(&mut queue, rows);
                continue;
            }
            let sequences: Vec<Sequence<'_>> = rows.iter().map(|row| row.sequence).collect();
            let error = match self.infer(&sequences) {
                Ok(logits) => {
                    for (i, row) in rows.iter().enumerate() {
                        done(*row, Ok(logits.row(i)));
                    }
                    continue;
                }
                Err(error) => error,
            };
            let out_of_memory = matches!(error, EngineError::OutOfMemory { .. });
            if out_of_memory {
                self.engine.restart()?;
            }
            if let [row] = rows[..] {
                let error = self.text_error(error, row.tokens())?;
                failed.insert(row.text);
                done(row, Err(error));
                continue;
            }
            if out_of_memory {
                self.computed.oom_splits += 1;
                self.set_batch_tokens(padded / 2);
            }
            tracing::warn!(
                rows = rows.len(),
                batch_tokens = self.budget,
                "a batch failed and is retried in halves: {error}"
            );
            queue_halves(&mut queue, rows);
        }
        Ok(Completion::Done)
    }

    /// Returns the error for a text with a row of this many tokens, which the engine could not compute.
    ///
    /// # Errors
    /// Returns the engine's own error if the engine cannot compute a row without text either. One bad text must not end
    /// the run, and a broken engine must not fail all texts one by one.
    fn text_error(&mut self, error: EngineError, tokens: usize) -> Result<TextError, EngineError> {
        match self.infer_empty() {
            Ok(_) => {}
            // A model that has never returned numbers is broken.
            Err(EngineError::NotFinite(_)) if self.width.is_some() => {}
            Err(_) => return Err(error),
        }
        Ok(match error {
            EngineError::OutOfMemory { .. } => TextError::OutOfMemory(tokens),
            EngineError::NotFinite(_) => TextError::NotFinite,
            other => TextError::Engine(other),
        })
    }

    /// Returns the number of dimensions of a text's vector; `None` if the model is not an embedding model.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn dimensions(&mut self) -> Result<Option<usize>, EngineError> {
        match self.folder.kind {
            ModelKind::Embedding(_) => self.width().map(Some),
            ModelKind::Nli(_) | ModelKind::Classifier(_) | ModelKind::Gliclass(_) => Ok(None),
        }
    }

    /// Returns the number of outputs per row.
    pub(super) fn width(&mut self) -> Result<usize, EngineError> {
        match self.width {
            Some(width) => Ok(width),
            None => Ok(self.infer_empty()?.width),
        }
    }

    /// Computes a row without text.
    fn infer_empty(&mut self) -> Result<Logits, EngineError> {
        let (encoder, nothing) = (self.encoder(), EncodedText::default());
        let prompt = encoder.empty_prompt();
        self.infer(&[encoder.row(&self.folder.kind, &nothing, &prompt)])
    }

    /// Computes a batch, padded to a shape that suits the engine, and checks that its output is finite.
    pub(super) fn infer(&mut self, rows: &[Sequence<'_>]) -> Result<Logits, EngineError> {
        let lens = rows.iter().map(|row| row.tokens());
        let longest = lens.clone().max().unwrap_or(0);
        let (shapes, pad_id) = (self.shapes(), self.encoder.pad_id());
        let shape = shapes.padded_shape(longest, rows.len(), self.folder.fixed);
        let ids: Vec<_> = rows.iter().map(|row| row.ids()).collect();
        let width = self.folder.kind.width();
        let logits = fixed::infer(&mut *self.engine, &ids, longest, shape, pad_id, width)?;
        match logits.data.iter().filter(|x| !x.is_finite()).count() {
            0 => {
                self.computed.tokens += lens.sum::<usize>() as u64;
                self.computed.padded_tokens += shapes.tokens(longest, rows.len()) as u64;
                if self.width.is_none() && self.are_probabilities(&logits) {
                    tracing::warn!(
                        model = %self.folder.name,
                        "the graph seems to return probabilities, not logits: its scores are too close to each other; \
                         export it without the softmax"
                    );
                }
                self.width = Some(logits.width);
                Ok(logits)
            }
            count => Err(EngineError::NotFinite(count)),
        }
    }

    /// Returns true if the logits of a graph without a manifest look like the result of a softmax.
    fn are_probabilities(&self, logits: &Logits) -> bool {
        let is_probability = |x: &f32| (0.0..=1.0).contains(x);
        let is_softmax = |row: &[f32]| {
            row.iter().all(is_probability) && (row.iter().sum::<f32>() - 1.0).abs() < 1e-4
        };
        let kind = &self.folder.kind;
        let has_softmax = matches!(kind, ModelKind::Nli(_) | ModelKind::Classifier(_));
        let unchecked = has_softmax && self.folder.spec.is_none() && logits.width > 1;
        unchecked && (0..logits.rows).all(|row| is_softmax(logits.row(row)))
    }
}

/// Queues both halves of a batch at the front: a started text holds memory until its last row, so it should finish
/// first.
fn queue_halves<'r>(queue: &mut VecDeque<Vec<BatchRow<'r>>>, mut rows: Vec<BatchRow<'r>>) {
    let rest = rows.split_off(rows.len() / 2);
    queue.push_front(rest);
    queue.push_front(rows);
}
