//! The integration tests, one binary: real databases, real sockets, a real ONNX Runtime, the real program.

mod cli;
mod collect;
mod histories;
mod house;
mod import;
mod parity;
mod proofs;
mod purge;
mod readme;
mod source;
mod store;
mod support;
