//! Integration tests in one binary, with real databases, real sockets, ONNX Runtime and the real program.

#![expect(
    clippy::too_many_lines,
    reason = "a test runs one scenario from start to end"
)]

mod arctic_shift;
mod attacks;
mod background;
mod backlog_histories;
mod browser;
mod classifiers;
mod cli;
mod collect;
mod comments;
mod crashes;
mod daily_views;
mod deployment;
mod docs;
mod doctor;
mod engines;
mod evaluate;
mod export;
mod figures;
mod fitted_labels;
mod gliclass;
mod gold;
mod gpu_shapes;
mod help;
mod import;
mod ingest;
mod install;
mod killed_imports;
mod label_set_names;
mod label_studio_tasks;
mod labels;
mod learned_vectors;
mod logging;
mod maintenance;
mod migrations;
mod models;
mod monitoring;
mod network;
mod parity;
mod pipeline_file;
mod post_text;
mod purge;
mod quota;
mod readme;
mod replay;
mod report;
mod retention;
mod review;
mod schedule;
mod schema;
mod score_files;
mod serve;
mod shortlist;
mod signals;
mod source;
mod statistics;
mod status;
mod store;
mod support;
mod tables;
mod time_ranges;
mod vectors;
mod watchers;
