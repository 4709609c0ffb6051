//! One token for the whole run, shared by every task.
//!
//! The first task that needs a token fetches it while the others wait for the same one. It is refreshed before it
//! expires, and once when Reddit rejects it: callers name the rejected token, so that many rejections of one token lead
//! to one request. A permanent refusal is remembered, so that sixteen topics with a wrong secret send one request.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Mutex;

use crate::error::SourceError;
use topicmill_core::Timestamp;
use topicmill_core::clock::Clock;

/// The lifetime of a token that does not tell its own.
const USUAL_SECS: u64 = 3600;

/// A token in use.
pub(super) struct Token {
    pub bearer: String,
    pub scope: String,
    pub ends_at: Timestamp,
    fetch_again: Duration,
}

/// A response of the token endpoint, which sends errors with status 200, too.
#[derive(Deserialize)]
pub(super) struct Grant {
    access_token: Option<String>,
    expires_in: Option<u64>,
    #[serde(default)]
    scope: String,
    error: Option<serde_json::Value>,
}

/// The place where the token is kept.
pub(super) struct Tokens {
    kept: Mutex<Kept>,
    /// Time before the end of a token at which a new one is fetched.
    margin: Duration,
}

#[derive(Default)]
struct Kept {
    token: Option<Arc<Token>>,
    refusal: Option<String>,
}

impl Tokens {
    pub(super) fn new(margin: Duration) -> Self {
        Self {
            kept: Mutex::default(),
            margin,
        }
    }

    /// The token, fetched by `fetch` if there is none, it is about to end, or it is the `refused` one.
    pub(super) async fn get(
        &self,
        clock: &dyn Clock,
        refused: Option<&Arc<Token>>,
        fetch: impl Future<Output = Result<Grant, SourceError>>,
    ) -> Result<Arc<Token>, SourceError> {
        // Held while the token is fetched, so that all others wait for the same one. It is therefore a lock of tokio.
        let mut kept = self.kept.lock().await;
        if let Some(detail) = &kept.refusal {
            return Err(SourceError::Credentials(detail.clone()));
        }
        // By when it was given rather than by its text: the endpoint may give the same text again.
        let is_refused = |token| refused.is_some_and(|other| Arc::ptr_eq(other, token));
        if let Some(token) = &kept.token
            && clock.elapsed() < token.fetch_again
            && !is_refused(token)
        {
            return Ok(token.clone());
        }
        match fetch
            .await
            .and_then(|grant| grant.into_token(clock, self.margin))
        {
            Ok(token) => {
                let token = Arc::new(token);
                kept.token = Some(token.clone());
                Ok(token)
            }
            Err(error) => {
                kept.token = None;
                if let SourceError::Credentials(detail) = &error {
                    kept.refusal = Some(detail.clone());
                }
                Err(error)
            }
        }
    }
}

impl Grant {
    fn into_token(self, clock: &dyn Clock, margin: Duration) -> Result<Token, SourceError> {
        let Some(bearer) = self.access_token.filter(|token| !token.is_empty()) else {
            let error = self.error.map(|error| error.to_string());
            let error = error.unwrap_or_else(|| "no `access_token` in the answer".to_owned());
            return Err(SourceError::Credentials(error));
        };
        // A lifetime of more than a year is none that Reddit gives, and would overflow the date.
        let lifetime = Duration::from_secs(self.expires_in.unwrap_or(USUAL_SECS).min(31_536_000));
        // A margin longer than the token lives would have every request fetch a new one.
        let usable = lifetime.saturating_sub(margin.min(lifetime / 2));
        Ok(Token {
            bearer,
            scope: self.scope,
            ends_at: Timestamp::from(clock.now() + lifetime),
            fetch_again: clock.elapsed() + usable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::clock::ManualClock;

    #[tokio::test]
    async fn a_failure_passes_and_a_token_of_the_same_text_counts_as_another_one() {
        let tokens = Tokens::new(Duration::from_mins(1));
        let clock = ManualClock::at(chrono::DateTime::UNIX_EPOCH);
        let down = async { Err(SourceError::Unauthorized("a token".into())) };
        assert!(tokens.get(&*clock, None, down).await.is_err());
        let same = async || Ok(serde_json::from_str("{\"access_token\": \"t\"}").unwrap());
        let first = tokens.get(&*clock, None, same()).await.unwrap();
        let second = tokens.get(&*clock, Some(&first), same()).await.unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        let never = async { panic!("asked again") };
        let third = tokens.get(&*clock, Some(&first), never).await.unwrap();
        assert!(Arc::ptr_eq(&second, &third));
    }
}
