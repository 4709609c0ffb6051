//! Why a source could not be read, in the same words for every source.

use chrono::{DateTime, Utc};

use topicmill_core::{FailureKind, Outcome};
use topicmill_http::{HttpError, Site};

/// Why a source could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No answer that could be judged.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A setting that cannot work; the text says what to do.
    #[error("{0}")]
    Setting(String),
    /// No application to act as.
    #[error(
        "`reddit.client_id` is empty: set it and `reddit.client_secret` to those of an application registered with Reddit; without a key there are `topicmill demo`, `collect --source arctic-shift`, `collect --source sample` and `import`"
    )]
    ClientId,
    /// The sample Reddit has no port to serve on.
    #[error("start the sample Reddit on 127.0.0.1: {0}")]
    Sample(#[source] std::io::Error),
    /// Nothing is collected from files.
    #[error("files are stored with `topicmill import FILE…`")]
    Files,
    /// Not the name of a subreddit.
    #[error(
        "`{0}` is not the name of a subreddit: it has 2 to 21 letters, digits or underscores, without `r/`"
    )]
    Subreddit(String),
    /// The token endpoint refused the application or the account.
    #[error(
        "Reddit gave no token ({0}): check `reddit.client_id` and `reddit.client_secret`, and `reddit.username` and `reddit.password` where set"
    )]
    Credentials(String),
    /// The token endpoint could not be read, so nothing can.
    #[error(transparent)]
    Token(Box<SourceError>),
    /// A token was refused, and so was the next one.
    #[error(
        "Reddit refused two tokens in a row for {0} (401): check that the application may still read"
    )]
    Unauthorized(String),
    /// An answer that another try would not change.
    #[error("{} refused {what} with status {status}: {detail}", .site.name)]
    Refused {
        /// The site that refused.
        site: Site,
        /// `r/climate` or `a token`.
        what: String,
        /// The meaning of the refusal.
        outcome: Outcome,
        /// HTTP status.
        status: u16,
        /// The meaning in words, and what to do.
        detail: String,
    },
    /// Whole JSON of another shape.
    #[error("the answer for {what} is of an unknown shape: check `{}.api_url`", .site.section)]
    Shape {
        /// The site that sent it.
        site: Site,
        /// The request, for messages.
        what: String,
        /// The parser's error, if there is one.
        source: Option<serde_json::Error>,
    },
    /// More posts of one second than the largest page that an archive gives.
    #[error(
        "{}'s pages of {what} do not reach past the posts of {at}: run again later, when it may give larger ones", .site.name
    )]
    Crowded {
        /// Whose pages.
        site: Site,
        /// The request, for messages.
        what: String,
        /// The second.
        at: DateTime<Utc>,
    },
}

impl SourceError {
    /// Of a number under which nothing could be read.
    pub(super) fn number(setting: &str, least: u64, most: u64) -> Self {
        Self::Setting(format!(
            "`{setting}` does not work as it is set: set it to between {least} and {most}"
        ))
    }

    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Setting(_) | Self::Sample(_) | Self::Files => FailureKind::Usage,
            Self::Http(error) => error.kind(),
            Self::ClientId | Self::Credentials(_) | Self::Unauthorized(_) => FailureKind::Policy,
            Self::Token(error) => match error.kind() {
                // Whatever it is called, the token endpoint does not let this program in.
                FailureKind::Unfinished => FailureKind::Policy,
                kind => kind,
            },
            Self::Refused { outcome, .. } if outcome.is_refusal() => FailureKind::Policy,
            Self::Refused {
                outcome: Outcome::RateLimited,
                ..
            }
            | Self::Crowded { .. } => FailureKind::Temporary,
            Self::Refused { .. } | Self::Subreddit(_) | Self::Shape { .. } => {
                FailureKind::Unfinished
            }
        }
    }

    /// True if every other request would fail, too: there is no token, or no connection to the source.
    pub fn is_of_every_topic(&self) -> bool {
        match self {
            Self::Credentials(_) | Self::Token(_) | Self::Http(HttpError::SharedQuota(_)) => true,
            Self::Http(error) => error.is_unreachable(),
            _ => false,
        }
    }

    /// True if a later attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Token(error) => error.is_transient(),
            Self::Http(error) => error.is_transient(),
            _ => false,
        }
    }

    /// The word for it in a topic's report.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Http(error) if error.is_rate_limit() => Outcome::RateLimited,
            Self::Http(_)
            | Self::Setting(_)
            | Self::Sample(_)
            | Self::Files
            | Self::Shape { .. } => Outcome::Server,
            Self::Subreddit(_) => Outcome::Missing,
            Self::ClientId | Self::Credentials(_) | Self::Unauthorized(_) => Outcome::Auth,
            Self::Token(error) => error.outcome(),
            Self::Crowded { .. } => Outcome::RateLimited,
            Self::Refused { outcome, .. } => *outcome,
        }
    }
}
