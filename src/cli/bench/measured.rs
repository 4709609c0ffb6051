//! Measured precisions and batch sizes: their table, and the settings that follow from them.

use serde::Serialize;
use serde_json::{Value, json};

/// The precision that the others are compared with.
pub(super) const FP32: &str = "fp32";
/// Share of labels equal to float32 that a suggested precision needs.
const MIN_SAME_LABELS: f64 = 0.99;
/// The number of texts that show this share: with 200, a true share of 0.95 is measured as 0.99 or more in fewer than one
/// in a hundred measurements.
pub(super) const MIN_TEXTS: usize = 200;
/// A smaller batch is suggested if it is at most this much slower, because it needs less memory.
const AS_FAST: f64 = 0.98;

/// The label of each text; `None` if the model abstains or the text cannot be scored.
type Labels = [Option<usize>];

/// A precision's labels, and the measurements of its batch sizes.
pub(super) struct Precision {
    pub name: String,
    /// The value of the setting.
    pub setting: String,
    /// The label of each text; `None` if the model abstains or the text cannot be scored.
    pub labels: Vec<Option<usize>>,
    pub sizes: Vec<BatchSize>,
}

/// A batch size and its measurements.
pub(super) struct BatchSize {
    pub tokens: usize,
    /// The fastest pass; `None` if memory runs out.
    pub seconds: Option<f64>,
    /// Peak memory in MiB, if the system reports it.
    pub peak_mib: Option<u64>,
}

impl Precision {
    /// Returns the share of texts with the same label as in float32.
    fn same_labels(&self, fp32: Option<&Labels>) -> Option<f64> {
        let same = self.labels.iter().zip(fp32?).filter(|(a, b)| a == b);
        Some(same.count() as f64 / self.labels.len() as f64)
    }

    /// Returns true if its labels are close enough to float32 to suggest it.
    fn is_close(&self, fp32: Option<&Labels>) -> bool {
        let same = self.same_labels(fp32);
        self.name == FP32
            || self.labels.len() >= MIN_TEXTS && same.is_none_or(|share| share >= MIN_SAME_LABELS)
    }
}

/// Settings to write: those that are fastest with the labels of float32.
#[derive(Serialize)]
pub(super) struct Suggestion<'m> {
    /// The value of the setting.
    pub precision: &'m str,
    pub batch_tokens: usize,
}

/// Returns the settings to suggest; `None` if no precision is close to float32, or memory suffices for no batch.
pub(super) fn suggested<'m>(
    measured: &'m [Precision],
    fp32: Option<&Labels>,
) -> Option<Suggestion<'m>> {
    let close = measured.iter().filter(|precision| precision.is_close(fp32));
    let timed = close.flat_map(|precision| {
        let sizes = precision.sizes.iter();
        sizes.filter_map(move |size| Some((precision, size.seconds?)))
    });
    let (precision, least) = timed.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let is_as_fast = |seconds: f64| seconds * AS_FAST <= least;
    let mut sizes = precision.sizes.iter();
    let size = sizes.find(|size| size.seconds.is_some_and(is_as_fast))?;
    Some(Suggestion {
        precision: &precision.setting,
        batch_tokens: size.tokens,
    })
}

/// Formats the measurements, one row per batch size. `texts` is the number of texts that are scored with each.
pub(super) fn rows(measured: &[Precision], texts: usize, fp32: Option<&Labels>) -> Vec<Value> {
    let mut rows = Vec::new();
    for precision in measured {
        let same_labels = precision.same_labels(fp32).map(|share| round_to(share, 4));
        for size in &precision.sizes {
            let per_second = |seconds: f64| round_to(texts as f64 / seconds.max(1e-9), 1);
            let speed = size.seconds.map(per_second);
            rows.push(json!({
                "precision": precision.name, "batch tokens": size.tokens, "texts/s": speed,
                "peak MiB": size.peak_mib, "labels as in fp32": same_labels,
            }));
        }
    }
    rows
}

fn round_to(number: f64, decimals: i32) -> f64 {
    let power = 10_f64.powi(decimals);
    (number * power).round() / power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_precision_with_enough_equal_labels_is_suggested() {
        let precision = |name: &str, changed: usize, seconds: [f64; 2]| Precision {
            name: name.to_owned(),
            setting: name.to_owned(),
            labels: (0..400)
                .map(|text| (text >= changed).then_some(1))
                .collect(),
            sizes: [256, 512]
                .into_iter()
                .zip(seconds)
                .map(|(tokens, seconds)| BatchSize {
                    tokens,
                    seconds: (seconds > 0.0).then_some(seconds),
                    peak_mib: None,
                })
                .collect(),
        };
        let fp32 = vec![Some(1); 400];
        let all = [
            precision(FP32, 0, [9.0, 8.0]),
            precision("bf16", 4, [5.05, 5.0]),
            precision("int8", 5, [1.0, 0.0]),
        ];
        let suggested = |measured| {
            let suggested = suggested(measured, Some(&fp32))?;
            Some((suggested.precision, suggested.batch_tokens))
        };
        // Almost as fast, with half the memory.
        assert_eq!(suggested(&all), Some(("bf16", 256)));
        assert_eq!(suggested(&all[..1]), Some((FP32, 512)));
        assert_eq!(suggested(&all[2..]), None);
        // Too few texts show nothing.
        let mut few = precision("bf16", 0, [5.0, 5.0]);
        few.labels.truncate(199);
        assert_eq!(suggested(&[few]), None);
    }
}
