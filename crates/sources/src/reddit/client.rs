//! The client of Reddit's API.

use std::any::Any;
use std::sync::Arc;

use reqwest::{Client, RequestBuilder, Url};
use sha2::{Digest, Sha256};

use super::info::{self, Fates};
use super::settings::{self, RedditSettings};
use super::token::{Grant, Token, Tokens};
use super::verdict::refusal;
use crate::error::SourceError;
use crate::listing::{ListingError, parse_listing};
use crate::page::{
    Asked, Listed, ListingPage, PAGE_LIMIT, Paging, Source, check_subreddit, site_of,
};
use crate::verdict::Judge;
use topicmill_core::clock::SharedClock;
use topicmill_core::hex;
use topicmill_core::record::QuotaLeft;
use topicmill_core::{Fullname, Listing, SourceKind, Timestamp};
use topicmill_http::{
    HttpResponse, PoliteClient, Purpose, RetryDecision, append_path, is_loopback,
};

/// Posts that Reddit tells about in one answer of `/api/info` at most.
pub const INFO_LIMIT: u32 = 100;

/// The client.
pub struct Reddit {
    http: PoliteClient,
    settings: RedditSettings,
    token_url: Url,
    api_url: Url,
    kind: SourceKind,
    clock: SharedClock,
    tokens: Tokens,
    /// Kept alive as long as the client.
    held: Option<Box<dyn Any + Send + Sync>>,
}

/// Posts that were asked for by name.
#[derive(Debug)]
pub struct FoundPosts {
    /// Posts that Reddit shows, some of them without their texts.
    pub page: ListingPage,
    /// The fate of each; `None` if the response has a child that cannot be understood.
    pub fates: Option<Fates>,
}

/// The rights and the quota of the credentials.
#[derive(Debug, Clone, PartialEq)]
pub struct Credentials {
    /// True if an account signed in, not the application alone.
    pub account: bool,
    /// Reddit's words for what it allows, `*` for everything.
    pub scope: String,
    /// When the token ends.
    pub ends_at: Timestamp,
    /// The quota as the API told it; `None` if it did not.
    pub quota: Option<QuotaLeft>,
}

impl Reddit {
    /// A client whose posts are marked as of `kind`. Sends nothing yet.
    ///
    /// # Errors
    /// A setting that cannot work; the message names it and shows what it should look like.
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
        let local = is_loopback(&token_url) && is_loopback(&api_url);
        let http = PoliteClient::new(site_of(kind), &settings.client, local, clock.clone())?;
        append_path(&mut token_url, &["api", "v1", "access_token"]);
        Ok(Self {
            http,
            tokens: Tokens::new(settings.token_margin),
            token_url,
            api_url,
            settings,
            kind,
            clock,
            held: None,
        })
    }

    /// The same client, and with it whatever serves it.
    pub(crate) fn holding(mut self, server: impl Any + Send + Sync) -> Self {
        self.held = Some(Box::new(server));
        self
    }

    /// Returns the fates of posts, at most [`INFO_LIMIT`] of them. Reddit no longer knows a post that is missing in the
    /// response. `None` if the response has a child that cannot be understood: then a missing post means nothing.
    ///
    /// # Errors
    /// [`SourceError::outcome`] says what it means.
    pub async fn info(&self, fullnames: &[Fullname]) -> Result<Option<Fates>, SourceError> {
        self.get("known posts", &self.info_url(fullnames), info::parse_info)
            .await
    }

    /// The same posts themselves, as far as Reddit shows them, and what became of each.
    ///
    /// # Errors
    /// [`SourceError::outcome`] says what it means.
    pub async fn posts(&self, fullnames: &[Fullname]) -> Result<FoundPosts, SourceError> {
        let decode = |body: &[u8]| {
            Ok(FoundPosts {
                // The same answer twice: what is no whole post any more still has a fate.
                page: parse_listing(body, self.kind)?,
                fates: info::parse_info(body)?,
            })
        };
        self.get("known posts", &self.info_url(fullnames), decode)
            .await
    }

    fn info_url(&self, fullnames: &[Fullname]) -> Url {
        let mut url = self.api_url.clone();
        append_path(&mut url, &["api", "info"]);
        let names: Vec<&str> = fullnames.iter().map(Fullname::as_str).collect();
        url.query_pairs_mut()
            .append_pair("id", &names.join(","))
            .append_pair("raw_json", "1");
        url
    }

    /// Gets a token and asks the API for one post of a subreddit with it: what the credentials allow, and
    /// how much. That the subreddit itself may not be read says nothing against them.
    ///
    /// # Errors
    /// Why there is no token, or why the API does not take it, and which settings to check.
    pub async fn check_credentials(&self, subreddit: &str) -> Result<Credentials, SourceError> {
        let answer = self.page(subreddit, Listing::Hot, 1, None).await;
        if let Err(error) = answer
            && !error.outcome().is_subreddit_specific()
        {
            return Err(error);
        }
        // The one that was just used, unless it ended in between.
        let token = self.token(None).await?;
        Ok(Credentials {
            account: !self.settings.username.is_empty(),
            scope: token.scope.clone(),
            ends_at: token.ends_at,
            quota: self.http.traffic().quota,
        })
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

    /// Asks with the token there is, and once more with a new one where it was refused.
    async fn get<T>(
        &self,
        what: &str,
        url: &Url,
        decode: impl Fn(&[u8]) -> Result<T, ListingError>,
    ) -> Result<T, SourceError> {
        let ask = async |token: &Token| {
            let request = |http: &Client| http.get(url.clone()).bearer_auth(&token.bearer);
            self.exchange(Purpose::Data, what, request, &decode).await
        };
        let token = self.token(None).await?;
        match ask(&token).await {
            // Only once: a fresh token that is refused, too, says that the application may not read.
            Err(SourceError::Unauthorized(_)) => ask(&*self.token(Some(&token)).await?).await,
            answer => answer,
        }
    }

    async fn token(&self, refused: Option<&Arc<Token>>) -> Result<Arc<Token>, SourceError> {
        self.tokens
            .get(&*self.clock, refused, self.fetch_token())
            .await
            .map_err(|error| match error {
                SourceError::Credentials(_) => error,
                other => SourceError::Token(Box::new(other)),
            })
    }

    async fn fetch_token(&self) -> Result<Grant, SourceError> {
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
        let decode = |body: &[u8]| Ok(serde_json::from_slice(body)?);
        self.exchange(Purpose::Token, "a token", request, decode)
            .await
            .map_err(|error| match error {
                SourceError::Unauthorized(_) => SourceError::Credentials("status 401".to_owned()),
                SourceError::Refused { status: 400, .. } => {
                    SourceError::Credentials("status 400".to_owned())
                }
                other => other,
            })
    }

    /// Sends a request until its answer decodes or is refused for good.
    async fn exchange<T>(
        &self,
        purpose: Purpose,
        what: &str,
        request: impl Fn(&Client) -> RequestBuilder,
        decode: impl Fn(&[u8]) -> Result<T, ListingError>,
    ) -> Result<T, SourceError> {
        let judge = |answer: &HttpResponse| {
            if answer.status() == 401 {
                return RetryDecision::Fail(SourceError::Unauthorized(what.to_owned()));
            }
            let judge = Judge {
                kind: self.kind,
                what,
                now: self.clock.now(),
                longest: self.settings.retry_after_cap,
            };
            let refusal = |status, redirect: Option<&str>| refusal(answer, status, redirect);
            judge.judge(answer, &decode, refusal)
        };
        self.http.send(purpose, what, request, judge).await
    }
}

impl Source for Reddit {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    fn http(&self) -> &PoliteClient {
        &self.http
    }

    fn paging(&self) -> Paging<'_> {
        Paging::Listed(self)
    }

    fn shared_quota(&self) -> Option<String> {
        // The sample Reddit belongs to this process, and so does its quota.
        (self.kind != SourceKind::Sample).then(|| self.quota_id())
    }
}

impl Listed for Reddit {
    fn page<'a>(
        &'a self,
        subreddit: &'a str,
        listing: Listing,
        limit: u32,
        after: Option<&'a str>,
    ) -> Asked<'a, ListingPage> {
        Box::pin(async move {
            check_subreddit(subreddit)?;
            let mut url = self.api_url.clone();
            append_path(&mut url, &["r", subreddit, listing.as_str()]);
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
            let decode = |body: &[u8]| parse_listing(body, self.kind);
            self.get(&format!("r/{subreddit}"), &url, decode).await
        })
    }
}
