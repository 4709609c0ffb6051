//! Sources of posts: Reddit's API, the bundled sample Reddit, an archive, and files.
//!
//! Every source answers with the same two things: [`Post`](topicmill_core::Post)s, and a [`Rejected`] for each thing
//! that is no post or not a whole one, so that one odd thing never costs its page or its file. Nothing here knows where
//! posts go.
//!
//! - [`page`]: what a source is: a [`Source`] that gives pages. [`open`](open()) makes one.
//! - [`http`]: one client's manners: pace, waits, bounds, counts.
//! - [`reddit`]: the API's client: one token, and a typed outcome for every refusal.
//! - [`arctic_shift`]: an archive of Reddit that needs no key, read page by page through time.
//! - [`sample`]: a small Reddit on the loopback interface, so that everything can be tried without a key.
//! - [`listing`] and [`post`]: Reddit's wire form, which all of them share.
//! - [`file`]: files given to `import`, block by block.
//!
//! A new source is a file here that implements [`Source`], a row of the table in [`SourceKind`], and an arm of
//! [`open`](open()), for which the compiler asks.
//!
//! [`SourceKind`]: topicmill_core::SourceKind

pub mod arctic_shift;
pub mod error;
pub mod file;
pub mod listing;
pub mod open;
pub mod page;
mod post;
pub mod reddit;
pub mod sample;
mod verdict;

pub use error::SourceError;
pub use open::{SourceSettings, open};
pub use page::{ListingPage, Rejected, Source};
