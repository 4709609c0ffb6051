//! Arctic Shift: an archive of Reddit that anybody may read, page by page through time.
//!
//! What enters is the name of a subreddit and a border in time; what leaves is a [`Page`] or an
//! [`ArcticShiftError`] with the [`Outcome`] that it means. There is no key, and no order but that of time.
//!
//! The archive is free and one person's work, so only one request is ever under way, requests keep their
//! distance from each other, and what its headers ask for is waited for on top. Where it says that a page is too
//! much, a smaller one is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::{HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::clock::SharedClock;
use crate::domain::{Outcome, Post, SourceKind, Timestamp, redact_url};
use crate::source::Rejected;
use crate::source::reddit::listing::{mend_surrogates, post_from_value, time_of_post};
use crate::source::reddit::{
    Answer, Cause, LARGEST_ANSWER, Meter, NoSlot, Quota, Timeouts, Traffic, asked_wait, backoff,
    build_client, check_subreddit, check_user_agent, extend, is_loopback, is_web_page, read_answer,
    retry_after,
};

/// Rows of a page, unless one second holds more.
pub const PAGE_LIMIT: u32 = 100;
/// Asked for as `auto`, which gives between 100 and 1,000 rows.
pub const LARGEST_PAGE: u32 = 1_000;
/// How often a request is sent at most, those for smaller pages not counted.
const TRIES: u32 = 5;
/// The wait before a smaller page is asked for, once the usual waits are used up.
const LONG_WAIT: Duration = Duration::from_secs(30);
/// How the program calls itself where the settings hold no user agent that says who asks.
const USER_AGENT: &str = concat!("topicmill/", env!("CARGO_PKG_VERSION"));

/// What the client needs to know; plain values, filled from the configuration by the caller.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Base URL, `https://arctic-shift.photon-reddit.com`.
    pub api_url: String,
    /// In Reddit's form; in any other, `topicmill/<version>` is sent.
    pub user_agent: String,
    /// Requests a minute, evenly spread.
    pub requests_per_minute: u32,
    /// A single wait above this gives up instead, with the outcome `rate-limited`.
    pub wait_budget: Duration,
    /// How long a connection, a read and a whole request may take.
    pub timeouts: Timeouts,
}

/// Which way a subreddit is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From now, or from a border, into the past.
    NewestFirst,
    /// From a border towards now.
    OldestFirst,
}

/// Posts that follow each other in time.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Its posts, in the order that was asked for.
    pub posts: Vec<Post>,
    /// Its rows that are no post, or not a whole one.
    pub rejected: Vec<Rejected>,
    /// When the last of its rows was posted; `None` without rows.
    pub ends_at: Option<Timestamp>,
    /// Rows it was asked for in the end: fewer than at first where that was too much for the archive.
    pub limit: u32,
    /// Whether there may be more behind it.
    pub full: bool,
}

/// Why the archive could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ArcticShiftError {
    /// A base URL that must not be used.
    #[error(
        "`arctic_shift.api_url` is `{url}`: {reason}; Arctic Shift's own is `https://arctic-shift.photon-reddit.com`"
    )]
    BaseUrl {
        /// As given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A pace that lets nothing through.
    #[error("`arctic_shift.requests_per_minute` is 0: set it to between 1 and 120")]
    RequestsPerMinute,
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
    /// An answer that another try would not change.
    #[error("Arctic Shift refused {what} with status {status}: {detail}")]
    Refused {
        /// `r/climate`.
        what: String,
        /// What that means.
        outcome: Outcome,
        /// HTTP status.
        status: u16,
        /// What it means in words, and what to do.
        detail: String,
    },
    /// The archive asks for more patience than the settings allow.
    #[error("Arctic Shift asks for a wait of {} s for {what}, above `arctic_shift.wait_budget_secs` = {}: run again later, or raise it", .wait.as_secs_f64().ceil(), .budget.as_secs())]
    WaitTooLong {
        /// What was asked for.
        what: String,
        /// The wait it would have taken.
        wait: Duration,
        /// The most that was allowed.
        budget: Duration,
    },
    /// Every try ended in a failure that another try may cure.
    #[error(
        "Arctic Shift failed for {what}, tried {tries}×, at last with: {detail}; run again later"
    )]
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
    /// More posts of one second than the largest page that the archive gives.
    #[error(
        "Arctic Shift's pages of {what} do not reach past the posts of {at}: run again later, when it may give larger ones"
    )]
    Crowded {
        /// What was asked for.
        what: String,
        /// The second.
        at: DateTime<Utc>,
    },
    /// An answer of a size that no page has.
    #[error(
        "the answer for {what} is larger than {limit} bytes, which no page is: check `arctic_shift.api_url`"
    )]
    TooLarge {
        /// What was asked for.
        what: String,
        /// The most that is read.
        limit: usize,
    },
    /// Whole JSON, but no page.
    #[error("the answer for {what} is of an unknown shape: check `arctic_shift.api_url`")]
    Shape {
        /// What was asked for.
        what: String,
    },
}

impl ArcticShiftError {
    /// Whether every other request would meet the same: there is no way to the archive.
    pub fn is_of_every_topic(&self) -> bool {
        match self {
            Self::GaveUp { source, .. } => source.as_ref().is_some_and(reqwest::Error::is_connect),
            _ => false,
        }
    }

    /// Whether the same may succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::GaveUp { .. } | Self::WaitTooLong { .. })
    }

    /// The word for it in a topic's report.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::BaseUrl { .. }
            | Self::RequestsPerMinute
            | Self::Client(_)
            | Self::TooLarge { .. }
            | Self::Shape { .. } => Outcome::Server,
            Self::Subreddit(_) => Outcome::Missing,
            Self::WaitTooLong { .. } | Self::Crowded { .. } => Outcome::RateLimited,
            Self::Refused { outcome, .. } | Self::GaveUp { outcome, .. } => *outcome,
        }
    }
}

/// The client.
pub struct ArcticShift {
    http: Client,
    search_url: Url,
    wait_budget: Duration,
    /// Between two requests.
    distance: Duration,
    clock: SharedClock,
    quota: Quota,
    /// Held by whoever has a request under way; when the next one may leave.
    turn: Mutex<Duration>,
    meter: Arc<Meter>,
    smaller: AtomicU64,
}

/// A failure of one try that the next may not have.
struct Failure {
    outcome: Outcome,
    detail: String,
    wait: Option<Duration>,
    /// A smaller page may be had.
    too_much: bool,
    source: Option<reqwest::Error>,
}

impl ArcticShift {
    /// A client. Sends nothing yet.
    ///
    /// # Errors
    /// A setting that cannot work; the message names it and shows what it should look like.
    pub fn new(settings: &Settings, clock: SharedClock) -> Result<Self, ArcticShiftError> {
        let mut search_url = base_url(&settings.api_url)?;
        let per_minute = std::num::NonZeroU32::new(settings.requests_per_minute)
            .ok_or(ArcticShiftError::RequestsPerMinute)?;
        let user_agent = match check_user_agent(&settings.user_agent) {
            Ok(()) => &settings.user_agent,
            Err(_) => USER_AGENT,
        };
        let http = build_client(user_agent, settings.timeouts, is_loopback(&search_url))
            .map_err(ArcticShiftError::Client)?;
        extend(&mut search_url, &["api", "posts", "search"]);
        let meter = Arc::<Meter>::default();
        Ok(Self {
            http,
            search_url,
            wait_budget: settings.wait_budget,
            distance: Duration::from_mins(1) / per_minute.get(),
            quota: Quota::new(
                per_minute,
                settings.wait_budget,
                clock.clone(),
                meter.clone(),
            ),
            meter,
            clock,
            turn: Mutex::default(),
            smaller: AtomicU64::new(0),
        })
    }

    /// Up to `limit` posts of a subreddit, from the second `border` on, that second included; without a border from
    /// the newest post or the oldest.
    ///
    /// # Errors
    /// [`ArcticShiftError::outcome`] says what it means for the subreddit.
    pub async fn page(
        &self,
        subreddit: &str,
        way: Way,
        border: Option<Timestamp>,
        limit: u32,
    ) -> Result<Page, ArcticShiftError> {
        if check_subreddit(subreddit).is_err() {
            let name = subreddit.chars().take(40).collect();
            return Err(ArcticShiftError::Subreddit(name));
        }
        let what = format!("r/{subreddit}");
        let mut limit = limit.clamp(1, LARGEST_PAGE);
        let mut waits = backoff(TRIES);
        let mut tries = 0;
        // Whoever waits for the archive to recover lets nobody else ask it meanwhile.
        let mut next_at = self.turn.lock().await;
        loop {
            self.keep_distance(&what, &mut next_at).await?;
            tries += 1;
            self.meter.sent(false);
            let url = self.url(subreddit, way, border, limit);
            let failure = match self.attempt(&what, url).await? {
                Ok(rows) => return self.read(&what, rows, limit),
                Err(failure) => failure,
            };
            let smaller = failure.too_much && limit > 1;
            let Some(usual) = waits.next().or(smaller.then_some(LONG_WAIT)) else {
                return Err(failure.give_up(&what, tries));
            };
            let (wait, cause) = match failure.wait {
                Some(wait) => (wait, Cause::RetryAfter),
                None => (usual, Cause::Backoff),
            };
            let rate_limited = failure.outcome == Outcome::RateLimited;
            if rate_limited {
                // It holds for the other topics, too.
                let held = self.quota.hold(wait).await;
                held.map_err(|refused| self.no_slot(&what, &refused))?;
            }
            match self.quota.affords(wait) {
                Err(refused) if rate_limited => return Err(self.no_slot(&what, &refused)),
                Err(_) => return Err(failure.give_up(&what, tries)),
                Ok(()) => {}
            }
            if smaller {
                limit = limit.min(2 * PAGE_LIMIT) / 2;
                self.smaller.fetch_add(1, Ordering::Relaxed);
            }
            tracing::warn!(
                what,
                failure = failure.detail,
                wait_secs = wait.as_secs_f64(),
                tries,
                limit,
                "Arctic Shift did not answer as hoped; waiting before another try"
            );
            let paused = self.quota.pause(wait, cause).await;
            paused.map_err(|refused| self.no_slot(&what, &refused))?;
            self.meter.retried();
        }
    }

    /// What this client has done so far.
    pub fn traffic(&self) -> Traffic {
        self.meter.so_far()
    }

    /// Requests so far that were for a smaller page.
    pub fn smaller(&self) -> u64 {
        self.smaller.load(Ordering::Relaxed)
    }

    /// Waits until the next request may leave: by our own pace, and by what the archive's headers said.
    async fn keep_distance(
        &self,
        what: &str,
        next_at: &mut Duration,
    ) -> Result<(), ArcticShiftError> {
        let wait = next_at.saturating_sub(self.clock.elapsed());
        let waited = async {
            if !wait.is_zero() {
                self.quota.pause(wait, Cause::OwnPace).await?;
            }
            self.quota.slot().await
        };
        waited
            .await
            .map_err(|refused| self.no_slot(what, &refused))?;
        *next_at = self.clock.elapsed() + self.distance;
        Ok(())
    }

    fn no_slot(&self, what: &str, refused: &NoSlot) -> ArcticShiftError {
        match refused {
            NoSlot::OverBudget(wait) => ArcticShiftError::WaitTooLong {
                what: what.to_owned(),
                wait: *wait,
                budget: self.wait_budget,
            },
            NoSlot::Keeper(_) => unreachable!("each process asks the archive at its own pace"),
        }
    }

    fn url(&self, subreddit: &str, way: Way, border: Option<Timestamp>, limit: u32) -> Url {
        let mut url = self.search_url.clone();
        // Whether a border is part of the answer is not documented. Asked for one second further it is, and what
        // comes twice does no harm.
        let secs = border.map(|border| border.as_datetime().timestamp());
        let (sort, name, secs) = match way {
            Way::NewestFirst => ("desc", "before", secs.map(|secs| secs + 1)),
            Way::OldestFirst => ("asc", "after", secs.map(|secs| secs - 1)),
        };
        let mut query = url.query_pairs_mut();
        query
            .append_pair("subreddit", subreddit)
            .append_pair("sort", sort);
        if let Some(secs) = secs {
            query.append_pair(name, &secs.to_string());
        }
        if limit > PAGE_LIMIT {
            query.append_pair("limit", "auto");
        } else {
            query.append_pair("limit", &limit.to_string());
        }
        drop(query);
        url
    }

    /// Sends a request once. The outer error is final, the inner one may pass.
    async fn attempt(
        &self,
        what: &str,
        url: Url,
    ) -> Result<Result<Vec<Value>, Failure>, ArcticShiftError> {
        let mut answer = match read_answer(self.http.get(url)).await {
            Ok(Some(answer)) => {
                self.meter.answered(answer.status.as_u16());
                answer
            }
            Ok(None) => {
                return Err(ArcticShiftError::TooLarge {
                    what: what.to_owned(),
                    limit: LARGEST_ANSWER,
                });
            }
            Err(error) => {
                self.meter.lost();
                return Ok(Err(Failure {
                    source: Some(error),
                    ..Failure::server("the connection failed or broke off")
                }));
            }
        };
        let now = self.clock.now();
        reset_as_secs(&mut answer.headers, now);
        let observed = self.quota.observe(&answer.headers).await;
        observed.map_err(|refused| self.no_slot(what, &refused))?;
        judge(what, &answer, now)
    }

    fn read(&self, what: &str, rows: Vec<Value>, limit: u32) -> Result<Page, ArcticShiftError> {
        let ends_at = rows.iter().rev().find_map(posted_at);
        if ends_at.is_none() && !rows.is_empty() {
            return Err(ArcticShiftError::Shape {
                what: what.to_owned(),
            });
        }
        let mut page = Page {
            posts: Vec::with_capacity(rows.len()),
            rejected: Vec::new(),
            ends_at,
            limit,
            full: rows.len() >= limit.min(PAGE_LIMIT) as usize,
        };
        let now = self.clock.now().timestamp();
        for (i, mut row) in rows.into_iter().enumerate() {
            // The archive read a row by now at the latest, whether it says when or not.
            if let Some(row) = row.as_object_mut()
                && !row.contains_key("retrieved_utc")
            {
                row.entry("retrieved_on").or_insert(now.into());
            }
            match post_from_value(&row, SourceKind::ArcticShift) {
                Ok(post) => page.posts.push(post),
                Err(reason) => page.rejected.push(Rejected {
                    at: format!("row {}", i + 1),
                    reason,
                }),
            }
        }
        Ok(page)
    }
}

impl Failure {
    fn server(detail: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Server,
            detail: detail.into(),
            wait: None,
            too_much: false,
            source: None,
        }
    }

    fn give_up(self, what: &str, tries: u32) -> ArcticShiftError {
        ArcticShiftError::GaveUp {
            what: what.to_owned(),
            outcome: self.outcome,
            tries,
            detail: self.detail,
            source: self.source,
        }
    }
}

/// What every answer looks like: rows, or an error.
#[derive(Debug, Default, Deserialize)]
struct Envelope {
    data: Option<Vec<Value>>,
    error: Option<String>,
}

/// The rows of an answer, or what it means that there are none. The outer error is final, the inner one may
/// pass.
fn judge(
    what: &str,
    answer: &Answer,
    now: DateTime<Utc>,
) -> Result<Result<Vec<Value>, Failure>, ArcticShiftError> {
    let status = answer.status.as_u16();
    let refuse = |outcome, detail: String| {
        Err(ArcticShiftError::Refused {
            what: what.to_owned(),
            outcome,
            status,
            detail,
        })
    };
    let parsed = parse(&answer.body);
    let told = parsed.as_ref().ok().and_then(|parsed| parsed.error.clone());
    let told: String = told.unwrap_or_default().chars().take(200).collect();
    // It says so with status 422, both of a page that takes too long and of too many requests.
    if status != 429 && says_too_much(&told) {
        return Ok(Err(Failure {
            outcome: Outcome::RateLimited,
            wait: retry_after(&answer.headers, now),
            too_much: true,
            ..Failure::server(format!("`{told}` ({status})"))
        }));
    }
    match status {
        200..=299 if is_web_page(answer) => refuse(
            Outcome::EdgeBlocked,
            "a web page came in place of JSON; check `arctic_shift.api_url` and the way to the internet"
                .to_owned(),
        ),
        200..=299 => match parsed {
            Ok(Envelope {
                data: Some(rows), ..
            }) => Ok(Ok(rows)),
            Err(error) if !error.is_data() => {
                Ok(Err(Failure::server("the answer is not whole JSON")))
            }
            Ok(_) | Err(_) => Err(ArcticShiftError::Shape {
                what: what.to_owned(),
            }),
        },
        300..=399 => {
            let to = answer.headers.get(LOCATION);
            let to = to.and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
            let to: String = to.chars().take(100).collect();
            refuse(
                Outcome::Server,
                format!("a redirect to `{to}`, which is not followed; check `arctic_shift.api_url`"),
            )
        }
        401 | 403 => refuse(
            Outcome::EdgeBlocked,
            "it does not answer this program or this network".to_owned(),
        ),
        404 => refuse(Outcome::Missing, "there is nothing of that name".to_owned()),
        451 => refuse(Outcome::Banned, "closed for legal reasons".to_owned()),
        429 => Ok(Err(Failure {
            outcome: Outcome::RateLimited,
            wait: asked_wait(&answer.headers, now),
            ..Failure::server("too many requests (429)")
        })),
        status if status == 408 || status >= 500 => Ok(Err(Failure {
            wait: retry_after(&answer.headers, now),
            ..Failure::server(format!("status {status}"))
        })),
        _ => refuse(Outcome::Server, format!("the request was not understood: `{told}`")),
    }
}

fn parse(body: &[u8]) -> serde_json::Result<Envelope> {
    let text = String::from_utf8_lossy(body);
    serde_json::from_str(&text).or_else(|error| match mend_surrogates(&text) {
        Some(mended) => serde_json::from_str(&mended),
        None => Err(error),
    })
}

/// `Timeout. Maybe slow down a bit`, or `Query timed out`.
fn says_too_much(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    ["timeout", "timed out", "slow down"]
        .iter()
        .any(|words| error.contains(words))
}

/// When a row was posted, of one that is no whole post, too; `None` for a time that no post can have.
fn posted_at(row: &Value) -> Option<Timestamp> {
    let secs = match row.get("created_utc")? {
        Value::String(text) => text.trim().parse().ok()?,
        number => number.as_f64()?,
    };
    time_of_post(secs)
}

/// The end of the archive's quota as [`Quota`] reads it, in seconds from now, where it is given as a time of day
/// in seconds or milliseconds since 1970.
fn reset_as_secs(headers: &mut HeaderMap, now: DateTime<Utc>) {
    const NAME: &str = "x-ratelimit-reset";
    /// More seconds than any wait, fewer than any time of day since 2001.
    const A_TIME_OF_DAY: i64 = 1_000_000_000;
    let Some(reset) = headers
        .get(NAME)
        .and_then(|reset| reset.to_str().ok()?.trim().parse::<i64>().ok())
        .filter(|reset| *reset >= A_TIME_OF_DAY)
    else {
        return;
    };
    let secs = if reset >= 100 * A_TIME_OF_DAY {
        reset / 1_000
    } else {
        reset
    };
    headers.insert(NAME, HeaderValue::from((secs - now.timestamp()).max(0)));
}

/// `https`, or plain `http` to this machine.
fn base_url(text: &str) -> Result<Url, ArcticShiftError> {
    let refuse = |reason: &str| ArcticShiftError::BaseUrl {
        url: redact_url(text),
        reason: reason.to_owned(),
    };
    let url = Url::parse(text).map_err(|error| refuse(&error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("it holds a user name or password"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refuse("it has a `?` or `#` part"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        "http" => Err(refuse(
            "plain http is allowed to this machine only (127.0.0.1, ::1, localhost)",
        )),
        _ => Err(refuse("it is not an `https` URL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_leads_to_this_machine_only() {
        for good in [
            "https://arctic-shift.photon-reddit.com",
            "http://127.0.0.1:8080/",
            "http://[::1]",
        ] {
            assert!(base_url(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "arctic-shift.photon-reddit.com",
            "http://arctic-shift.photon-reddit.com",
            "http://10.0.0.1",
            "ftp://127.0.0.1",
            "https://a.example/?q=1",
            "https://me:pw@a.example",
        ] {
            assert!(base_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_end_of_a_quota_is_read_in_each_of_its_forms() {
        let now = DateTime::from_timestamp(1_790_000_000, 0).unwrap();
        for (given, secs) in [
            ("37", "37"),
            ("0", "0"),
            ("1790000060", "60"),
            ("1790000060500", "60"),
            ("1780000000", "0"),
            ("soon", "soon"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-ratelimit-reset", given.parse().unwrap());
            reset_as_secs(&mut headers, now);
            assert_eq!(headers["x-ratelimit-reset"], secs, "{given}");
        }
    }
}
