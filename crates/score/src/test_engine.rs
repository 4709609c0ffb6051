//! An engine for tests, without a model or a runtime, that fails on demand.

use std::path::Path;

use super::batch::Batch;
use super::engine::{Engine, EngineError, Logits};
use crate::folder::ModelFolder;

/// An engine that computes each row from its ids alone, independently of the other rows of a batch.
pub struct ScriptedEngine {
    /// Numbers per row.
    pub classes: usize,
    /// Maximum number of padded tokens in a batch; a larger batch runs out of memory.
    pub max_batch_tokens: usize,
    /// Rows with this token id yield NaN.
    pub nan_id: i64,
    /// Batches with this token id fail.
    pub failing_id: i64,
    /// Number of batches before the engine breaks permanently.
    pub batches_left: usize,
    /// True if the engine prefers few batch shapes, like a GPU.
    pub few_shapes: bool,
}

impl Default for ScriptedEngine {
    fn default() -> Self {
        Self {
            classes: 3,
            max_batch_tokens: usize::MAX,
            nan_id: -1,
            failing_id: -1,
            batches_left: usize::MAX,
            few_shapes: false,
        }
    }
}

impl Engine for ScriptedEngine {
    #[expect(clippy::cast_possible_wrap, reason = "small numbers")]
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        if batch.ids.len() > self.max_batch_tokens {
            return Err(EngineError::OutOfMemory {
                rows: batch.rows(),
                width: batch.width,
                detail: "scripted".into(),
            });
        }
        let Some(left) = self.batches_left.checked_sub(1) else {
            return Err(EngineError::Run("no device".into()));
        };
        self.batches_left = left;
        if batch.ids.contains(&self.failing_id) {
            return Err(EngineError::Run("scripted".into()));
        }
        let mut data = Vec::new();
        for (row, len) in batch.lens.iter().enumerate() {
            let ids = &batch.ids[row * batch.width..row * batch.width + len];
            let sum: i64 = ids
                .iter()
                .enumerate()
                .map(|(i, id)| id * (i as i64 + 1))
                .sum();
            let is_nan = ids.contains(&self.nan_id);
            data.extend((0..self.classes).map(|class| {
                if is_nan {
                    f32::NAN
                } else {
                    ((sum + class as i64 * 37) % 101) as f32 / 10.0 - 5.0
                }
            }));
        }
        Ok(Logits {
            rows: batch.rows(),
            width: self.classes,
            data,
        })
    }

    fn wants_few_shapes(&self) -> bool {
        self.few_shapes
    }
}

/// Returns the default model's folder, declared as an NLI model.
pub fn nli_folder() -> ModelFolder {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/minilm-reddit-topics");
    let mut folder = ModelFolder::open(&dir, None).unwrap();
    folder.kind = topicmill_core::test_examples::nli();
    folder
}
