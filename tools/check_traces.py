"""Checks that a topicmill built with the feature `otel` sends its traces to a real receiver.

    python3 tools/check_traces.py PROGRAM

The receiver takes OTLP over HTTP and reads the names of the spans out of the protobuf, field by field.
"""

import http.server
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

received: list[bytes] = []


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        is_ours = self.path == "/v1/traces" and self.headers["x-key"] == "k7"
        if is_ours and self.headers["content-type"] == "application/x-protobuf":
            received.append(body)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


def fields(data: bytes):
    """The fields of a protobuf message: number and value; bytes where it has a length."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind == 2:
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size
        else:
            size = 8 if kind == 1 else 4
            yield key >> 3, data[at : at + size]
            at += size


def below(data: bytes, *path: int) -> list[bytes]:
    """The messages that a path of field numbers leads to."""
    found = [data]
    for number in path:
        found = [value for message in found for field, value in fields(message) if field == number]
    return found


def main() -> None:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = tempfile.mkdtemp(prefix="check-traces-")
    environment = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=k7",
        "OTEL_SERVICE_NAME": "mill-7",
    }
    command = [program, "-q", "--database", f"sqlite:{folder}/t.db", "collect", "--source", "sample"]
    subprocess.run(command, check=True, env=environment, cwd=folder)
    # resource_spans, scope_spans, spans; a span's name is its fifth field, its parent its fourth.
    spans = [span for body in received for span in below(body, 1, 2, 2)]
    names: dict[str, int] = {}
    for span in spans:
        name = below(span, 5)[0].decode()
        names[name] = names.get(name, 0) + 1
    print(f"{len(received)} requests, {len(spans)} spans: {names}")
    if names.get("run") != 1 or names.get("request", 0) < 10:
        sys.exit("expected one run with its requests")
    children = [span for span in spans if below(span, 4) and below(span, 4)[0]]
    if not children:
        sys.exit("no span has a parent")
    if not all(b"mill-7" in body for body in received):
        sys.exit("the service has another name")


main()
