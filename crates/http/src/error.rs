//! Defines the errors of a client.

use std::time::Duration;

use super::refusal::Refusal;
use super::shared_quota::SharedQuotaError;
use super::site::Site;
use topicmill_core::FailureKind;

/// The reason why a request produced no usable response.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The HTTP client could not be built.
    #[error(
        "the HTTPS client cannot start: check that CA certificates are installed (Debian package \
         `ca-certificates`), and that SSL_CERT_FILE and SSL_CERT_DIR name them if they are set"
    )]
    Client(#[source] reqwest::Error),
    /// A variable does not name a proxy. The message does not show its value, which may contain a password.
    #[error(
        "{0} does not name a proxy: write it as `http://host:port`, without quotes; SOCKS is not supported"
    )]
    Proxy(&'static str),
    /// The site cannot be reached, and a retry would not help.
    #[error("cannot reach {} for {what}: {why}", .site.name)]
    Refused {
        /// Site.
        site: Site,
        /// Description of the request.
        what: String,
        /// The reason.
        why: Refusal,
    },
    /// The site or the rate limit requires a longer wait than the settings allow.
    #[error(
        "the request to {} for {what} must wait {} s, longer than `{}.wait_budget_secs` = {}: run again later, or \
         raise the setting", .site.name, .wait.as_secs_f64().ceil(), .site.section, .budget.as_secs()
    )]
    WaitTooLong {
        /// Site.
        site: Site,
        /// Description of the request.
        what: String,
        /// Required wait.
        wait: Duration,
        /// Longest allowed wait.
        budget: Duration,
    },
    /// All tries failed with transient errors.
    #[error("{} failed for {what}; attempts: {tries}; last error: {detail}; run again later", .site.name)]
    GaveUp {
        /// Site.
        site: Site,
        /// Description of the request.
        what: String,
        /// True if the last failure was a rate limit.
        is_rate_limit: bool,
        /// Number of tries.
        tries: u32,
        /// User-facing description of the last failure.
        detail: String,
        /// The last failure, if there was no response.
        source: Option<reqwest::Error>,
    },
    /// The shared quota failed, so nothing may be sent.
    #[error(transparent)]
    SharedQuota(SharedQuotaError),
    /// The response exceeds the size limit.
    #[error(
        "the response for {what} exceeds the limit of {limit} bytes: check `{}.api_url`", .site.section
    )]
    TooLarge {
        /// Site.
        site: Site,
        /// Description of the request.
        what: String,
        /// Size limit in bytes.
        limit: usize,
    },
}

impl HttpError {
    /// Returns the kind of the error, which determines the exit code.
    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::Client(_) | Self::Proxy(_) | Self::Refused { .. } => FailureKind::Usage,
            Self::WaitTooLong { .. } | Self::GaveUp { .. } => FailureKind::Temporary,
            Self::SharedQuota(error) => error.kind,
            Self::TooLarge { .. } => FailureKind::Unfinished,
        }
    }

    /// Returns true if the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::GaveUp { .. } | Self::WaitTooLong { .. })
    }

    /// Returns true if no connection to the site could be made.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Refused { .. } => true,
            Self::GaveUp { source, .. } => source.as_ref().is_some_and(reqwest::Error::is_connect),
            _ => false,
        }
    }

    /// Returns true if the cause is a rate limit.
    pub fn is_rate_limit(&self) -> bool {
        match self {
            Self::GaveUp { is_rate_limit, .. } => *is_rate_limit,
            Self::WaitTooLong { .. } => true,
            _ => false,
        }
    }
}
