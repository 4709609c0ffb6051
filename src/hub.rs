//! Downloads a model folder from the Hugging Face hub or a mirror.
//!
//! Takes a repository name and a precision, and creates a folder with the files that the model needs and no other
//! weights. An interrupted download resumes where it stopped. A file is renamed into place once its size and hash match
//! the hub's list, and the folder is renamed once all files are present. The `hf-hub` crate is not used: its version 1
//! restarts an interrupted file from the beginning, checks no hash, and depends on `aws-lc` and a second transfer
//! protocol.
//!
//! The hub is not trusted: listed names must be files in the folder, and a response may not be longer than listed. The
//! token goes to the endpoint only, because the HTTP client drops it when a redirect leads to another host.

mod error;
mod listing;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode, Url};

pub use self::error::PullError;
use self::listing::{Listing, Sibling};
use topicmill_core::FailureKind;
use topicmill_core::clock::SharedClock;
use topicmill_http::{backoff, install_tls};
use topicmill_score::folder::check_config;
use topicmill_score::folder::manifest::Manifest;

/// Number of attempts for each request; progress resets the count.
const TRIES: u32 = 5;
/// Maximum size of a file list in bytes; a list of 20,000 files is about half as large.
const MAX_LISTING: usize = 8 << 20;

/// The endpoint and its credentials.
pub struct HubSource {
    /// `https://huggingface.co` or a mirror. If it contains a user and a password, they are sent instead of the token.
    pub endpoint: String,
    /// The token, sent to the endpoint only and never shown.
    pub token: Option<String>,
}

/// The model to download.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// `owner/name`.
    pub repo: String,
    /// A branch, tag or commit.
    pub revision: String,
    /// The graphs' precision, as the hub names it; `None` for float32, `all` for every graph.
    pub precision: Option<String>,
    /// The folder to create.
    pub to: PathBuf,
}

/// A client for the hub.
pub struct Hub {
    client: Client,
    endpoint: Url,
    token: Option<String>,
    clock: SharedClock,
}

impl Hub {
    /// Creates a client for one endpoint.
    ///
    /// # Errors
    /// Returns [`PullError::Transfer`] if the network is unusable, and an error for an invalid address.
    pub fn new(source: HubSource, clock: SharedClock) -> Result<Self, PullError> {
        install_tls();
        let mut endpoint = Url::parse(&source.endpoint).map_err(|_| PullError::endpoint())?;
        if !matches!(endpoint.scheme(), "http" | "https") {
            return Err(PullError::endpoint());
        }
        // Paths are appended to the endpoint, so it must end with its path.
        endpoint.set_query(None);
        endpoint.set_fragment(None);
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
            .map_err(|error| PullError::transfer("the hub", &error))?;
        let has_login = !endpoint.username().is_empty() || endpoint.password().is_some();
        Ok(Self {
            client,
            endpoint,
            token: source.token.filter(|_| !has_login),
            clock,
        })
    }

    /// Downloads a model. `on_step` receives the total bytes, and each received chunk.
    ///
    /// # Errors
    /// See [`PullError`].
    pub async fn pull(
        &self,
        wanted: &Wanted,
        on_step: &mut dyn FnMut(PullStep),
    ) -> Result<(), PullError> {
        let wrong = |text: String| Err(PullError::Message(FailureKind::Usage, text));
        let Wanted { repo, to, .. } = wanted;
        if !is_repository(repo) {
            return wrong(format!(
                "`{repo}` is not a repository name: write it as `owner/name`"
            ));
        }
        // Unlike `exists`, this also finds a dangling link.
        if to.symlink_metadata().is_ok() {
            return wrong(format!(
                "`{}` already exists: use it, remove it, or choose a different folder with --to",
                to.display()
            ));
        }
        let listing = self.listing(wanted).await?;
        // This is checked before any large download, and before a folder is created.
        let small = listing.small_files()?;
        let scratch = partial(to, &listing.sha);
        let write = PullError::write_error(&scratch);
        // Files from an earlier mirror or precision are not part of this model.
        let names = listing.siblings.iter().map(|file| &file.name);
        let kept = names.flat_map(|name| [name.clone(), format!("{name}.part")]);
        clean(&scratch, &scratch, &kept.collect()).map_err(&write)?;
        let mut fetching = Fetching {
            hub: self,
            listing: &listing,
            folder: &scratch,
            files: Vec::new(),
            on_step,
        };
        fetching.add(small).await?;
        // This is checked before gigabytes of weights are downloaded because the configuration may be unsupported.
        if let Some(name) = check_config(&scratch)? {
            fetching.add(vec![listing.file(&name)?.clone()]).await?;
        }
        // The manifest is one of the small files and lists the graphs.
        let manifest = Manifest::read(&scratch)?;
        let mut large = listing.graph_files(wanted, manifest.as_ref())?;
        large.retain(|file| !fetching.files.contains(file));
        fetching.add(large).await?;
        let kept = fetching.files.into_iter().map(|file| file.name).collect();
        clean(&scratch, &scratch, &kept).map_err(&write)?;
        // The folder is renamed last and atomically, so a folder with this name is always complete.
        fs::rename(&scratch, to).map_err(PullError::write_error(to))
    }

    async fn listing(&self, wanted: &Wanted) -> Result<Listing, PullError> {
        let Wanted { repo, revision, .. } = wanted;
        let path = format!("api/models/{repo}/revision/{revision}?blobs=true");
        let what = format!("the list of {repo}");
        let mut waits = backoff(TRIES);
        loop {
            match (self.read_listing(repo, &path, &what).await, waits.next()) {
                (Err(PullError::Transfer { .. }), Some(wait)) => self.clock.sleep(wait).await,
                (answered, _) => break answered,
            }
        }
    }

    async fn read_listing(&self, repo: &str, path: &str, what: &str) -> Result<Listing, PullError> {
        let mut response = self.get(repo, path, 0, what).await?;
        let mut body = Vec::new();
        while let Some(piece) = next_piece(&mut response, what).await? {
            body.extend_from_slice(piece.as_ref());
            if body.len() > MAX_LISTING {
                let detail = format!("it is longer than {} MiB", MAX_LISTING >> 20);
                return Err(PullError::listing(repo, &detail));
            }
        }
        Listing::read(&body, repo)
    }

    /// Requests a path on the endpoint, starting at a byte. Fails on any status other than success or 416.
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
        let response = request.send().await;
        let response = response.map_err(|error| PullError::transfer(what, &error))?;
        let status = response.status();
        let code = response.headers().get("x-error-code");
        let is_unknown =
            code.is_some_and(|code| code == "RepoNotFound" || code == "RevisionNotFound");
        let is_ours = response.url().origin() == self.endpoint.origin();
        let (kind, why) = match status {
            // 416 is not a failure: the partial file is longer than the file, and `fetch` restarts it.
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                return Ok(response);
            }
            _ if is_ours && (is_unknown || status == StatusCode::NOT_FOUND) => (
                FailureKind::Usage,
                "there is no such repository or revision; check the name and HF_ENDPOINT",
            ),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if is_ours => (
                FailureKind::Policy,
                "accept the model's terms on the hub's page, and set HF_TOKEN to a token with access",
            ),
            _ => {
                let (what, detail) = (what.to_owned(), format!("status {status}"));
                return Err(PullError::Transfer { what, detail });
            }
        };
        let text = format!("cannot fetch `{repo}`: status {}; {why}", status.as_u16());
        Err(PullError::Message(kind, text))
    }
}

async fn next_piece(
    response: &mut Response,
    what: &str,
) -> Result<Option<impl AsRef<[u8]> + use<>>, PullError> {
    let piece = response.chunk().await;
    piece.map_err(|error| PullError::transfer(what, &error))
}

/// A download in progress.
struct Fetching<'a> {
    hub: &'a Hub,
    listing: &'a Listing,
    folder: &'a Path,
    /// The files of the model so far.
    files: Vec<Sibling>,
    on_step: &'a mut dyn FnMut(PullStep),
}

impl Fetching<'_> {
    /// Downloads files that are not in the folder yet.
    async fn add(&mut self, files: Vec<Sibling>) -> Result<(), PullError> {
        self.files.extend(files.iter().cloned());
        self.listing.check(&self.files)?;
        let sizes = self.files.iter().map(|file| file.size);
        (self.on_step)(PullStep::Expect(sizes.sum()));
        for file in files {
            self.file(&file).await?;
        }
        Ok(())
    }

    async fn file(&mut self, file: &Sibling) -> Result<(), PullError> {
        let path = self.folder.join(&file.name);
        let write = PullError::write_error(&path);
        fs::create_dir_all(path.parent().expect("a file in a folder")).map_err(&write)?;
        let part = self.folder.join(format!("{}.part", file.name));
        if path.is_file() && file.matches(&path)? {
            (self.on_step)(PullStep::Came(file.size));
            return Ok(());
        }
        let mut waits = backoff(TRIES);
        loop {
            let before = length(&part);
            match self.fetch(file, &part).await {
                Ok(()) => break,
                // Progress resets the count so that a large file completes even if the connection breaks every few
                // hundred megabytes.
                Err(PullError::Transfer { .. }) if length(&part) > before => {
                    waits = backoff(TRIES);
                }
                Err(error @ PullError::Transfer { .. }) => {
                    let wait = waits.next().ok_or(error)?;
                    self.hub.clock.sleep(wait).await;
                }
                Err(error) => return Err(error),
            }
        }
        if !file.matches(&part)? {
            fs::remove_file(&part).map_err(write)?;
            return Err(PullError::damaged(&file.name));
        }
        fs::rename(&part, &path).map_err(write)
    }

    /// Resumes a download at the end of the partial file.
    async fn fetch(&mut self, file: &Sibling, part: &Path) -> Result<(), PullError> {
        let name = &file.name;
        let have = length(part);
        // A range after the last byte would get status 416. The caller checks the hash.
        if have > 0 && have == file.size {
            return Ok(());
        }
        let Listing { repo, sha, .. } = self.listing;
        let path = format!("{repo}/resolve/{sha}/{name}");
        let mut response = self.hub.get(repo, &path, have, name).await?;
        let range = response.headers().get(CONTENT_RANGE);
        let range = range.and_then(|range| range.to_str().ok());
        let resumes = response.status() == StatusCode::PARTIAL_CONTENT
            && range.is_some_and(|range| range.starts_with(&format!("bytes {have}-")));
        let write = PullError::write_error(part);
        if response.status() != StatusCode::OK && !resumes {
            // A failed request for the whole file leaves nothing to remove.
            if have > 0 {
                fs::remove_file(part).map_err(write)?;
            }
            return Err(PullError::Transfer {
                what: name.clone(),
                detail: "the hub does not resume the download".to_owned(),
            });
        }
        let mut out = File::options()
            .create(true)
            .append(resumes)
            .write(true)
            .truncate(!resumes)
            .open(part)
            .map_err(&write)?;
        let have = if resumes { have } else { 0 };
        (self.on_step)(PullStep::Came(have));
        let mut left = file.size.saturating_sub(have);
        while let Some(piece) = next_piece(&mut response, name).await? {
            let piece = piece.as_ref();
            // A server that sends more than it lists could fill the disk.
            let Some(rest) = left.checked_sub(piece.len() as u64) else {
                drop(out);
                fs::remove_file(part).map_err(write)?;
                return Err(PullError::damaged(name));
            };
            left = rest;
            out.write_all(piece).map_err(&write)?;
            (self.on_step)(PullStep::Came(piece.len() as u64));
        }
        // The file is synced before the rename: after a power failure, the file name must not refer to missing data.
        out.sync_all().map_err(write)
    }
}

/// The progress of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullStep {
    /// The total number of bytes, as far as it is known.
    Expect(u64),
    /// The number of bytes received.
    Came(u64),
}

/// Returns true for `owner/name`, and for a name alone.
fn is_repository(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_part =
        |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(is_letter);
    name.split('/').count() <= 2 && name.split('/').all(is_part)
}

/// Returns the temporary path for a folder. It contains the commit so that versions are not mixed.
fn partial(to: &Path, commit: &str) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", &commit[..commit.len().min(12)]));
    to.with_file_name(name)
}

/// Creates a folder, or removes from it links and everything that is not in `named`, whose paths are relative to `top`.
fn clean(top: &Path, folder: &Path, named: &BTreeSet<String>) -> io::Result<()> {
    if !folder.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        let _ = fs::remove_file(folder);
        fs::create_dir_all(folder)?;
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let below = path.strip_prefix(top).expect("a path below the folder");
        let is_named = named.iter().any(|name| Path::new(name).starts_with(below));
        // The type of a link is neither a folder nor a file.
        match entry.file_type()? {
            kind if kind.is_dir() && is_named => clean(top, &path, named)?,
            kind if kind.is_dir() => fs::remove_dir_all(&path)?,
            kind if kind.is_file() && is_named => {}
            _ => fs::remove_file(&path)?,
        }
    }
    Ok(())
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_names_cannot_traverse_paths() {
        for name in ["facebook/bart-large-mnli", "gpt2", "a.b/c_d-1"] {
            assert!(is_repository(name), "{name}");
        }
        for name in ["", "a/b/c", "../b", "a/..", "a b", "a/b?x", "/b"] {
            assert!(!is_repository(name), "{name}");
        }
    }
}
