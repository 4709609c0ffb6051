#!/usr/bin/env python3
"""Soak test: runs `classify --watch` for an hour while posts arrive and the server restarts.

    scripts/with-postgres python3 benches/soak.py TOPICMILL FOLDER [--minutes 60] [--every-secs 10] [--restarts 2]

`make soak` runs this. TEST_DATABASE_URL and TEST_POSTGRES_CONTROL name a server that only this script uses. Every few
seconds, `import` reads new posts of random length, unchanged posts that it has already imported, and an edited one. The
server's restarts are spread evenly: the first is clean, the next a crash, and so on. Each time, the server is down for
half a minute. Every two seconds, the script reads resident memory, file handles and threads of `classify` from /proc.
At the end, it stops the imports, waits until the backlog is empty, and sends SIGTERM.

The script prints tables. It exits with 1 if memory grew by more than a tenth from the first quarter to the last
(medians, excluding the first two minutes), if file handles or threads grew by more than come and go by themselves, if a
post has no label or the label of an earlier text, if more posts were labelled than texts arrived, or if `classify` did
not exit with 143.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import WORDS

SUBREDDITS = ["gaming", "food", "movies", "finance", "sports"]
SAMPLE_SECS = 2.0
AWAY_SECS = 30.0
WARM_UP_SECS = 120.0
# The store's connections and tokio's blocking threads, which come and go: in an hour, 13 to 17 handles, 5 to 7 threads.
COME_AND_GO = {"file handles": 4, "threads": 2}


class Arrivals:
    """Generates posts: new ones, repeated ones, and edited ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.posts: dict[str, dict] = {}
        self.edits = 0
        self.repeats = 0

    def text(self) -> str:
        """Returns a text of 5 to 400 words, with short ones more often."""
        return " ".join(self.random.choices(WORDS, k=int(5 * 80 ** self.random.random())))

    def delivery(self, size: int) -> list[dict]:
        """Returns `size` new posts, two old ones, and an edited one."""
        old = self.random.sample(sorted(self.posts), k=min(3, len(self.posts)))
        for _ in range(size):
            name = f"t3_soak{len(self.posts):07x}"
            self.posts[name] = {
                "name": name,
                "title": f"{len(self.posts)} {self.text()}"[:280],
                "selftext": self.text(),
                "subreddit": self.random.choice(SUBREDDITS),
                "created_utc": int(time.time()),
            }
            old.append(name)
        if len(old) > size:
            self.edits += 1
            self.repeats += len(old) - size - 1
            self.posts[old[0]]["selftext"] = f"edit {self.edits}: {self.text()}"
        return [self.posts[name] for name in old]


class Soak:
    """The program under test, its database and the measurements of both."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.control = os.environ.get("TEST_POSTGRES_CONTROL") or sys.exit("run this under scripts/with-postgres")
        self.environment = dict(os.environ) | {
            "DATABASE_URL": os.environ["TEST_DATABASE_URL"],
            "TOPICMILL__DATABASE__ALLOW_SUPERUSER": "true",
        }
        self.arrivals = Arrivals(1)
        self.samples: list[tuple[float, int, int, int]] = []
        self.refused = 0
        self.restarts: list[str] = []
        self.begun = time.monotonic()

    def command(self, *words: str) -> list[str]:
        return [str(self.arguments.topicmill), *words]

    def call(self, *words: str, check: bool = True) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*words),
            check=check, capture_output=True, text=True, env=self.environment, cwd=self.arguments.folder,
        )  # fmt: skip

    def number(self, statement: str) -> int:
        """Returns the single number that a query yields."""
        return int(next(iter(json.loads(self.call("sql", "--format", "json", statement).stdout)[0].values())))

    def bring(self) -> None:
        """Imports one delivery, retrying until the database accepts it."""
        file = self.arguments.folder / "arrivals.ndjson"
        posts = self.arrivals.delivery(self.arguments.posts)
        file.write_text("".join(json.dumps(post) + "\n" for post in posts), encoding="utf-8")
        while (done := self.call("import", "--format", "ndjson", "--again", str(file), check=False)).returncode:
            self.refused += 1
            if done.returncode != 4:
                sys.exit(f"import ended with {done.returncode}: {done.stderr}")
            self.rest(5)

    def rest(self, secs: float) -> None:
        """Samples the program while waiting."""
        until = time.monotonic() + secs
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(SAMPLE_SECS, left))
            self.look()

    def look(self) -> None:
        """Records one sample: seconds, resident KiB, file handles, threads."""
        if self.program.poll() is not None:
            sys.exit(f"classify --watch ended with {self.program.returncode}: see {self.arguments.folder}/classify.log")
        at = time.monotonic() - self.begun
        if self.samples and at - self.samples[-1][0] < SAMPLE_SECS / 2:
            return
        folder = Path(f"/proc/{self.program.pid}")
        fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        handles = len(os.listdir(folder / "fd"))
        self.samples.append((at, int(fields["VmRSS"].split()[0]), handles, int(fields["Threads"])))

    def restart(self) -> None:
        """Stops or crashes the server and restarts it after a while."""
        mode = ["fast", "immediate"][len(self.restarts) % 2]
        self.restarts.append(f"{mode} after {(time.monotonic() - self.begun) / 60:.0f} min")
        subprocess.run([self.control, "stop", mode], check=True)
        self.rest(AWAY_SECS)
        subprocess.run([self.control, "start"], check=True)

    def run(self) -> None:
        """Runs the test and exits."""
        arguments = self.arguments
        self.call("db", "create")
        log = (arguments.folder / "classify.log").open("w")
        record = arguments.folder / "record.json"
        words = ["--run-json", str(record), "--threads", str(arguments.threads), "--device", "cpu"]
        if arguments.model:
            words += ["--model", str(arguments.model)]
        self.bring()
        self.program = subprocess.Popen(
            self.command("--log-format", "json", "classify", "--watch", *words),
            stdout=log, stderr=log, env=self.environment, cwd=arguments.folder,
        )  # fmt: skip
        try:
            self.begun = time.monotonic()
            length = arguments.minutes * 60
            due = [length * (i + 1) / (arguments.restarts + 1) for i in range(arguments.restarts)]
            while (at := time.monotonic() - self.begun) < length:
                if due and at >= due[0]:
                    due.pop(0)
                    self.restart()
                self.bring()
                self.rest(arguments.every_secs)
            self.drain()
            self.program.terminate()
            self.program.wait(timeout=120)
        finally:
            self.program.kill()
        sys.exit(self.report(json.loads(record.read_text())))

    def drain(self) -> None:
        """Waits until the backlog is empty, for at most five minutes."""
        for _ in range(60):
            if self.number("SELECT count(*) FROM labeled_posts WHERE label IS NULL") == 0:
                return
            self.rest(5)

    def report(self, record: dict) -> int:
        """Prints the tables; returns the exit code."""
        warm = [sample for sample in self.samples if sample[0] >= min(WARM_UP_SECS, self.samples[-1][0] / 4)]
        quarter = max(1, len(warm) // 4)
        arrived = len(self.arrivals.posts)
        missed = self.number("SELECT count(*) FROM labeled_posts WHERE label IS NULL")
        missed += arrived - self.number("SELECT count(*) FROM posts")
        texts, labelled = arrived + self.arrivals.edits, record["counts"]["posts"]
        print(f"restarts: {', '.join(self.restarts)}; failed imports: {self.refused}")
        print(f"exit code of classify: {self.program.returncode}; samples: {len(self.samples)}")
        print("\n| | first quarter, median | last quarter, median | smallest | largest |\n|---|---|---|---|---|")
        grown = []
        for column, name in enumerate(["resident, MiB", *COME_AND_GO], 1):
            values = [row[column] / (1024 if column == 1 else 1) for row in warm]
            early, late = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
            print(f"| {name} | {early:.0f} | {late:.0f} | {min(values):.0f} | {max(values):.0f} |")
            largest = early + COME_AND_GO.get(name, early / 10)
            grown += [name] * (late > largest)
        print("\n| posts | edits | unchanged repeats | missed | texts to label | labelled | labelled twice |")
        print("|---|---|---|---|---|---|---|")
        counts = (arrived, self.arrivals.edits, self.arrivals.repeats, missed, texts, labelled, max(0, labelled - texts))
        print("| " + " | ".join(f"{count:,}" for count in counts) + " |")
        if grown:
            print(f"\nGREW: {', '.join(grown)}")
        return int(bool(grown) or missed > 0 or labelled > texts or self.program.returncode != 143)


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    path = lambda name: Path(name).resolve()
    parser.add_argument("topicmill", type=path)
    parser.add_argument("folder", type=path, help="folder for logs, created if missing")
    parser.add_argument("--model", type=path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every-secs", type=float, default=10)
    parser.add_argument("--posts", type=int, default=4, help="new posts per delivery")
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    return arguments


if __name__ == "__main__":
    Soak(parse()).run()
