//! What a graph takes and gives, as the library that loaded it tells, against what its folder says. Pure.
//!
//! In go the ports of a graph in words that every library has; out come the [`Input`]s to fill and the name of the output
//! to read, or why the graph cannot be used.

use super::batch::Batch;
use super::contract::{Input, InputParams, Tensor};
use super::engine::{EngineError, Logits};
use super::folder::{FixedShape, ModelFolder, ModelKind};

/// An input or an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name in the graph.
    pub name: String,
    /// Type of its numbers, as [`Input::kind`] writes it; `None` for what is no tensor.
    pub kind: Option<String>,
    /// Its dimensions, −1 for one of any size; `None` where not even their number is known.
    pub shape: Option<Vec<i64>>,
}

/// What a loaded graph is fed, whichever library computes it.
#[derive(Debug)]
pub(crate) struct Feed {
    inputs: Vec<Input>,
    params: InputParams,
    vocab_size: Option<usize>,
    pub(crate) fixed: FixedShape,
    pad_id: u32,
}

impl Feed {
    /// What a graph with these inputs is fed, or why it cannot be.
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
            fixed: folder.fixed,
            pad_id: folder.pad_id.unwrap_or_default(),
        })
    }

    /// Computes a batch, cut to the graph's own shape. `run` gives the output for the tensors of a part: its dimensions, and
    /// its numbers.
    pub(crate) fn compute(
        &self,
        batch: &Batch,
        mut run: impl FnMut(&Batch, &[NamedTensor<'_>]) -> Result<Output, EngineError>,
    ) -> Result<Logits, EngineError> {
        check_ids(batch, self.vocab_size)?;
        self.fixed.compute(batch, self.pad_id, &mut |part| {
            let inputs = self.inputs.iter();
            let tensors: Vec<_> = inputs
                .map(|input| (input.name(), input.tensor(part, &self.params)))
                .collect();
            let (dims, data) = run(part, &tensors)?;
            Logits::shaped(&dims, data)
        })
    }
}

/// The dimensions of a graph's output, and its numbers.
pub(crate) type Output = (Vec<i64>, Vec<f32>);

/// The tensor of an input, by its name.
pub(crate) type NamedTensor<'b> = (&'static str, Tensor<'b>);

/// Checks every id: a graph reads a negative one from the end of its table and says nothing.
fn check_ids(batch: &Batch, vocab_size: Option<usize>) -> Result<(), EngineError> {
    let Some(vocab_size) = vocab_size else {
        return Ok(());
    };
    let known = |id: &i64| usize::try_from(*id).is_ok_and(|id| id < vocab_size);
    match batch.ids.iter().find(|id| !known(id)) {
        Some(id) => Err(EngineError::Token(*id, vocab_size)),
        None => Ok(()),
    }
}

/// What a graph takes, or what does not fit.
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
                "it wants the input `{}`; topicmill gives {known}",
                port.name
            ));
        };
        if port.kind.as_deref() != Some(input.kind()) {
            return Err(format!(
                "its input `{}` is {}, not {}",
                input.name(),
                port.kind.as_deref().unwrap_or("no tensor"),
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
        // Found out here and not with the first batch: `Input::tensor` relies on it.
        if input == Input::DecoderIds && params.decoder_start_id.is_none() {
            return Err(
                "it wants `decoder_ids`, and no `manifest.toml` tells `decoder_start_id`"
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
            "it has no input `attention_mask`, and none else that tells where a row ends"
                .to_owned(),
        );
    }
    Ok(inputs)
}

/// The output that is read of what a graph gives, or what does not fit.
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

/// What the output is called, if the graph has one of that name.
pub fn wanted_output(folder: &ModelFolder) -> &str {
    match (&folder.kind, &folder.spec) {
        (ModelKind::Embedding(head), _) => head.output.as_str(),
        (ModelKind::Nli(_) | ModelKind::Classifier(_), Some(spec)) => spec.contract.output.as_str(),
        (ModelKind::Nli(_) | ModelKind::Classifier(_), None) => "logits",
    }
}

/// What can be known of an output before anything is computed: the type of its numbers, and how many there are a row.
fn check_output(port: &Port, folder: &ModelFolder) -> Result<(), String> {
    let name = &port.name;
    let Some(kind) = &port.kind else {
        return Err(format!("its output `{name}` is no tensor"));
    };
    if !["float32", "float16"].contains(&kind.as_str()) {
        return Err(format!(
            "its output `{name}` is {kind}, and topicmill reads float32 and float16"
        ));
    }
    let (Some(width), Some(shape)) = (folder.kind.width(), &port.shape) else {
        return Ok(());
    };
    match shape[..] {
        [_] if width == 1 => Ok(()),
        [_, given] if given > 0 && usize::try_from(given) != Ok(width) => Err(format!(
            "its output `{name}` has {given} numbers a row, and `config.json` names {width} labels"
        )),
        [] | [_, _] => Ok(()),
        _ => Err(format!(
            "its output `{name}` has {} dimensions, and a row of numbers for each text has two; is it a model without a \
             head?",
            shape.len()
        )),
    }
}
