//! Chooses the fastest engine and precision whose labels agree with float32.
//!
//! `bench agreement` measures each [`EngineConfig`] of a model on the user's texts; [`fastest`] chooses among the
//! measurements. A measurement holds for one model, one CPU model and one version of the libraries.

use std::fmt;

use serde::{Deserialize, Serialize};
use topicmill_score::EngineName;

/// The required share of texts with the same label as in float32.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Agreement(f64);

/// Maximum difference between scores that count as equal.
pub const SAME_SCORE: f64 = 1e-4;
/// Minimum number of texts. With 200, a true agreement of 0.95 is measured as 0.98 or more in fewer than one in thirty
/// measurements.
pub const ENOUGH_TEXTS: usize = 200;
/// Maximum agreement of a configuration whose scores differ from float32, even if all labels agree.
const NEARLY: f64 = 0.9999;

impl Agreement {
    /// Scores within 1e-4 of float32.
    pub const EXACT: Self = Self(1.0);

    /// Creates an agreement above 0 and up to 1, where 1 is [`Agreement::EXACT`].
    pub fn new(share: f64) -> Option<Self> {
        (share > 0.0 && share <= 1.0).then_some(Self(share))
    }

    /// Returns the share.
    pub fn share(self) -> f64 {
        self.0
    }

    /// Returns true if the scores must match float32, not only the labels.
    pub fn is_exact(self) -> bool {
        self >= Self::EXACT
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An engine and a precision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineConfig {
    /// `onnxruntime` or `openvino`.
    pub engine: EngineName,
    /// `fp32`, `bf16` or `int8`.
    pub precision: String,
}

impl EngineConfig {
    /// Combines an engine and a precision.
    pub fn new(engine: EngineName, precision: &str) -> Self {
        Self {
            engine,
            precision: precision.to_owned(),
        }
    }
}

impl fmt::Display for EngineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.engine, self.precision)
    }
}

/// The measurement of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The configuration.
    #[serde(flatten)]
    pub config: EngineConfig,
    /// The library and its version.
    pub runtime: String,
    /// Number of texts that have a label in float32 with ONNX Runtime.
    pub texts: usize,
    /// Number of these texts with the same label.
    pub agreed: usize,
    /// The largest difference in a score.
    pub score_off: f64,
    /// Texts per second.
    pub texts_per_sec: f64,
}

impl Measured {
    /// Returns the share of texts with the same label.
    #[expect(clippy::cast_precision_loss, reason = "numbers of texts")]
    pub fn share(&self) -> f64 {
        self.agreed as f64 / self.texts.max(1) as f64
    }

    /// Returns the highest agreement that the measurement proves; `None` with too few texts.
    pub fn agreement(&self) -> Option<Agreement> {
        if self.score_off <= SAME_SCORE {
            return Some(Agreement::EXACT);
        }
        let share = (self.share() * 1e4).floor() / 1e4;
        Agreement::new(share.min(NEARLY)).filter(|_| self.texts >= ENOUGH_TEXTS)
    }
}

/// Returns the fastest measurement with at least this agreement, and with this precision if one is given.
pub fn fastest<'a>(
    measured: &'a [Measured],
    agreement: Agreement,
    precision: Option<&str>,
) -> Option<&'a Measured> {
    measured
        .iter()
        .filter(|one| one.agreement() >= Some(agreement))
        .filter(|one| precision.is_none_or(|precision| one.config.precision == precision))
        .max_by(|a, b| a.texts_per_sec.total_cmp(&b.texts_per_sec))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(precision: &str, agreed: usize, score_off: f64, texts_per_sec: f64) -> Measured {
        Measured {
            config: EngineConfig::new(EngineName::OpenVino, precision),
            runtime: "OpenVINO 2026.4.1".into(),
            texts: 400,
            agreed,
            score_off,
            texts_per_sec,
        }
    }

    #[test]
    fn the_fastest_configuration_with_enough_agreement_is_chosen() {
        let all = [
            measured("fp32", 400, 2e-5, 10.0),
            measured("bf16", 398, 0.02, 20.0),
            measured("int8", 392, 0.2, 40.0),
            measured("wrong", 391, 0.2, 90.0),
        ];
        let agreement = |share| Agreement::new(share).unwrap();
        let chosen = |share, precision| {
            let found = fastest(&all, agreement(share), precision);
            found.map(|one| one.config.precision.as_str())
        };
        assert_eq!(chosen(1.0, None), Some("fp32"));
        assert_eq!(chosen(0.995, None), Some("bf16"));
        assert_eq!(chosen(0.98, None), Some("int8"));
        assert_eq!(chosen(0.98, Some("fp32")), Some("fp32"));
        assert_eq!(chosen(0.995, Some("int8")), None);
        assert_eq!(all[3].agreement(), Some(agreement(0.9775)));
        // All labels may agree although scores differ.
        let same = measured("bf16", 400, 0.02, 20.0);
        assert_eq!(same.agreement(), Some(agreement(NEARLY)));
        assert_eq!([0.0, 1.01, f64::NAN].map(Agreement::new), [None; 3]);
    }

    #[test]
    fn too_few_texts_prove_no_agreement() {
        let few = Measured {
            texts: 199,
            agreed: 199,
            ..measured("bf16", 0, 0.02, 20.0)
        };
        assert_eq!(few.agreement(), None);
        // A few texts are enough to establish equal scores.
        let exact = Measured {
            score_off: 1e-6,
            ..few
        };
        assert_eq!(exact.agreement(), Some(Agreement::EXACT));
    }
}
