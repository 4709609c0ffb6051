//! One request to a store and its answer, read whole and checked for its length.
//!
//! The crate `object_store` signs requests and reads what stores say; it sends them by this client, which is the one
//! that all of topicmill uses. Answers are short here (a block of a file, a page of a list), so each is read to its end
//! before anybody sees it: one that broke off or is shorter than it says is a [`Fault`], and is asked for anew with a
//! new signature by whoever asked. Redirects are not followed, for a store that redirects means another region.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use chrono::DateTime;
use http_body_util::BodyExt;
use object_store::ClientConfigKey;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, DATE, HOST, HeaderMap, HeaderValue};
use reqwest::{Client, Method, StatusCode, Url, redirect};

use crate::clock::SharedClock;
use crate::source::http::{install_tls, is_loopback, retry_after};

/// Longer than a block, a page of a list or a lock. A store that sends more in one answer is none.
const LONGEST_ANSWER: usize = 64 << 20;

/// What went wrong with one request, and may go right with the next.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
pub(super) struct Fault {
    /// For people; holds no address, for an address may hold a secret.
    pub what: String,
    /// What the store asked for.
    pub wait: Option<Duration>,
    /// What can be done about it.
    pub kind: Kind,
}

/// What can be done about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// To try again.
    Passing,
    /// To use other credentials, or to be let in.
    Refused,
    /// To change the settings.
    Settings,
}

impl Fault {
    fn passing(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            wait: None,
            kind: Kind::Passing,
        }
    }

    fn lasting(what: impl Into<String>) -> Self {
        Self {
            kind: Kind::Settings,
            ..Self::passing(what)
        }
    }
}

impl From<Fault> for HttpError {
    fn from(fault: Fault) -> Self {
        // Of no kind that the crate tries again by itself.
        Self::new(HttpErrorKind::Unknown, fault)
    }
}

/// Makes the client of a store.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    pub clock: SharedClock,
    pub skew: std::sync::Arc<Skew>,
    /// Whether the settings may allow plain http to other machines.
    pub heeds_plain: bool,
}

/// How far the store's clock is from ours, in milliseconds, as its latest answer said.
#[derive(Debug, Default)]
pub(super) struct Skew(AtomicI64);

impl Skew {
    pub fn millis(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        install_tls();
        let client = Client::builder()
            .user_agent(concat!("topicmill/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(30))
            // Packed, bytes would not be those of the range.
            .no_gzip()
            .redirect(redirect::Policy::none())
            .build();
        let client = client.map_err(|error| object_store::Error::Generic {
            store: "client",
            source: error.into(),
        })?;
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp);
        Ok(HttpClient::new(Wire {
            client,
            plain: self.heeds_plain && plain.as_deref() == Some("true"),
            clock: self.clock.clone(),
            skew: self.skew.clone(),
        }))
    }
}

#[derive(Debug)]
struct Wire {
    client: Client,
    /// Whether plain http may go to other machines.
    plain: bool,
    clock: SharedClock,
    skew: std::sync::Arc<Skew>,
}

#[async_trait]
impl object_store::client::HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let url = Url::parse(&parts.uri.to_string())
            .map_err(|_| Fault::lasting("its address is none: check the endpoint"))?;
        if url.scheme() == "http" && !self.plain && !is_loopback(&url) && !is_of_the_machine(&url) {
            return Err(Fault::lasting(
                "its endpoint is plain http, which anybody on the way can read: use https, or set AWS_ALLOW_HTTP=true \
                 (AZURE_ALLOW_HTTP for Azure)",
            )
            .into());
        }
        let mut headers = parts.headers;
        // The client writes it from the address.
        headers.remove(HOST);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut sent = self.client.request(parts.method.clone(), url.clone());
        if is_of_the_machine(&url) {
            // Only a machine in a cloud has somebody there, and he answers at once.
            sent = sent.timeout(Duration::from_secs(2));
        }
        let answer = sent.headers(headers).body(body).send().await;
        let answer = answer.map_err(|error| {
            if is_of_the_machine(&url) {
                Fault {
                    kind: Kind::Refused,
                    ..Fault::passing(NO_CREDENTIALS)
                }
            } else {
                Fault::passing(cause(&error))
            }
        })?;
        self.hear_time(answer.headers());
        let (status, headers) = (answer.status(), answer.headers().clone());
        let is_head = parts.method == Method::HEAD;
        let body = whole(answer, &headers, is_head).await?;
        if let Some(kind) = kind_of(status, code_of(&body)) {
            return Err(Fault {
                what: told(status, &body),
                wait: retry_after(&headers, self.clock.now()),
                kind,
            }
            .into());
        }
        if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
            let region = headers.get("x-amz-bucket-region");
            let region = region.and_then(|region| region.to_str().ok());
            let what = region.filter(|region| is_word(region)).map_or_else(
                || "it sends us elsewhere: check region and endpoint".to_owned(),
                |region| format!("the bucket lies in the region {region}: set AWS_REGION={region}"),
            );
            return Err(Fault::lasting(what).into());
        }
        let mut response = http::Response::new(body.into());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// What can be done about an answer; nothing about a good one, nor about one that says that an object is not there, is
/// there, or is another one.
fn kind_of(status: StatusCode, code: Option<&str>) -> Option<Kind> {
    match (status.as_u16(), code) {
        // Amazon gives these two the status 400 and 200.
        (_, Some("RequestTimeout" | "SlowDown" | "InternalError")) => Some(Kind::Passing),
        (_, Some("NoSuchBucket" | "ContainerNotFound")) | (501, _) => Some(Kind::Settings),
        (408 | 429 | 500.., _) => Some(Kind::Passing),
        (401 | 403, _)
        | (
            400,
            Some("ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" | "AuthenticationFailed"),
        ) => Some(Kind::Refused),
        (304 | 404 | 409 | 412 | 200..=399, _) => None,
        _ => Some(Kind::Settings),
    }
}

impl Wire {
    fn hear_time(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok());
        if let Some(date) = date {
            let skew = date.to_utc() - self.clock.now();
            self.skew
                .0
                .store(skew.num_milliseconds(), Ordering::Relaxed);
        }
    }
}

/// What a machine without credentials hears.
pub(super) const NO_CREDENTIALS: &str = "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
     GOOGLE_APPLICATION_CREDENTIALS or AZURE_STORAGE_ACCOUNT_KEY, or AWS_SKIP_SIGNATURE=true, \
     GOOGLE_SKIP_SIGNATURE=true or AZURE_SKIP_SIGNATURE=true for what everybody may read";

/// Whether an address is the one at which clouds give their machines credentials.
fn is_of_the_machine(url: &Url) -> bool {
    matches!(
        url.host_str(),
        Some(
            "169.254.169.254"
                | "169.254.170.2"
                | "169.254.170.23"
                | "metadata"
                | "metadata.google.internal"
        )
    )
}

/// The body of an answer, if all of it came.
async fn whole(
    mut answer: reqwest::Response,
    headers: &HeaderMap,
    is_head: bool,
) -> Result<Bytes, HttpError> {
    let mut body = BytesMut::new();
    while let Some(piece) = answer
        .chunk()
        .await
        .map_err(|error| Fault::passing(cause(&error)))?
    {
        if body.len() + piece.len() > LONGEST_ANSWER {
            return Err(Fault::lasting("it sends more than was asked for").into());
        }
        body.extend_from_slice(&piece);
    }
    if let (Some(due), StatusCode::PARTIAL_CONTENT, false) =
        (span(headers), answer.status(), is_head)
        && body.len() as u64 != due
    {
        let came = body.len();
        return Err(
            Fault::passing(format!("it sent {came} bytes of the {due} that it named")).into(),
        );
    }
    Ok(body.freeze())
}

/// How many bytes a part of a file says to have.
fn span(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (from, to) = range
        .strip_prefix("bytes ")?
        .split_once('/')?
        .0
        .split_once('-')?;
    let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
    to.checked_sub(from)?.checked_add(1)
}

/// A status with the store's own word for it. The rest of the body is not shown: it may quote the request.
pub(super) fn told(status: StatusCode, body: &[u8]) -> String {
    let code = code_of(body).map(|code| format!(" ({code})"));
    format!("status {}{}", status.as_u16(), code.unwrap_or_default())
}

/// What a store calls an error.
pub(super) fn code_of(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    let code = text.split_once("<Code>")?.1.split_once("</Code>")?.0;
    is_word(code).then_some(code)
}

fn is_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=40).contains(&text.len()) && text.chars().all(is_plain)
}

/// The innermost cause says most, and holds no address.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if std::ptr::addr_eq(std::ptr::from_ref(cause), std::ptr::from_ref(error)) {
        return if error.is_timeout() {
            "it does not answer"
        } else {
            "the connection broke"
        }
        .to_owned();
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_of_an_answer_is_shown() {
        let body = b"<Error><Code>SlowDown</Code><Message>m</Message><Key>secret</Key></Error>";
        assert_eq!(
            told(StatusCode::SERVICE_UNAVAILABLE, body),
            "status 503 (SlowDown)"
        );
        let body = b"<Code>a secret: hunter2</Code>";
        assert_eq!(told(StatusCode::FORBIDDEN, body), "status 403");
    }

    #[test]
    fn a_range_says_how_long_it_is() {
        let of = |range: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_RANGE, range.parse().unwrap());
            span(&headers)
        };
        assert_eq!(of("bytes 10-19/100"), Some(10));
        for bad in [
            "bytes 19-10/100",
            "bytes */100",
            "bytes 0-18446744073709551615/1",
            "x",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
