//! Which graph of a folder is computed, and in which precision.

use std::path::{Path, PathBuf};

use super::manifest::{Made, Manifest};
use super::names::{choose_graph, precision_of};
use super::{Facts, Fixed, ModelError, Processor, Rounding, graph};

/// The graph of a folder that is to be computed.
pub(super) struct Choice {
    /// What a manifest says of it.
    pub(super) made: Option<Made>,
    /// The file.
    pub(super) graph: PathBuf,
    /// How it is computed with fewer digits.
    pub(super) rounding: Rounding,
}

impl Choice {
    pub(super) fn of(
        dir: &Path,
        manifest: Option<&Manifest>,
        processor: Processor,
        precision: Option<&str>,
    ) -> Result<Self, ModelError> {
        let choose = |precision: Option<&str>| {
            let made = match manifest {
                Some(manifest) => Some(manifest.made(manifest.choose(dir, processor, precision)?)),
                None => None,
            };
            let graph = match &made {
                Some(made) => dir.join(&made.graph.file),
                None => choose_graph(dir, precision)?,
            };
            Ok::<_, ModelError>((made, graph))
        };
        let rounding = precision.and_then(Rounding::named);
        let rounding = rounding.filter(|_| processor == Processor::Cpu);
        let (chosen, rounding) = match (choose(precision), rounding) {
            // As a rule no folder brings it: it is another way to compute the graph in float32.
            (Err(error), Some(way)) => {
                let Ok(chosen) = choose(Some("fp32")) else {
                    return Err(error);
                };
                let facts = graph::facts(&chosen.1)?;
                match precision {
                    // A graph whose name says no precision.
                    Some("int8") if facts.is_int8 => (chosen, Rounding::Exact),
                    Some("int8") if !facts.has_int8_weights => return Err(error),
                    _ => (chosen, way),
                }
            }
            // A graph whose own numbers are in it.
            (chosen, _) => (chosen?, Rounding::Exact),
        };
        let (made, graph) = chosen;
        Ok(Self {
            made,
            graph,
            rounding,
        })
    }
}

/// The precision that a graph is computed in, or why it is not the one that was asked for.
pub(super) fn precision_in(
    graph: &Path,
    made: Option<&Made>,
    facts: &Facts,
    rounding: Rounding,
    asked: Option<&str>,
) -> Result<String, ModelError> {
    if Fixed::of(&facts.ids).is_too_large() {
        let shape = &facts.ids;
        let detail = format!("its batches have the shape {shape:?}, which no memory holds");
        return Err(ModelError::graph(graph, detail));
    }
    let wrong = |detail: &'static str| {
        let (path, precision) = (graph.display(), asked.unwrap_or_default());
        ModelError::Precision(format!(
            "compute the graph `{path}` in {precision}: {detail}"
        ))
    };
    let in_fp32 = !rounding.is_exact() || asked == Some("fp32");
    if made.is_none() && facts.is_int8 && in_fp32 {
        return Err(wrong("its operators compute in int8"));
    }
    if rounding.group().is_some() && !facts.has_int8_weights {
        return Err(wrong(
            "its weights are not stored in int8, so this would be float32",
        ));
    }
    Ok(match made {
        _ if !rounding.is_exact() => rounding.to_string(),
        Some(made) => made.graph.precision.clone(),
        None => precision_of(graph, facts.is_int8),
    })
}
