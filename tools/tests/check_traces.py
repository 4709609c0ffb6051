"""Checks that a topicmill built with the `otel` feature sends traces to an OTLP receiver over HTTP.

    python3 tools/tests/check_traces.py PROGRAM
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
    # In protobuf, a span's name is field 5, and the eight bytes of its parent's id are field 4. A tag and a length
    # precede each field.
    body = b"".join(received)
    runs, requests, children = body.count(b"\x2a\x03run"), body.count(b"\x2a\x07request"), body.count(b"\x22\x08")
    print(f"{len(received)} requests; spans: {runs} run, {requests} request, {children} with a parent")
    if runs != 1 or requests < 10 or children < 10:
        sys.exit("expected one run with its requests nested in it")
    if not all(b"mill-7" in one for one in received):
        sys.exit("a request does not name the service `mill-7`")


main()
