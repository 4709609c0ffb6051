"""Trains the default model for one label set, after which it still accepts any other labels.

The network still compares a text with the texts of a label, and both sides are trained. Three measures keep it close to
the base for other labels: the embeddings and the lower layers are frozen; a text's scores for many other labels, and
the vectors of those, are pulled back to their old values; and the final weights are averaged over stages. Frozen layers
are computed once.
"""

import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import BertModel

from training.embed import LETTERS
from training.fit import share_of_rate
from training.packed import Packed
from training.subreddits import Posts
from training.words import TEMPLATE, Label

Say = Callable[[str], None]

MAX_TOKENS = 128


@dataclass(frozen=True)
class Stage:
    """Hyperparameters of one stage, which begins where the stage before ended.

    `texts` are drawn, and a well-known subreddit `known` times as often as another. `softened` is the share of the
    targets in the loss; the rest are the topics of the subreddits. Of the weights that are stored, the last are kept.
    """

    seed: int
    texts: int
    known: float
    rate: float
    near_texts: float
    near_others: float
    softened: float
    saves: int


# The keep loss of the first stage left the model where it was; later stages loosen it.
STAGES = (
    Stage(1, 60_000, 4.0, 1.1e-4, 0.1, 1.0, 1.0, 4),
    Stage(11, 28_800, 3.0, 1.6e-4, 0.02, 0.25, 1.0, 3),
    Stage(12, 24_000, 4.0, 1.4e-4, 0.02, 0.25, 0.5, 3),
)


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters: every number that affects the weights. Half of the texts, `titles`, are read as bare titles."""

    stages: tuple[Stage, ...] = STAGES
    left_out: int = 0  # this fold judges and is never trained on
    titles: float = 0.5
    power: float = 0.5
    tokens: int = 96
    frozen: int = 2
    batch: int = 96
    warmup: float = 0.06
    decay: float = 0.01
    smoothing: float = 0.05  # of topics of subreddits
    scale: float = 21.0
    near_labels: float = 1.0
    others: int = 12
    token_drop: float = 0.1
    kept: int = 2
    share: float = 1.0
    label_texts: int = 18_000
    label_pull: float = 1.0
    dtype: torch.dtype = torch.bfloat16


def drawn(weights: np.ndarray, count: int, titles: float, numbers: np.random.Generator) -> list[tuple[int, bool]]:
    """Returns which posts are read, in which order, and which of them as a bare title.

    A post is there as often as its weight says, rounded up or down at random.
    """
    expected = weights * count
    times = np.floor(expected).astype(int)
    times += numbers.random(len(weights)) < expected - times
    order = np.repeat(np.arange(len(weights)), times)
    numbers.shuffle(order)
    order = order[:count]
    return list(zip(order.tolist(), (numbers.random(len(order)) < titles).tolist(), strict=True))


def encoded(tokenizer: Tokenizer, texts: list[str], tokens: int) -> list[list[int]]:
    """Returns the ids of texts, cut at `tokens`."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(tokens)
    tokenizer.encode_special_tokens = True
    return [encoding.ids for encoding in tokenizer.encode_batch([text[: LETTERS * MAX_TOKENS] for text in texts])]


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
        self,
        model: BertModel,
        tokenizer: Tokenizer,
        labels: list[Label],
        posts: Posts,
        weights: np.ndarray,
        targets: np.ndarray,
        others: list[str],
        recipe: Recipe,
        stage: Stage,
        say: Say,
        begin: dict[str, torch.Tensor] | None = None,
    ):
        """`model` is the base; training begins with the weights `begin`, if there are any."""
        self.model, self.packed = model, Packed(model, recipe.dtype)
        self.recipe, self.stage, self.say = recipe, stage, say
        for part in (model.embeddings, *model.encoder.layer[: recipe.frozen]):
            part.requires_grad_(False)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        self.order = [
            (index, is_title and posts.titles[index] != posts.whole[index])
            for index, is_title in drawn(weights, stage.texts, recipe.titles, np.random.default_rng(stage.seed))
        ]
        self.place = {pair: place for place, pair in enumerate(sorted(set(self.order)))}
        texts = [posts.titles[index] if is_title else posts.whole[index] for index, is_title in self.place]
        say(f"{len(texts)} texts to train with: computing the layers that do not move")
        lower = lambda of_some: self.packed.embed(  # noqa: E731
            encoded(tokenizer, of_some, recipe.tokens), recipe.frozen
        )
        self.before, self.states = lower(texts)
        _, self.label_states = lower([text for label in labels for text in label.texts])
        ends = iter(range(len(self.label_states)))
        self.label_rows = [[next(ends) for _ in label.texts] for label in labels]
        self.other_before, self.other_states = lower(others)
        if begin:
            model.load_state_dict(
                {name: weight.float() if weight.is_floating_point() else weight for name, weight in begin.items()}
            )
        hard = (1 - recipe.smoothing) * np.eye(len(labels))[posts.labels] + recipe.smoothing / len(labels)
        mixed_targets = stage.softened * targets + (1 - stage.softened) * hard
        self.targets = torch.from_numpy(mixed_targets.astype(np.float32))
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.weights, lr=stage.rate, weight_decay=recipe.decay)
        self.step, self.steps = 0, len(self.order) // recipe.batch
        self.numbers, self.drops = random.Random(stage.seed), torch.Generator().manual_seed(stage.seed)

    def once(self) -> dict[str, float]:
        """Makes one step. Everything random in it follows from the seed and the steps before."""
        recipe, stage = self.recipe, self.stage
        chosen = self.order[self.step * recipe.batch : (self.step + 1) * recipe.batch]
        places = [self.place[pair] for pair in chosen]
        words = [self.numbers.choice(rows) for rows in self.label_rows]
        others = self.numbers.sample(range(len(self.other_states)), min(recipe.others, len(self.other_states)))
        states = [without_some(self.states[place], recipe.token_drop, self.drops) for place in places]
        states += [self.label_states[row] for row in words] + [self.other_states[row] for row in others]
        sizes = [len(places), len(words), len(others)]
        texts, labels, away = self.packed.upper(states, recipe.frozen).split(sizes)
        target = self.targets[[index for index, _ in chosen]]
        fit = -(target * functional.log_softmax(recipe.scale * texts @ labels.T, dim=-1)).sum(1).mean()
        before = self.before[places]
        moved = 1 - (texts * before).sum(1).mean()
        # A text's similarities to labels that are not trained, for which the scores should stay.
        wanted = functional.softmax(recipe.scale * before @ self.other_before.T, dim=-1)
        other = functional.kl_div(
            functional.log_softmax(recipe.scale * texts @ self.other_before.T, dim=-1), wanted, reduction="batchmean"
        )
        moved_labels = 1 - (away * self.other_before[others]).sum(1).mean()
        loss = fit + stage.near_texts * moved + stage.near_others * other + recipe.near_labels * moved_labels
        for group in self.optimizer.param_groups:
            group["lr"] = stage.rate * share_of_rate(recipe.warmup, self.step, self.steps)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss.item()} at step {self.step}")
        self.optimizer.step()
        self.step += 1
        return {"loss": fit.item(), "moved": moved.item(), "others": other.item(), "moved_labels": moved_labels.item()}

    def run(self, work: Path) -> list[Path]:
        """Makes every step; returns stored weights in order."""
        work.mkdir(parents=True, exist_ok=True)
        paths = []
        while self.step < self.steps:
            seen = self.once()
            if self.step % 20 == 0:
                figures = " ".join(f"{key} {value:.3f}" for key, value in seen.items())
                self.say(f"step {self.step} of {self.steps}: {figures}")
            if self.step % max(1, self.steps // self.stage.saves) == 0:
                weights = {name: weight.half() for name, weight in self.model.state_dict().items()}
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
