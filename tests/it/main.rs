//! The integration tests, one binary: real databases, real sockets, a real ONNX Runtime, the real program.

mod cli;
mod parity;
mod source;
mod store;
mod support;
