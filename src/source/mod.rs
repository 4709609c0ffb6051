//! Where posts come from: Reddit's API, the sample Reddit that ships with the program, an archive, and files.
//!
//! Every source answers with the same two things: [`Post`]s, and a [`Rejected`] for each thing that is no
//! post or not a whole one, so that one odd thing never costs its page or its file. Nothing here knows
//! where posts go.
//!
//! - [`reddit`]: the API's client: one token, a quota, retries, and a typed outcome for every refusal.
//! - [`arctic_shift`]: an archive of Reddit that needs no key, read page by page through time.
//! - [`dump`]: files given to `import`, block by block; [`lines`] and [`table`] read their rows, [`filter`] tells
//!   which are wanted, `sparse` parses what a post is made of.
//! - [`sample`]: a small Reddit on the loopback interface, so that everything can be tried without a key.

use serde_json::{Value, json};

use crate::domain::{Outcome, Post, SourceKind};

use self::arctic_shift::{ArcticShift, ArcticShiftError};
use self::reddit::{Reddit, RedditError, Traffic};

pub mod arctic_shift;
pub mod dump;
pub mod filter;
pub mod lines;
pub mod reddit;
pub mod sample;
mod sparse;
pub mod table;

/// What the topics of a pipeline are collected from.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one, and it is passed by reference"
)]
pub enum Source {
    /// Reddit itself, or the sample Reddit.
    Reddit(Reddit),
    /// The archive.
    ArcticShift(ArcticShift),
}

impl Source {
    /// What its posts are marked with.
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::Reddit(reddit) => reddit.source(),
            Self::ArcticShift(_) => SourceKind::ArcticShift,
        }
    }

    /// What it has done so far.
    pub fn traffic(&self) -> Traffic {
        match self {
            Self::Reddit(reddit) => reddit.traffic(),
            Self::ArcticShift(archive) => archive.traffic(),
        }
    }

    /// The same for the run's record: its name there, and the counts.
    pub fn record(&self) -> (&'static str, Value) {
        let mut counts = json!(self.traffic());
        match self {
            Self::Reddit(_) => ("reddit", counts),
            Self::ArcticShift(archive) => {
                counts["smaller"] = json!(archive.smaller());
                ("arctic_shift", counts)
            }
        }
    }
}

/// Why a source could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Reddit.
    #[error(transparent)]
    Reddit(#[from] RedditError),
    /// The archive.
    #[error(transparent)]
    ArcticShift(#[from] ArcticShiftError),
}

impl SourceError {
    /// The word for it in a topic's report.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Reddit(error) => error.outcome(),
            Self::ArcticShift(error) => error.outcome(),
        }
    }

    /// Whether any other topic would meet the same, so that nothing is gained by asking for it.
    pub fn is_of_every_topic(&self) -> bool {
        match self {
            Self::Reddit(error) => error.is_of_every_topic(),
            Self::ArcticShift(error) => error.is_of_every_topic(),
        }
    }
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListingPage {
    /// Its posts, in the listing's order.
    pub posts: Vec<Post>,
    /// Its children that are no post, or not a whole one.
    pub rejected: Vec<Rejected>,
    /// Fullname to ask the next page with; `None` at the end.
    pub after: Option<String>,
}

/// Something that could not be taken as a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Where it stood, counted from 1: `child 7` of a listing, `line 12` of a file.
    pub at: String,
    /// Why, as a fragment: `a comment, not a post`. Holds nothing of the post's text.
    pub reason: String,
}
