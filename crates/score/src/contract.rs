//! Builds the input tensors that a graph declares, from a batch. This module does no I/O.
//!
//! A plain ONNX export takes ids and an attention mask and computes everything else. A graph built by `tools/model.py`
//! may take more inputs, because on a GPU each node that computes an index or a shape stalls the device. A graph
//! receives the inputs that it declares; tools/README.md lists them.

use std::borrow::Cow;

use super::batch::Batch;

/// An input to a text model, with its shape and type. `rows` is the number of texts or pairs in the batch; `width` is
/// the number of tokens in the longest row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Token ids: `[rows, width]`, int64.
    Ids,
    /// 1 for a token, 0 for padding: `[rows, width]`, int64.
    AttentionMask,
    /// 0 for a token in the first text of a pair, 1 for the second: `[rows, width]`, int64.
    TypeIds,
    /// Number of tokens per row: `[rows]`, int32.
    Lengths,
    /// 0, 1, 2, … up to the width, shared by all rows: `[width]`, int64.
    Positions,
    /// Decoder input, the tokens shifted right by one: `[rows, width]`, int64.
    DecoderIds,
    /// Index of each row's last token in the flattened batch: `[rows]`, int64.
    Last,
    /// Additive attention mask, 0 for a token and a large negative number for padding: `[rows, 1, width]`, float32.
    Mask,
}

/// Input parameters from the model's configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InputParams {
    /// First id of [`Input::DecoderIds`].
    pub decoder_start_id: Option<u32>,
    /// Value of [`Input::Mask`] for padding.
    pub masked: f32,
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
    pub const ALL: [Self; 8] = [
        Self::Ids,
        Self::AttentionMask,
        Self::TypeIds,
        Self::Lengths,
        Self::Positions,
        Self::DecoderIds,
        Self::Last,
        Self::Mask,
    ];

    /// Returns the name of the input in a graph.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ids => "input_ids",
            Self::AttentionMask => "attention_mask",
            Self::TypeIds => "token_type_ids",
            Self::Lengths => "lengths",
            Self::Positions => "positions",
            Self::DecoderIds => "decoder_ids",
            Self::Last => "last",
            Self::Mask => "mask",
        }
    }

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

    /// Builds the tensor of this input for a batch, with the documented shape and type. [`Input::DecoderIds`] needs
    /// `decoder_start_id`, which is checked when a graph is loaded.
    pub fn tensor<'b>(self, batch: &'b Batch, params: &InputParams) -> Tensor<'b> {
        let (rows, width) = (batch.rows(), batch.width);
        let of_rows = |numbers| Tensor {
            shape: vec![rows, width],
            numbers,
        };
        match self {
            Self::Ids => of_rows(Numbers::I64(Cow::Borrowed(&batch.ids))),
            Self::TypeIds => of_rows(Numbers::I64(Cow::Borrowed(&batch.type_ids))),
            Self::AttentionMask => of_rows(Numbers::I64(batch.attention_mask().into())),
            Self::DecoderIds => of_rows(Numbers::I64(decoder_ids(batch, params).into())),
            Self::Lengths => Tensor {
                shape: vec![rows],
                numbers: Numbers::I32(lengths(batch)),
            },
            Self::Positions => Tensor {
                shape: vec![width],
                numbers: Numbers::I64((0..).take(width).collect()),
            },
            Self::Last => Tensor {
                shape: vec![rows],
                numbers: Numbers::I64(last(batch).into()),
            },
            Self::Mask => Tensor {
                shape: vec![rows, 1, width],
                numbers: Numbers::F32(mask(batch, params.masked)),
            },
        }
    }
}

fn lengths(batch: &Batch) -> Vec<i32> {
    let length = |len: &usize| i32::try_from(*len).expect("a row is no longer than the window");
    batch.lens.iter().map(length).collect()
}

fn last(batch: &Batch) -> Vec<i64> {
    let rows = batch.lens.iter().enumerate();
    rows.map(|(row, len)| row * batch.width + len - 1)
        .map(|index| i64::try_from(index).expect("a batch fits in memory"))
        .collect()
}

/// Shifts each row right by one, after the start id; the last id is dropped.
fn decoder_ids(batch: &Batch, params: &InputParams) -> Vec<i64> {
    let start = params
        .decoder_start_id
        .expect("checked when the graph was loaded");
    let mut ids = Vec::with_capacity(batch.ids.len());
    for row in batch.ids.chunks(batch.width) {
        ids.push(i64::from(start));
        ids.extend(&row[..batch.width - 1]);
    }
    ids
}

fn mask(batch: &Batch, masked: f32) -> Vec<f32> {
    let row = |len: &usize| {
        let len = *len;
        (0..batch.width).map(move |i| if i < len { 0.0 } else { masked })
    };
    batch.lens.iter().flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let rows = [
            vec![(5, 0), (6, 1), (2, 1)],
            vec![(7, 0)],
            vec![(8, 0), (9, 0)],
        ];
        Batch::new(rows, 3, 1)
    }

    #[test]
    fn input_tensors_match_their_documentation() {
        let batch = batch();
        let params = InputParams {
            decoder_start_id: Some(2),
            masked: -10_000.0,
        };
        let of = |input: Input| {
            let Tensor { shape, numbers } = input.tensor(&batch, &params);
            (shape, numbers)
        };
        let i64s = |numbers: &[i64]| Numbers::I64(Cow::Owned(numbers.to_vec()));
        let m = -10_000.0;
        let wanted = [
            (Input::Ids, vec![3, 3], i64s(&[5, 6, 2, 7, 1, 1, 8, 9, 1])),
            (
                Input::AttentionMask,
                vec![3, 3],
                i64s(&[1, 1, 1, 1, 0, 0, 1, 1, 0]),
            ),
            (
                Input::TypeIds,
                vec![3, 3],
                i64s(&[0, 1, 1, 0, 0, 0, 0, 0, 0]),
            ),
            (Input::Lengths, vec![3], Numbers::I32(vec![3, 1, 2])),
            (Input::Positions, vec![3], i64s(&[0, 1, 2])),
            (
                Input::DecoderIds,
                vec![3, 3],
                i64s(&[2, 5, 6, 2, 7, 1, 2, 8, 9]),
            ),
            (Input::Last, vec![3], i64s(&[2, 3, 7])),
            (
                Input::Mask,
                vec![3, 1, 3],
                Numbers::F32(vec![0.0, 0.0, 0.0, 0.0, m, m, 0.0, 0.0, m]),
            ),
        ];
        assert_eq!(wanted.len(), Input::ALL.len());
        for (input, shape, numbers) in wanted {
            assert_eq!(of(input), (shape, numbers), "{}", input.name());
        }
    }
}
