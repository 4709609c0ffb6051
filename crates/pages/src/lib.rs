//! What people look at: the report, the pages of the server and what both look like.
//!
//! [`report`] makes numbers of what the store says, and draws them as a page or as charts. [`serve`] shows what is stored
//! in a browser and as JSON. [`display`] has colours, style sheet and the formats of numbers; [`listener`] listens, and gives
//! up on connections that are silent.

#![expect(
    missing_docs,
    reason = "the program is its only user, and most names say all"
)]

pub mod display;
pub mod listener;
pub mod report;
pub mod serve;
