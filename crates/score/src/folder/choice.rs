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
    /// Selects the graph for a processor: in a precision if given, otherwise in the default of the folder. On a CPU, a
    /// precision without a graph of its own may be a reduced-precision mode of the float32 graph.
    pub(super) fn select(
        dir: &Path,
        manifest: Option<&Manifest>,
        processor: Processor,
        precision: Option<&str>,
    ) -> Result<Self, ModelError> {
        let missing = match Self::stored(dir, manifest, processor, precision) {
            Err(error) if is_missing_graph(&error) => error,
            selected => return selected,
        };
        let rounding = precision.and_then(Rounding::from_name);
        let (Processor::Cpu, Some(rounding)) = (processor, rounding) else {
            return Err(missing);
        };
        let float32 = match Self::stored(dir, manifest, processor, Some("fp32")) {
            Err(error) if is_missing_graph(&error) => return Err(missing),
            selected => selected?,
        };
        let metadata = graph::metadata(&float32.graph)?;
        match precision {
            // The file name of this graph does not state its precision.
            Some("int8") if metadata.is_int8 => Ok(float32),
            Some("int8") if !metadata.has_int8_weights => Err(missing),
            _ => Ok(Self {
                rounding,
                ..float32
            }),
        }
    }

    /// Selects the graph that is stored in a precision.
    fn stored(
        dir: &Path,
        manifest: Option<&Manifest>,
        processor: Processor,
        precision: Option<&str>,
    ) -> Result<Self, ModelError> {
        let spec = manifest.map(|manifest| manifest.choose(dir, processor, precision));
        let spec = spec.transpose()?;
        let graph = match &spec {
            Some(spec) => dir.join(&spec.graph.file),
            None => choose_graph(dir, precision)?,
        };
        Ok(Self {
            spec,
            graph,
            rounding: Rounding::Exact,
        })
    }

    /// Checks that the graph can run in the requested precision, and that its fixed batch fits in memory.
    pub(super) fn check(
        &self,
        metadata: &GraphMetadata,
        requested: Option<&str>,
    ) -> Result<(), ModelError> {
        if FixedShape::from_dims(&metadata.ids).is_too_large() {
            let shape = &metadata.ids;
            let detail = format!("its batch shape {shape:?} does not fit in memory");
            return Err(ModelError::graph(&self.graph, detail));
        }
        let needs_float32 = !self.rounding.is_exact() || requested == Some("fp32");
        let detail = if self.spec.is_none() && metadata.is_int8 && needs_float32 {
            "its operators are int8"
        } else if self.rounding.group().is_some() && !metadata.has_int8_weights {
            "its weights are not stored in int8, so the result would be float32"
        } else {
            return Ok(());
        };
        Err(ModelError::Precision(format!(
            "cannot run the graph `{}` in {}: {detail}",
            self.graph.display(),
            requested.unwrap_or_default()
        )))
    }

    /// Returns the name of the precision that the graph runs in.
    pub(super) fn precision(&self, metadata: &GraphMetadata) -> String {
        match &self.spec {
            _ if !self.rounding.is_exact() => self.rounding.to_string(),
            Some(spec) => spec.graph.precision.clone(),
            None => precision_of(&self.graph, metadata.is_int8),
        }
    }
}

/// Returns true if the folder has graphs, but none in the requested precision. Any other error is about a file.
fn is_missing_graph(error: &ModelError) -> bool {
    matches!(error, ModelError::NoGraph(_) | ModelError::Precision(_))
}
