//! Reads Arctic Shift, a public archive of Reddit, page by page in order of creation time.
//!
//! The input is a subreddit's name and a time. The output is a [`TimePage`], or a [`SourceError`] with its [`Outcome`].
//! The archive needs no key and can be read only in order of creation time.
//!
//! The archive is free and run by one person, so requests are evenly spaced, `collect` sends them one at a time, and
//! any wait that its headers request is added. If the archive reports that a page is too large, a smaller one is
//! requested.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use reqwest::{Client, Url};
use serde::Deserialize;
use serde::de::Error;
use serde_json::value::RawValue;

use super::error::SourceError;
use super::judge::{Judge, Refusal};
use super::listing::{ListingError, NOT_AN_OBJECT, decode_thread, parse_fields};
use super::lookup::{FoundPosts, PostStates};
use super::page::{
    LARGEST_PAGE, ListingPage, PAGE_LIMIT, Rejected, TimeOrder, TimePage, check_subreddit, site_for,
};
use super::post::{Fields, decode_post};
use super::reddit::check_user_agent;
use topicmill_core::clock::SharedClock;
use topicmill_core::{
    Fullname, Outcome, Post, RejectReason, SECOND_READING, SourceKind, ThingKind, Timestamp,
};
use topicmill_http::{
    ClientSettings, HttpResponse, Payload, PoliteClient, Purpose, RetryDecision, RetryableFailure,
    append_path, base_url, retry_after,
};

/// Maximum number of posts in a request by id.
pub const IDS_LIMIT: u32 = 500;
/// Maximum number of comments in a request for a thread
/// (<https://github.com/ArthurHeitmann/arctic_shift/tree/master/api>).
const THREAD_LIMIT: &str = "25000";
/// Maximum number of tries for one request; there are more only while the page can be made smaller.
const TRIES: u32 = 5;
/// A subreddit with several posts a minute: the age of its newest post is the archive's lag.
pub const BUSY_SUBREDDIT: &str = "AskReddit";
/// Wait before a smaller page is requested, once the usual tries are used up.
const LONG_WAIT: Duration = Duration::from_secs(30);
/// User agent if the settings contain none that identifies the operator.
const USER_AGENT: &str = concat!("topicmill/", env!("CARGO_PKG_VERSION"));

/// Client settings, which the caller fills in from the configuration.
#[derive(Debug, Clone)]
pub struct ArcticShiftSettings {
    /// Base URL, `https://arctic-shift.photon-reddit.com`.
    pub api_url: String,
    /// Settings for the HTTP client. A user agent that is not in Reddit's format is replaced by `topicmill/<version>`.
    pub client: ClientSettings,
}

/// The client for the archive.
pub struct ArcticShift {
    pub(crate) http: PoliteClient,
    api_url: Url,
    clock: SharedClock,
    /// Rows of posts that are old enough for a second reading, and how many of them say anything about it.
    settled: AtomicU64,
    with_meta: AtomicU64,
}

impl ArcticShift {
    /// Creates a client. Sends nothing yet.
    ///
    /// # Errors
    /// Returns an error for an invalid setting; the message names it and gives an example.
    pub fn new(settings: &ArcticShiftSettings, clock: SharedClock) -> Result<Self, SourceError> {
        let api_url = base_url(&settings.api_url, Payload::Public).map_err(|error| {
            let usual = "the default is `https://arctic-shift.photon-reddit.com`";
            SourceError::Setting(format!("`arctic_shift.api_url` is {error}; {usual}"))
        })?;
        let mut client = settings.client.clone();
        if client.requests_per_minute == 0 {
            let setting = "arctic_shift.requests_per_minute";
            return Err(SourceError::number(setting, 1, 120));
        }
        if check_user_agent(&client.user_agent).is_err() {
            USER_AGENT.clone_into(&mut client.user_agent);
        }
        client.tries = TRIES;
        let site = site_for(SourceKind::ArcticShift);
        let http = PoliteClient::new(site, &client, &[&api_url], clock.clone())?;
        // The number of smaller pages is reported even if it remains 0.
        http.meter().count_smaller(0);
        Ok(Self {
            http,
            api_url,
            clock,
            settled: AtomicU64::new(0),
            with_meta: AtomicU64::new(0),
        })
    }

    /// Requests up to `limit` posts or comments from a subreddit, starting with posts created in the same second as
    /// `start`. Without `start`, begins with the newest or the oldest post, depending on `order`.
    ///
    /// # Errors
    /// Returns a [`SourceError`]; see [`SourceError::outcome`] for its meaning for the subreddit.
    pub async fn page(
        &self,
        (subreddit, kind): (&str, ThingKind),
        order: TimeOrder,
        start: Option<Timestamp>,
        limit: u32,
    ) -> Result<TimePage, SourceError> {
        check_subreddit(subreddit)?;
        let what = format!("r/{subreddit}");
        // This is atomic because the two closures below share it and the client may run on any thread.
        let next_limit = AtomicU32::new(limit.clamp(1, LARGEST_PAGE));
        let sent = AtomicU32::new(0);
        let request = |http: &Client| {
            let limit = next_limit.load(Ordering::Relaxed);
            if limit < sent.swap(limit, Ordering::Relaxed) {
                tracing::info!(what, limit, "requesting a smaller page");
                self.http.meter().count_smaller(1);
            }
            http.get(self.page_url((subreddit, kind), order, start, limit))
        };
        let judge = |response: &HttpResponse| {
            let requested = next_limit.load(Ordering::Relaxed);
            let make_smaller = || {
                // `auto` pages have between 100 and 1,000 rows, so the first smaller page is the usual one of 100.
                let fewer = (requested.min(2 * PAGE_LIMIT) / 2).max(1);
                next_limit.store(fewer, Ordering::Relaxed);
                // A page of one row cannot be made smaller.
                requested > 1
            };
            let decode = |rows: &[&RawValue]| self.time_page(rows, kind, requested);
            self.judge(&what, response, decode, make_smaller)
        };
        self.http.send(Purpose::Data, &what, request, judge).await
    }

    /// Returns those of at most [`IDS_LIMIT`] posts and comments that the archive has, and their states when it last
    /// read them. One that is missing from the response may still be on Reddit. Sends one request for posts and one for
    /// comments, if there are any.
    ///
    /// # Errors
    /// Returns a [`SourceError`]; see [`SourceError::outcome`] for its meaning.
    pub async fn posts(&self, fullnames: &[Fullname]) -> Result<FoundPosts, SourceError> {
        let (mut page, mut states) = (ListingPage::default(), PostStates::default());
        for kind in ThingKind::ALL {
            let ids = fullnames.iter().filter(|name| name.kind() == *kind);
            // Without their prefix, 500 ids fit in the 8 KiB that servers usually allow for a URL.
            let ids: Vec<&str> = ids.map(Fullname::id).collect();
            if ids.is_empty() {
                continue;
            }
            let mut url = self.url_of(*kind, "ids");
            url.query_pairs_mut().append_pair("ids", &ids.join(","));
            let read = |rows: &[&RawValue]| {
                let mut states = PostStates::default();
                // An invalid row cannot be mistaken for a missing post, because a missing post is not gone.
                let page = self.decode_rows(rows, *kind, |fields| {
                    states.add(fields);
                });
                Ok((page, states))
            };
            let (found, known) = self.get("known posts", &url, read).await?;
            page.posts.extend(found.posts);
            page.rejected.extend(found.rejected);
            states.extend(known);
        }
        let states = Some(states);
        Ok(FoundPosts { page, states })
    }

    /// Requests all comments on a post.
    ///
    /// # Errors
    /// Returns a [`SourceError`]; see [`SourceError::outcome`] for its meaning.
    pub async fn thread(&self, post: &Fullname) -> Result<ListingPage, SourceError> {
        let mut url = self.url_of(ThingKind::Comment, "tree");
        url.query_pairs_mut()
            .append_pair("link_id", post.id())
            .append_pair("limit", THREAD_LIMIT);
        let read = |rows: &[&RawValue]| {
            let things = rows.iter().map(|row| (*row).to_owned()).collect();
            Ok(decode_thread(things, |thing| {
                self.decode(thing, ThingKind::Comment, |_| ())
            }))
        };
        self.get("comments", &url, read).await
    }

    /// Returns the creation time of the archive's newest post, approximately; `None` if it has none. How far this is
    /// behind the present is the archive's lag.
    ///
    /// # Errors
    /// See [`Self::page`].
    pub async fn newest_post(&self) -> Result<Option<Timestamp>, SourceError> {
        let busy = (BUSY_SUBREDDIT, ThingKind::Post);
        let newest = self.page(busy, TimeOrder::NewestFirst, None, 1);
        Ok(newest.await?.ends_at)
    }

    /// Returns the number of rows so far that are old enough for a second reading, if none of them says anything about
    /// it: the archive then reports no deletions.
    pub fn unreported(&self) -> Option<u64> {
        let settled = self.settled.load(Ordering::Relaxed);
        let none = self.with_meta.load(Ordering::Relaxed) == 0;
        Some(settled).filter(|settled| *settled > 0 && none)
    }

    /// Requests a URL whose response cannot be made smaller.
    async fn get<T>(
        &self,
        what: &str,
        url: &Url,
        read: impl Fn(&[&RawValue]) -> Result<T, ListingError>,
    ) -> Result<T, SourceError> {
        let judge = |response: &HttpResponse| self.judge(what, response, &read, || false);
        let request = |http: &Client| http.get(url.clone());
        self.http.send(Purpose::Data, what, request, judge).await
    }

    /// Returns the URL of an operation on things of a kind.
    fn url_of(&self, kind: ThingKind, operation: &str) -> Url {
        let mut url = self.api_url.clone();
        append_path(&mut url, &["api", kind.plural(), operation]);
        url
    }

    /// Returns the URL of a page.
    fn page_url(
        &self,
        (subreddit, kind): (&str, ThingKind),
        order: TimeOrder,
        start: Option<Timestamp>,
        limit: u32,
    ) -> Url {
        let mut url = self.url_of(kind, "search");
        // It is undocumented whether the bounds are inclusive. They are widened by a second to include `start`; it does
        // no harm if a post is returned twice.
        let secs = start.map(|start| start.as_datetime().timestamp());
        let (sort, name, secs) = match order {
            TimeOrder::NewestFirst => ("desc", "before", secs.map(|secs| secs + 1)),
            TimeOrder::OldestFirst => ("asc", "after", secs.map(|secs| secs - 1)),
        };
        let mut query = url.query_pairs_mut();
        query
            .append_pair("subreddit", subreddit)
            .append_pair("sort", sort);
        if let Some(secs) = secs {
            query.append_pair(name, &secs.to_string());
        }
        if limit > PAGE_LIMIT {
            // More than 100 rows are returned only for `auto`; the archive decides how many.
            query.append_pair("limit", "auto");
        } else {
            query.append_pair("limit", &limit.to_string());
        }
        drop(query);
        url
    }

    /// Judges a response: what `read` makes of its rows, or the reason why there are none. If the archive is
    /// overloaded, calls `make_smaller`, which returns true if it made the next request smaller.
    fn judge<T>(
        &self,
        what: &str,
        response: &HttpResponse,
        read: impl FnOnce(&[&RawValue]) -> Result<T, ListingError>,
        make_smaller: impl FnOnce() -> bool,
    ) -> RetryDecision<T, SourceError> {
        let status = response.meant_status();
        let text = String::from_utf8_lossy(&response.body);
        let parsed = serde_json::from_str::<SearchResponse<'_>>(&text);
        let message = parsed.as_ref().ok().and_then(|parsed| parsed.error.clone());
        let message: String = message.unwrap_or_default().chars().take(200).collect();
        // The archive sends status 422 both for a page that takes too long and for too many requests.
        if status != 429 && reports_overload(&message) {
            return RetryDecision::Retry(RetryableFailure {
                detail: format!("`{message}` ({status})"),
                wait: retry_after(&response.headers, self.clock.now()),
                is_rate_limit: true,
                last_resort: make_smaller().then_some(LONG_WAIT),
                source: None,
            });
        }
        let judge = Judge {
            kind: SourceKind::ArcticShift,
            what,
            now: self.clock.now(),
            is_secret: false,
        };
        let decode = |_: &[u8]| {
            let rows = parsed?.data;
            read(&rows.ok_or_else(|| serde_json::Error::missing_field("data"))?)
        };
        judge.decide(response, decode, |_, status, _| match status {
            300..=399 | 404 | 451 => None,
            401 | 403 => Some(Refusal::new(
                Outcome::EdgeBlocked,
                "it blocks this program or this network",
            )),
            _ => Some(Refusal::new(
                Outcome::Server,
                format!("the request was rejected: `{message}`"),
            )),
        })
    }

    /// Decodes the rows of a page.
    fn time_page(
        &self,
        rows: &[&RawValue],
        kind: ThingKind,
        limit: u32,
    ) -> Result<TimePage, ListingError> {
        let mut ends_at = None;
        // Rejected rows count too.
        let page = self.decode_rows(rows, kind, |fields| {
            ends_at = fields.created_at().ok().or(ends_at);
        });
        // Without a time, the next page would be the same again.
        if ends_at.is_none() && !rows.is_empty() {
            return Err(ListingError::Shape(None));
        }
        Ok(TimePage {
            posts: page.posts,
            rejected: page.rejected,
            ends_at,
            limit,
            full: rows.len() >= limit.min(PAGE_LIMIT) as usize,
        })
    }

    /// Decodes rows. `inspect` receives the fields of each, even if the row is then rejected.
    fn decode_rows(
        &self,
        rows: &[&RawValue],
        kind: ThingKind,
        mut inspect: impl FnMut(&Fields),
    ) -> ListingPage {
        let mut page = ListingPage::default();
        for (number, row) in (1..).zip(rows) {
            match self.decode(row, kind, &mut inspect) {
                Ok(post) => page.posts.push(post),
                Err(reason) => {
                    let at = format!("row {number}");
                    page.rejected.push(Rejected { at, reason });
                }
            }
        }
        page
    }

    /// Decodes a row, after `inspect` has received its fields.
    fn decode(
        &self,
        row: &RawValue,
        kind: ThingKind,
        inspect: impl FnOnce(&Fields),
    ) -> Result<Post, RejectReason> {
        let mut fields = parse_fields(row.get()).map_err(|_| NOT_AN_OBJECT)?;
        let now = self.clock.now();
        fields.set_retrieved_by(now.timestamp());
        let is_settled = |at: Timestamp| now - at.as_datetime() >= SECOND_READING;
        if fields.created_at().is_ok_and(is_settled) {
            self.settled.fetch_add(1, Ordering::Relaxed);
            let has_meta = u64::from(fields.meta.object().is_some());
            self.with_meta.fetch_add(has_meta, Ordering::Relaxed);
        }
        inspect(&fields);
        decode_post(fields, SourceKind::ArcticShift, Some(kind))
    }
}

/// A response: rows, or an error.
#[derive(Deserialize)]
struct SearchResponse<'a> {
    #[serde(borrow)]
    data: Option<Vec<&'a RawValue>>,
    error: Option<String>,
}

/// Returns true for messages such as `Timeout. Maybe slow down a bit` and `Query timed out`.
fn reports_overload(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    let mut signs = ["timeout", "timed out", "slow down"].iter();
    signs.any(|words| error.contains(words))
}
