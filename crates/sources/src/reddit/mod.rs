//! Reddit's API: one client for a run, shared by all its tasks.
//!
//! The input is the name of a subreddit. The output is a [`ListingPage`](super::page::ListingPage), or a
//! [`SourceError`](super::error::SourceError) with its outcome. On top of any [client](topicmill_http), it has one token for
//! all tasks (`token`), the meaning of Reddit's refusals (`verdict`), and the fate of known posts (`info`). The
//! collector decides which pages of which subreddit to read.
//!
//! The client is our own rather than roux's because roux follows redirects, takes an error page for a
//! listing, and asks for a new token per subreddit; its envelope of a listing is used.

mod client;
mod info;
mod settings;
mod token;
mod verdict;

pub use client::{Credentials, FoundPosts, INFO_LIMIT, Reddit};
pub use info::{Fates, PostFate};
pub use settings::RedditSettings;

pub(super) use settings::check_user_agent;
