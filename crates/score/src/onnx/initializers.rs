//! Reads the weight matrices of an ONNX graph from its files, without ONNX Runtime.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path};

use crate::folder::graph::{self, StoredTensor, Tensors};

/// Minimum size of a matrix worth sharing.
const MIN_BYTES: usize = 1024;
/// Operators that repack a matrix and can share the result. With other operators, a session may fail if its weights are
/// shared.
const PACKING_OPERATORS: [&str; 4] = ["MatMul", "FusedMatMul", "Gemm", "MatMulInteger"];

/// An operand of a matrix product in a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// The name in the graph.
    pub name: String,
    /// Rows and columns.
    pub shape: [i64; 2],
    /// The numbers, row by row.
    pub numbers: StoredNumbers,
}

/// Matrix data, in one of the supported types.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredNumbers {
    F32(Vec<f32>),
    I8(Vec<i8>),
    U8(Vec<u8>),
}

/// Reads the matrices that a graph multiplies with, from the graph or from external files. Small matrices, unsupported
/// types and unsupported encodings are skipped; the session loads them itself. Lookup tables are skipped too, because
/// external files are memory-mapped and shared anyway.
///
/// # Errors
/// Returns an I/O error if a file cannot be read or is not a graph.
pub fn matrices(graph: &Path) -> io::Result<Vec<Matrix>> {
    let Tensors { all, factors } = graph::tensors(graph, &PACKING_OPERATORS)?;
    let folder = graph.parent().unwrap_or(Path::new(""));
    let mut own = File::open(graph)?;
    // Open each weights file only once.
    let mut files = BTreeMap::new();
    let mut found = Vec::new();
    for tensor in all {
        let Some(bytes) = tensor.bytes().filter(|_| factors.contains(&tensor.name)) else {
            continue;
        };
        let raw = if tensor.external.is_empty() {
            let (offset, length) = tensor.raw;
            (length == bytes as u64)
                .then(|| read_at(&mut own, offset, bytes))
                .transpose()?
        } else {
            tensor.read_external(folder, bytes, &mut files)?
        };
        let numbers = raw.and_then(|raw| tensor.numbers(&raw));
        if let (Some(numbers), &[rows, columns], Ok(name)) = (
            numbers,
            tensor.dims.as_slice(),
            String::from_utf8(tensor.name),
        ) {
            found.push(Matrix {
                name,
                shape: [rows, columns],
                numbers,
            });
        }
    }
    Ok(found)
}

fn read_at(file: &mut File, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut raw = vec![0; bytes];
    file.read_exact(&mut raw)?;
    Ok(raw)
}

impl StoredTensor {
    /// Returns the size of the data in bytes; `None` unless the tensor is a large matrix of a supported type.
    fn bytes(&self) -> Option<usize> {
        // `FLOAT`, `UINT8` and `INT8`, as numbered by the format.
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
        (bytes >= MIN_BYTES).then_some(bytes)
    }

    fn numbers(&self, raw: &[u8]) -> Option<StoredNumbers> {
        Some(match self.data_type {
            1 => {
                // The format is little-endian.
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

    /// Reads the data from an external file; `None` if the location is outside the folder or invalid.
    fn read_external(
        &self,
        folder: &Path,
        bytes: usize,
        files: &mut BTreeMap<String, File>,
    ) -> io::Result<Option<Vec<u8>>> {
        let entry = |key: &str| {
            let (_, value) = self.external.iter().find(|(of, _)| of == key.as_bytes())?;
            std::str::from_utf8(value).ok()
        };
        let Some(location) = entry("location") else {
            return Ok(None);
        };
        // An untrusted graph must not name files outside its folder.
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(location).components().all(inside) {
            return Ok(None);
        }
        let Ok(offset) = entry("offset").unwrap_or("0").parse::<u64>() else {
            return Ok(None);
        };
        if !files.contains_key(location) {
            files.insert(location.to_owned(), File::open(folder.join(location))?);
        }
        let file = files.get_mut(location).expect("opened just now");
        // A damaged graph may declare any size.
        if file.metadata()?.len().saturating_sub(offset) < bytes as u64 {
            return Ok(None);
        }
        read_at(file, offset, bytes).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tensor to write into a test graph.
    #[derive(Clone)]
    struct Written {
        dims: Vec<i64>,
        data_type: u64,
        name: &'static str,
        raw: Vec<u8>,
        /// Location and offset of external data.
        external: Option<[&'static str; 2]>,
    }

    /// A 64 × 32 matrix stored in the graph.
    fn inside(name: &'static str, data_type: u64, raw: Vec<u8>) -> Written {
        Written {
            dims: vec![64, 32],
            data_type,
            name,
            raw,
            external: None,
        }
    }

    /// A 64 × 32 matrix stored in an external file.
    fn outside(name: &'static str, location: &'static str, offset: &'static str) -> Written {
        Written {
            external: Some([location, offset]),
            ..inside(name, 1, Vec::new())
        }
    }

    fn varint(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        bytes.push(number.to_le_bytes()[0]);
        bytes
    }

    /// Encodes a length-delimited protobuf field.
    fn field(number: u64, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        let bytes = bytes.as_ref();
        [&varint(number << 3 | 2), &varint(bytes.len() as u64), bytes].concat()
    }

    fn tensor(of: &Written) -> Vec<u8> {
        let number = |field: u64, number: u64| [varint(field << 3), varint(number)].concat();
        let mut parts: Vec<Vec<u8>> = of
            .dims
            .iter()
            .map(|size| number(1, size.cast_unsigned()))
            .collect();
        parts.extend([
            number(2, of.data_type),
            field(8, of.name),
            field(9, &of.raw),
        ]);
        for (key, value) in ["location", "offset"]
            .iter()
            .zip(of.external.iter().flatten())
        {
            parts.push(field(13, [field(1, key), field(2, value)].concat()));
        }
        parts.concat()
    }

    /// Writes a graph that multiplies with all tensors but `table` and reads its matrices.
    fn of(folder: &Path, initializers: &[Written]) -> Vec<Matrix> {
        let node = |operator: &str, is_table: bool| {
            let names = initializers.iter().map(|tensor| tensor.name);
            let names = names.filter(|name| (*name == "table") == is_table);
            let inputs: Vec<u8> = names.flat_map(|name| field(1, name)).collect();
            field(1, [inputs, field(4, operator)].concat())
        };
        let mut graph = [node("MatMulInteger", false), node("Gather", true)].concat();
        graph.extend(initializers.iter().flat_map(|one| field(5, tensor(one))));
        let path = folder.join("model.onnx");
        std::fs::write(&path, field(7, graph)).unwrap();
        matrices(&path).unwrap()
    }

    #[test]
    fn matrices_are_read_from_the_graph_and_external_files() {
        let folder = tempfile::tempdir().unwrap();
        let floats: Vec<f32> = (0..2_048_i16).map(f32::from).collect();
        let raw: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
        let external = [vec![7; 128], raw.clone()].concat();
        std::fs::write(folder.path().join("weights"), external).unwrap();
        let bytes: Vec<u8> = (0..8_192_usize).map(|i| i.to_le_bytes()[0]).collect();
        let wide = |name, data_type| Written {
            dims: vec![64, 128],
            ..inside(name, data_type, bytes.clone())
        };
        let mut vector = inside("a vector", 1, raw.clone());
        vector.dims = vec![2_048];
        let found = of(
            folder.path(),
            &[
                inside("in", 1, raw.clone()),
                outside("out", "weights", "128"),
                wide("i8", 3),
                wide("u8", 2),
                // None of these is returned.
                vector,
                inside("table", 1, raw.clone()),
                inside("of a different type", 7, raw.clone()),
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
    fn huge_sizes_are_skipped_and_files_that_are_not_graphs_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let mut vast = outside("vast", "model.onnx", "0");
        vast.dims = vec![i64::MAX / 4, 1];
        let mut negative = outside("negative", "model.onnx", "0");
        negative.dims = vec![-64, -64];
        assert_eq!(of(folder.path(), &[vast, negative]), []);
        assert_eq!(of(folder.path(), &[]), []);
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, "not a graph").unwrap();
        assert!(matrices(&path).is_err());
        assert!(matrices(&folder.path().join("nothing.onnx")).is_err());
    }
}
