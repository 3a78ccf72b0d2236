"""The caption stage with a server, killed and started again: nothing is asked for twice but what was in flight."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from babelcap.storage import write_json

NUM_IMAGES, IN_FLIGHT = 66, 4
MIXED = {5: (429, b""), 9: (503, b""), 14: (200, b"nonsense"), 21: (200, b'{"choices": []}')}


class Server(ThreadingHTTPServer):
    """Slow, and in trouble now and then; counts what it was asked, by the SHA-256 of the request, and what it gave."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: Counter[str] = Counter()
        self.paid: Counter[str] = Counter()
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:  # its sender was killed
            return
        digest = hashlib.sha256(body).hexdigest()
        with self.server.lock:
            number = self.server.asked.total()
            self.server.asked[digest] += 1
        time.sleep(0.03)
        choice = {"message": {"content": f"A picture with the number {digest[:6]} on a wall."}, "finish_reason": "stop"}
        status, content = MIXED.get(number, (200, json.dumps({"choices": [choice]}).encode()))
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:  # it was killed
            pass
        if number not in MIXED:
            with self.server.lock:
                self.server.paid[digest] += 1

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def start(folder: Path, world: Path, url: str, **changes: object) -> "subprocess.Popen[str]":
    caption = {"backend": "server", "model": "m", "urls": [url], "max_in_flight": IN_FLIGHT, "check_language": False}
    values = {
        "images": {"tars": [str(world / "images")]},
        "output": str(folder / "out"),
        "coverage": {"languages": ["en"], "seen": ["caption-en"], "splits": {}},
        "caption": caption | changes,
        "num_workers": 1,
    }
    write_json(folder / "build.json", values)
    return subprocess.Popen(
        [sys.executable, "-m", "babelcap", "data", "caption", str(folder / "build.json"), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_killed_twice_each_answer_is_asked_for_once(world: Path, tmp_path: Path, server: Server) -> None:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    for number in (20, 45):
        process = start(tmp_path, world, url)
        while server.asked.total() < number and process.poll() is None:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    process = start(tmp_path, world, url)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    (row,) = json.loads(output)["stages"]
    assert (row["stage"], row["num_in"], row["num_out"], row["drops"]) == ("caption", NUM_IMAGES, NUM_IMAGES, {})
    assert len(server.paid) == NUM_IMAGES
    assert server.paid.total() <= NUM_IMAGES + 2 * IN_FLIGHT
    assert not list((tmp_path / "out-work").rglob("*.journal"))


def test_a_server_that_is_gone_stops_the_stage_without_drops(world: Path, tmp_path: Path) -> None:
    process = start(tmp_path, world, "http://127.0.0.1:9/v1", patience_seconds=0.1)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "caption: http://127.0.0.1:9/v1: no answer in 0.1 s" in errors
    assert "what is done stays done" in errors
    assert not list((tmp_path / "out-work").rglob("*.parquet"))
