//! Sends requests, paced and with retries, until a response is accepted, a failure is final, or the tries are used up.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use reqwest::{Client, RequestBuilder, Url, redirect};

use super::base_url::is_loopback;
use super::error::HttpError;
use super::proxy::check_proxies;
use super::quota::{Quota, QuotaError};
use super::refusal::Refusal;
use super::response::{HttpResponse, MAX_RESPONSE_BYTES, MIN_WAIT};
use super::shared_quota::SharedQuota;
use super::site::Site;
use super::traffic::{Meter, Purpose, WaitCause};
use topicmill_core::clock::SharedClock;
use topicmill_core::record::Traffic;

/// The longest backoff between tries.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The timeouts of a request.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Connect timeout.
    pub connect: Duration,
    /// Idle timeout between two reads of a response.
    pub read: Duration,
    /// Total timeout, from sending the request to the last byte of the response.
    pub total: Duration,
}

/// The settings of a client.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// `User-Agent` header.
    pub user_agent: String,
    /// The client's own rate limit, in requests per minute; 0 counts as 1.
    pub requests_per_minute: u32,
    /// The longest single wait; the client gives up instead of waiting longer.
    pub wait_budget: Duration,
    /// Maximum number of tries for one request, including the first.
    pub tries: u32,
    /// Timeouts of connections and responses.
    pub timeouts: Timeouts,
}

/// The decision about a response.
pub enum RetryDecision<T, E> {
    /// Accept the response, with this value.
    Accept(T),
    /// Retry, because the failure may be transient.
    Retry(RetryableFailure),
    /// Fail without a retry.
    Fail(E),
}

/// A failure that is worth a retry.
#[derive(Debug, Default)]
pub struct RetryableFailure {
    /// User-facing description.
    pub detail: String,
    /// Wait requested by the response.
    pub wait: Option<Duration>,
    /// True for a rate limit, whose wait applies to all requests.
    pub is_rate_limit: bool,
    /// If set, the client tries again even after the usual tries are used up. It waits this long first, or for `wait` if
    /// that is set too.
    pub last_resort: Option<Duration>,
    /// Cause, if there was no response.
    pub source: Option<reqwest::Error>,
}

impl RetryableFailure {
    fn without_response(error: reqwest::Error) -> Self {
        let detail = if error.is_timeout() {
            "no complete response within the configured timeouts"
        } else {
            "the connection failed or was dropped"
        };
        Self {
            detail: detail.to_owned(),
            source: Some(error),
            ..Self::default()
        }
    }
}

/// A client of one site, shared by all tasks of a run.
#[derive(Debug)]
pub struct PoliteClient {
    site: Site,
    http: Client,
    quota: Quota,
    meter: Arc<Meter>,
    wait_budget: Duration,
    tries: u32,
}

/// Installs ring as the process's TLS provider. Idempotent.
///
/// Building an HTTPS client panics without a provider, so [`PoliteClient::new`] calls this.
pub fn install_tls() {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl PoliteClient {
    /// Creates a client for requests below these base URLs. Sends nothing yet.
    ///
    /// # Errors
    /// When the HTTPS client cannot start, or a proxy variable is malformed.
    pub fn new(
        site: Site,
        settings: &ClientSettings,
        base_urls: &[&Url],
        clock: SharedClock,
    ) -> Result<Self, HttpError> {
        install_tls();
        let mut builder = Client::builder()
            .user_agent(&settings.user_agent)
            // A redirect is unexpected, and following it could leak a token.
            .redirect(redirect::Policy::none())
            .connect_timeout(settings.timeouts.connect)
            .read_timeout(settings.timeouts.read)
            .timeout(settings.timeouts.total);
        if base_urls.iter().all(|url| is_loopback(url)) {
            // The built-in sample Reddit must work with a proxy configured and without CA certificates.
            builder = builder.no_proxy().tls_certs_only([]);
        } else {
            check_proxies()?;
        }
        let meter = Arc::<Meter>::default();
        let wait_budget = settings.wait_budget;
        let per_minute = NonZeroU32::new(settings.requests_per_minute).unwrap_or(NonZeroU32::MIN);
        let burst = if site.evenly_spaced {
            NonZeroU32::MIN
        } else {
            per_minute
        };
        let limit = governor::Quota::per_minute(per_minute).allow_burst(burst);
        Ok(Self {
            site,
            http: builder.build().map_err(HttpError::Client)?,
            quota: Quota::new(limit, wait_budget, clock, meter.clone()),
            meter,
            wait_budget,
            tries: settings.tries,
        })
    }

    /// Returns the traffic so far.
    pub fn traffic(&self) -> Traffic {
        self.meter.snapshot()
    }

    /// Returns the meter that counts the traffic.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Shares the quota with other processes from now on. Only the first call has an effect.
    pub fn share_quota(&self, shared: SharedQuota) {
        self.quota.share_with(shared);
    }

    /// Sends a request, with retries, until `decide` accepts or fails a response. `request` is built anew for each try;
    /// `what` describes it in errors.
    ///
    /// # Errors
    /// When `decide` returns a failure, all tries fail, a wait exceeds the budget, or the shared quota fails.
    pub async fn send<T, E: From<HttpError>>(
        &self,
        purpose: Purpose,
        what: &str,
        request: impl Fn(&Client) -> RequestBuilder,
        decide: impl Fn(&HttpResponse) -> RetryDecision<T, E>,
    ) -> Result<T, E> {
        let quota_error = |error| self.http_error(what, error);
        // One more than there are retries: after the last try, a rate limit still applies to other requests.
        let mut backoffs = backoff(self.tries.saturating_add(1));
        let mut tries = 0;
        loop {
            self.quota.acquire().await.map_err(quota_error)?;
            tries += 1;
            let fetched = self.fetch(purpose, what, request(&self.http)).await?;
            let failure = match fetched.map(|response| decide(&response)) {
                Ok(RetryDecision::Accept(value)) => return Ok(value),
                Ok(RetryDecision::Fail(error)) => return Err(error),
                Ok(RetryDecision::Retry(failure)) | Err(failure) => failure,
            };
            let is_last = tries >= self.tries;
            let backoff = match failure.last_resort {
                Some(backoff) if is_last => backoff,
                _ => backoffs.next().unwrap_or(MAX_BACKOFF),
            };
            let (wait, cause) = match failure.wait {
                Some(wait) => (wait, WaitCause::RetryAfter),
                None => (backoff, WaitCause::Backoff),
            };
            // Done even if this call gives up below, because the next request of any process must wait too.
            if failure.is_rate_limit {
                self.quota.throttle(wait).await.map_err(quota_error)?;
            }
            let within_budget = self.quota.check_budget(wait);
            // A rate limit is an error about the budget: it names the setting that allows a longer wait, which would
            // not help after other failures.
            if (is_last && failure.last_resort.is_none())
                || (within_budget.is_err() && !failure.is_rate_limit)
            {
                let error = HttpError::GaveUp {
                    site: self.site,
                    what: what.to_owned(),
                    is_rate_limit: failure.is_rate_limit,
                    tries,
                    detail: failure.detail,
                    source: failure.source,
                };
                return Err(error.into());
            }
            within_budget.map_err(quota_error)?;
            tracing::warn!(
                what,
                failure = failure.detail,
                wait_secs = wait.as_secs_f64(),
                tries,
                "request to {} failed; waiting before a retry",
                self.site.name
            );
            self.quota.pause(wait, cause).await.map_err(quota_error)?;
            self.meter.count_retry();
        }
    }

    /// Sends one request. Returns the response, or the failure if there was none but a retry may help.
    async fn fetch(
        &self,
        purpose: Purpose,
        what: &str,
        request: RequestBuilder,
    ) -> Result<Result<HttpResponse, RetryableFailure>, HttpError> {
        let (site, what) = (self.site, what.to_owned());
        self.meter.count_request(purpose);
        match HttpResponse::fetch(request).await {
            Ok(Some(response)) => {
                self.meter.count_response(response.status.as_u16());
                if purpose == Purpose::Data {
                    let observed = self.quota.observe(&response.headers).await;
                    observed.map_err(|error| self.http_error(&what, error))?;
                }
                Ok(Ok(response))
            }
            Ok(None) => {
                self.meter.count_no_answer();
                let limit = MAX_RESPONSE_BYTES;
                Err(HttpError::TooLarge { site, what, limit })
            }
            Err(error) => {
                self.meter.count_no_answer();
                match Refusal::of(&error) {
                    Some(why) => Err(HttpError::Refused { site, what, why }),
                    None => Ok(Err(RetryableFailure::without_response(error))),
                }
            }
        }
    }

    fn http_error(&self, what: &str, error: QuotaError) -> HttpError {
        match error {
            QuotaError::OverBudget(wait) => HttpError::WaitTooLong {
                site: self.site,
                what: what.to_owned(),
                wait,
                budget: self.wait_budget,
            },
            QuotaError::SharedQuota(error) => HttpError::SharedQuota(error),
        }
    }
}

/// Returns the waits between `tries` tries: exponential backoff with jitter, to spread out concurrent clients.
pub fn backoff(tries: u32) -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::new()
        .with_min_delay(MIN_WAIT)
        .with_max_delay(MAX_BACKOFF)
        .with_max_times(tries.saturating_sub(1) as usize)
        .with_jitter()
        .build()
}
