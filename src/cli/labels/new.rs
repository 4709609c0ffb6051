//! `topicmill labels new`: writes a new pipeline file with a comment on each key.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{NamedSet, STDOUT, free_name, write_file};
use crate::atomic_file::IfExists;
use crate::cli::output;
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
        let text = render_file(&set, &shell_path(&self.file), examples);
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
        let given = self.words.iter().map(|words| words.trim());
        let mut labels: Vec<Label> = Vec::new();
        for words in given.filter(|words| !words.is_empty()) {
            let same = |label: &Label| label.label.to_lowercase() == words.to_lowercase();
            if labels.iter().any(same) {
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
            background: default_background(),
            ..LabelSet::new(self.name(), template, labels)
        })
    }
}

/// Returns a path, quoted for a shell, or `FILE` if it cannot be used in a command.
pub(super) fn shell_path(file: &Path) -> String {
    let path = file.display().to_string();
    if file == Path::new(STDOUT) || path.contains(char::is_control) {
        "FILE".to_owned()
    } else if path.contains(char::is_whitespace) {
        format!("'{path}'")
    } else {
        path
    }
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
            REDDIT.0
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

/// Returns the background that a new file uses.
fn default_background() -> Option<Background> {
    Background::parse(REDDIT.1).ok()
}

/// Returns the topics of the built-in background that `own` omits; `None` if `own` differs in anything but these topics
/// and its weight.
fn omitted_topics(own: &Background) -> Option<Vec<String>> {
    let mut whole = default_background()?;
    whole.weight = own.weight;
    let topics = whole.topics.iter();
    let omitted: Vec<String> = topics
        .filter(|topic| !own.topics.contains(topic))
        .map(|topic| topic.label.clone())
        .collect();
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

pub(super) fn toml_string(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

fn toml_array(texts: &[String]) -> String {
    texts.iter().collect::<toml_edit::Array>().to_string()
}

/// Formats a number as a TOML float.
fn toml_float(value: f64) -> String {
    toml_edit::Value::from(value).to_string()
}

/// Renders the pipeline file, with a comment on each key.
fn render_file(set: &LabelSet, file: &str, examples: bool) -> String {
    let named = set.background.as_ref().map_or("none", |_| REDDIT.0);
    let mut background = toml_string(named);
    if let Some(own) = &set.background {
        let omitted = omitted_topics(own).unwrap_or_default();
        if !omitted.is_empty() {
            background += "\nbackground_without = ";
            background += &toml_array(&omitted);
        }
        let built_in = default_background().map(|built_in| built_in.weight.to_bits());
        if built_in.is_some_and(|weight| weight != own.weight.to_bits()) {
            background += "\nbackground_weight = ";
            background += &toml_float(own.weight);
        }
    }
    let (name, template, mode) = (toml_string(&set.name), toml_string(&set.template), set.mode);
    let (threshold, temperature) = (toml_float(set.threshold), toml_float(set.temperature));
    let mut text = format!(
        "# The labels for posts, and the subreddits to collect. Check this file with:\n#   topicmill labels validate \
         --pipeline {file}\n# Use it with `--pipeline {file}`. To use it by default, add this line above the first \
         section of\n# topicmill.toml: pipeline = {path}\n\n# The name of the label set in the database.\nname = \
         {name}\n# single: one label for each post. multi: each label independently.\nmode = \"{mode}\"\n# The \
         hypothesis that an NLI model compares a post with. {{}} stands for the label.\nhypothesis_template = \
         {template}\n# A post whose best score is lower gets no label. `topicmill labels calibrate` finds the \
         value.\nthreshold = {threshold}\n# Logits are divided by this. `topicmill labels calibrate` finds the \
         value.\ntemperature = {temperature}\n# reddit: about thirty ordinary topics compete with the labels. A post \
         that fits one of them better than every\n# label is \"other\" and gets no label. none: each post gets the \
         nearest label.\nbackground = {background}\n\n# A [[topic]] for each label:\n#   slug          a short name, \
         stored in the database; by default derived from the label\n#   label         the text that the model \
         reads\n#   descriptions  sentences that describe the label; one or two improve the default model a lot. An \
         NLI model\n#                 reads only the label.\n#   subreddits    the subreddits that `topicmill collect` \
         reads; without them, the topic is only a label\n#   read          \"first\" reads the first subreddit that \
         can be read, \"all\" reads each of them\n#   share         with read = \"all\": the share of the limit for \
         each subreddit, as in share = [2, 1]\n#   listing       hot, new, top or rising\n#   limit         posts for \
         each run, 1 to 1000\n",
        path = toml_string(file.trim_matches('\'')),
    );
    if examples {
        text.push_str("# Replace these two examples with your own labels.\n");
    }
    for label in &set.labels {
        text.push_str(&topic(label));
    }
    text
}

fn topic(label: &Label) -> String {
    let (slug, words) = (toml_string(&label.slug), toml_string(&label.label));
    let descriptions = match label.descriptions.as_slice() {
        [] => "# descriptions = [\"A sentence about it.\"]".to_owned(),
        texts => format!("descriptions = {}", toml_array(texts)),
    };
    format!(
        "\n[[topic]]\nslug = {slug}\nlabel = {words}\n{descriptions}\n# subreddits = [\"NAME\"]\n"
    )
}
