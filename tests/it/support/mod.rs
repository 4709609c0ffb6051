//! Shared fixtures: databases, the program, fakes of Reddit and the archive, the engine.

pub mod arctic_shift;
pub mod browser;
pub mod builders;
pub mod engine;
pub mod exposition;
pub mod hub;
pub mod postgres;
pub mod program;
pub mod proxy;
pub mod reddit;
pub mod replay;
pub mod rows;
pub mod terminal;
pub mod wire;
