"""`babelcap serve` and `babelcap app` killed while they start or answer: started again, they answer the same.

Neither writes anything where it runs; nor does a kill leave anything there.
"""

import base64
import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

from PIL import Image, ImageDraw

from torture.killing import KILLED, Forge, is_alive, wait_alive
from torture.kills import Lost, Say
from torture.subjects import files_of, micro

MODULES = ("babelcap.app.running", "babelcap.app.build", "babelcap.app.serve.api", "babelcap.models.inference")
START_SECONDS = 300
PATHS = {"serve": "/health", "app": "/config"}


def picture() -> bytes:
    image, stream = Image.new("RGB", (96, 64), "white"), io.BytesIO()
    ImageDraw.Draw(image).rectangle((10, 10, 50, 40), fill="red")
    image.save(stream, "PNG")
    return stream.getvalue()


class ServerKills:
    """Kills of a server, counted by the moment."""

    def __init__(self, command: str, folder: Path, forge: Forge, draw: random.Random) -> None:
        self.command, self.folder, self.forge, self.draw = command, folder / "empty", forge, draw
        self.hits: Counter[str] = Counter()
        self.num_compared = 0
        self.folder.mkdir(parents=True)
        self.model = Path(shutil.copytree(micro(), folder / "model"))
        self.model_files = files_of(self.model)
        self.arguments = [command, "--model", str(self.model), "--port", "0"]
        self.expected: object = None
        self.start_seconds = 1.0

    def start(self) -> tuple[int, str]:
        """Its process and its address."""
        self.forge.said()
        pid, start = self.forge.start(self.arguments, self.folder), time.monotonic()
        while time.monotonic() < start + START_SECONDS and is_alive(pid):
            text = self.forge.log.read_text(errors="replace") if self.forge.log.exists() else ""
            if found := re.search(r"http://[0-9.]+:\d+", text):
                self.start_seconds = time.monotonic() - start
                return pid, found.group()
            time.sleep(0.01)
        raise Lost(f"{self.command}: it does not start again: {self.forge.said()[-1000:]}")

    def ask(self, address: str) -> object:
        """A caption from the server, the page's parts from the app."""
        if self.command == "app":
            with urllib.request.urlopen(address + "/config", timeout=120) as answer:
                return sorted(str(part.get("type")) for part in json.load(answer)["components"])
        image = "data:image/png;base64," + base64.b64encode(picture()).decode()
        body = json.dumps({"image": image, "languages": ["de", "fr"], "max_new_tokens": 12}).encode()
        request = urllib.request.Request(address + "/caption", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return [(result["language"], result["text"]) for result in json.load(answer)["results"]]

    def check(self, address: str) -> None:
        found = self.ask(address)
        self.expected = self.expected or found
        if found != self.expected:
            raise Lost(f"{self.command}: started again it answers {found}, before {self.expected}")
        if list(self.folder.iterdir()) or files_of(self.model) != self.model_files:
            raise Lost(f"{self.command}: it left something behind: {list(self.folder.iterdir())}")
        self.num_compared += 1

    def once(self) -> None:
        if self.draw.random() < 0.4:
            pid = self.forge.start(self.arguments, self.folder)
            wait_alive(pid, self.draw.uniform(0, self.start_seconds))
            moment = "while it starts"
        else:
            pid, address = self.start()
            self.check(address)
            asking = [threading.Thread(target=self._ask_in_vain, args=(address,)) for _ in range(2)]
            for thread in asking:
                thread.start()
            wait_alive(pid, self.draw.uniform(0, 0.3))
            moment = "while it answers"
        os.killpg(pid, signal.SIGKILL)
        if self.forge.end() != KILLED:
            raise Lost(f"{self.command}: it ended by itself: {self.forge.said()[-1000:]}")
        if moment == "while it answers":
            for thread in asking:
                thread.join()
        self.hits[moment] += 1

    def _ask_in_vain(self, address: str) -> None:
        with contextlib.suppress(Exception):  # it is killed meanwhile
            self.ask(address)

    def run(self, number: int, say: Say) -> None:
        while self.hits.total() < number:
            self.once()
            if self.hits.total() % 5 == 0:
                say(f"{self.command}: {self.hits.total()} of {number} kills")
        pid, address = self.start()
        self.check(address)
        os.killpg(pid, signal.SIGKILL)
        self.forge.end()
