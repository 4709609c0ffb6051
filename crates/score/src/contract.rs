//! The input tensors that a graph may declare.
//!
//! A plain ONNX export takes ids and an attention mask and computes everything else. A graph built by `tools/model.py`
//! may take more inputs, because on a GPU each node that computes an index or a shape stalls the device. A graph
//! receives the inputs that it declares; tools/README.md lists them.

use std::borrow::Cow;

use topicmill_core::string_enum;

string_enum! {
    /// An input to a text model, with its shape and type, spelled as in a graph. `rows` is the number of texts or pairs
    /// in the batch; `width` is the number of tokens in the longest row.
    Input {
        /// Token ids: `[rows, width]`, int64.
        Ids = "input_ids",
        /// 1 for a token, 0 for padding: `[rows, width]`, int64.
        AttentionMask = "attention_mask",
        /// 0 for a token in the first text of a pair, 1 for the second: `[rows, width]`, int64.
        TypeIds = "token_type_ids",
        /// Number of tokens per row: `[rows]`, int32.
        Lengths = "lengths",
        /// 0, 1, 2, … up to the width, shared by all rows: `[width]`, int64.
        Positions = "positions",
        /// Decoder input, the tokens shifted right by one: `[rows, width]`, int64.
        DecoderIds = "decoder_ids",
        /// Index of each row's last token in the flattened batch: `[rows]`, int64.
        Last = "last",
        /// Additive attention mask, 0 for a token and a large negative number for padding: `[rows, 1, width]`, float32.
        Mask = "mask",
    }
}

/// Tensor data, in the type of the input.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers<'b> {
    I64(Cow<'b, [i64]>),
    I32(Vec<i32>),
    F32(Vec<f32>),
}

/// A tensor in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor<'b> {
    pub shape: Vec<usize>,
    pub numbers: Numbers<'b>,
}

impl Input {
    /// Returns the type of the input's numbers.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Lengths => "int32",
            Self::Mask => "float32",
            _ => "int64",
        }
    }

    /// Returns true if a graph can derive the length of each row from this input.
    pub fn marks_length(self) -> bool {
        matches!(self, Self::AttentionMask | Self::Lengths | Self::Mask)
    }
}
