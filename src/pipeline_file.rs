//! Pipeline files: what to collect and how to label it.
//!
//! Reads a file and returns topics, a label set and schedules. `label_file` reads the keys of labels, and rejects
//! unknown keys; this module reads the keys of collection and of schedules.

mod schedules;
mod shares;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use topicmill_core::labels::label_file;
use topicmill_core::labels::label_file::{LabelFileError, OneOrMore};
use topicmill_core::{Background, Keywords, Label, LabelSet, Listing, ThingKind, Topic};

use self::schedules::ScheduleKeys;
use self::shares::{Which, shares_of, split};
use crate::config::toml_text::{self, ReadTextError, describe};
use crate::schedule::ScheduleEntry;
use topicmill_sources::page::check_subreddit;

pub use topicmill_core::labels::background::REDDIT;
pub use topicmill_core::slug;

/// The built-in pipeline.
pub const SIXTEEN_TOPICS: &str = include_str!("../pipelines/sixteen-topics.toml");
/// Valid limits of a topic: a Reddit listing has at most 1,000 posts.
const LIMITS: RangeInclusive<u32> = 1..=1000;

/// Reasons why a pipeline file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// It cannot be read: the error, and what to do.
    #[error("cannot read the pipeline file `{0}`: {1}")]
    Read(PathBuf, String),
    /// It is not TOML, or has invalid keys or values: the position and the error.
    #[error("pipeline file `{0}`: {1}")]
    Invalid(PathBuf, String),
    /// Topics that should be collected have no subreddits.
    #[error(
        "cannot collect {}: no subreddits are named in pipeline `{}`; add `subreddits = [\"climate\"]` to a [[topic]]",
        .1.join(", "), .0
    )]
    NoSubreddits(String, Vec<String>),
    /// A requested topic is not in the file.
    #[error("the pipeline has no topic `{slug}`; it has {known}")]
    NoTopic {
        /// The requested topic.
        slug: String,
        /// A list of the topics in the file.
        known: String,
    },
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

/// Returns true if a file has another content than `before` and can be used; false while an editor is writing it.
pub fn has_changed(path: &Path, before: &[u8]) -> bool {
    std::fs::read(path).is_ok_and(|now| now != before)
        && Pipeline::load(Some(path), Listing::Hot, 1).is_ok()
}

/// The comments of a topic that are collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentScope {
    /// All comments in the topic's subreddits.
    All,
    /// Only comments on the topic's posts.
    OfPosts,
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
    /// The topics whose comments are collected too, by slug.
    pub comments: BTreeMap<String, CommentScope>,
    /// The schedules.
    pub schedules: Vec<ScheduleEntry>,
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
    /// [`PipelineError::Invalid`].
    pub fn parse(
        text: &str,
        path: &Path,
        listing: Listing,
        limit: u32,
    ) -> Result<Self, PipelineError> {
        read(text, path, listing, limit).map_err(|why| PipelineError::Invalid(path.to_owned(), why))
    }

    /// Removes the topics without subreddits, which are only labels, and returns their slugs. `are_requested` is true if
    /// the topics were requested by name.
    ///
    /// # Errors
    /// [`PipelineError::NoSubreddits`] if no topic is left, or a requested one is removed.
    pub fn skip_unread(&mut self, are_requested: bool) -> Result<Vec<String>, PipelineError> {
        let topics = self.topics.iter();
        let unread = topics.filter(|topic| topic.subreddits.is_empty());
        let unread: Vec<String> = unread.map(|topic| topic.slug.clone()).collect();
        if unread.len() == self.topics.len() || are_requested && !unread.is_empty() {
            return Err(PipelineError::NoSubreddits(self.name.clone(), unread));
        }
        self.topics.retain(|topic| !topic.subreddits.is_empty());
        Ok(unread)
    }

    /// Returns one entry per listing to read: a topic that reads all its subreddits has an entry for each, with its
    /// share of the limit. A topic with comments has entries for them.
    pub fn reads(&self, comments_limit: u32) -> Vec<Topic> {
        let of_comments = self.topics.iter().filter_map(|topic| {
            let of_posts = *self.comments.get(&topic.slug)? == CommentScope::OfPosts;
            let mut comments = Topic {
                kind: ThingKind::Comment,
                of_posts,
                listing: Listing::New,
                limit: comments_limit,
                ..topic.clone()
            };
            if of_posts {
                // A keyword in a post also selects the comments on it.
                comments.keywords = Keywords::default();
            }
            Some(comments)
        });
        let mut reads = Vec::new();
        for topic in self.topics.iter().cloned().chain(of_comments) {
            match self.shares.get(&topic.slug) {
                Some(shares) if !topic.of_posts => reads.extend(split(&topic, shares)),
                _ => reads.push(topic),
            }
        }
        reads
    }

    /// Adds the topic of a label for collection. The error is a message.
    fn add_topic(
        &mut self,
        label: &Label,
        keys: TopicKeys,
        listing: Listing,
        limit: u32,
    ) -> Result<(), String> {
        let (slug, limit) = (label.slug.clone(), keys.limit.unwrap_or(limit));
        let subreddits: Vec<String> = keys.subreddits.into();
        check_subreddits(&subreddits)?;
        let comments = match keys.comments {
            None | Some(Comments::All(false)) => None,
            Some(Comments::All(true)) => Some(CommentScope::All),
            Some(Comments::OfPosts(OfPosts::OfPosts)) => Some(CommentScope::OfPosts),
        };
        for (key, is_set) in [
            ("match", !keys.keywords.is_empty()),
            ("comments", comments.is_some()),
        ] {
            if subreddits.is_empty() && is_set {
                return Err(format!("`{key}` needs `subreddits`"));
            }
        }
        if !LIMITS.contains(&limit) {
            return Err(format!(
                "its limit is {limit}; Reddit lists 1 to 1000 posts"
            ));
        }
        let shares = shares_of(&keys.read, keys.share, subreddits.len())?;
        self.shares
            .extend(shares.map(|shares| (slug.clone(), shares)));
        self.comments
            .extend(comments.map(|comments| (slug.clone(), comments)));
        self.topics.push(Topic {
            slug,
            label: label.label.clone(),
            descriptions: label.descriptions.clone(),
            subreddits,
            keywords: keys.keywords,
            kind: ThingKind::Post,
            of_posts: false,
            listing: keys.listing.unwrap_or(listing),
            is_default_listing: keys.listing.is_none(),
            limit,
        });
        Ok(())
    }

    /// Keeps only these topics for collection; the label set is unchanged.
    ///
    /// # Errors
    /// [`PipelineError::NoTopic`].
    pub fn keep_topics(&mut self, slugs: &[String]) -> Result<(), PipelineError> {
        let topics = self.topics.iter().map(|topic| topic.slug.as_str());
        let known: Vec<&str> = topics.collect();
        if let Some(slug) = slugs.iter().find(|slug| !known.contains(&slug.as_str())) {
            let (slug, known) = (slug.clone(), known.join(", "));
            return Err(PipelineError::NoTopic { slug, known });
        }
        if !slugs.is_empty() {
            self.topics.retain(|topic| slugs.contains(&topic.slug));
        }
        Ok(())
    }
}

/// The keys of a file that configure collection and schedules.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    topic: Vec<TopicKeys>,
    #[serde(default)]
    schedule: Vec<ScheduleKeys>,
}

/// The keys of a topic that configure collection.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TopicKeys {
    subreddits: OneOrMore,
    #[serde(rename = "match")]
    keywords: Keywords,
    read: Which,
    share: Option<Vec<u32>>,
    listing: Option<Listing>,
    limit: Option<u32>,
    comments: Option<Comments>,
}

/// The key `comments` of a topic.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`comments` is neither true nor false nor \"of posts\""
)]
enum Comments {
    All(bool),
    OfPosts(OfPosts),
}

#[derive(Deserialize)]
enum OfPosts {
    #[serde(rename = "of posts")]
    OfPosts,
}

/// Reads the text of a file. The error is its position and a message.
fn read(text: &str, path: &Path, listing: Listing, limit: u32) -> Result<Pipeline, String> {
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    let folder = path.parent().unwrap_or(Path::new(""));
    let read_file = |path: &str| read_below(folder, path);
    let label_set = label_file::read(text, &stem.to_string_lossy(), read_file);
    let label_set = label_set.map_err(|error| match error {
        LabelFileError::Toml(error) => describe(&error, text),
        error => error.to_string(),
    })?;
    let file: File = toml::from_str(text).map_err(|error| describe(&error, text))?;
    let mut keys = file.topic;
    // The entries of `labels` are labels only.
    keys.resize_with(label_set.labels.len(), TopicKeys::default);
    let labels = label_set.labels.clone();
    let mut pipeline = Pipeline {
        name: label_set.name.clone(),
        topics: Vec::new(),
        label_set,
        shares: BTreeMap::new(),
        comments: BTreeMap::new(),
        schedules: Vec::new(),
    };
    for (label, keys) in labels.iter().zip(keys) {
        let added = pipeline.add_topic(label, keys, listing, limit);
        added.map_err(|why| format!("topic `{}`: {why}", label.slug))?;
    }
    pipeline.schedules = schedules::entries(file.schedule)?;
    if pipeline.name.contains('\0') || pipeline.label_set.template.contains('\0') {
        return Err("a text contains a NUL, which no database stores: remove it".to_owned());
    }
    Ok(pipeline)
}

fn read_below(folder: &Path, path: &str) -> Result<String, String> {
    toml_text::read(&folder.join(path)).map_err(|error| error.to_string())
}

/// Returns the background with this name: the built-in one, none, or one read from a file in `folder`.
///
/// # Errors
/// A message if there is no such background.
pub fn background(named: &str, folder: &Path) -> Result<Option<Background>, String> {
    Background::named(named, |path| read_below(folder, path))
}

fn check_subreddits(names: &[String]) -> Result<(), String> {
    for (i, name) in names.iter().enumerate() {
        check_subreddit(name).map_err(|error| error.to_string())?;
        let mut before = names[..i].iter();
        if before.any(|known| known.eq_ignore_ascii_case(name)) {
            return Err(format!("r/{name} is listed twice: remove one"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::labels::label_file;

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
            ("", "labl = 1", "line 3, column 1: "),
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
}
