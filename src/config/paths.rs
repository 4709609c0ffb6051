//! Resolves the relative paths in a settings file against its folder.

use std::path::Path;

use config::ValueKind;

use super::error::value_error;
use super::{ConfigError, Layer, WithOrigin};

/// The default of `classify.model`, which is also searched for relative to the program.
pub(super) const DEFAULT_MODEL: &str = "models/minilm-reddit-topics";

/// Resolves relative paths against the folder of the settings file, whose absolute path is given.
pub(super) fn resolve(layer: &mut Layer, file: &Path) -> Result<(), ConfigError> {
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
                let resolved = resolved.into_os_string().into_string();
                *text = resolved.expect("both parts are UTF-8");
            }
        }
    }
    Ok(())
}

/// Resolves a relative SQLite URL against a folder. Leaves absolute paths and other databases alone.
pub(super) fn sqlite_url_in_folder(folder: &str, url: &str) -> String {
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
