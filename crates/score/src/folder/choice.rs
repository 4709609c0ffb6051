//! Selects a folder's graph and the precision that it runs in.

use std::path::{Path, PathBuf};

use super::manifest::{GraphSpec, Manifest};
use super::names::{choose_graph, precision_of};
use super::{FixedShape, GraphMetadata, ModelError, Processor, Rounding, graph};

/// The selected graph.
pub(super) struct Choice {
    /// The graph's entry in the manifest, if there is one.
    pub(super) spec: Option<GraphSpec>,
    /// The graph file.
    pub(super) graph: PathBuf,
    /// Reduced-precision mode.
    pub(super) rounding: Rounding,
}

impl Choice {
    /// Selects the graph for a processor, in a precision if given.
    pub(super) fn select(
        dir: &Path,
        manifest: Option<&Manifest>,
        processor: Processor,
        precision: Option<&str>,
    ) -> Result<Self, ModelError> {
        let stored_in = |precision: Option<&str>| -> Result<Self, ModelError> {
            let spec = match manifest {
                Some(manifest) => Some(manifest.spec(manifest.choose(dir, processor, precision)?)),
                None => None,
            };
            let graph = match &spec {
                Some(spec) => dir.join(&spec.graph.file),
                None => choose_graph(dir, precision)?,
            };
            Ok(Self {
                spec,
                graph,
                rounding: Rounding::Exact,
            })
        };
        let rounding = precision.and_then(Rounding::from_name);
        let stored = stored_in(precision);
        let (Err(_), Some(rounding), Processor::Cpu) = (&stored, rounding, processor) else {
            return stored;
        };
        // No file has this precision; it is usually a reduced-precision mode of the float32 graph.
        let Ok(float32) = stored_in(Some("fp32")) else {
            return stored;
        };
        let metadata = graph::metadata(&float32.graph)?;
        match precision {
            // This graph's file name does not state its precision.
            Some("int8") if metadata.is_int8 => Ok(float32),
            Some("int8") if !metadata.has_int8_weights => stored,
            _ => Ok(Self {
                rounding,
                ..float32
            }),
        }
    }
}

/// Returns the precision that a graph runs in, or an error if it is not the requested one or if the graph's fixed batch
/// does not fit in memory.
pub(super) fn precision_in(
    graph: &Path,
    spec: Option<&GraphSpec>,
    metadata: &GraphMetadata,
    rounding: Rounding,
    requested: Option<&str>,
) -> Result<String, ModelError> {
    if FixedShape::from_dims(&metadata.ids).is_too_large() {
        let shape = &metadata.ids;
        let detail = format!("its batch shape {shape:?} does not fit in memory");
        return Err(ModelError::graph(graph, detail));
    }
    let wrong = |detail: &'static str| {
        let (path, precision) = (graph.display(), requested.unwrap_or_default());
        ModelError::Precision(format!(
            "cannot run the graph `{path}` in {precision}: {detail}"
        ))
    };
    let in_fp32 = !rounding.is_exact() || requested == Some("fp32");
    if spec.is_none() && metadata.is_int8 && in_fp32 {
        return Err(wrong("its operators are int8"));
    }
    if rounding.group().is_some() && !metadata.has_int8_weights {
        return Err(wrong(
            "its weights are not stored in int8, so the result would be float32",
        ));
    }
    Ok(match spec {
        _ if !rounding.is_exact() => rounding.to_string(),
        Some(spec) => spec.graph.precision.clone(),
        None => precision_of(graph, metadata.is_int8),
    })
}
