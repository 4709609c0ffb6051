//! Pipeline files: what to collect and how to label it.
//!
//! Reads a file and returns topics, a label set and schedules, or all mistakes in the file with their positions.

mod mistakes;
mod parse;
mod schedules;
mod section;
mod topics;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use topicmill_score::LabelSet;

use self::topics::Defaults;
use crate::config::toml_text::{self, ReadTextError};
use crate::schedule::Entry;
use topicmill_core::{Listing, Topic};

pub use self::mistakes::{Mistake, Mistakes};
pub use self::parse::background;
pub use topicmill_score::background::REDDIT;
pub use topicmill_score::slug;

/// The built-in pipeline.
pub const SIXTEEN_TOPICS: &str = include_str!("../pipelines/sixteen-topics.toml");

/// Reasons why a pipeline file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// It cannot be read: the error, and what to do.
    #[error("cannot read the pipeline file `{0}`: {1}")]
    Read(PathBuf, String),
    /// It is not TOML, or has invalid keys or values.
    #[error("pipeline file `{0}`{1}")]
    Mistakes(PathBuf, Mistakes),
    /// Topics that should be collected have no subreddits.
    #[error(
        "cannot collect {}: no subreddits are named in pipeline `{}`; add `subreddits = [\"climate\"]` to a [[topic]]",
        .1.join(", "), .0
    )]
    NoSubreddits(String, Vec<String>),
    /// A requested topic is not in the file; also lists the topics in the file.
    #[error("the pipeline has no topic `{0}`; it has {1}")]
    NoTopic(String, String),
}

/// Reads the text of a pipeline file.
///
/// # Errors
/// [`PipelineError::Read`].
pub fn read_text(path: &Path) -> Result<String, PipelineError> {
    let text = match toml_text::read(path) {
        Ok(text) if text.trim().is_empty() => Err(
            "it is empty; write `labels = [\"climate change\", \"gaming\"]`, or see `topicmill labels new`".to_owned(),
        ),
        Ok(text) => Ok(text),
        Err(ReadTextError::Read(error)) if error.kind() == ErrorKind::NotFound => Err(format!(
            "{error}; use the path of a file like pipelines/sixteen-topics.toml, or write one with `topicmill labels \
             new`"
        )),
        Err(error) => Err(error.to_string()),
    };
    text.map_err(|why| PipelineError::Read(path.to_owned(), why))
}

/// The content of a pipeline file.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// Its name.
    pub name: String,
    /// The topics to collect; a topic without subreddits is only a label.
    pub topics: Vec<Topic>,
    /// The label set.
    pub label_set: LabelSet,
    /// For topics that read all their subreddits, by slug: the share of the limit for each subreddit. Other topics read
    /// their first readable subreddit.
    pub shares: BTreeMap<String, Vec<u32>>,
    /// The schedules.
    pub schedules: Vec<Entry>,
}

impl Pipeline {
    /// Loads a pipeline file; `None` is the built-in one. A topic without `listing` or `limit` gets the given default.
    ///
    /// # Errors
    /// See [`PipelineError`].
    pub fn load(path: Option<&Path>, listing: Listing, limit: u32) -> Result<Self, PipelineError> {
        match path {
            None => {
                let path = Path::new("pipelines/sixteen-topics.toml");
                Self::parse(SIXTEEN_TOPICS, path, listing, limit)
            }
            Some(path) => Self::parse(&read_text(path)?, path, listing, limit),
        }
    }

    /// Parses a pipeline file. `path` is used in errors, and as the name of a label set without one.
    ///
    /// # Errors
    /// [`PipelineError::Mistakes`].
    pub fn parse(
        text: &str,
        path: &Path,
        listing: Listing,
        limit: u32,
    ) -> Result<Self, PipelineError> {
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        let defaults = Defaults {
            name: &stem.to_string_lossy(),
            folder: path.parent().unwrap_or(Path::new("")),
            listing,
            limit,
        };
        parse::read(text, defaults)
            .map_err(|mistakes| PipelineError::Mistakes(path.to_owned(), mistakes))
    }

    /// Removes the topics without subreddits, which are only labels, and returns their slugs. `all` is true if every
    /// topic was requested by name.
    ///
    /// # Errors
    /// [`PipelineError::NoSubreddits`] if no topic is left, or a requested one is removed.
    pub fn skip_unread(&mut self, all: bool) -> Result<Vec<String>, PipelineError> {
        let unread = self.topics.iter().filter(|t| t.subreddits.is_empty());
        let unread: Vec<String> = unread.map(|topic| topic.slug.clone()).collect();
        if unread.len() == self.topics.len() || all && !unread.is_empty() {
            return Err(PipelineError::NoSubreddits(self.name.clone(), unread));
        }
        self.topics.retain(|topic| !topic.subreddits.is_empty());
        Ok(unread)
    }

    /// Returns one entry per listing to read: a topic that reads all its subreddits has an entry for each, with its
    /// share of the limit.
    pub fn reads(&self) -> Vec<Topic> {
        let reads = self.topics.iter().flat_map(|topic| {
            let Some(shares) = self.shares.get(&topic.slug) else {
                return vec![topic.clone()];
            };
            let limits = apportioned(topic.limit, shares);
            let each = topic.subreddits.iter().zip(limits);
            each.filter(|(_, limit)| *limit > 0)
                .map(|(subreddit, limit)| Topic {
                    subreddits: vec![subreddit.clone()],
                    limit,
                    ..topic.clone()
                })
                .collect()
        });
        reads.collect()
    }

    /// Keeps only these topics for collection; the label set is unchanged.
    ///
    /// # Errors
    /// [`PipelineError::NoTopic`].
    pub fn keep_topics(&mut self, slugs: &[String]) -> Result<(), PipelineError> {
        let known = || self.topics.iter().map(|topic| topic.slug.as_str());
        if let Some(slug) = slugs
            .iter()
            .find(|slug| known().all(|known| known != **slug))
        {
            let known = known().collect::<Vec<_>>().join(", ");
            return Err(PipelineError::NoTopic(slug.clone(), known));
        }
        if !slugs.is_empty() {
            self.topics.retain(|topic| slugs.contains(&topic.slug));
        }
        Ok(())
    }
}

/// Splits a limit by shares into integers with the same sum (largest remainder method; earlier parts win ties).
fn apportioned(limit: u32, shares: &[u32]) -> Vec<u32> {
    let all: u64 = shares.iter().map(|share| u64::from(*share)).sum();
    let parts = shares
        .iter()
        .map(|share| u64::from(limit) * u64::from(*share));
    let parts: Vec<(u64, u64)> = parts.map(|part| (part / all, part % all)).collect();
    let left = u64::from(limit) - parts.iter().map(|(whole, _)| whole).sum::<u64>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    // Stable: on equal remainders the earlier part wins.
    order.sort_by_key(|&i| std::cmp::Reverse(parts[i].1));
    let mut limits: Vec<u64> = parts.into_iter().map(|(whole, _)| whole).collect();
    for i in order
        .into_iter()
        .take(usize::try_from(left).unwrap_or_default())
    {
        limits[i] += 1;
    }
    let limits = limits.into_iter();
    limits
        .map(|limit| u32::try_from(limit).expect("a part is not larger than the whole"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_score::label_file;

    #[test]
    fn a_file_gives_the_same_label_set_here_and_in_other_programs() {
        let long = "name = \"long\"\nmode = \"multi\"\nthreshold = 0.25\ntemperature = 2\n\
                    hypothesis_template = \"About {}.\"\nbackground = \"reddit\"\n\
                    background_without = \"video games\"\nbackground_weight = 0.5\n\
                    [[topic]]\nlabel = \"Food & drink\"\ndescriptions = \"Eat.\"\nsubreddits = [\"food\"]\n\
                    read = \"all\"\nshare = [2]\nlisting = \"new\"\nlimit = 7\n";
        for text in [
            SIXTEEN_TOPICS,
            include_str!("../pipelines/scheduled.toml"),
            "labels = [\"C++\", \"climate change\"]\nbackground = \"none\"",
            long,
        ] {
            let here = Pipeline::parse(text, Path::new("in/file.toml"), Listing::Hot, 1).unwrap();
            let there = label_file::read(text, "file", |path| Err(path.to_owned())).unwrap();
            assert_eq!(here.label_set, there);
            let written = label_file::write(&there);
            let again = Pipeline::parse(&written, Path::new("x.toml"), Listing::Hot, 1).unwrap();
            assert_eq!(again.label_set, there);
        }
    }

    #[test]
    fn a_background_section_is_read_and_its_mistakes_are_reported() {
        let section = "[background]\nname = \"own\"\nversion = 1\nweight = 1.0\n[[background.topic]]\n\
            label = \"cats\"\n";
        let text =
            |settings: &str, rest: &str| format!("labels = [\"a\"]\n{settings}\n{section}{rest}");
        let parse = |text: &str| Pipeline::parse(text, Path::new("x.toml"), Listing::Hot, 1);
        let read = parse(&text("background_weight = 0.5", "")).unwrap();
        let background = read.label_set.background.unwrap();
        assert_eq!(background.tag(), "own@1");
        assert!((background.weight - 0.5).abs() < f64::EPSILON);
        for (settings, rest, expected) in [
            (
                "",
                "labl = 1",
                "line 9, column 1: `background`: unknown field `labl`",
            ),
            (
                "background_without = [\"dogs\"]",
                "",
                "there is no topic `dogs`",
            ),
        ] {
            let error = parse(&text(settings, rest)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn limits_are_split_without_remainder() {
        for (limit, shares, parts) in [
            (100, &[1, 1][..], &[50, 50][..]),
            (100, &[2, 1], &[67, 33]),
            (100, &[1, 1, 1], &[34, 33, 33]),
            (2, &[1, 1, 1], &[1, 1, 0]),
            (1, &[1, 1000], &[0, 1]),
            (1000, &[1000; 30], &[34; 10]),
        ] {
            let found = apportioned(limit, shares);
            assert_eq!(found.iter().sum::<u32>(), limit);
            assert_eq!(&found[..parts.len()], parts, "{limit} {shares:?}");
        }
    }
}
