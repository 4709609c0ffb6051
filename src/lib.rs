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
//! `cli` starts them. Texts become scores in a crate of its own, [`topicmill_score`], which knows no database, no
//! network and no command line. The folder `python` is a thin face of that crate for Python programs.
//!
//! # The rooms
//!
//! - `cli`: one file a command; flags, words for people, exit codes.
//! - `pipeline`: the stages, each run recorded. `pipeline_file`: topics, labels and schedules as a file says them.
//! - `schedule`: scheduled runs: what runs when, once, on however many machines.
//! - `source`: where posts come from. `collect`: into the store. `purge`: out of it.
//! - `store`: one face, two databases; `analysis`: the named queries, and what tables and views mean.
//! - `engines`: from settings to engines that compute. `hub`: model folders fetched.
//! - `classify`: the backlog, claimed, scored and written. `files`: files scored without a database.
//! - `tables`: rows of CSV, TSV, NDJSON, JSON and Parquet, which `source` makes posts of, `files` texts, and
//!   `review` gold.
//! - `record`: what a run writes about itself. `gpu`: what its GPUs do. `advice`: what limits it, and what to change.
//! - `review`: labels looked at again: compared with each other and with gold, calibrated.
//! - `worker`: what every stage works with. `domain`, `clock`, `config`, `placing`, `telemetry`: what all of them may share.
//!
//! - `keeping`: copies of a SQLite database. `panics`: panics of libraries that become errors.
//! - `outlook`: how it stands, for `status` and monitors.
//! - `export`: the labelled posts as a data set to hand on.
//! - `report`: a picture of it, as a page and as charts. `look`: what pages and charts look like.
//! - `serve`: a web server to look at what is stored. `patient`: connections that wait, but not for ever.
//! - `metrics`: what a monitor reads. `notify`: the program that starts when a run fails or recovers.
//!
//! # Who may use whom
//!
//! A test reads what each file imports, through `crate::` and `super::`, and fails on an arrow that is not in this
//! list. Every room may use `topicmill_score`.
//!
//! ```text
//! cli           -> advice, analysis, classify, clock, collect, config, domain, engines, export, files, gpu, hub, keeping, look, metrics, notify, outlook, panics, pipeline, pipeline_file, placing, purge, record, report, review, schedule, serve, source, store, tables, telemetry
//! pipeline      -> classify, clock, collect, domain, metrics, notify, purge, record, source, store, telemetry, worker
//! pipeline_file -> config, domain, schedule, source
//! schedule      -> clock, domain, store
//! collect       -> domain, source, store, worker
//! purge         -> domain, source, store, worker
//! classify      -> clock, domain, engines, gpu, record, review, store, worker
//! review        -> domain, store, tables
//! worker        -> clock, store
//! analysis      -> store
//! metrics       -> clock, domain, patient, record, report, source, store
//! notify        -> domain, metrics, store
//! serve         -> analysis, clock, domain, look, patient, report, review, store
//! export        -> domain, placing, store, tables
//! keeping       -> domain, placing, store
//! outlook       -> domain, pipeline, store
//! report        -> domain, look, placing, store
//! files         -> domain, placing, tables
//! engines       -> clock, gpu, placing
//! config        -> tables
//! hub           -> clock, domain, source
//! gpu           -> clock, record
//! advice        -> record
//! source        -> clock, domain, tables
//! tables        -> panics
//! store         -> domain
//! ```
//!
//! `domain`, `clock`, `record`, `panics`, `placing`, `telemetry`, `look` and `patient` use nobody. Only `topicmill_score::onnx` names the `ort`
//! crate, and only `gpu` the driver's NVML.
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
pub mod analysis;
pub mod classify;
pub mod cli;
pub mod clock;
pub mod collect;
pub mod config;
pub mod domain;
pub mod engines;
pub mod export;
pub mod files;
pub mod gpu;
pub mod hub;
pub mod keeping;
pub mod look;
pub mod metrics;
pub mod notify;
pub mod outlook;
pub mod panics;
pub mod patient;
pub mod pipeline;
pub mod pipeline_file;
pub mod placing;
pub mod purge;
pub mod record;
pub mod report;
mod review;
pub mod schedule;
mod serve;
pub mod source;
pub mod store;
pub mod tables;
pub mod telemetry;
pub mod worker;
