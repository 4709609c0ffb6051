//! Secrets in files: replaces `section.key_file` in a layer with `section.key`, read from that file.
//!
//! Containers and systemd pass secrets as files, because a process's environment is visible to others. Works for each
//! secret and for the database URL, in a settings file and in the environment.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use config::{Value, ValueKind};

use super::{ConfigError, Layer, WithOrigin, is_secret, value_error};

/// Maximum length of a secret. A longer file is a mistake, or endless, such as `/dev/zero`.
const LONGEST_BYTES: u64 = 64 * 1024;
/// The folder of secrets in a container. Its files are visible only inside the container, whatever their mode.
const CONTAINER_SECRETS: &str = "/run/secrets";

/// Suffix of a key whose value is a file name.
const FILE_SUFFIX: &str = "_file";

/// Reads the secret files that a layer names. Paths are relative to `folder`, or to the current folder. Returns
/// warnings to log.
///
/// # Errors
/// A file that cannot be read or contains no secret, or a layer that sets both the secret and its file.
pub(super) fn read_files(
    layer: &mut Layer,
    folder: Option<&Path>,
) -> Result<Vec<String>, ConfigError> {
    let bases = layer.keys().filter_map(|key| key.strip_suffix(FILE_SUFFIX));
    let secrets = bases.filter(|key| may_have_file(key));
    let keys: Vec<String> = secrets.map(str::to_owned).collect();
    let mut warnings = Vec::new();
    for key in keys {
        let file_key = format!("{key}{FILE_SUFFIX}");
        let WithOrigin { value, origin } = layer.remove(&file_key).expect("it was just listed");
        let refused = |detail: String| value_error(&file_key, &origin, detail);
        let ValueKind::String(file) = value.kind else {
            return Err(refused("expected the path of a file, in quotes".to_owned()));
        };
        // An empty value means "not set", as elsewhere.
        if file.is_empty() {
            continue;
        }
        if layer.contains_key(&key) {
            return Err(refused(format!(
                "`{key}` is also set; remove one of the two"
            )));
        }
        let path = folder.map_or_else(|| PathBuf::from(&file), |folder| folder.join(&file));
        let secret = read(&path)
            .map_err(|why| refused(format!("cannot read `{}`: {why}", path.display())))?;
        warnings.extend(readable_by_others(&path));
        let value = Value::from(secret);
        layer.insert(key, WithOrigin { value, origin });
    }
    Ok(warnings)
}

/// Returns the key that names a file with this setting, if the setting may be read from a file.
pub(super) fn file_key(key: &str) -> Option<String> {
    may_have_file(key).then(|| format!("{key}{FILE_SUFFIX}"))
}

/// Returns true if a setting may be read from a file.
fn may_have_file(key: &str) -> bool {
    is_secret(key) || key == "database.url"
}

/// Reads the only line of a file, without its line break. Errors never contain the content.
fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            format!("{error}; create the file, let this user read it, or correct the path")
        })?;
    if bytes.len() as u64 > LONGEST_BYTES {
        return Err("it is longer than any secret; correct the path".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text; correct the path")?;
    let secret = text.trim_end_matches(['\n', '\r']);
    if secret.is_empty() {
        return Err("it is empty; write the secret into it".to_owned());
    }
    if secret.contains(['\n', '\r', '\0']) {
        return Err("it has more than one line; write only the secret into it".to_owned());
    }
    Ok(secret.to_owned())
}

/// Returns a warning if other users of the machine can read the secret.
pub fn readable_by_others(path: &Path) -> Option<String> {
    let metadata = path.metadata().ok()?;
    let mode = metadata.permissions().mode() & 0o777;
    let is_open = metadata.is_file() && mode & 0o004 != 0 && !path.starts_with(CONTAINER_SECRETS);
    is_open.then(|| {
        let path = path.display();
        format!("every user of this machine can read the secret in `{path}` (mode {mode:03o}): run `chmod o= {path}`")
    })
}
