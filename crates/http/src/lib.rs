//! Provides a rate-limited HTTP client with retries, for any site.
//!
//! [`PoliteClient::send`] takes a request and a closure that decides whether to accept a response, retry or fail. It
//! returns what the closure accepted, or an [`HttpError`]. The client handles what is the same for every site:
//!
//! - `quota` paces requests by the configured rate limit and by the site's headers; [`shared_quota`] extends the quota
//!   to several processes.
//! - `client` retries with exponential backoff, or after the wait that the response requests.
//! - [`response`] bounds the size of bodies and parses headers. Redirects are not followed.
//! - `base_url` validates configured URLs.
//! - `proxy` rejects malformed proxy variables, and `refusal` recognises failures that a retry does not change.
//! - `traffic` counts requests and waits.

mod base_url;
mod client;
mod error;
mod proxy;
mod quota;
mod refusal;
pub mod response;
pub mod shared_quota;
mod site;
mod traffic;

pub use base_url::{InvalidUrl, Payload, append_path, base_url};
pub use client::{
    ClientSettings, PoliteClient, RetryDecision, RetryableFailure, Timeouts, backoff, install_tls,
};
pub use error::HttpError;
pub use proxy::check_proxies;
pub use refusal::Refusal;
pub use response::{HttpResponse, rate_limit_wait, retry_after};
pub use site::Site;
pub use traffic::{Meter, Purpose};
