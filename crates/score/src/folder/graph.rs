//! What an ONNX graph says of itself: in which files its weights lie, what its operators are, and the shape of its ids.
//!
//! A graph names files as it likes. Those are hashed with it, and may not lie outside of its folder. Only what
//! leads to an answer is decoded of the format, the weights are passed over:
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path};

use prost::Message as _;

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

/// The input whose shape says which batches a graph takes.
const IDS: &str = "input_ids";

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

    /// Whether any size is fixed.
    pub fn is_any(self) -> bool {
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
    /// The shape of its input `input_ids`, −1 for any size; empty where it says none.
    pub ids: Vec<i64>,
}

/// The part of an input that is read: its name and its shape.
#[derive(Clone, PartialEq, prost::Message)]
struct ValueInfo {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Kind {
    #[prost(message, optional, tag = "1")]
    tensor: Option<TensorKind>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TensorKind {
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Shape {
    #[prost(message, repeated, tag = "1")]
    dims: Vec<Dim>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Dim {
    #[prost(int64, optional, tag = "1")]
    value: Option<i64>,
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
            _ => return None,
        })
    }
}

/// Reads what a graph says of itself.
///
/// # Errors
/// [`ModelError::Graph`] where the file is no graph, or the name of a file leads out of its folder.
pub fn facts(graph: &Path) -> Result<Facts, ModelError> {
    let wrong = |detail: String| ModelError::Graph {
        path: graph.to_owned(),
        detail,
    };
    let file = File::open(graph).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (end, file) = file.map_err(|source| ModelError::Read {
        path: graph.to_owned(),
        source,
    })?;
    let mut reader = Reader {
        input: BufReader::new(file),
        at: 0,
        found: BTreeSet::new(),
        is_int8: false,
        ids: Vec::new(),
    };
    reader
        .message(Message::Model, end, 0)
        .map_err(|error| wrong(error.to_string()))?;
    let (is_int8, ids) = (reader.is_int8, reader.ids);
    let names = reader.found.into_iter();
    let weights = names
        .map(|name| {
            let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
            let path = Path::new(&name);
            if name.is_empty() || name.contains(['\\', '\0']) || !path.components().all(plain) {
                return Err(wrong(format!(
                    "its weights lie outside of its folder, in {name:?}"
                )));
            }
            // `./x` is `x`.
            let parts = path.components().filter(|part| *part != Component::CurDir);
            Ok(parts.collect::<std::path::PathBuf>().display().to_string())
        })
        .collect::<Result<_, _>>()?;
    Ok(Facts {
        weights,
        is_int8,
        ids,
    })
}

struct Reader {
    input: BufReader<File>,
    at: u64,
    found: BTreeSet<String>,
    is_int8: bool,
    ids: Vec<i64>,
}

impl Reader {
    fn message(&mut self, message: Message, end: u64, depth: u32) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(damaged());
        }
        while self.at < end {
            let key = self.key()?;
            match key & 7 {
                0 => drop(self.varint()?),
                1 => self.skip(8, end)?,
                2 => {
                    let length = self.varint()?;
                    let stop = self.at.checked_add(length).filter(|stop| *stop <= end);
                    let stop = stop.ok_or_else(damaged)?;
                    match (message, key >> 3, message.field(key >> 3)) {
                        (_, _, Some(Message::Entry)) => self.entry(length)?,
                        (_, _, Some(inner)) => self.message(inner, stop, depth + 1)?,
                        (Message::Graph, 11, _) if depth == 1 => self.input(length)?,
                        (Message::Node, 4, _) => self.operator(length)?,
                        _ => self.skip(length, end)?,
                    }
                }
                5 => self.skip(4, end)?,
                _ => return Err(damaged()),
            }
        }
        if self.at == end {
            Ok(())
        } else {
            Err(damaged())
        }
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
            let name = String::from_utf8(value).map_err(|_| damaged())?;
            self.found.insert(name);
        }
        Ok(())
    }

    /// An input of the graph itself.
    fn input(&mut self, length: u64) -> io::Result<()> {
        let bytes = self.bytes(length)?;
        // What is no input to this reader is one to the library that loads the graph, or an error there.
        let Ok(input) = ValueInfo::decode(bytes.as_slice()) else {
            return Ok(());
        };
        if input.name == IDS
            && let Some(shape) = input.kind.and_then(|kind| kind.tensor?.shape)
        {
            let dims = shape.dims.iter();
            self.ids = dims.map(|dim| dim.value.unwrap_or(-1)).collect();
        }
        Ok(())
    }

    /// The name of what a node does.
    fn operator(&mut self, length: u64) -> io::Result<()> {
        let name = self.bytes(length)?;
        self.is_int8 |= INT8.iter().any(|operator| operator.as_bytes() == name);
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
