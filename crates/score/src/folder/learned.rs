//! Reads the learned label vectors of an embedding model: the JSON file named in the `zero_shot` block of
//! `config.json`.

use std::path::Path;

use serde::Deserialize;

use topicmill_core::model_kind::{LearnedLabel, LearnedLabels};

use super::{ModelError, bounds, read_json};

/// The content of the JSON file.
#[derive(Debug, Deserialize)]
struct LabelVectorsFile {
    labels: Vec<LearnedLabel>,
}

/// Reads the learned label vectors in a file.
pub(super) fn read(path: &Path) -> Result<LearnedLabels, ModelError> {
    let file: LabelVectorsFile = read_json(path)?;
    LearnedLabels::new(file.labels).map_err(|detail| {
        ModelError::File(format!(
            "cannot use the label vectors in `{}`: {detail}; build the file again, or remove `label_vectors` from the \
             `zero_shot` block of `config.json` to use the labels' texts",
            path.display()
        ))
    })
}

/// Returns true for a plain file name that ends in `.json`; the file must be in the model folder.
pub(super) fn is_json_file_name(name: &str) -> bool {
    let path = Path::new(name);
    path.file_name().is_some_and(|file| file == name) && bounds::is_json(path)
}
