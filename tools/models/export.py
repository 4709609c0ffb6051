"""Exports a torch model to an ONNX graph, without optimizing it.

ONNX Runtime fuses what it can when it loads such a graph. The graph computes shapes at run time, so some of its nodes
run on the CPU even with CUDA.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx.external_data_helper import convert_model_to_external_data
from onnxruntime.transformers.float16 import convert_float_to_float16
from transformers import PreTrainedModel

from models.deberta import exportable
from models.inputs import feed
from models.source import Source
from models.texts import VECTORS

OPSET = 17
INLINE_LIMIT_BYTES = 1 << 28  # a protobuf file has at most 2 GiB


class LogitsOnly(torch.nn.Module):
    """The classifier as the exporter needs it: tensors in a fixed order, and logits as the only output."""

    def __init__(self, model: PreTrainedModel, input_names: list[str]):
        super().__init__()
        self.model = model
        self.input_names = input_names

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Returns logits [batch, classes] for int64 tensors [batch, sequence], one tensor for each input name."""
        options = {"use_cache": False} if self.model.config.is_encoder_decoder else {}
        return self.model(**dict(zip(self.input_names, tensors, strict=True)), **options).logits


def export_onnx(model: PreTrainedModel, example: dict[str, torch.Tensor], path: Path) -> None:
    """Writes the graph to `path`, with dynamic batch and sequence; a large model gets a data file next to it.

    `example` is a padded batch; its keys become the graph's inputs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    save_graph(exported(model, example), path)


def exported(model: PreTrainedModel, example: dict[str, torch.Tensor]) -> onnx.ModelProto:
    """Returns the graph of the legacy exporter, in memory."""
    return graph_of(LogitsOnly(model, list(example)), example, "logits")


def exported_source(source: Source, precision: str) -> onnx.ModelProto:
    """Exports the model of a source, with the model's own inputs."""
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if source.has_types else [])]
    pairs = source.proof_pairs()[: len(VECTORS)]
    example = {name: torch.from_numpy(values) for name, values in feed(names, pairs, source.filling).items()}
    with exportable(source):
        graph = exported(source.model, example)
    return convert_float_to_float16(graph, keep_io_types=True) if precision == "fp16" else graph


def graph_of(module: torch.nn.Module, example: dict[str, torch.Tensor], output: str) -> onnx.ModelProto:
    """Exports a module with the tensors of `example` as inputs, in order, and one output `output` [batch, …]."""
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "raw.onnx"
        trace(module, example, raw, output)
        graph = onnx.load(raw)
    clear_notes(graph)
    return graph


def save_graph(graph: onnx.ModelProto, path: Path) -> None:
    """Writes a graph to `path`. The weights of a large graph are moved out of `graph` into a file next to it."""
    if sum(len(tensor.raw_data) for tensor in graph.graph.initializer) <= INLINE_LIMIT_BYTES:
        onnx.save(graph, path)
        return
    data_file = path.with_name(f"{path.name}_data")
    data_file.unlink(missing_ok=True)  # onnx appends to a file that exists
    convert_model_to_external_data(graph, location=data_file.name)
    onnx.save(graph, path)
    data_file.chmod(0o644)  # onnx makes the file readable only by its owner


def trace(module: torch.nn.Module, example: dict[str, torch.Tensor], path: Path, output: str) -> None:
    """Runs the legacy exporter, because ONNX Runtime's stock optimizer fuses only graphs from this exporter."""
    names = list(example)
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in names}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter warns that it is legacy, and about each traced shape
        torch.onnx.export(
            module.eval(),  # a new module is in training mode, which the exporter would restore
            tuple(example.values()),
            path,
            input_names=names,
            output_names=[output],
            dynamic_axes=axes | {output: {0: "batch_size"}},
            opset_version=OPSET,
            dynamo=False,
        )


def clear_notes(graph: onnx.ModelProto) -> None:
    """Removes local details from the file: source lines and other notes."""
    graph.doc_string = ""
    graph.graph.doc_string = ""
    del graph.metadata_props[:]
    for node in graph.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]


def graph_error(model: PreTrainedModel, path: Path, batches: list[dict[str, torch.Tensor]]) -> float:
    """Returns the largest difference between torch's and ONNX Runtime's logits over the batches."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    errors = []
    for batch in batches:
        with torch.no_grad():
            expected = model(**batch).logits.numpy()
        (found,) = session.run(["logits"], {name: tensor.numpy() for name, tensor in batch.items()})
        errors.append(float(np.abs(found - expected).max()))
    return max(errors)
