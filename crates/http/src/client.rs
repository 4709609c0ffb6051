//! Sends a request until its answer is taken, is refused for good, or the tries are used up.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use reqwest::{Client, RequestBuilder, redirect};
use tokio::sync::Mutex;
use tracing::Instrument;

use super::quota::{Quota, QuotaError};
use super::response::{HttpResponse, MAX_RESPONSE_BYTES, MIN_WAIT};
use super::shared_quota::{SharedQuota, SharedQuotaError};
use super::traffic::{Meter, WaitCause};
use topicmill_core::FailureKind;
use topicmill_core::clock::SharedClock;
use topicmill_core::record::Traffic;

/// The longest of the growing waits between tries.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Whom a client asks, as messages name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// Its name, `Arctic Shift`.
    pub name: &'static str,
    /// Its section of the settings, `arctic_shift`.
    pub section: &'static str,
    /// No request leaves while another one is under way or waits for its next try, and requests keep their distance.
    pub one_at_a_time: bool,
}

/// How long the parts of a request may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Until a connection stands.
    pub connect: Duration,
    /// Between two reads of a response.
    pub read: Duration,
    /// From sending a request to the last byte of its response.
    pub total: Duration,
}

/// Why a request has no answer that its sender could judge.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The HTTP client could not be built.
    #[error(
        "the HTTPS client cannot start: check that the system has CA certificates (Debian's package is `ca-certificates`)"
    )]
    Client(#[source] reqwest::Error),
    /// The site asks for more patience than the settings allow.
    #[error("{} asks for a wait of {} s for {what}, above `{}.wait_budget_secs` = {}: run again later, or raise it", .site.name, .wait.as_secs_f64().ceil(), .site.section, .budget.as_secs())]
    WaitTooLong {
        /// Who asks for it.
        site: Site,
        /// What was asked for.
        what: String,
        /// The wait it would have taken.
        wait: Duration,
        /// The most that was allowed.
        budget: Duration,
    },
    /// Every try ended in a failure that another try may cure.
    #[error("{} failed for {what}, tried {tries}×, at last with: {detail}; run again later", .site.name)]
    GaveUp {
        /// Who failed.
        site: Site,
        /// What was asked for.
        what: String,
        /// Whether the last failure was a limit of requests.
        is_rate_limit: bool,
        /// How often it was tried.
        tries: u32,
        /// The last failure in words.
        detail: String,
        /// The last failure, where there was no answer at all.
        source: Option<reqwest::Error>,
    },
    /// Whoever keeps the quota for all processes failed, so nothing may be sent.
    #[error(transparent)]
    SharedQuota(SharedQuotaError),
    /// An answer of a size that none has.
    #[error(
        "the response for {what} is larger than {limit} bytes, the most that is read: check `{}.api_url`", .site.section
    )]
    TooLarge {
        /// Who gave it.
        site: Site,
        /// What was asked for.
        what: String,
        /// The most that is read.
        limit: usize,
    },
}

impl HttpError {
    /// The kind of this error, which decides the exit code.
    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::Client(_) => FailureKind::Usage,
            Self::WaitTooLong { .. } | Self::GaveUp { .. } => FailureKind::Temporary,
            Self::SharedQuota(error) => error.kind,
            Self::TooLarge { .. } => FailureKind::Unfinished,
        }
    }

    /// Whether the same may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::GaveUp { .. } | Self::WaitTooLong { .. })
    }

    /// Whether there is no way to the site.
    pub fn is_unreachable(&self) -> bool {
        let Self::GaveUp { source, .. } = self else {
            return false;
        };
        source.as_ref().is_some_and(reqwest::Error::is_connect)
    }

    /// Whether a limit of requests is why.
    pub fn is_rate_limit(&self) -> bool {
        match self {
            Self::GaveUp { is_rate_limit, .. } => *is_rate_limit,
            other => matches!(other, Self::WaitTooLong { .. }),
        }
    }
}

/// How a client behaves; plain values, filled from the configuration by the caller.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// How it names itself.
    pub user_agent: String,
    /// Requests a minute that it allows itself, whatever the site's headers say; none counts as one.
    pub requests_per_minute: u32,
    /// A single wait above this gives up instead.
    pub wait_budget: Duration,
    /// Sends of one request, the first included, before it is given up.
    pub tries: u32,
    /// The times after which it gives up on a connection or an answer.
    pub timeouts: Timeouts,
}

/// What a request is for. All share one pace, but only answers with data tell of the quota.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Posts or whatever else the site has.
    Data,
    /// A token to ask with.
    Token,
}

/// What to do about an answer.
pub enum RetryDecision<T, E> {
    /// It is what was asked for.
    Accept(T),
    /// Asking again may help.
    Retry(RetryableFailure),
    /// Asking again will not help.
    Fail(E),
}

/// A failure of one try that the next may not have.
#[derive(Debug, Default)]
pub struct RetryableFailure {
    /// In words.
    pub detail: String,
    /// How long to wait, where the answer named it.
    pub wait: Option<Duration>,
    /// Too many requests: the wait holds for everybody.
    pub is_rate_limit: bool,
    /// Worth one more try after this wait even where the usual tries are used up.
    pub last_resort: Option<Duration>,
    /// The failure, where there was no answer.
    pub source: Option<reqwest::Error>,
}

/// A client of one site, shared by all tasks of a run.
#[derive(Debug)]
pub struct PoliteClient {
    site: Site,
    http: Client,
    clock: SharedClock,
    quota: Quota,
    meter: Arc<Meter>,
    wait_budget: Duration,
    tries: u32,
    /// Time between two requests that leave one at a time, and when the next one may.
    turn: Option<(Duration, Mutex<Duration>)>,
}

/// Makes ring the process's TLS provider. May be called any number of times; the first call counts.
///
/// Building an HTTPS client panics without one. Each client of this program calls this itself.
pub fn install_tls() {
    // An error says that there is one already, which is what is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl PoliteClient {
    /// A client; sends nothing yet. One that asks `on_this_machine` only uses no proxy and no CA certificates.
    ///
    /// # Errors
    /// When the HTTPS client cannot start.
    pub fn new(
        site: Site,
        settings: &ClientSettings,
        on_this_machine: bool,
        clock: SharedClock,
    ) -> Result<Self, HttpError> {
        install_tls();
        let mut builder = Client::builder()
            .user_agent(&settings.user_agent)
            // A redirect means that something is wrong, and following it would carry a token along.
            .redirect(redirect::Policy::none())
            .connect_timeout(settings.timeouts.connect)
            .read_timeout(settings.timeouts.read)
            .timeout(settings.timeouts.total);
        if on_this_machine {
            // The sample Reddit must answer behind a proxy, and where no CA certificates are installed.
            builder = builder.no_proxy().tls_certs_only([]);
        }
        let meter = Arc::<Meter>::default();
        let wait_budget = settings.wait_budget;
        let per_minute = NonZeroU32::new(settings.requests_per_minute).unwrap_or(NonZeroU32::MIN);
        let distance = Duration::from_mins(1) / per_minute.get();
        Ok(Self {
            site,
            http: builder.build().map_err(HttpError::Client)?,
            quota: Quota::new(per_minute, wait_budget, clock.clone(), meter.clone()),
            meter,
            clock,
            wait_budget,
            tries: settings.tries,
            turn: site.one_at_a_time.then(|| (distance, Mutex::default())),
        })
    }

    /// What this client has done so far.
    pub fn traffic(&self) -> Traffic {
        self.meter.snapshot()
    }

    /// What counts its traffic.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// From now on the quota is shared with other processes, through `keeper`. The first one stays.
    pub fn share_quota(&self, shared: SharedQuota) {
        self.quota.share_with(shared);
    }

    /// Sends a request, which is made anew for each try, until `judge` takes or refuses its answer.
    ///
    /// # Errors
    /// When `judge` refuses, when every try fails, when a wait is above the budget, or when the shared quota cannot be kept.
    pub async fn send<T, E: From<HttpError>>(
        &self,
        purpose: Purpose,
        what: &str,
        request: impl Fn(&Client) -> RequestBuilder,
        judge: impl Fn(&HttpResponse) -> RetryDecision<T, E>,
    ) -> Result<T, E> {
        let quota_error = |quota_error| self.quota_error(what, quota_error);
        let mut backoff = backoff(self.tries);
        let mut tries = 0;
        // Held until the answer is taken or given up: while one request waits for its next try, no other one leaves.
        let mut turn = match &self.turn {
            Some((distance, next_at)) => Some((*distance, next_at.lock().await)),
            None => None,
        };
        loop {
            if let Some((_, next_at)) = &turn {
                let wait = next_at.saturating_sub(self.clock.elapsed());
                if !wait.is_zero() {
                    let paused = self.quota.pause(wait, WaitCause::OwnPace).await;
                    paused.map_err(quota_error)?;
                }
            }
            self.quota.acquire().await.map_err(quota_error)?;
            // Counted from when the request leaves, because the wait for a slot may have been longer.
            if let Some((distance, next_at)) = &mut turn {
                **next_at = self.clock.elapsed() + *distance;
            }
            self.meter.count_request(purpose == Purpose::Token);
            tries += 1;
            let span =
                tracing::trace_span!(target: "otel", "request", what, site = self.site.name, tries);
            let attempt = self.attempt(purpose, what, request(&self.http));
            let trouble = match attempt.instrument(span).await? {
                Ok(response) => match judge(&response) {
                    RetryDecision::Accept(taken) => return Ok(taken),
                    RetryDecision::Fail(error) => return Err(error),
                    RetryDecision::Retry(trouble) => trouble,
                },
                Err(trouble) => trouble,
            };
            // The number of waits also bounds the number of tries.
            let next = backoff.next().or(trouble.last_resort);
            let (wait, cause) = match trouble.wait {
                Some(wait) => (wait, WaitCause::RetryAfter),
                None => (next.unwrap_or_default(), WaitCause::Backoff),
            };
            // Before anything is given up here: whoever asks next, in any process, has to wait as well.
            if trouble.is_rate_limit {
                self.quota.throttle(wait).await.map_err(quota_error)?;
            }
            match self.quota.check_budget(wait) {
                // This error names the setting that allows a longer wait. For other troubles, a longer wait would not
                // help.
                Err(over) if trouble.is_rate_limit && next.is_some() => {
                    return Err(quota_error(over).into());
                }
                Ok(()) if next.is_some() => {}
                _ => return Err(self.give_up(trouble, what, tries).into()),
            }
            tracing::warn!(
                what,
                failure = trouble.detail,
                wait_secs = wait.as_secs_f64(),
                tries,
                "{} did not response as hoped; waiting before another try",
                self.site.name
            );
            self.quota.pause(wait, cause).await.map_err(quota_error)?;
            self.meter.update(|traffic| traffic.retries += 1);
        }
    }

    /// Sends a request once. The outer error is final, the inner one may pass.
    async fn attempt(
        &self,
        purpose: Purpose,
        what: &str,
        request: RequestBuilder,
    ) -> Result<Result<HttpResponse, RetryableFailure>, HttpError> {
        let read = HttpResponse::fetch(request).await;
        if !matches!(read, Ok(Some(_))) {
            self.meter.update(|traffic| traffic.no_answer += 1);
        }
        let response = match read {
            Ok(Some(response)) => response,
            Ok(None) => {
                return Err(HttpError::TooLarge {
                    site: self.site,
                    what: what.to_owned(),
                    limit: MAX_RESPONSE_BYTES,
                });
            }
            Err(error) => {
                let detail = if error.is_timeout() {
                    "no whole response within the timeouts of the settings"
                } else {
                    "the connection failed or broke off"
                };
                return Ok(Err(RetryableFailure {
                    detail: detail.to_owned(),
                    source: Some(error),
                    ..RetryableFailure::default()
                }));
            }
        };
        self.meter.count_response(response.status.as_u16());
        if purpose == Purpose::Data {
            let observed = self.quota.observe(&response.headers).await;
            observed.map_err(|quota_error| self.quota_error(what, quota_error))?;
        }
        Ok(Ok(response))
    }

    fn give_up(&self, trouble: RetryableFailure, what: &str, tries: u32) -> HttpError {
        HttpError::GaveUp {
            site: self.site,
            what: what.to_owned(),
            is_rate_limit: trouble.is_rate_limit,
            tries,
            detail: trouble.detail,
            source: trouble.source,
        }
    }

    fn quota_error(&self, what: &str, quota_error: QuotaError) -> HttpError {
        match quota_error {
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

/// The waits between that many tries of one request, growing and jittered so that many clients spread out.
pub fn backoff(tries: u32) -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::new()
        .with_min_delay(MIN_WAIT)
        .with_max_delay(MAX_BACKOFF)
        .with_max_times(tries.saturating_sub(1) as usize)
        .with_jitter()
        .build()
}
