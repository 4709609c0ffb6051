"""Golden scores from transformers' zero-shot-classification and text-classification pipelines."""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import (
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TextClassificationPipeline,
    ZeroShotClassificationPipeline,
    pipeline,
)

from parity.cases import LONG, TEXTS, Case
from parity.models import Spec

SCORE_TOLERANCE = 1e-6
FUNCTIONS = {"single": "softmax", "multi": "sigmoid", "raw": "none"}  # topicmill's modes, and the pipeline's functions
PACKAGES = ["numpy", "onnx", "onnxruntime", "tokenizers", "torch", "transformers"]


class Reference:
    """The zero-shot pipeline with a model in memory and the tokenizer of its saved folder."""

    def __init__(self, model: PreTrainedModel, folder: Path):
        # split_special_tokens: a `</s>` in a text remains four characters of text.
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
        self.pipe: ZeroShotClassificationPipeline = pipeline(
            "zero-shot-classification", model=model, tokenizer=self.tokenizer, device="cpu"
        )
        self.model = model
        self.plain = plain_tokenizer(folder / "tokenizer.json")

    def golden(self, case: Case) -> dict:
        """Returns the case with its scores and logits in the order of its labels, checked against each other."""
        scores = self.scores(case)
        pairs = [self.encode(case.text, case.template.format(label)) for label in case.labels]
        for label, pair in zip(case.labels, pairs, strict=True):
            self.prove_ids(case.text, case.template.format(label), pair["input_ids"][0].tolist())
        logits = np.concatenate([self.logits(pair) for pair in pairs])
        again = scores_from_logits(logits, self.model.config.label2id, case.mode)
        error = float(np.abs(again - scores).max())
        assert error <= SCORE_TOLERANCE, f"`{case.name}`: scores from the logits differ by {error:.1e}"
        record = {
            "name": case.name,
            "text": case.text,
            "labels": case.labels,
            "template": case.template,
            "mode": case.mode,
            "scores": [short(score) for score in scores],
            "logits": [[short(logit) for logit in row] for row in logits],
        }
        if case.with_ids:
            record["input_ids"] = [pair["input_ids"][0].tolist() for pair in pairs]
        return record

    def scores(self, case: Case) -> np.ndarray:
        """Returns the pipeline's scores in the order of the labels."""
        multi = case.mode == "multi"
        if case.text:
            options = {"hypothesis_template": case.template, "multi_label": multi}
            result = self.pipe(case.text, candidate_labels=case.labels, **options)
        else:
            # The pipeline rejects an empty text, but its steps accept one.
            chunks = self.pipe.preprocess([case.text], case.labels, case.template)
            result = self.pipe.postprocess([self.pipe.forward(chunk) for chunk in chunks], multi)
        by_label = dict(zip(result["labels"], result["scores"], strict=True))
        return np.array([by_label[label] for label in case.labels])

    def encode(self, text: str, hypothesis: str) -> dict[str, torch.Tensor]:
        """Returns the pair alone as the model's inputs, each [1, sequence]."""
        return self.tokenizer(text, hypothesis, truncation="only_first", return_tensors="pt")

    def logits(self, pair: dict[str, torch.Tensor]) -> np.ndarray:
        """Returns the logits [1, classes] of the pair alone."""
        with torch.no_grad():
            return self.model(**pair).logits.numpy()

    def batch(self, texts: list[str], hypothesis: str) -> dict[str, torch.Tensor]:
        """Returns one padded batch: each text with the hypothesis."""
        hypotheses = [hypothesis] * len(texts)
        encoded = self.tokenizer(texts, hypotheses, truncation="only_first", padding=True, return_tensors="pt")
        return {name: encoded[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in encoded}

    def prefix(self, text: str, tokens: int) -> str:
        """Returns the longest prefix of whole words from `text` with at most `tokens` tokens."""
        return prefix(self.plain, text, tokens)

    def content_ids(self, text: str) -> list[int]:
        """Returns the ids of the text without special tokens, from tokenizer.json alone."""
        return self.plain.encode(text, add_special_tokens=False).ids

    def prove_ids(self, text: str, hypothesis: str, ids: list[int]) -> None:
        """Checks that the ids equal both texts' ids, encoded separately, the first truncated, with special tokens."""
        sep, cls = self.tokenizer.sep_token_id, self.tokenizer.cls_token_id
        specials = self.plain.num_special_tokens_to_add(True)
        second = self.content_ids(hypothesis)
        first = self.content_ids(text)[: self.tokenizer.model_max_length - specials - len(second)]
        assert ids == [cls, *first, *[sep] * (specials - 2), *second, sep], f"unexpected ids for {text[:40]!r}"
        forbidden = set(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}
        assert not forbidden.intersection(first + second), f"a special token was read in {text[:40]!r}"


class ClassifierReference:
    """The text-classification pipeline with a model in memory and the tokenizer of its saved folder."""

    def __init__(self, model: PreTrainedModel, folder: Path, spec: Spec):
        # split_special_tokens: a `</s>` in a text remains four characters of text.
        self.tokenizer = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
        self.pipe: TextClassificationPipeline = pipeline(
            "text-classification", model=model, tokenizer=self.tokenizer, device="cpu"
        )
        self.model, self.labels = model, list(spec.labels)
        self.plain = plain_tokenizer(folder / "tokenizer.json")
        self.has_types = spec.family == "bert"

    def golden(self, texts: dict[str, str]) -> dict:
        """Returns the pipeline's results for each text and function, checked against the logits."""
        return {
            "kind": "classifier",
            "default_mode": self.default_mode(next(iter(texts.values()))),
            "cases": [self.case(name, text, mode) for name, text in texts.items() for mode in FUNCTIONS],
        }

    def case(self, name: str, text: str, mode: str) -> dict:
        """Returns one text's result under one function."""
        encoded = self.batch([text])
        self.prove_ids(text, encoded["input_ids"][0].tolist())
        with torch.no_grad():
            logits = self.model(**encoded).logits[0].numpy()
        scores = self.scores(text, FUNCTIONS[mode])
        error = float(np.abs(by_hand(logits, mode) - scores).max())
        assert error <= SCORE_TOLERANCE, f"`{name}`, {mode}: scores from the logits differ by {error:.1e}"
        return {
            "name": f"{name}, {mode}",
            "text": text,
            "labels": self.labels,
            "mode": mode,
            "scores": [short(score) for score in scores],
            "logits": [[short(logit)] for logit in logits],
        }

    def scores(self, text: str, function: str | None) -> np.ndarray:
        """Returns the pipeline's scores in the order of the labels."""
        options = {"function_to_apply": function} if function else {}
        found = self.pipe(text, truncation=True, top_k=None, **options)
        by_label = {entry["label"]: entry["score"] for entry in found}
        return np.array([by_label[label] for label in self.labels])

    def default_mode(self, text: str) -> str:
        """Returns the pipeline's default function for the model."""
        default = self.scores(text, None)
        fits = [mode for mode, name in FUNCTIONS.items() if np.array_equal(self.scores(text, name), default)]
        assert len(fits) == 1, fits
        return fits[0]

    def batch(self, texts: list[str]) -> dict[str, torch.Tensor]:
        """Returns one padded batch of single texts."""
        encoded = self.tokenizer(texts, truncation=True, padding=True, return_tensors="pt")
        names = ["input_ids", "attention_mask", *(["token_type_ids"] if self.has_types else [])]
        return {name: encoded[name] for name in names}

    def prove_ids(self, text: str, ids: list[int]) -> None:
        """Checks that the ids equal the text's ids, truncated at the end, between special tokens."""
        content = self.plain.encode(text, add_special_tokens=False).ids
        content = content[: self.tokenizer.model_max_length - self.plain.num_special_tokens_to_add(False)]
        wanted = [self.tokenizer.cls_token_id, *content, self.tokenizer.sep_token_id]
        assert ids == wanted, f"unexpected ids for {text[:40]!r}"


def by_hand(logits: np.ndarray, mode: str) -> np.ndarray:
    """Applies the pipeline's rule in double precision."""
    logits = logits.astype(np.float64)
    if mode == "multi":
        return 1 / (1 + np.exp(-logits))
    return softmax(logits) if mode == "single" else logits


def classifier_texts(reference: ClassifierReference) -> dict[str, str]:
    """Returns every text, one that just fills the window, and one that is a token longer."""
    room = reference.tokenizer.model_max_length - 2
    return TEXTS | {f"{tokens} tokens": prefix(reference.plain, LONG, tokens) for tokens in (room, room + 1)}


def prefix(tokenizer: Tokenizer, text: str, tokens: int) -> str:
    """Returns the longest prefix of whole words from `text` with at most `tokens` tokens."""
    words = text.split(" ")
    length = lambda n: len(tokenizer.encode(" ".join(words[:n]), add_special_tokens=False).ids)  # noqa: E731
    return " ".join(words[: max(n for n in range(len(words) + 1) if length(n) <= tokens)])


def plain_tokenizer(path: Path) -> Tokenizer:
    """Reads tokenizer.json as topicmill does: without its own limits, and with special tokens in a text as text."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def scores_from_logits(logits: np.ndarray, label2id: dict[str, int], mode: str) -> np.ndarray:
    """Applies the pipeline's rule in double precision: logits [labels, classes] in, scores [labels] out.

    The contradiction is not identified by name: it is class 0, or the last class if class 0 is the entailment. A single
    label is scored as in `multi` mode.
    """
    entailment = next(index for label, index in label2id.items() if label.lower().startswith("entail"))
    contradiction = -1 if entailment == 0 else 0
    logits = logits.astype(np.float64)
    if mode == "multi" or len(logits) == 1:
        return softmax(logits[:, [contradiction, entailment]])[:, 1]
    return softmax(logits[:, entailment])


def softmax(values: np.ndarray) -> np.ndarray:
    """Returns the softmax over the last axis."""
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def short(value: float) -> float:
    """Returns the shortest decimal form of a float32 number."""
    return float(str(np.float32(value)))


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the libraries that compute the scores."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python} | {name: version(name) for name in PACKAGES}


def write_golden(path: Path, head: dict, cases: list[dict]) -> None:
    """Writes one JSON object, with one case per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f'{json.dumps(head)[:-1]}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")
