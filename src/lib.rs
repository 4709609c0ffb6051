//! topicmill collects Reddit posts for a set of topics, stores them in SQLite or PostgreSQL, scores each post
//! against each topic with a zero-shot model on ONNX Runtime, and stores labels and scores where SQL can query them.
//!
//! The page `docs/architecture.md` follows a post through the crates and modules; this package is the program that ties
//! the crates together.
//!
//! # Glossary
//!
//! - **post**: a Reddit submission. Its key is its *fullname*, `t3_…`.
//! - **topic**: a slug, a candidate label, and the subreddits to read; without subreddits it is only a label.
//! - **label set**: candidate labels with a hypothesis template, mode, threshold, temperature, background and fit. Its
//!   version is the hash of these.
//! - **temperature**: the divisor of logits before they become scores; 1 leaves them unchanged.
//! - **current**: the model and the label set that the views show. Other labels remain in the database.
//! - **background**: additional everyday topics. A post that fits one of them better than every label is *other*.
//! - **abstain**: to assign no label, because the post is *other*, or *unsure* (its best score is below the threshold).
//! - **gold label**: the right label of a post according to an annotator. A post that no label fits is *out of scope*.
//! - **premise, hypothesis**: the two texts that an NLI model compares: the post, and "This text is about {label}."
//! - **classifier**: a model with fixed labels. It reads only the text and returns one logit per label.
//! - **shortlist**: the labels that a small model picks for a text, so that a large one scores only those.
//! - **score**: the fit of a label to a post, 0 to 1; **margin**: the best score minus the second best.
//! - **run**: one execution of a stage, a row in `runs`.
//! - **scheduled run**: one due time of a schedule, a row in `scheduled_runs`. Its stages are executed once, by the
//!   process that claims it first.
//! - **backlog**: posts that have no classification for a model and a label set.
//! - **lease**: a claim on part of the backlog that another worker may reclaim once it expires. Its id is the fencing
//!   token: the holder can write only under it.
//! - **tombstone**: the record of a purged post (fullname, time and reason), so that it is not collected again.
//! - **token budget**: the maximum padded tokens of a batch, rows × longest row.

/// The version of the program and its source.
pub const VERSION: &str = env!("TOPICMILL_VERSION");

pub mod atomic_file;
pub mod atomic_folder;
pub mod backup;
pub mod bottleneck;
pub mod classify;
pub mod cli;
pub mod collect;
pub mod config;
pub mod engines;
pub mod export;
pub mod gpu;
pub mod hub;
pub mod metrics;
pub mod pipeline;
pub mod pipeline_file;
pub mod purge;
pub mod run;
pub mod schedule;
pub mod score_files;
pub mod status;
pub mod telemetry;
