//! Defines the record of a classify run: its settings, counts and stage times. `classify` fills in the record, and
//! `bottleneck` derives from it what limited the run.

use serde::{Deserialize, Serialize};

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
    /// Counters of the computed batches.
    #[serde(flatten)]
    pub computed: ComputeStats,
    /// Time spent in each stage.
    pub stages: StageTimes,
    /// Settings of the run.
    #[serde(default)]
    pub settings: RunSettings,
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
        self.computed.add(&other.computed);
        self.stages.add(&other.stages);
    }
}

/// Counters of the computed batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ComputeStats {
    /// Number of tokens, special tokens included.
    pub tokens: u64,
    /// Number of tokens with padding: rows × width, summed over batches.
    pub padded_tokens: u64,
    /// Number of batches that were split in half after running out of memory.
    #[serde(default)]
    pub oom_splits: u64,
}

impl ComputeStats {
    /// Adds the counters of another engine.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.padded_tokens += other.padded_tokens;
        self.oom_splits += other.oom_splits;
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
    /// CPU threads per engine.
    pub threads: usize,
    /// Version of the rule that builds a post's text; see [`TEXT_RULE`](crate::reddit::TEXT_RULE).
    pub text_rule: u32,
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
}
