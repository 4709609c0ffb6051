//! Settings: loads them from four layers and records the origin of each value.
//!
//! The layers, each of which overrides the ones before it: the built-in defaults (`config/topicmill.toml`), a file, the
//! environment, flags. A key that is not in the defaults is an error that names the key and its layer, so a misspelt
//! key never falls back to the default silently.

mod error;
mod paths;
mod secret_file;
mod sections;
pub mod toml_text;
mod values;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use config::{Environment, File, FileFormat, Source, Value, ValueKind};
use serde::Deserialize;

pub use self::error::ConfigError;
use self::error::{unknown_key, value_error, wrong_value};
pub use self::secret_file::readable_by_others;
pub use self::sections::{CommentText, Settings};
use self::values::check_kind;

/// The default settings: every key, with a comment.
pub const DEFAULTS: &str = include_str!("../config/topicmill.toml");
/// The settings file that is read from the current folder if it exists.
pub const FILE_NAME: &str = "topicmill.toml";
/// The maximum of `classify.threads`.
pub const MAX_THREADS: u16 = 1_024;
/// The prefix of topicmill's own variables.
const PREFIX: &str = "TOPICMILL";

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
    let mut warnings = Vec::new();
    let defaults = File::from_str(DEFAULTS, FileFormat::Toml);
    let defaults = collect(|_| Origin::Default, &defaults)?;
    let mut layers = vec![defaults.clone()];
    if let Some(path) = settings_file(file)? {
        layers.push(file_layer(&path, &mut warnings)?);
    }
    layers.extend(variable_layers(env.into_iter().collect(), &mut warnings)?);
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

/// Returns the layers of the environment: the variables that other programs also use, then topicmill's own.
fn variable_layers(
    env: HashMap<String, String>,
    warnings: &mut Vec<String>,
) -> Result<[Layer; 2], ConfigError> {
    let shared = database_url(&env);
    // `try_parsing` is not set, because it would turn the secret "00123" into the number 123.
    let own = Environment::with_prefix(PREFIX)
        .prefix_separator("__")
        .separator("__")
        .source(Some(env));
    let own = collect(|key| Origin::Environment(variable(key)), &own)?;
    let mut layers = [shared, own];
    for layer in &mut layers {
        warnings.extend(secret_file::read_files(layer, None)?);
    }
    Ok(layers)
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

/// Returns the settings file: the one given with `--config`, or the usual one if it exists.
fn settings_file(named: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
    match named {
        // A device such as /dev/null and a pipe can be read, too.
        Some(path) if path.exists() => Ok(Some(path.to_owned())),
        Some(path) => Err(ConfigError::NoFile(path.to_owned())),
        None => Ok(Some(PathBuf::from(FILE_NAME)).filter(|path| path.is_file())),
    }
}

/// Returns the layer of a settings file, with the secrets in the files that it names. Its relative paths are resolved.
fn file_layer(path: &Path, warnings: &mut Vec<String>) -> Result<Layer, ConfigError> {
    let mut layer = read_layer(path)?;
    // Paths in a pipe are relative to the current folder.
    let named = Some(path).filter(|path| path.is_file());
    let absolute = std::path::absolute(named.unwrap_or(Path::new(FILE_NAME))).unwrap_or_default();
    warnings.extend(secret_file::read_files(&mut layer, absolute.parent())?);
    paths::resolve(&mut layer, &absolute)?;
    Ok(layer)
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

/// Returns the name of topicmill's own variable for a setting.
fn variable(key: &str) -> String {
    format!("{PREFIX}__{}", key.to_uppercase().replace('.', "__"))
}

/// The values of one layer by `section.key`.
type Layer = BTreeMap<String, WithOrigin<Value>>;

/// Reads a source into a layer, with the origin of each value.
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

#[cfg(test)]
mod tests;
