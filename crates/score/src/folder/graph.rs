//! Reads the metadata of an ONNX graph without ONNX Runtime: its weights files, its operators, the shape of its
//! `input_ids`, and the location of its matrices.
//!
//! A graph names its weights files. These must be in its folder and are hashed along with it. Only the fields that are
//! needed are decoded, and weights are skipped. See <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto> for the
//! format.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path};

use super::ModelError;

/// Maximum nesting depth of messages; known models nest at most two graphs.
const MAX_DEPTH: u32 = 64;
/// Size limit for a key-value entry; most systems limit paths to 4,096 bytes.
const MAX_ENTRY: u64 = 64 << 10;

/// Operators that compute with 8-bit integers.
const INT8: [&str; 10] = [
    "ConvInteger",
    "DynamicQuantizeLSTM",
    "DynamicQuantizeLinear",
    "DynamicQuantizeMatMul",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "QAttention",
    "QGemm",
    "QLinearConv",
    "QLinearMatMul",
];

/// The ONNX data types for 8-bit integers, unsigned and signed.
const EIGHT_BITS: [u64; 2] = [2, 3];

/// The input whose shape determines the batch shape.
const IDS: &str = "input_ids";
/// Maximum number of dimensions in a tensor.
const MAX_DIMENSIONS: usize = 64;
/// Maximum number of tokens, including padding, in a fixed batch shape: 2,048 texts of 512 tokens.
const MAX_FIXED: usize = 1 << 20;
/// Nesting depth of the main graph's inputs, nodes and tensors: the model has depth 0, and its main graph has depth 1.
const OWN_DEPTH: u32 = 2;

/// The fixed sizes of a batch; `None` for a dynamic size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FixedShape {
    /// Number of rows in a batch.
    pub rows: Option<usize>,
    /// Number of tokens in a row, including padding.
    pub width: Option<usize>,
}

impl FixedShape {
    /// Reads the shape of `input_ids`, with −1 for a dynamic size.
    pub fn from_dims(shape: &[i64]) -> Self {
        let size = |size: &i64| usize::try_from(*size).ok().filter(|size| *size > 0);
        match shape {
            [rows, width] => Self {
                rows: size(rows),
                width: size(width),
            },
            _ => Self::default(),
        }
    }

    /// Returns true if a batch of this shape is too large to compute.
    pub(super) fn is_too_large(self) -> bool {
        let (rows, width) = (self.rows.unwrap_or(1), self.width.unwrap_or(1));
        rows.saturating_mul(width) > MAX_FIXED
    }

    /// Returns true if any size is fixed.
    pub fn is_fixed(self) -> bool {
        self != Self::default()
    }
}

/// A graph's metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphMetadata {
    /// Names of the external weights files, relative to the graph's folder, sorted.
    pub weights: Vec<String>,
    /// True if the graph computes with 8-bit integers; 8-bit weights alone do not count.
    pub is_int8: bool,
    /// True if some weights are stored as 8-bit integers.
    pub has_int8_weights: bool,
    /// Shape of the `input_ids` input, with −1 for a dynamic size; empty if not declared.
    pub ids: Vec<i64>,
}

/// The ONNX messages that can contain a field that is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Sparse,
    Tensor,
    /// Key-value pair.
    Entry,
    /// A graph input: name and type.
    Input,
    Type,
    TensorType,
    Shape,
    Dimension,
}

impl Message {
    /// Returns the type of message in a field.
    fn field(self, number: u64) -> Option<Self> {
        Some(match (self, number) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Self::Sparse,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => Self::Tensor,
            (Self::Tensor, 13) => Self::Entry,
            (Self::Graph, 11) => Self::Input,
            (Self::Input, 2) => Self::Type,
            (Self::Type, 1) => Self::TensorType,
            (Self::TensorType, 2) => Self::Shape,
            (Self::Shape, 1) => Self::Dimension,
            _ => return None,
        })
    }
}

/// Reads a graph's metadata.
///
/// # Errors
/// Returns [`ModelError::File`] if the file is not a graph, or names a file outside its folder.
pub fn metadata(graph: &Path) -> Result<GraphMetadata, ModelError> {
    let file = File::open(graph).map_err(ModelError::read(graph))?;
    let reader = Reader::read(file, None).map_err(|error| ModelError::graph(graph, error))?;
    let names = reader.found.into_iter();
    let weights = names
        .map(|name| {
            let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
            let path = Path::new(&name);
            if name.is_empty() || name.contains(['\\', '\0']) || !path.components().all(plain) {
                let detail = format!("its weights are outside its folder, in {name:?}");
                return Err(ModelError::graph(graph, detail));
            }
            // Normalizes `./x` to `x`.
            let parts = path.components().filter(|part| *part != Component::CurDir);
            Ok(parts.collect::<std::path::PathBuf>().display().to_string())
        })
        .collect::<Result<_, _>>()?;
    Ok(GraphMetadata {
        weights,
        is_int8: reader.is_int8,
        has_int8_weights: reader.has_int8_weights,
        ids: reader.ids,
    })
}

/// A graph's tensors, and the names of the tensors that are multiplied.
#[derive(Debug, Default)]
pub(crate) struct Tensors {
    /// All tensors of the main graph.
    pub(crate) all: Vec<StoredTensor>,
    /// Names of matrix-product operands.
    pub(crate) factors: BTreeSet<Vec<u8>>,
}

/// The location and type of a tensor's data.
#[derive(Debug, Default)]
pub(crate) struct StoredTensor {
    pub(crate) name: Vec<u8>,
    pub(crate) dims: Vec<i64>,
    /// ONNX data type.
    pub(crate) data_type: u64,
    /// Offset and length of the tensor's data in the graph file.
    pub(crate) raw: (u64, u64),
    /// Key-value pairs that give the location of external data.
    pub(crate) external: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads a graph's tensors, and the names of the inputs to nodes with these operators.
///
/// # Errors
/// Returns an I/O error if the file cannot be read or is not a graph.
pub(crate) fn tensors(graph: &Path, operators: &'static [&'static str]) -> io::Result<Tensors> {
    let wanted = Wanted {
        operators,
        tensors: Tensors::default(),
        tensor: StoredTensor::default(),
        inputs: Vec::new(),
        multiplies: false,
    };
    let read = Reader::read(File::open(graph)?, Some(wanted))?;
    Ok(read
        .wanted
        .map_or_else(Tensors::default, |wanted| wanted.tensors))
}

/// Working state for [`tensors`].
struct Wanted {
    operators: &'static [&'static str],
    tensors: Tensors,
    /// The current tensor.
    tensor: StoredTensor,
    /// Input names of the current node.
    inputs: Vec<Vec<u8>>,
    multiplies: bool,
}

struct Reader {
    input: BufReader<File>,
    at: u64,
    found: BTreeSet<String>,
    is_int8: bool,
    has_int8_weights: bool,
    ids: Vec<i64>,
    /// Name of the current input.
    name: Vec<u8>,
    shape: Vec<i64>,
    wanted: Option<Wanted>,
}

impl Reader {
    fn read(file: File, wanted: Option<Wanted>) -> io::Result<Self> {
        let end = file.metadata()?.len();
        let mut reader = Self {
            input: BufReader::new(file),
            at: 0,
            found: BTreeSet::new(),
            is_int8: false,
            has_int8_weights: false,
            ids: Vec::new(),
            name: Vec::new(),
            shape: Vec::new(),
            wanted,
        };
        reader.message(Message::Model, end, 0)?;
        Ok(reader)
    }

    fn message(&mut self, message: Message, end: u64, depth: u32) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(damaged());
        }
        match message {
            Message::Input => (self.name, self.shape) = (Vec::new(), Vec::new()),
            Message::Dimension if self.shape.len() == MAX_DIMENSIONS => return Err(damaged()),
            // The size is dynamic unless one follows.
            Message::Dimension => self.shape.push(-1),
            _ => {}
        }
        while self.at < end {
            let key = self.key()?;
            match key & 7 {
                0 => {
                    let number = self.varint()?;
                    if (message, key >> 3) == (Message::Tensor, 2) {
                        self.has_int8_weights |= EIGHT_BITS.contains(&number);
                    }
                    match (message, key >> 3, &mut self.wanted) {
                        (Message::Tensor, 1, _) => self.dimension(number.cast_signed())?,
                        (Message::Tensor, 2, Some(wanted)) => wanted.tensor.data_type = number,
                        _ => {}
                    }
                    if let (Message::Dimension, 1, Some(size)) =
                        (message, key >> 3, self.shape.last_mut())
                    {
                        *size = i64::try_from(number).unwrap_or(-1);
                    }
                }
                1 => self.skip(8, end)?,
                2 => {
                    let length = self.varint()?;
                    let stop = self.at.checked_add(length).filter(|stop| *stop <= end);
                    let stop = stop.ok_or_else(damaged)?;
                    match (message, key >> 3, message.field(key >> 3)) {
                        (_, _, Some(Message::Entry)) => self.entry(length)?,
                        (_, _, Some(inner)) => self.message(inner, stop, depth + 1)?,
                        (Message::Node, 4, _) => self.operator(length)?,
                        (Message::Node, 1, _) | (Message::Tensor, 1 | 8 | 9, _)
                            if self.wanted.is_some() =>
                        {
                            self.tensor_field(message, key >> 3, length, end)?;
                        }
                        (Message::Input, 1, _) => self.name = self.bytes(length)?,
                        _ => self.skip(length, end)?,
                    }
                }
                5 => self.skip(4, end)?,
                _ => return Err(damaged()),
            }
        }
        // Only the main graph's inputs count, not those of nested graphs.
        if message == Message::Input && depth == OWN_DEPTH && self.name == IDS.as_bytes() {
            self.ids = std::mem::take(&mut self.shape);
        }
        if let Some(wanted) = &mut self.wanted {
            let own = depth == OWN_DEPTH;
            if message == Message::Tensor {
                let tensor = std::mem::take(&mut wanted.tensor);
                wanted.tensors.all.extend(own.then_some(tensor));
            } else if message == Message::Node {
                let inputs = std::mem::take(&mut wanted.inputs);
                if std::mem::take(&mut wanted.multiplies) && own {
                    wanted.tensors.factors.extend(inputs);
                }
            }
        }
        if self.at == end {
            Ok(())
        } else {
            Err(damaged())
        }
    }

    /// Adds a dimension to the current tensor.
    fn dimension(&mut self, size: i64) -> io::Result<()> {
        match &mut self.wanted {
            Some(wanted) if wanted.tensor.dims.len() == MAX_DIMENSIONS => Err(damaged()),
            Some(wanted) => {
                wanted.tensor.dims.push(size);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Reads a field of a node or a tensor for [`tensors`].
    fn tensor_field(
        &mut self,
        message: Message,
        field: u64,
        length: u64,
        end: u64,
    ) -> io::Result<()> {
        if (message, field) == (Message::Tensor, 9) {
            let raw = (self.at, length);
            self.skip(length, end)?;
            if let Some(wanted) = &mut self.wanted {
                wanted.tensor.raw = raw;
            }
            return Ok(());
        }
        if (message, field) == (Message::Tensor, 1) {
            // The dimensions are packed.
            let stop = self.at + length;
            while self.at < stop {
                let size = self.varint()?.cast_signed();
                self.dimension(size)?;
            }
            return Ok(());
        }
        let bytes = self.bytes(length)?;
        match &mut self.wanted {
            Some(wanted) if message == Message::Tensor => wanted.tensor.name = bytes,
            Some(wanted) => wanted.inputs.push(bytes),
            None => {}
        }
        Ok(())
    }

    /// Reads a key-value pair about a tensor's external data; the value of `location` is a file name.
    fn entry(&mut self, length: u64) -> io::Result<()> {
        if length > MAX_ENTRY {
            return Err(damaged());
        }
        let end = self.at + length;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while self.at < end {
            let field = self.key()?;
            let length = self.varint()?;
            if field & 7 != 2 || length > end.saturating_sub(self.at) {
                return Err(damaged());
            }
            let mut text = vec![0; usize::try_from(length).map_err(|_| damaged())?];
            self.input.read_exact(&mut text)?;
            self.at += length;
            match field >> 3 {
                1 => key = text,
                2 => value = text,
                _ => {}
            }
        }
        if key == b"location" {
            let name = String::from_utf8(value.clone()).map_err(|_| damaged())?;
            self.found.insert(name);
        }
        if let Some(wanted) = &mut self.wanted {
            wanted.tensor.external.push((key, value));
        }
        Ok(())
    }

    /// Reads a node's operator.
    fn operator(&mut self, length: u64) -> io::Result<()> {
        let name = self.bytes(length)?;
        let is_one_of = |operators: &[&str]| operators.iter().any(|one| one.as_bytes() == name);
        self.is_int8 |= is_one_of(&INT8);
        if let Some(wanted) = &mut self.wanted {
            wanted.multiplies = is_one_of(wanted.operators);
        }
        Ok(())
    }

    fn bytes(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if length > MAX_ENTRY {
            return Err(damaged());
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| damaged())?];
        self.input.read_exact(&mut bytes)?;
        self.at += length;
        Ok(bytes)
    }

    fn skip(&mut self, bytes: u64, end: u64) -> io::Result<()> {
        if bytes > end.saturating_sub(self.at) {
            return Err(damaged());
        }
        self.at += bytes;
        self.input
            .seek_relative(i64::try_from(bytes).map_err(|_| damaged())?)
    }

    /// Reads a field's number and wire type. A key longer than 32 bits is an error: other parsers truncate it and could
    /// then read a field that is skipped here.
    fn key(&mut self) -> io::Result<u64> {
        let key = self.varint()?;
        let is_one = u32::try_from(key).is_ok() && key >> 3 != 0;
        is_one.then_some(key).ok_or_else(damaged)
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.input.read_exact(&mut byte).map_err(|_| damaged())?;
            self.at += 1;
            number |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged())
    }
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the file is truncated, or is not an ONNX graph",
    )
}
