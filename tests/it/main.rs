//! The integration tests, one binary: real databases, real sockets, a real ONNX Runtime, the real program.

mod arctic_shift;
mod cli;
mod collect;
mod house;
mod import;
mod models;
mod parity;
mod purge;
mod quota;
mod readme;
mod replay;
mod source;
mod store;
mod support;
mod telling;
mod wire;
