//! Builds the input tensors that a graph declares, from a batch.
//!
//! A plain ONNX export takes ids and an attention mask and computes everything else. A graph built by `tools/model.py`
//! may take more inputs, because on a GPU each node that computes an index or a shape stalls the device. A graph
//! receives the inputs that it declares; tools/README.md lists them.

use std::borrow::Cow;

use super::batch::Batch;
use super::engine::EngineError;
use super::folder::ModelFolder;
use super::input::{Input, NumberType};
use super::ports::{Port, inputs_of};

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

/// Value for padding in [`Input::Mask`] if there is no manifest: its exponential is 0, and float16 can represent it.
const MASKED: f32 = -10_000.0;

/// Name and tensor of an input.
pub(crate) type NamedTensor<'b> = (&'static str, Tensor<'b>);

/// The inputs to feed to a loaded graph, for any inference library.
#[derive(Debug)]
pub(crate) struct Feed {
    inputs: Vec<Input>,
    /// Inputs that the graph declares as int32.
    narrow: Vec<Input>,
    /// First id of [`Input::DecoderIds`].
    decoder_start_id: Option<u32>,
    /// Value of [`Input::Mask`] for padding.
    masked: f32,
    vocab_size: Option<usize>,
}

impl Feed {
    /// Checks a graph's inputs and selects the tensors to feed.
    pub(crate) fn new(inputs: &[Port], folder: &ModelFolder) -> Result<Self, String> {
        let contract = folder.spec.as_ref().map(|spec| &spec.contract);
        let decoder_start_id = contract.and_then(|contract| contract.decoder_start_id);
        let declared = inputs_of(inputs, decoder_start_id, folder)?;
        let ports = declared.iter().zip(inputs);
        let narrow = ports.filter(|(_, port)| port.number_type == Some(NumberType::Int32));
        Ok(Self {
            narrow: narrow.map(|(input, _)| *input).collect(),
            inputs: declared,
            decoder_start_id,
            masked: contract.map_or(MASKED, |contract| contract.masked),
            vocab_size: folder.vocab_size,
        })
    }

    /// Builds the tensors to feed for a batch.
    pub(crate) fn tensors<'b>(
        &self,
        batch: &'b Batch,
    ) -> Result<Vec<NamedTensor<'b>>, EngineError> {
        if let Some(vocab_size) = self.vocab_size {
            // For a negative id, a graph would silently read from the end of its embedding table.
            let known = |id: &i64| usize::try_from(*id).is_ok_and(|id| id < vocab_size);
            if let Some(id) = batch.ids.iter().find(|id| !known(id)) {
                return Err(EngineError::Token(*id, vocab_size));
            }
        }
        let (rows, width) = (batch.rows(), batch.width);
        let tensor = |input: &Input| {
            let shape = match input {
                Input::Lengths | Input::Last => vec![rows],
                Input::Positions => vec![width],
                Input::Mask => vec![rows, 1, width],
                _ => vec![rows, width],
            };
            let numbers = match input {
                Input::Ids => Numbers::I64(Cow::Borrowed(&batch.ids)),
                Input::TypeIds => Numbers::I64(Cow::Borrowed(&batch.type_ids)),
                Input::AttentionMask => Numbers::I64(batch.attention_mask().into()),
                Input::DecoderIds => Numbers::I64(self.decoder_ids(batch).into()),
                Input::Lengths => Numbers::I32(lengths(batch)),
                Input::Positions => Numbers::I64((0..).take(width).collect()),
                Input::Last => Numbers::I64(last(batch).into()),
                Input::Mask => Numbers::F32(mask(batch, self.masked)),
            };
            let numbers = match numbers {
                // An id that does not fit is outside every vocabulary, and the library rejects it.
                Numbers::I64(wide) if self.narrow.contains(input) => {
                    let narrow = |n: &i64| i32::try_from(*n).unwrap_or(i32::MAX);
                    Numbers::I32(wide.iter().map(narrow).collect())
                }
                numbers => numbers,
            };
            (input.as_str(), Tensor { shape, numbers })
        };
        Ok(self.inputs.iter().map(tensor).collect())
    }

    /// Shifts each row right by one, after the start id; the last id is dropped.
    fn decoder_ids(&self, batch: &Batch) -> Vec<i64> {
        let start = self.decoder_start_id;
        let start = start.expect("checked when the graph was loaded");
        let mut ids = Vec::with_capacity(batch.ids.len());
        for row in batch.ids.chunks(batch.width) {
            ids.push(i64::from(start));
            ids.extend(&row[..batch.width - 1]);
        }
        ids
    }
}

/// Returns the number of tokens in each row.
fn lengths(batch: &Batch) -> Vec<i32> {
    let length = |len: &usize| i32::try_from(*len).expect("a row is no longer than the window");
    batch.lens.iter().map(length).collect()
}

/// Returns the index of each row's last token in the flattened batch.
fn last(batch: &Batch) -> Vec<i64> {
    let rows = batch.lens.iter().enumerate();
    rows.map(|(row, len)| row * batch.width + len - 1)
        .map(|index| i64::try_from(index).expect("a batch fits in memory"))
        .collect()
}

/// Returns the additive mask of each row: 0 for a token and `masked` for padding.
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
    use topicmill_core::table;

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
        let feed = Feed {
            inputs: Input::ALL.to_vec(),
            narrow: Vec::new(),
            decoder_start_id: Some(2),
            masked: MASKED,
            vocab_size: None,
        };
        let tensors = feed.tensors(&batch).unwrap();
        let i64s = |numbers: &[i64]| Numbers::I64(Cow::Owned(numbers.to_vec()));
        let m = MASKED;
        let wanted = table! {
            Input::Ids, vec![3, 3], i64s(&[5, 6, 2, 7, 1, 1, 8, 9, 1]);
            Input::AttentionMask, vec![3, 3], i64s(&[1, 1, 1, 1, 0, 0, 1, 1, 0]);
            Input::TypeIds, vec![3, 3], i64s(&[0, 1, 1, 0, 0, 0, 0, 0, 0]);
            Input::Lengths, vec![3], Numbers::I32(vec![3, 1, 2]);
            Input::Positions, vec![3], i64s(&[0, 1, 2]);
            Input::DecoderIds, vec![3, 3], i64s(&[2, 5, 6, 2, 7, 1, 2, 8, 9]);
            Input::Last, vec![3], i64s(&[2, 3, 7]);
            Input::Mask, vec![3, 1, 3], Numbers::F32(vec![0.0, 0.0, 0.0, 0.0, m, m, 0.0, 0.0, m]);
        };
        let wanted =
            wanted.map(|(input, shape, numbers)| (input.as_str(), Tensor { shape, numbers }));
        for tensor in &wanted {
            assert!(tensors.contains(tensor), "{tensor:?}");
        }
        assert_eq!(wanted.len(), tensors.len());
    }
}
