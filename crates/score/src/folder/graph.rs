//! Reads the metadata of an ONNX graph without ONNX Runtime: its weights files, its operators, and the shape of its
//! `input_ids`.
//!
//! A graph names its weights files. These must be in its folder and are hashed along with it. Only the fields that are
//! needed are decoded, and weights are skipped. See <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto> for the
//! format.

mod protobuf;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use self::protobuf::{
    FIXED_32, FIXED_64, Key, LENGTH_DELIMITED, MAX_TEXT, ProtobufInput, VARINT, damaged,
};
use super::ModelError;
use super::bounds::check_not_pointer;

/// Maximum nesting depth of messages; known models nest at most two graphs.
const MAX_DEPTH: u32 = 64;

/// Operators that compute with 8-bit integers.
const INT8: &str = "ConvInteger DynamicQuantizeLSTM DynamicQuantizeLinear DynamicQuantizeMatMul MatMulInteger \
                    MatMulIntegerToFloat QAttention QGemm QLinearConv QLinearMatMul";

/// The ONNX data types for 8-bit integers, unsigned and signed.
const EIGHT_BITS: [u64; 2] = [2, 3];

/// The input whose shape determines the batch shape.
const IDS: &str = "input_ids";
/// Maximum number of dimensions in a tensor.
const MAX_DIMENSIONS: usize = 64;
/// Maximum number of tokens, including padding, in a fixed batch shape: 2,048 texts of 512 tokens.
const MAX_FIXED: usize = 1 << 20;
/// Nesting depth of the main graph's inputs: the model has depth 0, and its main graph has depth 1.
const MAIN_INPUT_DEPTH: u32 = 2;

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
    /// Returns the type of the message in a field; `None` if the field is not needed.
    fn inner(self, field: u64) -> Option<Self> {
        Some(match (self, field) {
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
    check_not_pointer(graph)?;
    let file = File::open(graph).map_err(ModelError::read(graph))?;
    let reader = GraphReader::read(file).map_err(|error| ModelError::graph(graph, error))?;
    let mut weights = Vec::new();
    for name in reader.weights {
        weights.push(path_in_folder(&name).ok_or_else(|| {
            let detail = format!("its weights are outside its folder, in {name:?}");
            ModelError::graph(graph, detail)
        })?);
    }
    Ok(GraphMetadata {
        weights,
        ..reader.graph
    })
}

/// Returns the path of a weights file without `./`; `None` if the file is outside the folder of the graph.
fn path_in_folder(name: &str) -> Option<String> {
    let path = Path::new(name);
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if name.is_empty() || name.contains(['\\', '\0']) || !path.components().all(is_inside) {
        return None;
    }
    let parts = path.components().filter(|part| *part != Component::CurDir);
    Some(parts.collect::<PathBuf>().display().to_string())
}

/// Collects the metadata from the messages of a file.
struct GraphReader {
    input: ProtobufInput,
    graph: GraphMetadata,
    weights: BTreeSet<String>,
    /// Name of the current input.
    name: Vec<u8>,
    /// Shape of the current input.
    shape: Vec<i64>,
}

impl GraphReader {
    fn read(file: File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        let mut reader = Self {
            input: ProtobufInput::new(file),
            graph: GraphMetadata::default(),
            weights: BTreeSet::new(),
            name: Vec::new(),
            shape: Vec::new(),
        };
        reader.message(Message::Model, end, 0)?;
        Ok(reader)
    }

    /// Reads a message up to `end`.
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
        while self.input.position < end {
            let Key { field, wire_type } = self.input.key()?;
            match wire_type {
                VARINT => {
                    let number = self.input.varint()?;
                    self.set_number(message, field, number);
                }
                FIXED_64 => self.input.skip(8, end)?,
                LENGTH_DELIMITED => {
                    let length = self.input.varint()?;
                    if length > end.saturating_sub(self.input.position) {
                        return Err(damaged());
                    }
                    self.field(message, field, length, depth)?;
                }
                FIXED_32 => self.input.skip(4, end)?,
                _ => return Err(damaged()),
            }
        }
        // Only the main graph's inputs count, not those of nested graphs.
        let is_main_input = message == Message::Input && depth == MAIN_INPUT_DEPTH;
        if is_main_input && self.name == IDS.as_bytes() {
            self.graph.ids = std::mem::take(&mut self.shape);
        }
        if self.input.position == end {
            Ok(())
        } else {
            Err(damaged())
        }
    }

    /// Keeps a number in a field of a message, if it is needed.
    fn set_number(&mut self, message: Message, field: u64, number: u64) {
        match (message, field, self.shape.last_mut()) {
            (Message::Tensor, 2, _) => self.graph.has_int8_weights |= EIGHT_BITS.contains(&number),
            (Message::Dimension, 1, Some(size)) => *size = i64::try_from(number).unwrap_or(-1),
            _ => {}
        }
    }

    /// Reads a field of this length in bytes.
    fn field(&mut self, message: Message, field: u64, length: u64, depth: u32) -> io::Result<()> {
        let end = self.input.position + length;
        match (message, field, message.inner(field)) {
            (_, _, Some(Message::Entry)) => self.entry(length),
            (_, _, Some(inner)) => self.message(inner, end, depth + 1),
            (Message::Node, 4, _) => {
                let operator = self.input.bytes(length)?;
                self.graph.is_int8 |= INT8.split(' ').any(|int8| int8.as_bytes() == operator);
                Ok(())
            }
            (Message::Input, 1, _) => {
                self.name = self.input.bytes(length)?;
                Ok(())
            }
            _ => self.input.skip(length, end),
        }
    }

    /// Reads a key-value pair about a tensor's external data; the value of `location` is a file name.
    fn entry(&mut self, length: u64) -> io::Result<()> {
        if length > MAX_TEXT {
            return Err(damaged());
        }
        let end = self.input.position + length;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while self.input.position < end {
            let Key { field, wire_type } = self.input.key()?;
            let length = self.input.varint()?;
            if wire_type != LENGTH_DELIMITED || length > end.saturating_sub(self.input.position) {
                return Err(damaged());
            }
            let text = self.input.bytes(length)?;
            match field {
                1 => key = text,
                2 => value = text,
                _ => {}
            }
        }
        if key == b"location" {
            let name = String::from_utf8(value).map_err(|_| damaged())?;
            self.weights.insert(name);
        }
        Ok(())
    }
}
