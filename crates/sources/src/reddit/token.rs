//! Caches a run's token, which all its tasks share.
//!
//! The first task that needs a token requests it, while the others wait. The token is renewed before it expires and
//! when Reddit rejects it. Callers pass the rejected token, so that many rejections of one token cause only one
//! request. The rejection of the credentials themselves is remembered, so that sixteen topics with a wrong secret send
//! only one request. If the API accepts neither a token nor its replacement, no third one is requested.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Mutex;

use crate::error::SourceError;
use topicmill_core::Timestamp;
use topicmill_core::clock::Clock;

/// The lifetime of a token that lacks `expires_in`, in seconds.
const USUAL_SECS: u64 = 3600;
/// The longest lifetime of a token that is believed, in seconds: a year. Reddit grants up to a day, and much more could
/// overflow the date.
const LONGEST_SECS: u64 = 31_536_000;
/// Lead time for renewing a token before it expires.
const MARGIN: Duration = Duration::from_mins(1);

/// A token and its expiry time.
pub(super) struct Token {
    pub bearer: String,
    pub scope: String,
    pub ends_at: Timestamp,
    /// When to renew it, by [`Clock::elapsed`].
    renew_at: Duration,
    /// True if it was requested because the API had rejected the previous token.
    replaces_rejected: bool,
    /// True once the API has accepted a request with it.
    accepted: AtomicBool,
}

impl Token {
    /// Records that the API has accepted a request with this token.
    pub(super) fn set_accepted(&self) {
        self.accepted.store(true, Ordering::Relaxed);
    }
}

/// A response from the token endpoint, which also sends errors with status 200.
#[derive(Deserialize)]
pub(super) struct TokenResponse {
    access_token: Option<String>,
    expires_in: Option<u64>,
    #[serde(default)]
    scope: String,
    error: Option<serde_json::Value>,
}

/// The token cache.
#[derive(Default)]
pub(super) struct TokenCache(Mutex<CachedToken>);

#[derive(Default)]
struct CachedToken {
    token: Option<Arc<Token>>,
    /// Why Reddit rejected the credentials, if it did: no token is then requested any more.
    rejection: Option<String>,
}

impl TokenCache {
    /// Returns the token. Requests it with `fetch` if there is none, or if it is about to expire or is the `rejected`
    /// one.
    ///
    /// # Errors
    /// Returns the errors from `fetch`, and [`SourceError::Unauthorized`] if `rejected` was never accepted and already
    /// replaced a rejected token: the application has no permission to read.
    pub(super) async fn get(
        &self,
        clock: &dyn Clock,
        rejected: Option<&Arc<Token>>,
        fetch: impl Future<Output = Result<TokenResponse, SourceError>>,
    ) -> Result<Arc<Token>, SourceError> {
        // The lock is held while the token is requested so that all other tasks wait for it; this needs a tokio lock.
        let mut cached = self.0.lock().await;
        if let Some(detail) = &cached.rejection {
            return Err(SourceError::Credentials(detail.clone()));
        }
        // Tokens are compared by pointer because the endpoint may issue the same string twice.
        let is_rejected = |token| rejected.is_some_and(|other| Arc::ptr_eq(other, token));
        let mut replaces_rejected = false;
        if let Some(token) = &cached.token {
            replaces_rejected = is_rejected(token);
            let was_accepted = token.accepted.load(Ordering::Relaxed);
            if replaces_rejected && token.replaces_rejected && !was_accepted {
                return Err(SourceError::Unauthorized("any subreddit".to_owned()));
            }
            if clock.elapsed() < token.renew_at && !replaces_rejected {
                return Ok(token.clone());
            }
        }
        let granted = fetch.await;
        match granted.and_then(|grant| grant.into_token(clock, replaces_rejected)) {
            Ok(token) => {
                let token = Arc::new(token);
                cached.token = Some(token.clone());
                Ok(token)
            }
            Err(error) => {
                cached.token = None;
                if let SourceError::Credentials(detail) = &error {
                    cached.rejection = Some(detail.clone());
                }
                Err(error)
            }
        }
    }
}

impl TokenResponse {
    /// Returns the granted token, or the error that the response contains.
    fn into_token(self, clock: &dyn Clock, replaces_rejected: bool) -> Result<Token, SourceError> {
        let Some(bearer) = self.access_token.filter(|token| !token.is_empty()) else {
            let error = self.error.map(|error| error.to_string());
            let error = error.unwrap_or_else(|| "no `access_token` in the response".to_owned());
            return Err(SourceError::Credentials(error));
        };
        let lifetime = self.expires_in.unwrap_or(USUAL_SECS).min(LONGEST_SECS);
        let lifetime = Duration::from_secs(lifetime);
        // With a margin longer than the lifetime, every request would renew the token.
        let usable = lifetime.saturating_sub(MARGIN.min(lifetime / 2));
        Ok(Token {
            bearer,
            scope: self.scope,
            ends_at: Timestamp::from(clock.now() + lifetime),
            renew_at: clock.elapsed() + usable,
            replaces_rejected,
            accepted: AtomicBool::new(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use chrono::DateTime;

    use super::*;
    use topicmill_core::clock::ManualClock;

    /// Returns the same token for each request.
    fn granted() -> Ready<Result<TokenResponse, SourceError>> {
        let response = serde_json::from_str("{\"access_token\": \"t\"}");
        ready(Ok(response.unwrap()))
    }

    #[tokio::test]
    async fn failures_are_not_cached() {
        let (tokens, clock) = (TokenCache::default(), ManualClock::at(DateTime::UNIX_EPOCH));
        let down = async { Err(SourceError::Unauthorized("a token".into())) };
        assert!(tokens.get(&*clock, None, down).await.is_err());
        assert!(tokens.get(&*clock, None, granted()).await.is_ok());
    }

    #[tokio::test]
    async fn a_token_is_replaced_once_until_its_replacement_is_accepted() {
        let (tokens, clock) = (TokenCache::default(), ManualClock::at(DateTime::UNIX_EPOCH));
        let first = tokens.get(&*clock, None, granted()).await.unwrap();
        let second = tokens.get(&*clock, Some(&first), granted()).await.unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        let never = async || panic!("another request for a token");
        let third = tokens.get(&*clock, Some(&first), never()).await.unwrap();
        assert!(Arc::ptr_eq(&second, &third));
        // Another task used the replacement, which was also rejected.
        let refused = tokens.get(&*clock, Some(&second), never()).await;
        assert!(matches!(refused, Err(SourceError::Unauthorized(_))));
        second.set_accepted();
        let fourth = tokens.get(&*clock, Some(&second), granted()).await.unwrap();
        assert!(!Arc::ptr_eq(&second, &fourth));
    }
}
