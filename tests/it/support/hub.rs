//! A fake model hub on the loopback interface: lists repositories, serves files and ranges, and can interrupt or
//! corrupt a transfer.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::{StreamExt, stream};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::json;
use sha2::{Digest, Sha256};
use topicmill_core::hex;

/// The only commit of every repository.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A fault in the middle of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Interrupts this many transfers.
    Break(u32),
    /// Changes a byte.
    Damage,
}

/// A received request.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    path: String,
    pub range: Option<String>,
}

#[derive(Default)]
struct HubState {
    repositories: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Repositories that need a token, and the token.
    gated: BTreeMap<String, String>,
    faults: BTreeMap<String, Fault>,
    seen: Vec<SeenRequest>,
}

/// A hub that runs until the test's runtime ends.
pub struct Hub {
    pub url: String,
    state: Arc<Mutex<HubState>>,
}

impl Hub {
    pub async fn start() -> Self {
        let state = Arc::new(Mutex::new(HubState::default()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, state }
    }

    /// Adds files to a repository.
    pub fn add_files(&self, repo: &str, files: impl IntoIterator<Item = (String, Vec<u8>)>) {
        let mut state = self.state.lock().unwrap();
        state
            .repositories
            .entry(repo.into())
            .or_default()
            .extend(files);
    }

    /// Adds the files of a folder to a repository, recursively.
    pub fn add_folder(&self, repo: &str, folder: &Path) {
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(folder).unwrap().display().to_string();
                    self.add_files(repo, [(name, std::fs::read(&path).unwrap())]);
                }
            }
        }
    }

    pub fn require_token(&self, repo: &str, token: &str) {
        self.state
            .lock()
            .unwrap()
            .gated
            .insert(repo.into(), token.into());
    }

    pub fn set_fault(&self, file: &str, fault: Option<Fault>) {
        let faults = &mut self.state.lock().unwrap().faults;
        match fault {
            Some(fault) => faults.insert(file.into(), fault),
            None => faults.remove(file),
        };
    }

    /// Returns the requests for a file, in order.
    pub fn requests(&self, file: &str) -> Vec<SeenRequest> {
        let state = self.state.lock().unwrap();
        let of_file = state.seen.iter().filter(|seen| seen.path.ends_with(file));
        of_file.cloned().collect()
    }
}

async fn answer(State(state): State<Arc<Mutex<HubState>>>, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let header = |name| {
        let value = request.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let (range, authorization) = (header(header::RANGE), header(header::AUTHORIZATION));
    let mut state = state.lock().unwrap();
    state.seen.push(SeenRequest {
        path: path.clone(),
        range: range.clone(),
    });
    let (repo, file) = match path.strip_prefix("api/models/") {
        Some(rest) => (rest.trim_end_matches("/revision/main"), None),
        None => match path.split_once(&format!("/resolve/{COMMIT}/")) {
            Some((repo, file)) => (repo, Some(file)),
            None => return StatusCode::NOT_FOUND.into_response(),
        },
    };
    // As for a repository whose owner has a new name. Its files are requested under that name.
    if let Some(name) = repo.strip_prefix("former/") {
        return Redirect::temporary(&format!("/api/models/someone/{name}/revision/main"))
            .into_response();
    }
    if let Some(token) = state.gated.get(repo)
        && authorization != Some(format!("Bearer {token}"))
    {
        return (StatusCode::UNAUTHORIZED, [("x-error-code", "GatedRepo")]).into_response();
    }
    let Some(files) = state.repositories.get(repo).cloned() else {
        // Like Hugging Face's hub, this one does not reveal whether a private repository exists.
        return (StatusCode::UNAUTHORIZED, [("x-error-code", "RepoNotFound")]).into_response();
    };
    let Some(file) = file else {
        let siblings = files.iter().map(|(name, bytes)| {
            let large = bytes.len() > 100_000;
            let lfs =
                large.then(|| json!({"sha256": hex(&Sha256::digest(bytes)), "size": bytes.len()}));
            json!({"rfilename": name, "size": bytes.len(), "blobId": git_blob_id(bytes), "lfs": lfs})
        });
        let listing = json!({"id": repo, "sha": COMMIT, "siblings": siblings.collect::<Vec<_>>()});
        return axum::Json(listing).into_response();
    };
    let Some(bytes) = files.get(file) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let fault = state.faults.get(file).copied();
    match fault {
        Some(Fault::Break(0)) => drop(state.faults.remove(file)),
        Some(Fault::Break(n)) => drop(state.faults.insert(file.into(), Fault::Break(n - 1))),
        _ => {}
    }
    respond(bytes, range.as_deref(), fault)
}

/// Returns the git object id of a file. For a large file, a real hub would return the id of its LFS pointer.
pub fn git_blob_id(bytes: &[u8]) -> String {
    let named = [format!("blob {}\0", bytes.len()).as_bytes(), bytes].concat();
    hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, &named).as_ref())
}

/// Interrupts the transfer after a pause: an immediate reset would discard bytes that were already sent.
async fn broken() -> std::io::Result<Vec<u8>> {
    let wait = || std::thread::sleep(std::time::Duration::from_millis(200));
    tokio::task::spawn_blocking(wait).await.unwrap();
    Err(std::io::Error::other("interrupted by the test"))
}

fn respond(bytes: &[u8], range: Option<&str>, fault: Option<Fault>) -> Response {
    let from = range.map_or(0, |range| {
        let start = range
            .strip_prefix("bytes=")
            .unwrap()
            .strip_suffix('-')
            .unwrap();
        start.parse().unwrap()
    });
    let total = bytes.len();
    let mut rest = bytes[from..].to_vec();
    let length = rest.len();
    let body = match fault {
        None | Some(Fault::Break(0)) => Body::from(rest),
        Some(Fault::Damage) => {
            rest[length / 2] ^= 1;
            Body::from(rest)
        }
        Some(Fault::Break(_)) => {
            rest.truncate(length / 2);
            Body::from_stream(stream::iter([Ok(rest)]).chain(stream::once(broken())))
        }
    };
    let mut response = Response::builder().header(header::CONTENT_LENGTH, length);
    if range.is_some() {
        response = response.status(StatusCode::PARTIAL_CONTENT).header(
            header::CONTENT_RANGE,
            format!("bytes {from}-{}/{total}", total - 1),
        );
    }
    response.body(body).unwrap()
}
