//! topicmill collects Reddit posts for a set of topics, stores them in SQLite or PostgreSQL, scores every post
//! against every topic with a zero-shot model on ONNX Runtime, and leaves labels and scores where SQL can
//! reach them.
//!
//! # The way of the data
//!
//! ```text
//! source ──▶ collect ──▶ store ──▶ classify ──▶ store ──▶ sql
//! (Reddit, archive, files)        (claim, tokenise once,
//!                                  batch, infer, score)
//! ```
//!
//! Data goes one way; `purge` takes out again what must not stay. `pipeline` puts the stages one after another;
//! `cli` starts them.
//!
//! # The crates
//!
//! This package is the program. What it is built of are crates that know less, in `crates/`:
//!
//! - [`topicmill_score`]: texts to scores. It knows no database, no network and no command line; the folder `python` is a
//!   thin face of it.
//! - [`topicmill_core`]: posts, topics, hashes, times and run records, without I/O. Uses `score`, whose rule makes a text of a
//!   post.
//! - [`topicmill_http`]: a polite client: quotas, waits, retries, bounds and counts. Uses `core`.
//! - [`topicmill_tables`]: tables of CSV, TSV, JSON, NDJSON and Parquet, read and written. Uses `core`.
//! - [`topicmill_sources`]: Reddit, Arctic Shift, dumps, tables and the sample become posts. Uses `http`, `tables`, `core`.
//! - [`topicmill_store`]: SQLite and PostgreSQL, whatever names sqlx. Uses `core`.
//! - [`topicmill_review`]: gold labels, evaluation, calibration, comparison. Uses `store`, `tables`, `core`.
//! - [`topicmill_pages`]: the report and the server's pages. Uses `review`, `store`, `tables`, `core`.
//!
//! # The rooms of the program
//!
//! - `cli`: one file a command; flags, words for people, exit codes.
//! - `config`: the settings. `pipeline_file`: topics, labels and schedules as a file says them.
//! - `pipeline`: the stages, each run recorded. `schedule`: scheduled runs: what runs when, once, on however many machines.
//! - `collect`: posts into the store. `purge`: out of it. `worker`: what every stage works with.
//! - `classify`: the backlog, claimed, scored and written. `files`: files scored without a database.
//! - `engines`: from settings to engines that compute. `hub`: model folders fetched. `gpu`: what GPUs do.
//! - `export`: the labelled posts as a data set to hand on. `report_files`: a report as files. `backup`: copies of a SQLite
//!   database. `atomic_file`: files that are written atomically.
//! - `status`: how it stands, for `status` and monitors. `advice`: what limits a run, and what to change.
//! - `metrics`: what a monitor reads. `notify`: the program that starts when a run fails or recovers. `telemetry`: the log.
//!
//! # Words
//!
//! - **post**: what Reddit calls a submission; its key is its *fullname*, `t3_…`.
//! - **topic**: a slug, a candidate label and the subreddits to read for it; without subreddits, only a label.
//! - **label set**: the labels of a classification with template, mode, threshold and temperature; versioned by
//!   the hash of these.
//! - **temperature**: what logits are divided by before they become scores; 1 leaves them as they are.
//! - **current**: the model and the label set whose labels the views show; labels of others stand *beside* them.
//! - **background**: ordinary topics beside the labels of a set; a post that fits them better than every label is *other*.
//! - **none of these**: the verdict on a post that is other, or *unsure*: its best score lies under the threshold.
//! - **gold**: the right label of a post, as a person says it. A post that no label of the set fits is *out of scope*.
//! - **premise, hypothesis**: the two texts an NLI model compares: the post and "This text is about {label}."
//! - **classifier**: a model with labels of its own; it reads a text alone and gives a logit for each of them.
//! - **shortlist**: the labels of a text that a small model picks, so that a large one scores only those.
//! - **score**: what a label gets of a post, 0 to 1; **margin**: the best score less the second best.
//! - **run**: one execution of one stage, a row of `runs`.
//! - **scheduled run**: a due time of a schedule, a row of `scheduled_runs`; its stages run once, by the process that takes it first.
//! - **backlog**: posts that have no classification yet under a model and a label set.
//! - **lease**: a claim on part of the backlog, which another worker may take over once its time is up; its id
//!   is the fencing token under which alone its holder may write.
//! - **tombstone**: what stays of a purged post, its fullname, when and why, so that it does not come back.
//! - **token budget**: padded tokens (rows × longest row) that a batch may hold.

/// The version of the program, and what it was built from.
pub const VERSION: &str = env!("TOPICMILL_VERSION");

pub mod advice;
pub mod atomic_file;
pub mod backup;
pub mod classify;
pub mod cli;
pub mod collect;
pub mod config;
pub mod engines;
pub mod export;
pub mod files;
pub mod gpu;
pub mod hub;
pub mod metrics;
pub mod notify;
pub mod pipeline;
pub mod pipeline_file;
pub mod purge;
pub mod report_files;
pub mod schedule;
pub mod status;
pub mod telemetry;
pub mod worker;
