//! `topicmill labels new`: writes a new pipeline file with a comment on each key.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{NamedSet, STDOUT, free_name, write_file};
use crate::atomic_file::IfExists;
use crate::cli::output::{self, shell_word};
use crate::cli::{App, CliError, Exit};
use crate::pipeline_file::{Pipeline, REDDIT, slug};
use topicmill_core::{Background, Label, LabelSet, Listing};
use topicmill_store::Access;

/// The name of the label set if it is written to stdout.
const NAME: &str = "my-labels";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels new my-labels.toml \"climate change\" gaming
  topicmill labels new my-labels.toml --from current")]
pub struct New {
    /// Write the new file FILE, which must not exist; - is stdout
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Describe a label in your own words; repeatable [default: two examples]
    #[arg(value_name = "LABEL")]
    words: Vec<String>,
    /// Copy the labels of the label set SET
    ///
    /// SET is `current`, or the name or version prefix of a stored label set.
    #[arg(long, value_name = "SET", conflicts_with = "words")]
    from: Option<String>,
}

impl New {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let set = match &self.from {
            Some(word) => load_stored(app, word, self.name()).await?,
            None => self.label_set()?,
        };
        let examples = self.from.is_none() && self.words.is_empty();
        let text = render_file(&set, &self.file, examples);
        // Invalid labels are rejected before the file is written.
        Pipeline::parse(&text, &self.file, Listing::Hot, 100)?;
        if self.file == Path::new(STDOUT) {
            output::print(&text)?;
            return Ok(Exit::Done);
        }
        let advice = "; `labels new` does not overwrite files";
        write_file(&self.file, &text, IfExists::Fail, advice)?;
        let file = shell_path(&self.file);
        tracing::info!(
            labels = set.labels.len(),
            "wrote {file}: describe each label in a sentence, then run `topicmill labels validate --pipeline {file}`"
        );
        Ok(Exit::Done)
    }

    fn name(&self) -> String {
        match self.file.file_stem() {
            Some(stem) if self.file != Path::new(STDOUT) => {
                stem.to_string_lossy().replace(char::is_control, " ")
            }
            _ => NAME.to_owned(),
        }
    }

    /// Returns a label set with the labels from the command line, or with two examples.
    fn label_set(&self) -> Result<LabelSet, CliError> {
        let mut labels: Vec<Label> = Vec::new();
        let words = self.words.iter().map(|words| words.trim());
        for words in words.filter(|words| !words.is_empty()) {
            let is_same = |label: &Label| label.label.to_lowercase() == words.to_lowercase();
            if labels.iter().any(is_same) {
                let text = format!("the label `{words}` is given twice: remove one");
                return Err(CliError::Usage(text));
            }
            labels.push(Label {
                slug: free_slug(words, &labels),
                ..Label::new(words)
            });
        }
        if labels.is_empty() {
            labels = examples();
        }
        let template = "This text is about {}.".to_owned();
        Ok(LabelSet {
            background: Some(Background::built_in()),
            ..LabelSet::new(self.name(), template, labels)
        })
    }
}

/// Returns a path, quoted for a shell, or `FILE` if it cannot be used in a command.
pub(super) fn shell_path(file: &Path) -> String {
    plain_path(file).map_or_else(|| "FILE".to_owned(), shell_word)
}

/// Returns a path as text; `None` for stdout, or if it is not printable.
fn plain_path(file: &Path) -> Option<&str> {
    let path = file.to_str()?;
    (path != STDOUT && !path.contains(char::is_control)).then_some(path)
}

/// Loads a stored label set and renames it. Its fit is left out, because the new file is a starting point for different
/// labels.
async fn load_stored(app: &App, word: &str, name: String) -> Result<LabelSet, CliError> {
    let store = app.store(Access::ReadOnly).await?;
    let found = NamedSet::stored(app, &store, word).await?;
    store.close().await?;
    if let Some(own) = &found.set.background
        && omitted_topics(own).is_none()
    {
        tracing::warn!(
            "the background {} of `{word}` is not built in: replace \"{}\" in the file with the path of its file, \
             otherwise the label set gets a different version",
            own.tag(),
            REDDIT
        );
    }
    if found.set.fitted.is_some() {
        tracing::warn!(
            "the file has the labels of `{word}` without what `labels fit` learned, so posts may get different labels: \
             `topicmill labels export --label-set {word}` prints both"
        );
    }
    Ok(LabelSet {
        name,
        fitted: None,
        ..found.set
    })
}

/// Returns the topics of the built-in background that `own` omits; `None` if `own` differs in anything but these topics
/// and its weight.
fn omitted_topics(own: &Background) -> Option<Vec<String>> {
    let mut whole = Background::built_in();
    whole.weight = own.weight;
    let topics = whole.topics.iter();
    let omitted = topics.filter(|topic| !own.topics.contains(topic));
    let omitted: Vec<String> = omitted.map(|topic| topic.label.clone()).collect();
    whole.leave_out(&omitted).ok()?;
    (whole == *own).then_some(omitted)
}

fn examples() -> Vec<Label> {
    let label = |slug: &str, label: &str, description: &str| Label {
        slug: slug.to_owned(),
        label: label.to_owned(),
        descriptions: vec![description.to_owned()],
    };
    let games = "Video games, consoles and the people who play them.";
    let food = "Recipes, cooking, baking, restaurants and what people eat.";
    vec![
        label("gaming", "video games", games),
        label("food", "food and cooking", food),
    ]
}

/// Makes a slug from these words that no label has.
fn free_slug(words: &str, labels: &[Label]) -> String {
    let base = match slug(words) {
        made if made.is_empty() => "label".to_owned(),
        made => made,
    };
    free_name(&base, |slug| labels.iter().all(|label| label.slug != slug))
}

/// Formats a value as TOML.
pub(super) fn toml(value: impl Into<toml_edit::Value>) -> String {
    value.into().to_string()
}

fn toml_array(texts: &[String]) -> String {
    toml(texts.iter().collect::<toml_edit::Array>())
}

/// Renders the pipeline file, with a comment on each key.
fn render_file(set: &LabelSet, file: &Path, examples: bool) -> String {
    let mut text = format!(
        include_str!("new.toml.template"),
        shell_path = shell_path(file),
        path = toml(plain_path(file).unwrap_or("FILE")),
        name = toml(&set.name),
        mode = set.mode,
        template = toml(&set.template),
        threshold = toml(set.threshold),
        temperature = toml(set.temperature),
        background = background_keys(set.background.as_ref()),
    );
    if examples {
        text.push_str("# Replace these two examples with your own labels.\n");
    }
    text.extend(set.labels.iter().map(topic));
    text
}

/// Returns the lines that describe a background: its name, and how it differs from the built-in one.
fn background_keys(background: Option<&Background>) -> String {
    let name = toml(background.map_or("none", |_| REDDIT));
    let mut keys = format!("background = {name}");
    if let Some(own) = background {
        let omitted = omitted_topics(own).unwrap_or_default();
        if !omitted.is_empty() {
            keys += "\nbackground_without = ";
            keys += &toml_array(&omitted);
        }
        if Background::built_in().weight.to_bits() != own.weight.to_bits() {
            keys += "\nbackground_weight = ";
            keys += &toml(own.weight);
        }
    }
    keys
}

/// Renders the section of a label.
fn topic(label: &Label) -> String {
    let (slug, words) = (toml(&label.slug), toml(&label.label));
    let descriptions = match label.descriptions.as_slice() {
        [] => "# descriptions = [\"A sentence about it.\"]".to_owned(),
        texts => format!("descriptions = {}", toml_array(texts)),
    };
    format!(
        "\n[[topic]]\nslug = {slug}\nlabel = {words}\n{descriptions}\n# subreddits = [\"NAME\"]\n"
    )
}
