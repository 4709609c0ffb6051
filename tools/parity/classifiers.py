"""Golden scores of classifiers from the reference itself: transformers' text-classification pipeline."""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedModel, TextClassificationPipeline, pipeline

from parity.cases import TEXTS
from parity.corpus import LONG
from parity.models import Spec
from parity.reference import SCORE_TOLERANCE, plain_tokenizer, short, softmax

# What topicmill calls each function of the pipeline.
FUNCTIONS = {"single": "softmax", "multi": "sigmoid", "raw": "none"}


class ClassifierReference:
    """The pipeline over a model in memory and the tokenizer of its saved folder."""

    def __init__(self, model: PreTrainedModel, folder: Path, spec: Spec):
        # split_special_tokens: a `</s>` in a text stays four characters of text.
        self.tokenizer = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
        self.pipe: TextClassificationPipeline = pipeline(
            "text-classification", model=model, tokenizer=self.tokenizer, device="cpu"
        )
        self.model, self.labels = model, list(spec.labels)
        self.plain = plain_tokenizer(folder / "tokenizer.json")
        self.has_types = spec.family == "bert"

    def golden(self, texts: dict[str, str]) -> dict:
        """What the pipeline says of each text under each function, proved against the logits."""
        return {
            "kind": "classifier",
            "default_mode": self.default_mode(next(iter(texts.values()))),
            "cases": [self.case(name, text, mode) for name, text in texts.items() for mode in FUNCTIONS],
        }

    def case(self, name: str, text: str, mode: str) -> dict:
        """One text under one function."""
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
        """The pipeline's scores in the order of the labels."""
        options = {"function_to_apply": function} if function else {}
        found = self.pipe(text, truncation=True, top_k=None, **options)
        by_label = {entry["label"]: entry["score"] for entry in found}
        return np.array([by_label[label] for label in self.labels])

    def default_mode(self, text: str) -> str:
        """The function that the pipeline applies where nobody names one."""
        default = self.scores(text, None)
        fits = [mode for mode, name in FUNCTIONS.items() if np.array_equal(self.scores(text, name), default)]
        assert len(fits) == 1, fits
        return fits[0]

    def batch(self, texts: list[str]) -> dict[str, torch.Tensor]:
        """One padded batch of single texts."""
        encoded = self.tokenizer(texts, truncation=True, padding=True, return_tensors="pt")
        names = ["input_ids", "attention_mask", *(["token_type_ids"] if self.has_types else [])]
        return {name: encoded[name] for name in names}

    def prove_ids(self, text: str, ids: list[int]) -> None:
        """Prove that the row is the text encoded alone and cut at its end, between special tokens."""
        content = self.plain.encode(text, add_special_tokens=False).ids
        content = content[: self.tokenizer.model_max_length - self.plain.num_special_tokens_to_add(False)]
        wanted = [self.tokenizer.cls_token_id, *content, self.tokenizer.sep_token_id]
        assert ids == wanted, f"unexpected ids for {text[:40]!r}"


def by_hand(logits: np.ndarray, mode: str) -> np.ndarray:
    """The pipeline's rule in double precision."""
    logits = logits.astype(np.float64)
    if mode == "multi":
        return 1 / (1 + np.exp(-logits))
    return softmax(logits) if mode == "single" else logits


def classifier_texts(reference: ClassifierReference) -> dict[str, str]:
    """Every text, and two that end around the window."""
    words, room = LONG.split(" "), reference.tokenizer.model_max_length - 2
    texts = dict(TEXTS)
    for tokens in (room, room + 1):
        count = max(
            n
            for n in range(len(words) + 1)
            if len(reference.plain.encode(" ".join(words[:n]), add_special_tokens=False).ids) <= tokens
        )
        texts[f"{tokens} tokens"] = " ".join(words[:count])
    return texts
