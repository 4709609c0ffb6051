//! The hub's list of a repository's files: what of it is fetched, and what of it is believed.
//!
//! A list is the word of whoever runs the hub, so a name of it becomes a path only where it can lead nowhere but into
//! the folder that is made, and hits no file that topicmill itself writes there.

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

/// The largest repositories with graphs have some hundred files.
const MAX_ENTRIES: usize = 20_000;
/// A graph of 64 GiB in external pieces of 2 GiB, eight times over.
const MAX_FETCHED: usize = 256;
/// More than any model has that a machine of today runs.
const MAX_BYTES: u64 = 4 * MAX_FILE;
/// Most file systems take 255 bytes; `.part` is added while a file comes.
const MAX_NAME: usize = 200;
/// Files that every model has.
const REQUIRED: &[&str] = &["config.json", "tokenizer.json"];
/// Files that are taken where they are there.
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

/// A file of the hub's list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Sibling {
    #[serde(rename = "rfilename")]
    pub name: String,
    pub size: Option<u64>,
    #[serde(rename = "blobId")]
    blob: Option<String>,
    lfs: Option<Lfs>,
}

/// What the hub tells of a large file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Lfs {
    sha256: String,
}

/// The list.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    /// The commit.
    pub sha: String,
    pub siblings: Vec<Sibling>,
    /// The repository.
    #[serde(skip)]
    repo: String,
}

impl Sibling {
    /// Whether a file is the one of the list: by its size and its hash, as far as the list tells them. Of a large file
    /// the hub tells the SHA-256, of any other what git calls it by.
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

    /// Whether the list tells what is in it.
    pub fn has_hash(&self) -> bool {
        self.lfs.is_some() || self.blob.is_some()
    }

    /// How many bytes are taken of it at most.
    pub fn limit(&self) -> u64 {
        self.size.unwrap_or_else(|| bounds::max_bytes(&self.name))
    }
}

/// The name that git gives a file: the SHA-1 of its length and its content.
fn git_hash(path: &Path) -> Result<String, ModelError> {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", length(path)));
    Ok(hex(&digest_file(path, hasher)?))
}

impl Listing {
    /// The list that came, where it can be one.
    pub fn read(bytes: &[u8], repo: &str) -> Result<Self, PullError> {
        let wrong = |detail: &str| PullError::listing(repo, detail);
        let mut listing: Self =
            serde_json::from_slice(bytes).map_err(|error| wrong(&error.to_string()))?;
        repo.clone_into(&mut listing.repo);
        let commit = &listing.sha;
        // It becomes part of a path and of an address.
        if !(1..=64).contains(&commit.len()) || !commit.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(wrong("its commit is none"));
        }
        if listing.siblings.len() > MAX_ENTRIES {
            let files = listing.siblings.len();
            let detail = format!("it has {files} files, and no model has over {MAX_ENTRIES}");
            return Err(wrong(&detail));
        }
        Ok(listing)
    }

    /// Names of all files.
    pub fn names(&self) -> Vec<&str> {
        self.siblings.iter().map(|file| &*file.name).collect()
    }

    /// A file that a model cannot do without.
    pub fn file(&self, name: &str) -> Result<&Sibling, PullError> {
        let repo = &self.repo;
        self.find(name).ok_or_else(|| {
            PullError::Unfit(format!(
                "the repository `{repo}` has no `{name}`: take one with an ONNX export, or export it yourself"
            ))
        })
    }

    /// An error where the repository has weights, but no graph.
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

    /// The files that every model needs besides its graphs.
    pub fn small_files(&self) -> Result<Vec<Sibling>, PullError> {
        for name in REQUIRED {
            self.file(name)?;
        }
        let names = REQUIRED.iter().chain(OPTIONAL);
        Ok(names.filter_map(|name| self.find(name)).cloned().collect())
    }

    /// The graphs to fetch, and the weights that lie beside them; `small` are fetched anyway.
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

    /// Whether these files may be fetched into one folder: none may lead out of it, hide behind another, or be larger
    /// than what it is there for.
    pub fn check(&self, files: &[Sibling]) -> Result<(), PullError> {
        let wrong = |detail: String| Err(PullError::listing(&self.repo, &detail));
        if files.len() > MAX_FETCHED {
            return wrong(format!("{} files belong to the graph", files.len()));
        }
        let mut seen = BTreeSet::new();
        let mut total: u64 = 0;
        for file in files {
            let name = &file.name;
            if !is_plain(name) {
                // `{:?}`: what it does to a terminal it must not do to ours.
                return wrong(format!("it names a file {name:?}"));
            }
            // On many machines these are one file.
            if !seen.insert(name.to_lowercase()) {
                return wrong(format!("it has `{name}` twice"));
            }
            let (told, limit) = (file.size.unwrap_or(0), bounds::max_bytes(name));
            if told > limit {
                return wrong(format!(
                    "its `{name}` has {told} bytes, and {limit} is the most"
                ));
            }
            total = total.saturating_add(told);
        }
        if total > MAX_BYTES {
            return wrong(format!("its files have {total} bytes"));
        }
        Ok(())
    }
}

/// Whether a name is that of a file in the folder or in its folder `onnx`, on any system, and is none of ours.
fn is_plain(name: &str) -> bool {
    let file = name.strip_prefix("onnx/").unwrap_or(name);
    let letter = |b: u8| b.is_ascii_alphanumeric() || b"-_.+=@,()".contains(&b);
    let lower = file.to_lowercase();
    !file.is_empty()
        && file.len() <= MAX_NAME
        && file.bytes().all(letter)
        // `..`, and what is hidden: `.hashes.toml` is believed when a model is loaded.
        && !file.starts_with('.')
        && !file.ends_with('.')
        // What is still to become a file.
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
            // Nobody asked for a precision, and there is no choice.
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
        // Weights over 2 GiB lie beside their graph, because protobuf takes no more in one message. Exporters use these
        // two names.
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

/// A graph where a model folder has it: at the top or in `onnx`, under a name that leads nowhere else.
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
    fn a_name_leads_nowhere_else() {
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
    fn files_that_hide_each_other_or_are_absurdly_many_or_large_are_refused() {
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
    fn a_commit_leads_nowhere_else_and_a_list_ends() {
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
