//! Integration tests in one binary, with real databases, real sockets, ONNX Runtime and the real program.

#![expect(
    clippy::too_many_lines,
    reason = "a test tells one story, from its beginning to its end"
)]

mod arctic_shift;
mod attacks;
mod bottleneck;
mod browser;
mod classifiers;
mod cli;
mod collect;
mod counted;
mod docs;
mod engines;
mod evaluate;
mod export;
mod files;
mod fitted;
mod gold;
mod help;
mod histories;
mod import;
mod ingest;
mod install;
mod keeping;
mod kills;
mod labels;
mod learned;
mod migrations;
mod models;
mod monitoring;
mod names;
mod notify;
mod operating;
mod other;
mod parity;
mod pipeline_file;
mod proofs;
mod purge;
mod quota;
mod readme;
mod replay;
mod report;
mod reviewing;
mod scale;
mod schedule;
mod schema;
mod serve;
mod shapes;
mod shortlist;
mod source;
mod spans;
mod status;
mod stopping;
mod store;
mod suggest;
mod support;
mod tables;
mod tasks;
mod telling;
mod text;
mod vectors;
mod wire;
