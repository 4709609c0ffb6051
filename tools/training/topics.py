"""The training of the default model for one label set, after which it still takes any other labels.

The network stays one that compares a text with the texts of a label, and both sides are trained. Three things hold it
near what it was, for labels that it never saw: the embeddings and the lower layers do not move; a text's scores for many
other labels, and the vectors of those, are drawn back to what they were; and in the end the weights are mixed with those
from the start. Layers that do not move are computed once, and kept in half precision.
"""

import hashlib
import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import BertModel

from training.embed import GROWTH, micro_batches
from training.fit import CPU_ATTENTION, CPU_TOKENS, share_of_rate
from training.mean import MeanBertForSequenceClassification
from training.posts import Row, texts_of
from training.words import TEMPLATE, Label

Say = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters: every number that affects the weights."""

    seed: int = 1
    tokens: int = 96
    frozen: int = 2
    epochs: int = 3
    batch: int = 48
    rate: float = 8e-5
    warmup: float = 0.06
    decay: float = 0.01
    smoothing: float = 0.05
    scale: float = 21.0
    near_texts: float = 0.1
    near_others: float = 1.0
    near_labels: float = 1.0
    others: int = 12
    token_drop: float = 0.1
    held_out: float = 0.05
    average_from: int = 2
    seeds: tuple[int, ...] = (1, 2)
    share: float = 0.6
    label_pull: float = 0.2
    precision: str = "no"  # accelerate's name of it: "no" is float32


def rows_of(posts: list[dict], labels: list[Label], share: float) -> tuple[list[Row], list[Row]]:
    """Returns training and held-out rows. A post with a body is there twice: with it, and as a bare title."""
    number = {label.slug: index for index, label in enumerate(labels)}
    train, held, seen = [], [], set()
    for post in posts:
        whole, title = texts_of(post)
        key = " ".join(whole.lower().split())[:200]
        if key not in seen:
            seen.add(key)
            hashed = int.from_bytes(hashlib.sha256(title.encode()).digest()[:8], "big")
            target = held if hashed / 2**64 < share else train
            target.extend(Row("", form, number[post["topic"]], "") for form in dict.fromkeys((whole, title)))
    return train, held


class Encoder:
    """The network in two parts: the lower one is computed once, the upper one is trained."""

    def __init__(self, model: BertModel, tokenizer: Tokenizer, frozen: int, tokens: int, precision: str = "no"):
        self.model, self.in_bf16 = model, precision == "bf16"
        self.whole = MeanBertForSequenceClassification(model.config)
        self.whole.bert = model
        self.whole.freeze(frozen)
        if self.in_bf16:
            model.set_attn_implementation(CPU_ATTENTION)
        tokenizer.no_padding()
        tokenizer.enable_truncation(tokens)
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        model.eval()

    @torch.no_grad()
    def lower(self, texts: list[str]) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Returns the states of each text where training begins, in half precision, and its vector before training."""
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        states: list[torch.Tensor] = [torch.empty(0)] * len(ids)
        vectors = torch.empty(len(ids), self.model.config.hidden_size)
        for batch in micro_batches(range(len(ids)), ids, CPU_TOKENS, GROWTH):
            rows = [torch.tensor(ids[index]) for index in batch]
            real = mask_of([len(row) for row in rows])
            below = self.whole.below(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), real)
            for place, index in enumerate(batch):
                states[index] = below[place, : len(ids[index])].half()
            vectors[batch] = self.whole.pooled(self.whole.through(below, real, self.whole.frozen, None), real)
        return states, vectors

    def upper(self, states: list[torch.Tensor]) -> torch.Tensor:
        """Returns the vectors of texts from their states."""
        parts, places = [], []
        for batch in micro_batches(range(len(states)), states, CPU_TOKENS, GROWTH):
            real = mask_of([len(states[index]) for index in batch])
            padded = torch.nn.utils.rnn.pad_sequence([states[index].float() for index in batch], batch_first=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=self.in_bf16):
                found = self.whole.through(padded, real, self.whole.frozen, None)
            parts.append(self.whole.pooled(found.float(), real))
            places += batch
        return torch.cat(parts)[torch.tensor(places).argsort()]


def mask_of(lengths: list[int]) -> torch.Tensor:
    """Returns 1 for each real token [rows, width], 0 for padding."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


def without_some(state: torch.Tensor, share: float, random_numbers: torch.Generator) -> torch.Tensor:
    """Returns a text without some of its tokens, never without the first."""
    if share == 0 or len(state) < 6:
        return state
    stays = torch.rand(len(state), generator=random_numbers) >= share
    stays[0] = True
    return state[stays]


class Trainer:
    """Weights, optimizer and step of one training."""

    def __init__(
        self, encoder: Encoder, labels: list[Label], train: list[Row], others: list[str], recipe: Recipe, say: Say
    ):
        self.encoder, self.rows, self.recipe, self.say = encoder, train, recipe, say
        say(f"{len(train)} texts to train with: computing the layers that do not move")
        self.states, self.before = encoder.lower([row.text for row in train])
        self.label_states, _ = encoder.lower([text for label in labels for text in label.texts])
        ends = iter(range(len(self.label_states)))
        self.label_rows = [[next(ends) for _ in label.texts] for label in labels]
        self.other_states, self.other_before = encoder.lower(others)
        self.weights = [weight for weight in encoder.model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.weights, lr=recipe.rate, weight_decay=recipe.decay)
        self.step, self.an_epoch = 0, len(train) // recipe.batch
        self.steps = self.an_epoch * recipe.epochs

    def once(self) -> dict[str, float]:
        """Makes one step. Everything random in it follows from the seed and the step."""
        recipe, step = self.recipe, self.step
        epoch, place = divmod(step, self.an_epoch)
        order = list(range(len(self.rows)))
        random.Random(f"{recipe.seed} epoch {epoch}").shuffle(order)
        chosen = order[place * recipe.batch : (place + 1) * recipe.batch]
        numbers = random.Random(f"{recipe.seed} step {step}")
        drops = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
        words = [numbers.choice(places) for places in self.label_rows]
        others = numbers.sample(range(len(self.other_states)), min(recipe.others, len(self.other_states)))
        states = [without_some(self.states[index], recipe.token_drop, drops) for index in chosen]
        states += [self.label_states[index] for index in words] + [self.other_states[index] for index in others]
        texts, labels, away = self.encoder.upper(states).split([len(chosen), len(words), len(others)])
        target = torch.tensor([self.rows[index].label for index in chosen])
        fit = functional.cross_entropy(recipe.scale * texts @ labels.T, target, label_smoothing=recipe.smoothing)
        before = self.before[chosen]
        moved = 1 - (texts * before).sum(1).mean()
        # A text's similarities to labels that are not trained, for which the scores should stay.
        wanted = functional.softmax(recipe.scale * before @ self.other_before.T, dim=-1)
        other = functional.kl_div(
            functional.log_softmax(recipe.scale * texts @ self.other_before.T, dim=-1), wanted, reduction="batchmean"
        )
        moved_labels = 1 - (away * self.other_before[others]).sum(1).mean()
        loss = fit + recipe.near_texts * moved + recipe.near_others * other + recipe.near_labels * moved_labels
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.rate * share_of_rate(recipe.warmup, step, self.steps)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss.item()} at step {step}")
        self.optimizer.step()
        self.step += 1
        return {"loss": fit.item(), "moved": moved.item(), "others": other.item(), "moved_labels": moved_labels.item()}

    def run(self, work: Path) -> list[Path]:
        """Makes every step; returns the weights of each half epoch."""
        work.mkdir(parents=True, exist_ok=True)
        paths = []
        while self.step < self.steps:
            seen = self.once()
            if self.step % 20 == 0:
                figures = " ".join(f"{key} {value:.3f}" for key, value in seen.items())
                self.say(f"step {self.step} of {self.steps}: {figures}")
            if self.step % (self.an_epoch // 2) == 0:
                weights = {name: weight.half() for name, weight in self.encoder.model.state_dict().items()}
                paths.append(work / f"weights-{self.step:05}.pt")
                torch.save(weights, paths[-1])
        return paths


def other_labels(tokenizer: Tokenizer, background: Path, count: int = 400) -> list[str]:
    """Returns texts of labels that are not trained: the topics of the background file, and words of the tokenizer."""
    texts = []
    for topic in tomllib.loads(background.read_text(encoding="utf-8"))["topic"]:
        texts += [TEMPLATE.format(topic["label"]), *topic.get("descriptions", [])]
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 4)
    chosen = random.Random(0).sample(words, min(count, len(words)))
    return texts + [TEMPLATE.format(word) for word in chosen]


def averaged(states: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Returns the mean of the weights of several moments, rounded to half precision, as they are stored."""
    return {
        name: (sum(state[name].float() for state in states) / len(states)).half()
        if weight.is_floating_point()
        else weight
        for name, weight in states[0].items()
    }


def mixed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    """Returns `share` of the weights after training and the rest of those before: better for labels not trained."""
    return {
        name: share * after[name].float() + (1 - share) * weight if weight.is_floating_point() else weight
        for name, weight in before.items()
    }
