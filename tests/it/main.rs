//! The integration tests, one binary: real databases, real sockets, a real ONNX Runtime, the real program.

mod store;
mod support;
