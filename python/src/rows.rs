//! Computes scores or vectors of texts with a model, one row per text, in input order.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use rayon::ThreadPool;
use topicmill_core::reddit::{decode_entities, is_placeholder, reddit_text};
use topicmill_score::labeler::{Completion, PreparedLabels};
use topicmill_score::text::{EncodedText, Encoder, TokenizeError};
use topicmill_score::{Labeler, LabelerError, TextError, TextResult};

/// Number of texts that are batched together; the same as in `topicmill score`, so that both compute the same batches.
const WINDOW_ROWS: usize = 4_096;

/// Number of texts that are tokenised between checks for cancellation.
const TOKENISE_CHUNK: usize = 512;

/// Interval of checks for cancellation while waiting for tokenised texts: short for a user, long for a CPU.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Result arrays, one row per text. A text that was not scored has the label -1 and NaN elsewhere.
pub struct Rows {
    /// Index of the label; -1 if there is none, or its score is below the threshold.
    pub label: Vec<i32>,
    pub score: Vec<f64>,
    pub margin: Vec<f64>,
    /// Score of each label, text by text, if requested.
    pub scores: Option<Vec<f32>>,
    /// Logit of each label, text by text, if requested.
    pub logits: Option<Vec<f32>>,
    /// Rows that could not be scored, with the reason.
    pub failed: Vec<(usize, String)>,
    labels: usize,
}

impl Rows {
    /// Creates rows of texts that are not scored yet.
    pub fn new(texts: usize, labels: usize, with_scores: bool, with_logits: bool) -> Self {
        let matrix = |asked: bool| asked.then(|| vec![f32::NAN; texts * labels]);
        Self {
            label: vec![-1; texts],
            score: vec![f64::NAN; texts],
            margin: vec![f64::NAN; texts],
            scores: matrix(with_scores),
            logits: matrix(with_logits),
            failed: Vec::new(),
            labels,
        }
    }

    /// Sets the result of a row.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "Python gets scores as float32, and labels are few"
    )]
    pub fn set(&mut self, row: usize, outcome: Result<TextResult, TextError>) {
        let TextResult { scores, logits, .. } = match outcome {
            Ok(result) => result,
            Err(error) => return self.failed.push((row, error.to_string())),
        };
        if !scores.is_abstention() {
            self.label[row] = scores.best as i32;
        }
        self.score[row] = scores.scores[scores.best];
        self.margin[row] = scores.margin;
        let places = row * self.labels..(row + 1) * self.labels;
        if let Some(matrix) = &mut self.scores {
            let of_row = matrix[places.clone()].iter_mut().zip(&scores.scores);
            of_row.for_each(|(place, score)| *place = *score as f32);
        }
        if let Some(matrix) = &mut self.logits {
            for (place, logits) in matrix[places].iter_mut().zip(&logits) {
                *place = logits.map_or(f32::NAN, |logits| logits.entailment);
            }
        }
    }
}

/// Vectors of texts, text by text. A text without a vector has NaN.
pub struct Vectors {
    pub numbers: Vec<f32>,
    /// Rows that could not be computed, with the reason.
    pub failed: Vec<(usize, String)>,
    dimensions: usize,
}

impl Vectors {
    /// Creates vectors of texts that are not computed yet.
    pub fn new(texts: usize, dimensions: usize) -> Self {
        Self {
            numbers: vec![f32::NAN; texts * dimensions],
            failed: Vec::new(),
            dimensions,
        }
    }

    /// Sets the vector of a row; for embedding models only.
    pub fn set(&mut self, row: usize, outcome: Result<TextResult, TextError>) {
        match outcome {
            Ok(result) => {
                let vector = result.vector.expect("an embedding model computes a vector");
                let place = row * self.dimensions..(row + 1) * self.dimensions;
                self.numbers[place].copy_from_slice(&vector.numbers());
            }
            Err(error) => self.failed.push((row, error.to_string())),
        }
    }
}

/// A model with prepared labels, and threads for tokenising.
pub struct Model {
    pub labeler: Labeler,
    pub prepared: PreparedLabels,
    pub pool: ThreadPool,
}

/// Texts that are batched together.
struct TextWindow {
    /// Row number of each text.
    rows: Vec<usize>,
    texts: Vec<EncodedText>,
}

impl Model {
    /// Scores all texts that are not blank; `is_reddit` cleans them with [`reddit_text`] first. Passes each text's row
    /// and result to `done`, in no particular order. Polls `stop` between batches.
    pub fn score(
        &mut self,
        texts: &[Option<&str>],
        is_reddit: bool,
        stop: &dyn Fn() -> bool,
        done: &mut dyn FnMut(usize, Result<TextResult, TextError>),
    ) -> Result<Completion, LabelerError> {
        let Self {
            labeler,
            prepared,
            pool,
        } = self;
        let encoder = labeler.encoder();
        let stopped = AtomicBool::new(false);
        thread::scope(|scope| {
            // One window is buffered while another is computed.
            let (send, windows) = mpsc::sync_channel(1);
            let (encoder, pool, stopped) = (&encoder, &*pool, &stopped);
            // The thread owns `send`, so the receiver is disconnected when it ends.
            scope.spawn(move || tokenise(texts, is_reddit, encoder, pool, stopped, &send));
            let mut ended = Ok(Completion::Done);
            while matches!(ended, Ok(Completion::Done)) {
                let window: Result<TextWindow, TokenizeError> =
                    match windows.recv_timeout(POLL_INTERVAL) {
                        Ok(window) => window,
                        Err(RecvTimeoutError::Disconnected) => break,
                        Err(RecvTimeoutError::Timeout) if stop() => {
                            ended = Ok(Completion::Cancelled);
                            break;
                        }
                        Err(RecvTimeoutError::Timeout) => continue,
                    };
                ended = window.map_err(LabelerError::from).and_then(|window| {
                    labeler.score(prepared, &window.texts, &[], stop, &mut |text, outcome| {
                        done(window.rows[text], outcome);
                    })
                });
            }
            stopped.store(true, Ordering::Relaxed);
            ended
        })
    }
}

/// Sends windows of tokenised texts until the end, an error, or cancellation.
fn tokenise(
    texts: &[Option<&str>],
    is_reddit: bool,
    encoder: &Encoder,
    pool: &ThreadPool,
    stopped: &AtomicBool,
    windows: &SyncSender<Result<TextWindow, TokenizeError>>,
) {
    let starts = (0..).step_by(WINDOW_ROWS);
    for (start, window) in starts.zip(texts.chunks(WINDOW_ROWS)) {
        let read = window.iter().enumerate().filter_map(|(row, text)| {
            let text = text_to_read((*text)?, is_reddit)?;
            Some((start + row, text))
        });
        let (rows, plain): (Vec<usize>, Vec<Cow<'_, str>>) = read.unzip();
        let mut texts = Vec::with_capacity(plain.len());
        for chunk in plain.chunks(TOKENISE_CHUNK) {
            if stopped.load(Ordering::Relaxed) {
                return;
            }
            match pool.install(|| encoder.encode(chunk)) {
                Ok(rows) => texts.extend(rows),
                Err(error) => {
                    // The receiver is gone only after an earlier error.
                    let _ = windows.send(Err(error));
                    return;
                }
            }
        }
        if windows.send(Ok(TextWindow { rows, texts })).is_err() {
            return;
        }
    }
}

/// Returns a text as the model reads it; `None` if it is blank or a placeholder.
fn text_to_read(text: &str, is_reddit: bool) -> Option<Cow<'_, str>> {
    let text = if is_reddit {
        Cow::Owned(as_displayed(text))
    } else {
        Cow::Borrowed(text)
    };
    let has_words = !text.trim().is_empty() && !is_placeholder(&text);
    has_words.then_some(text)
}

/// Returns a text as Reddit displays it. Entities are decoded too, because `import` reads files as HTML-escaped.
pub fn as_displayed(text: &str) -> String {
    reddit_text(&decode_entities(text)).into_owned()
}
