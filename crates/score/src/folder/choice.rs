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
    pub(super) fn select(
        dir: &Path,
        manifest: Option<&Manifest>,
        processor: Processor,
        precision: Option<&str>,
    ) -> Result<Self, ModelError> {
        let choose = |precision: Option<&str>| {
            let spec = match manifest {
                Some(manifest) => Some(manifest.spec(manifest.choose(dir, processor, precision)?)),
                None => None,
            };
            let graph = match &spec {
                Some(spec) => dir.join(&spec.graph.file),
                None => choose_graph(dir, precision)?,
            };
            Ok::<_, ModelError>((spec, graph))
        };
        let rounding = precision.and_then(Rounding::from_name);
        let rounding = rounding.filter(|_| processor == Processor::Cpu);
        let (chosen, rounding) = match (choose(precision), rounding) {
            // No file has this precision; it is usually a reduced-precision mode of the float32 graph.
            (Err(error), Some(way)) => {
                let Ok(chosen) = choose(Some("fp32")) else {
                    return Err(error);
                };
                let metadata = graph::metadata(&chosen.1)?;
                match precision {
                    // This graph's file name does not state its precision.
                    Some("int8") if metadata.is_int8 => (chosen, Rounding::Exact),
                    Some("int8") if !metadata.has_int8_weights => return Err(error),
                    _ => (chosen, way),
                }
            }
            // This graph is stored in the requested precision.
            (chosen, _) => (chosen?, Rounding::Exact),
        };
        let (spec, graph) = chosen;
        Ok(Self {
            spec,
            graph,
            rounding,
        })
    }
}

/// Returns the precision that a graph runs in, or an error if it is not the requested one.
pub(super) fn precision_in(
    graph: &Path,
    spec: Option<&GraphSpec>,
    metadata: &GraphMetadata,
    rounding: Rounding,
    asked: Option<&str>,
) -> Result<String, ModelError> {
    if FixedShape::from_dims(&metadata.ids).is_too_large() {
        let shape = &metadata.ids;
        let detail = format!("its batch shape {shape:?} does not fit in memory");
        return Err(ModelError::graph(graph, detail));
    }
    let wrong = |detail: &'static str| {
        let (path, precision) = (graph.display(), asked.unwrap_or_default());
        ModelError::Precision(format!(
            "cannot run the graph `{path}` in {precision}: {detail}"
        ))
    };
    let in_fp32 = !rounding.is_exact() || asked == Some("fp32");
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
