"""Trains the default model for one label set, after which it still accepts any other labels.

The network still compares a text with the texts of a label, and both sides are trained. Three measures keep it close to
the base for other labels: the embeddings and the lower layers are frozen; a text's scores for many other labels, and
the vectors of those, are pulled back to their old values; and the final weights are averaged over seeds. Frozen layers
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
from training.subreddits import Posts, drawn
from training.teacher import Belief
from training.vectors import Scales
from training.words import TEMPLATE, Label

Say = Callable[[str], None]

MAX_TOKENS = 128


@dataclass(frozen=True)
class Round:
    """Hyperparameters of a round. Each seed trains once, from the mean of the round before.

    `texts` is the number of texts drawn for each seed. `near_texts` and `near_others` are the weights of losses that
    keep a text's vector, and its scores for other labels, close to the base's. `both` is the weight of the loss of
    `multi` mode: without it, the scores of different texts cannot be compared with one threshold.
    """

    seeds: tuple[int, ...]
    texts: int
    rate: float
    near_texts: float
    near_others: float
    both: float
    belief: Belief


ROUNDS = (
    Round((1, 2), 72_000, 1.6e-4, 0.02, 0.25, 0.0, Belief(scale=20.0, broad=0.65)),
    Round((5, 6), 24_000, 1.2e-4, 0.05, 0.4, 0.4, Belief(scale=26.0, broad=0.6)),
)


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters: every number that affects the weights.

    `titles` is the share of texts that are bare titles. A well-known subreddit counts `known` times as much as another.
    The final weights are `share` times the mean of the last round plus the rest of the base's, which is better for
    untrained labels.
    """

    rounds: tuple[Round, ...] = ROUNDS
    known: float = 3.0
    near_labels: float = 1.0
    left_out: int = 0  # number of the fold that is held out for evaluation and never trained on
    titles: float = 0.5
    power: float = 0.5
    tokens: int = 96
    frozen: int = 2
    batch: int = 96
    warmup: float = 0.06
    decay: float = 0.01
    scales: Scales = Scales(21.0, 23.5, 0.281)
    others: int = 12
    token_drop: float = 0.1
    share: float = 0.7
    dtype: torch.dtype = torch.bfloat16


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
        round: Round,
        seed: int,
        say: Say,
        begin: dict[str, torch.Tensor],
    ):
        """`model` is the base; training starts with the weights `begin`.

        `targets` [2, n, k] are those of whole posts and of bare titles.
        """
        self.model, self.packed = model, Packed(model, recipe.dtype)
        self.recipe, self.round, self.say = recipe, round, say
        for part in (model.embeddings, *model.encoder.layer[: recipe.frozen]):
            part.requires_grad_(False)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        self.order = [
            (index, is_title and posts.titles[index] != posts.whole[index])
            for index, is_title in drawn(weights, round.texts, recipe.titles, np.random.default_rng(seed))
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
        self.targets = torch.from_numpy(targets)
        model.load_state_dict(begin)
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.weights, lr=round.rate, weight_decay=recipe.decay)
        self.step, self.steps = 0, len(self.order) // recipe.batch
        self.numbers, self.drops = random.Random(seed), torch.Generator().manual_seed(seed)

    def once(self) -> dict[str, float]:
        """Makes one step. Everything random in it follows from the seed and the steps before."""
        recipe, round, scales = self.recipe, self.round, self.recipe.scales
        chosen = self.order[self.step * recipe.batch : (self.step + 1) * recipe.batch]
        places = [self.place[pair] for pair in chosen]
        words = [self.numbers.choice(rows) for rows in self.label_rows]
        others = self.numbers.sample(range(len(self.other_states)), min(recipe.others, len(self.other_states)))
        states = [without_some(self.states[place], recipe.token_drop, self.drops) for place in places]
        states += [self.label_states[row] for row in words] + [self.other_states[row] for row in others]
        sizes = [len(places), len(words), len(others)]
        texts, labels, away = self.packed.upper(states, recipe.frozen).split(sizes)
        target = self.targets[[int(is_title) for _, is_title in chosen], [index for index, _ in chosen]]
        cosines = texts @ labels.T
        fit = -(target * functional.log_softmax(scales.softmax * cosines, dim=-1)).sum(1).mean()
        odds = scales.sigmoid * (cosines - scales.bias)
        both = functional.binary_cross_entropy_with_logits(odds, target, reduction="none").sum(1).mean()
        before = self.before[places]
        moved = 1 - (texts * before).sum(1).mean()
        # A text's similarities to labels that are not trained, for which the scores should stay.
        wanted = functional.softmax(scales.softmax * before @ self.other_before.T, dim=-1)
        other = functional.kl_div(
            functional.log_softmax(scales.softmax * texts @ self.other_before.T, dim=-1), wanted, reduction="batchmean"
        )
        moved_labels = 1 - (away * self.other_before[others]).sum(1).mean()
        loss = fit + round.both * both + round.near_texts * moved + round.near_others * other
        loss = loss + recipe.near_labels * moved_labels
        for group in self.optimizer.param_groups:
            group["lr"] = round.rate * share_of_rate(recipe.warmup, self.step, self.steps)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss.item()} at step {self.step}")
        self.optimizer.step()
        self.step += 1
        return {
            "loss": fit.item(),
            "both": both.item(),
            "moved": moved.item(),
            "others": other.item(),
            "moved_labels": moved_labels.item(),
        }

    def run(self) -> dict[str, torch.Tensor]:
        """Makes every step; returns the weights."""
        while self.step < self.steps:
            seen = self.once()
            if self.step % 20 == 0:
                figures = " ".join(f"{key} {value:.3f}" for key, value in seen.items())
                self.say(f"step {self.step} of {self.steps}: {figures}")
        return {name: weight.clone() for name, weight in self.model.state_dict().items()}


def other_labels(tokenizer: Tokenizer, background: Path, count: int = 400) -> list[str]:
    """Returns texts of labels that are not trained: the topics of the background file, and words of the tokenizer."""
    texts = []
    for topic in tomllib.loads(background.read_text(encoding="utf-8"))["topic"]:
        texts += [TEMPLATE.format(topic["label"]), *topic.get("descriptions", [])]
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 4)
    chosen = random.Random(0).sample(words, min(count, len(words)))
    return texts + [TEMPLATE.format(word) for word in chosen]


def averaged(states: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Returns the mean of several weights."""
    return {
        name: sum(state[name].float() for state in states) / len(states)
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
