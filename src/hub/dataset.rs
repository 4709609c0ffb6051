//! Files of a data set on the hub: listed at one commit, and read at any place.
//!
//! A revision is looked up once, and everything is asked for by the commit that it stood for then: what is pushed
//! meanwhile changes nothing. The hub is trusted no more than with models: its pages of a list lead to the endpoint only,
//! and an answer is as long as it was asked to be.

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{CONTENT_RANGE, LINK};
use reqwest::{Response, StatusCode};
use serde::Deserialize;

use super::wire::{Wire, transfer};
use super::{Hub, MAX_LISTING, PullError, is_repository};
use crate::clock::SharedClock;
use crate::source::http::backoff;

/// Attempts at a request before it is given up. A rush of machines that read one data set meets refusals for a while.
const TRIES: u32 = 7;
/// The longest wait that the hub can ask for.
const LONGEST_ASKED: Duration = Duration::from_mins(5);
/// Pages of a list, of 1,000 files each: the largest data sets of the hub have some hundred thousand files.
const MOST_PAGES: usize = 1_000;

/// A data set at one commit.
pub struct Dataset {
    wire: Wire,
    clock: SharedClock,
    repo: String,
    commit: String,
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.repo, self.commit)
    }
}

/// A file of it.
#[derive(Debug, Clone)]
pub struct DatasetFile {
    /// Its path in the repository.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// The hash of its content that the hub lists.
    pub oid: String,
}

#[derive(Deserialize)]
struct About {
    sha: String,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<Large>,
}

#[derive(Deserialize)]
struct Large {
    oid: String,
    size: u64,
}

impl Hub {
    /// A data set, at the commit that a branch, tag or commit stands for now.
    ///
    /// # Errors
    /// See [`PullError`].
    pub async fn dataset(self, repo: &str, revision: &str) -> Result<Dataset, PullError> {
        if !is_repository(repo) {
            return Err(PullError::Name(repo.to_owned()));
        }
        let mut dataset = Dataset {
            wire: self.wire,
            clock: self.clock,
            repo: repo.to_owned(),
            commit: String::new(),
        };
        let revision = encoded(&revision.replace("%2F", "/").replace("%2f", "/"), "");
        let path = format!("api/datasets/{repo}/revision/{revision}");
        let (body, _) = dataset.listed(&path).await?;
        let about: About = dataset.parsed(&body)?;
        let is_hash = about.sha.chars().all(|c| c.is_ascii_hexdigit());
        if !is_hash || !(7..=64).contains(&about.sha.len()) {
            return Err(dataset.no_list("it names no commit"));
        }
        dataset.commit = about.sha;
        Ok(dataset)
    }
}

impl Dataset {
    /// The files in a folder; with `deep`, those in folders below it too.
    ///
    /// # Errors
    /// See [`PullError`].
    pub async fn files(&self, folder: &str, deep: bool) -> Result<Vec<DatasetFile>, PullError> {
        let (repo, commit) = (&self.repo, &self.commit);
        let below = match folder {
            "" => String::new(),
            folder => format!("/{}", encoded(folder, "/")),
        };
        let mut path = format!("api/datasets/{repo}/tree/{commit}{below}?recursive={deep}");
        let mut files = Vec::new();
        for _ in 0..MOST_PAGES {
            let (body, next) = self.listed(&path).await?;
            let entries: Vec<Entry> = self.parsed(&body)?;
            for entry in entries.into_iter().filter(|entry| entry.kind == "file") {
                let lfs = entry.lfs;
                files.push(DatasetFile {
                    size: lfs.as_ref().map_or(entry.size, |lfs| lfs.size),
                    oid: lfs.map_or(entry.oid, |lfs| lfs.oid),
                    path: entry.path,
                });
            }
            match next {
                Some(next) => path = next,
                None => return Ok(files),
            }
        }
        Err(self.no_list("it has no end"))
    }

    /// Bytes of a file of `size` bytes.
    ///
    /// # Errors
    /// See [`PullError`].
    pub async fn range(
        &self,
        file: &str,
        range: Range<u64>,
        size: u64,
    ) -> Result<Bytes, PullError> {
        let (repo, commit) = (&self.repo, &self.commit);
        let path = format!("datasets/{repo}/resolve/{commit}/{}", encoded(file, "/"));
        self.tried(async || {
            let answer = self.wire.part(&self.repo, &path, &range, file).await?;
            let due = range.end - range.start;
            let is_part = answer.status() == StatusCode::PARTIAL_CONTENT && begins(&answer, &range);
            // A hub that knows no ranges sends a small file whole.
            let is_whole = answer.status() == StatusCode::OK && range.start == 0 && due == size;
            if !is_part && !is_whole {
                return Err(broken(
                    file,
                    "the hub does not send the part that was asked for",
                ));
            }
            let bytes = body_of(answer, file, due).await?;
            if bytes.len() as u64 == due {
                Ok(bytes)
            } else {
                Err(broken(file, "it sent fewer bytes than were asked for"))
            }
        })
        .await
    }

    /// A page of a list, and the path of the next one.
    async fn listed(&self, path: &str) -> Result<(Bytes, Option<String>), PullError> {
        let what = format!("the list of {}", self.repo);
        self.tried(async || {
            let answer = self.wire.get(&self.repo, path, 0, &what).await?;
            let next = answer
                .headers()
                .get(LINK)
                .and_then(|link| link.to_str().ok());
            let next = next.and_then(|link| next_of(link, self.wire.endpoint()));
            let body = body_of(answer, &what, MAX_LISTING).await?;
            if body.len() as u64 > MAX_LISTING {
                return Err(self.no_list("a page of it is longer than 8 MiB"));
            }
            Ok((body, next))
        })
        .await
    }

    async fn tried<T>(
        &self,
        mut attempt: impl AsyncFnMut() -> Result<T, PullError>,
    ) -> Result<T, PullError> {
        let mut waits = backoff(TRIES);
        loop {
            let (error, asked) = match attempt().await {
                Err(PullError::Transfer { what, detail, wait }) => {
                    (PullError::Transfer { what, detail, wait }, wait)
                }
                done => return done,
            };
            let wait = match (waits.next(), asked) {
                (Some(wait), None) => wait,
                (Some(_), Some(asked)) if asked <= LONGEST_ASKED => asked,
                _ => return Err(error),
            };
            tracing::warn!(
                wait_s = wait.as_secs_f32(),
                "the hub has trouble, and is asked again: {error}"
            );
            self.clock.sleep(wait).await;
        }
    }

    fn parsed<'b, T: Deserialize<'b>>(&self, body: &'b [u8]) -> Result<T, PullError> {
        serde_json::from_slice(body).map_err(|_| self.no_list("it is no list"))
    }

    fn no_list(&self, detail: &str) -> PullError {
        PullError::Listing {
            repo: self.repo.clone(),
            detail: detail.to_owned(),
        }
    }
}

fn broken(file: &str, detail: &str) -> PullError {
    PullError::Transfer {
        what: file.to_owned(),
        detail: detail.to_owned(),
        wait: None,
    }
}

/// The body of an answer, and at most a little more than was asked for.
async fn body_of(mut answer: Response, what: &str, most: u64) -> Result<Bytes, PullError> {
    let mut body = BytesMut::new();
    while let Some(piece) = answer
        .chunk()
        .await
        .map_err(|error| transfer(what, &error))?
    {
        body.extend_from_slice(&piece);
        if body.len() as u64 > most {
            break;
        }
    }
    Ok(body.freeze())
}

/// Whether an answer begins where it was asked to.
fn begins(answer: &Response, range: &Range<u64>) -> bool {
    let header = answer.headers().get(CONTENT_RANGE);
    let start = header.and_then(|header| header.to_str().ok());
    start.is_some_and(|start| start.starts_with(&format!("bytes {}-", range.start)))
}

/// The path of the next page that a `Link` header names, if it is one of the endpoint.
fn next_of(link: &str, endpoint: &str) -> Option<String> {
    let next = link.split(',').find(|link| link.contains("rel=\"next\""))?;
    let address = next.split_once('<')?.1.split_once('>')?.0;
    let path = address.strip_prefix(endpoint)?.strip_prefix('/')?;
    path.starts_with("api/datasets/").then(|| path.to_owned())
}

/// Text as a part of a path; characters of `kept` stay besides letters and digits.
fn encoded(text: &str, kept: &str) -> String {
    let mut path = String::new();
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || "-_.~".contains(c) || kept.contains(c) {
            path.push(c);
        } else {
            path.extend([format!("%{byte:02X}")]);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_one_of_the_endpoint() {
        let of = |link: &str| next_of(link, "https://hub.test");
        let good = "<https://hub.test/api/datasets/o/n/tree/x?cursor=a%3D>; rel=\"next\"";
        assert_eq!(of(good).unwrap(), "api/datasets/o/n/tree/x?cursor=a%3D");
        for bad in [
            "<https://other.test/api/datasets/o/n>; rel=\"next\"",
            "<https://hub.test.evil/api/datasets/o/n>; rel=\"next\"",
            "<https://hub.test/api/datasets/o/n>; rel=\"prev\"",
            "<https://hub.test/logout>; rel=\"next\"",
            "nothing",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_path_is_encoded() {
        assert_eq!(
            encoded("data/a b#1?.parquet", "/"),
            "data/a%20b%231%3F.parquet"
        );
        assert_eq!(
            encoded("refs/convert/parquet", ""),
            "refs%2Fconvert%2Fparquet"
        );
    }
}
