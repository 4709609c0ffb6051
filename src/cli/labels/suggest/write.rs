//! A copy of a pipeline file with a topic for each suggested label.
//!
//! No title of a post goes into it: the file outlives posts.

use std::path::{Path, PathBuf};

use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

use super::super::calibrate::whole_background;
use crate::cli::CliError;
use crate::domain::Listing;
use crate::pipeline_file::{Pipeline, SIXTEEN_TOPICS, read_text, slug};
use crate::placing::{Standing, put};
use crate::review::suggest::Suggestion;
use topicmill_score::Label;

/// What stands above the first of them.
const COMMENT: &str = "\n# `topicmill labels suggest` wrote the topics from here on: give each the words that you would use, and\n\
                       # say in a sentence what it is about. Delete what you do not need.\n";

/// A pipeline file that is copied.
pub(super) struct Base {
    text: String,
    /// Where it lies; `None` is the one that is built in.
    path: Option<PathBuf>,
}

/// A topic as it is written.
struct Topic {
    slug: String,
    label: String,
    description: String,
    /// The topic of the background that it is nearest to.
    near: Option<String>,
}

impl Base {
    pub fn read(path: Option<&Path>) -> Result<Self, CliError> {
        let text = match path {
            None => SIXTEEN_TOPICS.to_owned(),
            Some(path) => read_text(path)?,
        };
        let path = path.map(Path::to_owned);
        Ok(Self { text, path })
    }

    /// Writes the copy.
    pub fn write(&self, out: &Path, clusters: &[Suggestion]) -> Result<(), CliError> {
        if clusters.is_empty() {
            tracing::info!(
                "nothing is suggested, so `{}` is not written",
                out.display()
            );
            return Ok(());
        }
        let text = self.with(out, clusters)?;
        put(out, text, Standing::Replaced)
            .map_err(|source| CliError::unwritten(out, source, "correct --out"))?;
        tracing::info!(
            topics = clusters.len(),
            "written to {0}: give the topics at its end your own words, then `topicmill labels validate --pipeline {0}` and \
             `topicmill labels what-if {0}`",
            out.display()
        );
        Ok(())
    }

    fn with(&self, out: &Path, clusters: &[Suggestion]) -> Result<String, CliError> {
        let usage = |error: toml_edit::TomlError| CliError::Usage(error.to_string());
        let mut file: DocumentMut = self.text.parse().map_err(usage)?;
        let path = self
            .path
            .as_deref()
            .unwrap_or(Path::new("sixteen-topics.toml"));
        let known = Pipeline::parse(&self.text, path, Listing::Hot, 1)?;
        let folder = self.path.as_ref();
        let folder = folder.map(|path| path.parent().unwrap_or(Path::new("")));
        if let Some(background) = whole_background(&file, folder) {
            file["background"] = value(background.to_string_lossy().into_owned());
        }
        // Under the name of its base, nobody could tell the two label sets apart.
        if let (Some(_), Some(stem)) = (file.get("name"), out.file_stem()) {
            file["name"] = value(stem.to_string_lossy().into_owned());
        }
        let topics = topics(&known.label_set.labels, clusters);
        let mut trailing = String::new();
        if !file.get("topic").is_some_and(Item::is_value) {
            // Comments at the end belong to the topic above them.
            file.trailing()
                .as_str()
                .unwrap_or_default()
                .clone_into(&mut trailing);
            file.set_trailing("");
        }
        if file.remove("labels").is_some() {
            // A file has a list of labels, or topics.
            let listed = known.label_set.labels.iter().map(Topic::listed);
            let tables: ArrayOfTables = listed.collect();
            file.insert("topic", Item::ArrayOfTables(tables));
        }
        match file
            .entry("topic")
            .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()))
        {
            Item::ArrayOfTables(tables) => append(tables, &trailing, &topics),
            Item::Value(Value::Array(array)) => array.extend(topics.iter().map(Topic::inline)),
            _ => unreachable!("the file was read before"),
        }
        let text = file.to_string();
        Pipeline::parse(&text, out, Listing::Hot, 1)?;
        Ok(text)
    }
}

/// A topic for each cluster, whose slug no label has yet.
fn topics(known: &[Label], clusters: &[Suggestion]) -> Vec<Topic> {
    let mut slugs: Vec<String> = known.iter().map(|label| label.slug.clone()).collect();
    let topic = |cluster: &Suggestion| {
        let made = Some(slug(&cluster.label)).filter(|made| !made.is_empty());
        let made = made.unwrap_or_else(|| "label".to_owned());
        let numbered = (2..).map(|n| format!("{made}-{n}"));
        let mut free = std::iter::once(made.clone()).chain(numbered);
        let free = free.find(|slug| !slugs.contains(slug));
        let slug = free.expect("numbers do not end");
        slugs.push(slug.clone());
        Topic {
            slug,
            label: cluster.label.clone(),
            description: format!("{}.", cluster.terms.join(", ")),
            near: cluster.background.clone(),
        }
    };
    clusters.iter().map(topic).collect()
}

/// `trailing`: the comments behind the last topic that is there.
fn append(tables: &mut ArrayOfTables, trailing: &str, topics: &[Topic]) {
    for (place, topic) in topics.iter().enumerate() {
        let mut table = Table::new();
        table.insert("slug", value(&topic.slug));
        table.insert("label", value(&topic.label));
        table.insert("descriptions", value(topic.descriptions()));
        let above = if place == 0 {
            format!("{trailing}{COMMENT}")
        } else {
            String::new()
        };
        let near = topic.near.as_ref();
        let near = near.map_or(String::new(), |near| {
            format!("# nearest topic of the background: {near}\n")
        });
        table.decor_mut().set_prefix(format!("{above}\n{near}"));
        tables.push(table);
    }
}

impl Topic {
    /// A label of a list, as a topic.
    fn listed(label: &Label) -> Table {
        let mut table = Table::new();
        table.insert("slug", value(&label.slug));
        table.insert("label", value(&label.label));
        table
    }

    fn descriptions(&self) -> Array {
        Array::from_iter([self.description.as_str()])
    }

    fn inline(&self) -> Value {
        let mut table = InlineTable::new();
        table.insert("slug", self.slug.as_str().into());
        table.insert("label", self.label.as_str().into());
        table.insert("descriptions", self.descriptions().into());
        Value::InlineTable(table)
    }
}
