//! Why a model was not fetched, and what to do about it.

use std::io;
use std::path::PathBuf;

use topicmill_score::folder::ModelError;

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
    /// The hub sends next to nothing.
    #[error(
        "fetch `{0}`: it comes slower than 16 KiB a second; give the same command again to go on, or set HF_ENDPOINT to another mirror"
    )]
    Slow(String),
    /// What came is not what the hub lists.
    #[error(
        "`{0}` did not arrive as the hub lists it, and was deleted; give the same command again"
    )]
    Damaged(String),
    /// A list that no honest hub has.
    #[error(
        "use the hub's list of `{repo}`: {detail}; nothing of it was fetched, and this repository or this hub is better left alone"
    )]
    Listing {
        /// The repository.
        repo: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A redirect that is not followed.
    #[error("fetch `{what}`: the hub sends us elsewhere, and {detail}; check HF_ENDPOINT")]
    Redirect {
        /// File or list.
        what: String,
        /// Where it leads.
        detail: String,
    },
    /// `HF_ENDPOINT` is no address; it is not shown, for it may hold a password.
    #[error("use HF_ENDPOINT: it is no address of a hub; write it as `https://huggingface.co`")]
    Endpoint,
    /// The token cannot be sent.
    #[error(
        "use HF_TOKEN, or the token in HF_HOME: it has characters that no token has; copy it again"
    )]
    Token,
    /// Something that is no file of ours lies where one is to be written.
    #[error("write `{0}`: it is a link or no file; remove it, and give the same command again")]
    Link(PathBuf),
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
