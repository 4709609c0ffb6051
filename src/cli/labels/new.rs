//! `topicmill labels new`: a pipeline file to begin with.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;

use super::super::output;
use super::super::{CliError, Exit, Setup};
use super::NamedSet;
use crate::pipeline_file::{Pipeline, REDDIT, slug};
use crate::placing::{Standing, put};
use topicmill_core::Listing;
use topicmill_score::{Background, Label, LabelSet, Mode};
use topicmill_store::Access;

/// In place of a file: stdout.
const STDOUT: &str = "-";
/// Name of the label set where the file has none.
const NAME: &str = "my-labels";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels new my-labels.toml \"climate change\" gaming
  topicmill labels new my-labels.toml --from current")]
pub struct New {
    /// Write this file, which must not exist; - prints it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write these labels into it, in your words [default: two examples]
    #[arg(value_name = "LABEL")]
    words: Vec<String>,
    /// Write the labels of this set into it: `current`, or the name or first letters of the version of a stored one
    #[arg(long, value_name = "SET", conflicts_with = "words")]
    from: Option<String>,
}

impl New {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let set = match &self.from {
            Some(word) => load_stored(setup, word, self.name()).await?,
            None => self.label_set()?,
        };
        let examples = self.from.is_none() && self.words.is_empty();
        let text = render_file(&set, &self.shell_path(), examples);
        // Labels that make no good file are told before there is one.
        Pipeline::parse(&text, &self.file, Listing::Hot, 100)?;
        if self.file == Path::new(STDOUT) {
            output::print(&text)?;
            return Ok(Exit::Done);
        }
        self.write(&text)?;
        let file = self.shell_path();
        tracing::info!(
            labels = set.labels.len(),
            "written to {file}: describe each label in a sentence, then `topicmill labels validate --pipeline {file}`"
        );
        Ok(Exit::Done)
    }

    fn name(&self) -> String {
        let stem = self.file.file_stem().map(|stem| stem.to_string_lossy());
        let stem = stem.filter(|_| self.file != Path::new(STDOUT));
        let clean = stem.map(|stem| stem.replace(char::is_control, " "));
        clean.unwrap_or_else(|| NAME.to_owned())
    }

    /// The file in commands that work as they are printed.
    fn shell_path(&self) -> String {
        let path = self.file.display().to_string();
        if self.file == Path::new(STDOUT) || path.contains(char::is_control) {
            "FILE".to_owned()
        } else if path.contains(char::is_whitespace) {
            format!("'{path}'")
        } else {
            path
        }
    }

    /// The labels of the command line, else two examples.
    fn label_set(&self) -> Result<LabelSet, CliError> {
        let given = self.words.iter().map(|words| words.trim());
        let (mut labels, mut slugs): (Vec<Label>, Vec<String>) = Default::default();
        for words in given.filter(|words| !words.is_empty()) {
            // A file says its slugs, so a number is as good as any other way to tell two of them apart.
            let same = |label: &Label| label.label.to_lowercase() == words.to_lowercase();
            if labels.iter().any(same) {
                let text = format!("the label `{words}` is given twice: leave one out");
                return Err(CliError::Usage(text));
            }
            slugs.push(free_slug(words, &slugs));
            labels.push(Label {
                slug: slugs[slugs.len() - 1].clone(),
                label: words.to_owned(),
                descriptions: Vec::new(),
            });
        }
        if labels.is_empty() {
            labels = examples();
        }
        Ok(LabelSet {
            name: self.name(),
            template: "This text is about {}.".to_owned(),
            mode: Mode::Single,
            threshold: 0.0,
            temperature: 1.0,
            labels,
            background: default_background(),
            fitted: None,
        })
    }

    fn write(&self, text: &str) -> Result<(), CliError> {
        let exists = || {
            CliError::Usage(format!(
                "`{}` exists, and `labels new` replaces nothing: give another name",
                self.file.display()
            ))
        };
        // A device and a link that leads nowhere exist, too.
        if self.file.symlink_metadata().is_ok() {
            return Err(exists());
        }
        put(&self.file, text, Standing::Kept).map_err(|source| match source.kind() {
            // Somebody else made it meanwhile.
            ErrorKind::AlreadyExists => exists(),
            _ => CliError::cannot_write(&self.file, source, "give another path"),
        })
    }
}

/// A stored label set, under another name.
async fn load_stored(setup: &Setup, word: &str, name: String) -> Result<LabelSet, CliError> {
    let store = setup.store(Access::ReadOnly).await?;
    let found = NamedSet::stored(setup, &store, word).await?;
    store.close().await?;
    let own = found.set.background.as_ref();
    if let Some(own) = own.filter(|own| omitted_topics(own).is_none()) {
        tracing::warn!(
            "the background {} of `{word}` is not the one that is built in: write the path of its file in place of \
             \"{}\", else the file is another version of the label set",
            own.tag(),
            REDDIT.0
        );
    }
    Ok(LabelSet { name, ..found.set })
}

/// The background that a new file names.
fn default_background() -> Option<Background> {
    Background::parse(REDDIT.1).ok()
}

/// The topics that the built-in background has more than this one, if that is all that differs.
fn omitted_topics(own: &Background) -> Option<Vec<String>> {
    let mut whole = default_background()?;
    let topics = whole.topics.iter();
    let more = topics.filter(|topic| !own.topics.contains(topic));
    let more: Vec<String> = more.map(|topic| topic.label.clone()).collect();
    whole.leave_out(&more).ok()?;
    (whole == *own).then_some(more)
}

fn examples() -> Vec<Label> {
    let games = "Video games, consoles and the people who play them.";
    let food = "Recipes, cooking, baking, restaurants and what people eat.";
    let labels = [
        ("gaming", "video games", games),
        ("food", "food and cooking", food),
    ];
    let labels = labels.map(|(slug, label, description)| Label {
        slug: slug.to_owned(),
        label: label.to_owned(),
        descriptions: vec![description.to_owned()],
    });
    labels.to_vec()
}

/// A slug of these words that is none of those.
pub(super) fn free_slug(words: &str, taken: &[String]) -> String {
    let made = Some(slug(words)).filter(|made| !made.is_empty());
    let made = made.unwrap_or_else(|| "label".to_owned());
    let numbered = (2..).map(|n| format!("{made}-{n}"));
    let mut slugs = std::iter::once(made.clone()).chain(numbered);
    let free = slugs.find(|slug| !taken.contains(slug));
    free.expect("numbers do not end")
}

pub(super) fn toml_string(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

fn toml_array(texts: &[String]) -> String {
    texts.iter().collect::<toml_edit::Array>().to_string()
}

/// A number as TOML; one with a fraction of 0 too.
fn toml_float(value: f64) -> String {
    toml_edit::Value::from(value).to_string()
}

/// The file, with a comment on each key.
fn render_file(set: &LabelSet, file: &str, examples: bool) -> String {
    let left_out = set.background.as_ref().and_then(omitted_topics);
    let without = left_out.filter(|topics| !topics.is_empty());
    let without = without.map(|topics| format!("\nbackground_without = {}", toml_array(&topics)));
    let named = set.background.as_ref().map_or("none", |_| REDDIT.0);
    let background = toml_string(named) + without.as_deref().unwrap_or_default();
    let (name, template, mode) = (toml_string(&set.name), toml_string(&set.template), set.mode);
    let (threshold, temperature) = (toml_float(set.threshold), toml_float(set.temperature));
    let mut text = format!(
        "# What to label posts with, and what to collect. Check this file with:\n\
         #   topicmill labels validate --pipeline {file}\n\
         # Label with it each time you give `--pipeline {file}`. To use it always, write this line above the first\n\
         # section of topicmill.toml: pipeline = {path}\n\n\
         # The name that the label set has in the database.\n\
         name = {name}\n\
         # single: one label for each post. multi: each label by itself.\n\
         mode = \"{mode}\"\n\
         # The sentence that an NLI model compares a post with. {{}} is where the label goes.\n\
         hypothesis_template = {template}\n\
         # A post gets no label if its best score is lower than this. `topicmill labels calibrate` finds the number.\n\
         threshold = {threshold}\n\
         # Logits are divided by this before they become scores. `topicmill labels calibrate` finds the number.\n\
         temperature = {temperature}\n\
         # reddit: some thirty ordinary topics stand beside the labels. A post that fits one of them better than every\n\
         # label is \"other\" and gets no label. none: each post gets the nearest label.\n\
         background = {background}\n\n\
         # A [[topic]] for each label:\n\
         #   slug          a short name, which the database stores; the words of the label, if you leave it out\n\
         #   label         the words that the model reads\n\
         #   descriptions  sentences that say what else the label means; the model that ships labels much better with\n\
         #                 one or two. An NLI model reads the label alone.\n\
         #   subreddits    what `topicmill collect` reads; without it, the topic is only a label\n\
         #   read          \"first\" reads the first subreddit that can be read, \"all\" reads each of them\n\
         #   share         with read = \"all\": how much of the limit each has, as in share = [2, 1]\n\
         #   listing       hot, new, top or rising\n\
         #   limit         posts for each run, 1 to 1000\n",
        path = toml_string(file.trim_matches('\'')),
    );
    if examples {
        text.push_str("# These two are examples: write your own in their place.\n");
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
