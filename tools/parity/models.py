"""Random NLI models and classifiers with their tokenizers, in memory and as Hugging Face folders."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (
    BartConfig,
    BartForSequenceClassification,
    BartTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaTokenizer,
)

from parity.cases import LINES

BYTE_LEVEL_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
WORDPIECE_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# Spread of the random weights: high enough that attention is not flat, and low enough that it does not amplify
# rounding.
GAIN = 1.4


@dataclass(frozen=True)
class Spec:
    """A classifier to make.

    `labels` are the class names in the order of the logits. A pair is truncated at `window` tokens (the tokenizer's
    `model_max_length`); `positions` is the configuration's `max_position_embeddings`. With `own_limits`, tokenizer.json
    sets truncation and padding, which a program must disable. The graph's logits may differ from torch's by
    `graph_tolerance`. `made_folder` is the folder for the output of tools/model.py.
    """

    name: str
    family: str
    labels: tuple[str, ...]
    window: int
    positions: int
    seed: int
    onnx_file: str
    own_limits: bool = False
    graph_tolerance: float = 1e-5
    width: int = 32
    layers: int = 2
    heads: int = 4
    inner: int = 64
    vocab_size: int | None = None
    made_folder: str | None = None
    problem: str | None = None

    @property
    def config_fields(self) -> dict:
        """Returns the config fields that all families share."""
        return {
            "id2label": dict(enumerate(self.labels)),
            "label2id": {label: index for index, label in enumerate(self.labels)},
            "max_position_embeddings": self.positions,
            "attn_implementation": "eager",
        } | ({"problem_type": self.problem} if self.problem else {})


TINY = [
    Spec(
        "tiny-bart-mnli",
        "bart",
        ("contradiction", "neutral", "entailment"),
        window=96,
        positions=96,
        seed=1,
        onnx_file="onnx/model.onnx",
        made_folder="tiny-bart-made",
    ),
    Spec("tiny-bert-nli", "bert", ("entailment", "neutral", "contradiction"), 96, 96, 2, "model.onnx", own_limits=True),
    Spec("tiny-bert-2way", "bert", ("entailment", "not_entailment"), 64, 96, 3, "onnx/model.onnx"),
    # The pipeline uses class 0 as the contradiction, whatever its name: here, class 0 is NEUTRAL.
    Spec("tiny-roberta-nli", "roberta", ("NEUTRAL", "ENTAILMENT", "CONTRADICTION"), 80, 82, 4, "model.onnx"),
]


# A classifier of each family, and at least one for each function from logits to scores.
CLASSIFIERS = [
    Spec("tiny-bart-moods", "bart", ("joy", "sadness", "anger"), 96, 96, 11, "onnx/model.onnx"),
    Spec(
        "tiny-bert-quality",
        "bert",
        ("LABEL_0",),
        64,
        96,
        12,
        "model.onnx",
        own_limits=True,
        made_folder="tiny-bert-quality-made",
        problem="regression",
    ),
    Spec(
        "tiny-roberta-flags",
        "roberta",
        ("toxic", "obscene", "Größe & Maß", "🎮 gaming", "a.b"),
        80,
        82,
        13,
        "model.onnx",
        problem="multi_label_classification",
    ),
    Spec("tiny-deberta-topics", "deberta", ("science", "sports", "Food", "food"), 64, 64, 14, "model.onnx"),
]


def full_spec(layers: int) -> Spec:
    """Returns the shape of bart-large-mnli, with `layers` encoder layers and the same number of decoder layers."""
    return Spec(
        "bart-large-random",
        "bart",
        ("contradiction", "neutral", "entailment"),
        window=1024,
        positions=1024,
        seed=5,
        onnx_file="onnx/model.onnx",
        graph_tolerance=5e-5,
        width=1024,
        layers=layers,
        heads=16,
        inner=4096,
        vocab_size=50265,
    )


def base_spec() -> Spec:
    """Returns the shape of bert-base, which many published classifiers have."""
    return Spec(
        "bert-base-random",
        "bert",
        ("entailment", "neutral", "contradiction"),
        window=512,
        positions=512,
        seed=6,
        onnx_file="model.onnx",
        graph_tolerance=5e-5,
        width=768,
        layers=12,
        heads=12,
        inner=3072,
        vocab_size=30522,
    )


def make_tokenizer(spec: Spec) -> PreTrainedTokenizerBase:
    """Trains the family's tokenizer on the corpus."""
    if spec.family in ("bert", "deberta"):  # DeBERTa's own tokenizer needs a SentencePiece model, so BERT's is used
        return BertTokenizer(vocab=wordpiece_vocabulary(), model_max_length=spec.window)
    vocab, merges = train_byte_level_bpe()
    kind = BartTokenizer if spec.family == "bart" else RobertaTokenizer
    return kind(vocab=vocab, merges=merges, model_max_length=spec.window)


def wordpiece_vocabulary() -> dict[str, int]:
    """Returns a lower-cased WordPiece vocabulary of the corpus: special tokens, characters, frequent words and endings.

    The pieces are counted here, because the library's WordPieceTrainer produces a different vocabulary each time it
    runs.
    """
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words = [word for line in LINES for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(line))]
    characters = {character for word in words for character in word}
    pieces = Counter(words)
    pieces.update(f"##{word[start:]}" for word in words for start in range(1, len(word)))
    frequent = {piece for piece, count in pieces.items() if count >= 2}
    alphabet = characters | {f"##{character}" for character in characters}
    return {piece: index for index, piece in enumerate(WORDPIECE_SPECIALS + sorted(alphabet | frequent))}


def train_byte_level_bpe() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Returns a byte-level BPE vocabulary with all 256 bytes, so that any text can be encoded, and its merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=BYTE_LEVEL_SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def make_model(spec: Spec, tokens: int) -> PreTrainedModel:
    """Returns the classifier with random weights, ready to run; `tokens` is the tokenizer's size."""
    vocab_size = spec.vocab_size or tokens
    build = {"bart": bart, "deberta": deberta}.get(spec.family, bert_like)
    model = build(spec, vocab_size)
    fill_weights(model, spec.seed)
    return model.eval()


def bart(spec: Spec, vocab_size: int) -> PreTrainedModel:
    """Configures an encoder and a decoder, as in bart-large-mnli."""
    config = BartConfig(
        vocab_size=vocab_size,
        d_model=spec.width,
        encoder_layers=spec.layers,
        decoder_layers=spec.layers,
        encoder_attention_heads=spec.heads,
        decoder_attention_heads=spec.heads,
        encoder_ffn_dim=spec.inner,
        decoder_ffn_dim=spec.inner,
        **spec.config_fields,
    )
    return BartForSequenceClassification(config)


def bert_like(spec: Spec, vocab_size: int) -> PreTrainedModel:
    """Configures a single encoder: BERT with two segment types, or RoBERTa with one."""
    bert = spec.family == "bert"
    special_ids = {"pad_token_id": 0} if bert else {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    config = (BertConfig if bert else RobertaConfig)(
        vocab_size=vocab_size,
        hidden_size=spec.width,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        intermediate_size=spec.inner,
        type_vocab_size=2 if bert else 1,
        **special_ids,
        **spec.config_fields,
    )
    return (BertForSequenceClassification if bert else RobertaForSequenceClassification)(config)


def deberta(spec: Spec, vocab_size: int) -> PreTrainedModel:
    """Configures a single encoder with attention by relative position, as in DeBERTa v3."""
    config = DebertaV2Config(
        vocab_size=vocab_size,
        hidden_size=spec.width,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        intermediate_size=spec.inner,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=spec.positions // 2,
        max_relative_positions=-1,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        pooler_dropout=0,
        pooler_hidden_act="gelu",
        **spec.config_fields,
    )
    return DebertaV2ForSequenceClassification(config)


@torch.no_grad()
def fill_weights(model: PreTrainedModel, seed: int) -> None:
    """Draws each weight from numpy's generator.

    torch's own generator is not used, because its normal numbers depend on the processor's vector width.
    """
    generator = np.random.default_rng(seed)
    for name, weight in sorted(model.named_parameters()):
        if not weight.dim():  # a scalar keeps its default
            continue
        mean, spread = distribution(name, weight)
        values = generator.standard_normal(tuple(weight.shape), dtype=np.float32)
        weight.copy_(torch.from_numpy(values * np.float32(spread) + np.float32(mean)))


def distribution(name: str, weight: torch.Tensor) -> tuple[float, float]:
    """Returns the mean and standard deviation of a weight's values, based on its name and shape."""
    if weight.dim() == 1:
        return (1.0, 0.1) if "norm" in name.lower() and name.endswith("weight") else (0.0, 0.1)
    if "position" in name or "token_type" in name:
        return 0.0, 0.3
    if "embed" in name or name.endswith("shared.weight"):
        return 0.0, 1.0
    return 0.0, GAIN / weight.shape[1] ** 0.5


@torch.no_grad()
def level_logits(model: PreTrainedModel, batches: list[dict[str, torch.Tensor]]) -> None:
    """Shifts and scales the last layer so that the logits of each class have mean 0 and standard deviation 1.

    The shift and the scale, measured over the batches, are rounded, so that the weights do not depend on how a
    processor rounds.
    """
    logits = torch.cat([model(**batch).logits for batch in batches])
    means, spreads = logits.mean(0).round(decimals=2), logits.std(0).round(decimals=2)
    last = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
    last.weight.div_(spreads.unsqueeze(1))
    last.bias.sub_(means).div_(spreads)


def save_folder(spec: Spec, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes the config and tokenizer files into `folder`; `export` writes the graph."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if spec.own_limits:
        set_own_limits(folder / "tokenizer.json")


def set_own_limits(path: Path) -> None:
    """Adds truncation and padding to tokenizer.json, as sentence models on the Hugging Face Hub do."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content["truncation"] = {"direction": "Right", "max_length": 32, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 32},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
