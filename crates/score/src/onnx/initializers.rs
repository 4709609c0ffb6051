//! The weights of an ONNX graph as its file tells them, without ONNX Runtime.
//!
//! Only what is asked for here is decoded of the format: <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path};

use prost::Message;
use prost::bytes::Bytes;

/// Smaller ones are not worth the trouble.
const LEAST_BYTES: usize = 1024;
/// Operators that put a matrix into an order of their own, and can share that. Others may refuse a session whose weights
/// are shared.
const FACTORS_OF: [&str; 4] = ["MatMul", "FusedMatMul", "Gemm", "MatMulInteger"];

/// A matrix that a graph multiplies with.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Its name in the graph.
    pub name: String,
    /// Rows and columns.
    pub shape: [i64; 2],
    /// Its numbers, row by row.
    pub numbers: StoredNumbers,
}

/// Numbers of a type that weights have.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredNumbers {
    F32(Vec<f32>),
    I8(Vec<i8>),
    U8(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
struct Model {
    #[prost(message, optional, tag = "7")]
    graph: Option<Graph>,
}

#[derive(Clone, PartialEq, Message)]
struct Graph {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<Node>,
    #[prost(message, repeated, tag = "5")]
    initializers: Vec<Tensor>,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, repeated, tag = "1")]
    inputs: Vec<String>,
    #[prost(string, tag = "4")]
    operator: String,
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "bytes", tag = "9")]
    raw: Bytes,
    #[prost(message, repeated, tag = "13")]
    external: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// The matrices that a graph multiplies with, wherever their numbers lie. Small ones, and those of other types or told in
/// another way, are left out: whoever loads the graph reads them itself. So are tables that are only looked up, since a
/// file beside the graph is mapped, which costs a second session nothing.
///
/// # Errors
/// Reading a file, or one that is no graph.
pub fn matrices(graph: &Path) -> io::Result<Vec<Matrix>> {
    let model = Model::decode(Bytes::from(std::fs::read(graph)?))?;
    let folder = graph.parent().unwrap_or(Path::new(""));
    let graph = model.graph.unwrap_or_default();
    let multiply = |node: &&Node| FACTORS_OF.contains(&&*node.operator);
    let factors: BTreeSet<&str> = graph
        .nodes
        .iter()
        .filter(multiply)
        .flat_map(|node| node.inputs.iter().map(String::as_str))
        .collect();
    // Many matrices lie in one file, which is opened once.
    let mut files = BTreeMap::new();
    let mut found = Vec::new();
    for tensor in graph.initializers {
        let Some(bytes) = tensor.bytes().filter(|_| factors.contains(&*tensor.name)) else {
            continue;
        };
        let read = |from: &[u8]| tensor.numbers(from);
        let numbers = if tensor.external.is_empty() {
            (tensor.raw.len() == bytes).then(|| read(&tensor.raw))
        } else {
            tensor
                .outside(folder, bytes, &mut files)?
                .map(|raw| read(&raw))
        };
        if let (Some(numbers), &[rows, columns]) = (numbers.flatten(), tensor.dims.as_slice()) {
            found.push(Matrix {
                name: tensor.name,
                shape: [rows, columns],
                numbers,
            });
        }
    }
    Ok(found)
}

impl Tensor {
    /// How many bytes its numbers take; `None` where it is no large matrix of a type that is read here.
    fn bytes(&self) -> Option<usize> {
        // `FLOAT`, and `UINT8` and `INT8`, as the format numbers them.
        let size = match self.data_type {
            1 => 4,
            2 | 3 => 1,
            _ => return None,
        };
        let [rows, columns] = self.dims[..] else {
            return None;
        };
        let rows = usize::try_from(rows).ok()?;
        let bytes = rows
            .checked_mul(usize::try_from(columns).ok()?)?
            .checked_mul(size)?;
        (bytes >= LEAST_BYTES).then_some(bytes)
    }

    fn numbers(&self, raw: &[u8]) -> Option<StoredNumbers> {
        Some(match self.data_type {
            1 => {
                // The format has the lowest byte first, on every machine.
                let (numbers, _) = raw.as_chunks();
                StoredNumbers::F32(
                    numbers
                        .iter()
                        .map(|bytes| f32::from_le_bytes(*bytes))
                        .collect(),
                )
            }
            2 => StoredNumbers::U8(raw.to_vec()),
            3 => StoredNumbers::I8(raw.iter().map(|byte| byte.cast_signed()).collect()),
            _ => return None,
        })
    }

    /// Its bytes from the file beside the graph that it names; `None` where that is not beside it.
    fn outside(
        &self,
        folder: &Path,
        bytes: usize,
        files: &mut BTreeMap<String, File>,
    ) -> io::Result<Option<Vec<u8>>> {
        let told = |key: &str| {
            let entry = self.external.iter().find(|entry| entry.key == key)?;
            Some(entry.value.as_str())
        };
        let Some(location) = told("location") else {
            return Ok(None);
        };
        // A graph of a stranger must not name any file of this machine.
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(location).components().all(inside) {
            return Ok(None);
        }
        let Ok(offset) = told("offset").unwrap_or("0").parse::<u64>() else {
            return Ok(None);
        };
        if !files.contains_key(location) {
            files.insert(location.to_owned(), File::open(folder.join(location))?);
        }
        let file = files.get_mut(location).expect("opened just now");
        // A damaged graph may ask for any size.
        if file.metadata()?.len().saturating_sub(offset) < bytes as u64 {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(offset))?;
        let mut raw = vec![0; bytes];
        file.read_exact(&mut raw)?;
        Ok(Some(raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of 64 × 32 whose numbers lie in the graph.
    fn inside(name: &str, data_type: i32, raw: Vec<u8>) -> Tensor {
        Tensor {
            dims: vec![64, 32],
            data_type,
            name: name.to_owned(),
            raw: raw.into(),
            external: Vec::new(),
        }
    }

    /// The same, but beside it.
    fn outside(name: &str, location: &str, offset: &str) -> Tensor {
        let entry = |key: &str, value: &str| Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        Tensor {
            external: vec![entry("location", location), entry("offset", offset)],
            ..inside(name, 1, Vec::new())
        }
    }

    /// The matrices of a graph that multiplies with all of them but one.
    fn of(folder: &Path, initializers: Vec<Tensor>) -> Vec<Matrix> {
        let (tables, factors) = initializers
            .iter()
            .map(|tensor| tensor.name.clone())
            .partition(|name| name == "table");
        let node = |operator: &str, inputs| Node {
            inputs,
            operator: operator.to_owned(),
        };
        let nodes = vec![node("MatMulInteger", factors), node("Gather", tables)];
        let graph = Some(Graph {
            nodes,
            initializers,
        });
        let path = folder.join("model.onnx");
        std::fs::write(&path, Model { graph }.encode_to_vec()).unwrap();
        matrices(&path).unwrap()
    }

    #[test]
    fn matrices_are_read_from_the_graph_and_from_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let floats: Vec<f32> = (0..2_048_i16).map(f32::from).collect();
        let raw: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
        let beside = [vec![7; 128], raw.clone()].concat();
        std::fs::write(folder.path().join("weights"), beside).unwrap();
        let bytes: Vec<u8> = (0..8_192_usize).map(|i| i.to_le_bytes()[0]).collect();
        let wide = |name, data_type| Tensor {
            dims: vec![64, 128],
            ..inside(name, data_type, bytes.clone())
        };
        let mut vector = inside("a vector", 1, raw.clone());
        vector.dims = vec![2_048];
        let found = of(
            folder.path(),
            vec![
                inside("in", 1, raw.clone()),
                outside("out", "weights", "128"),
                wide("i8", 3),
                wide("u8", 2),
                // None of these can be had.
                vector,
                inside("table", 1, raw.clone()),
                inside("of another type", 7, raw.clone()),
                inside("cut short", 1, raw[1..].to_vec()),
                outside("past the end", "weights", "129"),
                outside("elsewhere", "../weights", "0"),
            ],
        );
        let signed = bytes.iter().map(|byte| byte.cast_signed()).collect();
        let matrix = |name: &str, shape, numbers| Matrix {
            name: name.to_owned(),
            shape,
            numbers,
        };
        assert_eq!(
            found,
            [
                matrix("in", [64, 32], StoredNumbers::F32(floats.clone())),
                matrix("out", [64, 32], StoredNumbers::F32(floats)),
                matrix("i8", [64, 128], StoredNumbers::I8(signed)),
                matrix("u8", [64, 128], StoredNumbers::U8(bytes)),
            ]
        );
    }

    #[test]
    fn a_size_that_no_memory_holds_and_a_file_that_is_no_graph_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut vast = outside("vast", "model.onnx", "0");
        vast.dims = vec![i64::MAX / 4, 1];
        let mut negative = outside("negative", "model.onnx", "0");
        negative.dims = vec![-64, -64];
        assert_eq!(of(folder.path(), vec![vast, negative]), []);
        assert_eq!(of(folder.path(), Vec::new()), []);
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, "not a graph").unwrap();
        assert!(matrices(&path).is_err());
        assert!(matrices(&folder.path().join("nothing.onnx")).is_err());
    }
}
