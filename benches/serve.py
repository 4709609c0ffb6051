"""Times the pages of `topicmill serve` for one client and for several.

    python benches/serve.py PROGRAM DATABASE [--clients N] [--requests N]

DATABASE is a URL (`sqlite:posts.db` or `postgres://…`) with labelled posts. The script starts the server, waits until
all texts are searchable, and requests each page in turn. It prints the median, the 95th and 99th percentile and the
longest time in milliseconds, requests per second, and the server's CPU time per request.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import quote


def main() -> None:
    """Starts the server and measures each page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("database")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=25, help="requests per client and page")
    arguments = parser.parse_args()
    command = [arguments.program, "--database", arguments.database, "serve", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = next(int(line.split("http://127.0.0.1:")[1].split("/")[0]) for line in server.stderr if "open http" in line)
        threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
        began = time.perf_counter()
        overview = ask_json(port, "/api/overview")
        print(f"lists respond after {time.perf_counter() - began:.1f} s")
        while overview["searched"] < overview["posts"]:
            time.sleep(0.5)
            overview = ask_json(port, "/api/overview")
        print(f"all texts searchable after {time.perf_counter() - began:.1f} s, {cpu(server.pid):.1f} s of CPU time")
        pages_in_memory = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
        print(f"{overview['posts']:,} posts, {pages_in_memory // 256} MiB of memory")
        pages = pages_of(port, overview)
        for clients in (1, arguments.clients):
            print(f"\n{clients} concurrent clients, load {os.getloadavg()[0]:.1f}\n")
            print("| page | median | 95 % | 99 % | longest | requests/s | CPU ms |\n|---|---|---|---|---|---|---|")
            for name, paths in pages:
                measure(server.pid, port, name, paths, clients, arguments.requests)
    finally:
        server.terminate()
        server.wait()


def pages_of(port: int, overview: dict) -> list:
    """Returns page names, each with its URLs."""
    label = max(overview["outcomes"], key=lambda one: one["posts"])["outcome"]
    after, deep = None, []
    for _ in range(20):
        page = ask_json(port, "/api/posts?limit=200" + (f"&after={after}" if after else ""))
        after = page["next"]
        if not after:
            break
        deep.append(f"/posts?after={after}")
    # Samples from a page deep in the list.
    names = [post["fullname"] for post in page["posts"]]
    words = sorted({word for post in page["posts"] for word in post["title"].split() if word.isalpha() and len(word) > 4})
    random.Random(1).shuffle(words)
    subreddits = sorted({post["subreddit"] for post in page["posts"]})
    return [
        ("overview", ["/"]),
        ("posts, first page", ["/posts"]),
        ("posts, a later page", deep or ["/posts"]),
        ("a label, highest scores", [f"/posts?outcome={label}&sort=surest"]),
        ("closest calls", ["/posts?sort=closest"]),
        ("a subreddit, by Reddit's score", [f"/posts?sort=reddit_score&subreddit={quote(one)}" for one in subreddits]),
        ("four filters", [f"/posts?outcome={label}&subreddit={quote(subreddits[0])}&min_score=0.5&since=2026-10-01"]),
        ("search, one word", [f"/posts?q={quote(word)}" for word in words[:20]]),
        ("search, two words and a label", [f"/posts?q={quote(a)}+{quote(b)}&outcome={label}" for a, b in zip(words, words[1:])][:20]),
        ("search, a prefix", [f"/posts?q={quote(word[:3])}*" for word in words[:20]]),
        ("a post", [f"/posts/{name}" for name in names[:50]]),
        ("the same as JSON", ["/api/posts"]),
    ]


def measure(server: int, port: int, name: str, paths: list, clients: int, requests: int) -> None:
    """Requests the pages of one kind and prints the response times."""
    times, before, began = [], cpu(server), time.perf_counter()

    def client(seed: int) -> None:
        chooser = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(requests):
            path = chooser.choice(paths)
            asked = time.perf_counter()
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise SystemExit(f"{path}: {answer.status}")
            times.append((time.perf_counter() - asked) * 1000)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, spent = time.perf_counter() - began, cpu(server) - before
    cuts = statistics.quantiles(times, n=100)
    each = [statistics.median(times), cuts[94], cuts[98], max(times)]
    cells = [f"{one:.0f}" for one in each] + [f"{len(times) / took:.0f}", f"{spent / len(times) * 1000:.1f}"]
    print(f"| {name} | {' | '.join(cells)} |")


def ask_json(port: int, path: str) -> dict:
    """Returns a response from the API."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path)
    return json.loads(connection.getresponse().read())


def cpu(pid: int) -> float:
    """Returns the CPU seconds of all threads of a process."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
