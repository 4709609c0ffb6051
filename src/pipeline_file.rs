//! A pipeline file: what to collect, and what to label it with.
//!
//! A path goes in; out come topics and a label set, or everything that is wrong with the file, each with its line.

mod background;
mod form;
mod mistakes;
mod schedules;
mod section;
mod slug;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use topicmill_score::LabelSet;

use self::form::{Defaults, Form};
use crate::domain::{Listing, Topic};
use crate::schedule::Entry;

pub use self::mistakes::{Mistake, Mistakes};
pub use self::slug::slug;
pub use self::text::read_text;

/// The pipeline that is built in.
pub const SIXTEEN_TOPICS: &str = include_str!("../pipelines/sixteen-topics.toml");

/// The background that is built in, and what a pipeline file calls it.
pub const REDDIT: (&str, &str) = (
    "reddit",
    include_str!("../pipelines/background/reddit.toml"),
);

/// Why a pipeline file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// It cannot be read.
    #[error(
        "read the pipeline file `{path}`: {source}; give the path of a file like pipelines/sixteen-topics.toml, or \
         write one with `topicmill labels new`"
    )]
    Read {
        /// As given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is a folder.
    #[error("read the pipeline file `{0}`: it is a folder; give the path of a file in it")]
    Folder(PathBuf),
    /// It is too large for what it is.
    #[error(
        "read the pipeline file `{path}`: it has more than {most_mib} MiB; posts and texts belong into other files"
    )]
    Large {
        /// As given.
        path: PathBuf,
        /// The most that is read.
        most_mib: u64,
    },
    /// It is no text.
    #[error("read the pipeline file `{path}`: line {line} is no UTF-8; save the file as UTF-8")]
    Encoding {
        /// As given.
        path: PathBuf,
        /// The first line that is none.
        line: usize,
    },
    /// It has nothing in it.
    #[error(
        "read the pipeline file `{0}`: it is empty; write `labels = [\"climate change\", \"gaming\"]`, or see \
         `topicmill labels new`"
    )]
    Blank(PathBuf),
    /// It is no TOML, or says something that it cannot say.
    #[error("pipeline file `{path}`{mistakes}")]
    Mistakes {
        /// As given.
        path: PathBuf,
        /// All of them.
        mistakes: Mistakes,
    },
    /// Topics to collect for which there are no subreddits.
    #[error(
        "collect {}: no subreddits are named in pipeline `{pipeline}`; add `subreddits = [\"climate\"]` to a [[topic]]",
        topics.join(", ")
    )]
    NoSubreddits {
        /// Name of the pipeline.
        pipeline: String,
        /// Slugs of the topics.
        topics: Vec<String>,
    },
    /// A topic asked for that the file does not have.
    #[error("the pipeline has no topic `{topic}`; it has {known}")]
    NoTopic {
        /// As asked for.
        topic: String,
        /// Those there are.
        known: String,
    },
}

/// What a pipeline file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// Its name.
    pub name: String,
    /// What to collect; a topic without subreddits is only a label.
    pub topics: Vec<Topic>,
    /// What to label it with.
    pub label_set: LabelSet,
    /// For topics that read all their subreddits, by slug: the share of the limit that each subreddit has. The other
    /// topics read the first subreddit that can be read.
    pub shares: BTreeMap<String, Vec<u32>>,
    /// What runs when.
    pub schedules: Vec<Entry>,
}

impl Pipeline {
    /// Reads a pipeline file; `None` is the built-in one. A topic that does not say which listing it wants and
    /// how much of it gets `listing` and `limit`, and [follows](Topic::follows).
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

    /// Reads the text of a pipeline file; `path` is what errors name, and what names a label set without a name.
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
        let Form {
            name,
            topics,
            label_set,
            shares,
            schedules,
        } = form::read(text, defaults).map_err(|mistakes| PipelineError::Mistakes {
            path: path.to_owned(),
            mistakes,
        })?;
        Ok(Self {
            name,
            topics,
            label_set,
            shares,
            schedules,
        })
    }

    /// Leaves out the topics without subreddits, which are only labels; returns their slugs. `all`: every topic was
    /// asked for by name.
    ///
    /// # Errors
    /// [`PipelineError::NoSubreddits`] if no topic would be left, or one that was asked for would not.
    pub fn skip_unread(&mut self, all: bool) -> Result<Vec<String>, PipelineError> {
        let unread = self.topics.iter().filter(|t| t.subreddits.is_empty());
        let unread: Vec<String> = unread.map(|topic| topic.slug.clone()).collect();
        if unread.len() == self.topics.len() || all && !unread.is_empty() {
            return Err(PipelineError::NoSubreddits {
                pipeline: self.name.clone(),
                topics: unread,
            });
        }
        self.topics.retain(|topic| !topic.subreddits.is_empty());
        Ok(unread)
    }

    /// What is read, each entry by itself: a topic that reads all its subreddits has one for each of them, with its
    /// share of the topic's limit.
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

    /// Only these topics are collected; the label set stays whole.
    ///
    /// # Errors
    /// [`PipelineError::NoTopic`].
    pub fn keep_topics(&mut self, slugs: &[String]) -> Result<(), PipelineError> {
        for slug in slugs {
            if !self.topics.iter().any(|topic| topic.slug == *slug) {
                let known: Vec<_> = self
                    .topics
                    .iter()
                    .map(|topic| topic.slug.as_str())
                    .collect();
                return Err(PipelineError::NoTopic {
                    topic: slug.clone(),
                    known: known.join(", "),
                });
            }
        }
        if !slugs.is_empty() {
            self.topics.retain(|topic| slugs.contains(&topic.slug));
        }
        Ok(())
    }
}

/// A limit in parts of these shares: whole numbers that add up to it, the larger remainders and then the earlier parts
/// rounded up.
fn apportioned(limit: u32, shares: &[u32]) -> Vec<u32> {
    let all: u64 = shares.iter().map(|share| u64::from(*share)).sum();
    let parts = shares
        .iter()
        .map(|share| u64::from(limit) * u64::from(*share));
    let parts: Vec<(u64, u64)> = parts.map(|part| (part / all, part % all)).collect();
    let left = u64::from(limit) - parts.iter().map(|(whole, _)| whole).sum::<u64>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    // A stable sort: of equal remainders the earlier part comes first.
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

    #[test]
    fn a_limit_is_shared_out_whole() {
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
