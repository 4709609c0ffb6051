//! What an ONNX graph says of itself: in which files its weights lie, what its operators are, the shape of its ids, and where
//! its matrices are.
//!
//! A graph names files as it likes. Those are hashed with it, and may not lie outside of its folder. Only what
//! leads to an answer is decoded of the format, the weights are passed over:
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path};

use super::ModelError;

/// Graphs within graphs; no model has three.
const MAX_DEPTH: u32 = 64;
/// A name and what it is of; most systems take paths of 4,096 bytes.
const MAX_ENTRY: u64 = 64 << 10;

/// Operators that compute with whole numbers of eight bits.
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

/// Types of a tensor, as the format numbers them: whole numbers of eight bits, without a sign and with one.
const EIGHT_BITS: [u64; 2] = [2, 3];

/// The input whose shape says which batches a graph takes.
const IDS: &str = "input_ids";
/// No tensor of a model has more.
const MAX_DIMENSIONS: usize = 64;
/// Tokens of a batch that is filled up to a shape: 2,048 of the longest texts that most models take.
const MAX_FIXED: usize = 1 << 20;
/// How deep the inputs, nodes and tensors of the graph itself lie: in the graph, which lies in the model.
const OWN_DEPTH: u32 = 2;

/// The sizes that a graph fixes; `None` for one that it leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fixed {
    /// Rows of a batch.
    pub rows: Option<usize>,
    /// Tokens of a row, filled up.
    pub width: Option<usize>,
}

impl Fixed {
    /// Reads the shape of `input_ids`, −1 for any size.
    pub fn of(shape: &[i64]) -> Self {
        let size = |size: &i64| usize::try_from(*size).ok().filter(|size| *size > 0);
        match shape {
            [rows, width] => Self {
                rows: size(rows),
                width: size(width),
            },
            _ => Self::default(),
        }
    }

    /// Whether a batch of these sizes is larger than anybody computes.
    pub(super) fn is_too_large(self) -> bool {
        let (rows, width) = (self.rows.unwrap_or(1), self.width.unwrap_or(1));
        rows.saturating_mul(width) > MAX_FIXED
    }

    /// Returns true if the graph fixes a size of its batches.
    pub fn is_fixed(self) -> bool {
        self != Self::default()
    }
}

/// What a graph says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Names of the files beside it that its weights lie in, relative to its folder, sorted.
    pub weights: Vec<String>,
    /// Whether it computes with whole numbers of eight bits; weights of eight bits alone do not count.
    pub is_int8: bool,
    /// Whether it has weights that are stored as whole numbers of eight bits.
    pub has_int8_weights: bool,
    /// The shape of its input `input_ids`, −1 for any size; empty where it says none.
    pub ids: Vec<i64>,
}

/// Messages of the format that hold the name of a file, or others that do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Sparse,
    Tensor,
    /// Key and value.
    Entry,
    /// An input: its name, and what it is.
    Input,
    Type,
    TensorType,
    Shape,
    Dimension,
}

impl Message {
    /// What lies in a field.
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

/// Reads what a graph says of itself.
///
/// # Errors
/// [`ModelError::File`] where the file is no graph, or the name of a file leads out of its folder.
pub fn facts(graph: &Path) -> Result<Facts, ModelError> {
    let file = File::open(graph).map_err(ModelError::read(graph))?;
    let reader = Reader::read(file, None).map_err(|error| ModelError::graph(graph, error))?;
    let names = reader.found.into_iter();
    let weights = names
        .map(|name| {
            let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
            let path = Path::new(&name);
            if name.is_empty() || name.contains(['\\', '\0']) || !path.components().all(plain) {
                let detail = format!("its weights lie outside of its folder, in {name:?}");
                return Err(ModelError::graph(graph, detail));
            }
            // `./x` is `x`.
            let parts = path.components().filter(|part| *part != Component::CurDir);
            Ok(parts.collect::<std::path::PathBuf>().display().to_string())
        })
        .collect::<Result<_, _>>()?;
    Ok(Facts {
        weights,
        is_int8: reader.is_int8,
        has_int8_weights: reader.has_int8_weights,
        ids: reader.ids,
    })
}

/// The tensors of a graph, and which of them go into products.
#[derive(Debug, Default)]
pub(crate) struct Tensors {
    /// All that the graph itself has.
    pub(crate) all: Vec<StoredTensor>,
    /// The names of what is multiplied.
    pub(crate) factors: BTreeSet<Vec<u8>>,
}

/// Where the numbers of a tensor are.
#[derive(Debug, Default)]
pub(crate) struct StoredTensor {
    pub(crate) name: Vec<u8>,
    pub(crate) dims: Vec<i64>,
    /// As the format numbers types.
    pub(crate) data_type: u64,
    /// Place and length of its numbers in the graph's own file.
    pub(crate) raw: (u64, u64),
    /// Keys and values that say where else they are.
    pub(crate) external: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads where the tensors of a graph are, with the inputs of nodes of these operators.
///
/// # Errors
/// Reading the file, or one that is no graph.
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

/// What [`tensors`] collects.
struct Wanted {
    operators: &'static [&'static str],
    tensors: Tensors,
    /// The tensor that is being read.
    tensor: StoredTensor,
    /// Of the node that is being read.
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
    /// Of the input that is being read.
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
            // Of any size, unless it says one.
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
                            self.part(message, key >> 3, length, end)?;
                        }
                        (Message::Input, 1, _) => self.name = self.bytes(length)?,
                        _ => self.skip(length, end)?,
                    }
                }
                5 => self.skip(4, end)?,
                _ => return Err(damaged()),
            }
        }
        // An input of the graph itself, and not of a graph within it.
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

    /// One more dimension of the tensor that is being read.
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

    /// A field of a node or a tensor that [`tensors`] asks for.
    fn part(&mut self, message: Message, field: u64, length: u64, end: u64) -> io::Result<()> {
        if (message, field) == (Message::Tensor, 9) {
            let raw = (self.at, length);
            self.skip(length, end)?;
            if let Some(wanted) = &mut self.wanted {
                wanted.tensor.raw = raw;
            }
            return Ok(());
        }
        if (message, field) == (Message::Tensor, 1) {
            // Dimensions may be packed.
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

    /// Key and value of what a tensor says of its numbers; of these the key `location` names a file.
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

    /// The name of what a node does.
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

    /// Number and kind of a field. Readers of the format take the low 32 bits of a longer one, so that a field that we
    /// pass over would be another one to them.
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
        "it is cut off, or no ONNX graph",
    )
}
