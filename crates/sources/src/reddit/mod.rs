//! The client for Reddit's API. All tasks in a run share one client.
//!
//! The input is a subreddit's name. The output is a [`ListingPage`](super::page::ListingPage), or a
//! [`SourceError`](super::error::SourceError) with its outcome. To the [general client](topicmill_http), it adds one
//! token for all tasks (`token`) and the meaning of Reddit's refusals (`refusal`).
//! The collector decides which pages of which subreddits to read.
//!
//! roux's client is not used because it follows redirects, accepts an error page as a listing, and requests a new
//! token per subreddit. Only roux's envelope for a listing is used.

mod client;
mod refusal;
mod settings;
mod token;

pub use client::{Credentials, INFO_LIMIT, Reddit};
pub use settings::RedditSettings;

pub(super) use settings::check_user_agent;
