//! Writes the settings of a calibrated label set into the text of a pipeline file, whose other content is kept.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, TomlError, value};

use topicmill_core::LabelSet;

/// Returns a pipeline file with the settings of a label set. The rest of the file is kept, comments included. A
/// background file gets an absolute path, because the new file may be outside `folder`.
pub(super) fn with_settings(
    text: &str,
    set: &LabelSet,
    folder: Option<&Path>,
) -> Result<String, TomlError> {
    let mut file: DocumentMut = text.parse()?;
    if let Some(path) = absolute_background(&file, folder) {
        let path = path.to_string_lossy().into_owned();
        replace_value(&mut file, "background", value(path));
    }
    replace_value(&mut file, "name", value(set.name.as_str()));
    replace_value(&mut file, "mode", value(set.mode.as_str()));
    replace_value(&mut file, "threshold", value(set.threshold));
    replace_value(&mut file, "temperature", value(set.temperature));
    if let Some(background) = &set.background {
        let weight = value(background.weight);
        replace_value(&mut file, "background_weight", weight);
    }
    Ok(file.to_string())
}

/// Sets the value of a key. The comments around it are kept.
fn replace_value(file: &mut DocumentMut, key: &str, new: Item) {
    match file.get_mut(key) {
        Some(item) => {
            let decor = item.as_value().map(|old| old.decor().clone());
            *item = new;
            if let (Some(value), Some(decor)) = (item.as_value_mut(), decor) {
                *value.decor_mut() = decor;
            }
        }
        None => {
            file.insert(key, new);
        }
    }
}

/// Returns the absolute path of the background file that a pipeline file in `folder` names, if it names one.
fn absolute_background(file: &DocumentMut, folder: Option<&Path>) -> Option<PathBuf> {
    match file.get("background").and_then(Item::as_str)? {
        "reddit" | "none" => None,
        path => std::path::absolute(folder?.join(path)).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline_file::{Pipeline, SIXTEEN_TOPICS};
    use topicmill_core::{Listing, Mode};

    #[test]
    fn a_pipeline_file_keeps_its_comments() {
        let read = Pipeline::load(None, Listing::Hot, 1);
        let set = LabelSet {
            mode: Mode::Multi,
            threshold: 0.25,
            temperature: 1.5,
            ..read.unwrap().label_set
        };
        let text = "# mine\nname = \"t\"\nmode = \"single\" # one\n# how sure\nthreshold = 0.0 # none\n\n# \
                    topics\n[[topic]]\nslug = \"a\" # first\n";
        let expected = "# mine\nname = \"sixteen-topics\"\nmode = \"multi\" # one\n# how sure\nthreshold = 0.25 # \
                        none\ntemperature = 1.5\n\n# topics\n[[topic]]\nslug = \"a\" # first\n";
        assert_eq!(with_settings(text, &set, None).unwrap(), expected);
        assert_eq!(with_settings(expected, &set, None).unwrap(), expected);
        // A background file gets an absolute path; a built-in background remains a name.
        for (named, expected) in [
            ("own.toml", "background = \"/old/own.toml\" # mine"),
            ("reddit", "background = \"reddit\" # mine"),
        ] {
            let text = format!("background = \"{named}\" # mine\n");
            let written = with_settings(&text, &set, Some(Path::new("/old"))).unwrap();
            assert!(written.contains(expected), "{written}");
        }
        let built_in = with_settings(SIXTEEN_TOPICS, &set, None).unwrap();
        let differing = SIXTEEN_TOPICS
            .lines()
            .zip(built_in.lines())
            .filter(|(a, b)| a != b);
        assert_eq!(differing.count(), 3, "{built_in}");
    }
}
