//! Reads the file names of the Hub's exports, for folders without a manifest. In: the files of a folder and a
//! precision. Out: the graph in this precision, its external weights files, and the precision that its name states.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ModelError, required};

/// Returns the path of the graph in a precision; without a precision, of the float32 graph or the only one.
pub(super) fn choose_graph(dir: &Path, precision: Option<&str>) -> Result<PathBuf, ModelError> {
    let mut files = files_in(dir)?;
    let subfolder = dir.join("onnx");
    if subfolder.is_dir() {
        files.extend(files_in(&subfolder)?);
    }
    let relative = |path: &PathBuf| path.strip_prefix(dir).unwrap_or(path).display().to_string();
    let graphs = files.iter().filter(|path| has_extension(path, "onnx"));
    let graphs: Vec<String> = graphs.map(relative).collect();
    if graphs.is_empty() {
        return Err(no_graph(dir, &files));
    }
    if let Some(graph) = select_graph(&graphs, precision) {
        return Ok(dir.join(graph));
    }
    let (dir, names) = (dir.display(), graphs.join(", "));
    Err(match precision {
        Some(precision) => ModelError::Precision(format!(
            "the model folder `{dir}` has no graph of precision `{precision}` (looked for {}; there is {names})",
            graph_names(precision).join(", ")
        )),
        None => ModelError::Ambiguous(format!(
            "the model folder `{dir}` has several graphs ({names}): select one by precision"
        )),
    })
}

/// Returns the error for a folder with these files, none of which is a graph.
fn no_graph(dir: &Path, files: &[PathBuf]) -> ModelError {
    let is_weights =
        |path: &&PathBuf| has_extension(path, "safetensors") || has_extension(path, "bin");
    match files.iter().rfind(is_weights) {
        Some(weights) => ModelError::File(format!(
            "`{}` has weights without a graph: make the graph with tools/model.py",
            weights.display()
        )),
        None => ModelError::NoFile(dir.to_owned(), "*.onnx".to_owned()),
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|own| own == extension)
}

/// Selects the graph in this precision, at the top or in `onnx/`, by the Hub's file names. Without a precision, this is
/// the float32 graph or the only one.
pub fn select_graph<'a, S: AsRef<str>>(
    graphs: &'a [S],
    precision: Option<&str>,
) -> Option<&'a str> {
    let names = graph_names(precision.unwrap_or("fp32"));
    let in_onnx = names.iter().map(|name| format!("onnx/{name}"));
    let mut paths = names.iter().cloned().chain(in_onnx);
    let preferred = paths.find_map(|path| graphs.iter().find(|graph| graph.as_ref() == path));
    let only = match graphs {
        [graph] if precision.is_none() => Some(graph),
        _ => None,
    };
    preferred.or(only).map(AsRef::as_ref)
}

/// Returns the file names that the Hub uses for a graph in this precision.
fn graph_names(precision: &str) -> Vec<String> {
    match precision {
        "fp32" => vec!["model.onnx".to_owned()],
        "int8" => vec![
            "model_int8.onnx".to_owned(),
            "model_quantized.onnx".to_owned(),
        ],
        other => vec![format!("model_{other}.onnx")],
    }
}

/// Returns true if a path is a weights file of a graph: `model.onnx.data`, `model.onnx_data` or `…_data_1` next to
/// `model.onnx`. Protobuf messages are limited, so weights over 2 GiB are in external files.
pub fn is_external_data(path: &str, graph: &str) -> bool {
    let rest = path.strip_prefix(graph).unwrap_or_default();
    rest.starts_with(".data") || rest.starts_with("_data")
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

/// Returns the external weights files for a graph: the files that the graph names, and [those named like
/// it](is_external_data).
pub(super) fn external_data(graph: &Path, weights: &[String]) -> Result<Vec<PathBuf>, ModelError> {
    let graph_name = graph.file_name().unwrap_or_default().to_string_lossy();
    let folder = graph.parent().expect("the graph was found in a folder");
    let mut files = files_in(folder)?;
    files.retain(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        is_external_data(&file, &graph_name)
    });
    for name in weights {
        files.push(required(folder, name)?);
    }
    files.sort();
    // A file with a matching name may also be listed in the graph.
    files.dedup();
    Ok(files)
}
