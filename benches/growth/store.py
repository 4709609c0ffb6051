#!/usr/bin/env python3
"""How the times of the store grow with the number of posts: a power of each, fitted.

    benches/growth/store.py BENCH URL [--posts N …]

BENCH is the program that `cargo bench --no-run --bench store` builds. URL is `sqlite:FOLDER`, or a server with a database
that may be made: `postgres://…/NAME`. For each number of posts, it fills a database of its own, FOLDER/growth_N.db or
NAME_N, which is kept: a second run times it as it stands. The exponent is the slope of a straight line through the
logarithms, by least squares. What touches a fixed number of rows should have an exponent near 0, and a scan one near 1.
"""

import argparse
import math
import re
import subprocess

WHAT = {
    "claim 1,000 posts": "claim 1,000 posts",
    "write 1,000 × 16": "write 1,000 × 16 results",
    "stored_logits of 1,000 new texts": "look for logits of 1,000 new texts",
    "enqueue_missing, with nothing new": "`enqueue_missing`, nothing new",
    "about": "`status`, as the command shows it",
    "status": "`status`, counted",
    "SELECT * FROM uncertain_posts LIMIT 20": "`uncertain_posts`, the first 20",
    "SELECT * FROM topic_agreement": "`topic_agreement`",
    "SELECT * FROM topic_daily": "`topic_daily`",
}
LINE = re.compile(r"^(.+): ([0-9.]+) ms")


def main() -> None:
    """Fill, time and fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("url")
    parser.add_argument("--posts", type=int, nargs="+", default=[100_000, 316_000, 1_000_000])
    arguments = parser.parse_args()
    times = {posts: measured(arguments, posts) for posts in arguments.posts}
    print("| ms | " + " | ".join(f"{posts:,}" for posts in times) + " | power |")
    print("|---|" + "---|" * (len(times) + 1))
    for name, shown in WHAT.items():
        row = [by_name.get(name, math.nan) for by_name in times.values()]
        print(f"| {shown} | " + " | ".join(f"{ms:,.1f}" for ms in row) + f" | {power(list(times), row):.2f} |")


def measured(arguments: argparse.Namespace, posts: int) -> dict[str, float]:
    """What the bench says at this many posts: medians, and single times."""
    sqlite = arguments.url.startswith("sqlite:")
    url = f"{arguments.url}/growth_{posts}.db" if sqlite else f"{arguments.url}_{posts}"
    # Few texts have logits: to store them takes most of the filling, and nothing timed here scans them.
    done = subprocess.run([arguments.bench, url, str(posts), "10000"], check=True, stdout=subprocess.PIPE, text=True)
    found = (LINE.match(line) for line in done.stdout.splitlines())
    return {match[1]: float(match[2]) for match in found if match}


def power(posts: list[int], times: list[float]) -> float:
    """The slope of log(time) over log(posts); of one number of posts there is none."""
    if len(posts) < 2:
        return math.nan
    xs, ys = [math.log(n) for n in posts], [math.log(max(ms, 0.1)) for ms in times]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


if __name__ == "__main__":
    main()
