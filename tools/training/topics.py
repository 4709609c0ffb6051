"""Fine-tuning of the embedding model that ships for one label set, so that it still takes any other labels.

In go posts with a label and a pipeline file; out comes the same network with other weights. It stays a model that
compares a text with the words of a label: the label's vector is made from its template and its descriptions, as the
program makes it, and both sides are trained. Three things hold it near what it was, for labels that it never saw:
the embeddings and the lower layers do not move; a text's scores for many other labels and the vectors of those are drawn
back to what they were; and in the end the weights are mixed with those from the start.

Layers that do not move are computed once: their output lies in memory in half precision, and an epoch begins there.
"""

import hashlib
import random
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import BertModel

from training.precision import CPU_ATTENTION
from training.words import Label

Say = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """Every number that decides the weights."""

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


@dataclass(frozen=True)
class Labels:
    """The labels of a pipeline file: short names, and the texts of each that make its vector."""

    slugs: list[str]
    texts: list[list[str]]

    @staticmethod
    def of(labels: list[Label]) -> "Labels":
        """Of a pipeline file."""
        return Labels([label.slug for label in labels], [label.texts for label in labels])


def text_of(title: str, body: str) -> str:
    """The text of a post, as the program makes it."""
    body = body.strip()
    return f"{title}\n\n{body}" if body and body not in ("[removed]", "[deleted]") else title


def is_held_out(text: str, share: float) -> bool:
    """Whether a text judges and does not train: its hash decides, so that it is the same each time."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return number / 2**64 < share


@dataclass(frozen=True)
class Row:
    """A text with the number of its label."""

    text: str
    label: int


def rows_of(posts: list[dict], labels: Labels, share: float) -> tuple[list[Row], list[Row]]:
    """Rows to train with and rows held out. A post with a body is there twice: with it, and as a bare title."""
    number = {slug: index for index, slug in enumerate(labels.slugs)}
    train, held, seen = [], [], set()
    for post in posts:
        whole = text_of(post["title"], post["selftext"])
        key = " ".join(whole.lower().split())[:200]
        if key in seen:
            continue
        seen.add(key)
        forms = dict.fromkeys((whole, post["title"]))
        target = held if is_held_out(post["title"], share) else train
        target.extend(Row(form, number[post["topic"]]) for form in forms)
    return train, held


class Encoder:
    """The network in two parts: the lower one is computed once, the upper one is trained."""

    def __init__(self, model: BertModel, tokenizer: Tokenizer, frozen: int, tokens: int, precision: str = "no"):
        self.model, self.frozen, self.in_bf16 = model, frozen, precision == "bf16"
        if self.in_bf16:
            model.set_attn_implementation(CPU_ATTENTION)
        tokenizer.no_padding()
        tokenizer.enable_truncation(tokens)
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer
        for part in (model.embeddings, *model.encoder.layer[:frozen]):
            part.requires_grad_(False)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        model.eval()

    def layers(self, states: torch.Tensor, lengths: list[int], first: int, last: int) -> torch.Tensor:
        """States [rows, width, D] through some layers."""
        mask = None
        if min(lengths) < max(lengths):
            real = torch.arange(states.shape[1]) < torch.tensor(lengths)[:, None]
            mask = torch.zeros(real.shape).masked_fill(~real, -1e4)[:, None, None, :]
        for layer in self.model.encoder.layer[first:last]:
            states = layer(states, mask)
            states = states[0] if isinstance(states, tuple) else states
        return states

    @torch.no_grad()
    def lower(self, texts: list[str], say: Say) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The states of each text where training begins, in half precision, and its vector before training."""
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
        states: list[torch.Tensor] = [torch.empty(0)] * len(ids)
        vectors = torch.empty(len(ids), self.model.config.hidden_size)
        shown = time.monotonic()
        for batch in grouped(order, [len(row) for row in ids], 1536):
            lengths = [len(ids[index]) for index in batch]
            width = max(lengths)
            padded = torch.tensor([ids[index] + [0] * (width - len(ids[index])) for index in batch])
            below = self.layers(self.model.embeddings(input_ids=padded), lengths, 0, self.frozen)
            for place, index in enumerate(batch):
                states[index] = below[place, : lengths[place]].half()
            vectors[batch] = pooled(self.layers(below, lengths, self.frozen, None), lengths)
            if time.monotonic() - shown > 20:
                shown = time.monotonic()
                say(f"  read up to texts of {width} tokens")
        return states, vectors

    def upper(self, states: list[torch.Tensor]) -> torch.Tensor:
        """Vectors of texts from their states, in groups of like length."""
        lengths = [len(state) for state in states]
        order = sorted(range(len(states)), key=lambda index: lengths[index])
        parts, places = [], []
        for batch in grouped(order, lengths, 1536):
            inside = [lengths[index] for index in batch]
            padded = torch.nn.utils.rnn.pad_sequence([states[index].float() for index in batch], batch_first=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=self.in_bf16):
                found = self.layers(padded, inside, self.frozen, None)
            parts.append(pooled(found.float(), inside))
            places += batch
        return torch.cat(parts)[torch.tensor(places).argsort()]


def grouped(order: list[int], lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Runs of `order`, sorted by length: at most `budget` padded tokens, and little padding."""
    batch: list[int] = []
    for index in order:
        if batch and (lengths[index] * (len(batch) + 1) > budget or lengths[index] > 1.3 * lengths[batch[0]] + 2):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def pooled(states: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """The mean over each text's tokens, of length 1: what the graph that ships gives."""
    count = torch.tensor(lengths)[:, None]
    real = (torch.arange(states.shape[1]) < count).float()[:, :, None]
    return functional.normalize((states * real).sum(1) / count, dim=-1)


def without_some(state: torch.Tensor, share: float, random_numbers: torch.Generator) -> torch.Tensor:
    """A text without some of its tokens, never without the first."""
    if share == 0 or len(state) < 6:
        return state
    stays = torch.rand(len(state), generator=random_numbers) >= share
    stays[0] = True
    return state[stays]


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Up in a straight line, then down in one."""
    rise = max(1, int(recipe.warmup * steps))
    return recipe.rate * min((step + 1) / rise, (steps - step) / max(1, steps - rise))


class Trainer:
    """Weights, optimizer and place of one training; `save` and `load` make it go on as if nothing had happened."""

    def __init__(self, encoder: Encoder, labels: Labels, train: list[Row], others: list[str], recipe: Recipe, say: Say):
        self.encoder, self.labels, self.rows, self.recipe, self.say = encoder, labels, train, recipe, say
        say(f"{len(train)} texts to train with: computing the layers that do not move")
        self.states, self.before = encoder.lower([row.text for row in train], say)
        self.label_texts = [text for texts in labels.texts for text in texts]
        self.label_states, _ = encoder.lower(self.label_texts, say)
        self.other_states, self.other_before = encoder.lower(others, say)
        self.weights = [weight for weight in encoder.model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.weights, lr=recipe.rate, weight_decay=recipe.decay)
        self.step, self.history = 0, []
        self.a_epoch = len(train) // recipe.batch
        self.steps = self.a_epoch * recipe.epochs

    def label_rows(self) -> list[list[int]]:
        """For each label, the places of its texts."""
        places, at = [], 0
        for texts in self.labels.texts:
            places.append(list(range(at, at + len(texts))))
            at += len(texts)
        return places

    def once(self) -> dict[str, float]:
        """One step. Everything random in it follows from the seed and the step, so a stop leaves no trace."""
        recipe, step = self.recipe, self.step
        epoch, place = divmod(step, self.a_epoch)
        order = list(range(len(self.rows)))
        random.Random(f"{recipe.seed} epoch {epoch}").shuffle(order)
        chosen = order[place * recipe.batch : (place + 1) * recipe.batch]
        numbers = random.Random(f"{recipe.seed} step {step}")
        drops = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
        words = [numbers.choice(places) for places in self.label_rows()]
        others = numbers.sample(range(len(self.other_states)), min(recipe.others, len(self.other_states)))
        states = [without_some(self.states[index], recipe.token_drop, drops) for index in chosen]
        states += [self.label_states[index] for index in words] + [self.other_states[index] for index in others]
        texts, labels, away = self.encoder.upper(states).split([len(chosen), len(words), len(others)])
        target = torch.tensor([self.rows[index].label for index in chosen])
        fit = functional.cross_entropy(recipe.scale * texts @ labels.T, target, label_smoothing=recipe.smoothing)
        before = self.before[chosen]
        moved = 1 - (texts * before).sum(1).mean()
        # What a text is like among labels that are not trained, for which the scores should stay.
        wanted = functional.softmax(recipe.scale * before @ self.other_before.T, dim=-1)
        other = functional.kl_div(
            functional.log_softmax(recipe.scale * texts @ self.other_before.T, dim=-1), wanted, reduction="batchmean"
        )
        moved_labels = 1 - (away * self.other_before[others]).sum(1).mean()
        loss = fit + recipe.near_texts * moved + recipe.near_others * other + recipe.near_labels * moved_labels
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step, self.steps)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss.item()} at step {step}")
        self.optimizer.step()
        self.step += 1
        return {"loss": fit.item(), "moved": moved.item(), "others": other.item(), "moved_labels": moved_labels.item()}

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        partial = path.with_suffix(".partial")
        content = {
            "recipe": asdict(self.recipe),
            "step": self.step,
            "model": self.encoder.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history,
        }
        torch.save(content, partial)
        partial.replace(path)

    def load(self, path: Path) -> None:
        """Go on where a checkpoint was written."""
        content = torch.load(path, weights_only=True)
        if content["recipe"] != asdict(self.recipe):
            raise ValueError(f"`{path}` is of another recipe: {content['recipe']}")
        self.encoder.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.step, self.history = content["step"], content["history"]


def other_labels(tokenizer: Tokenizer, background: Path, count: int = 400) -> list[str]:
    """Texts of labels that are not trained: the topics that the program ships as a background, and words."""
    content = tomllib.loads(background.read_text(encoding="utf-8"))
    texts = []
    for topic in content["topic"]:
        texts += [f"This text is about {topic['label']}.", *topic.get("descriptions", [])]
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 4)
    chosen = random.Random(0).sample(words, min(count, len(words)))
    return texts + [f"This text is about {word}." for word in chosen]


def averaged(states: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The mean of the weights of several moments, rounded to half precision, as they are stored."""
    first = states[0]
    return {
        name: (sum(state[name].float() for state in states) / len(states)).half()
        if weight.is_floating_point()
        else weight
        for name, weight in first.items()
    }


def mixed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    """`share` of the weights after training and the rest of those before: better for labels that were not trained."""
    return {
        name: share * after[name].float() + (1 - share) * weight if weight.is_floating_point() else weight
        for name, weight in before.items()
    }
