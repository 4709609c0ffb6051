//! The inputs that a graph may declare, and the types of numbers, in terms common to all inference libraries.

use std::fmt;

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

/// Type of the numbers in a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumberType {
    Int64,
    Int32,
    Float32,
    Float16,
    /// A type that no model reads or returns, as the library spells it.
    Other(String),
}

impl fmt::Display for NumberType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int64 => "int64",
            Self::Int32 => "int32",
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Other(name) => name,
        })
    }
}

impl Input {
    /// Returns the type of the input's numbers.
    pub fn number_type(self) -> NumberType {
        match self {
            Self::Lengths => NumberType::Int32,
            Self::Mask => NumberType::Float32,
            _ => NumberType::Int64,
        }
    }

    /// Returns true if a graph can derive the length of each row from this input.
    pub fn marks_length(self) -> bool {
        matches!(self, Self::AttentionMask | Self::Lengths | Self::Mask)
    }
}
