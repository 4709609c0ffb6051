//! Reddit's API: one client for a run, shared by all its tasks.
//!
//! What enters is the name of a subreddit, what leaves is a [`ListingPage`](super::page::ListingPage) or a
//! [`SourceError`](super::error::SourceError) with the outcome that it means. Apart from the manners of any
//! [client](topicmill_http): one token for all (`token`), what Reddit's refusals mean (`verdict`), and what became of known
//! posts (`info`). Which pages are wanted, and of which subreddit, is the collector's to know.
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
