//! Weights that the sessions of one graph have in common.
//!
//! Each session on a CPU copies its matrices into the order in which its kernels read them. Given the same matrices
//! and one container, sessions share that copy, so that one more costs only what its batches take.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ort::session::builder::{PrepackedWeights, SessionBuilder};
use ort::value::{DynValue, Tensor};

use super::initializers::{self, Numbers};

/// Weights of whichever graph is loaded with them first; clones are the same ones.
#[derive(Debug, Clone, Default)]
pub struct SharedWeights(Arc<Mutex<Option<Loaded>>>);

#[derive(Debug)]
struct Loaded {
    graph: PathBuf,
    matrices: Vec<(String, Arc<DynValue>)>,
    packed: PrepackedWeights,
}

impl SharedWeights {
    /// Has a session on the CPU use them. Of a graph that is not the first one, or that cannot be read here, it is
    /// left as it is: the session loads its own, and says what is wrong with them.
    pub(super) fn given(
        &self,
        mut builder: SessionBuilder,
        graph: &Path,
    ) -> ort::Result<SessionBuilder> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.is_none() {
            match Loaded::read(graph) {
                Ok(read) => *loaded = Some(read),
                Err(error) => {
                    let graph = graph.display();
                    tracing::warn!("the weights of {graph} are not shared among engines: {error}");
                    return Ok(builder);
                }
            }
        }
        let Some(loaded) = loaded.as_ref().filter(|loaded| loaded.graph == graph) else {
            return Ok(builder);
        };
        for (name, matrix) in &loaded.matrices {
            builder = builder.with_initializer(name, Arc::clone(matrix))?;
        }
        Ok(builder.with_prepacked_weights(&loaded.packed)?)
    }
}

impl Loaded {
    fn read(graph: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let mut matrices = Vec::new();
        for matrix in initializers::matrices(graph)? {
            let shape = matrix.shape;
            let value = match matrix.numbers {
                Numbers::F32(numbers) => Tensor::from_array((shape, numbers))?.into_dyn(),
                Numbers::I8(numbers) => Tensor::from_array((shape, numbers))?.into_dyn(),
                Numbers::U8(numbers) => Tensor::from_array((shape, numbers))?.into_dyn(),
            };
            matrices.push((matrix.name, Arc::new(value)));
        }
        Ok(Self {
            graph: graph.to_owned(),
            matrices,
            packed: PrepackedWeights::new(),
        })
    }
}
