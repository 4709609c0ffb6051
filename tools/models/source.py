"""Reads and checks a Hugging Face classifier in a local folder: the source of a model folder.

Input is the path. Output is a `Source`, or an `InputError` that describes the problem in one line.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    logging,
)

from models import InputError
from models.inputs import Filling, Pair
from models.texts import FILLER, HYPOTHESIS, VECTORS
from training.mean import MEAN, POOLING, MeanBertForSequenceClassification

BUILT = {"bart": "bart", "bert": "encoder", "roberta": "encoder", "xlm-roberta": "encoder"}
EXPORTED = ("deberta", "deberta-v2")
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json")
DEFAULT_MAX_TOKENS = 512
NO_LIMIT = 1_000_000  # a tokenizer without a limit reports 1e30


@dataclass(frozen=True)
class Source:
    """A model, its tokenizer, and properties from its configuration.

    `kind` is `nli` or `classifier`. `classes` are the configured names of the classes, in the order of the logits.
    """

    folder: Path
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    kind: str
    classes: list[str]
    max_tokens: int

    @property
    def config(self) -> PreTrainedConfig:
        """The model's configuration."""
        return self.model.config

    @property
    def family(self) -> str:
        """The configuration's `model_type`."""
        return self.config.model_type

    @property
    def filling(self) -> Filling:
        """Padding id, and for an encoder-decoder the id that starts the decoder."""
        start = self.config.decoder_start_token_id if self.config.is_encoder_decoder else None
        return Filling(self.config.pad_token_id or 0, start)

    @property
    def has_types(self) -> bool:
        """True if the model distinguishes premise and hypothesis by token type."""
        return self.family in ("bert", *EXPORTED) and self.config.type_vocab_size > 1

    @property
    def settings(self) -> dict:
        """Returns the keys to set in the folder's config.json: none."""
        return {}

    def tensors(self) -> dict[str, np.ndarray]:
        """Returns the weights by name, in float32."""
        return {name: tensor.detach().float().numpy() for name, tensor in self.model.state_dict().items()}

    def pair(self, premise: str, hypothesis: str, limit: int | None = None) -> Pair:
        """Returns the ids of a pair, at most `limit` (by default, `max_tokens`): the premise is truncated.

        A classifier reads only the premise.
        """
        encoded = self.tokenizer(
            *([premise, hypothesis] if self.kind == "nli" else [premise]),
            truncation="only_first",
            max_length=limit or self.max_tokens,
            return_token_type_ids=True,
        )
        return Pair(encoded["input_ids"], encoded["token_type_ids"])

    def proof_pairs(self) -> list[Pair]:
        """Returns the manifest's pairs, one with about a tenth of `max_tokens`, and one with `max_tokens`."""
        pairs = [self.pair(premise, hypothesis) for premise, hypothesis in VECTORS]
        limits = (self.max_tokens // 10 + 16, self.max_tokens)
        return pairs + [self.pair(FILLER * 200, HYPOTHESIS, limit) for limit in limits]

    @torch.no_grad()
    def logits(self, pair: Pair) -> np.ndarray:
        """Returns torch's logits [1, classes] of one pair alone."""
        types = {"token_type_ids": torch.tensor([pair.type_ids])} if self.has_types else {}
        return self.model(input_ids=torch.tensor([pair.ids]), **types).logits.numpy()

    def vector(self, index: int) -> dict:
        """Returns the texts of one vector of the manifest."""
        premise, hypothesis = VECTORS[index]
        return {"premise": premise} | ({"hypothesis": hypothesis} if self.kind == "nli" else {})


def read_source(folder: Path, kind: str = "auto") -> Source:
    """Reads the folder; `kind` is `nli`, `classifier` or `auto`. Raises `InputError`."""
    config = read_config(folder)
    check_family(folder, config)
    kind, classes = kind_and_classes(config, kind)
    check_shape(config)
    tokenizer = read_tokenizer(folder)
    check_vocabulary(tokenizer, config)
    own = config["model_type"] == "bert" and config.get(POOLING) == MEAN
    model = read_model(folder, len(classes), MeanBertForSequenceClassification if own else None)
    return Source(folder, model, tokenizer, kind, classes, max_tokens(config, tokenizer))


def read_config(folder: Path) -> dict:
    """Reads config.json, which must be an object."""
    if not folder.is_dir():
        raise InputError(f"`{folder}` is not a folder: pass a Hugging Face model folder")
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"`{folder}` has no `config.json`: copy it from the model's source") from None
    except (OSError, ValueError) as problem:
        raise InputError(f"`{path}` cannot be read: {one_line(problem)}") from None
    if not isinstance(config, dict):
        raise InputError(f"`{path}` is not a JSON object: copy it from the model's source")
    return config


def is_gliclass(folder: Path) -> bool:
    """True if the configuration describes a GLiClass model."""
    return read_config(folder).get("model_type") == "GLiClass"


def check_family(folder: Path, config: dict) -> None:
    """Rejects a family without a supported classifier."""
    family = config.get("model_type")
    if family not in (*BUILT, *EXPORTED):
        known = ", ".join((*BUILT, *EXPORTED))
        raise InputError(f"`{folder / 'config.json'}`: `model_type` is {family!r}; known are {known}")


def kind_and_classes(config: dict, kind: str) -> tuple[str, list[str]]:
    """Returns `nli` or `classifier`, and the class names in the order of the logits."""
    names = class_names(config, kind)
    entailed = any(name.lower().startswith("entail") for name in names)
    if kind == "classifier" or (kind == "auto" and not entailed and not unnamed(names)):
        return "classifier", names
    if not entailed:
        raise InputError(
            f"none of the classes ({', '.join(names)}) is the entailment: use a model trained on NLI, or pass "
            "`--kind classifier` if the classes are labels"
        )
    if len(names) not in (2, 3):
        raise InputError(f"`config.json` does not have 2 or 3 classes numbered from 0: {', '.join(names)}")
    return "nli", names


def unnamed(names: list[str]) -> bool:
    """True if there are several classes with the library's default names: the model may then be an NLI model."""
    return len(names) > 1 and names == [f"LABEL_{index}" for index in range(len(names))]


def class_names(config: dict, kind: str) -> list[str]:
    """Returns the class names in the order of the logits, from `label2id` or `id2label`."""
    by_name, by_index = config.get("label2id"), config.get("id2label")
    if not by_name and not by_index:
        if kind == "classifier":
            return [f"LABEL_{index}" for index in range(config.get("num_labels") or 2)]
        raise InputError(
            "`config.json` has no `label2id`, so the class of each logit is unknown: name the classes, or pass "
            "`--kind classifier` to name them LABEL_0, LABEL_1, …"
        )
    try:
        indices = {str(name): int(index) for name, index in (by_name or {}).items()}
        reverse = {str(name): int(index) for index, name in (by_index or {}).items()}
    except (AttributeError, TypeError, ValueError):
        raise InputError("`label2id` or `id2label` of `config.json` does not map between names and numbers") from None
    if by_index and len(reverse) < len(by_index):
        raise InputError("`id2label` of `config.json` gives two logits the same name")
    if indices and reverse and indices != reverse:
        raise InputError(f"`label2id` and `id2label` of `config.json` contradict each other: {indices} and {reverse}")
    indices = indices or reverse
    names = sorted(indices, key=indices.get)
    if sorted(indices.values()) != list(range(len(names))):
        raise InputError(f"the classes of `config.json` are not numbered from 0 without a gap: {indices}")
    return names


def check_shape(config: dict) -> None:
    """Rejects configurations that the graph builders do not support: they require erf-based Gelu and absolute
    positions."""
    family = config["model_type"]
    if family not in BUILT:
        return
    activation = config.get("activation_function" if family == "bart" else "hidden_act", "gelu")
    if activation != "gelu":
        raise InputError(f"`config.json`: the activation is {activation!r}; only 'gelu' can be built")
    positions = config.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise InputError(f"`config.json`: `position_embedding_type` is {positions!r}; only 'absolute' can be built")


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Returns the fast tokenizer, set to tokenize special tokens inside a text as ordinary text."""
    if not (folder / "tokenizer.json").is_file():
        raise InputError(
            f"`{folder}` has no `tokenizer.json`: save it with AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    try:
        Tokenizer.from_file(str(folder / "tokenizer.json"))
        return AutoTokenizer.from_pretrained(folder, split_special_tokens=True, local_files_only=True)
    except Exception as problem:  # the library raises bare Exception
        raise InputError(f"the tokenizer of `{folder}` cannot be read: {one_line(problem)}") from None


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, config: dict) -> None:
    """Rejects a tokenizer with ids that the model does not have."""
    size, highest = config.get("vocab_size"), max(tokenizer.get_vocab().values())
    if size is not None and highest >= size:
        raise InputError(
            f"`tokenizer.json` belongs to a different model: its ids go up to {highest}, but `vocab_size` is {size}"
        )


def read_model(folder: Path, classes: int, shape: type[PreTrainedModel] | None = None) -> PreTrainedModel:
    """Returns the classifier in float32 and in evaluation mode; the folder must contain every weight.

    `shape` is the Python class, if transformers has none for this model.
    """
    model, lacking = load(folder, shape or AutoModelForSequenceClassification, num_labels=classes)
    if lacking:
        raise InputError(f"the weights lack {count_of(lacking)}: use a trained classifier, not its base model")
    return model


def load(folder: Path, shape: type, **options: object) -> tuple[PreTrainedModel, list[str]]:
    """Returns a model of class `shape` in float32 and in evaluation mode, and the names of missing weights.

    Raises `InputError` if the weights cannot be read, or if a shape differs from `config.json`.
    """
    if not any((folder / name).is_file() for name in WEIGHT_FILES):
        raise InputError(f"`{folder}` has no weights: copy them from the model's source ({', '.join(WEIGHT_FILES)})")
    logging.disable_progress_bar()
    try:
        model, report = shape.from_pretrained(
            folder,
            attn_implementation="eager",
            dtype="float32",
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
    except Exception as problem:  # damaged files cause many kinds of exceptions
        raise InputError(f"the weights of `{folder}` cannot be read: {one_line(problem)}") from None
    mismatched = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if mismatched:
        raise InputError(f"the weights do not have the shape that `config.json` specifies: {count_of(mismatched)}")
    return model.eval(), sorted(report["missing_keys"])


def max_tokens(config: dict, tokenizer: PreTrainedTokenizerBase) -> int:
    """Returns the maximum number of ids in a pair: the minimum of the tokenizer's limit and the usable positions."""
    positions = config.get("max_position_embeddings")
    if positions and config["model_type"] in ("roberta", "xlm-roberta"):
        positions -= 2
    limits = [limit for limit in (tokenizer.model_max_length, positions) if limit and limit < NO_LIMIT]
    return min(limits, default=DEFAULT_MAX_TOKENS)


def count_of(names: list[str]) -> str:
    """Returns the first of some names and the number of the others."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"`{names[0]}`{more}"


def one_line(problem: BaseException) -> str:
    """Returns the first line of a library's error."""
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__
