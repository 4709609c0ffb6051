//! The integration tests, one binary: real databases, real sockets, a real ONNX Runtime, the real program.

mod arctic_shift;
mod attacks;
mod bottleneck;
mod cli;
mod collect;
mod help;
mod histories;
mod house;
mod import;
mod kills;
mod labels;
mod migrations;
mod models;
mod parity;
mod proofs;
mod purge;
mod quota;
mod readme;
mod replay;
mod schema;
mod shortlist;
mod source;
mod store;
mod support;
mod telling;
mod wire;
