//! Parses and validates the hub's list of a repository's files, and selects the files to download.
//!
//! The list is untrusted input.

mod names;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use serde::Deserialize;

pub(super) use self::names::is_repository;
use self::names::{is_graph, is_plain};
use super::{PullError, length};
use topicmill_core::{FailureKind, hex};
use topicmill_score::folder::bounds;
use topicmill_score::folder::hashes::file_hash;
use topicmill_score::folder::manifest::{Graph, Manifest};
use topicmill_score::folder::{MANIFEST_FILE, is_external_data, select_graph};

/// Files that every model needs.
const REQUIRED: &[&str] = &["config.json", "tokenizer.json"];
/// Files that are downloaded if they exist.
const OPTIONAL: &[&str] = &[
    "tokenizer_config.json",
    "special_tokens_map.json",
    "label_vectors.json",
    MANIFEST_FILE,
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "NOTICE",
];

/// A file on the hub's list.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Sibling {
    #[serde(rename = "rfilename")]
    pub name: String,
    pub size: u64,
    #[serde(rename = "blobId")]
    blob: String,
    lfs: Option<Lfs>,
}

/// The hub's metadata for a file in Git LFS.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Lfs {
    sha256: String,
}

/// The hub's list of files, as received.
#[derive(Debug, Deserialize)]
struct WireListing {
    id: Option<String>,
    sha: String,
    siblings: Vec<Sibling>,
}

/// The hub's list of a repository's files, at one commit.
#[derive(Debug)]
pub(super) struct Listing {
    /// The repository, under its present name.
    pub repo: String,
    /// The commit hash.
    pub sha: String,
    pub siblings: Vec<Sibling>,
}

impl Sibling {
    /// Returns true if a local file matches the list by size and hash. The hub lists SHA-256 for LFS files, and the git
    /// blob id for others.
    pub fn matches(&self, path: &Path) -> Result<bool, PullError> {
        let hash_matches = || -> Result<_, PullError> {
            match &self.lfs {
                Some(lfs) => Ok(file_hash(path)? == lfs.sha256),
                None => Ok(git_hash(path).map_err(PullError::write(path))? == self.blob),
            }
        };
        Ok(self.size == length(path) && hash_matches()?)
    }
}

impl Listing {
    /// Parses a list and checks its bounds.
    pub fn read(bytes: &[u8], repo: &str) -> Result<Self, PullError> {
        let wrong = |detail: &str| PullError::listing(repo, detail);
        let WireListing { id, sha, siblings } =
            serde_json::from_slice(bytes).map_err(|error| wrong(&error.to_string()))?;
        // The commit becomes part of a path and of a URL.
        if !(1..=64).contains(&sha.len()) || !sha.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(wrong("its commit is invalid"));
        }
        // The hub redirects requests for the list of a renamed repository.
        let repo = match id {
            Some(id) if id != repo && is_repository(&id) => {
                tracing::info!("the hub has `{repo}` as `{id}`");
                id
            }
            _ => repo.to_owned(),
        };
        Ok(Self {
            repo,
            sha,
            siblings,
        })
    }

    /// Returns a required file.
    pub fn file(&self, name: &str) -> Result<&Sibling, PullError> {
        let repo = &self.repo;
        self.find(name).ok_or_else(|| {
            unusable(format!(
                "the repository `{repo}` has no `{name}`: choose a repository with an ONNX export, or export the \
                 model yourself"
            ))
        })
    }

    fn find(&self, name: &str) -> Option<&Sibling> {
        self.siblings.iter().find(|file| file.name == name)
    }

    /// Returns the files that every model needs in addition to its graphs, or an error if there are no graphs.
    pub fn files_besides_graphs(&self) -> Result<Vec<&Sibling>, PullError> {
        for name in REQUIRED {
            self.file(name)?;
        }
        if !self.siblings.iter().any(|file| is_graph(&file.name)) {
            return Err(unusable(format!(
                "the repository `{}` has no ONNX graph: fetch its weights with `hf download` and make the graphs with \
                 tools/model.py",
                self.repo
            )));
        }
        let names = REQUIRED.iter().chain(OPTIONAL);
        Ok(names.filter_map(|name| self.find(name)).collect())
    }

    /// Returns the graphs of a precision with their external weights, or an error if there are none. `all` selects all
    /// graphs; `None` selects the float32 graph, or the only one if there is no manifest.
    pub fn graph_files(
        &self,
        precision: Option<&str>,
        manifest: Option<&Manifest>,
    ) -> Result<Vec<&Sibling>, PullError> {
        let names = self.siblings.iter().map(|file| file.name.as_str());
        let graphs: Vec<&str> = names.filter(|name| is_graph(name)).collect();
        let (name, is_all) = (precision.unwrap_or("fp32"), precision == Some("all"));
        let chosen: Vec<&str> = match manifest {
            Some(manifest) => {
                let graphs = manifest.graphs.values();
                let chosen = graphs.filter(|graph| is_all || graph.precision == name);
                chosen.flat_map(Graph::files).collect()
            }
            None if is_all => graphs.clone(),
            None => select_graph(&graphs, precision).into_iter().collect(),
        };
        // A manifest names the external weights; without one, their names begin with that of the graph.
        let is_chosen = |file: &&Sibling| {
            let has_data = |graph: &str| manifest.is_none() && is_external_data(&file.name, graph);
            chosen
                .iter()
                .any(|name| file.name == *name || has_data(name))
        };
        let files: Vec<&Sibling> = self.siblings.iter().filter(is_chosen).collect();
        if files.is_empty() {
            return Err(unusable(format!(
                "the repository `{}` has no graph of precision `{name}` (there is {}): choose with --precision",
                self.repo,
                graphs.join(", ")
            )));
        }
        Ok(files)
    }

    /// Checks that files may be downloaded into one folder: none may be outside it, collide with another file, or
    /// exceed its size limit. Returns their total size.
    pub fn check(&self, files: &[&Sibling]) -> Result<u64, PullError> {
        let mut seen = BTreeSet::new();
        for Sibling { name, size, .. } in files {
            let limit = bounds::max_bytes(name);
            let detail = if !is_plain(name) {
                // `{:?}` escapes control characters.
                format!("it names a file {name:?}")
            } else if !seen.insert(name.to_lowercase()) {
                // Names that differ only in case are the same file on some file systems.
                format!("it lists `{name}` twice")
            } else if *size > limit {
                format!("its `{name}` has {size} bytes, more than the maximum of {limit}")
            } else {
                continue;
            };
            return Err(PullError::listing(&self.repo, &detail));
        }
        Ok(files.iter().map(|file| file.size).sum())
    }
}

/// Returns the git blob id of a file: the SHA-1 of its length and content.
fn git_hash(path: &Path) -> io::Result<String> {
    let mut hasher = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    hasher.update(format!("blob {}\0", length(path)).as_bytes());
    let (mut file, mut buffer) = (File::open(path)?, vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(hasher.finish().as_ref())),
            read => hasher.update(&buffer[..read]),
        }
    }
}

/// Returns the error for a repository without a model that topicmill can use.
fn unusable(text: String) -> PullError {
    PullError::Message(FailureKind::Model, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, size: u64) -> Sibling {
        Sibling {
            name: name.to_owned(),
            size,
            blob: String::new(),
            lfs: None,
        }
    }

    #[test]
    fn colliding_or_too_large_files_are_rejected() {
        let refused = |files: &[&Sibling]| {
            let listing = Listing::read(br#"{"sha": "a", "siblings": []}"#, "a/b").unwrap();
            listing.check(files).unwrap_err().to_string()
        };
        let twice = refused(&[&file("model.onnx", 1), &file("Model.ONNX", 1)]);
        assert!(twice.contains("`Model.ONNX` twice"), "{twice}");
        for name in ["config.json", "model.onnx"] {
            assert!(refused(&[&file(name, u64::MAX)]).contains(name));
        }
    }

    #[test]
    fn commits_are_validated() {
        let read = |sha: &str| {
            let text = format!("{{\"sha\":\"{sha}\",\"siblings\":[]}}");
            Listing::read(text.as_bytes(), "a/b").map(|_| ())
        };
        assert!(read("0a1").is_ok());
        for sha in ["", "..", "a/b", &"a".repeat(65)] {
            assert!(read(sha).is_err(), "{sha}");
        }
    }
}
