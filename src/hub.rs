//! Downloads a model folder from the Hugging Face hub or a mirror.
//!
//! Takes a repository name and a precision, and creates a folder with the files that the model needs and no other
//! weights. An interrupted download resumes where it stopped. The size and hash of each file must match the hub's list,
//! and the folder is renamed into place once all files are present. The `hf-hub` crate is not used: its version 1
//! restarts an interrupted file from the beginning, checks no hash, and depends on `aws-lc` and a second transfer
//! protocol.
//!
//! The hub is not trusted: listed names must be files in the folder, and a response may not be longer than listed. The
//! token goes to the endpoint only, because the HTTP client drops it when a redirect leads to another host.

mod error;
mod listing;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode, Url};

pub use self::error::PullError;
use self::listing::{Listing, Sibling, is_repository};
use crate::telemetry::Progress;
use topicmill_core::FailureKind;
use topicmill_core::clock::SharedClock;
use topicmill_http::{HttpError, backoff, check_proxies, install_tls};
use topicmill_score::folder::check_config;
use topicmill_score::folder::manifest::Manifest;

/// Number of attempts for each request; progress resets the count.
const TRIES: u32 = 5;
/// Maximum size of a file list in bytes; a list of 20,000 files is about half as large.
const MAX_LISTING: usize = 8 << 20;

/// A client for the hub.
pub struct Hub {
    client: Client,
    endpoint: Url,
    token: Option<String>,
    clock: SharedClock,
    bar: Progress,
}

impl Hub {
    /// Creates a client for `https://huggingface.co` or a mirror. The token is sent to the endpoint only and never
    /// shown. If the endpoint contains a user and a password, they are sent instead of the token.
    ///
    /// # Errors
    /// Returns an error if the network is unusable or the address is invalid.
    pub fn new(
        endpoint: &str,
        token: Option<String>,
        clock: SharedClock,
    ) -> Result<Self, PullError> {
        install_tls();
        let usage = |text: String| PullError::Message(FailureKind::Usage, text);
        let unusable_network = |error: HttpError| usage(error.to_string());
        let endpoint = match Url::parse(endpoint) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => url,
            // The message does not show the value, which may contain a password.
            _ => {
                let text =
                    "HF_ENDPOINT is not the URL of a hub: write it as `https://huggingface.co`";
                return Err(usage(text.to_owned()));
            }
        };
        check_proxies().map_err(unusable_network)?;
        let client = Client::builder()
            .user_agent(concat!("topicmill/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(30))
            // There is no total timeout because a large file may take hours.
            .read_timeout(Duration::from_mins(1))
            // Compression would change the byte counts.
            .no_gzip()
            // A redirect must not lead from HTTPS to HTTP.
            .https_only(endpoint.scheme() == "https")
            .build()
            .map_err(|error| unusable_network(HttpError::Client(error)))?;
        let has_login = !endpoint.username().is_empty() || endpoint.password().is_some();
        Ok(Self {
            client,
            endpoint,
            token: if has_login { None } else { token },
            clock,
            bar: Progress::bytes("pull", 0),
        })
    }

    /// Downloads a model to a new folder, and shows the progress in bytes. `repo` is `owner/name`; `revision` is a
    /// branch, tag or commit; `precision` selects the graphs, as the hub names it: `None` for float32, `all` for every
    /// graph.
    ///
    /// # Errors
    /// See [`PullError`].
    pub async fn pull(
        &self,
        repo: &str,
        revision: &str,
        precision: Option<&str>,
        to: &Path,
    ) -> Result<(), PullError> {
        let wrong = |text: String| Err(PullError::Message(FailureKind::Usage, text));
        if !is_repository(repo) {
            let text = format!("`{repo}` is not a repository name: write it as `owner/name`");
            return wrong(text);
        }
        // Unlike `exists`, this also finds a dangling link.
        if to.symlink_metadata().is_ok() {
            return wrong(format!(
                "`{}` already exists: use it, remove it, or choose a different folder with --to",
                to.display()
            ));
        }
        let list = async || self.listing(repo, revision).await;
        let listing = self.retry(|| 0, list).await?;
        // This is checked before any large download, and before a folder is created.
        let mut files = listing.files_besides_graphs()?;
        // The name of the temporary folder contains the commit so that versions are not mixed.
        let mut partial = to.file_name().unwrap_or_default().to_owned();
        partial.push(format!(".{:.12}.partial", listing.sha));
        let folder = to.with_file_name(partial);
        let write = PullError::write(&folder);
        // Files from an earlier mirror or precision are not part of this model.
        let listed: Vec<_> = listing.siblings.iter().collect();
        clean(&folder, &folder, &listed).map_err(&write)?;
        let small = listing.check(&files)?;
        self.bar.expect(small);
        self.download(&listing, &folder, &files, 0).await?;
        // This is checked before gigabytes of weights are downloaded because the configuration may be unsupported.
        let label_vectors = check_config(&folder)?;
        // The manifest is one of these files and lists the graphs.
        let manifest = Manifest::read(&folder)?;
        let mut weights = listing.graph_files(precision, manifest.as_ref())?;
        if let Some(name) = label_vectors {
            weights.push(listing.file(&name)?);
        }
        weights.retain(|file| !files.contains(file));
        files.extend(&weights);
        self.bar.expect(listing.check(&files)?);
        self.download(&listing, &folder, &weights, small).await?;
        clean(&folder, &folder, &files).map_err(&write)?;
        // The folder is renamed last and atomically, so a folder with this name is always complete.
        fs::rename(&folder, to).map_err(PullError::write(to))
    }

    /// Repeats an attempt that failed for a temporary reason. Progress, which is a change of `length`, resets the count
    /// so that a large file completes even if the connection breaks every few hundred megabytes.
    async fn retry<T>(
        &self,
        length: impl Fn() -> u64,
        mut attempt: impl AsyncFnMut() -> Result<T, PullError>,
    ) -> Result<T, PullError> {
        let mut waits = backoff(TRIES);
        loop {
            let before = length();
            match attempt().await {
                Err(PullError::Message(FailureKind::Temporary, _)) if length() > before => {
                    waits = backoff(TRIES);
                }
                Err(error @ PullError::Message(FailureKind::Temporary, _)) => {
                    self.clock.sleep(waits.next().ok_or(error)?).await;
                }
                ended => return ended,
            }
        }
    }

    async fn listing(&self, repo: &str, revision: &str) -> Result<Listing, PullError> {
        let path = format!("api/models/{repo}/revision/{revision}?blobs=true");
        let what = format!("the list of {repo}");
        let mut response = self.get(repo, &path, 0, &what).await?;
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(PullError::http(&what))? {
            body.extend_from_slice(&piece);
            if body.len() > MAX_LISTING {
                let detail = format!("it is longer than {} MiB", MAX_LISTING >> 20);
                return Err(PullError::listing(repo, &detail));
            }
        }
        Listing::read(&body, repo)
    }

    /// Downloads files that are not in the folder yet. `before` is the number of bytes in earlier files, for the
    /// progress bar.
    async fn download(
        &self,
        listing: &Listing,
        folder: &Path,
        files: &[&Sibling],
        mut before: u64,
    ) -> Result<(), PullError> {
        for file in files {
            let path = folder.join(&file.name);
            let write = PullError::write(&path);
            fs::create_dir_all(path.parent().expect("a file in a folder")).map_err(&write)?;
            let fetch = async || self.fetch(listing, file, &path, before).await;
            self.retry(|| length(&path), fetch).await?;
            if !file.matches(&path)? {
                fs::remove_file(&path).map_err(write)?;
                let text = format!(
                    "`{}` does not match the hub's list and was deleted; run the same command again",
                    file.name
                );
                return Err(PullError::Message(FailureKind::Temporary, text));
            }
            before += file.size;
        }
        Ok(())
    }

    /// Resumes a download at the end of the file. The caller checks the size and the hash.
    async fn fetch(
        &self,
        listing: &Listing,
        file: &Sibling,
        to: &Path,
        before: u64,
    ) -> Result<(), PullError> {
        let Listing { repo, sha, .. } = listing;
        let (name, stored) = (&file.name, length(to));
        // A range after the last byte would get status 416.
        if stored > 0 && stored == file.size {
            self.bar.set(before + stored);
            return Ok(());
        }
        let from = if stored > file.size { 0 } else { stored };
        let path = format!("{repo}/resolve/{sha}/{name}");
        let mut response = self.get(repo, &path, from, name).await?;
        let resumes = response.status() == StatusCode::PARTIAL_CONTENT;
        let write = PullError::write(to);
        if resumes && !starts_at(&response, from) {
            // The next attempt requests the whole file. A failed request for the whole file leaves nothing to remove.
            if from > 0 {
                fs::remove_file(to).map_err(write)?;
            }
            let detail = "the hub does not resume the download";
            return Err(PullError::temporary(name, detail));
        }
        let mut out = File::options()
            .create(true)
            .append(resumes)
            .write(true)
            .truncate(!resumes)
            .open(to)
            .map_err(&write)?;
        let mut written = if resumes { from } else { 0 };
        while let Some(piece) = response.chunk().await.map_err(PullError::http(name))? {
            out.write_all(&piece).map_err(&write)?;
            written += piece.len() as u64;
            self.bar.set(before + written);
            // A server that sends more than it lists could fill the disk.
            if written > file.size {
                break;
            }
        }
        // After a power failure, a complete folder must not refer to missing data.
        out.sync_all().map_err(write)
    }

    /// Requests a path on the endpoint, starting at a byte. Fails on any status other than success.
    async fn get(
        &self,
        repo: &str,
        path: &str,
        from: u64,
        what: &str,
    ) -> Result<Response, PullError> {
        let url = format!("{}/{path}", self.endpoint.as_str().trim_end_matches('/'));
        let mut request = self.client.get(url);
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(PullError::http(what))?;
        let status = response.status();
        let code = response.headers().get("x-error-code");
        let is_unknown = status == StatusCode::NOT_FOUND
            || code.is_some_and(|code| code == "RepoNotFound" || code == "RevisionNotFound");
        let is_ours = response.url().origin() == self.endpoint.origin();
        let (kind, why) = match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(response),
            _ if is_ours && is_unknown => (
                FailureKind::Usage,
                "there is no such repository or revision; check the name and HF_ENDPOINT",
            ),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if is_ours => (
                FailureKind::Policy,
                "accept the model's terms on the hub's page, and set HF_TOKEN to a token with access",
            ),
            _ => return Err(PullError::temporary(what, &format!("status {status}"))),
        };
        let text = format!("cannot fetch `{repo}`: status {}; {why}", status.as_u16());
        Err(PullError::Message(kind, text))
    }
}

/// Returns true if the response contains the file from this byte on.
fn starts_at(response: &Response, from: u64) -> bool {
    let start = format!("bytes {from}-");
    let range = response.headers().get(CONTENT_RANGE);
    range.is_some_and(|range| range.as_bytes().starts_with(start.as_bytes()))
}

/// Creates a folder, or removes from it links and everything but `kept`, whose names are relative to `top`.
fn clean(top: &Path, folder: &Path, kept: &[&Sibling]) -> io::Result<()> {
    if !folder
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.is_dir())
    {
        let _ = fs::remove_file(folder);
        fs::create_dir_all(folder)?;
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            clean(top, &path, kept)?;
            // Fails for a folder with kept files.
            let _ = fs::remove_dir(&path);
        } else if !kind.is_file() || !kept.iter().any(|file| top.join(&file.name) == path) {
            // The type of a link is neither a folder nor a file.
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}
