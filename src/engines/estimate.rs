//! Estimates the cost of labelling by measuring a sample of the texts.

use std::time::Duration;

use serde::Serialize;

use tokio_util::sync::CancellationToken;
use topicmill_core::clock::SharedClock;
use topicmill_score::labeler::{Completion, Labeler, LabelerError, Pairs, PreparedLabels};
use topicmill_score::text::EncodedText;

/// Maximum number of texts per round: enough to fill batches as well as labelling does.
const TEXTS_PER_ROUND: usize = 48;
/// Minimum number of rounds for an interval: with three, Student's t makes the interval wider than the mean.
const MIN_ROUNDS: usize = 4;
/// Measuring ends after this time, given enough rounds.
const ENOUGH_TIME: Duration = Duration::from_secs(8);

/// A mean with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CostEstimate {
    /// The estimate.
    pub mean: f64,
    /// The lower end of its interval, not below 0.
    pub low: f64,
    /// The upper end of its interval.
    pub high: f64,
}

/// Estimates the total of `items` items from samples of `measured` of them; `None` for fewer than two samples.
fn total(samples: &[f64], measured: usize, items: f64) -> Option<CostEstimate> {
    let count = samples.len() as f64;
    if samples.len() < 2 {
        return None;
    }
    let mean = samples.iter().sum::<f64>() / count;
    let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0);
    // Finite population correction.
    let unseen = (1.0 - measured as f64 / items).max(0.0);
    let reach = student_t(samples.len() - 1) * (variance * unseen / count).sqrt();
    Some(CostEstimate {
        mean: mean * items,
        low: (mean - reach).max(0.0) * items,
        high: (mean + reach) * items,
    })
}

/// Returns the 97.5 % quantile of Student's t from a table, for these degrees of freedom; slightly too large between
/// entries.
fn student_t(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
    match freedom {
        0 => f64::INFINITY,
        1..=10 => TABLE[freedom - 1],
        11..=30 => 2.2,
        _ => 2.04,
    }
}

/// The estimated cost of all texts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EstimatedCost {
    /// Tokens that the model would read, special tokens included, without padding.
    pub tokens: Option<CostEstimate>,
    /// Seconds on this device.
    pub seconds: Option<CostEstimate>,
    /// Number of texts scored for the estimate.
    pub measured_texts: usize,
}

/// Scores a sample of texts and estimates the cost of `texts` such texts. `pairs` contains the states of each sampled
/// text's pairs; known pairs cost nothing. Returns `None` if `stop` is cancelled first.
///
/// # Errors
/// Errors of the engine and the tokenizer.
pub fn cost(
    labeler: &mut Labeler,
    prepared: &PreparedLabels,
    clock: &SharedClock,
    sample: &[String],
    pairs: &[Pairs],
    texts: u64,
    stop: &CancellationToken,
) -> Result<Option<EstimatedCost>, LabelerError> {
    let encoded = labeler.encoder().encode(sample)?;
    let tokens: Vec<f64> = (0..encoded.len())
        .map(|i| labeler.tokens(prepared, &encoded[i], &pairs[i]))
        .collect();
    let mut seconds = Vec::new();
    let mut measured_texts = 0;
    let began = clock.elapsed();
    // The first round is a warm-up and does not count.
    for (round, (part, pairs)) in rounds(&encoded, pairs).enumerate() {
        let start = clock.elapsed();
        let is_stopped = || stop.is_cancelled();
        let ended = labeler.score(prepared, part, pairs, &is_stopped, &mut |_, _| {})?;
        if ended == Completion::Cancelled {
            return Ok(None);
        }
        let took = clock.elapsed().saturating_sub(start).as_secs_f64();
        if round > 0 {
            seconds.push(took / part.len() as f64);
            measured_texts += part.len();
        }
        if seconds.len() >= MIN_ROUNDS && clock.elapsed().saturating_sub(began) > ENOUGH_TIME {
            break;
        }
    }
    Ok(Some(EstimatedCost {
        tokens: total(&tokens, tokens.len(), texts as f64),
        seconds: total(&seconds, measured_texts, texts as f64),
        measured_texts,
    }))
}

/// Splits the sample into rounds of equal size.
fn rounds<'a>(
    texts: &'a [EncodedText],
    pairs: &'a [Pairs],
) -> impl Iterator<Item = (&'a [EncodedText], &'a [Pairs])> {
    let size = (texts.len() / (MIN_ROUNDS + 1)).clamp(1, TEXTS_PER_ROUND);
    // A smaller last round would fill its batches less well, so it is dropped.
    texts.chunks_exact(size).zip(pairs.chunks_exact(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_contains_the_mean_and_shrinks_with_the_sample() {
        let few = total(&[1.0, 2.0, 3.0], 3, 100.0).unwrap();
        // 2 ± 4.30 × √0.97 / √3.
        assert!((few.mean - 200.0).abs() < 1e-9);
        assert!((few.high - 444.5).abs() < 0.1, "{few:?}");
        assert!(few.low.abs() < f64::EPSILON, "not below 0");
        let many: Vec<f64> = [1.0, 2.0, 3.0].repeat(30);
        let many = total(&many, many.len(), 100.0).unwrap();
        assert!(many.high - many.low < 40.0, "{many:?}");
        let all = total(&[1.0, 2.0, 3.0], 3, 3.0).unwrap();
        assert!(all.high - all.low < 1e-9, "every item was sampled");
        // Three rounds of 33 texts are nearly all.
        let rounds = total(&[1.0, 2.0, 3.0], 99, 100.0).unwrap();
        assert!(rounds.high - rounds.low < 0.11 * (few.high - few.mean) * 2.0);
        assert_eq!(total(&[1.0], 1, 100.0), None);
    }
}
