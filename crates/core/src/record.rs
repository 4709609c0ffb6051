//! The record that a run writes about itself: the [`RunCounts`] of its stage, kept in the database as JSON.
//!
//! A run of labelling records what it was given, what it did, where its time went, and what the GPUs did meanwhile.
//! `classify` and `gpu` fill its record in, and `advice` judges it.

mod counts;
mod traffic;

use std::fmt;

use serde::{Deserialize, Serialize};
use topicmill_score::labeler::{BatchTimes, Computed};

pub use self::counts::{CollectCounts, ImportCounts, PurgeCounts, RunCounts};
pub use self::traffic::{QuotaLeft, Traffic, WaitTotal, Waits};

/// Share of the time that an engine may wait for posts and still be what limits the run.
const MAX_WAITING_SHARE: f64 = 0.03;

/// What labelling did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassifyCounts {
    /// Posts that got scores.
    pub posts: u64,
    /// Those of them that belong to none of the labels, because the background fits better.
    #[serde(default)]
    pub other: u64,
    /// Those of them that have no label because the best score lies under the threshold.
    #[serde(default)]
    pub unsure: u64,
    /// Pairs of a text and a label that the model computed; the background counts as one label.
    pub pairs: u64,
    /// Pairs that were known: from an earlier label set, or of a post with the same text.
    pub pairs_reused: u64,
    /// Attempts that failed; a post returns to the backlog until it failed too often.
    pub failed: u64,
    /// Posts that another worker took over before they could be written; their scores were refused.
    pub refused: u64,
    /// Leases that another worker took over, found as a write was refused.
    #[serde(default)]
    pub leases_lost: u64,
    /// Posts of the backlog that other workers hold at the end.
    pub held_elsewhere: u64,
    /// Posts of the backlog that failed, or whose workers died, too often, in this run or before.
    pub set_aside: u64,
    /// From the first claim to the last write, waiting for new posts not counted.
    pub seconds: f64,
    /// `posts` a second.
    pub posts_per_sec: f64,
    /// Tokens that the model read, padding not counted.
    pub tokens: u64,
    /// With padding.
    pub padded_tokens: u64,
    /// Batches that were halved because the memory ran out.
    #[serde(default)]
    pub oom_splits: u64,
    /// How long batches took; for monitors, and not in the record of the run.
    #[serde(skip)]
    pub batches: BatchTimes,
    /// Where the time went.
    pub stages: StageTimes,
    /// What it was given.
    #[serde(default)]
    pub settings: RunSettings,
    /// What each GPU did meanwhile.
    #[serde(default)]
    pub gpu: Vec<GpuUsage>,
    /// What is missing or doubtful of that, and why.
    #[serde(default)]
    pub gpu_note: Option<String>,
    /// With a small model: how the labels compare with those of the large one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_shortlist: Option<LabelAgreement>,
}

/// Posts that have a label by two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelAgreement {
    /// All of them, of this run and of earlier ones.
    pub posts: u64,
    /// Those whose label is the same.
    pub same: u64,
}

impl ClassifyCounts {
    /// Adds what another lane did; what is known only at the end stays.
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

    /// Adds what an engine did.
    pub fn add_computed(&mut self, computed: &Computed) {
        self.tokens += computed.tokens;
        self.padded_tokens += computed.padded_tokens;
        self.oom_splits += computed.oom_splits;
        self.batches.merge(&computed.batches);
    }
}

/// What a run was given, as far as a verdict speaks of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSettings {
    /// Name of the model, with that of the small one before it.
    pub model: String,
    /// What each engine computed on: `cpu`, `cuda:0`.
    pub devices: Vec<String>,
    /// The precision of the graph.
    pub precision: String,
    /// The library that computed, with its version.
    pub runtime: String,
    /// Padded tokens that a batch held at most.
    pub batch_tokens: usize,
    /// Where that number comes from.
    pub batch_tokens_from: BudgetOrigin,
    /// Threads of each engine on a CPU.
    pub threads: usize,
    /// Cores that the process might use.
    pub cores: usize,
    /// Version of the rule by which texts were read of posts, see [`TEXT_RULE`](topicmill_score::reddit::TEXT_RULE).
    pub text_rule: u32,
    /// `sqlite` or `postgres`.
    pub database: String,
}

/// Where a token budget comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetOrigin {
    /// Nobody asked for another one.
    #[default]
    Default,
    /// Flag or setting.
    Set,
    /// A search on this device.
    Searched,
    /// The model, whose scores depend on it.
    Model,
}

/// Seconds, summed over the engines of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageTimes {
    /// Computing.
    pub engine_busy_secs: f64,
    /// Waiting for posts, the first and the last time included.
    pub engine_idle_secs: f64,
    /// Waiting for the writer.
    pub engine_blocked_secs: f64,
    /// Claiming posts. This and what follows happens while the engine computes.
    pub claim_secs: f64,
    /// Looking up what is known of the texts claimed.
    pub look_up_secs: f64,
    /// The small model, which keeps texts and picks labels.
    pub shortlist_secs: f64,
    /// Tokenising.
    pub tokenize_secs: f64,
    /// Writing labels.
    pub write_secs: f64,
}

impl StageTimes {
    /// Adds what another lane spent.
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

    /// Share of the engine's time in which it waited for posts, and for the writer; `None` where it had none.
    pub fn waiting_shares(&self) -> Option<(f64, f64)> {
        let all = self.engine_busy_secs + self.engine_idle_secs + self.engine_blocked_secs;
        (all > 0.0).then(|| (self.engine_idle_secs / all, self.engine_blocked_secs / all))
    }

    /// What limits the run; `None` where nothing was computed.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let (idle, blocked) = self.waiting_shares()?;
        let before = [
            (self.claim_secs + self.look_up_secs, Bottleneck::Reading),
            (self.shortlist_secs, Bottleneck::Shortlist),
            (self.tokenize_secs, Bottleneck::Tokenizer),
        ];
        // `max_by` would take the last of equals, and blame the tokenizer where nothing took any time.
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

/// What limits a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The engine never waits.
    Model,
    /// The engine never waits, but its GPU does: batches are made ready. Stages alone do not tell.
    Batches,
    /// Claiming posts and looking up what is known of them.
    Reading,
    /// The small model, which keeps texts and picks labels.
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
            Self::Batches => "making batches ready for the GPU",
            Self::Reading => "reading the database",
            Self::Shortlist => "the small model",
            Self::Tokenizer => "the tokenizer",
            Self::Writing => "writing the database",
        })
    }
}

/// A GPU that an engine computes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// As `--device` names it: `cuda:0`.
    pub device: String,
    /// Make and model.
    pub name: String,
    /// What tells it from all others.
    pub uuid: String,
}

/// What a GPU does at this moment; `None` is what it does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuSample {
    /// As `--device` names it: `cuda:0`.
    pub device: String,
    /// Part of the last moment in which it computed anything, in percent.
    pub gpu_percent: Option<u32>,
    /// Memory in use, by any process, and all there is, in MiB.
    pub memory_mib: Option<(u32, u32)>,
    /// Power drawn.
    pub watts: Option<u32>,
}

/// What a GPU told during a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuUsage {
    /// Which it is.
    #[serde(flatten)]
    pub gpu: Gpu,
    /// How often it was asked.
    pub samples: u64,
    /// Percent of the time in which it computed.
    pub gpu_percent: Option<Summary>,
    /// Memory in use, by any process.
    pub memory_mib: Option<Summary>,
    /// All memory there is.
    pub memory_total_mib: u32,
    /// Power drawn.
    pub watts: Option<Summary>,
}

impl GpuUsage {
    /// Percent of the memory that were in use at the most.
    pub fn memory_percent(&self) -> Option<f64> {
        let memory = self.memory_mib.filter(|_| self.memory_total_mib > 0)?;
        Some(100.0 * f64::from(memory.max) / f64::from(self.memory_total_mib))
    }
}

/// A figure over the samples of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Sum over number.
    pub mean: f64,
    /// Half of the samples are no higher.
    pub median: u32,
    /// 95 in 100 samples are no higher.
    pub p95: u32,
    /// The highest.
    pub max: u32,
}

/// MiB as GiB without a fraction.
pub fn gib(mib: f64) -> String {
    format!("{:.0}", mib / 1024.0)
}
