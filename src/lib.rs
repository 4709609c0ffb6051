//! topicmill collects Reddit posts for a set of topics, stores them in SQLite or PostgreSQL, scores every post
//! against every topic with a zero-shot model on ONNX Runtime, and leaves labels and scores where SQL can
//! reach them.
//!
//! # The way of the data
//!
//! ```text
//! source ──▶ collect ──▶ store ──▶ classify ──▶ store ──▶ analyze
//! (Reddit, archive, files)        (claim, tokenise once,   (sql)
//!                                  batch, infer, score)
//! ```
//!
//! Data goes one way; `purge` takes out again what must not stay. `pipeline` puts the stages one after another;
//! `cli` starts them.
//!
//! # Who may use whom
//!
//! A test reads the `use crate::` lines of each module and fails on an arrow that is not in this list.
//!
//! ```text
//! cli          -> analyze, classify, clock, collect, config, domain, model_folder, pipeline, purge, source, store, telemetry
//! pipeline     -> classify, clock, collect, domain, purge, source, store, telemetry
//! collect      -> clock, domain, source, store
//! purge        -> clock, domain, source, store
//! classify     -> clock, domain, model_folder, store
//! analyze      -> store
//! source       -> clock, domain
//! store        -> domain
//! model_folder -> clock, domain
//! ```
//!
//! `domain` and `clock` use nobody; `config` and `telemetry` neither. Inside `classify`, only `onnx` names
//! the `ort` crate, and only `gpu` the driver's NVML.
//!
//! # Words
//!
//! - **post**: what Reddit calls a submission; its key is its *fullname*, `t3_…`.
//! - **topic**: a slug, a candidate label and the subreddits to read for it.
//! - **label set**: the labels of a classification with template, mode, threshold and temperature; versioned by
//!   the hash of these.
//! - **temperature**: what logits are divided by before they become scores; 1 leaves them as they are.
//! - **none of these**: the verdict on a post whose best score lies under the threshold; it abstains from a label.
//! - **premise, hypothesis**: the two texts an NLI model compares: the post and "This text is about {label}."
//! - **shortlist**: the labels of a text that a small model picks, so that a large one scores only those.
//! - **score**: what a label gets of a post, 0 to 1; **margin**: the best score less the second best.
//! - **run**: one execution of one stage, a row of `runs`.
//! - **backlog**: posts that have no classification yet under a model and a label set.
//! - **lease**: a claim on part of the backlog, which another worker may take over once its time is up; its id
//!   is the fencing token under which alone its holder may write.
//! - **tombstone**: what stays of a purged post, its fullname, when and why, so that it does not come back.
//! - **token budget**: padded tokens (rows × longest row) that a batch may hold.

pub mod analyze;
pub mod classify;
pub mod cli;
pub mod clock;
pub mod collect;
pub mod config;
pub mod domain;
pub mod model_folder;
pub mod pipeline;
pub mod purge;
pub mod source;
pub mod store;
pub mod telemetry;
