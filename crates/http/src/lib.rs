//! One client's manners, for whoever reads over HTTP.
//!
//! What enters are requests and a closure that says what an answer means; what leaves is what was asked for, or an
//! [`HttpError`]. In between, the same for every site: a pace that follows our own limit and the site's headers
//! (`quota`), which several processes may share ([`keeper`]), tries again after waits that an answer asked for or that
//! grow (`client`), bodies that are bounded and redirects that are not followed (`answer`, `address`), and the count of
//! it all (`traffic`). What a site's answers mean is not known here.

mod base_url;
mod client;
mod quota;
pub mod response;
pub mod shared_quota;
mod traffic;

pub use base_url::{append_path, base_url, is_loopback};
pub use client::{ClientSettings, HttpError, PoliteClient, Site, Timeouts, install_tls};
pub use client::{Purpose, RetryDecision, RetryableFailure, backoff};
pub use response::{HttpResponse, ResponseClass, retry_after};
pub use traffic::Meter;
