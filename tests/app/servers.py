"""A server in a process of its own: its sockets and its warnings are not the tests'."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 1200  # imports alone take minutes on a machine that has too much to do


@contextmanager
def running(*arguments: str, folder: Path, is_attacked: bool = False) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its address, and its process. `folder` is where it runs. What Gradio refuses it logs as an error of its own."""
    command = [sys.executable, "-m", "babelcap", *arguments, "--port", "0"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ.copy()
    )
    lines: list[str] = []
    ready = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "http://" in line:
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert ready.wait(START_SECONDS), "the server did not start in time"
        found = re.search(r"http://[^/\s]+", "".join(lines))
        assert found is not None, "".join(lines)
        yield found.group(), process
        assert process.poll() is None, "the server died: " + "".join(lines[-20:])
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
        assert process.stdout is not None
        process.stdout.close()
    assert is_attacked or not [line for line in lines if "Traceback" in line], "".join(lines)
