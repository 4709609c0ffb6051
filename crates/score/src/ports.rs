//! Checks a graph's inputs and outputs against its model folder, without I/O. In: the graph's ports, in terms common to
//! all inference libraries. Out: the [`Input`]s to feed and the name of the output to read, or the reason why the graph
//! cannot be used.

use std::borrow::Cow;

use super::batch::Batch;
use super::contract::{Input, Numbers, Tensor};
use super::engine::EngineError;
use super::folder::ModelFolder;
use topicmill_core::ModelKind;

/// An input or output of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The name in the graph.
    pub name: String,
    /// Type of the numbers, as in [`Input::kind`]; `None` if the port is not a tensor.
    pub kind: Option<String>,
    /// The dimensions, with −1 for a dynamic size; `None` if the rank is unknown.
    pub shape: Option<Vec<i64>>,
}

/// A type that a graph may declare for an int64 input.
const INT32: &str = "int32";

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
        let of_graph = inputs_of(inputs, decoder_start_id, folder)?;
        let ports = of_graph.iter().zip(inputs);
        let narrow = ports.filter(|(_, port)| port.kind.as_deref() == Some(INT32));
        Ok(Self {
            narrow: narrow.map(|(input, _)| *input).collect(),
            inputs: of_graph,
            decoder_start_id,
            masked: contract.map_or(-10_000.0, |contract| contract.masked),
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
            let (shape, numbers) = match input {
                Input::Ids => (vec![rows, width], Numbers::I64(Cow::Borrowed(&batch.ids))),
                Input::TypeIds => (
                    vec![rows, width],
                    Numbers::I64(Cow::Borrowed(&batch.type_ids)),
                ),
                Input::AttentionMask => (
                    vec![rows, width],
                    Numbers::I64(batch.attention_mask().into()),
                ),
                Input::DecoderIds => (
                    vec![rows, width],
                    Numbers::I64(self.decoder_ids(batch).into()),
                ),
                Input::Lengths => (vec![rows], Numbers::I32(lengths(batch))),
                Input::Positions => (vec![width], Numbers::I64((0..).take(width).collect())),
                Input::Last => (vec![rows], Numbers::I64(last(batch).into())),
                Input::Mask => (vec![rows, 1, width], Numbers::F32(mask(batch, self.masked))),
            };
            let numbers = match numbers {
                // An id that does not fit is outside every vocabulary, and the library rejects it.
                Numbers::I64(wide) if self.narrow.contains(input) => Numbers::I32(
                    wide.iter()
                        .map(|n| i32::try_from(*n).unwrap_or(i32::MAX))
                        .collect(),
                ),
                numbers => numbers,
            };
            (input.as_str(), Tensor { shape, numbers })
        };
        Ok(self.inputs.iter().map(tensor).collect())
    }

    /// Shifts each row right by one, after the start id; the last id is dropped.
    fn decoder_ids(&self, batch: &Batch) -> Vec<i64> {
        let start = self
            .decoder_start_id
            .expect("checked when the graph was loaded");
        let mut ids = Vec::with_capacity(batch.ids.len());
        for row in batch.ids.chunks(batch.width) {
            ids.push(i64::from(start));
            ids.extend(&row[..batch.width - 1]);
        }
        ids
    }
}

/// Name and tensor of an input.
pub(crate) type NamedTensor<'b> = (&'static str, Tensor<'b>);

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

fn mask(batch: &Batch, masked: f32) -> Vec<f32> {
    let row = |len: &usize| {
        let len = *len;
        (0..batch.width).map(move |i| if i < len { 0.0 } else { masked })
    };
    batch.lens.iter().flat_map(row).collect()
}

/// Returns the inputs of a graph, or the reason why they are not supported.
fn inputs_of(
    ports: &[Port],
    decoder_start_id: Option<u32>,
    folder: &ModelFolder,
) -> Result<Vec<Input>, String> {
    let mut inputs = Vec::new();
    for port in ports {
        let Ok(input) = port.name.parse::<Input>() else {
            let known: Vec<&str> = Input::ALL.iter().map(|input| input.as_str()).collect();
            return Err(format!(
                "it requires the input `{}`; topicmill provides {}",
                port.name,
                known.join(", ")
            ));
        };
        let may_be_narrow = input.kind() == "int64" && port.kind.as_deref() == Some(INT32);
        if port.kind.as_deref() != Some(input.kind()) && !may_be_narrow {
            return Err(format!(
                "its input `{input}` is {}, not {}",
                port.kind.as_deref().unwrap_or("not a tensor"),
                input.kind()
            ));
        }
        if let Some(shape) = &port.shape
            && !folder.fixed.fits(input, shape)
        {
            let sizes: Vec<String> = shape.iter().map(i64::to_string).collect();
            return Err(format!(
                "its input `{input}` has a fixed shape ({}; -1 is any size) that does not fit `{}`; export it with \
                 dynamic axes",
                sizes.join(" × "),
                Input::Ids
            ));
        }
        // Checked here rather than with the first batch; `Feed::tensors` relies on it.
        if input == Input::DecoderIds && decoder_start_id.is_none() {
            return Err(
                "it requires `decoder_ids`, but no `manifest.toml` has `decoder_start_id`"
                    .to_owned(),
            );
        }
        inputs.push(input);
    }
    if !inputs.contains(&Input::Ids) {
        return Err(format!("it has no input `{}`", Input::Ids));
    }
    if !inputs.iter().any(|input| input.marks_length()) {
        return Err(
            "it has neither `attention_mask` nor another input for the length of a row".to_owned(),
        );
    }
    Ok(inputs)
}

/// Returns the name of the output to read, or the reason why there is none.
pub fn output_of(ports: &[Port], folder: &ModelFolder) -> Result<String, String> {
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let wanted = wanted_output(folder);
    let found = match (&folder.kind, names.first()) {
        _ if names.contains(&wanted) => wanted,
        (ModelKind::Nli(_) | ModelKind::Classifier(_), Some(first)) if folder.spec.is_none() => {
            first
        }
        _ => {
            return Err(format!(
                "it has no output `{wanted}` (there is {})",
                names.join(", ")
            ));
        }
    };
    if let Some(port) = ports.iter().find(|port| port.name == found) {
        check_output(port, folder)?;
    }
    Ok(found.to_owned())
}

/// Returns the preferred name of the output.
pub fn wanted_output(folder: &ModelFolder) -> &str {
    match (&folder.kind, &folder.spec) {
        (ModelKind::Embedding(head), _) => head.output.as_str(),
        (_, Some(spec)) => spec.contract.output.as_str(),
        (_, None) => "logits",
    }
}

/// Checks the declared type and width of an output.
fn check_output(port: &Port, folder: &ModelFolder) -> Result<(), String> {
    let name = &port.name;
    let Some(kind) = &port.kind else {
        return Err(format!("its output `{name}` is not a tensor"));
    };
    if !["float32", "float16"].contains(&kind.as_str()) {
        return Err(format!(
            "its output `{name}` is {kind}; topicmill reads float32 and float16"
        ));
    }
    if let (ModelKind::Gliclass(_), Some([_, labels])) = (&folder.kind, port.shape.as_deref())
        && *labels > 0
    {
        return Err(format!(
            "its output `{name}` has a fixed number of labels, {labels}; export the checkpoint with tools/model.py"
        ));
    }
    let (Some(width), Some(shape)) = (folder.kind.width(), &port.shape) else {
        return Ok(());
    };
    match shape[..] {
        [_] if width == 1 => Ok(()),
        [_, given] if given > 0 && usize::try_from(given) != Ok(width) => Err(format!(
            "its output `{name}` has {given} numbers per row, but `config.json` has {width} labels"
        )),
        [] | [_, _] => Ok(()),
        _ => Err(format!(
            "its output `{name}` has {} dimensions instead of two (texts × numbers); is it a model without a head?",
            shape.len()
        )),
    }
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
            masked: -10_000.0,
            vocab_size: None,
        };
        let tensors = feed.tensors(&batch).unwrap();
        let i64s = |numbers: &[i64]| Numbers::I64(Cow::Owned(numbers.to_vec()));
        let m = -10_000.0;
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
