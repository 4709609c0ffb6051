"""Checks that several hosts label each post of a backlog once, with real networks and a real PostgreSQL.

    sudo python3 tools/tests/check_hosts.py PROGRAM [--posts 10000] [--lease-secs 6] [--broken]

PROGRAM is a built topicmill. Three network namespaces are three hosts, each with its own address, host name and process
ids; a fourth contains the server. The packet filter disconnects host `cut` while it is working, and reconnects it after
other hosts have reclaimed its posts. On host `dead`, the program is killed with SIGKILL. Each packet from host `far` is
delayed by 200 ms. The clock of `cut` is five minutes fast; the clock of `far` is five minutes slow (libfaketime).

In the end, each post must have one label, written once, with the scores of a single process, and late results from
`cut` must be rejected and counted. With `--broken`, the server also closes the connections of `cut` while `cut` is
disconnected, so `cut` must detect the loss itself.

Needs root, Linux, and on Debian: apt install iproute2 nftables faketime
"""

import argparse
import ctypes
import fcntl
import glob
import json
import os
import queue
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
WORDS = (TOP / "LICENSE-APACHE").read_text(encoding="utf-8").split()
# Each host has a subnet of 10.79.0.0/16, with an address for the server and one for itself.
HOSTS = {"cut": 1, "dead": 2, "far": 3}
CLOCKS = {"cut": "+300s", "far": "-300s"}
DELAY_SECS = 0.2
# How much the other texts in a batch may change a score (docs/python.md).
CLOSE = 1e-5
TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000


def server(host: str) -> str:
    """Returns the server's address on the link to a host."""
    return f"10.79.{HOSTS[host]}.1"


def address(host: str) -> str:
    """Returns the host's address."""
    return f"10.79.{HOSTS[host]}.2"


def call(*words: object, check: bool = True) -> str:
    """Runs a command and returns its output."""
    return subprocess.run([str(word) for word in words], check=check, stdout=subprocess.PIPE, text=True).stdout


def wait(what: str, until, hosts: "Hosts", secs: float = 180) -> None:
    """Waits until a condition holds."""
    ends = time.monotonic() + secs
    while not until():
        if time.monotonic() > ends:
            sys.exit(f"this did not happen within {secs:.0f} s: {what}\n{hosts.report()}")
        time.sleep(0.1)


class Line:
    """A link that delays packets in one direction. It uses TUN devices, because not every kernel has netem."""

    def __init__(self, near: str, far: str, far_space: str) -> None:
        here = self.device(near)
        there = []

        def across() -> None:
            with open(f"/run/netns/{far_space}", encoding="utf-8") as space:
                if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), CLONE_NEWNET):
                    sys.exit(f"failed to enter {far_space}: {os.strerror(ctypes.get_errno())}")
            there.append(self.device(far))

        # In a thread, because `setns` changes only the network namespace of the calling thread.
        thread = threading.Thread(target=across)
        thread.start()
        thread.join()
        self.carry(here, there[0], 0)
        self.carry(there[0], here, DELAY_SECS)

    @staticmethod
    def device(name: str) -> int:
        tun = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        return tun

    @staticmethod
    def carry(source: int, target: int, delay: float) -> None:
        on_the_way: queue.Queue = queue.Queue()

        def take() -> None:
            while True:
                on_the_way.put((time.monotonic() + delay, os.read(source, 65536)))

        def give() -> None:
            while True:
                due, packet = on_the_way.get()
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    os.write(target, packet)
                except OSError:
                    pass  # The other end is not up yet, or no longer.

        for step in (take, give):
            threading.Thread(target=step, daemon=True).start()


class Hosts:
    """The hosts, the program on each of them, and their shared database."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.program = str(Path(arguments.program).resolve())
        self.folder = Path(tempfile.mkdtemp(prefix="check-hosts-"))
        base, _ = os.environ["TEST_DATABASE_URL"].rsplit("/", 1)
        self.urls = {name: f"{base}/{name}" for name in ("single", "hosts")}
        self.running: dict[str, subprocess.Popen] = {}
        for host in HOSTS:
            self.connect(host)

    def space(self, host: str) -> str:
        return f"{self.arguments.inside}-{host}"

    def connect(self, host: str) -> None:
        """Creates the link between the server and a host."""
        here, there = f"to-{host}", f"of-{host}"
        if host == "far":
            self.line = Line(here, there, self.space(host))
        else:
            call("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", self.space(host))
        inside = ("ip", "-n", self.space(host))
        call("ip", "addr", "add", server(host), "peer", address(host), "dev", here)
        call("ip", "link", "set", here, "up")
        call(*inside, "addr", "add", address(host), "peer", server(host), "dev", there)
        call(*inside, "link", "set", there, "up")
        call(*inside, "link", "set", "lo", "up")

    def cut(self, host: str) -> None:
        """Drops all packets silently, in both directions."""
        for space, other in ((None, address(host)), (self.space(host), server(host))):
            inside = ("ip", "netns", "exec", space) if space else ()
            rules = f"table inet cut {{ chain incoming {{ type filter hook input priority 0; ip saddr {other} drop; }}; }}"
            call(*inside, "nft", rules)

    def heal(self, host: str) -> None:
        for inside in ((), ("ip", "netns", "exec", self.space(host))):
            call(*inside, "nft", "delete table inet cut")

    def environment(self, url: str) -> dict:
        return dict(os.environ) | {
            "DATABASE_URL": url,
            "TOPICMILL__DATABASE__ALLOW_SUPERUSER": "true",
            "TOPICMILL__CLASSIFY__LEASE_SECS": str(self.arguments.lease_secs),
        }

    def topicmill(self, url: str, *words: str) -> str:
        ran = subprocess.run(
            [self.program, *words], env=self.environment(url), cwd=TOP, capture_output=True, text=True
        )
        if ran.returncode:
            sys.exit(f"topicmill {' '.join(words)} ended with {ran.returncode}: {ran.stderr}")
        return ran.stdout

    def rows(self, url: str, statement: str) -> list[list]:
        found = json.loads(self.topicmill(url, "sql", "--format", "json", statement))
        return [list(row.values()) for row in found]

    def asked(self, statement: str) -> list[list]:
        return self.rows(self.urls["hosts"], statement)

    def log(self, host: str) -> Path:
        return self.folder / f"{host}.log"

    def start(self, host: str) -> None:
        """Starts `classify` on a host, with its own host name, process ids and clock."""
        words = ["ip", "netns", "exec", self.space(host), "unshare", "--fork", "--kill-child", "--pid", "--mount-proc"]
        words += ["--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]
        if host in CLOCKS:
            library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
            words += ["env", f"LD_PRELOAD={library[0]}", f"FAKETIME={CLOCKS[host]}", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
        words += [self.program, "classify", "--threads", "1", "--device", "cpu"]
        url = self.urls["hosts"].replace("127.0.0.1", server(host))
        with self.log(host).open("a", encoding="utf-8") as log:
            self.running[host] = subprocess.Popen(
                words, env=self.environment(url), cwd=TOP, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, host: str) -> None:
        """Sends SIGKILL to the program itself."""
        unshare = self.running[host].pid
        (child,) = Path(f"/proc/{unshare}/task/{unshare}/children").read_text(encoding="utf-8").split()
        os.kill(int(child), signal.SIGKILL)
        self.running.pop(host).wait()

    def held(self, host: str) -> set:
        return {row[0] for row in self.asked(f"SELECT id FROM leases WHERE worker LIKE '{host}:%'")}

    def written(self, host: str) -> int:
        of_host = f"SELECT id FROM runs WHERE stage = 'classify' AND worker LIKE '{host}:%'"
        return self.asked(f"SELECT COUNT(*) FROM classifications WHERE run_id IN ({of_host})")[0][0]

    def unlabelled(self) -> int:
        return self.asked("SELECT COUNT(*) FROM posts WHERE fullname NOT IN (SELECT fullname FROM classifications)")[0][0]

    def work_on(self, secs: float) -> None:
        """Restarts `classify` when it exits, as a timer does, until every post has a label."""
        ends = time.monotonic() + secs
        while self.unlabelled() or any(one.poll() is None for one in self.running.values()):
            for host, process in list(self.running.items()):
                code = process.poll()
                # Exit code 75: other hosts hold the rest.
                if code not in (None, 0, 75):
                    sys.exit(f"classify on {host} ended with {code}:\n{self.log(host).read_text()}")
                if code is not None and self.unlabelled():
                    self.start(host)
            if time.monotonic() > ends:
                sys.exit(f"still working after {secs:.0f} s: " + self.report())
            time.sleep(0.3)

    def report(self) -> str:
        logs = "\n".join(f"--- {host}\n{self.log(host).read_text()}" for host in HOSTS if self.log(host).exists())
        return f"{self.asked('SELECT worker, status, counts FROM runs')}\n{logs}"


def posts(count: int, file: Path) -> None:
    """Writes made-up posts to a file, each with its own text."""
    chance = random.Random(16)
    with file.open("w", encoding="utf-8") as out:
        for number in range(count):
            text = " ".join(chance.choices(WORDS, k=chance.randint(2, 12)))
            post = {"name": f"t3_h{number:06x}", "title": f"{number} {text}", "selftext": ""}
            out.write(json.dumps(post | {"subreddit": "gaming", "created_utc": 1_780_000_000 + number}) + "\n")


def forget(hosts: Hosts) -> None:
    """Terminates the sessions of `cut` and makes the kernel soon stop retransmitting to `cut`."""
    Path("/proc/sys/net/ipv4/tcp_orphan_retries").write_text("1", encoding="utf-8")
    whose = f"SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE client_addr = '{address('cut')}'"
    call("psql", "--quiet", "--tuples-only", hosts.urls["hosts"], "--command", whose)
    wait("the server forgets the connections", lambda: address("cut") not in call("ss", "-tn"), hosts)


def disturb(hosts: Hosts) -> dict:
    """Causes every failure; returns the observations."""
    seen = {}
    # The slow host starts first, so that it gets some posts.
    hosts.start("far")
    wait("`far` holds posts", lambda: hosts.held("far"), hosts)
    hosts.start("cut")
    hosts.start("dead")
    wait("each host writes labels", lambda: all(hosts.written(host) for host in HOSTS), hosts)
    behind = {
        host: hosts.asked(f"SELECT MIN(EXTRACT(EPOCH FROM started_at)) FROM runs WHERE worker LIKE '{host}:%'")[0][0]
        for host in HOSTS
    }
    # The runs began within seconds of each other, so their recorded starts reveal the hosts' clocks.
    seen["clocks_secs"] = {host: round(behind[host] - behind["dead"]) for host in HOSTS}
    for host, clock in CLOCKS.items():
        assert abs(seen["clocks_secs"][host] - int(clock[:-1])) < 60, seen
    wait("`cut` and `dead` hold posts", lambda: hosts.held("cut") and hosts.held("dead"), hosts)
    hosts.cut("cut")
    begun = time.monotonic()
    hosts.kill("dead")
    held = hosts.held("cut")
    assert held, "`cut` had released its posts before it was disconnected"
    seen["held_by_dead"] = hosts.asked(
        "SELECT COUNT(*) FROM backlog b JOIN leases l ON l.id = b.lease_id WHERE l.worker LIKE 'dead:%'"
    )[0][0]

    def taken_over() -> bool:
        if "far" in hosts.running and hosts.running["far"].poll() is not None:
            hosts.start("far")
        return not held & hosts.held("cut")

    wait("other hosts reclaim the posts of `cut`", taken_over, hosts)
    if hosts.arguments.broken:
        forget(hosts)
    seen["cut_secs"] = round(time.monotonic() - begun, 1)
    hosts.heal("cut")
    begun = time.monotonic()
    hosts.work_on(300)
    seen["from_heal_to_end_secs"] = round(time.monotonic() - begun, 1)
    return seen


def check(hosts: Hosts, seen: dict) -> None:
    """Compares the hosts' labels with a single process's labels and with the run records."""
    statement = "SELECT fullname, label, score FROM post_scores ORDER BY fullname, label"
    best = "SELECT fullname, label FROM classifications ORDER BY fullname"
    single, found = (hosts.rows(hosts.urls[name], statement) for name in ("single", "hosts"))
    assert [row[:2] for row in found] == [row[:2] for row in single], "a post or a label is missing or duplicated"
    seen["posts"] = hosts.arguments.posts
    seen["largest_difference"] = max(abs(a[2] - b[2]) for a, b in zip(single, found, strict=True))
    assert seen["largest_difference"] <= CLOSE, seen
    one, many = (hosts.rows(hosts.urls[name], best) for name in ("single", "hosts"))
    assert one == many and len(many) == hosts.arguments.posts, "labels differ"
    wrote = hosts.asked("SELECT r.worker, r.status, r.counts, r.id FROM runs r WHERE r.stage = 'classify' ORDER BY r.id")
    of_run = dict(hosts.asked("SELECT run_id, COUNT(*) FROM classifications GROUP BY run_id"))
    seen["runs"] = []
    for worker, status, counts, run in wrote:
        counts = json.loads(counts) if isinstance(counts, str) else counts or {}
        kept = of_run.get(run, 0)
        host = worker.split(":")[0]
        seen["runs"].append(
            {"host": host, "status": status, "labels": kept}
            | {name: counts.get(name, 0) for name in ("posts", "refused", "leases_lost")}
        )
        # Every label belongs to the run that counted it: none was overwritten.
        assert host == "dead" or counts.get("posts", 0) == kept, seen
    refused = sum(one["refused"] for one in seen["runs"] if one["host"] == "cut")
    assert refused > 0, f"no late result of `cut` was rejected: {seen}\n{hosts.report()}"
    assert all(one["refused"] == 0 for one in seen["runs"] if one["host"] != "cut"), f"{seen}\n{hosts.report()}"
    assert hosts.asked("SELECT COUNT(*) FROM backlog")[0][0] == 0, "posts are left in the backlog"


def inside(arguments: argparse.Namespace) -> None:
    """Runs the check in the server's network namespace."""
    hosts = Hosts(arguments)
    try:
        file = hosts.folder / "posts.ndjson"
        posts(arguments.posts, file)
        for url in hosts.urls.values():
            hosts.topicmill(url, "--quiet", "import", "--format", "ndjson", str(file))
        begun = time.monotonic()
        hosts.topicmill(hosts.urls["single"], "--quiet", "classify", "--threads", "1", "--device", "cpu")
        alone = round(time.monotonic() - begun, 1)
        seen = {"alone_secs": alone} | disturb(hosts)
        check(hosts, seen)
        for name, value in seen.items():
            lines = value if isinstance(value, list) else [value]
            print(f"{name}: " + "\n  ".join([""] * isinstance(value, list) + [str(line) for line in lines]))
        print("each post has one label, written once, with the scores of one process")
    finally:
        for process in hosts.running.values():
            process.kill()
        shutil.rmtree(hosts.folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--posts", type=int, default=10_000)
    parser.add_argument("--lease-secs", type=int, default=6)
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return inside(arguments)
    programs = ("ip", "nft", "unshare", *(("psql", "ss") if arguments.broken else ()))
    missing = [name for name in programs if not shutil.which(name)]
    if not glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"):
        missing.append("libfaketime")
    if missing or os.geteuid() != 0:
        needed = "apt install iproute2 nftables faketime" + " postgresql-client" * arguments.broken
        sys.exit(f"{', '.join(missing) or 'root access'} is missing: run as root (Debian: {needed})")
    # Raises SystemExit, so that `finally` removes the namespaces.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    name = f"tm{os.getpid()}"
    spaces = [f"{name}-{host}" for host in ("server", *HOSTS)]
    try:
        for space in spaces:
            call("ip", "netns", "add", space)
        call("ip", "-n", spaces[0], "link", "set", "lo", "up")
        environment = {key: value for key, value in os.environ.items() if key != "TEST_DATABASE_URL"}
        again = [sys.executable, __file__, "--inside", name, *sys.argv[1:]]
        ran = subprocess.run(
            ["ip", "netns", "exec", spaces[0], str(TOP / "scripts/with-postgres"), *again],
            env=environment | {"POSTGRES_NETWORK": "10.79.0.0/16"},
        )
        sys.exit(ran.returncode)
    finally:
        for space in spaces:
            call("ip", "netns", "del", space, check=False)


if __name__ == "__main__":
    main()
