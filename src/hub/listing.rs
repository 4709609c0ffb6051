//! Parses and validates the hub's list of a repository's files, and selects the files to download.
//!
//! The list is untrusted input. A name becomes a path only if it is inside the folder and does not collide with a
//! file that topicmill writes there.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use serde::Deserialize;

use super::{PullError, Wanted, length};
use topicmill_core::{FailureKind, hex};
use topicmill_score::folder::bounds;
use topicmill_score::folder::hashes::file_hash;
use topicmill_score::folder::manifest::{Graph, Manifest};
use topicmill_score::folder::{MANIFEST_FILE, graph_names};

/// Maximum length of a file name: most file systems allow 255 bytes, and `.part` is added during the download.
const MAX_NAME: usize = 200;
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
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Sibling {
    #[serde(rename = "rfilename")]
    pub name: String,
    pub size: u64,
    #[serde(rename = "blobId")]
    blob: String,
    lfs: Option<Lfs>,
}

/// The hub's metadata for a file in Git LFS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Lfs {
    sha256: String,
}

/// The hub's list of files.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    /// The commit hash.
    pub sha: String,
    pub siblings: Vec<Sibling>,
    /// The repository.
    #[serde(skip)]
    pub repo: String,
}

impl Sibling {
    /// Returns true if a local file matches the list by size and hash. The hub lists SHA-256 for LFS files, and the git
    /// blob id for others.
    pub fn matches(&self, path: &Path) -> Result<bool, PullError> {
        if self.size != length(path) {
            return Ok(false);
        }
        if let Some(lfs) = &self.lfs {
            return Ok(file_hash(path)? == lfs.sha256);
        }
        Ok(git_hash(path).map_err(PullError::write_error(path))? == self.blob)
    }
}

/// Returns the git blob id of a file: the SHA-1 of its length and content.
fn git_hash(path: &Path) -> io::Result<String> {
    let mut hasher = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    hasher.update(format!("blob {}\0", length(path)).as_bytes());
    let mut file = BufReader::new(File::open(path)?);
    loop {
        let bytes = file.fill_buf()?;
        if bytes.is_empty() {
            return Ok(hex(hasher.finish().as_ref()));
        }
        hasher.update(bytes);
        let read = bytes.len();
        file.consume(read);
    }
}

impl Listing {
    /// Parses a list and checks its bounds.
    pub fn read(bytes: &[u8], repo: &str) -> Result<Self, PullError> {
        let wrong = |detail: &str| PullError::listing(repo, detail);
        let mut listing: Self =
            serde_json::from_slice(bytes).map_err(|error| wrong(&error.to_string()))?;
        repo.clone_into(&mut listing.repo);
        let commit = &listing.sha;
        // The commit becomes part of a path and of a URL.
        if !(1..=64).contains(&commit.len()) || !commit.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(wrong("its commit is invalid"));
        }
        Ok(listing)
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
    pub fn small_files(&self) -> Result<Vec<Sibling>, PullError> {
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
        Ok(names.filter_map(|name| self.find(name)).cloned().collect())
    }

    /// Selects the graphs and their external weights.
    pub fn graph_files(
        &self,
        wanted: &Wanted,
        manifest: Option<&Manifest>,
    ) -> Result<Vec<Sibling>, PullError> {
        let names: Vec<&str> = self.siblings.iter().map(|file| &*file.name).collect();
        let chosen = choose_graphs(&names, wanted, manifest)?;
        let files = self
            .siblings
            .iter()
            .filter(|file| chosen.contains(&file.name));
        Ok(files.cloned().collect())
    }

    /// Checks that files may be downloaded into one folder: none may be outside it, collide with another file, or
    /// exceed its size limit.
    pub fn check(&self, files: &[Sibling]) -> Result<(), PullError> {
        let wrong = |detail: String| Err(PullError::listing(&self.repo, &detail));
        let mut seen = BTreeSet::new();
        for file in files {
            let name = &file.name;
            if !is_plain(name) {
                // `{:?}` escapes control characters.
                return wrong(format!("it names a file {name:?}"));
            }
            // Names that differ only in case are the same file on some file systems.
            if !seen.insert(name.to_lowercase()) {
                return wrong(format!("it lists `{name}` twice"));
            }
            let (size, limit) = (file.size, bounds::max_bytes(name));
            if size > limit {
                return wrong(format!(
                    "its `{name}` has {size} bytes, more than the maximum of {limit}"
                ));
            }
        }
        Ok(())
    }
}

/// Returns true if a name is a plain file name in the folder or its `onnx` subfolder, on every operating system, and is
/// not reserved by topicmill.
fn is_plain(name: &str) -> bool {
    let file = name.strip_prefix("onnx/").unwrap_or(name);
    let letter = |b: u8| b.is_ascii_alphanumeric() || b"-_.+=@,()".contains(&b);
    let lower = file.to_lowercase();
    !file.is_empty()
        && file.len() <= MAX_NAME
        && file.bytes().all(letter)
        // Excludes `..` and hidden files: `.hashes.toml` is trusted when a model is loaded.
        && !file.starts_with('.')
        && !file.ends_with('.')
        // This suffix is reserved for unfinished downloads.
        && Path::new(&lower).extension().is_none_or(|e| e != "part")
        && lower != "onnx"
}

/// Returns the error for a repository without a model that topicmill can use.
fn unusable(text: String) -> PullError {
    PullError::Message(FailureKind::Model, text)
}

fn choose_graphs(
    names: &[&str],
    wanted: &Wanted,
    manifest: Option<&Manifest>,
) -> Result<Vec<String>, PullError> {
    let (all, precision) = match wanted.precision.as_deref() {
        Some("all") => (true, "all"),
        precision => (false, precision.unwrap_or("fp32")),
    };
    let graphs = names.iter().copied().filter(|name| is_graph(name));
    let graphs: Vec<&str> = graphs.collect();
    let files: Vec<&str> = if let Some(manifest) = manifest {
        let of_precision = manifest.graphs.values();
        let of_precision = of_precision.filter(|graph| all || graph.precision == precision);
        of_precision.flat_map(Graph::files).collect()
    } else {
        let chosen: Vec<&str> = match graphs.as_slice() {
            graphs if all => graphs.to_vec(),
            // Without a requested precision, the only graph is used.
            [only] if wanted.precision.is_none() => vec![only],
            graphs => {
                let wanted = graph_names(precision);
                let paths = ["", "onnx/"].iter().flat_map(|folder| {
                    let wanted = wanted.iter();
                    wanted.map(move |name| format!("{folder}{name}"))
                });
                let mut found =
                    paths.filter_map(|path| graphs.iter().find(|graph| **graph == path));
                found.next().copied().into_iter().collect()
            }
        };
        // Protobuf messages are limited, so weights over 2 GiB are in external files next to their graph. Exporters use
        // these two names.
        let is_of =
            |rest: &str| rest.is_empty() || rest.starts_with(".data") || rest.starts_with("_data");
        let belongs = |name: &&str| {
            let mut rests = chosen.iter().filter_map(|graph| name.strip_prefix(graph));
            rests.any(is_of)
        };
        names.iter().copied().filter(belongs).collect()
    };
    if files.is_empty() {
        return Err(unusable(format!(
            "the repository `{}` has no graph of precision `{precision}` (there is {}): choose with --precision",
            wanted.repo,
            graphs.join(", ")
        )));
    }
    Ok(files.into_iter().map(str::to_owned).collect())
}

/// Returns true if a name is a graph in the folder or in its `onnx` subfolder.
fn is_graph(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e == "onnx") && is_plain(name)
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
    fn file_names_cannot_traverse_paths() {
        let long = "a".repeat(201);
        for name in ["config.json", "LICENSE", "onnx/model_q4f16.onnx_data_12"] {
            assert!(is_plain(name), "{name}");
        }
        let paths = ["", ".", "..", "/x", "../x", "onnx/../x", "onnx/", "onnx//x"];
        let others = ["a/x", "onnx\\x", "c:x", "x\0", "x\n", "x\u{1b}", "x ", "x."];
        let encoded = ["caf\u{e9}", "a%2fb", "a?b", "a#b", &long, "onnx", "ONNX"];
        let ours = [".hashes.toml", "onnx/.x", "x.part"];
        for name in [&paths[..], &others, &encoded, &ours].concat() {
            assert!(!is_plain(name), "{name:?}");
        }
        assert!(is_graph("onnx/model.onnx") && !is_graph("../x.onnx") && !is_graph("x.bin"));
    }

    #[test]
    fn colliding_or_too_large_files_are_rejected() {
        let refused = |files: &[Sibling]| {
            let listing = Listing::read(br#"{"sha": "a", "siblings": []}"#, "a/b").unwrap();
            listing.check(files).unwrap_err().to_string()
        };
        let twice = refused(&[file("model.onnx", 1), file("Model.ONNX", 1)]);
        assert!(twice.contains("`Model.ONNX` twice"), "{twice}");
        for name in ["config.json", "model.onnx"] {
            assert!(refused(&[file(name, u64::MAX)]).contains(name));
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
