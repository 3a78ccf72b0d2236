"""Faults of the machine under `babelcap serve` and `babelcap app`: neither needs a disk, and neither falls.

A full disk of temporary files may refuse an upload, in an answer; with room again the same upload is taken. A second
server on one port refuses in one line. A clock that jumps changes no answer.
"""

import contextlib
import io
import os
import random
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image

from torture.faults import MakeForge, fake_clock, remount, small_disk
from torture.kill_servers import ServerKills
from torture.killing import Forge, is_alive
from torture.kills import Lost

UPLOADS = {"serve": ("/caption/upload", "image"), "app": ("/gradio_api/upload", "files")}
MEMORY_MIB = 700


def large_picture() -> bytes:
    """Of more than a mebibyte: what is smaller stays in memory."""
    stream = io.BytesIO()
    Image.frombytes("RGB", (800, 800), random.Random(0).randbytes(800 * 800 * 3)).save(stream, "PNG")
    return stream.getvalue()


class ServerFaults:
    """A server met by one fault after the other; what it answers undisturbed comes first."""

    def __init__(self, command: str, folder: Path, make_forge: MakeForge) -> None:
        self.command, self.make_forge = command, make_forge
        self.disk = folder / "disk"
        self.disk.mkdir(parents=True)
        self.forge = make_forge({"TMPDIR": str(self.disk), "GRADIO_TEMP_DIR": str(self.disk)})
        self.server = ServerKills(command, folder, self.forge, random.Random(0))
        with self.running() as address:
            self.server.check(address)

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        pid, address = self.server.start()
        try:
            yield address
            if not is_alive(pid):
                raise Lost(f"{self.command}: it has ended: {self.server.forge.said()[-1000:]}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self.server.forge.end()

    def upload(self, address: str) -> int:
        """The status of the answer to a large form."""
        path, field = UPLOADS[self.command]
        head = f'--line\r\nContent-Disposition: form-data; name="{field}"; filename="a.png"\r\n\r\n'.encode()
        other = b'\r\n--line\r\nContent-Disposition: form-data; name="language"\r\n\r\nde\r\n--line--\r\n'
        kind = {"content-type": "multipart/form-data; boundary=line"}
        request = urllib.request.Request(address + path, head + large_picture() + other, kind)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def full_disk(self) -> int:
        with small_disk(self.disk, "size=16m"), self.running() as address:
            filler = self.disk / "filler"
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(2**16)):
                    pass
            status = self.upload(address)
            self.server.check(address)
            filler.unlink()
            if (again := self.upload(address)) != 200:
                raise Lost(f"{self.command}: an upload is answered with {again} (a full disk: {status})")
            self.server.check(address)
        return 1

    def read_only(self) -> int:
        """The folder that it is started in."""
        with small_disk(self.server.folder, "size=1m"):
            remount(self.server.folder, "ro")
            with self.running() as address:
                self.server.check(address)
        return 1

    def out_of_memory(self) -> int:
        code = self.forge.run(self.server.arguments, self.server.folder, memory=MEMORY_MIB * 2**20)
        if code == 0:
            raise Lost(f"{self.command}, memory of {MEMORY_MIB} MiB: it ended well")
        with self.running() as address:
            self.server.check(address)
        return 1

    def two_at_once(self, second: Forge) -> int:
        with self.running() as address:
            second.said()
            code = second.run([*self.server.arguments[:-1], address.rpartition(":")[2]], self.server.folder)
            if code != 2 or "Traceback" in (said := second.said()) or "in use" not in said:
                raise Lost(f"{self.command}, a second one on its port: ended with {code}: {said[-1000:]}")
            self.server.check(address)
        return 1

    def jumping_clock(self) -> int:
        for jump in ("+400d", "-400d"):
            self.server.forge = self.make_forge(fake_clock(jump))
            try:
                with self.running() as address:
                    self.server.check(address)
            finally:
                self.server.forge.close()
                self.server.forge = self.forge
        return 2

    def every(self, second: Forge) -> dict[str, Callable[[], int]]:
        return {
            "full disk": self.full_disk,
            "read-only disk": self.read_only,
            "out of memory": self.out_of_memory,
            "clock jumps by 400 days": self.jumping_clock,
            "two at once": lambda: self.two_at_once(second),
        }
