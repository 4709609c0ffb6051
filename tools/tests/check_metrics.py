"""Checks topicmill's metrics with promtool and a Prometheus that scrapes them.

    python3 tools/tests/check_metrics.py PROGRAM

PROGRAM is a built topicmill. Needs promtool and prometheus (Debian: apt install prometheus). The script runs a worker
and a web server on a database of sample posts. It checks that promtool accepts their metrics, that Prometheus scrapes
both, that the numbers of posts are right, and that every alert rule is valid. It lists the rules
that return no result.
"""

import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
MONITORING = TOP / "monitoring"


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def started(command: list[str], says: str, log: pathlib.Path) -> tuple[subprocess.Popen, str]:
    """Starts a program, waits for a log line, and returns the rest of that line."""
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=log.parent)
    for _ in range(600):
        found = re.search(says, log.read_text())
        if found:
            return process, found[1] if found.groups() else ""
        if process.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit(f"{command[0]} did not log {says!r}:\n{log.read_text()}")


def expressions(rules: str) -> list[str]:
    """Returns the query of each rule that Prometheus lists."""
    return [rule["query"] for group in json.loads(rules)["data"]["groups"] for rule in group["rules"]]


def main() -> None:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    folder = pathlib.Path(tempfile.mkdtemp(prefix="check-metrics-"))
    database = ["--database", f"sqlite:{folder / 'm.db'}"]
    run = lambda *args: subprocess.run([program, "-q", *database, *args], check=True, cwd=folder)
    run("collect", "--source", "sample")
    processes = []
    try:
        says = r"serving metrics at http://([0-9.:]+)/metrics"
        watch = [program, *database, "classify", "--watch", "--metrics-listen", "127.0.0.1:0"]
        worker, worker_at = started(watch, says, folder / "worker.log")
        processes.append(worker)
        serve = [program, *database, "serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
        server, server_at = started(serve, says, folder / "serve.log")
        processes.append(server)
        for _ in range(600):
            text = get(f"http://{worker_at}/metrics")
            if "topicmill_backlog_posts 0\n" in text and "topicmill_posts 512\n" in text:
                break
            time.sleep(0.2)
        else:
            sys.exit(f"the worker did not label all posts in time:\n{text}")
        for address in (worker_at, server_at):
            text = get(f"http://{address}/metrics")
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
            said = checked.stdout + checked.stderr
            if checked.returncode != 0 or said.strip():
                sys.exit(f"promtool check metrics: {said}")
            series = sum(1 for line in text.splitlines() if not line.startswith("#"))
            print(f"promtool check metrics: {address}: {series} series, no complaints")
        config = (MONITORING / "prometheus.yml").read_text()
        config = config.replace("alerts.yml", str(MONITORING / "alerts.yml")).replace("15s", "1s")
        config = config.replace("127.0.0.1:9187", worker_at).replace("127.0.0.1:9188", server_at)
        (folder / "prometheus.yml").write_text(config)
        prometheus = [
            "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:9399",
        ]
        monitor, _ = started(prometheus, "Server is ready", folder / "prometheus.log")
        processes.append(monitor)
        ask = lambda query: json.loads(
            get("http://127.0.0.1:9399/api/v1/query?" + urllib.parse.urlencode({"query": query}))
        )["data"]["result"]
        for _ in range(120):
            up = ask('up{job="topicmill"}')
            if len(up) == 2 and all(one["value"][1] == "1" for one in up) and len(ask("topicmill_posts")) == 2:
                break
            time.sleep(0.5)
        else:
            sys.exit(f"Prometheus does not scrape: {up}")
        time.sleep(5)
        assert [one["value"][1] for one in ask("sum(topicmill_posts_labelled_total)")] == ["512"]
        assert {one["value"][1] for one in ask("topicmill_posts")} == {"512"}
        rules = get("http://127.0.0.1:9399/api/v1/rules")
        empty = []
        queries = expressions(rules)
        for query in queries:
            try:
                if not ask(query):
                    empty.append(query)
            except urllib.error.HTTPError as error:
                sys.exit(f"{query}: {error.read().decode()}")
        print(f"Prometheus scrapes both; {len(empty)} of {len(queries)} rules return nothing")
        for query in empty:
            print(f"  no result: {query}")
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(timeout=30)
    codes = [process.returncode for process in processes[:2]]
    if codes != [143, 143]:
        sys.exit(f"the worker and the web server ended with {codes}")


main()
