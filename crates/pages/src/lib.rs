//! What people look at: the report, the pages of the server and what both look like.
//!
//! [`report`] makes numbers of what the store says, and draws them as a page or as charts. [`serve`] shows what is stored
//! in a browser and as JSON. [`look`] has colours, style sheet and the formats of numbers; [`patient`] listens, and gives
//! up on connections that are silent.

#![expect(
    missing_docs,
    reason = "the program is its only user, and most names say all"
)]

pub mod look;
pub mod patient;
pub mod report;
pub mod serve;
