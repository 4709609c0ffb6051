"""Reads the base model for training and writes the result, without a download.

Input is a Hugging Face folder, or the default model. Output is a classifier with a new head for the labels. After
training, `leave` writes the Hugging Face folder from which tools/model.py makes a model folder.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from models import InputError
from models.make import LICENCES
from models.source import BUILT, EXPORTED, check_vocabulary, one_line, read_tokenizer
from training.mean import MEAN, POOLING, MeanBertForSequenceClassification
from training.shipped import read_shipped


@dataclass(frozen=True)
class Base:
    """A base folder; `is_shipped` is true for a topicmill embedding model, the default one or another."""

    folder: Path
    config: dict
    tokenizer: PreTrainedTokenizerBase

    @property
    def is_shipped(self) -> bool:
        """True if the weights are in the ONNX graph of an embedding model."""
        return "zero_shot" in self.config

    def check_encoder(self) -> None:
        """Rejects an embedding model whose encoder cannot be read from its graph, because it cannot be trained.

        Raises `InputError`. Learned label vectors need only the graph.
        """
        if not self.is_shipped:
            return
        try:
            read_shipped(self.folder)
        except InputError as problem:
            raise InputError(
                f"the encoder of `{self.folder}` cannot be trained, only label vectors for it: add "
                f"--keep-zero-shot --pipeline FILE, or pass a Hugging Face folder as --base ({problem})"
            ) from None

    def classifier(self, labels: list[str], seed: int) -> PreTrainedModel:
        """Returns the encoder with a new head, determined by the seed."""
        torch.manual_seed(seed)
        names = dict(enumerate(labels))
        if self.is_shipped:
            encoder = read_shipped(self.folder)
            config = encoder.config
            config.id2label, config.label2id = names, {name: index for index, name in names.items()}
            model = MeanBertForSequenceClassification(config)
            model.bert.load_state_dict(encoder.state_dict())
            torch.nn.init.zeros_(model.classifier.bias)
            return model
        try:
            return AutoModelForSequenceClassification.from_pretrained(
                self.folder,
                config=AutoConfig.from_pretrained(
                    self.folder,
                    id2label=names,
                    label2id={name: index for index, name in names.items()},
                    local_files_only=True,
                ),
                dtype="float32",
                local_files_only=True,
                ignore_mismatched_sizes=True,
            )
        except Exception as problem:  # damaged files cause many kinds of exceptions
            raise InputError(f"the weights of `{self.folder}` cannot be read: {one_line(problem)}") from None


def read_base(folder: Path) -> Base:
    """Reads and checks the folder. Raises `InputError`."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"`{folder}` has no `config.json`: pass a Hugging Face folder, or models/minilm-reddit-topics")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        family = config.get("model_type")
    except (OSError, ValueError, AttributeError) as problem:
        raise InputError(f"`{path}` cannot be read: {problem}") from None
    if "zero_shot" not in config and family not in (*BUILT, *EXPORTED):
        raise InputError(f"`{path}`: `model_type` is {family!r}; known are {', '.join((*BUILT, *EXPORTED))}")
    tokenizer = read_tokenizer(folder)
    check_vocabulary(tokenizer, config)
    return Base(folder, config, tokenizer)


def last_linear(model: PreTrainedModel) -> torch.nn.Linear:
    """Returns the layer that computes the logits."""
    found = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) and module.out_features == model.config.num_labels
    ]
    return found[-1]


def cool(model: PreTrainedModel, temperature: float) -> None:
    """Divides the logits by a temperature permanently, so that scores are calibrated."""
    with torch.no_grad():
        layer = last_linear(model)
        layer.weight.div_(temperature)
        if layer.bias is not None:
            layer.bias.div_(temperature)


def leave(base: Base, model: PreTrainedModel, max_tokens: int, folder: Path) -> None:
    """Writes the Hugging Face folder: weights, configuration, tokenizer, and the base's licences."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if base.is_shipped:
        setattr(model.config, POOLING, MEAN)
    if hasattr(model.config, "zero_shot"):
        delattr(model.config, "zero_shot")
    model.config.problem_type = "single_label_classification"
    try:
        model.save_pretrained(folder)
    except SafetensorError as problem:  # for example, the disk is full
        raise OSError(f"`{folder}` cannot be written ({problem}); free some space and add --resume") from None
    for name in ("tokenizer.json", *LICENCES):
        if (base.folder / name).is_file():
            shutil.copyfile(base.folder / name, folder / name)
    stored = base.folder / "tokenizer_config.json"
    settings = json.loads(stored.read_text(encoding="utf-8")) if stored.is_file() else {}
    settings["model_max_length"] = max_tokens
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
