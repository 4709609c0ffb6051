#!/usr/bin/env python3
"""Writes made-up posts as long as Reddit's, one JSON object per line.

    python benches/sample.py [--posts 1000] > texts.ndjson

Three in ten are titles of about 15 tokens. The others have bodies with a median of 120 tokens; one in twenty has more
than 500.
"""

import argparse
import json
import math

WORDS = (
    "the a of and to in for with that this my we they after before about game team market film book train dinner doctor"
    " school phone city summer price story music player recipe model climate village engine garden teacher letter works"
    " runs found made think need want changed lost won started finished good old new strange small better early late"
).split()
"""Common words, about one token each."""


class Numbers:
    """Knuth's MMIX generator: the same texts on every Python version, because recorded figures depend on them."""

    def __init__(self) -> None:
        self.state = 7

    def below(self, end: int) -> int:
        """Returns the next number, from 0 to `end` - 1."""
        self.state = (self.state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        return (self.state >> 33) % end

    def fraction(self) -> float:
        """Returns a number from 0 up to, but not including, 1."""
        return self.below(1 << 24) / (1 << 24)

    def normal(self) -> float:
        """Returns an approximately standard normal number: the sum of twelve fractions has a variance of 1."""
        return sum(self.fraction() for _ in range(12)) - 6


def main() -> None:
    """Prints the posts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posts", type=int, default=1_000, metavar="N")
    numbers = Numbers()
    for number in range(parser.parse_args().posts):
        print(json.dumps({"id": number + 1, "text": text(numbers)}))


def text(numbers: Numbers) -> str:
    """Returns a title, followed in seven of ten cases by a body."""
    title = words(numbers, 8 + numbers.below(11))
    if numbers.fraction() < 0.3:
        return title
    tokens = 120 * math.exp(0.868 * numbers.normal())  # 5 % exceed 500: ln(500 / 120) = 1.645 × 0.868
    return f"{title}\n\n{words(numbers, min(max(int(tokens * 0.9), 4), 4_000))}"


def words(numbers: Numbers, count: int) -> str:
    """Returns words, with an occasional full stop."""
    found = WORDS[numbers.below(len(WORDS))]
    for _ in range(count - 1):
        found += ". " if numbers.below(9) == 0 else " "
        found += WORDS[numbers.below(len(WORDS))]
    return found


if __name__ == "__main__":
    main()
