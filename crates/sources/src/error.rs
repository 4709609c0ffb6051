//! Errors that all sources share.

use chrono::{DateTime, Utc};

use topicmill_core::{FailureKind, Outcome};
use topicmill_http::{HttpError, Site};

/// An error from a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No usable response.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// An invalid setting, with advice on how to fix it.
    #[error("{0}")]
    Setting(String),
    /// No Reddit application is configured.
    #[error(
        "`reddit.client_id` is empty: set it and `reddit.client_secret` to the values of an application registered \
         with Reddit; without a key, use `--source arctic-shift`, or remove the other settings in `[reddit]` that are \
         credentials"
    )]
    ClientId,
    /// The sample Reddit could not open a port.
    #[error("cannot start the sample Reddit on 127.0.0.1: {0}")]
    Sample(#[source] std::io::Error),
    /// Files are imported, not collected.
    #[error("files cannot be collected: use `topicmill import FILE…`")]
    NotCollectable,
    /// An invalid subreddit name.
    #[error(
        "`{0}` is not a subreddit name: write 2 to 21 letters, digits or underscores, without `r/`"
    )]
    Subreddit(String),
    /// The token endpoint rejected the application or the account.
    #[error(
        "Reddit issued no token ({0}): check `reddit.client_id` and `reddit.client_secret`, and, if set, \
         `reddit.username` and `reddit.password`"
    )]
    Credentials(String),
    /// The token request failed, so nothing can be read.
    #[error(transparent)]
    Token(Box<SourceError>),
    /// A token was rejected, and so was its replacement.
    #[error(
        "Reddit rejected two tokens in a row for {0} (401): check that the application may still read"
    )]
    Unauthorized(String),
    /// A refusal that a retry cannot change.
    #[error("{} refused {what} with status {status}: {detail}", .site.name)]
    Refused {
        /// The site that refused.
        site: Site,
        /// `r/climate` or `a token`.
        what: String,
        /// The outcome for the subreddit.
        outcome: Outcome,
        /// HTTP status.
        status: u16,
        /// A description, and advice.
        detail: String,
    },
    /// A response with an unexpected structure.
    #[error("the response for {what} has an unexpected structure: check `{}.api_url`", .site.section)]
    UnexpectedShape {
        /// The site that sent it.
        site: Site,
        /// Description of the request.
        what: String,
        /// The parser's error, if there is one.
        source: Option<serde_json::Error>,
    },
    /// One second contains more posts than an archive's largest page.
    #[error(
        "{}: a page of {what} is too small for the posts from {at}: run again later, when pages may be larger",
        .site.name
    )]
    PageOverflow {
        /// The site.
        site: Site,
        /// Description of the request.
        what: String,
        /// The second with too many posts.
        at: DateTime<Utc>,
    },
}

impl SourceError {
    /// Returns the error for a number outside its range.
    pub(super) fn number(setting: &str, least: u64, most: u64) -> Self {
        let range = format!("between {least} and {most}");
        Self::Setting(format!("`{setting}` is out of range: set it to {range}"))
    }

    /// Returns the kind of error, which determines the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Setting(_) | Self::Sample(_) | Self::NotCollectable => FailureKind::Usage,
            Self::Http(error) => error.kind(),
            Self::ClientId | Self::Credentials(_) | Self::Unauthorized(_) => FailureKind::Policy,
            Self::Token(error) => match error.kind() {
                // Whatever the reason, the token endpoint rejects this program.
                FailureKind::Unfinished => FailureKind::Policy,
                kind => kind,
            },
            Self::Refused { outcome, .. } if outcome.is_refusal() => FailureKind::Policy,
            Self::PageOverflow { .. } => FailureKind::Temporary,
            Self::Refused { .. } | Self::Subreddit(_) | Self::UnexpectedShape { .. } => {
                FailureKind::Unfinished
            }
        }
    }

    /// Returns true if the cause would make all other requests fail too: no token, no connection or no shared quota.
    pub fn affects_all_topics(&self) -> bool {
        match self {
            Self::Credentials(_) | Self::Token(_) | Self::Http(HttpError::SharedQuota(_)) => true,
            Self::Http(error) => error.is_unreachable(),
            _ => false,
        }
    }

    /// Returns true if a later attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Token(error) => error.is_transient(),
            Self::Http(error) => error.is_transient(),
            _ => false,
        }
    }

    /// Returns the outcome that a topic's report shows for this error.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Http(error) if error.is_rate_limit() => Outcome::RateLimited,
            Self::Http(_)
            | Self::Setting(_)
            | Self::Sample(_)
            | Self::NotCollectable
            | Self::UnexpectedShape { .. } => Outcome::Server,
            Self::Subreddit(_) => Outcome::Missing,
            Self::ClientId | Self::Credentials(_) | Self::Unauthorized(_) => Outcome::Auth,
            Self::Token(error) => error.outcome(),
            Self::PageOverflow { .. } => Outcome::RateLimited,
            Self::Refused { outcome, .. } => *outcome,
        }
    }
}
