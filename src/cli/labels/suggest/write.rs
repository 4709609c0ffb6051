//! Writes a copy of a pipeline file with a topic for each suggested label.
//!
//! The file never contains post titles, because it is kept after posts are purged.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item};

use super::super::calibrate::absolute_background;
use super::super::new::{free_slug, toml_string};
use crate::cli::CliError;
use crate::pipeline_file::{Pipeline, SIXTEEN_TOPICS, read_text};
use topicmill_core::Listing;
use topicmill_review::suggest::Suggestion;

/// The comment above the suggested topics.
const COMMENT: &str = "\n# The topics below were suggested by `topicmill labels suggest`. Reword each label and \
                       describe it in a\n# sentence. Delete the ones that you do not need.\n";

pub(super) struct BaseFile {
    file: DocumentMut,
    /// The path; `None` for the built-in pipeline.
    path: Option<PathBuf>,
}

impl BaseFile {
    pub fn read(path: Option<&Path>) -> Result<Self, CliError> {
        let text = match path {
            None => SIXTEEN_TOPICS.to_owned(),
            Some(path) => read_text(path)?,
        };
        let file: DocumentMut = text
            .parse()
            .map_err(|error: toml_edit::TomlError| CliError::Usage(error.to_string()))?;
        if file.get("topic").is_some_and(Item::is_value) {
            return Err(CliError::Usage(
                "--out appends topics to the pipeline file, but this file has its topics on one line: write each below \
                 a line [[topic]]"
                    .into(),
            ));
        }
        let path = path.map(Path::to_owned);
        Ok(Self { file, path })
    }

    /// Returns the content of the copy, which will be written to `out`.
    pub fn add_topics(mut self, out: &Path, clusters: &[Suggestion]) -> Result<String, CliError> {
        let file = &mut self.file;
        let path = self.path.as_deref();
        let named = path.unwrap_or(Path::new("sixteen-topics.toml"));
        let known = Pipeline::parse(&file.to_string(), named, Listing::Hot, 1)?;
        let known = known.label_set.labels;
        if file.remove("fitted").is_some() {
            tracing::warn!(
                "the new file has no fit, because a fit is valid only for the labels that it was made for: `topicmill \
                 labels fit` makes one for the new labels"
            );
        }
        if let Some(background) = absolute_background(
            file,
            path.map(|path| path.parent().unwrap_or(Path::new(""))),
        ) {
            file["background"] = toml_edit::value(background.to_string_lossy().into_owned());
        }
        // Rename the label set, to distinguish it from the original.
        if let (Some(_), Some(stem)) = (file.get("name"), out.file_stem()) {
            file["name"] = toml_edit::value(stem.to_string_lossy().into_owned());
        }
        // A file has either a list of labels or topics: convert a list of labels to topics.
        let listed = file.remove("labels").is_some();
        let mut text = file.to_string();
        for label in known.iter().filter(|_| listed) {
            text.push('\n');
            text += &topic(&label.slug, &label.label);
        }
        text += COMMENT;
        let mut slugs: Vec<String> = known.into_iter().map(|label| label.slug).collect();
        for cluster in clusters {
            let slug = free_slug(&cluster.label, &slugs);
            text.push('\n');
            if let Some(near) = &cluster.background {
                text += &["# nearest topic of the background: ", near, "\n"].concat();
            }
            text += &topic(&slug, &cluster.label);
            let words = format!("{}.", cluster.terms.join(", "));
            text += &["descriptions = [", &toml_string(&words), "]\n"].concat();
            slugs.push(slug);
        }
        Pipeline::parse(&text, out, Listing::Hot, 1)?;
        Ok(text)
    }
}

fn topic(slug: &str, label: &str) -> String {
    let (slug, label) = (toml_string(slug), toml_string(label));
    format!("[[topic]]\nslug = {slug}\nlabel = {label}\n")
}
