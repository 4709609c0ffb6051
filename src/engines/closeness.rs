//! Which engine and precision are the fastest of those that label as float32 does.
//!
//! `bench closeness` measures each [`Way`] of computing a model on somebody's texts; [`fastest`] chooses among what was
//! measured, and [`Kept`] stores it in a small file for later commands. What was measured holds for one model on one make of
//! CPU with the same libraries, and for nothing else.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use topicmill_score::EngineName;

use super::noted::Noted;

/// How close labels have to come to those of float32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Closeness {
    /// Every score to 1e-4.
    #[default]
    Exact,
    /// The same label for 99.5 % of the texts.
    Near,
    /// The same label for 98 % of the texts.
    Rough,
}

/// Scores that differ by no more are the same ones.
pub const SAME_SCORE: f64 = 1e-4;
/// Fewer texts say too little: of 200, a true agreement of 0.95 reaches 0.98 once in thirty times.
pub const ENOUGH_TEXTS: usize = 200;

/// A word that names no closeness.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no closeness: use `exact`, `near` or `rough`")]
pub struct ClosenessError(String);

impl FromStr for Closeness {
    type Err = ClosenessError;

    fn from_str(text: &str) -> Result<Self, ClosenessError> {
        [Self::Exact, Self::Near, Self::Rough]
            .into_iter()
            .find(|closeness| closeness.as_str() == text)
            .ok_or_else(|| ClosenessError(text.to_owned()))
    }
}

impl Closeness {
    /// As flags and settings write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Near => "near",
            Self::Rough => "rough",
        }
    }

    /// Whether a way that was measured comes so close.
    fn allows(self, measured: &Measured) -> bool {
        let share = match self {
            Self::Exact => return measured.score_off <= SAME_SCORE,
            Self::Near => 0.995,
            Self::Rough => 0.98,
        };
        measured.texts >= ENOUGH_TEXTS && measured.share() >= share
    }
}

impl fmt::Display for Closeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An engine and a precision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// `onnxruntime` or `openvino`.
    pub engine: String,
    /// `fp32`, `bf16` or `int8`.
    pub precision: String,
}

impl Way {
    /// Both in one.
    pub fn new(engine: EngineName, precision: &str) -> Self {
        Self {
            engine: engine.as_str().to_owned(),
            precision: precision.to_owned(),
        }
    }

    /// The engine; `None` for a word of another version of this program.
    pub fn engine(&self) -> Option<EngineName> {
        self.engine.parse().ok()
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.engine, self.precision)
    }
}

/// What came of a way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Which one.
    #[serde(flatten)]
    pub way: Way,
    /// The library, with its version.
    pub runtime: String,
    /// Texts that got a label in float32, with ONNX Runtime.
    pub texts: usize,
    /// Texts among these that got the same label.
    pub agreed: usize,
    /// The largest difference of a score.
    pub score_off: f64,
    /// Texts a second.
    pub texts_per_sec: f64,
}

impl Measured {
    /// Share of the texts with the same label.
    #[expect(clippy::cast_precision_loss, reason = "numbers of texts")]
    pub fn share(&self) -> f64 {
        self.agreed as f64 / self.texts.max(1) as f64
    }

    /// The closest that it comes; `None` where that is not close at all.
    pub fn closeness(&self) -> Option<Closeness> {
        [Closeness::Exact, Closeness::Near, Closeness::Rough]
            .into_iter()
            .find(|closeness| closeness.allows(self))
    }
}

/// The fastest of those that come so close, in the precision asked for where there is one.
pub fn fastest<'a>(
    measured: &'a [Measured],
    closeness: Closeness,
    precision: Option<&str>,
) -> Option<&'a Measured> {
    measured
        .iter()
        .filter(|one| closeness.allows(one))
        .filter(|one| precision.is_none_or(|precision| one.way.precision == precision))
        .max_by(|a, b| a.texts_per_sec.total_cmp(&b.texts_per_sec))
}

/// What a measurement holds for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Hash of the folder with its graph in float32.
    pub manifest_hash: String,
    /// The CPU and its make.
    pub device: String,
    /// Threads; 0 for one a core.
    pub threads: usize,
    /// Cores that the process may use.
    pub cores: usize,
}

impl Key {
    fn line(&self) -> String {
        let Self {
            manifest_hash,
            device,
            threads,
            cores,
        } = self;
        format!("{manifest_hash} on {device}, {threads} threads of {cores} cores")
    }
}

/// The file with what was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept(Noted);

impl Kept {
    /// The file in a folder for caches.
    pub fn below(caches: &Path) -> Self {
        Self(Noted::below(caches, "closeness.json"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Whether there is a file that cannot be read.
    pub fn is_damaged(&self) -> bool {
        self.0.is_damaged()
    }

    /// What was measured; nothing for another model, CPU or number of threads.
    pub fn get(&self, key: &Key) -> Vec<Measured> {
        self.0.get(&key.line()).unwrap_or_default()
    }

    /// Stores what was measured in place of an earlier measurement. If two processes store at once, the entries of one may
    /// be lost, and never half a file is read.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn put(&self, key: &Key, measured: &[Measured]) -> io::Result<()> {
        self.0.put(key.line(), measured.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(precision: &str, agreed: usize, score_off: f64, texts_per_sec: f64) -> Measured {
        Measured {
            way: Way::new(EngineName::OpenVino, precision),
            runtime: "OpenVINO 2026.4.1".into(),
            texts: 400,
            agreed,
            score_off,
            texts_per_sec,
        }
    }

    #[test]
    fn the_fastest_of_those_that_are_close_enough_is_chosen() {
        let all = [
            measured("fp32", 400, 2e-5, 10.0),
            measured("bf16", 398, 0.02, 20.0),
            measured("int8", 392, 0.2, 40.0),
            measured("wrong", 391, 0.2, 90.0),
        ];
        let of = |closeness| fastest(&all, closeness, None).map(|one| one.way.precision.as_str());
        assert_eq!(of(Closeness::Exact), Some("fp32"));
        assert_eq!(of(Closeness::Near), Some("bf16"));
        assert_eq!(of(Closeness::Rough), Some("int8"));
        let asked = fastest(&all, Closeness::Rough, Some("fp32")).unwrap();
        assert_eq!(asked.way.precision, "fp32");
        assert_eq!(fastest(&all, Closeness::Near, Some("int8")), None);
        assert_eq!(all[3].closeness(), None);
        assert_eq!(all[0].closeness(), Some(Closeness::Exact));
    }

    #[test]
    fn few_texts_prove_nothing() {
        let few = Measured {
            texts: 199,
            agreed: 199,
            ..measured("bf16", 0, 0.02, 20.0)
        };
        assert_eq!(few.closeness(), None);
        // A difference of scores shows with each text.
        let exact = Measured {
            score_off: 1e-6,
            ..few
        };
        assert_eq!(exact.closeness(), Some(Closeness::Exact));
    }

    #[test]
    fn what_was_measured_holds_for_its_key_only_and_a_damaged_file_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::below(folder.path());
        let key = |device: &str, threads| Key {
            manifest_hash: "ab12".into(),
            device: device.into(),
            threads,
            cores: 2,
        };
        let found = [measured("fp32", 400, 2e-5, 10.0)];
        assert!(kept.get(&key("cpu (A)", 0)).is_empty());
        kept.put(&key("cpu (A)", 0), &found).unwrap();
        kept.put(&key("cpu (A)", 1), &[]).unwrap();
        assert_eq!(kept.get(&key("cpu (A)", 0)), found);
        assert!(kept.get(&key("cpu (B)", 0)).is_empty(), "another CPU");
        assert!(kept.get(&key("cpu (A)", 1)).is_empty());
        let files = std::fs::read_dir(folder.path().join("topicmill")).unwrap();
        assert_eq!(files.count(), 1, "nothing is left beside it");
        std::fs::write(kept.path(), "{").unwrap();
        assert!(kept.get(&key("cpu (A)", 0)).is_empty());
        kept.put(&key("cpu (A)", 0), &found).unwrap();
        assert_eq!(kept.get(&key("cpu (A)", 0)), found);
    }

    #[test]
    fn two_that_store_at_once_leave_a_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::below(folder.path());
        let key = Key {
            manifest_hash: "ab12".into(),
            device: "cpu".into(),
            threads: 0,
            cores: 2,
        };
        std::thread::scope(|scope| {
            for speed in 1..=4 {
                let (kept, key) = (kept.clone(), key.clone());
                scope.spawn(move || {
                    for _ in 0..20 {
                        let found = [measured("fp32", 400, 0.0, f64::from(speed))];
                        kept.put(&key, &found).unwrap();
                        assert_eq!(kept.get(&key).len(), 1);
                    }
                });
            }
        });
        let files = std::fs::read_dir(folder.path().join("topicmill")).unwrap();
        assert_eq!(files.count(), 1);
    }
}
