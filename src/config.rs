//! Settings: loads them from four layers and records the origin of each value.
//!
//! The layers, each of which overrides the ones before it: the built-in defaults (`config/topicmill.toml`), a file, the
//! environment, flags. A key that is not in the defaults is an error that names the key and its layer, so a misspelt
//! key never falls back to the default silently.

mod secret_file;
mod sections;
pub mod toml_text;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use config::{Environment, File, FileFormat, Source, Value, ValueKind};
use serde::Deserialize;

pub use self::secret_file::readable_by_others;
pub use self::sections::{CommentText, Settings};
use self::toml_text::nearest;

/// The default settings: every key, with a comment.
pub const DEFAULTS: &str = include_str!("../config/topicmill.toml");
/// The settings file that is read from the current folder if it exists.
pub const FILE_NAME: &str = "topicmill.toml";
/// The maximum of `classify.threads`.
pub const MAX_THREADS: u16 = 1_024;
const PREFIX: &str = "TOPICMILL";
/// The default of `classify.model`, which is also searched for relative to the program.
const DEFAULT_MODEL: &str = "models/minilm-reddit-topics";

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
    /// The values do not deserialize into [`Settings`].
    #[error("cannot read the settings: {0}")]
    Shape(#[source] Box<config::ConfigError>),
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The built-in defaults.
    Default,
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "${name}"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// A secret value. Its `Debug` output is masked.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Returns the value, to be sent or compared.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "***" })
    }
}

/// A value with its origin.
#[derive(Debug, Clone)]
pub struct WithOrigin<V> {
    /// The value.
    pub value: V,
    /// The layer that sets it.
    pub origin: Origin,
}

/// Settings with the origin of each value.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The effective settings.
    pub settings: Settings,
    /// The value and origin of each `section.key`, sorted by key. Secrets are not masked: check [`is_secret`] before
    /// showing a value.
    pub values: BTreeMap<String, WithOrigin<String>>,
    /// Warnings to log once logging is set up.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// Returns the origin of the setting `key`, a `section.key` of the defaults.
    pub fn origin(&self, key: &str) -> &Origin {
        &self.values[key].origin
    }
}

/// Returns true if the value of a setting must not be shown.
pub fn is_secret(key: &str) -> bool {
    matches!(
        key,
        "reddit.client_secret" | "reddit.password" | "serve.token"
    )
}

/// Loads all layers. `file` is the path given with `--config`, `env` the environment, `flags` pairs of `section.key`
/// and value.
///
/// # Errors
/// See [`ConfigError`]; each error names the key and its layer.
pub fn load(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
    flags: &[(&str, String)],
) -> Result<Loaded, ConfigError> {
    let env: HashMap<String, String> = env.into_iter().collect();
    let defaults = File::from_str(DEFAULTS, FileFormat::Toml);
    let defaults = collect(|_| Origin::Default, &defaults)?;
    let mut layers = vec![defaults.clone()];
    let mut warnings = Vec::new();
    if let Some(path) = settings_file(file)? {
        let mut layer = read_layer(&path)?;
        // Paths in a pipe are relative to the current folder.
        let place = if path.is_file() {
            &*path
        } else {
            Path::new(FILE_NAME)
        };
        let absolute = std::path::absolute(place).unwrap_or_default();
        warnings.extend(secret_file::read_files(&mut layer, absolute.parent())?);
        resolve(&mut layer, &absolute)?;
        layers.push(layer);
    }
    let shared_variables = database_url(&env);
    // `try_parsing` is not set, because it would turn the secret "00123" into the number 123.
    let own_variables = Environment::with_prefix(PREFIX)
        .prefix_separator("__")
        .separator("__")
        .source(Some(env));
    let own_variables = collect(|key| Origin::Environment(variable(key)), &own_variables)?;
    for mut layer in [shared_variables, own_variables] {
        warnings.extend(secret_file::read_files(&mut layer, None)?);
        layers.push(layer);
    }
    let flag = |(key, value): &(&str, String)| {
        let value = Value::from(value.clone());
        let origin = Origin::Flag;
        ((*key).to_owned(), WithOrigin { value, origin })
    };
    layers.push(flags.iter().map(flag).collect());

    let shape = |error| ConfigError::Shape(Box::new(error));
    let mut builder = config::Config::builder();
    let mut values = BTreeMap::new();
    for (key, WithOrigin { value: raw, origin }) in layers.into_iter().flatten() {
        let Some(default) = defaults.get(&key) else {
            return Err(unknown_key(key, &origin, &defaults));
        };
        let value = check_kind(&key, &raw, &default.value)
            .map_err(|detail| value_error(&key, &origin, detail))?;
        builder = builder.set_override(&key, raw).map_err(shape)?;
        values.insert(key, WithOrigin { value, origin });
    }
    let settings = builder.build().and_then(config::Config::try_deserialize);
    Ok(Loaded {
        settings: settings.map_err(|error| wrong_value(error, &values))?,
        values,
        warnings,
    })
}

/// Reads `DATABASE_URL` and `DATABASE_URL_FILE`, which other programs also use.
fn database_url(env: &HashMap<String, String>) -> Layer {
    let variables = [
        ("database.url", "DATABASE_URL"),
        ("database.url_file", "DATABASE_URL_FILE"),
    ];
    let set = variables.into_iter().filter_map(|(key, name)| {
        let text = env.get(name).filter(|text| !text.is_empty())?;
        let value = Value::from(text.clone());
        let origin = Origin::Environment(name.into());
        Some((key.to_owned(), WithOrigin { value, origin }))
    });
    set.collect()
}

fn settings_file(named: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
    match named {
        // A device such as /dev/null and a pipe can be read, too.
        Some(path) if path.exists() => Ok(Some(path.to_owned())),
        Some(path) => Err(ConfigError::NoFile(path.to_owned())),
        None => Ok(Some(PathBuf::from(FILE_NAME)).filter(|path| path.is_file())),
    }
}

/// Reads the values of a settings file.
fn read_layer(path: &Path) -> Result<Layer, ConfigError> {
    let layer = || Origin::File(path.to_owned());
    let refused = |detail: String| ConfigError::Read {
        layer: layer(),
        detail,
    };
    let text = toml_text::read(path).map_err(|error| refused(error.to_string()))?;
    toml::from_str::<toml::Table>(&text)
        .map_err(|error| refused(toml_text::describe(&error, &text)))?;
    collect(|_| layer(), &File::from_str(&text, FileFormat::Toml))
}

/// Resolves relative paths against the folder of the settings file, whose absolute path is given.
fn resolve(layer: &mut Layer, file: &Path) -> Result<(), ConfigError> {
    let folder = file.parent().and_then(Path::to_str);
    for key in [
        "pipeline",
        "database.url",
        "classify.model",
        "onnxruntime.library",
        "openvino.library",
    ] {
        let Some(WithOrigin { value, origin }) = layer.get_mut(key) else {
            continue;
        };
        let ValueKind::String(text) = &mut value.kind else {
            continue;
        };
        let folder = folder.ok_or_else(|| {
            let detail =
                "the name of the file's folder is not UTF-8, so paths cannot be relative to it";
            value_error(key, origin, detail.to_owned())
        })?;
        if key == "database.url" {
            *text = sqlite_url_in_folder(folder, text);
        } else if !text.is_empty() {
            // If the default model is not here, keep it relative: it is also searched for relative to the program.
            let resolved = Path::new(folder).join(&text);
            if resolved.exists() || text != DEFAULT_MODEL {
                *text = resolved
                    .into_os_string()
                    .into_string()
                    .expect("both parts are UTF-8");
            }
        }
    }
    Ok(())
}

/// Resolves a relative SQLite URL against a folder. Leaves absolute paths and other databases alone.
fn sqlite_url_in_folder(folder: &str, url: &str) -> String {
    let Some(path) = url.strip_prefix("sqlite:") else {
        return url.to_owned();
    };
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path.starts_with(['/', '?', ':']) {
        return url.to_owned();
    }
    // The folder is percent-encoded, because the driver decodes the path.
    let encoded = folder.replace('%', "%25").replace('?', "%3F");
    format!("sqlite:{}/{path}", encoded.trim_end_matches('/'))
}

fn variable(key: &str) -> String {
    format!("{PREFIX}__{}", key.to_uppercase().replace('.', "__"))
}

/// The values of one layer by `section.key`.
type Layer = BTreeMap<String, WithOrigin<Value>>;

fn collect(origin: impl Fn(&str) -> Origin, source: &dyn Source) -> Result<Layer, ConfigError> {
    fn flatten(prefix: &str, value: Value, layer: &mut Vec<(String, Value)>) {
        let ValueKind::Table(table) = value.kind else {
            return layer.push((prefix.to_owned(), value));
        };
        for (key, value) in table {
            let key = match prefix {
                "" => key,
                _ => format!("{prefix}.{key}"),
            };
            flatten(&key, value, layer);
        }
    }
    let read = source.collect().map_err(|error| {
        let message = error.to_string();
        ConfigError::Read {
            layer: origin("…"),
            // The other lines of a parser error repeat the input, which may contain a secret.
            detail: message.lines().next().unwrap_or_default().to_owned(),
        }
    })?;
    let mut flat = Vec::new();
    flatten("", read.into(), &mut flat);
    let with_origin = |(key, value): (String, Value)| {
        let origin = origin(&key);
        (key, WithOrigin { value, origin })
    };
    Ok(flat.into_iter().map(with_origin).collect())
}

fn unknown_key(key: String, origin: &Origin, defaults: &Layer) -> ConfigError {
    let known: Vec<String> = defaults
        .keys()
        .flat_map(|key| std::iter::once(key.clone()).chain(secret_file::file_key(key)))
        .collect();
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
        format!(
            "`{key}` is a section, written [{key}], with {}",
            keys.join(", ")
        )
    } else if let Some(keys) = sections.get(section) {
        let meant = nearest(name, keys.iter().copied())
            .map_or(String::new(), |meant| format!("did you mean `{meant}`? "));
        format!("{meant}[{section}] has {}", keys.join(", "))
    } else {
        let names: Vec<&str> = sections.into_keys().collect();
        format!(
            "the sections are {}; `pipeline` goes above them",
            names.join(", ")
        )
    };
    let place = place_of(&key, origin);
    ConfigError::UnknownKey { key, place, hint }
}

/// Returns the valid range of an integer setting.
fn range_of(key: &str) -> RangeInclusive<u64> {
    match key {
        // Each engine needs its own core or device, and memory for a model.
        "classify.workers" => 1..=64,
        // More than any machine's cores, yet few enough to start.
        "classify.threads" => 0..=MAX_THREADS.into(),
        "classify.lease_secs" => 3..=86_400,
        // Reddit lists no more.
        "collect.limit" => 1..=1_000,
        "collect.comments_limit" | "collect.page_cap" | "classify.max_attempts" => {
            1..=u32::MAX.into()
        }
        _ => 0..=u32::MAX.into(),
    }
}

/// Adds the key and the origin to the error about a value.
fn wrong_value(
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

fn value_error(key: &str, origin: &Origin, detail: String) -> ConfigError {
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

/// Formats a value; returns a message if it does not have the type of its default.
fn check_kind(key: &str, value: &Value, default: &Value) -> Result<String, String> {
    let shown = if is_secret(key) {
        "the value".to_owned()
    } else {
        format!("`{value}`")
    };
    match &default.kind {
        ValueKind::I64(_) => {
            let range = range_of(key);
            let number = whole_number(&value.kind).filter(|number| range.contains(number));
            let (min, max) = range.into_inner();
            number
                .map(|number| number.to_string())
                .ok_or_else(|| format!("{shown} is not a whole number from {min} to {max}"))
        }
        ValueKind::Boolean(_) => match value.clone().into_bool() {
            Ok(is_set) => Ok(is_set.to_string()),
            Err(_) => Err(format!("{shown} is neither true nor false")),
        },
        _ => match value.kind {
            // `batch_tokens = 512` means the same as `"512"`.
            ValueKind::String(_)
            | ValueKind::I64(_)
            | ValueKind::Float(_)
            | ValueKind::Boolean(_) => Ok(value.to_string()),
            _ => Err("expected a string in quotes".to_owned()),
        },
    }
}

/// Reads an integer of 0 or more, or a string with one, as in the environment. The `config` crate is not used for this,
/// because it would round fractions and read `true` as 1.
fn whole_number(kind: &ValueKind) -> Option<u64> {
    match kind {
        ValueKind::I64(number) => u64::try_from(*number).ok(),
        ValueKind::U64(number) => Some(*number),
        ValueKind::String(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
