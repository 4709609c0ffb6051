#!/usr/bin/env python3
"""What batches of few shapes cost in padding, on real lengths and on long ones, for several ways to choose the shapes.

    shapes.py TOKENIZER.JSON POSTS.NDJSON [--budget 16384] [--max-tokens 512] [--window 1024]

Counts alone, no model: a window of posts, each beside 16 labels, is sorted by length and put into batches as
crates/score/src/batch.rs does it. There the rule is fixed; here the steps in each doubling vary.
"""

import argparse
import json
import random
from pathlib import Path

from tokenizers import Tokenizer

TEMPLATE = "This text is about {}."
LABELS = (
    "books, climate, education, finance, food, gaming, health, history, movies, music, politics, relationships, "
    "science, sports, technology, travel"
).split(", ")
BLOCK = 8
WINDOWS = 20


def main() -> None:
    """Print a table."""
    arguments = parse()
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    length = lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)  # noqa: E731
    posts = [json.loads(line) for line in arguments.posts.read_text(encoding="utf-8").splitlines()]
    premises = [length("\n\n".join(filter(None, (post["title"], post.get("selftext"))))) for post in posts]
    hypotheses = [length(TEMPLATE.format(label)) for label in LABELS]
    sources = {"sample posts": premises, "lengths of Reddit": reddit(WINDOWS * arguments.window)}
    print("| posts | widths | padding | shapes seen | … of them in the second half alone |\n|---|---|---|---|---|")
    for source, lengths in sources.items():
        print(f"| {source}: {len(lengths):,}, median {sorted(lengths)[len(lengths) // 2]} tokens | | | | |")
        for steps in (None, 1, 2, 4, 8, 16):
            real, padded, seen, late = 0, 0, set(), set()
            starts = range(0, len(lengths), arguments.window)
            for number, start in enumerate(starts):
                rows = [
                    min(premise + hypothesis + 4, arguments.max_tokens)
                    for premise in lengths[start : start + arguments.window]
                    for hypothesis in hypotheses
                ]
                for batch in plan(sorted(rows, reverse=True), arguments.budget, steps, arguments.max_tokens):
                    shape = shape_of(batch, steps, arguments.max_tokens)
                    late |= {shape} - seen if number * 2 >= len(starts) else set()
                    seen.add(shape)
                    real, padded = real + sum(batch), padded + shape[0] * shape[1]
            name = "any" if steps is None else f"{steps} in each doubling"
            print(f"| | {name} | {padded / real - 1:.1%} | {len(seen)} | {len(late)} |")


def reddit(count: int) -> list[int]:
    """Premises as on Reddit: a third are titles of about 15 tokens, bodies have a median of 120 and a long tail."""
    numbers = random.Random(1)
    return [
        numbers.randint(6, 25) if numbers.random() < 0.3 else int(numbers.lognormvariate(4.79, 0.87)) + 8
        for _ in range(count)
    ]


def plan(rows: list[int], budget: int, steps: int | None, window: int) -> list[list[int]]:
    """Lengths, the longest first, as batches."""
    batches, begin = [], 0
    while begin < len(rows):
        most = max(1, budget // width_of(rows[begin], steps, window))
        if steps is not None:
            most = 1 << (most.bit_length() - 1)
        batches.append(rows[begin : begin + most])
        begin += most
    return batches


def shape_of(batch: list[int], steps: int | None, window: int) -> tuple[int, int]:
    """Rows and width that a batch is filled up to."""
    rows = len(batch) if steps is None else 1 << (len(batch) - 1).bit_length()
    return rows, width_of(batch[0], steps, window)


def width_of(longest: int, steps: int | None, window: int) -> int:
    """The width of a batch by its longest row."""
    if steps is None:
        return longest
    step = max((1 << (longest - 1).bit_length()) // (2 * steps), BLOCK)
    return max(min(-(-longest // step) * step, window), longest)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("posts", type=Path)
    parser.add_argument("--budget", type=int, default=16_384)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--window", type=int, default=1024, help="posts that are sorted together")
    return parser.parse_args()


if __name__ == "__main__":
    main()
