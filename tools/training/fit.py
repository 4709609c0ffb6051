"""Fine-tuning: from rows to weights, with a record of each step.

A step always takes `batch` rows. They are sorted by length and split into micro-batches of `tokens` padded tokens,
which fit into memory; the gradients are summed. The size of the memory therefore does not change the result. All
randomness in a step follows from the seed and the step, so a resumed run produces the same weights.
"""

import json
import math
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from sklearn.metrics import f1_score
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from models import InputError
from training.embed import GROWTH, micro_batches
from training.posts import Corpus, Row
from training.report import Meter

Say = Callable[[str], None]

CPU_TOKENS = 1536  # larger batches do not fit a core's cache and contain more padding
GPU_TOKENS = 8192  # halved if the memory is too small
# On a CPU, torch's fused attention takes three to four times as long in bf16, forward and backward, as plain products.
CPU_ATTENTION = "eager"
NAMES = {"no": "fp32", "bf16": "bf16", "fp16": "fp16"}  # accelerate's names, and --precision's


@dataclass(frozen=True)
class Plan:
    """Hyperparameters: every number that affects the weights."""

    seed: int = 1
    epochs: int = 3
    batch: int = 48
    max_tokens: int = 128
    rate: float = 5e-5
    head_rate: float = 1e-3
    warmup: float = 0.06
    decay: float = 0.01
    smoothing: float = 0.05
    soft: float = 0.0
    temperature: float = 2.0
    patience: int = 2


@dataclass
class Progress:
    """A run's progress and history."""

    step: int = 0
    best: float = -1.0
    since_best: int = 0
    history: list[dict] = field(default_factory=list)


class DivergedError(Exception):
    """The loss is not finite."""


class Fit:
    """One run with one seed."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        corpus: Corpus,
        plan: Plan,
        folder: Path,
        precision: str,
        tokens: int | None,
        say: Say,
    ):
        self.corpus, self.plan, self.folder, self.say = corpus, plan, folder, say
        self.accelerator = Accelerator(mixed_precision=precision, cpu=not torch.cuda.is_available())
        self.pad = tokenizer.pad_token_id or 0
        self.ids = encode(tokenizer, corpus.train, plan.max_tokens)
        self.held_ids = encode(tokenizer, corpus.held_out, plan.max_tokens)
        prepare(model)
        if precision == "bf16" and not self.on_gpu:
            model.set_attn_implementation(CPU_ATTENTION)
        optimizer = torch.optim.AdamW(groups_of(model, plan), weight_decay=plan.decay)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.budget = tokens or (GPU_TOKENS if self.on_gpu else CPU_TOKENS)
        self.progress = Progress()
        self.an_epoch = max(1, len(corpus.train) // plan.batch)
        self.steps = self.an_epoch * plan.epochs

    @property
    def on_gpu(self) -> bool:
        """True if a GPU is used."""
        return self.accelerator.device.type == "cuda"

    def run(self) -> Progress:
        """Trains until the last epoch, or until held-out macro-F1 has not improved for `patience` epochs."""
        meter = Meter(self.progress.step, self.steps, self.say)
        self.model.train()
        while self.progress.step < self.steps and self.progress.since_best < max(1, self.plan.patience):
            loss, read = self.once_in_memory()
            self.progress.step += 1
            meter.after(self.progress.step, loss, read)
            if self.progress.step % self.an_epoch == 0 or self.progress.step == self.steps:
                meter.macro_f1 = self.judge(loss, meter.tokens_per_second)
                self.save()
        return self.progress

    def once_in_memory(self) -> tuple[float, int]:
        """Takes one step, in smaller micro-batches if the GPU runs out of memory."""
        while True:
            try:
                return self.once()
            except torch.cuda.OutOfMemoryError:
                if self.budget < 2:
                    raise InputError("one text does not fit the GPU's memory: lower --max-tokens, or use the CPU") from None
                self.budget //= 2
                self.say(f"out of memory: micro-batches of {self.budget} tokens from here on")
                torch.cuda.empty_cache()

    def once(self) -> tuple[float, int]:
        """Takes one step; returns its loss and the number of tokens read, including padding."""
        plan, step = self.plan, self.progress.step
        torch.manual_seed(plan.seed * 1_000_003 + step)
        epoch, place = divmod(step, self.an_epoch)
        order = list(range(len(self.ids)))
        random.Random(f"{plan.seed} epoch {epoch}").shuffle(order)
        chosen = order[place * plan.batch : (place + 1) * plan.batch]
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * share_of_rate(plan.warmup, step, self.steps)
        self.optimizer.zero_grad()
        total, read = 0.0, 0
        for batch in micro_batches(chosen, self.ids, self.budget, None if self.on_gpu else GROWTH):
            loss = self.loss_of(batch) / len(chosen)
            self.accelerator.backward(loss)
            total += loss.item()
            read += len(batch) * max(len(self.ids[index]) for index in batch)
        if not math.isfinite(total):
            raise DivergedError(f"the loss is {total} at step {step}, in epoch {epoch + 1}")
        self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return total, read

    def loss_of(self, batch: list[int]) -> torch.Tensor:
        """Returns the summed losses of some rows: against their label, and against their teacher's scores."""
        plan, rows = self.plan, [self.corpus.train[index] for index in batch]
        with self.accelerator.autocast():
            logits = self.model(**self.feed([self.ids[index] for index in batch])).logits.float()
        target = torch.tensor([row.label for row in rows], device=logits.device)
        hard = functional.cross_entropy(logits, target, reduction="none", label_smoothing=plan.smoothing)
        if not plan.soft:
            return hard.sum()
        count = logits.shape[1]
        known = torch.tensor([row.scores is not None for row in rows], device=logits.device)
        scores = np.stack([row.scores if row.scores is not None else np.full(count, 1 / count) for row in rows])
        teacher = torch.tensor(scores, dtype=torch.float32, device=logits.device).clamp_min(1e-8).log()
        teacher = functional.log_softmax(teacher / plan.temperature, dim=-1)
        student = functional.log_softmax(logits / plan.temperature, dim=-1)
        soft = functional.kl_div(student, teacher, reduction="none", log_target=True).sum(-1) * plan.temperature**2
        return torch.where(known, plan.soft * soft + (1 - plan.soft) * hard, hard).sum()

    def feed(self, rows: list[list[int]]) -> dict[str, torch.Tensor]:
        """Returns a padded batch on the device."""
        width = max(map(len, rows))
        ids = torch.tensor([row + [self.pad] * (width - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        device = self.accelerator.device
        return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}

    @torch.no_grad()
    def logits(self) -> np.ndarray:
        """Returns the logits of the held-out rows."""
        self.model.eval()
        places, parts = [], []
        for batch in micro_batches(range(len(self.held_ids)), self.held_ids, 4 * self.budget):
            parts.append(self.model(**self.feed([self.held_ids[index] for index in batch])).logits.float().cpu())
            places += batch
        self.model.train()
        return torch.cat(parts)[torch.tensor(places).argsort()].numpy()

    def judge(self, loss: float, speed: float) -> float:
        """Evaluates the held-out rows and stores the weights if they are the best so far; returns macro-F1."""
        logits = self.logits()
        target = np.array([row.label for row in self.corpus.held_out])
        found = logits.argmax(1)
        f1 = float(f1_score(target, found, average="macro"))
        entry = {
            "step": self.progress.step,
            "epoch": round(self.progress.step / self.an_epoch, 2),
            "loss": round(loss, 4),
            "accuracy": round(float((found == target).mean()), 4),
            "macro_f1": round(f1, 4),
            "tokens_per_s": round(speed),
        }
        self.progress.history.append(entry)
        self.progress.since_best += 1
        if f1 > self.progress.best:
            self.progress.best, self.progress.since_best = f1, 0
            self.write("best.pt", self.plain().state_dict())
        self.say(
            f"epoch {entry['epoch']:g}: macro-F1 {f1:.3f}, accuracy {entry['accuracy']:.3f} of {len(target)} held out"
        )
        return f1

    def plain(self) -> PreTrainedModel:
        """Returns the model without its distributed wrapper."""
        return self.accelerator.unwrap_model(self.model)

    def identity(self) -> dict:
        """Returns the values that a checkpoint must match."""
        return {
            "plan": asdict(self.plan),
            "posts": self.corpus.digest,
            "labels": self.corpus.labels,
            "precision": NAMES[self.accelerator.mixed_precision],
        }

    def save(self) -> None:
        """Writes a checkpoint."""
        content = {
            "identity": json.dumps(self.identity(), sort_keys=True),
            "progress": asdict(self.progress),
            "model": self.plain().state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        self.write("checkpoint.pt", content)

    def write(self, name: str, content: dict) -> None:
        """Writes a file atomically; the previous one is kept if the disk is full."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f"{name}.partial"
        try:
            torch.save(content, partial)
            partial.replace(self.folder / name)
        except (OSError, RuntimeError) as problem:  # torch raises RuntimeError if a write fails
            partial.unlink(missing_ok=True)
            raise OSError(
                f"`{self.folder / name}` cannot be written ({problem}); free some space and add --resume"
            ) from None

    def load(self) -> None:
        """Resumes from a checkpoint. Raises `InputError` if it belongs to a different training run."""
        path = self.folder / "checkpoint.pt"
        if not path.is_file():
            self.say(f"`{self.folder}` has no checkpoint yet: beginning at step 0")
            return
        try:
            content = torch.load(path, weights_only=True, map_location="cpu")
            stored, wanted = json.loads(content["identity"]), json.loads(json.dumps(self.identity()))
        except Exception as problem:  # damaged files cause many kinds of exceptions
            raise InputError(f"`{path}` cannot be read ({problem}): run again without --resume") from None
        for key, what in (("posts", "posts"), ("labels", "labels"), ("plan", "settings"), ("precision", "precision")):
            if stored[key] != wanted[key]:
                raise InputError(f"`{path}` was made with different {what}: restore them, or run without --resume")
        try:
            self.plain().load_state_dict(content["model"])
            self.optimizer.load_state_dict(content["optimizer"])
        except (RuntimeError, ValueError):
            raise InputError(f"`{path}` is for a different model: run without --resume, or with its --base") from None
        self.progress = Progress(**content["progress"])
        self.say(f"resuming at step {self.progress.step} of {self.steps}")

    def take_best(self) -> None:
        """Restores the best weights; the model computes in float32 from here on."""
        path = self.folder / "best.pt"
        if path.is_file():
            self.plain().load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
        self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)


def prepare(model: PreTrainedModel) -> None:
    """Disables dropout, and freezes the token embeddings: each token is in few posts, and the embeddings need the most
    memory."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    if hasattr(model.config, "attention_probs_dropout_prob"):
        model.config.attention_probs_dropout_prob = 0.0
    model.get_input_embeddings().requires_grad_(False)


def groups_of(model: PreTrainedModel, plan: Plan) -> list[dict]:
    """Returns parameter groups; the head has a higher learning rate, because it starts untrained."""
    encoder = {id(weight) for weight in model.base_model.parameters()}
    moving = [weight for weight in model.parameters() if weight.requires_grad]
    return [
        {"params": [weight for weight in moving if id(weight) in encoder], "lr": plan.rate},
        {"params": [weight for weight in moving if id(weight) not in encoder], "lr": plan.head_rate},
    ]


def encode(tokenizer: PreTrainedTokenizerBase, rows: list[Row], most: int) -> list[list[int]]:
    """Returns the ids of each text, truncated."""
    texts = [row.text[: 20 * most] for row in rows]  # the tokenizer truncates only after reading everything
    return tokenizer(texts, truncation=True, max_length=most, padding=False)["input_ids"]


def share_of_rate(warmup: float, step: int, steps: int) -> float:
    """Returns the factor of the learning rate at a step: linear warm-up, then linear decay."""
    rise = max(1, int(warmup * steps))
    return min((step + 1) / rise, (steps - step) / max(1, steps - rise))


def precision_of(wish: str) -> str:
    """Returns accelerate's name for a precision; `auto` is bf16 where it is faster, else fp16 on a GPU, else float32.

    Raises `InputError`.
    """
    on_gpu = torch.cuda.is_available()
    if wish == "fp16" and not on_gpu:
        raise InputError("--precision fp16 needs a GPU, and none was found: use bf16 or fp32")
    if wish == "auto":
        wish = "bf16" if has_fast_bf16() else "fp16" if on_gpu else "fp32"
    return next(name for name, known in NAMES.items() if known == wish)


def has_fast_bf16() -> bool:
    """True if the device multiplies bf16 numbers faster than float32.

    A CPU without bf16 instructions emulates them and is slower. Intel's CPUs need AMX, which a virtual machine may
    hide: a Xeon with only `avx512_bf16` multiplied bf16 at 0.6 times the speed of float32
    (benches/results/training.md).
    """
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    known = torch.cpu.get_capabilities()
    by_vectors = known.get("avx512_bf16") and "Intel" not in known.get("cpu_name", "")
    return bool(by_vectors or known.get("amx_bf16"))
