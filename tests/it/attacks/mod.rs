//! What once succeeded against a promise, one named test for each attack, on both databases where it applies.
//!
//! `docs/security.md` names what is trusted and which of these tests holds which promise.

mod bytes;
mod classify;
mod clocks;
mod credentials;
mod files;
mod hub;
mod models;
mod operations;
mod poolers;
mod purge;
mod races;
mod readers;
mod servers;
mod sql;
mod terminal;
