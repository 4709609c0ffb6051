//! The client of Reddit's API, one for a run, shared by all its tasks.
//!
//! The input is the name of a subreddit. The output is a [`ListingPage`](super::page::ListingPage), or a
//! [`SourceError`](super::error::SourceError) with its outcome. In addition to any [client](topicmill_http), it has one
//! token for all tasks (`token`), the meaning of Reddit's refusals (`refusal`), and the states of known posts (`info`).
//! The collector decides which pages of which subreddit to read.
//!
//! This is not roux's client, which follows redirects, accepts an error page as a listing, and requests a new token per
//! subreddit; only its envelope of a listing is used.

mod client;
mod info;
mod refusal;
mod settings;
mod token;

pub use client::{Credentials, FoundPosts, INFO_LIMIT, Reddit};
pub use info::{PostState, PostStates};
pub use settings::RedditSettings;

pub(super) use settings::check_user_agent;
