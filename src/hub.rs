//! Downloads a model folder from the Hugging Face hub or a mirror.
//!
//! Takes a repository name and a precision, and creates a folder with the files that the model needs and no other
//! weights. An interrupted download resumes where it stopped. A file is renamed into place once its size and hash match
//! the hub's list, and the folder is renamed once all files are present. The `hf-hub` crate is not used: its version 1
//! restarts an interrupted file from the beginning, and depends on `aws-lc` and a second transfer protocol.
//!
//! The hub is not trusted: listed names must be files in the folder, a response may not be longer than listed, and only
//! the endpoint itself receives the token.

mod client;
mod error;
mod listing;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::CONTENT_RANGE;

use self::client::{HubClient, transfer};
pub use self::error::PullError;
use self::listing::{Listing, Sibling};
use topicmill_score::folder::check_config;
use topicmill_score::folder::manifest::Manifest;

use topicmill_core::clock::SharedClock;
use topicmill_http::backoff;

/// Number of attempts for each request; progress resets the count.
const TRIES: u32 = 5;
/// Maximum size of a file list in bytes; a list of 20,000 files is about half as large.
const MAX_LISTING: u64 = 8 << 20;
/// Time after which a download slower than [`MIN_BYTES_PER_SEC`] is cancelled, so that a slow server cannot block
/// forever.
const SPEED_GRACE: Duration = Duration::from_mins(10);
/// Minimum speed in bytes per second, about twice the speed of a dial-up modem.
const MIN_BYTES_PER_SEC: u64 = 16 << 10;

/// The endpoint and its credentials.
#[derive(Clone)]
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
    client: HubClient,
    clock: SharedClock,
}

impl Hub {
    /// Creates a client for one endpoint.
    ///
    /// # Errors
    /// Returns [`PullError::Transfer`] if the network is unusable, and errors for an invalid address or token.
    pub fn new(source: &HubSource, clock: SharedClock) -> Result<Self, PullError> {
        Ok(Self {
            client: HubClient::new(source)?,
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
        if !is_repository(&wanted.repo) {
            let text = format!(
                "`{}` is not a repository name: write it as `owner/name`",
                wanted.repo
            );
            return Err(PullError::Asked(text));
        }
        // Unlike `exists`, this also finds a dangling link.
        if wanted.to.symlink_metadata().is_ok() {
            return Err(PullError::Asked(format!(
                "`{}` already exists: use it, remove it, or choose a different folder with --to",
                wanted.to.display()
            )));
        }
        let listing = self.listing(wanted).await?;
        let mut small = listing.small_files()?;
        // This is checked before any large download, and before a folder is created.
        listing.has_graph()?;
        listing.check(&small)?;
        let scratch = partial(&wanted.to, &listing.sha);
        let write = PullError::write_error(&scratch);
        if let Some(above) = scratch.parent() {
            fs::create_dir_all(above).map_err(&write)?;
        }
        make_folder(&scratch)?;
        // Files from an earlier mirror or precision are not part of this model.
        let names = listing.names().into_iter();
        let kept: BTreeSet<String> = names
            .flat_map(|name| [name.to_owned(), format!("{name}.part")])
            .collect();
        remove_others(&scratch, &scratch, &kept).map_err(&write)?;
        let mut fetching = Fetching {
            hub: self,
            repo: &wanted.repo,
            commit: &listing.sha,
            folder: &scratch,
            on_step,
        };
        // The manifest is one of the small files and lists the graphs, so the total is known only after these are
        // fetched.
        fetching.expect(bytes(&small));
        fetching.files(&small).await?;
        // This is checked before gigabytes of weights are downloaded because the configuration may be unsupported.
        if let Some(name) = check_config(&scratch)? {
            let file = [listing.file(&name)?.clone()];
            listing.check(&file)?;
            fetching.files(&file).await?;
            small.extend(file);
        }
        let manifest = Manifest::read(&scratch)?;
        let large = listing.graph_files(wanted, manifest.as_ref(), &small)?;
        let all = [&small[..], &large].concat();
        listing.check(&all)?;
        fetching.expect(bytes(&all));
        fetching.files(&large).await?;
        let kept = all.into_iter().map(|file| file.name).collect();
        remove_others(&scratch, &scratch, &kept).map_err(&write)?;
        // The folder is renamed last and atomically, so a folder with this name is always complete.
        fs::rename(&scratch, &wanted.to).map_err(PullError::write_error(&wanted.to))
    }

    async fn listing(&self, wanted: &Wanted) -> Result<Listing, PullError> {
        let Wanted { repo, revision, .. } = wanted;
        let path = format!("api/models/{repo}/revision/{revision}?blobs=true");
        let what = format!("the list of {repo}");
        let mut waits = backoff(TRIES);
        let bytes = loop {
            match (self.small_body(repo, &path, &what).await, waits.next()) {
                (Err(PullError::Transfer { .. }), Some(wait)) => self.clock.sleep(wait).await,
                (answered, _) => break answered?,
            }
        };
        Listing::read(&bytes, repo)
    }

    /// Returns a response's body, bounded by [`MAX_LISTING`].
    async fn small_body(&self, repo: &str, path: &str, what: &str) -> Result<Vec<u8>, PullError> {
        let mut response = self.client.get(repo, path, 0, what).await?;
        let mut body = Vec::new();
        let mut speed = SpeedCheck::start(&self.clock);
        while let Some(piece) = response.chunk().await.map_err(|e| transfer(what, &e))? {
            speed.received(piece.len() as u64, what)?;
            body.extend_from_slice(&piece);
            if body.len() as u64 > MAX_LISTING {
                let detail = format!("it is longer than {} MiB", MAX_LISTING >> 20);
                return Err(PullError::listing(repo, &detail));
            }
        }
        Ok(body)
    }
}

/// A download in progress.
struct Fetching<'a> {
    hub: &'a Hub,
    repo: &'a str,
    commit: &'a str,
    folder: &'a Path,
    on_step: &'a mut dyn FnMut(PullStep),
}

impl Fetching<'_> {
    fn expect(&mut self, bytes: u64) {
        (self.on_step)(PullStep::Expect(bytes));
    }

    fn received(&mut self, bytes: u64) {
        (self.on_step)(PullStep::Came(bytes));
    }

    /// Downloads the files that are not in the folder yet.
    async fn files(&mut self, files: &[Sibling]) -> Result<(), PullError> {
        for file in files {
            self.file(file).await?;
        }
        Ok(())
    }

    async fn file(&mut self, file: &Sibling) -> Result<(), PullError> {
        let path = self.folder.join(&file.name);
        let write = PullError::write_error(&path);
        let above = path.parent().expect("a file in a folder");
        if above != self.folder {
            make_folder(above)?;
        }
        let part = self.folder.join(format!("{}.part", file.name));
        check_not_a_link(&path)?;
        check_not_a_link(&part)?;
        if file.has_hash() && path.is_file() && file.matches(&path)? {
            self.received(file.size.unwrap_or(0));
            return Ok(());
        }
        if !file.has_hash() {
            tracing::warn!(
                "the hub lists no hash for `{}`: only its size is checked",
                file.name
            );
        }
        let mut speed = SpeedCheck::start(&self.hub.clock);
        let mut waits = backoff(TRIES);
        loop {
            let before = length(&part);
            match self.fetch(file, &part, &mut speed).await {
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
    async fn fetch(
        &mut self,
        file: &Sibling,
        part: &Path,
        speed: &mut SpeedCheck<'_>,
    ) -> Result<(), PullError> {
        let name = &file.name;
        let have = length(part);
        // A range after the last byte would get status 416. The caller checks the hash.
        if file.size.is_some_and(|size| have > 0 && have == size) {
            return Ok(());
        }
        let path = format!("{}/resolve/{}/{name}", self.repo, self.commit);
        let mut response = self.hub.client.get(self.repo, &path, have, name).await?;
        let range = response.headers().get(CONTENT_RANGE);
        let range = range.and_then(|range| range.to_str().ok());
        let goes_on = response.status() == StatusCode::PARTIAL_CONTENT
            && range.is_some_and(|range| range.starts_with(&format!("bytes {have}-")));
        let write = PullError::write_error(part);
        if response.status() != StatusCode::OK && !goes_on {
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
            .append(goes_on)
            .write(true)
            .truncate(!goes_on)
            .open(part)
            .map_err(&write)?;
        let mut left = file.limit();
        if goes_on {
            self.received(have);
            left = left.saturating_sub(have);
        }
        while let Some(piece) = response.chunk().await.map_err(|e| transfer(name, &e))? {
            let bytes = piece.len() as u64;
            speed.received(bytes, name)?;
            // A server that sends more than it lists could fill the disk.
            let Some(rest) = left.checked_sub(bytes) else {
                drop(out);
                fs::remove_file(part).map_err(write)?;
                return Err(PullError::damaged(name));
            };
            left = rest;
            out.write_all(&piece).map_err(&write)?;
            self.received(bytes);
        }
        // The file is synced before the rename: after a power failure, the file name must not refer to missing data.
        out.sync_all().map_err(write)
    }
}

/// Measures download speed.
struct SpeedCheck<'c> {
    clock: &'c SharedClock,
    start: Duration,
    came: u64,
}

impl<'c> SpeedCheck<'c> {
    fn start(clock: &'c SharedClock) -> Self {
        Self {
            clock,
            start: clock.elapsed(),
            came: 0,
        }
    }

    /// Counts received bytes; fails if the download is too slow. A stalled connection is handled by the client's
    /// timeout.
    fn received(&mut self, bytes: u64, what: &str) -> Result<(), PullError> {
        self.came += bytes;
        let due = SPEED_GRACE + Duration::from_secs(self.came / MIN_BYTES_PER_SEC);
        if self.clock.elapsed().saturating_sub(self.start) > due {
            return Err(PullError::Again(format!(
                "cannot fetch `{what}`: it is slower than 16 KiB per second; run the same command again to resume, or \
                 set HF_ENDPOINT to a different mirror"
            )));
        }
        Ok(())
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
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    let parts: Vec<&str> = name.split('/').collect();
    parts.len() <= 2 && parts.into_iter().all(part)
}

/// Returns the temporary path for a folder. It contains the commit so that versions are not mixed.
fn partial(to: &Path, commit: &str) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    let short: String = commit
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(12)
        .collect();
    name.push(format!(".{short}.partial"));
    to.with_file_name(name)
}

/// Removes everything in a folder that is not in `named`, whose paths are relative to `top`. A link in place of a named
/// file is kept, and is rejected when that file is written.
fn remove_others(top: &Path, folder: &Path, named: &BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let below = path.strip_prefix(top).expect("a path below the folder");
        let is_named = named.iter().any(|name| Path::new(name).starts_with(below));
        let is_folder = path.symlink_metadata()?.is_dir();
        match (is_named, is_folder) {
            (true, true) => remove_others(top, &path, named)?,
            (true, false) => {}
            (false, true) => fs::remove_dir_all(&path)?,
            (false, false) => fs::remove_file(&path)?,
        }
    }
    Ok(())
}

fn bytes(files: &[Sibling]) -> u64 {
    let sizes = files.iter().filter_map(|file| file.size);
    sizes.fold(0, u64::saturating_add)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Creates a folder, or checks that an existing one is not a link.
fn make_folder(path: &Path) -> Result<(), PullError> {
    match fs::create_dir(path) {
        Ok(()) => Ok(()),
        Err(_) if path.symlink_metadata().is_ok_and(|found| found.is_dir()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(PullError::Link(path.to_owned()))
        }
        Err(error) => Err(PullError::write_error(path)(error)),
    }
}

/// Checks that a path is a regular file or does not exist.
fn check_not_a_link(path: &Path) -> Result<(), PullError> {
    match path.symlink_metadata() {
        Ok(found) if !found.is_file() => Err(PullError::Link(path.to_owned())),
        _ => Ok(()),
    }
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
