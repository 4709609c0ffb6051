//! Reads posts from sources: Reddit's API, the bundled sample Reddit, an archive, and files.
//!
//! Every source returns [`Post`](topicmill_core::Post)s, and a [`Rejected`] for each item that is not a complete post,
//! so that an invalid item never makes its whole page or file fail. This crate does not know where posts are stored.
//!
//! - [`source`]: the interface of sources. [`page`]: the pages that they return. [`open`](open()) creates a [`Source`].
//! - [`reddit`]: the client for Reddit's API, with one token and an outcome for every refusal.
//! - [`arctic_shift`]: an archive of Reddit that needs no key, read page by page in order of creation time.
//! - [`sample`]: a small Reddit on the loopback interface, for trying everything without a key.
//! - [`lookup`]: posts requested by id, and whether they are still on Reddit.
//! - [`listing`] and `post`: Reddit's wire format, which all sources share.
//! - [`file`]: files for `import`, read block by block.
//!
//! A new source needs a module here that `source` implements [`Source`] for, a row in the table in [`SourceKind`], and
//! an arm in [`open`](open()), which the compiler requires.
//!
//! [`SourceKind`]: topicmill_core::SourceKind

pub mod arctic_shift;
pub mod error;
pub mod file;
mod judge;
pub mod listing;
pub mod lookup;
pub mod open;
pub mod page;
mod post;
pub mod reddit;
pub mod sample;
pub mod source;

pub use error::SourceError;
pub use open::{SourceSettings, open};
pub use page::{ListingPage, Rejected};
pub use source::Source;
