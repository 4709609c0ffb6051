#!/usr/bin/env python3
"""Simulates spot machines: the share of paid time that is wasted, by lease and window.

    python3 benches/spot.py [--check]

The simulation reads the program's constants from its source; the rest is arithmetic with fixed seeds. It needs only the
standard library. `--check` simulates only the defaults and exits with 1 if the worst run wastes 5 % or more.

A machine is paid for from its start to its end, or to the end of the job. All paid time is waste, except for computing
posts that are in the result. Waste has three parts: `start` is the time until a machine's first post, `again` is the
computation that was lost with a machine, and `idle` is the time without posts until the job is done.

Workers on PostgreSQL claim windows of posts and hold a few windows at a time. The posts of a reclaimed machine can be
claimed again when its lease expires. Workers claim these posts after all others, in small windows, and wait for each
write.
"""

import argparse
import collections
import heapq
import itertools
import random
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
LIMIT = 0.05
SEEDS = (1, 2, 3)


def constant(file: str, pattern: str) -> float:
    """Returns a constant from the program's source; exits if nothing matches the pattern."""
    found = re.search(pattern, (TOP / file).read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        sys.exit(f"nothing in {file} matches {pattern!r}: update the file or the pattern in benches/spot.py")
    return float(found[1].replace("_", ""))


@dataclass(frozen=True)
class Program:
    """The program's constants, read from its source."""

    lease_secs: float
    window: int
    windows_in_flight: int
    write_posts: int
    write_secs: float
    suspects: int

    @staticmethod
    def read() -> "Program":
        lane, writing = "src/classify/lane.rs", "src/classify/lane/writer.rs"
        claims = "crates/store/src/sql/claims.rs"
        return Program(
            lease_secs=constant("config/topicmill.toml", r"^lease_secs = (\d+)"),
            window=int(constant(lane, r"^const WINDOW_POSTS: usize = ([\d_]+);")),
            windows_in_flight=int(constant(lane, r"^const WINDOWS_IN_FLIGHT: usize = ([\d_]+);")),
            write_posts=int(constant(writing, r"^const WRITE_POSTS: usize = ([\d_]+);")),
            write_secs=constant(writing, r"^const WRITE_EVERY: Duration = Duration::from_secs\((\d+)\);"),
            suspects=int(constant(claims, r"Ok\(crashes\) if crashes < ALONE_AFTER => ([\d_]+) >> \(2 \* crashes\)")),
        )


@dataclass(frozen=True)
class World:
    """Assumptions. 109 posts/s: the default model on two cores (benches/results/stages.md). 0.4 s: a claim and a write
    of a window without overlap (benches/results/store.md: 0.19 s for 1,000 posts, with the server on the same
    machine)."""

    machines: int = 100
    posts: int = 211_000_000
    posts_a_sec: float = 109.0
    lives: str = "exponential"
    life_secs: float = 7_200.0
    start_secs: float = 60.0
    round_trip_secs: float = 0.4


@dataclass
class Bill:
    """Machine-seconds, except for `ends`, the second in which the job ends, and `vanished`, the reclaimed machines."""

    paid: float = 0.0
    start: float = 0.0
    again: float = 0.0
    useful: float = 0.0
    ends: float = 0.0
    vanished: int = 0

    def waste(self) -> float:
        return 1 - self.useful / self.paid

    def row(self) -> str:
        share = lambda secs: f"{secs / self.paid:.1%}"
        idle = self.paid - self.useful - self.start - self.again
        return (
            f"{self.ends / 3600:.2f} h | {self.vanished:,} | {share(self.start)} | {share(self.again)} | {share(idle)} | "
            f"**{self.waste():.1%}**"
        )


def crashes(world: World, chance: random.Random):
    """Returns a function that maps a machine's start to its end. In bursts, several machines share an end."""
    if world.lives == "exponential":
        return lambda now: now + chance.expovariate(1 / world.life_secs)
    # Half of the machines disappear in bursts: every two thirds of a lifetime on average, each machine is reclaimed
    # with a probability of a third. The other half disappear individually.
    bursts = [0.0]

    def burst_after(now: float) -> float:
        while bursts[-1] <= now + 50 * world.life_secs:
            bursts.append(bursts[-1] + chance.expovariate(1.5 / world.life_secs))
        met = (burst for burst in bursts if burst > now and chance.random() < 1 / 3)
        return next(met, bursts[-1])

    return lambda now: min(now + chance.expovariate(0.5 / world.life_secs), burst_after(now))


def on_postgres(program: Program, world: World, seed: int = 1) -> Bill:
    """Simulates workers that claim windows under leases."""
    chance = random.Random(seed)
    dies_at = crashes(world, chance)
    bill = Bill()
    left, done = world.posts, 0
    # Number of claimable posts from reclaimed machines, by how many machines were reclaimed while holding them.
    suspects: dict[int, int] = {}
    events: list = []
    order = itertools.count()
    idle: list[int] = []
    born, dies, held = {}, {}, {}
    names = itertools.count()

    def later(at: float, what: str, *of) -> None:
        heapq.heappush(events, (at, next(order), what, of))

    def machine(now: float) -> None:
        name = next(names)
        born[name], dies[name], held[name] = now, dies_at(now), collections.deque()
        later(dies[name], "vanish", name)
        ready = now + world.start_secs
        bill.start += min(ready, dies[name]) - now
        later(ready, "work", name)

    def work(now: float, name: int) -> None:
        """Claims the next window, if there is one, and starts to compute it."""
        nonlocal left
        while len(held[name]) < program.windows_in_flight and left:
            window = min(program.window, left)
            left -= window
            held[name].append((window, 0))
        pause = 0.0
        if not held[name]:
            number = min((times for times, posts in suspects.items() if posts), default=None)
            if number is None:
                idle.append(name)
                return
            window = min(suspects[number], max(1, program.suspects >> (2 * number)), program.window)
            suspects[number] -= window
            held[name].append((window, number))
            pause = world.round_trip_secs
        posts, number = held[name][0]
        later(now + pause + posts / world.posts_a_sec, "finish", name, posts)
        begun[name] = now + pause

    begun: dict[int, float] = {}
    for _ in range(world.machines):
        machine(0.0)
    while events:
        now, _, what, of = heapq.heappop(events)
        if what == "free":
            posts, number = of
            suspects[number] = suspects.get(number, 0) + posts
            for name in idle[:]:
                idle.remove(name)
                if name in born:
                    work(now, name)
            continue
        name = of[0]
        if name not in born:
            continue
        if what == "work":
            work(now, name)
        elif what == "finish":
            posts, _ = held[name].popleft()
            done += posts
            bill.useful += posts / world.posts_a_sec
            if done == world.posts:
                bill.ends = now
                break
            work(now, name)
        else:
            bill.vanished += 1
            bill.paid += now - born.pop(name)
            expires = now + program.lease_secs * chance.uniform(2 / 3, 1)
            if held[name]:
                posts, number = held[name].popleft()
                computed = max(0.0, now - begun[name])
                # A window is written in parts, after a few seconds at the latest.
                part = min(program.write_posts / world.posts_a_sec, program.write_secs)
                kept = min(posts, int(computed // part * part * world.posts_a_sec))
                done += kept
                bill.useful += kept / world.posts_a_sec
                bill.again += computed - kept / world.posts_a_sec
                later(expires, "free", posts - kept, number + 1)
            for posts, number in held[name]:
                later(expires, "free", posts, number + 1)
            machine(now)
    for name in born:
        bill.paid += max(0.0, bill.ends - born[name])
        # The part of a machine's start that falls after the end of the job is not paid for.
        bill.start -= max(0.0, min(born[name] + world.start_secs, dies[name]) - max(bill.ends, born[name]))
    return bill


def table(title: str, columns: str, rows) -> None:
    """Prints one table."""
    print(f"\n## {title}\n\n| {columns} | duration | reclaimed | start | again | idle | waste |")
    print(f"|{'---|' * (columns.count('|') + 7)}")
    for name, bill in rows:
        print(f"| {name} | {bill.row()} |")


# Posts per second on two cores (docs/benchmarks.md), and posts per window; a window contains at most 4,096 rows. The
# number of posts is reduced in proportion to the speed.
MODELS = {
    "the default model": (109.0, 1_024),
    "BART-large's size, a shortlist of 4 of 16 labels": (0.60, 1_024),
    "BART-large's size, 16 labels": (0.15, 256),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    program = Program.read()
    world = World()
    print(f"{program}\n{world}")
    defaults = []
    for lives in ("exponential", "bursts"):
        here = replace(world, lives=lives)
        defaults.append((lives, max((on_postgres(program, here, seed) for seed in SEEDS), key=Bill.waste)))
    table("Defaults, worst of three seeds", "lives", defaults)
    if arguments.check:
        worst = max(bill.waste() for _, bill in defaults)
        print(f"\nthe worst case wastes {worst:.1%}; the limit is {LIMIT:.0%}")
        sys.exit(worst >= LIMIT)
    bursts = replace(world, lives="bursts")
    table(
        "Lease and window",
        "lease | window",
        (
            (f"{lease} s | {window:,}", on_postgres(replace(program, lease_secs=lease, window=window), bursts))
            for lease in (30, 300, 3_600)
            for window in (256, 1_024, 16_384)
        ),
    )
    slower = []
    for name, (speed, window) in MODELS.items():
        slow = replace(bursts, posts=round(world.posts * speed / world.posts_a_sec), posts_a_sec=speed)
        slower.append((name, on_postgres(replace(program, window=window), slow)))
    table("Slower models", "model", slower)
    table(
        "Lifetime and start",
        "life | start",
        (
            (f"{life / 3600:g} h | {start} s", on_postgres(program, replace(bursts, life_secs=life, start_secs=start)))
            for life in (1_800, 7_200, 28_800)
            for start in (15, 60, 300)
        ),
    )


if __name__ == "__main__":
    main()
