//! Reviews labels that a model has assigned.
//!
//! The inputs are stored posts, stored logits and vectors, and gold labels; the outputs are figures, label sets and
//! lists of posts. Nothing here runs a model, so every operation takes seconds on a laptop:
//!
//! - [`rescore`] computes labels from stored logits or vectors, and [`compare`] counts how two label runs differ.
//! - [`sampling`] chooses the posts that annotators label, and [`label_studio`] exports them as tasks.
//! - [`gold`] reads gold labels, [`join`] joins them with predictions, and [`evaluate`] computes precision, recall and
//!   F1.
//! - [`quality`] states the share of correct labels in one sentence.
//! - [`calibrate`] fits the threshold and the temperature, and [`fit`] fits a correction of the logits.
//! - [`coverage`] finds the periods that may be compared, and [`change`] compares shares between periods and groups.
//! - [`hypotheses`] finds the stored hypotheses that can be deleted along with a label set.

pub mod calibrate;
pub mod change;
pub mod compare;
pub mod coverage;
pub mod evaluate;
pub mod fit;
pub mod gold;
pub mod hypotheses;
pub mod join;
pub mod label_studio;
pub mod quality;
pub mod rescore;
pub mod sampling;

/// The command that starts the review page with randomly sampled posts.
pub const REVIEW_COMMAND: &str = "topicmill serve --review --random-share 1";

/// Converts a count to a float.
pub fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Converts a length to a float.
fn float(length: usize) -> f64 {
    length as f64
}

/// Rounds a float down to a length.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "callers pass small numbers that are not negative"
)]
fn floor(length: f64) -> usize {
    length as usize
}
