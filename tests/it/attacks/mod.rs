//! Attacks that once succeeded, one test for each, on both databases where applicable.
//!
//! `.github/SECURITY.md` lists the trust boundaries and the promises.

mod classify;
mod clocks;
mod credentials;
mod files;
mod hub;
mod libraries;
pub mod models;
mod operations;
mod poolers;
mod purge;
mod purged_bytes;
mod races;
mod readers;
mod servers;
mod sql;
mod terminal;
