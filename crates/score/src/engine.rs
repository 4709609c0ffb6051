//! The engine trait. In: one batch of tokens, padded to a shape that the graph accepts. Out: the model's logits. It is
//! implemented with ONNX Runtime, with OpenVINO and, for tests, by a scripted engine.

use super::batch::Batch;

/// Output of a model for a batch: `rows` × `width` numbers, row by row.
///
/// A row contains the logit of each class for an NLI model or a classifier, the logit of each label for a GLiClass
/// model, or the text's vector for an embedding model.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    /// Number of rows, the same as in the batch.
    pub rows: usize,
    /// Numbers per row: classes, labels or dimensions.
    pub width: usize,
    /// The numbers, row by row.
    pub data: Vec<f32>,
}

impl Logits {
    /// Checks the shape of an engine's output.
    ///
    /// # Errors
    /// [`EngineError::Shape`] unless the output is a matrix, or a vector with one number per row.
    pub(crate) fn shaped(dims: &[i64], data: Vec<f32>) -> Result<Self, EngineError> {
        let size = |n: i64| usize::try_from(n).expect("the size is positive");
        let (rows, width) = match *dims {
            [rows, width] if rows > 0 && width > 0 => (size(rows), size(width)),
            // Some exports omit the last dimension if it is 1.
            [rows] if rows > 0 => (size(rows), 1),
            _ => {
                return Err(EngineError::Shape(format!(
                    "the output has shape {dims:?}, not [rows, numbers]"
                )));
            }
        };
        Ok(Self { rows, width, data })
    }

    /// Returns the numbers of one row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.width..(row + 1) * self.width]
    }
}

/// Reasons why a batch could not be computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The batch needs more memory than is available.
    #[error("cannot compute a batch of {rows} × {width} tokens: out of memory ({detail})")]
    OutOfMemory {
        /// Rows in the batch.
        rows: usize,
        /// Width of the batch.
        width: usize,
        /// The runtime's message.
        detail: String,
    },
    /// The model returned infinities or NaN.
    #[error("cannot use the model's output: {0} of the numbers are not finite")]
    NotFinite(usize),
    /// The output does not have the shape that the model folder declares.
    #[error(
        "cannot use the model's output: {0}; the graph does not match its `config.json`, export the model again"
    )]
    Shape(String),
    /// The batch contains a token id outside the vocabulary.
    #[error(
        "cannot compute a batch: token id {0} is outside the model's vocabulary of {1}; `tokenizer.json` belongs to \
         another model, export the model and its tokenizer again"
    )]
    Token(i64, usize),
    /// The runtime failed.
    #[error("cannot compute a batch: {0}")]
    Run(String),
}

impl EngineError {
    /// Returns the error for a batch that a runtime failed to compute with this message.
    pub(crate) fn from_message(message: &str, batch: &Batch) -> Self {
        if is_out_of_memory(message) {
            Self::OutOfMemory {
                rows: batch.rows(),
                width: batch.width,
                detail: message.to_owned(),
            }
        } else {
            Self::Run(message.to_owned())
        }
    }
}

/// Recognises out-of-memory errors by their text, because the runtimes have no error code for them.
pub(crate) fn is_out_of_memory(message: &str) -> bool {
    const SIGNS: &[&str] = &[
        "failed to allocate memory",
        "cannot allocate memory",
        "failed to map segment from shared object",
        "out of memory",
        "bad_alloc",
        "cublas_status_alloc_failed",
        "cudnn_status_alloc_failed",
        "cudaerrormemoryallocation",
    ];
    let lower = message.to_lowercase();
    // On a file system that is mounted `noexec`, loaders fail with `failed to map segment … not permitted`.
    SIGNS.iter().any(|sign| lower.contains(sign)) && !lower.contains("not permitted")
}

/// Runs batches. Synchronous, and owned by the thread that feeds it.
pub trait Engine: Send {
    /// Runs one batch.
    ///
    /// # Errors
    /// See [`EngineError`]. After [`EngineError::OutOfMemory`], call [`restart`](Self::restart). After any other error
    /// the engine may still work; the next batch shows whether it does.
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError>;

    /// Rebuilds the engine after [`EngineError::OutOfMemory`], which may leave it unusable.
    ///
    /// # Errors
    /// See [`EngineError`].
    fn restart(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Returns true if each new batch shape costs time or memory, as on a GPU; the labeler then uses few shapes.
    fn wants_few_shapes(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_memory_is_recognised_by_the_message() {
        let batch = Batch {
            ids: vec![1, 2],
            type_ids: vec![0, 0],
            lens: vec![2],
            width: 2,
        };
        for message in [
            "Non-zero status code: BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of \
             size 99",
            "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0",
            "CUDA failure 2: out of memory ; GPU=0",
            "std::bad_alloc",
        ] {
            assert!(
                matches!(
                    EngineError::from_message(message, &batch),
                    EngineError::OutOfMemory { .. }
                ),
                "{message}"
            );
        }
        assert!(matches!(
            EngineError::from_message("indices element out of data bounds", &batch),
            EngineError::Run(_)
        ));
    }
}
