//! What can go wrong between here and Reddit.

use std::time::Duration;

use super::keeper::KeeperError;
use super::listing::ListingError;
use crate::domain::Outcome;

/// Why Reddit could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RedditError {
    /// A base URL that must not be used.
    #[error(
        "`reddit.{setting}` is `{url}`: {reason}; Reddit's own are `https://www.reddit.com` (auth_url) and `https://oauth.reddit.com` (api_url)"
    )]
    BaseUrl {
        /// `auth_url` or `api_url`.
        setting: &'static str,
        /// As given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Reddit blocks clients that do not say who they are.
    #[error(
        "`reddit.user_agent` is `{0}`: Reddit asks for `<platform>:<app id>:<version> (by /u/<your account>)`, such as `linux:topicmill:v0.1.0 (by /u/your_name)`, and never a browser's"
    )]
    UserAgent(String),
    /// No application to act as.
    #[error(
        "`reddit.client_id` is empty: set it and `reddit.client_secret` to those of an application registered with Reddit; without a key there are `topicmill demo`, `collect --source arctic-shift`, `collect --source sample` and `import`"
    )]
    ClientId,
    /// A number under which nothing could be read.
    #[error("`reddit.{setting}` does not work as it is set: set it to between {least} and {most}")]
    Number {
        /// Its name.
        setting: &'static str,
        /// The least that works.
        least: u64,
        /// The most that works.
        most: u64,
    },
    /// The HTTP client could not be built.
    #[error(
        "the HTTPS client cannot start: check that the system has CA certificates (Debian's package is `ca-certificates`)"
    )]
    Client(#[source] reqwest::Error),
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
    Token(Box<RedditError>),
    /// A token was refused, and so was the next one.
    #[error(
        "Reddit refused two tokens in a row for {0} (401): check that the application may still read"
    )]
    Unauthorized(String),
    /// An answer that another try would not change.
    #[error("Reddit refused {what} with status {status}: {detail}")]
    Refused {
        /// `r/climate` or `a token`.
        what: String,
        /// What that means.
        outcome: Outcome,
        /// HTTP status.
        status: u16,
        /// What it means in words, and what to do.
        detail: String,
    },
    /// The quota asks for more patience than the settings allow.
    #[error("the quota asks for a wait of {} s for {what}, above `reddit.wait_budget_secs` = {}: run again later, or raise it", .wait.as_secs_f64().ceil(), .budget.as_secs())]
    WaitTooLong {
        /// What was asked for.
        what: String,
        /// The wait it would have taken.
        wait: Duration,
        /// The most that was allowed.
        budget: Duration,
    },
    /// Every try ended in a failure that another try may cure.
    #[error("Reddit failed for {what}, tried {tries}×, at last with: {detail}; run again later")]
    GaveUp {
        /// What was asked for.
        what: String,
        /// [`Outcome::Server`] or [`Outcome::RateLimited`].
        outcome: Outcome,
        /// How often it was tried.
        tries: u32,
        /// The last failure in words.
        detail: String,
        /// The last failure, where there was no answer at all.
        source: Option<reqwest::Error>,
    },
    /// Whoever keeps the quota for all processes failed, so nothing may be sent.
    #[error("keep the quota that all runs with this client id share: {0}")]
    Keeper(#[source] KeeperError),
    /// An answer of a size that no listing has.
    #[error(
        "the answer for {what} is larger than {limit} bytes, which no listing is: check `reddit.api_url`"
    )]
    TooLarge {
        /// What was asked for.
        what: String,
        /// The most that is read.
        limit: usize,
    },
    /// Whole JSON, but no listing.
    #[error("the answer for {what} is of an unknown shape: check `reddit.api_url`")]
    Listing {
        /// What was asked for.
        what: String,
        /// What was wrong with it.
        source: ListingError,
    },
}

impl RedditError {
    /// Whether the settings are wrong, rather than Reddit's answer.
    pub fn is_of_the_settings(&self) -> bool {
        matches!(
            self,
            Self::BaseUrl { .. } | Self::UserAgent(_) | Self::Number { .. } | Self::Client(_)
        )
    }

    /// Whether every other request would meet the same: there is no token, or no way to Reddit.
    pub fn is_of_every_topic(&self) -> bool {
        match self {
            Self::Credentials(_) | Self::Token(_) => true,
            Self::GaveUp { source, .. } => source.as_ref().is_some_and(reqwest::Error::is_connect),
            _ => false,
        }
    }

    /// Whether the same may succeed later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Token(error) => error.is_passing(),
            Self::GaveUp { .. } | Self::WaitTooLong { .. } => true,
            _ => false,
        }
    }

    /// What the keeper of the quota failed with, where it is an `E`; otherwise the error as it is.
    ///
    /// # Errors
    /// The error itself.
    pub fn into_keeper_failure<E: std::error::Error + 'static>(self) -> Result<E, Self> {
        match self {
            Self::Keeper(source) => match source.downcast::<E>() {
                Ok(failure) => Ok(*failure),
                Err(source) => Err(Self::Keeper(source)),
            },
            Self::Token(error) => {
                let error = error.into_keeper_failure();
                error.map_err(|error| Self::Token(Box::new(error)))
            }
            other => Err(other),
        }
    }

    /// The word for it in a topic's report.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::BaseUrl { .. }
            | Self::UserAgent(_)
            | Self::Number { .. }
            | Self::Client(_)
            | Self::TooLarge { .. }
            | Self::Keeper(_)
            | Self::Listing { .. } => Outcome::Server,
            Self::Subreddit(_) => Outcome::Missing,
            Self::ClientId | Self::Credentials(_) | Self::Unauthorized(_) => Outcome::Auth,
            Self::Token(error) => error.outcome(),
            Self::WaitTooLong { .. } => Outcome::RateLimited,
            Self::Refused { outcome, .. } | Self::GaveUp { outcome, .. } => *outcome,
        }
    }
}
