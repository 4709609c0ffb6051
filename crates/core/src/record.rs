//! Defines the run record: the [`RunCounts`] of a stage, stored in the database as JSON.
//!
//! The record of a classify run contains its settings, counts, stage times and GPU usage. `classify` and `gpu` fill in
//! the record, and `advice` derives performance advice from it.

mod counts;
mod traffic;

use std::fmt;

use serde::{Deserialize, Serialize};
use topicmill_score::labeler::{BatchTimes, ComputeStats};

pub use self::counts::{CollectCounts, ImportCounts, PurgeCounts, RunCounts};
pub use self::traffic::{QuotaLeft, Traffic, WaitTotal, Waits};

/// The engine counts as the bottleneck if its waits for posts and for the writer each take at most this share of its
/// time.
const MAX_WAITING_SHARE: f64 = 0.03;

/// The counts of a classify run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassifyCounts {
    /// Posts scored.
    pub posts: u64,
    /// Scored posts that are out of scope, because the background scores higher than any label.
    #[serde(default)]
    pub other: u64,
    /// Scored posts without a label, because the best score is below the threshold.
    #[serde(default)]
    pub unsure: u64,
    /// Text-label pairs that the model scored; the background counts as one label.
    pub pairs: u64,
    /// Pairs reused from an earlier label set, or from a post with the same text.
    pub pairs_reused: u64,
    /// Failed attempts to score a post. The post returns to the backlog until it has failed too many times.
    pub failed: u64,
    /// Posts whose write was rejected, because another worker had reclaimed the lease.
    pub refused: u64,
    /// Leases lost to another worker, detected when a write was rejected.
    #[serde(default)]
    pub leases_lost: u64,
    /// Backlog posts leased to other workers at the end of the run.
    pub held_elsewhere: u64,
    /// Backlog posts that are parked after too many failures or worker crashes, in this run or earlier.
    pub parked: u64,
    /// Seconds from the first claim to the last write, excluding waits for new posts.
    pub seconds: f64,
    /// Posts per second.
    pub posts_per_sec: f64,
    /// Tokens that the model read, excluding padding.
    pub tokens: u64,
    /// Tokens that the model read, including padding.
    pub padded_tokens: u64,
    /// Batches halved after running out of memory.
    #[serde(default)]
    pub oom_splits: u64,
    /// Batch durations; for metrics only, not in the run record.
    #[serde(skip)]
    pub batches: BatchTimes,
    /// Time spent in each stage.
    pub stages: StageTimes,
    /// Settings of the run.
    #[serde(default)]
    pub settings: RunSettings,
    /// Usage of each GPU during the run.
    #[serde(default)]
    pub gpu: Vec<GpuUsage>,
    /// The reason why GPU usage is missing or unreliable.
    #[serde(default)]
    pub gpu_note: Option<String>,
    /// With a small model: agreement with the labels that the large model assigns on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_shortlist: Option<LabelAgreement>,
}

/// The agreement between two labellings of the same posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelAgreement {
    /// Posts compared, from this run and earlier runs.
    pub posts: u64,
    /// Posts with the same label.
    pub same: u64,
}

impl ClassifyCounts {
    /// Adds the counts of another lane (an engine with its tasks). Fields known only at the end of the run are
    /// unchanged.
    pub fn add(&mut self, other: &Self) {
        self.posts += other.posts;
        self.other += other.other;
        self.unsure += other.unsure;
        self.pairs += other.pairs;
        self.pairs_reused += other.pairs_reused;
        self.failed += other.failed;
        self.refused += other.refused;
        self.leases_lost += other.leases_lost;
        self.tokens += other.tokens;
        self.padded_tokens += other.padded_tokens;
        self.oom_splits += other.oom_splits;
        self.batches.merge(&other.batches);
        self.stages.add(&other.stages);
    }

    /// Adds the counts of an engine.
    pub fn add_computed(&mut self, computed: &ComputeStats) {
        self.tokens += computed.tokens;
        self.padded_tokens += computed.padded_tokens;
        self.oom_splits += computed.oom_splits;
        self.batches.merge(&computed.batches);
    }
}

/// The settings of a classify run that matter for performance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSettings {
    /// Name of the model. If there is a small model, its name comes first.
    pub model: String,
    /// Device of each engine: `cpu`, `cuda:0`.
    pub devices: Vec<String>,
    /// Number format of the graph.
    pub precision: String,
    /// Runtime library and version.
    pub runtime: String,
    /// Token budget: the maximum number of padded tokens in a batch.
    pub batch_tokens: usize,
    /// Origin of the token budget.
    pub batch_tokens_from: BudgetOrigin,
    /// CPU threads per engine.
    pub threads: usize,
    /// Cores available to the process.
    pub cores: usize,
    /// Version of the rule that builds a post's text; see [`TEXT_RULE`](topicmill_score::reddit::TEXT_RULE).
    pub text_rule: u32,
    /// `sqlite` or `postgres`.
    pub database: String,
}

/// The origin of a token budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetOrigin {
    /// The built-in default.
    #[default]
    Default,
    /// A flag or a setting.
    Set,
    /// A search on this device.
    Searched,
    /// The model, because its scores depend on the budget.
    Model,
}

/// Seconds per stage, summed over the engines of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageTimes {
    /// Computing.
    pub engine_busy_secs: f64,
    /// Waiting for posts, including at the start and at the end.
    pub engine_idle_secs: f64,
    /// Waiting for the writer.
    pub engine_blocked_secs: f64,
    /// Claiming posts. This stage and the ones below overlap with computing.
    pub claim_secs: f64,
    /// Looking up stored scores for the claimed texts.
    pub look_up_secs: f64,
    /// Running the small model, which shortlists labels.
    pub shortlist_secs: f64,
    /// Tokenising.
    pub tokenize_secs: f64,
    /// Writing labels.
    pub write_secs: f64,
}

impl StageTimes {
    /// Adds the times of another lane.
    pub fn add(&mut self, other: &Self) {
        self.engine_busy_secs += other.engine_busy_secs;
        self.engine_idle_secs += other.engine_idle_secs;
        self.engine_blocked_secs += other.engine_blocked_secs;
        self.claim_secs += other.claim_secs;
        self.look_up_secs += other.look_up_secs;
        self.shortlist_secs += other.shortlist_secs;
        self.tokenize_secs += other.tokenize_secs;
        self.write_secs += other.write_secs;
    }

    /// Returns the shares of engine time spent waiting for posts and for the writer, each 0 to 1; `None` if there was
    /// no engine time.
    pub fn waiting_shares(&self) -> Option<(f64, f64)> {
        let all = self.engine_busy_secs + self.engine_idle_secs + self.engine_blocked_secs;
        (all > 0.0).then(|| (self.engine_idle_secs / all, self.engine_blocked_secs / all))
    }

    /// Returns the stage that limits the run; `None` if nothing was computed.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let (idle, blocked) = self.waiting_shares()?;
        let before = [
            (self.claim_secs + self.look_up_secs, Bottleneck::Reading),
            (self.shortlist_secs, Bottleneck::Shortlist),
            (self.tokenize_secs, Bottleneck::Tokenizer),
        ];
        // `max_by` returns the last of equals: with all times zero, it would blame the tokenizer.
        let slowest = before
            .into_iter()
            .reduce(|a, b| if b.0 > a.0 { b } else { a });
        Some(
            if idle <= MAX_WAITING_SHARE && blocked <= MAX_WAITING_SHARE {
                Bottleneck::Model
            } else if blocked > idle {
                Bottleneck::Writing
            } else {
                slowest?.1
            },
        )
    }
}

/// The part of the pipeline that limits a run's throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The model: the engine never waits.
    Model,
    /// Preparing batches: the engine never waits, but its GPU does. Stage times alone cannot show this case.
    Batches,
    /// Reading the database: claiming posts and looking up stored scores.
    Reading,
    /// The small model, which shortlists labels.
    Shortlist,
    /// Tokenising.
    Tokenizer,
    /// Writing labels.
    Writing,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "the model",
            Self::Batches => "preparing batches for the GPU",
            Self::Reading => "reading the database",
            Self::Shortlist => "the small model",
            Self::Tokenizer => "the tokenizer",
            Self::Writing => "writing the database",
        })
    }
}

/// A GPU used by an engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Device name as in `--device`: `cuda:0`.
    pub device: String,
    /// Make and model.
    pub name: String,
    /// UUID from NVML.
    pub uuid: String,
}

/// The current usage of a GPU. Values that the GPU does not report are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuSample {
    /// Device name as in `--device`: `cuda:0`.
    pub device: String,
    /// Utilisation in percent: the share of the last sampling period in which a kernel ran.
    pub gpu_percent: Option<u32>,
    /// Memory in use by all processes, and total memory, in MiB.
    pub memory_mib: Option<(u32, u32)>,
    /// Power draw in watts.
    pub watts: Option<u32>,
}

/// The usage of a GPU during a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuUsage {
    /// The GPU.
    #[serde(flatten)]
    pub gpu: Gpu,
    /// Number of samples.
    pub samples: u64,
    /// Utilisation in percent.
    pub gpu_percent: Option<Summary>,
    /// Memory in use by all processes, in MiB.
    pub memory_mib: Option<Summary>,
    /// Total memory in MiB.
    pub memory_total_mib: u32,
    /// Power draw in watts.
    pub watts: Option<Summary>,
}

impl GpuUsage {
    /// Returns the peak memory use in percent.
    pub fn memory_percent(&self) -> Option<f64> {
        let memory = self.memory_mib.filter(|_| self.memory_total_mib > 0)?;
        Some(100.0 * f64::from(memory.max) / f64::from(self.memory_total_mib))
    }
}

/// Summary statistics over the samples of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: u32,
    /// 95th percentile.
    pub p95: u32,
    /// Maximum.
    pub max: u32,
}

/// Formats MiB as whole GiB.
pub fn gib(mib: f64) -> String {
    format!("{:.0}", mib / 1024.0)
}
