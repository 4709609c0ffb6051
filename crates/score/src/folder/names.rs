//! Selects a graph by file name, as in the Hub's exports, for folders without a manifest.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ModelError, required};

pub(super) fn choose_graph(dir: &Path, precision: Option<&str>) -> Result<PathBuf, ModelError> {
    let folders = [dir.to_owned(), dir.join("onnx")];
    let first_of = |names: &[String]| {
        folders
            .iter()
            .flat_map(|folder| names.iter().map(|name| folder.join(name)))
            .find(|path| path.is_file())
    };
    let relative = |path: &PathBuf| path.strip_prefix(dir).unwrap_or(path).display().to_string();
    let names = |found: &[PathBuf]| found.iter().map(relative).collect::<Vec<_>>().join(", ");

    let mut found = Vec::new();
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        found.extend(
            files_in(folder)?
                .into_iter()
                .filter(|path| path.extension().is_some_and(|e| e == "onnx")),
        );
    }
    if found.is_empty() {
        return Err(ModelError::NoFile(dir.to_owned(), "*.onnx".to_owned()));
    }
    if let Some(precision) = precision {
        let wanted = graph_names(precision);
        return first_of(&wanted).ok_or_else(|| {
            ModelError::Precision(format!(
                "the model folder `{}` has no graph of precision `{precision}` (looked for {}; there is {})",
                dir.display(),
                wanted.join(", "),
                names(&found)
            ))
        });
    }
    match (first_of(&["model.onnx".to_owned()]), found.as_slice()) {
        (Some(graph), _) => Ok(graph),
        (None, [only]) => Ok(only.clone()),
        (None, several) => Err(ModelError::Ambiguous(format!(
            "the model folder `{}` has several graphs ({}): select one by precision",
            dir.display(),
            names(several)
        ))),
    }
}

/// Returns the file names that the Hub uses for a graph in this precision.
pub fn graph_names(precision: &str) -> Vec<String> {
    match precision {
        "fp32" => vec!["model.onnx".to_owned()],
        "int8" => vec![
            "model_int8.onnx".to_owned(),
            "model_quantized.onnx".to_owned(),
        ],
        other => vec![format!("model_{other}.onnx")],
    }
}

/// Returns the files in a folder, sorted by name.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let read = ModelError::read(folder);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(&read)? {
        let path = entry.map_err(&read)?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the precision from the file name: `model_fp16.onnx` is `fp16`. If the name states none, the operators
/// determine the precision.
pub(super) fn precision_of(graph: &Path, is_int8: bool) -> String {
    let stem = graph.file_stem().unwrap_or_default().to_string_lossy();
    match stem.strip_prefix("model_") {
        Some("quantized") => "int8".to_owned(),
        Some(word) => word.to_owned(),
        None if is_int8 => "int8".to_owned(),
        None => "fp32".to_owned(),
    }
}

/// Returns the external weights files for a graph: the files that the graph names, and `model.onnx.data`,
/// `model.onnx_data` or `…_data_1` next to it.
pub(super) fn external_data(graph: &Path, weights: &[String]) -> Result<Vec<PathBuf>, ModelError> {
    let name = graph
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let folder = graph.parent().expect("the graph was found in a folder");
    let mut files = files_in(folder)?;
    files.retain(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.strip_prefix(&name)
            .is_some_and(|rest| rest.starts_with(".data") || rest.starts_with("_data"))
    });
    for name in weights {
        files.push(required(folder, name)?);
    }
    files.sort();
    // A file with a matching name may also be listed in the graph.
    files.dedup();
    Ok(files)
}
