//! HTTP client for the hub, which follows redirects and restricts where credentials are sent.
//!
//! For large files, a hub redirects to a different host, which must not receive the token. Redirects are therefore
//! followed here: the token or password is sent only to the endpoint's own scheme, host and port.

use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue, LOCATION, RANGE};
use reqwest::{Client, Response, StatusCode, Url, redirect};

use super::{HubSource, PullError};
use topicmill_http::install_tls;

/// Maximum number of redirects; the hub needs two or three.
const MAX_HOPS: usize = 10;

/// A client for one endpoint.
pub(super) struct HubClient {
    client: Client,
    /// The endpoint without the user and the password.
    endpoint: Url,
    token: Option<HeaderValue>,
    /// User and password for the endpoint, which replace the token.
    login: Option<(String, Option<String>)>,
}

impl HubClient {
    pub fn new(source: &HubSource) -> Result<Self, PullError> {
        install_tls();
        let client = Client::builder()
            .user_agent(concat!("topicmill/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(30))
            // There is no total timeout because a large file may take hours; `SpeedCheck` cancels slow downloads.
            .read_timeout(Duration::from_mins(1))
            // `get` follows redirects because the client would forward our headers.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| transfer("the hub", &error))?;
        let mut endpoint = Url::parse(&source.endpoint).map_err(|_| PullError::endpoint())?;
        if !matches!(endpoint.scheme(), "http" | "https") {
            return Err(PullError::endpoint());
        }
        let login = take_login(&mut endpoint);
        // Paths are appended to the endpoint, so it must end with its path.
        endpoint.set_query(None);
        endpoint.set_fragment(None);
        let token = match &source.token {
            None => None,
            Some(token) => {
                let value = HeaderValue::try_from(format!("Bearer {token}"));
                let mut value = value.map_err(|_| {
                    let text = "the token in HF_TOKEN or HF_HOME contains invalid characters: copy it again";
                    PullError::Refused(text.to_owned())
                })?;
                // This masks the token in the client's logs.
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self {
            client,
            endpoint,
            token,
            login,
        })
    }

    /// Returns the endpoint for messages.
    pub fn endpoint(&self) -> &str {
        self.endpoint.as_str().trim_end_matches('/')
    }

    /// Requests a path on the endpoint, starting at a byte. Fails on any status other than success or 416.
    pub async fn get(
        &self,
        repo: &str,
        path: &str,
        from: u64,
        what: &str,
    ) -> Result<Response, PullError> {
        let mut url = Url::parse(&format!("{}/{path}", self.endpoint()))
            .map_err(|_| PullError::endpoint())?;
        for _ in 0..=MAX_HOPS {
            let response = self.send(&url, from, what).await?;
            if !response.status().is_redirection() {
                return self.check_status(response, &url, repo, what);
            }
            let location = response.headers().get(LOCATION);
            let location = location.and_then(|location| location.to_str().ok());
            url = redirect_target(&url, location).map_err(|why| PullError::redirect(what, &why))?;
        }
        let why = format!("there are more than {MAX_HOPS} redirects");
        Err(PullError::redirect(what, &why))
    }

    fn is_endpoint(&self, url: &Url) -> bool {
        url.origin() == self.endpoint.origin()
    }

    async fn send(&self, url: &Url, from: u64, what: &str) -> Result<Response, PullError> {
        let ours = self.is_endpoint(url);
        let mut url = url.clone();
        if let Some((user, password)) = self.login.as_ref().filter(|_| ours) {
            // The client turns these into an `Authorization` header.
            let _ = url.set_username(user);
            let _ = url.set_password(password.as_deref());
        }
        // Compression would change the byte counts.
        let mut request = self.client.get(url).header(ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        if let (true, None, Some(token)) = (ours, &self.login, &self.token) {
            request = request.header(AUTHORIZATION, token);
        }
        request.send().await.map_err(|error| transfer(what, &error))
    }

    fn check_status(
        &self,
        response: Response,
        url: &Url,
        repo: &str,
        what: &str,
    ) -> Result<Response, PullError> {
        let status = response.status();
        let code = response.headers().get("x-error-code");
        let unknown = code.is_some_and(|code| code == "RepoNotFound" || code == "RevisionNotFound");
        let ours = self.is_endpoint(url);
        match status {
            // 416 is not a failure: the partial file is longer than the file, and `fetch` restarts it.
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                Ok(response)
            }
            _ if ours && (unknown || status == StatusCode::NOT_FOUND) => {
                Err(PullError::Asked(format!(
                    "cannot find `{repo}` on {}: there is no such repository or revision; check the name",
                    self.endpoint()
                )))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if ours => {
                let advice = if self.token.is_some() || self.login.is_some() {
                    "the token has no access: accept the model's terms on the hub's page, or use a different token"
                } else {
                    "the repository needs a token, or does not exist: set HF_TOKEN, or check the name"
                };
                let (endpoint, status) = (self.endpoint(), status.as_u16());
                Err(PullError::Refused(format!(
                    "cannot fetch `{repo}` from {endpoint}: status {status}; {advice}"
                )))
            }
            _ => Err(PullError::Transfer {
                what: what.to_owned(),
                detail: format!("status {status}"),
            }),
        }
    }
}

/// Removes the user and the password from a URL and returns them.
fn take_login(url: &mut Url) -> Option<(String, Option<String>)> {
    let (user, password) = (url.username().to_owned(), url.password().map(str::to_owned));
    // This fails only for a URL without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    (!user.is_empty() || password.is_some()).then_some((user, password))
}

/// Resolves a redirect. Rejects a downgrade from HTTPS to HTTP.
fn redirect_target(from: &Url, location: Option<&str>) -> Result<Url, String> {
    let next = location.and_then(|location| from.join(location).ok());
    let mut next = next.ok_or("it has no valid URL")?;
    match (from.scheme(), next.scheme()) {
        (_, "https") | ("http", "http") => {}
        (from, to) => return Err(format!("it leads from {from} to {to}")),
    }
    // A redirect must not choose the credentials.
    take_login(&mut next);
    Ok(next)
}

/// Converts an HTTP error. Keeps only the innermost cause, which is the most specific.
pub(super) fn transfer(what: &str, error: &reqwest::Error) -> PullError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    PullError::Transfer {
        what: what.to_owned(),
        detail: cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_never_downgrade_https_or_set_credentials() {
        let to = |from: &str, location| redirect_target(&Url::parse(from).unwrap(), Some(location));
        let from = "https://hub.test/a/b?c";
        assert_eq!(to(from, "/x").unwrap().as_str(), "https://hub.test/x");
        assert_eq!(
            to(from, "//me:pw@other.test/x").unwrap().as_str(),
            "https://other.test/x"
        );
        assert_eq!(
            to("http://hub.test/", "http://hub.test:81/")
                .unwrap()
                .as_str(),
            "http://hub.test:81/"
        );
        for location in [
            "http://hub.test/x",
            "file:///etc/passwd",
            "ftp://hub.test/x",
            "https://[",
        ] {
            assert!(to(from, location).is_err(), "{location}");
        }
        assert!(to("http://hub.test/", "file:///etc/passwd").is_err());
        assert!(redirect_target(&Url::parse(from).unwrap(), None).is_err());
    }
}
