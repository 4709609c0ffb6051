"""Times the pages of `topicmill serve` for one client and for several.

    python benches/serve.py PROGRAM DATABASE [--clients N] [--requests N]

DATABASE is a URL (`sqlite:posts.db` or `postgres://…`) with labelled posts. The script starts the server and requests
each page in turn, first once. It prints the time of that first response, the median and the longest time in
milliseconds, requests per second, the server's CPU time per request, and its largest memory use.
"""

import argparse
import http.client
import os
import random
import re
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
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--requests", type=int, default=5, help="requests per client and page")
    arguments = parser.parse_args()
    command = [arguments.program, "--database", arguments.database, "serve", "--listen", "127.0.0.1:0"]
    began = time.perf_counter()
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = next(int(line.split("http://127.0.0.1:")[1].split("/")[0]) for line in server.stderr if "open http" in line)
        threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
        get(port, "/posts")
        print(f"the first page of posts arrives {time.perf_counter() - began:.2f} s after the start")
        print("| page | first | median | longest | median, {0} clients | longest, {0} clients | requests/s | CPU ms |".format(arguments.clients))
        print("|---|---|---|---|---|---|---|---|")
        for name, paths in pages_of(port):
            measure(server.pid, port, name, paths, arguments)
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())
        print(f"\nlargest memory use: {int(peak[1]) // 1024} MiB")
    finally:
        server.terminate()
        server.wait()


def pages_of(port: int) -> list:
    """Returns page names, each with its URLs."""
    path, deep = "/posts", []
    for _ in range(20):
        page = get(port, path)
        following = re.search(r'rel="next" href="([^"]*)"', page)
        if not following:
            break
        path = following[1].replace("&#38;", "&")
        deep.append(path)
    # Samples from a page deep in the list.
    names = re.findall(r'class="title post" href="/posts/([^"]*)"', page)
    titles = re.findall(r'class="title post"[^>]*><bdi>([^<]*)', page)
    words = sorted({word for title in titles for word in title.split() if word.isalpha() and len(word) > 4})
    random.Random(1).shuffle(words)
    subreddit = re.search(r"r/<bdi>([^<]*)", page)[1]
    outcomes = re.findall(r'href="/posts\?outcome=([^"&]*)"', page.split("<dt>topic")[0]) or ["other"]
    # The first is any label; the labels follow, the most frequent first.
    labels = [one for one in outcomes if one not in ("labelled", "other", "unsure", "unlabelled")]
    day = re.findall(r"<span>(\d+ \w+ \d+)</span>", page)[0]
    day = time.strftime("%Y-%m-%d", time.strptime(day, "%d %b %Y"))
    topic = re.search(r'href="/posts\?topic=([^"]*)"', page)[1]
    return [
        ("posts, first page", ["/posts"]),
        ("posts, a later page", deep or ["/posts"]),
        ("the most frequent label", [f"/posts?outcome={labels[0]}"]),
        ("the rarest label", [f"/posts?outcome={labels[-1]}"]),
        *((f"outcome {one}", [f"/posts?outcome={one}"]) for one in ("labelled", "other", "unsure", "unlabelled")),
        ("a topic", [f"/posts?topic={topic}"]),
        ("a subreddit", [f"/posts?subreddit={quote(subreddit)}"]),
        ("no such subreddit", ["/posts?subreddit=none"]),
        ("a day", [f"/posts?since={day}&until={day}"]),
        ("highest scores", ["/posts?sort=score"]),
        ("a label, highest scores", [f"/posts?outcome={labels[0]}&sort=score"]),
        ("label, topic, subreddit, day", [f"/posts?outcome={labels[0]}&topic={topic}&subreddit={quote(subreddit)}&since={day}&until={day}"]),
        ("a word", [f"/posts?q={quote(word)}" for word in words[:20]]),
        ("two words and a label", [f"/posts?q={quote(a)}+{quote(b)}&outcome={labels[0]}" for a, b in zip(words, words[1:])][:20]),
        ("a word in no post", ["/posts?q=qwxyzj"]),
        ("a word in no post, highest scores", ["/posts?q=qwxyzj&sort=score"]),
        ("a post", [f"/posts/{name}" for name in names]),
        ("overview", ["/"]),
    ]


def measure(server: int, port: int, name: str, paths: list, arguments: argparse.Namespace) -> None:
    """Requests the pages of one kind and prints the response times."""
    began = time.perf_counter()
    get(port, paths[0])
    cells = [time.perf_counter() - began]
    for clients in (1, arguments.clients):
        times, before, began = [], cpu(server), time.perf_counter()

        def client(seed: int) -> None:
            chooser = random.Random(seed)
            for _ in range(arguments.requests):
                asked = time.perf_counter()
                get(port, chooser.choice(paths))
                times.append(time.perf_counter() - asked)

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took, spent = time.perf_counter() - began, cpu(server) - before
        cells += [statistics.median(times), max(times)]
    shown = [f"{one * 1000:.0f}" for one in cells] + [f"{len(times) / took:.1f}", f"{spent / len(times) * 1000:.0f}"]
    print(f"| {name} | {' | '.join(shown)} |", flush=True)


def get(port: int, path: str) -> str:
    """Returns a page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status}: {text}")
    return text


def cpu(pid: int) -> float:
    """Returns the CPU seconds of all threads of a process."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
