//! Parses a pipeline file key by key. Unlike serde, which stops at the first error, it reports all mistakes.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};
use topicmill_score::label_file::{DEFAULT_TEMPLATE, FitSection};
use topicmill_score::{Background, Fitted, Label, LabelSet, LabelSetError, Mode};

use super::Pipeline;
use super::mistakes::{Findings, Mistakes, quoted};
use super::schedules;
use super::section::{Located, Section};
use super::topics::{Defaults, FILE_KEYS, TOPIC_KEYS, read_topics};
use crate::config::toml_text;
use topicmill_core::Topic;

/// Parses the text of a pipeline file.
pub(super) fn read(text: &str, defaults: Defaults) -> Result<Pipeline, Mistakes> {
    let mut found = Findings::default();
    let (table, broken) = toml_text::parse(text);
    for (at, message) in broken {
        found.syntax(at, message);
    }
    let form = read_file(Section::new(table.get_ref(), 0), defaults, &mut found);
    match found.mistakes(text) {
        None => Ok(form),
        Some(mistakes) => Err(mistakes),
    }
}

fn read_file(file: Section, defaults: Defaults, found: &mut Findings) -> Pipeline {
    let topic_keys = (TOPIC_KEYS, "below a [[topic]]");
    file.unknown_keys(FILE_KEYS, Some(topic_keys), found);
    let name = file.text("name", found);
    let template = file.text("hypothesis_template", found);
    let mode = file.word::<Mode>("mode", found);
    let threshold = file.number("threshold", found);
    let temperature = file.number("temperature", found);
    let background = file.get("background").map(|value| value.span().start);
    let background_topics = read_background(file, defaults.folder, found);
    let fitted = file.get("fitted").map(|value| value.span().start);
    let topics = read_topics(file, defaults, found);
    if let Some(name) = name.as_ref().filter(|name| name.value.trim().is_empty()) {
        found.wrong(
            name.at,
            "`name` is empty: give the label set a name, or leave the key out",
        );
    }
    let labels = topics.iter().map(|read| topic_label(&read.topic)).collect();
    let mut label_set = LabelSet {
        name: name.map_or_else(|| defaults.name.to_owned(), |name| name.value),
        template: template
            .as_ref()
            .map_or(DEFAULT_TEMPLATE, |template| &template.value)
            .to_owned(),
        mode: mode.map_or(Mode::Single, |mode| mode.value),
        threshold: threshold.as_ref().map_or(0.0, |threshold| threshold.value),
        temperature: temperature.as_ref().map_or(1.0, |placed| placed.value),
        labels,
        background: background_topics,
        fitted: None,
    };
    label_set.fitted = read_fit(file, &label_set, found);
    for fault in label_set.faults() {
        let at = match &fault {
            LabelSetError::Template(_) => template.as_ref().map(|placed| placed.at),
            LabelSetError::Threshold(_) => threshold.as_ref().map(|placed| placed.at),
            LabelSetError::Temperature(_) => temperature.as_ref().map(|placed| placed.at),
            LabelSetError::Background(_) => background,
            LabelSetError::Fitted(_) => fitted,
            LabelSetError::Taken(slug) => {
                let taken = topics.iter().find(|read| read.topic.slug == *slug);
                taken.map(|read| read.at)
            }
            // Reported with the topics, where both positions are known.
            LabelSetError::Empty | LabelSetError::Blank(_) | LabelSetError::Twice(_) => continue,
            // Faults of any other kind are reported at the start of the file.
            _ => None,
        };
        found.wrong(at.unwrap_or_default(), fault.to_string());
    }
    let shares = topics.iter().filter_map(|read| {
        let shares = read.shares.clone()?;
        Some((read.topic.slug.clone(), shares))
    });
    let shares = shares.collect();
    Pipeline {
        schedules: schedules::read(file, found),
        name: label_set.name.clone(),
        topics: topics.into_iter().map(|read| read.topic).collect(),
        label_set,
        shares,
    }
}

/// Reads the background, without the topics that the file excludes.
fn read_background(file: Section, folder: &Path, found: &mut Findings) -> Option<Background> {
    let without = file.texts("background_without", found);
    let weight = file.number("background_weight", found);
    let value = file.get("background")?;
    let (mut background, name) = if value.get_ref().is_table() {
        let background: Background = section("background", value, found)?;
        let name = quoted(&background.name);
        (background, name)
    } else {
        let named = file.text("background", found)?;
        let name = quoted(&named.value);
        match background(&named.value, folder) {
            Ok(background) => (background?, name),
            Err(error) => {
                found.wrong(named.at, format!("the background {name}: {error}"));
                return None;
            }
        }
    };
    for Located { at, value } in without {
        if let Err(error) = background.leave_out(&[value]) {
            found.wrong(at, format!("the background {name}: {error}"));
        }
    }
    if let Some(Located { at, value }) = weight {
        background.weight = value;
        if let Err(error) = background.validate() {
            found.wrong(at, format!("the background {name}: {error}"));
            background.weight = 1.0;
        }
    }
    Some(background)
}

/// Returns the background with this name: the built-in one, none, or one read from a file in `folder`.
///
/// # Errors
/// A message if there is no such background.
pub fn background(named: &str, folder: &Path) -> Result<Option<Background>, String> {
    Background::named(named, |path| {
        toml_text::read(&folder.join(path)).map_err(|error| error.to_string())
    })
}

/// Reads the label set's fit.
fn read_fit(file: Section, set: &LabelSet, found: &mut Findings) -> Option<Fitted> {
    let value = file.get("fitted")?;
    let fit: FitSection = section("fitted", value, found)?;
    match fit.into_fitted(set) {
        Ok(fitted) => Some(fitted),
        Err(error) => {
            found.wrong(value.span().start, format!("`fitted`: {error}"));
            None
        }
    }
}

/// Deserializes a section; only its first mistake is reported.
fn section<T: DeserializeOwned>(
    key: &str,
    value: &Spanned<DeValue>,
    found: &mut Findings,
) -> Option<T> {
    match T::deserialize(ValueDeserializer::from(value.clone())) {
        Ok(section) => Some(section),
        Err(error) => {
            let at = error.span().unwrap_or(value.span()).start;
            found.wrong(at, format!("`{key}`: {}", error.message()));
            None
        }
    }
}

fn topic_label(topic: &Topic) -> Label {
    Label {
        slug: topic.slug.clone(),
        label: topic.label.clone(),
        descriptions: topic.descriptions.clone(),
    }
}
