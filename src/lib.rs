//! topicmill collects Reddit posts for a set of topics, stores them in SQLite or PostgreSQL, scores each post
//! against each topic with a zero-shot model on ONNX Runtime, and stores labels and scores where SQL can query them.
//!
//! # Data flow
//!
//! ```text
//! source ──▶ collect ──▶ store ──▶ classify ──▶ store ──▶ sql
//! (Reddit, archive, files)        (claim, tokenise once,
//!                                  batch, infer, score)
//! ```
//!
//! Data flows one way, from source to SQL; `purge` removes what must not be kept. `pipeline` runs and records the
//! stages; `cli` has one file per command.
//!
//! # Crates
//!
//! This package is the program. It is built from library crates in `crates/`:
//!
//! - [`topicmill_score`]: scores texts. Independent of databases, network and command line; the Python package in
//!   `python/` is a thin wrapper.
//! - [`topicmill_core`]: posts, topics, hashes, times and run records, without I/O. Uses `score`, which defines the
//!   text of a post.
//! - [`topicmill_http`]: an HTTP client with quotas, timeouts, retries, size limits and counters. Uses `core`.
//! - [`topicmill_tables`]: reads and writes CSV, TSV, JSON, NDJSON and Parquet. Uses `core`.
//! - [`topicmill_sources`]: reads posts from Reddit, Arctic Shift, dumps, tables and the sample. Uses `http`, `tables`,
//!   `core`.
//! - [`topicmill_store`]: SQLite and PostgreSQL; the only crate that uses sqlx. Uses `core`.
//! - [`topicmill_review`]: gold labels, evaluation, calibration, comparison. Uses `store`, `tables`, `core`.
//! - [`topicmill_pages`]: the report and the pages of `serve`. Uses `review`, `store`, `tables`, `core`.
//!
//! # Modules
//!
//! - `cli`: the commands: flags, output, exit codes.
//! - `config`: the settings. `pipeline_file`: parses topics, labels and schedules.
//! - `pipeline`: runs the stages and records each run. `schedule`: scheduled runs, each executed once across machines.
//! - `collect`: fetches posts into the store. `purge`: deletes posts. `worker`: the context of a stage.
//! - `classify`: claims, scores and writes the backlog. `score_files`: scores files without a database.
//! - `engines`: opens engines from settings. `hub`: downloads model folders. `gpu`: checks that a
//!   model is on its GPU.
//! - `export`: writes labelled posts as a data set. `report_files`: writes a report as files. `backup`: copies a SQLite
//!   database. `atomic_file`: atomic file writes.
//! - `status`: the state of the pipeline for `status` and monitors. `bottleneck`: what limits a run.
//! - `metrics`: Prometheus metrics. `telemetry`: logging.
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
pub mod report_files;
pub mod run;
pub mod schedule;
pub mod score_files;
pub mod status;
pub mod telemetry;
