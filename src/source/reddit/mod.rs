//! Reddit's API: one client for a run, shared by all its tasks.
//!
//! What enters is the name of a subreddit, what leaves is a [`ListingPage`] or a [`RedditError`] with the
//! [`Outcome`] that it means. In between: one token for all (`token`), a pace that follows our own limit
//! and Reddit's headers (`quota`), which several processes may share (`keeper`), retries of what may pass
//! (`retry`), and the count of it all (`traffic`). Only the [wire form](listing) of
//! a post comes from here; which pages are wanted, and of which subreddit, is the collector's to know.
//!
//! The client is our own rather than roux's because roux follows redirects, takes an error page for a
//! listing, and asks for a new token per subreddit; its envelope of a listing is used.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, Url, redirect};
use sha2::{Digest, Sha256};

use crate::clock::SharedClock;
use crate::domain::{Fullname, Listing, Outcome, SourceKind, Timestamp, hex};
use crate::source::ListingPage;

mod error;
mod info;
pub mod keeper;
pub mod listing;
mod quota;
mod retry;
mod settings;
mod token;
mod traffic;

pub use error::RedditError;
pub use info::{Fate, Fates};
pub use settings::{Settings, Timeouts, check_subreddit};
pub use traffic::{QuotaLeft, Traffic, Waited, Waits};

// Whoever else reads over HTTP keeps the same manners.
pub(in crate::source) use quota::{NoSlot, Quota};
pub(in crate::source) use retry::{Answer, asked_wait, backoff, is_web_page, retry_after};
pub(in crate::source) use settings::{check_user_agent, is_loopback};
pub(in crate::source) use traffic::{Cause, Meter};

use keeper::Keeper;
use listing::ListingError;
use retry::Verdict;
use token::{Grant, Token, Tokens};

/// The most that is read of one answer. A page of 100 posts of 40,000 characters each is 4 MB.
pub(in crate::source) const LARGEST_ANSWER: usize = 32 << 20;

/// Posts that Reddit gives on one page at most, stickied ones not counted.
pub const PAGE_LIMIT: u32 = 100;

/// Posts that Reddit tells about in one answer of `/api/info` at most.
pub const INFO_LIMIT: u32 = 100;

/// The client.
pub struct Reddit {
    http: Client,
    settings: Settings,
    token_url: Url,
    api_url: Url,
    source: SourceKind,
    clock: SharedClock,
    quota: Quota,
    tokens: Tokens,
    meter: Arc<Meter>,
}

/// What the credentials are good for.
#[derive(Debug, Clone, PartialEq)]
pub struct Credentials {
    /// Whether an account signed in, rather than the application alone.
    pub account: bool,
    /// Reddit's words for what it allows, `*` for everything.
    pub scope: String,
    /// When the token ends.
    pub ends_at: Timestamp,
    /// The quota as the API told it; `None` if it did not.
    pub quota: Option<QuotaLeft>,
}

/// Makes ring the process's TLS provider. May be called any number of times; the first call counts.
///
/// Building an HTTPS client panics without one. [`Reddit::new`] calls this itself.
pub fn install_tls() {
    // An error says that there is one already, which is what is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What a request is for. All share one pace, but only the API's answers tell of the API's quota.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    Api,
    Token,
}

/// A failure of one try that the next may not have.
struct Failure {
    outcome: Outcome,
    detail: String,
    wait: Option<Duration>,
    source: Option<reqwest::Error>,
}

impl Failure {
    fn give_up(self, what: &str, tries: u32) -> RedditError {
        RedditError::GaveUp {
            what: what.to_owned(),
            outcome: self.outcome,
            tries,
            detail: self.detail,
            source: self.source,
        }
    }
}

impl Reddit {
    /// A client whose posts are marked as of `source`. Sends nothing yet.
    ///
    /// # Errors
    /// A setting that cannot work; the message names it and shows what it should look like.
    pub fn new(
        settings: Settings,
        source: SourceKind,
        clock: SharedClock,
    ) -> Result<Self, RedditError> {
        let mut token_url = settings::base_url("auth_url", &settings.auth_url)?;
        let api_url = settings::base_url("api_url", &settings.api_url)?;
        if settings.client_id.is_empty() {
            return Err(RedditError::ClientId);
        }
        settings::check_user_agent(&settings.user_agent)?;
        settings::check_numbers(&settings)?;
        let per_minute =
            NonZeroU32::new(settings.requests_per_minute).expect("checked to be above 0");
        let on_this_machine = settings::is_loopback(&token_url) && settings::is_loopback(&api_url);
        extend(&mut token_url, &["api", "v1", "access_token"]);
        let meter = Arc::<Meter>::default();
        Ok(Self {
            http: build_client(&settings.user_agent, settings.timeouts, on_this_machine)
                .map_err(RedditError::Client)?,
            quota: Quota::new(
                per_minute,
                settings.wait_budget,
                clock.clone(),
                meter.clone(),
            ),
            tokens: Tokens::new(settings.token_margin),
            meter,
            token_url,
            api_url,
            settings,
            source,
            clock,
        })
    }

    /// One page of a subreddit's listing: up to `limit` posts (at most [`PAGE_LIMIT`]) and whatever is
    /// stickied, from the start or behind the fullname `after`.
    ///
    /// # Errors
    /// [`RedditError::outcome`] says what it means for the subreddit.
    pub async fn listing_page(
        &self,
        subreddit: &str,
        listing: Listing,
        limit: u32,
        after: Option<&str>,
    ) -> Result<ListingPage, RedditError> {
        settings::check_subreddit(subreddit)?;
        let mut url = self.api_url.clone();
        extend(&mut url, &["r", subreddit, listing.as_str()]);
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("limit", &limit.clamp(1, PAGE_LIMIT).to_string());
            // Without it the text comes HTML-escaped.
            query.append_pair("raw_json", "1");
            if listing == Listing::Top {
                query.append_pair("t", "day");
            }
            if let Some(after) = after {
                query.append_pair("after", after);
            }
        }

        let what = format!("r/{subreddit}");
        let decode = |body: &[u8]| listing::parse_listing(body, self.source);
        self.get(&what, &url, decode).await
    }

    /// What became of posts, at most [`INFO_LIMIT`] of them. A post that is not in the answer is not known to
    /// Reddit any more; `None` where the answer holds something that cannot be told, so that nothing follows
    /// from what it lacks.
    ///
    /// # Errors
    /// [`RedditError::outcome`] says what it means.
    pub async fn info(&self, fullnames: &[Fullname]) -> Result<Option<Fates>, RedditError> {
        let mut url = self.api_url.clone();
        extend(&mut url, &["api", "info"]);
        let names: Vec<&str> = fullnames.iter().map(Fullname::as_str).collect();
        url.query_pairs_mut()
            .append_pair("id", &names.join(","))
            .append_pair("raw_json", "1");
        self.get("known posts", &url, info::parse_info).await
    }

    /// Gets a token and asks the API for one post of a subreddit with it: what the credentials allow, and
    /// how much. That the subreddit itself may not be read says nothing against them.
    ///
    /// # Errors
    /// Why there is no token, or why the API does not take it, and which settings to check.
    pub async fn check_credentials(&self, subreddit: &str) -> Result<Credentials, RedditError> {
        let answer = self.listing_page(subreddit, Listing::Hot, 1, None).await;
        if let Err(error) = answer
            && !error.outcome().is_of_the_subreddit()
        {
            return Err(error);
        }
        // The one that was just used, unless it ended in between.
        let token = self.token(None).await?;
        Ok(Credentials {
            account: !self.settings.username.is_empty(),
            scope: token.scope.clone(),
            ends_at: token.ends_at,
            quota: self.meter.so_far().quota,
        })
    }

    /// From now on the quota is shared with other processes, through `keeper`. The first one stays.
    pub fn share_quota(&self, keeper: Keeper) {
        self.quota.keep_with(keeper);
    }

    /// Under what name the quota is shared: a hash of what Reddit counts by, the client id, and of where.
    pub fn quota_id(&self) -> String {
        let digest = Sha256::new()
            .chain_update(self.settings.client_id.as_bytes())
            .chain_update(b"\n")
            .chain_update(self.api_url.as_str().as_bytes())
            .finalize();
        hex(&digest[..16])
    }

    /// Where its posts are marked as coming from.
    pub fn source(&self) -> SourceKind {
        self.source
    }

    /// What this client has done so far.
    pub fn traffic(&self) -> Traffic {
        self.meter.so_far()
    }

    /// Asks with the token there is, and once more with a new one where it was refused.
    async fn get<T>(
        &self,
        what: &str,
        url: &Url,
        decode: impl Fn(&[u8]) -> Result<T, ListingError>,
    ) -> Result<T, RedditError> {
        let ask = async |token: &Token| {
            let request = || self.http.get(url.clone()).bearer_auth(&token.bearer);
            self.exchange(Lane::Api, what, request, &decode).await
        };
        let token = self.token(None).await?;
        match ask(&token).await {
            Err(RedditError::Unauthorized(_)) => ask(&*self.token(Some(&token)).await?).await,
            answer => answer,
        }
    }

    async fn token(&self, refused: Option<&Arc<Token>>) -> Result<Arc<Token>, RedditError> {
        self.tokens
            .get(&*self.clock, refused, self.fetch_token())
            .await
            .map_err(|error| match error {
                RedditError::Credentials(_) => error,
                other => RedditError::Token(Box::new(other)),
            })
    }

    async fn fetch_token(&self) -> Result<Grant, RedditError> {
        let settings = &self.settings;
        let form = if settings.username.is_empty() {
            vec![("grant_type", "client_credentials")]
        } else {
            vec![
                ("grant_type", "password"),
                ("username", settings.username.as_str()),
                ("password", settings.password.as_str()),
            ]
        };
        let request = || {
            self.http
                .post(self.token_url.clone())
                .basic_auth(&settings.client_id, Some(&settings.client_secret))
                .form(&form)
        };
        let decode = |body: &[u8]| Ok(serde_json::from_slice(body)?);
        self.exchange(Lane::Token, "a token", request, decode)
            .await
            .map_err(|error| match error {
                RedditError::Unauthorized(_) => RedditError::Credentials("status 401".to_owned()),
                RedditError::Refused { status: 400, .. } => {
                    RedditError::Credentials("status 400".to_owned())
                }
                other => other,
            })
    }

    /// Sends a request until its answer decodes, is refused for good, or the tries are used up.
    async fn exchange<T>(
        &self,
        lane: Lane,
        what: &str,
        request: impl Fn() -> RequestBuilder,
        decode: impl Fn(&[u8]) -> Result<T, ListingError>,
    ) -> Result<T, RedditError> {
        let no_slot = |no_slot| self.no_slot(what, no_slot);
        let mut backoff = retry::backoff(self.settings.tries);
        let mut tries = 0;
        loop {
            self.quota.slot().await.map_err(no_slot)?;
            self.meter.sent(lane == Lane::Token);
            tries += 1;
            let failure = match self.attempt(lane, what, request(), &decode).await? {
                Ok(decoded) => return Ok(decoded),
                Err(failure) => failure,
            };
            let rate_limited = failure.outcome == Outcome::RateLimited;
            let next = backoff.next();
            let (wait, cause) = match (failure.wait, next) {
                (Some(wait), _) => (wait, Cause::RetryAfter),
                (None, next) => (next.unwrap_or_default(), Cause::Backoff),
            };
            if rate_limited {
                self.quota.hold(wait).await.map_err(no_slot)?;
            }
            if next.is_none() {
                return Err(failure.give_up(what, tries));
            }
            match self.quota.affords(wait) {
                Err(over) if rate_limited => return Err(no_slot(over)),
                Err(_) => return Err(failure.give_up(what, tries)),
                Ok(()) => {}
            }
            tracing::warn!(
                what,
                failure = failure.detail,
                wait_secs = wait.as_secs_f64(),
                tries,
                "Reddit did not answer as hoped; waiting before another try"
            );
            self.quota.pause(wait, cause).await.map_err(no_slot)?;
            self.meter.retried();
        }
    }

    fn no_slot(&self, what: &str, no_slot: NoSlot) -> RedditError {
        match no_slot {
            NoSlot::OverBudget(wait) => RedditError::WaitTooLong {
                what: what.to_owned(),
                wait,
                budget: self.settings.wait_budget,
            },
            NoSlot::Keeper(error) => RedditError::Keeper(error),
        }
    }

    /// Sends a request once. The outer error is final, the inner one may pass.
    async fn attempt<T>(
        &self,
        lane: Lane,
        what: &str,
        request: RequestBuilder,
        decode: impl Fn(&[u8]) -> Result<T, ListingError>,
    ) -> Result<Result<T, Failure>, RedditError> {
        let answer = match read_answer(request).await {
            Ok(Some(answer)) => answer,
            Ok(None) => {
                self.meter.lost();
                return Err(RedditError::TooLarge {
                    what: what.to_owned(),
                    limit: LARGEST_ANSWER,
                });
            }
            Err(error) => {
                self.meter.lost();
                let detail = if error.is_timeout() {
                    "no whole answer within the timeouts of `[reddit]`".to_owned()
                } else {
                    "the connection failed or broke off".to_owned()
                };
                return Ok(Err(Failure {
                    outcome: Outcome::Server,
                    detail,
                    wait: None,
                    source: Some(error),
                }));
            }
        };
        self.meter.answered(answer.status.as_u16());
        if lane == Lane::Api {
            let observed = self.quota.observe(&answer.headers).await;
            observed.map_err(|no_slot| self.no_slot(what, no_slot))?;
        }
        match retry::judge(&answer, self.clock.now(), self.settings.retry_after_cap) {
            Verdict::Take => match decode(&answer.body) {
                Ok(decoded) => Ok(Ok(decoded)),
                Err(error @ ListingError::Json(_)) => Ok(Err(Failure {
                    outcome: Outcome::Server,
                    detail: error.to_string(),
                    wait: None,
                    source: None,
                })),
                Err(source) => Err(RedditError::Listing {
                    what: what.to_owned(),
                    source,
                }),
            },
            Verdict::Retry {
                outcome,
                detail,
                wait,
            } => Ok(Err(Failure {
                outcome,
                detail,
                wait,
                source: None,
            })),
            Verdict::Unauthorized => Err(RedditError::Unauthorized(what.to_owned())),
            Verdict::Refuse { outcome, detail } => Err(RedditError::Refused {
                what: what.to_owned(),
                outcome,
                status: answer.status.as_u16(),
                detail,
            }),
        }
    }
}

pub(in crate::source) fn build_client(
    user_agent: &str,
    timeouts: Timeouts,
    on_this_machine: bool,
) -> Result<Client, reqwest::Error> {
    install_tls();
    let mut builder = Client::builder()
        .user_agent(user_agent)
        // A redirect means that something is wrong, and following it would carry the token along.
        .redirect(redirect::Policy::none())
        .connect_timeout(timeouts.connect)
        .read_timeout(timeouts.read)
        .timeout(timeouts.total);
    if on_this_machine {
        // The sample Reddit must answer behind a proxy, and where no CA certificates are installed.
        builder = builder.no_proxy().tls_certs_only([]);
    }
    builder.build()
}

/// Adds segments to the path of a base URL, encoded where they need it.
pub(in crate::source) fn extend(url: &mut Url, segments: &[&str]) {
    url.path_segments_mut()
        .expect("an http or https URL has a path")
        .pop_if_empty()
        .extend(segments);
}

/// Sends a request and reads its answer; `None` for one above [`LARGEST_ANSWER`].
pub(in crate::source) async fn read_answer(
    request: RequestBuilder,
) -> Result<Option<Answer>, reqwest::Error> {
    let mut response: Response = request.send().await?;
    let declared = response.content_length().unwrap_or(0);
    if declared > LARGEST_ANSWER as u64 {
        return Ok(None);
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        // Counted after decompression, so that a small answer cannot swell without bounds.
        if body.len() + chunk.len() > LARGEST_ANSWER {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(Answer {
        status: response.status(),
        headers: std::mem::take(response.headers_mut()),
        body,
    }))
}
