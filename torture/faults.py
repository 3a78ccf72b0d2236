"""Faults of the machine: a full disk, a read-only one, no memory, a jumping clock, two at once, a damaged checkpoint.

Each command that meets one ends with one line and no traceback, nothing that was there is lost, and the same command
ends as an undisturbed one once the fault is gone.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from torture.damage import flip_bit
from torture.killing import Forge, is_alive, wait_alive
from torture.kills import Lost, Subject

FAKETIME = "*/faketime/libfaketime.so.1"  # below /usr/lib; Debian's package `faketime`
MakeForge = Callable[[dict[str, str]], Forge]


NUM_DAMAGED = 2


class Skipped(Exception):
    """Why it cannot be tried here."""


class Fault:
    """A subject with its undisturbed outcome, met by one fault after the other."""

    def __init__(self, subject: Subject, forge: Forge) -> None:
        self.subject, self.forge = subject, forge
        subject.reset()
        self._ends_well("undisturbed")
        self.whole = subject.outcome()

    def _ends_well(self, when: str) -> str:
        self.forge.said()
        code = self.forge.run(self.subject.arguments, self.subject.folder)
        said = self.forge.said()
        if code != 0:
            raise Lost(f"{self.subject.name}, {when}: ended with {code}: {said[-1500:]}")
        return said

    def refused(self, when: str, *, memory: int = 0) -> str:
        """Ends with a code that is not 0 and without a traceback."""
        self.forge.said()
        code = self.forge.run(self.subject.arguments, self.subject.folder, memory=memory)
        said = self.forge.said()
        if code == 0:
            raise Lost(f"{self.subject.name}, {when}: it ended well")
        if not memory and (code != 2 or "Traceback" in said):
            raise Lost(f"{self.subject.name}, {when}: ended with {code}: {said[-1500:]}")
        return said

    def same_as_undisturbed(self, when: str) -> str:
        said = self._ends_well(when)
        found = self.subject.outcome()
        others = sorted(name for name in {*found, *self.whole} if found.get(name) != self.whole.get(name))
        if others:
            raise Lost(f"{self.subject.name}, {when}: not as undisturbed: {', '.join(others[:5])}")
        return said

    def half_done(self, draw: random.Random, seconds: float) -> None:
        """A run that was killed on its way."""
        pid = self.forge.start(self.subject.arguments, self.subject.folder)
        wait_alive(pid, draw.uniform(0.3, 1) * seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        self.forge.end()


@contextlib.contextmanager
def small_disk(place: Path, options: str) -> Iterator[None]:
    """A file system in memory, where one may mount it."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skipped(f"no right to mount a small disk ({done.stderr.strip()[:100]})")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def full_disk(fault: Fault, place: Path, sizes_kib: list[int]) -> int:
    """The output's disk is full at one point after the other; then it is larger, and the same command ends well."""
    fault.subject.reset()
    shutil.rmtree(place, ignore_errors=True)
    with small_disk(place, f"size={sizes_kib[0]}k"):
        for size in sizes_kib:
            remount(place, f"size={size}k")
            said = fault.refused(f"a disk of {size} KiB")
            if "full" not in said and "space" not in said:
                raise Lost(f"{fault.subject.name}, a disk of {size} KiB: it does not say so: {said[-600:]}")
        remount(place, "size=1g")
        fault.same_as_undisturbed("after a full disk")
    return len(sizes_kib)


def read_only(fault: Fault, place: Path) -> int:
    fault.subject.reset()
    shutil.rmtree(place, ignore_errors=True)
    with small_disk(place, "size=1g"):
        remount(place, "ro")
        said = fault.refused("a read-only disk")
        if "read-only" not in said:
            raise Lost(f"{fault.subject.name}, a read-only disk: it does not say so: {said[-600:]}")
        remount(place, "rw")
        fault.same_as_undisturbed("after a read-only disk")
    return 1


def out_of_memory(fault: Fault, sizes_mib: list[int]) -> int:
    """The command and its workers may have little memory: it ends, and without the bound it ends well."""
    fault.subject.reset()
    for size in sizes_mib:
        fault.refused(f"memory of {size} MiB", memory=size * 2**20)
    fault.same_as_undisturbed("after too little memory")
    return len(sizes_mib)


def fake_clock(jump: str) -> dict[str, str]:
    """The environment of a forge: libfaketime where it is installed, else a jump of Python's clock on the way."""
    library = next(Path("/usr/lib").glob(FAKETIME), None)
    if library is None:
        return {"TORTURE_CLOCK": str(float(jump.rstrip("d")) * 86_400)}
    return {"LD_PRELOAD": str(library), "FAKETIME": jump, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def jumping_clock(fault: Fault, make_forge: MakeForge, draw: random.Random, seconds: float) -> int:
    """Killed half way, and gone on with a year later and a year earlier: files are known by their content."""
    for jump in ("+400d", "-400d"):
        fault.subject.reset()
        fault.half_done(draw, seconds)
        moved = 400 * 86_400 * (-1 if jump[0] == "+" else 1)
        for path in fault.subject.folder.rglob("*"):  # times of files that lie in the future, or long ago
            if path.is_file() and draw.random() < 0.5:
                with contextlib.suppress(OSError):
                    os.utime(path, (path.stat().st_atime + moved, path.stat().st_mtime + moved))
        before, fault.forge = fault.forge, make_forge(fake_clock(jump))
        try:
            fault.same_as_undisturbed(f"the clock at {jump}")
        finally:
            fault.forge.close()
            fault.forge = before
    return 2


def two_at_once(fault: Fault, second: Forge, draw: random.Random, seconds: float) -> int:
    """The same command twice on one folder: the second refuses in one line, or waits and ends well."""
    fault.subject.reset()
    pid = fault.forge.start(fault.subject.arguments, fault.subject.folder)
    wait_alive(pid, draw.uniform(0.2, 0.5) * seconds)
    second.said()
    code = second.run(fault.subject.arguments, fault.subject.folder)
    said = second.said()
    if code not in (0, 2) or "Traceback" in said:
        raise Lost(f"{fault.subject.name}, a second one: ended with {code}: {said[-1500:]}")
    if os.waitstatus_to_exitcode(fault.forge.end()) != 0:
        raise Lost(f"{fault.subject.name}, with a second one: the first failed: {fault.forge.said()[-1500:]}")
    fault.same_as_undisturbed("after two at once")
    return 1


def damaged_checkpoint(fault: Fault, run: Path, draw: random.Random) -> int:
    """Killed with several checkpoints, the newest of them damaged: it goes on from the one before, and says so."""
    for number in range(NUM_DAMAGED):
        fault.subject.reset()
        pid = fault.forge.start(fault.subject.arguments, fault.subject.folder)
        while is_alive(pid) and len(found := sorted(run.glob("budget-*/checkpoints/step-*"))) < 2:
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        fault.forge.end()
        path = draw.choice(sorted(found[-1].glob("*.safetensors")))
        content = path.read_bytes()
        path.write_bytes(flip_bit(content, draw) if number % 2 else content[: len(content) // 2])
        said = fault.same_as_undisturbed("a damaged checkpoint")
        if "set aside" not in said or "going on from" not in said:
            raise Lost(f"{fault.subject.name}: a damaged checkpoint was not told: {said[-800:]}")
    return NUM_DAMAGED
