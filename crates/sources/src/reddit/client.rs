//! The client for Reddit's API.

use std::any::Any;
use std::sync::Arc;

use reqwest::{Client, Url};
use serde::de::{Error as _, IgnoredAny};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::refusal::refusal;
use super::settings::{self, RedditSettings};
use super::token::{Token, TokenCache, TokenResponse};
use crate::error::SourceError;
use crate::judge::Judge;
use crate::listing::{ListingError, NOT_AN_OBJECT, decode_thread, parse_fields, parse_listing};
use crate::lookup::{FoundPosts, parse_info};
use crate::page::{ListingPage, PAGE_LIMIT, check_subreddit, site_for};
use crate::post::decode_post;
use topicmill_core::clock::SharedClock;
use topicmill_core::record::QuotaLeft;
use topicmill_core::{Fullname, Listing, SourceKind, ThingKind, Timestamp, hex};
use topicmill_http::{HttpResponse, PoliteClient, Purpose, append_path};
use topicmill_tables::json::unwrap_records;

/// Maximum number of posts in a request to `/api/info`.
pub const INFO_LIMIT: u32 = 100;

/// The client for Reddit's API, or for the sample Reddit.
pub struct Reddit {
    pub(crate) http: PoliteClient,
    settings: RedditSettings,
    token_url: Url,
    api_url: Url,
    pub(crate) kind: SourceKind,
    clock: SharedClock,
    tokens: TokenCache,
    /// The sample Reddit's server, kept alive as long as the client.
    keep_alive: Option<Box<dyn Any + Send + Sync>>,
}

/// The access and the quota that the credentials provide.
#[derive(Debug, Clone, PartialEq)]
pub struct Credentials {
    /// True for an account, false for the application alone.
    pub account: bool,
    /// The scopes that Reddit granted; `*` for all.
    pub scope: String,
    /// Time when the token expires.
    pub ends_at: Timestamp,
    /// The reported quota; `None` if the API did not report one.
    pub quota: Option<QuotaLeft>,
}

impl Reddit {
    /// Creates a client whose posts are marked with `kind`. Sends nothing yet.
    ///
    /// # Errors
    /// Returns an error for an invalid setting; the message names it and gives an example.
    pub fn new(
        settings: RedditSettings,
        kind: SourceKind,
        clock: SharedClock,
    ) -> Result<Self, SourceError> {
        let mut token_url = settings::base_url("reddit.auth_url", &settings.auth_url)?;
        let api_url = settings::base_url("reddit.api_url", &settings.api_url)?;
        if settings.client_id.is_empty() {
            return Err(SourceError::ClientId);
        }
        settings::check_user_agent(&settings.client.user_agent)?;
        settings::check_numbers(&settings)?;
        let (site, urls) = (site_for(kind), [&token_url, &api_url]);
        let http = PoliteClient::new(site, &settings.client, &urls, clock.clone())?;
        append_path(&mut token_url, &["api", "v1", "access_token"]);
        Ok(Self {
            http,
            tokens: TokenCache::default(),
            token_url,
            api_url,
            settings,
            kind,
            clock,
            keep_alive: None,
        })
    }

    /// Keeps a server alive as long as the client.
    pub(crate) fn keeping_alive(mut self, server: impl Any + Send + Sync) -> Self {
        self.keep_alive = Some(Box::new(server));
        self
    }

    /// Requests up to `limit` posts of a subreddit, plus stickied posts, or its newest comments, from the start or
    /// after the fullname `after`.
    ///
    /// # Errors
    /// Returns a [`SourceError`]; see [`SourceError::outcome`] for its meaning.
    pub async fn page(
        &self,
        (subreddit, kind): (&str, ThingKind),
        listing: Listing,
        limit: u32,
        after: Option<&str>,
    ) -> Result<ListingPage, SourceError> {
        check_subreddit(subreddit)?;
        let mut url = self.api_url.clone();
        let listed = match kind {
            ThingKind::Post => listing.as_str(),
            ThingKind::Comment => "comments",
        };
        append_path(&mut url, &["r", subreddit, listed]);
        url.query_pairs_mut()
            .append_pair("limit", &limit.clamp(1, PAGE_LIMIT).to_string())
            // Without `raw_json`, Reddit HTML-escapes text.
            .append_pair("raw_json", "1")
            .extend_pairs((listing == Listing::Top).then_some(("t", "day")))
            .extend_pairs(after.map(|after| ("after", after)));
        let decode = |body: &[u8]| parse_listing(body, self.kind, Some(kind), |_| ());
        self.get(&format!("r/{subreddit}"), &url, decode).await
    }

    /// Returns those of at most [`INFO_LIMIT`] posts that Reddit still shows, and their states. A post that is missing
    /// from the response no longer exists on Reddit.
    ///
    /// # Errors
    /// Returns a [`SourceError`]; see [`SourceError::outcome`] for its meaning.
    pub async fn posts(&self, fullnames: &[Fullname]) -> Result<FoundPosts, SourceError> {
        let mut url = self.api_url.clone();
        append_path(&mut url, &["api", "info"]);
        let names: Vec<&str> = fullnames.iter().map(Fullname::as_str).collect();
        url.query_pairs_mut()
            .append_pair("id", &names.join(","))
            .append_pair("raw_json", "1");
        let decode = |body: &[u8]| parse_info(body, self.kind);
        self.get("known posts", &url, decode).await
    }

    /// Requests the comments on a post, up to 500 and those that Reddit shows in their place.
    ///
    /// # Errors
    /// Returns a [`SourceError`]; see [`SourceError::outcome`] for its meaning.
    pub async fn thread(&self, post: &Fullname) -> Result<ListingPage, SourceError> {
        let mut url = self.api_url.clone();
        append_path(&mut url, &["comments", post.id()]);
        url.query_pairs_mut()
            .append_pair("limit", "500")
            .append_pair("raw_json", "1");
        // A listing with the post, and one with the comments.
        let decode = |body: &[u8]| {
            let text = String::from_utf8_lossy(body);
            let (_, comments): (IgnoredAny, Box<RawValue>) = serde_json::from_str(&text)?;
            let comments = unwrap_records(comments.get().as_bytes())
                .ok_or_else(|| serde_json::Error::custom("no listing of comments"))?;
            let decode = |thing: &RawValue| {
                let fields = parse_fields(thing.get()).map_err(|_| NOT_AN_OBJECT)?;
                decode_post(fields, self.kind, Some(ThingKind::Comment))
            };
            Ok(decode_thread(comments, decode))
        };
        self.get("comments", &url, decode).await
    }

    /// Requests a token, uses it to request one post from a subreddit, and returns what the credentials allow. It is
    /// not an error if the subreddit itself cannot be read.
    ///
    /// # Errors
    /// Returns the reason why there is no token, or why the API rejects it, and the settings to check.
    pub async fn check_credentials(&self, subreddit: &str) -> Result<Credentials, SourceError> {
        let page = self.page((subreddit, ThingKind::Post), Listing::Hot, 1, None);
        if let Err(error) = page.await
            && !error.outcome().is_subreddit_specific()
        {
            return Err(error);
        }
        // This is the same token unless it has expired in the meantime.
        let token = self.token(None).await?;
        Ok(Credentials {
            account: !self.settings.username.is_empty(),
            scope: token.scope.clone(),
            ends_at: token.ends_at,
            quota: self.http.traffic().quota,
        })
    }

    /// Returns the id of the shared quota, a hash of the API's URL and the client id. Reddit counts requests per client
    /// id.
    pub fn quota_id(&self) -> String {
        let counted = format!("{}\n{}", self.settings.client_id, self.api_url);
        hex(&Sha256::digest(counted)[..16])
    }

    /// Requests a URL with the current token, and again with a new one if that token was rejected.
    async fn get<T>(
        &self,
        what: &str,
        url: &Url,
        decode: impl Fn(&[u8]) -> Result<T, ListingError>,
    ) -> Result<T, SourceError> {
        let send = async |token: &Token| {
            let request = |http: &Client| http.get(url.clone()).bearer_auth(&token.bearer);
            let judge = |response: &HttpResponse| {
                let judge = self.judge(what);
                judge.decide(response, &decode, refusal)
            };
            let decoded = self.http.send(Purpose::Data, what, request, judge).await;
            if decoded.is_ok() {
                token.set_accepted();
            }
            decoded
        };
        let token = self.token(None).await?;
        match send(&token).await {
            // This retries only once: if a new token is rejected too, the application has no permission to read.
            Err(SourceError::Unauthorized(what)) => match self.token(Some(&token)).await {
                Ok(token) => send(&*token).await,
                Err(SourceError::Unauthorized(_)) => Err(SourceError::Unauthorized(what)),
                Err(error) => Err(error),
            },
            decoded => decoded,
        }
    }

    async fn token(&self, rejected: Option<&Arc<Token>>) -> Result<Arc<Token>, SourceError> {
        self.tokens
            .get(&*self.clock, rejected, self.fetch_token())
            .await
            .map_err(|error| match error {
                SourceError::Credentials(_) | SourceError::Unauthorized(_) => error,
                other => SourceError::Token(Box::new(other)),
            })
    }

    async fn fetch_token(&self) -> Result<TokenResponse, SourceError> {
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
        let request = |http: &Client| {
            http.post(self.token_url.clone())
                .basic_auth(&settings.client_id, Some(&settings.client_secret))
                .form(&form)
        };
        let what = "a token";
        let decode = |body: &[u8]| Ok(serde_json::from_slice(body)?);
        let judge = |response: &HttpResponse| {
            let judge = Judge {
                is_secret: true,
                ..self.judge(what)
            };
            judge.decide(response, decode, refusal)
        };
        self.http
            .send(Purpose::Token, what, request, judge)
            .await
            .map_err(|error| match error {
                SourceError::Unauthorized(_) => SourceError::Credentials("status 401".to_owned()),
                SourceError::Refused { status: 400, .. } => {
                    SourceError::Credentials("status 400".to_owned())
                }
                other => other,
            })
    }

    fn judge<'a>(&self, what: &'a str) -> Judge<'a> {
        let (kind, now) = (self.kind, self.clock.now());
        Judge {
            kind,
            what,
            now,
            is_secret: false,
        }
    }
}
