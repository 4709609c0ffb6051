//! A pipeline file: what to collect, and what to label it with.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use topicmill_score::{Background, BackgroundError, Label, LabelSet, LabelSetError, Mode};

use crate::domain::{Listing, Topic};
use crate::source::SourceError;
use crate::source::page::check_subreddit;

/// The pipeline that is built in.
pub const SIXTEEN_TOPICS: &str = include_str!("../pipelines/sixteen-topics.toml");

/// The background that is built in, and what a pipeline file calls it.
pub const REDDIT: (&str, &str) = (
    "reddit",
    include_str!("../pipelines/background/reddit.toml"),
);
/// What a pipeline file says that wants no background.
const NO_BACKGROUND: &str = "none";

/// Why a pipeline file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// It cannot be read.
    #[error(
        "read the pipeline file `{path}`: {source}; give the path of a file like pipelines/sixteen-topics.toml"
    )]
    Read {
        /// As given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is no TOML, or has unknown or missing keys.
    #[error("read the pipeline file `{path}`: {source}")]
    Toml {
        /// As given.
        path: PathBuf,
        /// Line, column and what is wrong.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A name that no subreddit can have.
    #[error("pipeline file `{path}`, topic `{topic}`: {source}")]
    Subreddit {
        /// As given.
        path: PathBuf,
        /// Slug of the topic.
        topic: String,
        /// What a name looks like.
        #[source]
        source: Box<SourceError>,
    },
    /// A limit that no listing can meet.
    #[error(
        "topic `{topic}`: its limit is {limit}; Reddit lists 1 to 1000 posts, set `limit` in pipeline file `{path}` or `collect.limit`"
    )]
    Limit {
        /// As given.
        path: PathBuf,
        /// Slug of the topic.
        topic: String,
        /// Posts asked for.
        limit: u32,
    },
    /// A topic that names no subreddit.
    #[error("pipeline file `{path}`, topic `{topic}`: it has no subreddits; name at least one")]
    NoSubreddit {
        /// As given.
        path: PathBuf,
        /// Slug of the topic.
        topic: String,
    },
    /// Its labels cannot be used.
    #[error("pipeline file `{path}`: {source}")]
    Labels {
        /// As given.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: LabelSetError,
    },
    /// A background that cannot be read.
    #[error(
        "pipeline file `{path}`: read the background `{background}`: {source}; say `background = \"reddit\"`, `\"none\"`, or the path of a file like pipelines/background/reddit.toml"
    )]
    BackgroundFile {
        /// As given.
        path: PathBuf,
        /// As the file says.
        background: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A background that cannot be used.
    #[error("pipeline file `{path}`: the background `{background}`: {source}")]
    Background {
        /// As given.
        path: PathBuf,
        /// As the file says.
        background: String,
        /// What is wrong.
        #[source]
        source: BackgroundError,
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
    /// What to collect.
    pub topics: Vec<Topic>,
    /// What to label it with.
    pub label_set: LabelSet,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    name: String,
    #[serde(default = "default_template")]
    hypothesis_template: String,
    mode: Mode,
    #[serde(default)]
    threshold: f64,
    #[serde(default = "default_temperature")]
    temperature: f64,
    background: Option<String>,
    #[serde(default)]
    background_without: Vec<String>,
    topic: Vec<TopicForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicForm {
    slug: String,
    label: String,
    #[serde(default)]
    descriptions: Vec<String>,
    subreddits: Vec<String>,
    listing: Option<Listing>,
    limit: Option<u32>,
}

fn default_template() -> String {
    "This text is about {}.".to_owned()
}

const fn default_temperature() -> f64 {
    1.0
}

impl Pipeline {
    /// Reads a pipeline file; `None` is the built-in one. A topic that does not say which listing it wants and
    /// how much of it gets `listing` and `limit`.
    ///
    /// # Errors
    /// See [`PipelineError`].
    pub fn load(path: Option<&Path>, listing: Listing, limit: u32) -> Result<Self, PipelineError> {
        let Some(path) = path else {
            return Self::parse(
                SIXTEEN_TOPICS,
                Path::new("pipelines/sixteen-topics.toml"),
                listing,
                limit,
            );
        };
        let text = std::fs::read_to_string(path).map_err(|source| PipelineError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path, listing, limit)
    }

    fn parse(text: &str, path: &Path, listing: Listing, limit: u32) -> Result<Self, PipelineError> {
        let form: FileForm = toml::from_str(text).map_err(|source| PipelineError::Toml {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        let mut topics = Vec::with_capacity(form.topic.len());
        for topic in form.topic {
            if topic.subreddits.is_empty() {
                return Err(PipelineError::NoSubreddit {
                    path: path.to_owned(),
                    topic: topic.slug,
                });
            }
            for name in &topic.subreddits {
                check_subreddit(name).map_err(|source| PipelineError::Subreddit {
                    path: path.to_owned(),
                    topic: topic.slug.clone(),
                    source: Box::new(source),
                })?;
            }
            let limit = topic.limit.unwrap_or(limit);
            if !(1..=1000).contains(&limit) {
                return Err(PipelineError::Limit {
                    path: path.to_owned(),
                    topic: topic.slug,
                    limit,
                });
            }
            topics.push(Topic {
                slug: topic.slug,
                label: topic.label,
                descriptions: topic.descriptions,
                subreddits: topic.subreddits,
                listing: topic.listing.unwrap_or(listing),
                limit,
            });
        }
        let labels = topics
            .iter()
            .map(|topic| Label {
                slug: topic.slug.clone(),
                label: topic.label.clone(),
                descriptions: topic.descriptions.clone(),
            })
            .collect();
        let label_set = LabelSet {
            name: form.name.clone(),
            template: form.hypothesis_template,
            mode: form.mode,
            threshold: form.threshold,
            temperature: form.temperature,
            labels,
            background: form.background.as_deref().map_or(Ok(None), |named| {
                background(named, &form.background_without, path)
            })?,
        };
        label_set
            .validate()
            .map_err(|source| PipelineError::Labels {
                path: path.to_owned(),
                source,
            })?;
        Ok(Self {
            name: form.name,
            topics,
            label_set,
        })
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

/// The background that a pipeline file names: the built-in one, none, or a file beside it; without some of its topics.
fn background(
    named: &str,
    without: &[String],
    path: &Path,
) -> Result<Option<Background>, PipelineError> {
    if named == NO_BACKGROUND {
        return Ok(None);
    }
    let text = if named == REDDIT.0 {
        REDDIT.1.to_owned()
    } else {
        let file = path.parent().unwrap_or(Path::new("")).join(named);
        std::fs::read_to_string(file).map_err(|source| PipelineError::BackgroundFile {
            path: path.to_owned(),
            background: named.to_owned(),
            source,
        })?
    };
    let parsed = Background::parse(&text).and_then(|mut parsed| {
        parsed.leave_out(without)?;
        Ok(parsed)
    });
    let parsed = parsed.map_err(|source| PipelineError::Background {
        path: path.to_owned(),
        background: named.to_owned(),
        source,
    });
    parsed.map(Some)
}
