//! Shares weights among the sessions of a graph.
//!
//! On a CPU, each session repacks its matrices into the layout of its kernels. Given the same matrices and one
//! container for packed weights, all sessions share a single copy.

use std::error::Error;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use ort::session::builder::{PrepackedWeights, SessionBuilder};
use ort::value::{DynValue, Tensor};

use super::initializers::{self, StoredNumbers};

/// Weights of the first graph that is loaded with them, shared by all clones.
#[derive(Debug, Clone, Default)]
pub struct SharedWeights(Arc<Mutex<Option<Loaded>>>);

#[derive(Debug)]
struct Loaded {
    graph: Stamp,
    matrices: Vec<Matrix>,
    packed: PrepackedWeights,
}

/// Name in the graph, and data.
type Matrix = (String, Arc<DynValue>);

/// A file's path, size and modification time, to detect its replacement.
type Stamp = (PathBuf, u64, Option<SystemTime>);

impl SharedWeights {
    /// Returns the number of shared matrices.
    pub fn matrices(&self) -> usize {
        let loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.as_ref().map_or(0, |loaded| loaded.matrices.len())
    }

    /// Makes a CPU session use these weights. For a different graph, or for a graph that cannot be read here, the
    /// builder is unchanged: the session loads its own weights and reports any problem.
    pub(super) fn apply(
        &self,
        mut builder: SessionBuilder,
        graph: &Path,
    ) -> ort::Result<SessionBuilder> {
        // Size and time are compared too: a graph that replaces a different one must not use the old weights.
        let file = stamp(graph);
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that engines that start concurrently wait until the first one has read the graph.
        let loaded = loaded.get_or_insert_with(|| {
            let matrices = read(graph).unwrap_or_else(|error| {
                let graph = graph.display();
                tracing::warn!("the weights of {graph} are not shared among engines: {error}");
                Vec::new()
            });
            Loaded {
                graph: stamp(graph),
                matrices,
                packed: PrepackedWeights::new(),
            }
        });
        if loaded.graph != file || loaded.matrices.is_empty() {
            return Ok(builder);
        }
        for (name, matrix) in &loaded.matrices {
            builder = builder.with_initializer(name, Arc::clone(matrix))?;
        }
        Ok(builder.with_prepacked_weights(&loaded.packed)?)
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = path.metadata().ok();
    let bytes = metadata.as_ref().map_or(0, Metadata::len);
    let changed = metadata.and_then(|metadata| metadata.modified().ok());
    (path.to_owned(), bytes, changed)
}

fn read(graph: &Path) -> Result<Vec<Matrix>, Box<dyn Error>> {
    let mut matrices = Vec::new();
    for matrix in initializers::matrices(graph)? {
        let shape = matrix.shape;
        let value = match matrix.numbers {
            StoredNumbers::F32(numbers) => Tensor::from_array((shape, numbers))?.into_dyn(),
            StoredNumbers::I8(numbers) => Tensor::from_array((shape, numbers))?.into_dyn(),
            StoredNumbers::U8(numbers) => Tensor::from_array((shape, numbers))?.into_dyn(),
        };
        matrices.push((matrix.name, Arc::new(value)));
    }
    Ok(matrices)
}
