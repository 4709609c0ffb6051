//! One client's manners, for whoever reads over HTTP.
//!
//! What enters are requests and a closure that says what an answer means; what leaves is what was asked for, or an
//! [`HttpError`]. In between, the same for every site: a pace that follows our own limit and the site's headers
//! (`quota`), which several processes may share ([`keeper`]), tries again after waits that an answer asked for or that
//! grow (`client`), bodies that are bounded and redirects that are not followed (`answer`, `address`), and the count of
//! it all (`traffic`). What a site's answers mean is not known here.

mod address;
pub mod answer;
mod client;
pub mod keeper;
mod quota;
mod traffic;

pub use address::{base_url, extend, is_loopback};
pub use answer::{Answer, Meaning, retry_after};
pub use client::{ClientSettings, HttpError, PoliteClient, Site, Timeouts, install_tls};
pub use client::{Judgement, Purpose, Trouble, backoff};
pub use traffic::Meter;
