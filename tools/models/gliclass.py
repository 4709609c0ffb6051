"""Reads and checks a GLiClass checkpoint, and wraps it for export: a graph that returns one logit per label.

Input is the path of a checkpoint whose architecture is `uni-encoder`. Output is a source like `models.source.Source`,
from which `models.make` makes graphs. A graph finds the labels by their token, so their number is not fixed.

B is the number of rows, W the width, K the number of labels, D the encoder's `hidden_size`:

| part | shape | content |
|---|---|---|
| encoder | [B, W] → [B, W, D] | token states, as transformers computes them |
| labels | [B, W, D] → [B, K, D] | the state at, or after, a label's token, or the mean of the label's tokens; projected |
| text | [B, W, D] → [B, D] | pooled states, projected; all states for the scorer `cross-attn` |
| scorer | → [B, K] | logits, scaled if the model normalizes, and calibrated if it has a calibrator |

A task prompt, a text that describes the task to the model, is stored in the folder's config.json as `task_prompt`.

The package also pools the padding of a batch, so its scores depend on the other rows of the batch. Here, a row has the
scores that the package gives for this row alone.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from gliclass import GLiClassModel
from tokenizers import Tokenizer
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from models import InputError
from models.inputs import Filling, Pair
from models.source import check_vocabulary, count_of, load, one_line, read_config, read_tokenizer
from models.texts import FILLER, GLICLASS_LABELS, VECTORS

MODEL_TYPE = "GLiClass"
LABEL, SEPARATOR = "<<LABEL>>", "<<SEP>>"
ARCHITECTURE = "uni-encoder"
TASK_PROMPT = "task_prompt"  # key in config.json; the package expects it with each call instead
SCORERS = ("simple", "weighted-dot", "mlp", "hopfield", "cross-attn")
POOLINGS = ("first", "last", "avg", "sum", "max", "rms", "abs_max", "abs_avg", "pass")
DEFAULT_MAX_TOKENS = 1024  # of the package's pipeline, which ignores the tokenizer's limit
# Encoders without a table of positions.
UNLIMITED = ("t5", "mt5", "umt5", "modernbert")


class Packed(torch.nn.Module):
    """The exported module: the checkpoint's own encoder, projections and scorer, with exact pooling between them."""

    def __init__(self, model: GLiClassModel):
        super().__init__()
        self.inner, self.config = model.model, model.config
        self.calibrator = model.calibrator

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: object) -> SimpleNamespace:
        """Returns `logits` [B, K]; K is the largest number of labels in a row."""
        states = self.states(input_ids, attention_mask)
        labels = self.inner.classes_projector(self.labels(states, input_ids, attention_mask))
        states, real = self.text(states, input_ids, attention_mask)
        pooled = self.inner.text_projector(self.pooled(states, real, attention_mask))
        if self.config.normalize_features:
            pooled, labels = self.unit(pooled), self.unit(labels)
        logits = self.inner.scorer(pooled, labels, text_mask=real)
        if self.config.normalize_features:
            logits = logits * self.inner.logit_scale
        if self.calibrator is not None:
            factor, offset = self.calibrator(pooled, labels, logits, torch.ones_like(logits))
            logits = factor * logits + offset
        return SimpleNamespace(logits=logits)

    def states(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Returns the token states [B, W, D] of the encoder's last layer."""
        encoder = self.inner.encoder_model
        if not self.config.use_segment_embeddings:
            return encoder(ids, attention_mask=mask)[0]
        segments = (torch.cumsum(self.is_separator(ids), 1) > 0).long()
        tokens = encoder.get_input_embeddings()(ids) + self.inner.segment_embeddings(segments)
        return encoder(inputs_embeds=tokens, attention_mask=mask)[0]

    def labels(self, states: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Returns the state of each label [B, K, D]."""
        config = self.config
        starts = (ids == config.class_token_index).long()
        number = torch.cumsum(starts, 1)  # of the label that a token belongs to, from 1
        numbers = torch.arange(1, number[:, -1].max() + 1, device=ids.device).unsqueeze(1)
        if config.class_token_pooling != "average":
            chosen = (number.unsqueeze(1) == numbers) & starts.bool().unsqueeze(1)
            if not config.embed_class_token:  # the token after the label's own
                chosen = torch.nn.functional.pad(chosen[:, :, :-1].float(), (1, 0))
            return chosen.to(states.dtype) @ states
        chosen = mask.bool()
        if config.extract_text_features:
            chosen = chosen & (torch.cumsum(self.is_separator(ids), 1) == 0)
        if not config.embed_class_token:
            chosen = chosen & ~starts.bool()
        chosen = ((number.unsqueeze(1) == numbers) & chosen.unsqueeze(1)).to(states.dtype)
        return (chosen @ states) / chosen.sum(-1, keepdim=True).clamp(min=1)

    def text(self, states: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the states that are pooled and their mask: all, or those from the separator on."""
        if not self.config.extract_text_features:
            return states, mask
        return states, mask * (torch.cumsum(self.is_separator(ids), 1) > 0).long()

    def pooled(self, states: torch.Tensor, real: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Pools states as the package does for a row without padding.

        With `extract_text_features`, the package moves the text to the front and fills the rest with zeros, which count
        in a mean and in a maximum.
        """
        strategy, weights = self.config.pooling_strategy, real.unsqueeze(-1).to(states.dtype)
        if strategy == "pass":
            return states
        if strategy in ("first", "last"):
            count = torch.cumsum(real, 1)
            place = count == (1 if strategy == "first" else count[:, -1:])
            return (states * (place.long() * real).unsqueeze(-1).to(states.dtype)).sum(1)
        if strategy == "max" and not self.config.extract_text_features:
            return states.masked_fill(weights == 0, torch.finfo(states.dtype).min).amax(1)
        kept = states * weights
        length = mask.sum(1, keepdim=True).to(states.dtype)
        return {
            "avg": lambda: kept.sum(1) / length,
            "sum": lambda: kept.sum(1),
            "max": lambda: kept.amax(1),
            "rms": lambda: ((kept * kept).sum(1) / length).sqrt(),
            "abs_max": lambda: kept.abs().amax(1),
            "abs_avg": lambda: kept.abs().sum(1) / length,
        }[strategy]()

    def unit(self, vectors: torch.Tensor) -> torch.Tensor:
        """Returns vectors of length 1."""
        return vectors / (vectors.norm(p=2, dim=-1, keepdim=True) + self.inner.epsilon)

    def is_separator(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns 1 for the token that precedes the text, and 0 for the others."""
        return (ids == self.config.text_token_index).long()


class GliclassSource:
    """A checkpoint with its tokenizer, and the members of `Source` that `models.make` uses."""

    kind, classes, family, has_types = "gliclass", (), MODEL_TYPE, False

    def __init__(self, folder: Path, reference: GLiClassModel, tokenizer: PreTrainedTokenizerBase, task_prompt: str):
        self.folder, self.reference, self.tokenizer = folder, reference, tokenizer
        self.model = Packed(reference).eval()
        self.prompt = Prompt(folder / "tokenizer.json", self.config.prompt_first, task_prompt)
        self.max_tokens = max_tokens(self.config)

    @property
    def settings(self) -> dict:
        """Returns the keys to set in the folder's config.json: the task prompt."""
        return {TASK_PROMPT: self.prompt.task_prompt or None}

    @property
    def config(self) -> PreTrainedConfig:
        """The checkpoint's configuration."""
        return self.reference.config

    @property
    def filling(self) -> Filling:
        """Returns the padding id."""
        return Filling(self.tokenizer.pad_token_id or 0, None)

    def tensors(self) -> dict[str, np.ndarray]:
        """Returns no weights, because the graph is exported, not built node by node."""
        return {}

    def proof_pairs(self) -> list[Pair]:
        """Returns the manifest's rows, one with about a tenth of `max_tokens`, and one with `max_tokens`."""
        rows = [self.prompt.ids(GLICLASS_LABELS, text, self.max_tokens) for text, _ in VECTORS]
        fewest = len(self.prompt.ids(GLICLASS_LABELS, "", self.max_tokens))
        for limit in (min(fewest + self.max_tokens // 10, self.max_tokens), self.max_tokens):
            rows.append(self.prompt.ids(GLICLASS_LABELS, FILLER * 200, limit))
        return [Pair(row, [0] * len(row)) for row in rows]

    @torch.no_grad()
    def logits(self, pair: Pair) -> np.ndarray:
        """Returns the package's logits [1, K] of one row alone."""
        ids = torch.tensor([pair.ids])
        labels = int((ids == self.config.class_token_index).sum())
        return self.reference(input_ids=ids, attention_mask=torch.ones_like(ids), max_num_classes=labels).logits.numpy()

    def vector(self, index: int) -> dict:
        """Returns the texts of a vector of the manifest."""
        return {"premise": VECTORS[index][0], "labels": list(GLICLASS_LABELS)}


class Prompt:
    """Makes the ids of labels and text, which are tokenized separately; special tokens inside them are read as text.

    The package tokenizes one string, which the tokenizer splits at the special tokens, so the ids are the same. The task
    prompt follows the separator. If the labels come first, nothing separates it from the text, so the two are tokenized
    together.
    """

    def __init__(self, path: Path, prompt_first: bool, task_prompt: str = ""):
        content = json.loads(path.read_text(encoding="utf-8"))
        self.first = plain(content)
        forget_start(content.get("pre_tokenizer"))
        self.later, self.prompt_first, self.task_prompt = plain(content), prompt_first, task_prompt
        marks = self.first.encode("").ids
        self.label, self.separator = self.first.token_to_id(LABEL), self.first.token_to_id(SEPARATOR)
        whole = self.first.encode("a").ids
        inner = self.first.encode("a", add_special_tokens=False).ids
        start = next(place for place in range(len(whole)) if whole[place : place + len(inner)] == inner)
        self.front, self.back = whole[:start], whole[start + len(inner) :]
        assert marks == self.front + self.back, "the tokenizer has other special tokens for an empty text"

    def ids(self, labels: list[str] | tuple[str, ...], text: str, limit: int) -> list[int]:
        """Returns the ids of a row, at most `limit`: the text is truncated."""
        prompt = []
        for label in labels:
            prompt += [self.label, *self.later.encode(label, add_special_tokens=False).ids]
        prompt.append(self.separator)
        if self.prompt_first:
            tokenizer, text = self.later, self.task_prompt + text
        else:
            tokenizer = self.first
            if self.task_prompt:
                prompt += self.later.encode(self.task_prompt, add_special_tokens=False).ids
        room = max(limit - len(prompt) - len(self.front) - len(self.back), 0)
        words = tokenizer.encode(text, add_special_tokens=False).ids[:room]
        return [*self.front, *(prompt + words if self.prompt_first else words + prompt), *self.back]


def plain(content: dict) -> Tokenizer:
    """Returns a tokenizer without limits, which reads special tokens in a text as text."""
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def forget_start(step: dict | None) -> None:
    """Makes a pre-tokenizer treat a text as the continuation of another: some mark only the first word of an input."""
    if not step:
        return
    if step.get("type") == "Metaspace" and step.get("prepend_scheme") == "first":
        step["prepend_scheme"] = "never"
    for inner in step.get("pretokenizers", []):
        forget_start(inner)


def read_gliclass(folder: Path, task_prompt: str | None = None) -> GliclassSource:
    """Reads and checks the folder; a `task_prompt` replaces that of config.json. Raises `InputError`."""
    config = read_config(folder)
    check_config(folder, config)
    task_prompt = (config.get(TASK_PROMPT) if task_prompt is None else task_prompt) or ""
    check_task_prompt(folder, task_prompt)
    tokenizer = read_tokenizer(folder)
    check_vocabulary(tokenizer, config)
    check_tokens(folder, tokenizer, config)
    model, lacking = load(folder, GLiClassModel)
    if lacking:
        raise InputError(f"the weights of `{folder}` lack {count_of(lacking)}: copy them again from their source")
    model.model.encoder_model.set_attn_implementation("eager")
    try:
        source = GliclassSource(folder, model, tokenizer, task_prompt)
    except (AssertionError, StopIteration) as problem:
        raise InputError(f"the tokenizer of `{folder}` cannot be used: {one_line(problem)}") from None
    if task_prompt:
        check_room(source)
    return source


def check_config(folder: Path, config: dict) -> None:
    """Rejects configurations that this module cannot export, and names the key."""
    path = folder / "config.json"
    if config.get("model_type") != MODEL_TYPE:
        raise InputError(f"`{path}`: `model_type` is {config.get('model_type')!r}, not {MODEL_TYPE!r}")
    scorer, pooling = config.get("scorer_type", "simple"), config.get("pooling_strategy", "first")
    for key, value, known in [
        ("architecture_type", config.get("architecture_type", ARCHITECTURE), (ARCHITECTURE,)),
        ("scorer_type", scorer, SCORERS),
        ("pooling_strategy", pooling, POOLINGS),
        ("class_token_pooling", config.get("class_token_pooling", "first"), ("first", "average")),
        ("use_lstm", bool(config.get("use_lstm")), (False,)),
        ("squeeze_layers", bool(config.get("squeeze_layers")), (False,)),
        ("encoder_layer_id", config.get("encoder_layer_id", -1), (-1,)),
    ]:
        if value not in known:
            raise InputError(f"`{path}`: `{key}` is {value!r}; known are {', '.join(map(str, known))}")
    if (scorer == "cross-attn") != (pooling == "pass"):
        raise InputError(f"`{path}`: the scorer {scorer!r} does not go with the pooling {pooling!r}")
    if pooling == "last" and config.get("extract_text_features"):
        raise InputError(f"`{path}`: with `extract_text_features`, the pooling 'last' reads no text at all")
    limit = most_labels(config)
    if limit is not None and limit < len(GLICLASS_LABELS):
        raise InputError(f"`{path}`: the model reads {limit} labels at most; {len(GLICLASS_LABELS)} are needed")


def check_task_prompt(folder: Path, task_prompt: object) -> None:
    """Rejects a task prompt that is not a string, or contains a token that separates labels and text."""
    if not isinstance(task_prompt, str):
        raise InputError(f"`{folder / 'config.json'}`: `{TASK_PROMPT}` is not a string: pass --task-prompt instead")
    for token in (LABEL, SEPARATOR):
        if token in task_prompt:
            raise InputError(
                f"the task prompt contains `{token}`, which separates labels and text: pass a different --task-prompt"
            )


def check_room(source: GliclassSource) -> None:
    """Rejects a task prompt that leaves no room for a token of text alongside the labels of the manifest."""
    used = len(source.prompt.ids(GLICLASS_LABELS, "", sys.maxsize))
    if used >= source.max_tokens:
        raise InputError(
            f"the task prompt and {len(GLICLASS_LABELS)} labels have {used} tokens, which leaves no room for a text in "
            f"the model's window of {source.max_tokens}: shorten --task-prompt"
        )


def most_labels(config: dict) -> int | None:
    """Returns the maximum number of labels that the package reads; `None` if there is no limit."""
    allocation = config.get("max_labels_alloc", "dynamic")
    if allocation == "dynamic":
        return None
    return allocation if isinstance(allocation, int) else config.get("max_num_classes", 25)


def check_tokens(folder: Path, tokenizer: PreTrainedTokenizerBase, config: dict) -> None:
    """Rejects a tokenizer without the tokens of the prompt."""
    known = tokenizer.get_added_vocab()
    for token, key in [(LABEL, "class_token_index"), (SEPARATOR, "text_token_index")]:
        if token not in known:
            raise InputError(f"the tokenizer of `{folder}` has no token `{token}`: copy the checkpoint's own files")
        if known[token] != config.get(key):
            raise InputError(
                f"`{folder}`: `{token}` is {known[token]} in the tokenizer, and `{key}` of config.json is "
                f"{config.get(key)}: copy the checkpoint's own files"
            )
        entry = tokenizer.added_tokens_decoder[known[token]]
        if not entry.special or entry.lstrip or entry.rstrip:
            raise InputError(f"`{folder}`: `{token}` is not a special token without `lstrip` and `rstrip`")


def max_tokens(config: PreTrainedConfig) -> int:
    """Returns the maximum number of ids in a row: the limit of the package's pipeline, or of the encoder's positions."""
    encoder = config.encoder_config.get_text_config()
    positions = getattr(encoder, "max_position_embeddings", None)
    unlimited = encoder.model_type in UNLIMITED or getattr(encoder, "position_biased_input", None) is False
    if unlimited or not positions:
        return DEFAULT_MAX_TOKENS
    if encoder.model_type in ("roberta", "xlm-roberta"):
        positions -= 2
    return min(positions, DEFAULT_MAX_TOKENS)
