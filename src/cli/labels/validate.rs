//! `topicmill labels validate`: checks the labels of a pipeline file, and warns about likely mistakes.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::{Value, json};

use super::{Printout, WhichModel, settings, settings_json};
use crate::cli::app::PipelineFlags;
use crate::cli::{App, CliError, Exit, OutputFormat, output};
use topicmill_core::labels::hypothesis;
use topicmill_core::{Label, LabelSet, ModelKind, Topic};
use topicmill_score::folder::ModelFolder;
use topicmill_score::labeler::{LabelerError, fits_window, prompt};
use topicmill_score::text::Encoder;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels validate
  topicmill labels validate --pipeline my-labels.toml")]
pub struct Validate {
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    which: WhichModel,
    /// Set the output format; json prints everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Validate {
    pub fn run(self, app: &App) -> Result<Exit, CliError> {
        let pipeline = app.pipeline(&self.pipeline)?;
        let set = app.label_set(&self.which.flags(), pipeline.label_set)?;
        let folder = match self.which.folder(app) {
            Err(error) if self.which.model.is_none() => {
                tracing::warn!(
                    "the lengths of the labels were not checked, because there is no model: {error}"
                );
                None
            }
            folder => Some(folder?),
        };
        let tokens = match &folder {
            Some(folder) => check_lengths(folder, &set)?,
            None => vec![None; set.labels.len()],
        };
        if let Some(text) = indistinguishable_labels(&set, folder.as_ref()) {
            return Err(CliError::Usage(text));
        }
        let mut warnings = Vec::new();
        if let Some(folder) = &folder {
            warnings.extend(hypothesis::missing_learned_vectors(&folder.kind, &set));
        }
        warnings.extend(likely_mistakes(&set, &pipeline.topics, folder.as_ref()));
        if let Some(folder) = &folder {
            warnings.extend(self.umbrella_topics(app, folder, &set)?);
        }
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        if set.background.is_none() && self.pipeline.pipeline.is_some() {
            tracing::info!(
                "a post that fits none of the labels still gets the nearest one: with `background = \"reddit\"` in the \
                 pipeline file it becomes `other`"
            );
        }
        for note in background_notes(&set, folder.as_ref()) {
            tracing::info!("{note}");
        }
        printout(&set, folder.as_ref(), &tokens).print(self.format)?;
        Ok(Exit::Done)
    }

    /// Returns warnings about background topics that are closer to the labels than the labels are to each other, such
    /// as `fitness` in a study of fitness: most posts would become `other`.
    fn umbrella_topics(
        &self,
        app: &App,
        folder: &ModelFolder,
        set: &LabelSet,
    ) -> Result<Vec<String>, CliError> {
        let topics = set.background_for(&folder.kind);
        let is_learned = hypothesis::learned(&folder.kind, set).is_some();
        // Learned vectors cannot be compared with those of texts.
        if !matches!(folder.kind, ModelKind::Embedding(_)) || is_learned || topics.is_empty() {
            return Ok(Vec::new());
        }
        let mut models = app.models(&self.which.flags())?;
        let prepared = models.large.prepare(set)?;
        let vectors = prepared.label_vectors().unwrap_or_default();
        let Some((background, labels)) = vectors.split_last() else {
            return Ok(Vec::new());
        };
        if labels.len() < FEWEST {
            return Ok(Vec::new());
        }
        let mut between_labels = Vec::new();
        for (n, a) in labels.iter().enumerate() {
            between_labels.extend(labels[..n].iter().flat_map(|b| a.cosines_with(b)));
        }
        let apart = mean(&between_labels);
        let to_labels: Vec<Vec<f32>> = labels
            .iter()
            .map(|label| background.cosines_with(label).collect())
            .collect();
        let mut warnings = Vec::new();
        for (place, topic) in topics.iter().enumerate() {
            let cosines: Vec<f32> = to_labels.iter().map(|cosines| cosines[place]).collect();
            let closeness = mean(&cosines);
            let is_close = closeness >= apart + CLOSER;
            if is_close && cosines.iter().all(|cosine| *cosine >= apart - FARTHER) {
                let name = &topic.label;
                warnings.push(format!(
                    "the background topic `{name}` is closer to the labels than they are to each other (mean cosine \
                     {closeness:.2} and {apart:.2}), so many of their posts may become `other`: leave it out with \
                     `background_without = [\"{name}\"]`"
                ));
            }
        }
        Ok(warnings)
    }
}

/// The least difference between an umbrella topic's mean cosine and that of the labels. With the default model, it is
/// 0.18 for `fitness` and six labels of fitness, and 0.09 for `cars and driving` and three labels of cars. Of 600
/// random sets of five labels of the built-in sixteen, none has such a topic, and of three labels, 1.5 % have one.
const CLOSER: f32 = 0.08;
/// The most by which a label may be farther from the topic than from the other labels.
const FARTHER: f32 = 0.05;
/// The number of labels from which on their distances say how specific they are.
const FEWEST: usize = 3;

fn mean(cosines: &[f32]) -> f32 {
    cosines.iter().sum::<f32>() / cosines.len().max(1) as f32
}

/// Describes how the background is used, in sentences.
fn background_notes(set: &LabelSet, folder: Option<&ModelFolder>) -> Vec<String> {
    let Some(background) = &set.background else {
        return Vec::new();
    };
    let omitted: Vec<String> = set
        .omitted_topics()
        .iter()
        .map(|(topic, label)| format!("{topic} (for `{label}`)"))
        .collect();
    let (tag, total, count) = (background.tag(), background.topics.len(), omitted.len());
    let nothing = if total == count {
        "; none is left, so no post can be `other`"
    } else {
        ""
    };
    let mut notes = vec![if omitted.is_empty() {
        format!("no topic of the background {tag} shares a word with a label: all {total} are used")
    } else {
        format!(
            "{count} of {total} topics of the background {tag} share a word with a label and are left out: \
             {}{nothing}",
            omitted.join(", ")
        )
    }];
    if let Some(folder) = folder {
        let read = set.background_for(&folder.kind).len();
        let cost = match folder.kind {
            ModelKind::Nli(_) => format!(": each text needs {read} more pairs of text and topic"),
            ModelKind::Embedding(_) | ModelKind::Classifier(_) => ", at no extra cost".to_owned(),
            ModelKind::Gliclass(_) => ", together with the labels".to_owned(),
        };
        notes.push(format!(
            "`{}` compares a post with {read} topics of the background{cost}",
            folder.name
        ));
    }
    notes
}

/// Returns the number of tokens in each label's longest text, or an error if one is too long for the model.
fn check_lengths(folder: &ModelFolder, set: &LabelSet) -> Result<Vec<Option<usize>>, CliError> {
    let encoder = Encoder::load(folder).map_err(LabelerError::from)?;
    if let ModelKind::Gliclass(head) = &folder.kind {
        prompt(&encoder, folder, head, set)?;
    }
    let mut all = Vec::with_capacity(set.labels.len());
    for label in &set.labels {
        let mut longest = 0;
        for text in hypothesis::texts(&folder.kind, set, label) {
            let ids = encoder.encode_whole(&text).map_err(LabelerError::from)?;
            longest = longest.max(ids.len());
        }
        if !fits_window(&folder.kind, &encoder, longest) {
            return Err(CliError::Labeler(LabelerError::TooLong {
                label: label.slug.clone(),
                tokens: longest,
                window: encoder.max_tokens(),
            }));
        }
        all.push(Some(longest));
    }
    Ok(all)
}

fn printout(set: &LabelSet, folder: Option<&ModelFolder>, tokens: &[Option<usize>]) -> Printout {
    let rows = set.labels.iter().zip(tokens).map(|(label, tokens)| {
        let words = match folder.map(|folder| &folder.kind) {
            Some(ModelKind::Gliclass(_)) => label.label.clone(),
            _ => set.hypothesis(label),
        };
        json!({
            "slug": label.slug, "hypothesis": words, "descriptions": label.descriptions.len(), "tokens": tokens,
        })
    });
    let labels: Vec<Value> = rows.collect();
    let table = output::table_from_objects("slug, hypothesis, descriptions, tokens", &labels);
    let model = json!(folder.map(|folder| &folder.name));
    let omitted = set.omitted_topics().into_iter();
    let mut json = settings_json(set);
    json["labels"] = json!(labels);
    json["model"] = model.clone();
    json["background_left_out"] = omitted
        .map(|(topic, label)| json!({ "topic": topic, "label": label }))
        .collect();
    let checked = ("checked with the model".to_owned(), model);
    let facts = settings(set).into_iter().chain([checked]);
    let mut printout = Printout::new(json).with("", output::key_value_table("what", facts));
    printout.add_csv("", table);
    printout
}

/// Returns an error message if two labels cannot be distinguished, by any model or by this one.
fn indistinguishable_labels(set: &LabelSet, folder: Option<&ModelFolder>) -> Option<String> {
    let mut seen: BTreeMap<Vec<String>, &str> = BTreeMap::new();
    for label in &set.labels {
        let texts = std::iter::once(&label.label)
            .chain(&label.descriptions)
            .map(|text| text.trim().to_lowercase());
        if let Some(other) = seen.insert(texts.collect(), &label.slug) {
            return Some(format!(
                "labels `{other}` and `{}` have the same text, so no model can distinguish them: change or remove one",
                label.slug
            ));
        }
    }
    let folder = folder?;
    let (a, b) = *hypothesis::ambiguous_labels(&folder.kind, set).first()?;
    Some(format!(
        "labels `{a}` and `{b}` have the same text, and `{}` does not read descriptions: change the text of one, or \
         set --model to an embedding model",
        folder.name
    ))
}

/// Returns warnings about likely mistakes.
fn likely_mistakes(set: &LabelSet, topics: &[Topic], folder: Option<&ModelFolder>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, a) in set.labels.iter().enumerate() {
        for b in &set.labels[..i] {
            // Labels with the same text differ by their descriptions, or were rejected above.
            let words = |label: &Label| label.label.trim().to_lowercase();
            if words(a) != words(b) && nearly_same(&a.label, &b.label) {
                warnings.push(format!(
                    "labels `{}` and `{}` are nearly the same (`{}`, `{}`): posts will get either one by chance",
                    b.slug, a.slug, b.label, a.label
                ));
            }
        }
    }
    let mut of_subreddit: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for topic in topics {
        for subreddit in &topic.subreddits {
            let slugs = of_subreddit.entry(subreddit.to_lowercase());
            slugs.or_default().insert(&topic.slug);
        }
    }
    for (subreddit, slugs) in of_subreddit.iter().filter(|(_, slugs)| slugs.len() > 1) {
        let slugs: Vec<&str> = slugs.iter().copied().collect();
        warnings.push(format!(
            "r/{subreddit} is read for several topics ({}): its posts count for each of them",
            slugs.join(", ")
        ));
    }
    let Some(folder) = folder else {
        return warnings;
    };
    if matches!(folder.kind, ModelKind::Embedding(_)) {
        let is_bare = |label: &&Label| label.descriptions.iter().all(|text| text.trim().is_empty());
        let bare: Vec<&str> = set
            .labels
            .iter()
            .filter(is_bare)
            .map(|label| label.slug.as_str())
            .collect();
        if !bare.is_empty() {
            warnings.push(format!(
                "{} labels have no descriptions ({}): `{}` is more accurate with one or two sentences about each label",
                bare.len(), bare.join(", "), folder.name
            ));
        }
    }
    if let Some(template) = &folder.template
        && *template != set.template
    {
        warnings.push(format!(
            "`{}` was trained with the template `{template}`, but the label set has `{}`",
            folder.name, set.template
        ));
    }
    warnings
}

/// Returns true if two labels differ only in word order, plurals, articles or conjunctions, or by a typo.
fn nearly_same(a: &str, b: &str) -> bool {
    let (a, b) = (normalize(a), normalize(b));
    let longer = a.chars().count().max(b.chars().count());
    a == b || strsim::levenshtein(&a, &b) <= longer / 8
}

/// Normalises a label: lower case, sorted words, without articles, conjunctions and a plural `s`.
fn normalize(label: &str) -> String {
    let lower = label.to_lowercase();
    let mut words: Vec<&str> = lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !["", "a", "an", "and", "the", "of", "or"].contains(word))
        .map(|word| match word.strip_suffix('s') {
            Some(stem) if stem.len() > 2 => stem,
            _ => word,
        })
        .collect();
    words.sort_unstable();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_differ_in_form_only_are_nearly_the_same() {
        for (a, b) in [
            ("movie", "Movies"),
            ("the history of art", "art history"),
            ("personal finance", "personal finanse"),
        ] {
            assert!(nearly_same(a, b), "{a} / {b}");
        }
        for (a, b) in [("cars", "cats"), ("men's health", "women's health")] {
            assert!(!nearly_same(a, b), "{a} / {b}");
        }
    }
}
