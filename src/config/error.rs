//! Errors in settings, which name the key and the place that sets it: a line of a file, a variable or a flag.

use std::collections::BTreeMap;
use std::iter;
use std::path::PathBuf;

use super::toml_text::{self, nearest};
use super::{Layer, Origin, WithOrigin, secret_file};

/// Reasons why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file named with `--config` does not exist.
    #[error("cannot read the settings: there is no file `{0}`; check --config")]
    NoFile(PathBuf),
    /// A layer cannot be read.
    #[error("cannot read the settings of {layer}: {detail}")]
    Read {
        /// The layer.
        layer: Origin,
        /// Position and error, without the line itself, which may contain a secret.
        detail: String,
    },
    /// An unknown key.
    #[error("unknown setting `{key}` in {place}; {hint}")]
    UnknownKey {
        /// `section.key`.
        key: String,
        /// The layer that sets it, with the line in a file.
        place: String,
        /// The known keys.
        hint: String,
    },
    /// A value that the setting does not accept.
    #[error("setting `{key}` in {place}: {detail}")]
    Value {
        /// `section.key`.
        key: String,
        /// The origin of the value, with the line in a file.
        place: String,
        /// The error.
        detail: String,
    },
    /// The values do not deserialize into [`Settings`](super::Settings).
    #[error("cannot read the settings: {0}")]
    Shape(#[source] Box<config::ConfigError>),
}

/// Returns the error for a key that is not in the defaults, with the keys that may be meant.
pub(super) fn unknown_key(key: String, origin: &Origin, defaults: &Layer) -> ConfigError {
    let with_file = |key: &String| iter::once(key.clone()).chain(secret_file::file_key(key));
    let known: Vec<String> = defaults.keys().flat_map(with_file).collect();
    let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (section, key) in known.iter().filter_map(|known| known.split_once('.')) {
        sections.entry(section).or_default().push(key);
    }
    let section = key.split('.').next().unwrap_or_default();
    let name = key.rsplit('.').next().unwrap_or_default();
    let hint = if defaults.contains_key(name) {
        // A key below a section header belongs to that section, and people append lines to files.
        format!("write `{name}` above the first section")
    } else if let Some(keys) = sections.get(key.as_str()) {
        let keys = keys.join(", ");
        format!("`{key}` is a section, written [{key}], with {keys}")
    } else if let Some(keys) = sections.get(section) {
        let meant = nearest(name, keys.iter().copied())
            .map_or(String::new(), |meant| format!("did you mean `{meant}`? "));
        format!("{meant}[{section}] has {}", keys.join(", "))
    } else {
        let sections = sections.into_keys().collect::<Vec<_>>().join(", ");
        format!("the sections are {sections}; `pipeline` goes above them")
    };
    let place = place_of(&key, origin);
    ConfigError::UnknownKey { key, place, hint }
}

/// Adds the key and the origin to the error about a value.
pub(super) fn wrong_value(
    error: config::ConfigError,
    values: &BTreeMap<String, WithOrigin<String>>,
) -> ConfigError {
    match error {
        config::ConfigError::At {
            error,
            key: Some(key),
            ..
        } if values.contains_key(&key) => {
            value_error(&key, &values[&key].origin, error.to_string())
        }
        error => ConfigError::Shape(Box::new(error)),
    }
}

/// Returns the error for a value, given what is wrong with it.
pub(super) fn value_error(key: &str, origin: &Origin, detail: String) -> ConfigError {
    ConfigError::Value {
        key: key.to_owned(),
        place: place_of(key, origin),
        detail,
    }
}

/// Returns the origin of a setting for an error, with the line in a file.
fn place_of(key: &str, origin: &Origin) -> String {
    let line_in = |path| {
        let text = toml_text::read(path).ok()?;
        let document = toml_edit::Document::parse(&text).ok()?;
        let mut parts = key.split('.');
        let item = parts.try_fold(document.as_item(), |item, part| item.get(part))?;
        Some(1 + text.get(..item.span()?.start)?.matches('\n').count())
    };
    let line = match origin {
        // A pipe cannot be read again.
        Origin::File(path) if path.is_file() => line_in(path),
        _ => None,
    };
    line.map_or_else(
        || origin.to_string(),
        |line| format!("{origin}, line {line}"),
    )
}
