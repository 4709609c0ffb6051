//! Parses and validates the hub's list of a repository's files, and selects the files to download.
//!
//! The list is untrusted input. A name becomes a path only if it is inside the folder and does not collide with a
//! file that topicmill writes there.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use sha1::{Digest, Sha1};

use super::{PullError, Wanted, length};
use topicmill_score::folder::bounds::{self, MAX_FILE};
use topicmill_score::folder::hashes::{digest_file, file_hash};
use topicmill_score::folder::manifest::{Graph, Manifest};
use topicmill_score::folder::{MANIFEST_FILE, ModelError, graph_names};
use topicmill_score::hex;

/// Maximum number of files in a list; the largest repositories with graphs have a few hundred.
const MAX_ENTRIES: usize = 20_000;
/// Maximum number of files to download: enough for eight graphs of 64 GiB, each in external files of 2 GiB.
const MAX_FETCHED: usize = 256;
/// Maximum number of bytes in total: more than in any model that runs on a current machine.
const MAX_BYTES: u64 = 4 * MAX_FILE;
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
    pub size: Option<u64>,
    #[serde(rename = "blobId")]
    blob: Option<String>,
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
    repo: String,
}

impl Sibling {
    /// Returns true if a local file matches the list, by size and hash if they are listed. The hub lists SHA-256 for
    /// LFS files, and the git blob id for others.
    pub fn matches(&self, path: &Path) -> Result<bool, ModelError> {
        if self.size.is_some_and(|size| size != length(path)) {
            return Ok(false);
        }
        if let Some(lfs) = &self.lfs {
            return Ok(file_hash(path)? == lfs.sha256);
        }
        match &self.blob {
            Some(blob) => Ok(git_hash(path)? == *blob),
            None => Ok(true),
        }
    }

    /// Returns true if the list contains a hash for the file.
    pub fn has_hash(&self) -> bool {
        self.lfs.is_some() || self.blob.is_some()
    }

    /// Returns the maximum number of bytes to download.
    pub fn limit(&self) -> u64 {
        self.size.unwrap_or_else(|| bounds::max_bytes(&self.name))
    }
}

/// Returns the git blob id of a file: the SHA-1 of its length and content.
fn git_hash(path: &Path) -> Result<String, ModelError> {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", length(path)));
    Ok(hex(&digest_file(path, hasher)?))
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
        if listing.siblings.len() > MAX_ENTRIES {
            let files = listing.siblings.len();
            let detail = format!("it has {files} files, and no model has more than {MAX_ENTRIES}");
            return Err(wrong(&detail));
        }
        Ok(listing)
    }

    /// Returns the names of all files.
    pub fn names(&self) -> Vec<&str> {
        self.siblings.iter().map(|file| &*file.name).collect()
    }

    /// Returns a required file.
    pub fn file(&self, name: &str) -> Result<&Sibling, PullError> {
        let repo = &self.repo;
        self.find(name).ok_or_else(|| {
            PullError::Unfit(format!(
                "the repository `{repo}` has no `{name}`: choose a repository with an ONNX export, or export the \
                 model yourself"
            ))
        })
    }

    /// Returns an error if the repository has no graph.
    pub fn has_graph(&self) -> Result<(), PullError> {
        if self.names().into_iter().any(is_graph) {
            return Ok(());
        }
        Err(PullError::Unfit(format!(
            "the repository `{}` has no ONNX graph: fetch its weights with `hf download` and make the graphs with \
             tools/model.py",
            self.repo
        )))
    }

    fn find(&self, name: &str) -> Option<&Sibling> {
        self.siblings.iter().find(|file| file.name == name)
    }

    /// Returns the files that every model needs in addition to its graphs.
    pub fn small_files(&self) -> Result<Vec<Sibling>, PullError> {
        for name in REQUIRED {
            self.file(name)?;
        }
        let names = REQUIRED.iter().chain(OPTIONAL);
        Ok(names.filter_map(|name| self.find(name)).cloned().collect())
    }

    /// Selects the graphs and their external weights. Leaves out the files in `small`, which are downloaded anyway.
    pub fn graph_files(
        &self,
        wanted: &Wanted,
        manifest: Option<&Manifest>,
        small: &[Sibling],
    ) -> Result<Vec<Sibling>, PullError> {
        let chosen = choose_graphs(&self.names(), wanted, manifest)?;
        let chosen: BTreeSet<&str> = chosen.iter().map(String::as_str).collect();
        let is_small = |name: &str| small.iter().any(|file| file.name == name);
        let files = self.siblings.iter();
        let files = files.filter(|file| chosen.contains(&*file.name) && !is_small(&file.name));
        Ok(files.cloned().collect())
    }

    /// Checks that files may be downloaded into one folder: none may be outside it, collide with another file, or
    /// exceed its size limit.
    pub fn check(&self, files: &[Sibling]) -> Result<(), PullError> {
        let wrong = |detail: String| Err(PullError::listing(&self.repo, &detail));
        if files.len() > MAX_FETCHED {
            return wrong(format!(
                "{} files would be downloaded, more than the maximum of {MAX_FETCHED}",
                files.len()
            ));
        }
        let mut seen = BTreeSet::new();
        let mut total: u64 = 0;
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
            let (size, limit) = (file.size.unwrap_or(0), bounds::max_bytes(name));
            if size > limit {
                return wrong(format!(
                    "its `{name}` has {size} bytes, more than the maximum of {limit}"
                ));
            }
            total = total.saturating_add(size);
        }
        if total > MAX_BYTES {
            return wrong(format!("its files have {total} bytes"));
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
        return Err(PullError::Unfit(format!(
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
            size: Some(size),
            blob: None,
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
    fn colliding_too_many_or_too_large_files_are_rejected() {
        let refused = |files: &[Sibling]| {
            let listing = Listing::read(br#"{"sha": "a", "siblings": []}"#, "a/b").unwrap();
            listing.check(files).unwrap_err().to_string()
        };
        let twice = refused(&[file("model.onnx", 1), file("Model.ONNX", 1)]);
        assert!(twice.contains("`Model.ONNX` twice"), "{twice}");
        let many: Vec<Sibling> = (0..257).map(|n| file(&format!("m_{n}"), 1)).collect();
        assert!(refused(&many).contains("257 files"));
        for name in ["config.json", "model.onnx"] {
            assert!(refused(&[file(name, u64::MAX)]).contains(name));
        }
    }

    #[test]
    fn commits_and_list_lengths_are_validated() {
        let read = |sha: &str, files: &str| {
            let text = format!("{{\"sha\":\"{sha}\",\"siblings\":[{files}]}}");
            Listing::read(text.as_bytes(), "a/b").map(|_| ())
        };
        assert!(read("0a1", "").is_ok());
        for sha in ["", "..", "a/b", &"a".repeat(65)] {
            assert!(read(sha, "").is_err(), "{sha}");
        }
        let files = r#"{"rfilename":"a"},"#.repeat(20_001);
        let error = read("a", files.trim_end_matches(','));
        assert!(error.unwrap_err().to_string().contains("20001 files"));
    }
}
