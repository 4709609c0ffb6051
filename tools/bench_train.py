#!/usr/bin/env python3
"""What makes training faster: each measure in turn, against a plain loop, on one machine.

    tools/bench_train.py [--posts 256] [--epochs 2] [--rounds 1]

Each row of the table is a process of its own, so that its peak memory is its own. The posts are made up, as long as on
Reddit: three in ten are titles. A few words of each decide its label. The clock runs while texts are tokenised and
while a model trains; it does not run while Python loads and while the held-out posts are judged.

Exit code 0: the table is printed. 1: a row failed.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from models.quiet import QUIET

os.environ |= QUIET

ROOT = Path(__file__).resolve().parent.parent
LABELS = 6
HELD_OUT = 4  # one of so many posts judges


@dataclass(frozen=True)
class Way:
    """One row: a plain loop with micro-batches of `micro` texts, or where that is 0, training/fit.py."""

    name: str
    micro: int = 8
    workers: int = 0
    half: bool = False
    checkpointing: bool = False
    hold_embeddings: bool = False
    hold_layers: int = 0


BATCH = 32  # texts in a step, in each row
WAYS = (
    Way("batch 8, accumulated 4 times, padded to its longest text"),
    Way("batch 32", micro=32),
    Way("batch 8 × 4, two loader workers", workers=2),
    Way("batch 8 × 4, bf16", half=True),
    Way("batch 8 × 4, gradient checkpointing", checkpointing=True),
    Way("batch 8 × 4, embeddings held", hold_embeddings=True),
    Way("token budget, lengths grouped, tokenised once", micro=0),
    Way("… and embeddings held: the default of `train.py`", micro=0, hold_embeddings=True),
    Way("… and two layers held and computed once", micro=0, hold_embeddings=True, hold_layers=2),
    Way("all together, with bf16", micro=0, half=True, hold_embeddings=True, hold_layers=2),
)


def main() -> int:
    """Measure each row, or be one."""
    arguments = parse()
    if arguments.row is not None:
        print(json.dumps(measured(WAYS[arguments.row], arguments)))
        return 0
    from training.precision import has_fast_bf16

    found: dict[int, list[dict]] = {}
    for _ in range(arguments.rounds):
        for row, way in enumerate(WAYS):
            if way.half and not has_fast_bf16():
                continue
            command = [sys.executable, __file__, "--row", str(row)]
            for name in ("posts", "epochs", "threads"):
                command += [f"--{name}", str(getattr(arguments, name))]
            command += ["--base", str(arguments.base)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
            if done.returncode:
                print(f"the row `{way.name}` failed: its message is above", file=sys.stderr)
                return 1
            found.setdefault(row, []).append(json.loads(done.stdout))
            print(f"{time.strftime('%H:%M:%S')} {way.name}: {found[row][-1]['seconds']:.1f} s", file=sys.stderr)
    print_table(found, arguments)
    return 0


def print_table(found: dict[int, list[dict]], arguments: argparse.Namespace) -> None:
    """Medians over the rounds, each against the first row."""
    first, first_used = (statistics.median(one[name] for one in found[0]) for name in ("seconds", "processor"))
    samples = found[0][0]["samples"]
    load = os.getloadavg()[0]
    print(
        f"{samples} texts ({counted(arguments.epochs, 'epoch')}), {found[0][0]['tokens']:,} tokens, "
        f"{counted(arguments.threads, 'thread')}, {counted(arguments.rounds, 'round')}, load {load:.1f}\n"
    )
    print("| way | texts/s | tokens/s | padded / real tokens | peak MiB | macro-F1 | times | times, by processor |")
    print("|---|---|---|---|---|---|---|---|")
    for row, way in enumerate(WAYS):
        if row not in found:
            print(f"| {way.name} | no fast bf16 here | | | | | | |")
            continue
        runs = found[row]
        seconds = statistics.median(one["seconds"] for one in runs)
        one = runs[0]
        print(
            f"| {way.name} | {samples / seconds:.1f} | {one['tokens'] / seconds:,.0f} | "
            f"{one['padded'] / one['tokens']:.2f} | {statistics.median(run['peak_mib'] for run in runs):,.0f} | "
            f"{one['macro_f1']:.3f} | {first / seconds:.2f} | "
            f"{first_used / statistics.median(run['processor'] for run in runs):.2f} |"
        )


def counted(number: int, word: str) -> str:
    """A number with its word: `1 round`, `2 rounds`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def measured(way: Way, arguments: argparse.Namespace) -> dict:
    """Train once; runs in a process of its own."""
    import numpy as np
    import torch
    from sklearn.metrics import f1_score
    from training.base import read_base
    from training.fit import Plan
    from training.posts import Corpus

    torch.set_num_threads(arguments.threads)
    rows = made_up(arguments.posts)
    train = [row for number, row in enumerate(rows) if number % HELD_OUT]
    held = [row for number, row in enumerate(rows) if number % HELD_OUT == 0]
    names = [f"label {number}" for number in range(LABELS)]
    corpus = Corpus(train, held, names, "made up", [], [], {})
    plan = Plan(
        epochs=arguments.epochs,
        batch=BATCH,
        freeze_embeddings=way.hold_embeddings,
        freeze_layers=way.hold_layers,
    )
    base = read_base(arguments.base)
    model = base.classifier(names, plan.seed)
    run = by_fit if way.micro == 0 else by_loop
    seconds, processor, padded, judge = run(way, plan, base, model, corpus)
    logits = judge.logits()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if torch.cuda.is_available():
        used = torch.cuda.max_memory_allocated() / 2**20
    lengths = [len(ids) for ids in encoded(base, corpus, plan)]
    steps = len(train) // BATCH * BATCH
    return {
        "seconds": seconds,
        "processor": processor,
        "samples": steps * arguments.epochs,
        "tokens": round(sum(lengths) * steps / len(train)) * arguments.epochs,
        "padded": padded,
        "peak_mib": used,
        "macro_f1": float(f1_score([row.label for row in held], np.argmax(logits, 1), average="macro")),
    }


def encoded(base, corpus, plan) -> list[list[int]]:  # noqa: ANN001
    """The ids of the texts to train with."""
    from training.fit import encode

    return encode(base.tokenizer, corpus.train, plan.max_tokens)


def processor() -> float:
    """Seconds of this process and of loader workers that have ended: other programs on the machine disturb it less."""
    return sum(os.times()[:4])


def by_fit(way: Way, plan, base, model, corpus) -> tuple:  # noqa: ANN001
    """The steps of training/fit.py, without its checkpoints and judgements."""
    from training.fit import Fit

    begun, used, padded = time.monotonic(), processor(), 0
    fit = Fit(model, base.tokenizer, corpus, plan, ROOT, "bf16" if way.half else "no", None, lambda _: None)
    fit.model.train()
    while fit.progress.step < fit.steps:
        padded += fit.once_in_memory()[1]
        fit.progress.step += 1
    return time.monotonic() - begun, processor() - used, padded, fit


def by_loop(way: Way, plan, base, model, corpus) -> tuple:  # noqa: ANN001
    """A loop as tutorials have it: a loader that shuffles, texts tokenised batch by batch, gradients accumulated."""
    import torch
    from torch.nn import functional
    from training.fit import Fit, groups_of, prepare, share_of_rate

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    begun, used, padded = time.monotonic(), processor(), 0
    prepare(model, plan)
    if way.checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    model.to(device).train()
    optimizer = torch.optim.AdamW(groups_of(model, plan), weight_decay=plan.decay)
    rates = [group["lr"] for group in optimizer.param_groups]
    loader = torch.utils.data.DataLoader(
        corpus.train,
        way.micro,
        shuffle=True,
        drop_last=True,
        num_workers=way.workers,
        persistent_workers=way.workers > 0,
        pin_memory=device.type == "cuda",
        generator=torch.Generator().manual_seed(plan.seed),
        collate_fn=Collate(base.tokenizer, plan.max_tokens),
    )
    parts, step = BATCH // way.micro, 0
    steps = len(corpus.train) // BATCH * plan.epochs
    for _ in range(plan.epochs):
        for place, (feed, target) in enumerate(loader):
            if place >= steps // plan.epochs * parts:
                break
            feed = {name: tensor.to(device, non_blocking=True) for name, tensor in feed.items()}
            with torch.autocast(device.type, torch.bfloat16) if way.half else nullcontext():
                logits = model(**feed).logits.float()
            loss = functional.cross_entropy(logits, target.to(device), label_smoothing=plan.smoothing)
            (loss / parts).backward()
            padded += feed["input_ids"].numel()
            if (place + 1) % parts == 0:
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * share_of_rate(plan.warmup, step, steps)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                step += 1
    seconds = time.monotonic() - begun
    del loader  # its workers end, and count
    used = processor() - used
    return seconds, used, padded, Fit(model, base.tokenizer, corpus, plan, ROOT, "no", None, lambda _: None)


class Collate:
    """Texts to a padded batch, in the loader or in its workers."""

    def __init__(self, tokenizer, most: int):  # noqa: ANN001
        self.tokenizer, self.most = tokenizer, most

    def __call__(self, rows: list) -> tuple[dict, object]:
        import torch

        texts = [row.text for row in rows]
        found = self.tokenizer(texts, truncation=True, max_length=self.most, padding="longest", return_tensors="pt")
        feed = {name: found[name] for name in ("input_ids", "attention_mask")}
        return feed, torch.tensor([row.label for row in rows])


def made_up(count: int) -> list:
    """Texts as long as on Reddit; one word in six is of the label."""
    from training.posts import Row

    words = (ROOT / "docs/words.md").read_text(encoding="utf-8").lower().split()
    words = sorted({word for word in words if word.isalpha() and len(word) > 3})
    chance = random.Random(7)
    chance.shuffle(words)
    of_label = [words[number::LABELS][:20] for number in range(LABELS)]
    rows = []
    for number in range(count):
        length = chance.randint(4, 16) if chance.random() < 0.3 else int(min(400, chance.lognormvariate(4.5, 0.8)))
        label = number % LABELS
        text = [chance.choice(of_label[label] if chance.random() < 1 / 6 else words) for _ in range(max(1, length))]
        rows.append(Row(f"t3_{number}", " ".join(text), label, ""))
    chance.shuffle(rows)
    return rows


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--posts", type=int, default=344, metavar="N", help="made-up posts; one of four judges (default: %(default)s)")
    add("--epochs", type=int, default=2, help="(default: %(default)s)")
    add("--rounds", type=int, default=1, help="all rows in turn, so many times (default: %(default)s)")
    add("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    add("--base", type=Path, default=ROOT / "models/minilm-reddit-topics", help="(default: the model that ships)")
    add("--row", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
