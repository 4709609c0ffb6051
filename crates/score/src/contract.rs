//! What a graph is fed. Pure: a batch goes in, the tensors that a graph names come out.
//!
//! An exported graph takes ids and attention mask and computes the rest itself. A graph that `tools/model.py`
//! built may ask for more: on a GPU each node that makes an index or a shape stops the device until it is done.
//! tools/README.md has the table; a graph gets those inputs of it that it has.

use std::borrow::Cow;

use super::batch::Batch;

/// An input that a text model may have, with its shape and type. `rows` is how many texts or pairs a batch has, `width`
/// how many tokens its longest row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// The tokens: `[rows, width]`, int64.
    Ids,
    /// 1 for a token, 0 where filled up: `[rows, width]`, int64.
    AttentionMask,
    /// Which text of a pair a token belongs to, 0 or 1: `[rows, width]`, int64.
    TypeIds,
    /// How many tokens a row has: `[rows]`, int32.
    Lengths,
    /// 0, 1, 2, … up to the width, the same for each row: `[width]`, int64.
    Positions,
    /// What the decoder reads: the tokens, one later: `[rows, width]`, int64.
    DecoderIds,
    /// Where each row's last token stands, the rows laid end to end: `[rows]`, int64.
    Last,
    /// What is added to attention: 0 for a token, much less than 0 where filled up: `[rows, 1, width]`, float32.
    Mask,
}

/// What the model's configuration decides about inputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Filling {
    /// First id of [`Input::DecoderIds`].
    pub decoder_start_id: Option<u32>,
    /// Value of [`Input::Mask`] where filled up.
    pub masked: f32,
}

/// Numbers of a tensor, in the type that the input has.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers<'b> {
    I64(Cow<'b, [i64]>),
    I32(Vec<i32>),
    F32(Vec<f32>),
}

/// A tensor, row after row.
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

    /// What a graph calls it.
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

    /// Type of its numbers.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Lengths => "int32",
            Self::Mask => "float32",
            _ => "int64",
        }
    }

    /// Whether a graph can tell from it where a row ends.
    pub fn tells_length(self) -> bool {
        matches!(self, Self::AttentionMask | Self::Lengths | Self::Mask)
    }

    /// What it holds for a batch; shape and type are those of the variants. Whoever loads a graph has checked that the
    /// decoder's first id is known where it is needed.
    pub fn of<'b>(self, batch: &'b Batch, filling: &Filling) -> Tensor<'b> {
        let (rows, width) = (batch.rows(), batch.width);
        let of_rows = |numbers| Tensor {
            shape: vec![rows, width],
            numbers,
        };
        match self {
            Self::Ids => of_rows(Numbers::I64(Cow::Borrowed(&batch.ids))),
            Self::TypeIds => of_rows(Numbers::I64(Cow::Borrowed(&batch.type_ids))),
            Self::AttentionMask => of_rows(Numbers::I64(batch.attention_mask().into())),
            Self::DecoderIds => of_rows(Numbers::I64(decoder_ids(batch, filling).into())),
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
                numbers: Numbers::F32(mask(batch, filling.masked)),
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

/// Each row moved by one to the right behind the first id; its last id falls out.
fn decoder_ids(batch: &Batch, filling: &Filling) -> Vec<i64> {
    let start = filling
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
    use crate::text::Sequence;

    fn batch() -> Batch {
        let row = |ids: &[u32], type_ids: &[u32]| Sequence {
            ids: ids.to_vec(),
            type_ids: type_ids.to_vec(),
        };
        let rows = [
            row(&[5, 6, 2], &[0, 1, 1]),
            row(&[7], &[0]),
            row(&[8, 9], &[0, 0]),
        ];
        Batch::new(&rows, 1)
    }

    #[test]
    fn inputs_are_as_the_contract_says() {
        let batch = batch();
        let filling = Filling {
            decoder_start_id: Some(2),
            masked: -10_000.0,
        };
        let of = |input: Input| {
            let Tensor { shape, numbers } = input.of(&batch, &filling);
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
