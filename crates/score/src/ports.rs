//! Checks a graph's inputs and outputs against its model folder, without I/O. In: the graph's ports, in terms common to
//! all inference libraries. Out: the [`Input`]s to feed and the name of the output to read, or the reason why the graph
//! cannot be used.

use super::folder::{FixedShape, ModelFolder};
use super::input::{Input, NumberType};
use topicmill_core::ModelKind;

/// An input or output of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The name in the graph.
    pub name: String,
    /// Type of the numbers; `None` if the port is not a tensor.
    pub number_type: Option<NumberType>,
    /// The dimensions, with −1 for a dynamic size; `None` if the rank is unknown.
    pub shape: Option<Vec<i64>>,
}

/// Returns the inputs of a graph, or the reason why they are not supported.
pub fn inputs_of(
    ports: &[Port],
    decoder_start_id: Option<u32>,
    folder: &ModelFolder,
) -> Result<Vec<Input>, String> {
    let input = |port| input_of(port, decoder_start_id, folder);
    let inputs: Vec<Input> = ports.iter().map(input).collect::<Result<_, _>>()?;
    if !inputs.contains(&Input::Ids) {
        return Err(format!("it has no input `{}`", Input::Ids));
    }
    if !inputs.iter().any(|input| input.marks_length()) {
        let why = "it has neither `attention_mask` nor another input for the length of a row";
        return Err(why.to_owned());
    }
    Ok(inputs)
}

/// Returns the input that a port declares, or the reason why its name, type or shape is not supported.
fn input_of(
    port: &Port,
    decoder_start_id: Option<u32>,
    folder: &ModelFolder,
) -> Result<Input, String> {
    let Ok(input) = port.name.parse::<Input>() else {
        let known: Vec<&str> = Input::ALL.iter().map(|input| input.as_str()).collect();
        return Err(format!(
            "it requires the input `{}`; topicmill provides {}",
            port.name,
            known.join(", ")
        ));
    };
    let expected = input.number_type();
    let Some(declared) = &port.number_type else {
        return Err(format!("its input `{input}` is not a tensor"));
    };
    // A graph may declare an int64 input as int32.
    let is_narrow = expected == NumberType::Int64 && *declared == NumberType::Int32;
    if *declared != expected && !is_narrow {
        return Err(format!("its input `{input}` is {declared}, not {expected}"));
    }
    if let Some(shape) = &port.shape
        && !fits(folder.fixed, input, shape)
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
        let why = "it requires `decoder_ids`, but no `manifest.toml` has `decoder_start_id`";
        return Err(why.to_owned());
    }
    Ok(input)
}

/// Returns true if an input with these dimensions accepts a batch of the fixed shape.
fn fits(fixed: FixedShape, input: Input, shape: &[i64]) -> bool {
    let accepts = |size: i64, fixed: Option<usize>| {
        size <= 0 || fixed.is_some_and(|fixed| usize::try_from(size) == Ok(fixed))
    };
    match (input, shape) {
        (Input::Lengths | Input::Last, [rows]) => accepts(*rows, fixed.rows),
        (Input::Positions, [width]) => accepts(*width, fixed.width),
        (Input::Mask, [rows, ..=1, width])
        | (Input::Ids | Input::AttentionMask | Input::TypeIds | Input::DecoderIds, [rows, width]) => {
            accepts(*rows, fixed.rows) && accepts(*width, fixed.width)
        }
        // The library gives a better error for a wrong number of dimensions.
        _ => shape.iter().all(|size| *size <= 0),
    }
}

/// Returns the name of the output to read, or the reason why there is none.
pub fn output_of(ports: &[Port], folder: &ModelFolder) -> Result<String, String> {
    let wanted = wanted_output(folder);
    let named = ports.iter().find(|port| port.name == wanted);
    // Other exporters choose other names for the only output of a model with a head.
    let has_head = matches!(folder.kind, ModelKind::Nli(_) | ModelKind::Classifier(_));
    let first = ports.first().filter(|_| has_head && folder.spec.is_none());
    let Some(port) = named.or(first) else {
        let outputs: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        let outputs = outputs.join(", ");
        return Err(format!("it has no output `{wanted}` (there is {outputs})"));
    };
    check_output(port, folder)?;
    Ok(port.name.clone())
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
    match &port.number_type {
        Some(NumberType::Float32 | NumberType::Float16) => {}
        Some(other) => {
            return Err(format!(
                "its output `{name}` is {other}; topicmill reads float32 and float16"
            ));
        }
        None => return Err(format!("its output `{name}` is not a tensor")),
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

    #[test]
    fn inputs_fit_if_their_sizes_match_the_ids() {
        let fixed = FixedShape::from_dims(&[-1, 160]);
        assert!(fits(fixed, Input::Ids, &[-1, 160]));
        assert!(fits(fixed, Input::AttentionMask, &[-1, -1]));
        assert!(!fits(fixed, Input::AttentionMask, &[-1, 128]));
        assert!(!fits(fixed, Input::TypeIds, &[1, 160]));
        assert!(fits(fixed, Input::Mask, &[-1, 1, 160]));
        assert!(fits(fixed, Input::Positions, &[160]));
        assert!(!fits(FixedShape::default(), Input::Lengths, &[8]));
        assert!(fits(FixedShape::default(), Input::Ids, &[-1, -1]));
    }
}
