"""Random GLiClass checkpoints, as the `gliclass` package saves them, and the package's scores for a few texts."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from gliclass import GLiClassModel, GLiClassModelConfig, ZeroShotClassificationPipeline
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertTokenizer,
    DebertaV2Config,
    ModernBertConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from models.gliclass import GliclassSource, read_gliclass
from models.inputs import Pair
from parity.cases import FORTY, LINES, ODD, TEXTS
from parity.models import fill_weights, train_byte_level_bpe, wordpiece_vocabulary
from parity.reference import SCORE_TOLERANCE, by_hand, short

TOKENS = ["<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
NAMES = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}


@dataclass(frozen=True)
class Spec:
    """A checkpoint to make, with encoder, seed and fields of its configuration, and a task prompt for its folder."""

    name: str
    encoder: str
    seed: int = 1
    fields: dict = field(default_factory=dict)
    prepend: str = "always"
    graphs: list[str] = field(default_factory=lambda: ["cpu-fp32"])
    task_prompt: str | None = None


def write_checkpoint(spec: Spec, folder: Path) -> None:
    """Writes a checkpoint with random weights, whose logits differ between labels and texts."""
    tokenizer = tokenizer_of(spec)
    encoder = encoder_of(spec.encoder, len(tokenizer))
    indices = dict(zip(("class", "text", "example"), tokenizer.convert_tokens_to_ids(TOKENS), strict=True))
    config = GLiClassModelConfig(
        encoder_config=encoder.to_dict(),
        encoder_model="random",
        vocab_size=len(tokenizer),
        **{f"{name}_token_index": index for name, index in indices.items()},
        problem_type="multi_label_classification",
        **{"prompt_first": True} | spec.fields,
    )
    model = GLiClassModel(config).eval()
    with torch.no_grad():
        fill_weights(model, spec.seed)
        if not config.normalize_features:
            level(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@torch.no_grad()
def level(model: GLiClassModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Shifts and scales the last layer, for logits with a mean near 0 and a standard deviation near 2."""
    labels = ["food", "travel by train", "music, live", "law"]
    rows = [row for text in LINES[:6] for row in pipe_of(model, tokenizer).get_embeddings(text, labels)]
    logits = np.stack([row["logits"] for row in rows])
    mean, factor = round(float(logits.mean()), 2), round(2 / max(float(logits.std()), 1e-3), 2)
    if model.config.scorer_type == "simple":
        last = model.model.classes_projector.linear_2
        text = torch.from_numpy(np.stack([row["text_embedding"] for row in rows]).mean(0)).round(decimals=2)
        last.bias.sub_(mean * text / (text @ text))  # a logit is the product of a label and a text
    else:
        last = [module for module in model.model.scorer.modules() if isinstance(module, torch.nn.Linear)][-1]
        last.bias.sub_(mean)
    for weight in last.parameters():
        weight.mul_(factor)


def logits_of(
    model: GLiClassModel,
    tokenizer: PreTrainedTokenizerBase,
    labels: list[str],
    texts: list[str],
    task_prompt: str | None = None,
) -> np.ndarray:
    """Returns the package's logits [texts, labels], each text alone."""
    pipe = pipe_of(model, tokenizer)
    rows = [row["logits"] for text in texts for row in pipe.get_embeddings(text, labels, prompt=task_prompt)]
    return np.stack(rows)


def pipe_of(model: GLiClassModel, tokenizer: PreTrainedTokenizerBase, kind: str = "multi-label") -> object:
    """Returns the package's pipeline."""
    return ZeroShotClassificationPipeline(model, tokenizer, classification_type=kind, device="cpu", progress_bar=False)


def encoder_of(name: str, tokens: int) -> PreTrainedConfig:
    """Returns the configuration of a tiny encoder."""
    common = {"vocab_size": tokens, "pad_token_id": 0} | SIZES
    if name == "bert":
        return BertConfig(max_position_embeddings=256, **common)
    if name == "modernbert":
        marks = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
        return ModernBertConfig(max_position_embeddings=8192, local_attention=16, **marks, **common)
    return DebertaV2Config(
        relative_attention=True,
        position_buckets=32,
        max_relative_positions=-1,
        max_position_embeddings=64,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        **common,
    )


def tokenizer_of(spec: Spec) -> PreTrainedTokenizerBase:
    """Returns the encoder's kind of tokenizer: WordPiece, byte-level BPE, or a unigram model that keeps spaces."""
    if spec.encoder == "bert":
        tokenizer = BertTokenizer(vocab=wordpiece_vocabulary())
    elif spec.encoder == "modernbert":
        vocabulary, merges = train_byte_level_bpe()
        renamed = {"<s>": "[CLS]", "<pad>": "[PAD]", "</s>": "[SEP]", "<unk>": "[UNK]", "<mask>": "[MASK]"}
        words = [renamed.get(word, word) for word, _ in sorted(vocabulary.items(), key=lambda entry: entry[1])]
        order = [*NAMES.values()]
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(word for word in words if word not in order)]
        inner = Tokenizer(models.BPE({word: place for place, word in enumerate(words)}, merges))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer = wrapped(inner)
        tokenizer.add_tokens(["    ", "|||EMAIL|||"])  # ordinary added tokens, as the published tokenizer has
    else:
        inner = Tokenizer(models.Unigram(unigram_vocabulary(), unk_id=1))
        inner.normalizer = normalizers.NFKC()
        inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=spec.prepend)
        tokenizer = wrapped(inner)
    tokenizer.add_tokens(TOKENS, special_tokens=True)
    return tokenizer


def unigram_vocabulary() -> list[tuple[str, float]]:
    """Returns the corpus's pieces with their scores, counted here because the trainer's result differs between runs."""
    words = [f"▁{word}" for line in LINES for word in line.split()]
    pieces = Counter(words)
    pieces.update(word[:length] for word in words for length in range(1, len(word)))
    pieces.update(character for word in words for character in word)
    frequent = [(piece, count) for piece, count in sorted(pieces.items()) if count > 2 or len(piece) == 1]
    total = sum(count for _, count in frequent)
    marks = [(mark, 0.0) for mark in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    return marks + [(piece, round(float(np.log(count / total)), 4)) for piece, count in frequent]


def wrapped(inner: Tokenizer) -> PreTrainedTokenizerBase:
    """Returns a transformers tokenizer with BERT's special tokens."""
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", inner.token_to_id("[CLS]")), ("[SEP]", inner.token_to_id("[SEP]"))],
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, **NAMES)


def golden(folder: Path, task_prompt: str | None = None) -> list[dict]:
    """Returns texts with the package's scores in both modes, for 1 to 40 labels.

    The package reads different ids if a text contains a special token or must be truncated before its labels. In these
    cases, the scores come from the package's model, run on the ids that topicmill uses.
    """
    source = read_gliclass(folder, task_prompt)
    tokenizer = type(source.tokenizer).from_pretrained(folder)
    odd = [label for label in ODD if "SEP" not in label]
    texts = {name: TEXTS[name] for name in ("title", "post", "empty", "blanks around", "bert specials", "emoji", "long")}
    texts |= {"japanese": TEXTS["japanese"], "its own tokens": "<<LABEL>> is text, and so is <<SEP>>. [SEP]"}
    pipes = {
        "multi": pipe_of(source.reference, tokenizer),
        "single": pipe_of(source.reference, tokenizer, "single-label"),
    }
    cases = []
    for number, labels in enumerate((["politics"], odd, FORTY[:16], FORTY)):
        for place, (name, text) in enumerate(texts.items()):
            if len(labels) > 16 and place % 3:
                continue
            mode = ("multi", "single")[(number + place) % 2]
            cases.append(case(source, tokenizer, pipes[mode], name, text, labels, mode))
    return cases


def case(
    source: GliclassSource,
    tokenizer: PreTrainedTokenizerBase,
    pipe: object,
    name: str,
    text: str,
    labels: list[str],
    mode: str,
) -> dict:
    """Returns one text with its scores, verified with the package if it reads the same ids."""
    ids = source.prompt.ids(labels, text, source.max_tokens)
    logits = source.logits(Pair(ids, [0] * len(ids)))[0]
    scores = by_hand(logits, mode)
    task_prompt = source.prompt.task_prompt
    prompt = "".join(f"<<LABEL>>{label}" for label in labels) + "<<SEP>>" + task_prompt
    theirs = tokenizer(prompt + text if source.config.prompt_first else text + prompt)["input_ids"]
    if theirs == ids:
        (found,) = pipe([text], labels, prompt=task_prompt, return_hierarchical=True)
        error = max(abs(found[label] - score) for label, score in zip(labels, scores, strict=True))
        assert error <= SCORE_TOLERANCE, f"`{name}`: scores from the logits differ by {error:.1e}"
    else:
        assert "special" in name or "own tokens" in name or len(theirs) > source.max_tokens, f"`{name}`: other ids"
    return {
        "name": f"{name}, {len(labels)} labels, {mode}",
        "text": text,
        "labels": labels,
        "mode": mode,
        "scores": [short(score) for score in scores],
        "logits": [[short(logit)] for logit in logits],
    }
