//! Checks a graph's inputs and outputs against its model folder, without I/O. In: the graph's ports, in terms common to
//! all inference libraries. Out: the [`Input`]s to feed and the name of the output to read, or the reason why the graph
//! cannot be used.

use super::batch::Batch;
use super::contract::{Input, InputParams, Tensor};
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

/// The inputs to feed to a loaded graph, for any inference library.
#[derive(Debug)]
pub(crate) struct Feed {
    inputs: Vec<Input>,
    params: InputParams,
    vocab_size: Option<usize>,
}

impl Feed {
    /// Checks a graph's inputs and selects the tensors to feed.
    pub(crate) fn new(inputs: &[Port], folder: &ModelFolder) -> Result<Self, String> {
        let contract = folder.spec.as_ref().map(|spec| &spec.contract);
        let params = InputParams {
            decoder_start_id: contract.and_then(|contract| contract.decoder_start_id),
            masked: contract.map_or(-10_000.0, |contract| contract.masked),
        };
        Ok(Self {
            inputs: inputs_of(inputs, &params, folder)?,
            params,
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
        let inputs = self.inputs.iter();
        let tensors = inputs.map(|input| (input.name(), input.tensor(batch, &self.params)));
        Ok(tensors.collect())
    }
}

/// Name and tensor of an input.
pub(crate) type NamedTensor<'b> = (&'static str, Tensor<'b>);

/// Returns the inputs of a graph, or the reason why they are not supported.
fn inputs_of(
    ports: &[Port],
    params: &InputParams,
    folder: &ModelFolder,
) -> Result<Vec<Input>, String> {
    let mut inputs = Vec::new();
    for port in ports {
        let Some(input) = Input::ALL
            .into_iter()
            .find(|input| input.name() == port.name)
        else {
            let known = Input::ALL.map(Input::name).join(", ");
            return Err(format!(
                "it requires the input `{}`; topicmill provides {known}",
                port.name
            ));
        };
        if port.kind.as_deref() != Some(input.kind()) {
            return Err(format!(
                "its input `{}` is {}, not {}",
                input.name(),
                port.kind.as_deref().unwrap_or("not a tensor"),
                input.kind()
            ));
        }
        if let Some(shape) = &port.shape
            && !folder.fixed.fits(input, shape)
        {
            let sizes: Vec<String> = shape.iter().map(i64::to_string).collect();
            return Err(format!(
                "its input `{}` has a fixed shape ({}; -1 is any size) that does not fit `{}`; export it with dynamic \
                 axes",
                input.name(),
                sizes.join(" × "),
                Input::Ids.name()
            ));
        }
        // Checked here rather than with the first batch; `Input::tensor` relies on it.
        if input == Input::DecoderIds && params.decoder_start_id.is_none() {
            return Err(
                "it requires `decoder_ids`, but no `manifest.toml` has `decoder_start_id`"
                    .to_owned(),
            );
        }
        inputs.push(input);
    }
    if !inputs.contains(&Input::Ids) {
        return Err(format!("it has no input `{}`", Input::Ids.name()));
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
