//! Fetches a model folder from the Hugging Face hub, or from a mirror of it.
//!
//! In go the name of a repository and a precision, out comes a folder with those files that a model needs and no
//! weights besides. The crate `hf-hub` is not used: its version 1 starts every file anew, and brings `aws-lc` and
//! a second protocol. Here a file that broke off, or whose program was killed, goes on where it was; it gets its
//! name when size and SHA-256 are those of the hub's list, and the folder its name when all files are there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, HeaderValue, RANGE};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;

use super::hashes::file_hash;
use super::manifest::{self, Manifest};
use super::{ModelError, check_config, graph_names};
use crate::clock::SharedClock;

/// Attempts at a request before it is given up; one that got further starts counting again.
const TRIES: u32 = 5;
/// Wait before the second attempt; each later one waits twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Files that every model has.
const NEEDED: &[&str] = &["config.json", "tokenizer.json"];
/// Files that are taken where they are there.
const WELCOME: &[&str] = &[
    "tokenizer_config.json",
    "special_tokens_map.json",
    "manifest.toml",
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "NOTICE",
];

/// Why a model was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// A name that no repository can have.
    #[error("`{0}` is no repository: write it as `owner/name`")]
    Name(String),
    /// The folder is there already.
    #[error("`{0}` exists already: use it, remove it, or give another folder with --to")]
    Exists(PathBuf),
    /// The hub does not know it.
    #[error("find `{repo}` on {endpoint}: there is no such repository or revision; check the name")]
    NotFound {
        /// The repository.
        repo: String,
        /// The hub.
        endpoint: String,
    },
    /// The hub does not give it to this user.
    #[error(
        "fetch `{repo}` from {endpoint}: status {status}; {}",
        if *with_token { "the token may not read it: accept its terms on the hub's page, or use another token" }
        else { "it needs a token, or does not exist: set HF_TOKEN, or check the name" }
    )]
    Refused {
        /// The repository.
        repo: String,
        /// The hub.
        endpoint: String,
        /// What it answered.
        status: u16,
        /// Whether a token was sent.
        with_token: bool,
    },
    /// The hub does not answer, or breaks off.
    #[error("fetch `{what}`: {detail}; give the same command again to go on")]
    Transfer {
        /// File or list.
        what: String,
        /// What went wrong.
        detail: String,
    },
    /// The repository lacks a file that every model has.
    #[error(
        "the repository `{repo}` has no `{file}`: take one with an ONNX export, or export it yourself"
    )]
    NoFile {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
    },
    /// The repository has weights, but no graph.
    #[error(
        "the repository `{0}` has no ONNX graph: fetch its weights with `hf download` and make the graphs with tools/model.py"
    )]
    NoGraph(String),
    /// No graph of that precision, or too many.
    #[error(
        "the repository `{repo}` has no graph of precision `{precision}` (there is {}): choose with --precision",
        found.join(", ")
    )]
    Precision {
        /// The repository.
        repo: String,
        /// What was looked for.
        precision: String,
        /// The graphs that it has.
        found: Vec<String>,
    },
    /// What came is not what the hub lists.
    #[error(
        "`{0}` did not arrive as the hub lists it, and was deleted; give the same command again"
    )]
    Damaged(String),
    /// A file of ours.
    #[error(
        "write `{path}`: {source}; make room or correct --to, and give the same command again to go on"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The model is none that topicmill can use.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Where to fetch from, and as whom.
#[derive(Clone)]
pub struct Source {
    /// `https://huggingface.co`, or a mirror.
    pub endpoint: String,
    /// Sent to the endpoint, never shown.
    pub token: Option<String>,
    /// Where the hub's own programs keep what they fetched (`HF_HOME/hub`).
    pub cache: Option<PathBuf>,
}

/// What to fetch.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// `owner/name`.
    pub repo: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// Of which graphs, by the hub's names; `None` for float32, `all` for every graph.
    pub precision: Option<String>,
    /// The folder to make.
    pub to: PathBuf,
}

/// A file of the hub's list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob: Option<String>,
    lfs: Option<Lfs>,
}

/// What the hub tells of a large file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Lfs {
    sha256: String,
}

#[derive(Debug, Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

/// A client of the hub.
pub struct Hub {
    client: Client,
    source: Source,
    clock: SharedClock,
}

impl Hub {
    /// A client for one source.
    ///
    /// # Errors
    /// [`PullError::Transfer`] where the network cannot be used at all.
    pub fn new(source: Source, clock: SharedClock) -> Result<Self, PullError> {
        // Another part of the process may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("topicmill/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(30))
            .read_timeout(Duration::from_mins(1))
            .build()
            .map_err(|error| transfer("the hub", &error))?;
        Ok(Self {
            client,
            source,
            clock,
        })
    }

    /// Fetches a model; `heard` is told how many bytes there are in all, and of each piece that came.
    ///
    /// # Errors
    /// See [`PullError`].
    pub async fn pull(
        &self,
        wanted: &Wanted,
        heard: &mut dyn FnMut(Step),
    ) -> Result<(), PullError> {
        if !is_repository(&wanted.repo) {
            return Err(PullError::Name(wanted.repo.clone()));
        }
        if wanted.to.exists() {
            return Err(PullError::Exists(wanted.to.clone()));
        }
        let listing = self.listing(wanted).await?;
        let small = small_files(&listing, &wanted.repo)?;
        // Before anything large is fetched, and before a folder is made.
        let names: Vec<&str> = listing
            .siblings
            .iter()
            .map(|s| s.rfilename.as_str())
            .collect();
        if !names.iter().any(|name| is_graph(name)) {
            return Err(PullError::NoGraph(wanted.repo.clone()));
        }
        let scratch = partial(&wanted.to, &listing.sha);
        fs::create_dir_all(&scratch).map_err(|source| PullError::Write {
            path: scratch.clone(),
            source,
        })?;
        heard(Step::Expect(bytes(&small)));
        for file in &small {
            self.file(wanted, &listing.sha, file, &scratch, heard)
                .await?;
        }
        check_config(&scratch)?;
        let manifest = Manifest::read(&scratch)?;
        let graphs = graph_files(&names, wanted, manifest.as_ref())?;
        let large: Vec<Sibling> = listing
            .siblings
            .iter()
            .filter(|file| graphs.contains(&file.rfilename))
            .cloned()
            .collect();
        heard(Step::Expect(bytes(&small) + bytes(&large)));
        for file in &large {
            self.file(wanted, &listing.sha, file, &scratch, heard)
                .await?;
        }
        fs::rename(&scratch, &wanted.to).map_err(|source| PullError::Write {
            path: wanted.to.clone(),
            source,
        })
    }

    async fn listing(&self, wanted: &Wanted) -> Result<Listing, PullError> {
        let Wanted { repo, revision, .. } = wanted;
        let endpoint = &self.source.endpoint;
        let url = format!("{endpoint}/api/models/{repo}/revision/{revision}?blobs=true");
        let mut tries = 1;
        loop {
            let what = format!("the list of {repo}");
            let answered = match self.ask(wanted, &url, 0, &what).await {
                Ok(response) => response
                    .json::<Listing>()
                    .await
                    .map_err(|error| transfer(&what, &error)),
                Err(error) => Err(error),
            };
            match answered {
                Err(PullError::Transfer { .. }) if tries < TRIES => {
                    self.clock.sleep(FIRST_WAIT * (1 << (tries - 1))).await;
                    tries += 1;
                }
                answered => return answered,
            }
        }
    }

    /// One request; fails on any status but those of a whole file or a part of one.
    async fn ask(
        &self,
        wanted: &Wanted,
        url: &str,
        from: u64,
        what: &str,
    ) -> Result<Response, PullError> {
        let Source {
            endpoint, token, ..
        } = &self.source;
        // Packed, its bytes would not be those that are counted.
        let mut request = self.client.get(url).header(ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                PullError::Refused {
                    repo: wanted.repo.clone(),
                    endpoint: endpoint.clone(),
                    status: 401,
                    with_token: true,
                }
            })?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let response = request
            .send()
            .await
            .map_err(|error| transfer(what, &error))?;
        let status = response.status();
        let code = response.headers().get("x-error-code");
        let unknown = code.is_some_and(|code| code == "RepoNotFound" || code == "RevisionNotFound");
        match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                Ok(response)
            }
            StatusCode::NOT_FOUND => Err(not_found(wanted, endpoint)),
            _ if unknown => Err(not_found(wanted, endpoint)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(PullError::Refused {
                repo: wanted.repo.clone(),
                endpoint: endpoint.clone(),
                status: status.as_u16(),
                with_token: token.is_some(),
            }),
            _ => Err(PullError::Transfer {
                what: what.to_owned(),
                detail: format!("status {status}"),
            }),
        }
    }

    /// Fetches one file into the folder, unless it is there.
    async fn file(
        &self,
        wanted: &Wanted,
        commit: &str,
        file: &Sibling,
        folder: &Path,
        heard: &mut dyn FnMut(Step),
    ) -> Result<(), PullError> {
        let path = folder.join(&file.rfilename);
        let write = |source| PullError::Write {
            path: path.clone(),
            source,
        };
        if path.is_file() && file.is(&path)? {
            heard(Step::Came(file.size.unwrap_or(0)));
            return Ok(());
        }
        fs::create_dir_all(path.parent().expect("a file in a folder")).map_err(write)?;
        let part = folder.join(format!("{}.part", file.rfilename));
        if let Some(cached) = self.cached(&wanted.repo, commit, file) {
            fs::copy(&cached, &part).map_err(write)?;
            heard(Step::Came(file.size.unwrap_or(0)));
        } else {
            let url = format!(
                "{}/{}/resolve/{commit}/{}",
                self.source.endpoint, wanted.repo, file.rfilename
            );
            let mut tries = 1;
            loop {
                let before = length(&part);
                let fetched = self.fetch(wanted, &url, file, &part, heard).await;
                match fetched {
                    Ok(()) => break,
                    Err(PullError::Transfer { .. }) if length(&part) > before => tries = 1,
                    Err(PullError::Transfer { .. }) if tries < TRIES => {
                        self.clock.sleep(FIRST_WAIT * (1 << (tries - 1))).await;
                        tries += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if !file.is(&part)? {
            fs::remove_file(&part).map_err(write)?;
            return Err(PullError::Damaged(file.rfilename.clone()));
        }
        fs::rename(&part, &path).map_err(write)
    }

    /// What the hub's own programs fetched of it, if it is whole.
    fn cached(&self, repo: &str, commit: &str, file: &Sibling) -> Option<PathBuf> {
        let folder = format!("models--{}", repo.replace('/', "--"));
        let path = self
            .source
            .cache
            .as_ref()?
            .join(folder)
            .join("snapshots")
            .join(commit)
            .join(&file.rfilename);
        (path.is_file() && file.is(&path).unwrap_or(false)).then_some(path)
    }

    /// Goes on where the part ends.
    async fn fetch(
        &self,
        wanted: &Wanted,
        url: &str,
        file: &Sibling,
        part: &Path,
        heard: &mut dyn FnMut(Step),
    ) -> Result<(), PullError> {
        let name = &file.rfilename;
        let have = length(part);
        if file.size.is_some_and(|size| have > 0 && have == size) {
            return Ok(());
        }
        let mut response = self.ask(wanted, url, have, name).await?;
        let goes_on = response.status() == StatusCode::PARTIAL_CONTENT
            && response.headers().get(CONTENT_RANGE).is_some_and(|range| {
                range
                    .to_str()
                    .is_ok_and(|range| range.starts_with(&format!("bytes {have}-")))
            });
        let write = |source| PullError::Write {
            path: part.to_owned(),
            source,
        };
        if response.status() != StatusCode::OK && !goes_on {
            fs::remove_file(part).map_err(write)?;
            return Err(PullError::Transfer {
                what: name.clone(),
                detail: "the hub does not go on where the file broke off".to_owned(),
            });
        }
        let mut out = File::options()
            .create(true)
            .append(goes_on)
            .write(true)
            .truncate(!goes_on)
            .open(part)
            .map_err(write)?;
        if goes_on {
            heard(Step::Came(have));
        }
        while let Some(piece) = response
            .chunk()
            .await
            .map_err(|error| transfer(name, &error))?
        {
            out.write_all(&piece).map_err(write)?;
            heard(Step::Came(piece.len() as u64));
        }
        out.sync_all().map_err(write)
    }
}

/// How far fetching is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many bytes in all, as far as is known.
    Expect(u64),
    /// So many more are there.
    Came(u64),
}

impl Sibling {
    /// Whether a file is the one of the list: by its size, and a large one by its SHA-256.
    fn is(&self, path: &Path) -> Result<bool, ModelError> {
        if self.size.is_some_and(|size| size != length(path)) {
            return Ok(false);
        }
        match &self.lfs {
            Some(lfs) => Ok(file_hash(path)? == lfs.sha256),
            None => Ok(true),
        }
    }
}

/// The files that a model needs besides its graphs.
fn small_files(listing: &Listing, repo: &str) -> Result<Vec<Sibling>, PullError> {
    let find = |name: &&str| {
        listing
            .siblings
            .iter()
            .find(|file| file.rfilename == **name)
    };
    for name in NEEDED {
        if find(name).is_none() {
            return Err(PullError::NoFile {
                repo: repo.to_owned(),
                file: (*name).to_owned(),
            });
        }
    }
    Ok(NEEDED
        .iter()
        .chain(WELCOME)
        .filter_map(find)
        .cloned()
        .collect())
}

/// The graphs to fetch, and the weights that lie beside them.
fn graph_files(
    names: &[&str],
    wanted: &Wanted,
    manifest: Option<&Manifest>,
) -> Result<Vec<String>, PullError> {
    let precision = wanted.precision.as_deref();
    let graphs: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| is_graph(name))
        .collect();
    if let Some(manifest) = manifest {
        let of_precision = manifest.graphs.values().filter(|graph| {
            precision == Some("all") || graph.precision == precision.unwrap_or("fp32")
        });
        let files: Vec<String> = of_precision
            .flat_map(manifest::Graph::files)
            .map(str::to_owned)
            .collect();
        if !files.is_empty() {
            return Ok(files);
        }
    } else {
        let chosen: Vec<&str> = match (precision, graphs.as_slice()) {
            (Some("all"), _) => graphs.clone(),
            (None, [only]) => vec![only],
            (precision, _) => {
                let wanted = graph_names(precision.unwrap_or("fp32"));
                let at = |folder: &str, name: &String| format!("{folder}{name}");
                ["", "onnx/"]
                    .iter()
                    .flat_map(|folder| wanted.iter().map(move |name| at(folder, name)))
                    .find_map(|path| graphs.iter().copied().find(|graph| *graph == path))
                    .into_iter()
                    .collect()
            }
        };
        let belongs = |name: &&&str| {
            chosen.iter().any(|graph| {
                name.strip_prefix(graph).is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with(".data") || rest.starts_with("_data")
                })
            })
        };
        if !chosen.is_empty() {
            return Ok(names
                .iter()
                .filter(belongs)
                .map(|name| (*name).to_owned())
                .collect());
        }
    }
    Err(PullError::Precision {
        repo: wanted.repo.clone(),
        precision: precision.unwrap_or("fp32").to_owned(),
        found: graphs.into_iter().map(str::to_owned).collect(),
    })
}

/// A graph where a model folder has it: at the top or in `onnx`, under a name that leads nowhere else.
fn is_graph(name: &str) -> bool {
    let file = name.strip_prefix("onnx/").unwrap_or(name);
    Path::new(file).extension().is_some_and(|e| e == "onnx") && !file.contains(['/', '\\'])
}

/// `owner/name`, or a name alone.
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

/// Where a folder is until it is whole; each commit has its own, so that versions of a file do not mix.
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

fn bytes(files: &[Sibling]) -> u64 {
    files.iter().filter_map(|file| file.size).sum()
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn not_found(wanted: &Wanted, endpoint: &str) -> PullError {
    PullError::NotFound {
        repo: wanted.repo.clone(),
        endpoint: endpoint.to_owned(),
    }
}

/// The innermost cause says most.
fn transfer(what: &str, error: &reqwest::Error) -> PullError {
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

    fn chosen(names: &[&str], precision: Option<&str>) -> Result<Vec<String>, PullError> {
        let wanted = Wanted {
            repo: "a/b".into(),
            revision: "main".into(),
            precision: precision.map(str::to_owned),
            to: "b".into(),
        };
        graph_files(names, &wanted, None)
    }

    #[test]
    fn only_the_weights_of_the_precision_are_fetched() {
        let names = [
            "config.json",
            "model.safetensors",
            "onnx/model.onnx",
            "onnx/model.onnx_data",
            "onnx/model_fp16.onnx",
            "onnx/model_quantized.onnx",
            "other/model.onnx",
        ];
        assert_eq!(
            chosen(&names, None).unwrap(),
            ["onnx/model.onnx", "onnx/model.onnx_data"]
        );
        assert_eq!(
            chosen(&names, Some("fp16")).unwrap(),
            ["onnx/model_fp16.onnx"]
        );
        assert_eq!(
            chosen(&names, Some("int8")).unwrap(),
            ["onnx/model_quantized.onnx"]
        );
        assert_eq!(chosen(&names, Some("all")).unwrap().len(), 4);
        assert_eq!(chosen(&["bart.onnx"], None).unwrap(), ["bart.onnx"]);
        let error = chosen(&names, Some("q4")).unwrap_err().to_string();
        assert!(
            error.contains("`q4`") && error.contains("onnx/model_fp16.onnx"),
            "{error}"
        );
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        for name in ["facebook/bart-large-mnli", "gpt2", "a.b/c_d-1"] {
            assert!(is_repository(name), "{name}");
        }
        for name in ["", "a/b/c", "../b", "a/..", "a b", "a/b?x", "/b"] {
            assert!(!is_repository(name), "{name}");
        }
        assert!(is_graph("onnx/model.onnx") && is_graph("model.onnx"));
        for name in [
            "../model.onnx",
            "onnx/../../model.onnx",
            "a/model.onnx",
            "model.bin",
        ] {
            assert!(!is_graph(name), "{name}");
        }
    }
}
