//! Weights that the sessions of one graph have in common.
//!
//! Each session on a CPU copies its matrices into the order in which its kernels read them. Given the same matrices
//! and one container, sessions keep one copy together, and no further one for each.

use std::error::Error;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use ort::session::builder::{PrepackedWeights, SessionBuilder};
use ort::value::{DynValue, Tensor};

use super::initializers::{self, StoredNumbers};

/// Weights of whichever graph is loaded with them first; clones are the same ones.
#[derive(Debug, Clone, Default)]
pub struct SharedWeights(Arc<Mutex<Option<Loaded>>>);

#[derive(Debug)]
struct Loaded {
    graph: Stamp,
    matrices: Vec<Matrix>,
    packed: PrepackedWeights,
}

/// Its name in the graph, and its numbers.
type Matrix = (String, Arc<DynValue>);

/// Path, size and time of change of a file, told from what is put in its place later.
type Stamp = (PathBuf, u64, Option<SystemTime>);

impl SharedWeights {
    /// How many matrices are shared.
    pub fn matrices(&self) -> usize {
        let loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.as_ref().map_or(0, |loaded| loaded.matrices.len())
    }

    /// Has a session on the CPU use them. Of a graph that is not the first one, or that cannot be read here, it is
    /// left as it is: the session loads its own, and says what is wrong with them.
    pub(super) fn apply(
        &self,
        mut builder: SessionBuilder,
        graph: &Path,
    ) -> ort::Result<SessionBuilder> {
        // Size and time as well: a graph may be replaced while a process runs, and old weights must not serve the new
        // one.
        let file = stamp(graph);
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: engines that start together wait for the first one to read the graph.
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
