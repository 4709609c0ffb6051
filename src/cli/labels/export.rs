//! `topicmill labels export`: prints a label set as a pipeline file, with its background and fit.

use std::path::Path;

use clap::Args;

use super::new::toml;
use super::{NamedSet, STDOUT, short_hash};
use crate::cli::output;
use crate::cli::{App, CliError, Exit};
use crate::pipeline_file::Pipeline;
use topicmill_core::labels::label_file;
use topicmill_core::{LabelSet, Listing};
use topicmill_store::{Access, Store};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels export > five.toml
  topicmill labels export --label-set five-fit200 > five.toml")]
pub struct Export {
    /// Print the label set SET
    ///
    /// SET is `current`, a pipeline file, or the name or version prefix of a stored label set.
    #[arg(long, value_name = "SET", default_value = "current")]
    label_set: String,
}

impl Export {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let store = app.store(Access::ReadOnly).await?;
        let NamedSet { set, .. } = NamedSet::stored(app, &store, &self.label_set).await?;
        let text = heading(&store, &set).await? + &label_file::write(&set);
        store.close().await?;
        // A stored label set may contain text that a pipeline file cannot express.
        let read = Pipeline::parse(&text, Path::new(STDOUT), Listing::Hot, 100)?;
        if read.label_set != set {
            return Err(CliError::Usage(format!(
                "export the label set `{}`: a pipeline file cannot express it exactly, and would have a different \
                 version",
                set.name
            )));
        }
        output::print(&text)?;
        Ok(Exit::Done)
    }
}

/// Returns the comment at the start of the file.
async fn heading(store: &Store, set: &LabelSet) -> Result<String, CliError> {
    let (name, hash) = (toml(&set.name), set.hash());
    let version = short_hash(&hash);
    let mut heading = format!(
        "# The label set {name}, version {version}, with everything that decides a label.\n\
         # Use it with --pipeline, and in Python with Labeler(pipeline=…).\n"
    );
    if let Some(fitted) = &set.fitted {
        let models = store.labels().models().await?;
        let model = models
            .iter()
            .find(|(_, row)| row.manifest_hash == fitted.model);
        let named = model.map_or(String::new(), |(_, row)| toml(&row.name) + ", ");
        let learned = format!(
            "# [fitted] is learned from {} gold labels, for the model {named}version {}. The logit of a label becomes\n\
             # scale × logit + bias + weights · vector of the text.\n",
            fitted.provenance.answers,
            short_hash(&fitted.model)
        );
        heading.push_str(&learned);
    }
    heading.push('\n');
    Ok(heading)
}
