"""Commands in processes of their own that are killed without a warning (SIGKILL), at moments drawn by chance.

One process has imported everything and forks for each command, and the command's workers fork too (they are spawned
otherwise): so a command costs a moment to start, and each kill hits a process that does nothing else.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from torture import ROOT

KILLED = 9  # of a status that `waitpid` gives
HANGS_SECONDS = 600  # of a command that takes seconds, on a machine that may be busy
TRACEBACK = 70  # exit code of what ended with an exception that nobody caught
PARENT = """
import importlib, json, multiprocessing, os, resource, sys, time, traceback
from types import SimpleNamespace
import pyarrow.dataset  # what reading Parquet would import, pandas with it
import babelcap.jobs.pool as pool
from babelcap import cli
for name in sys.argv[1:]:
    importlib.import_module(name)
pool.STOP_SECONDS = 0.05  # forked, they hold each other's connections open and do not see them close
pool.multiprocessing = SimpleNamespace(get_context=lambda _: multiprocessing.get_context("fork"))
def jump(seconds):
    began, clock = time.monotonic(), time.time
    time.time = lambda: clock() + (seconds if time.monotonic() > began + 0.5 else 0)
    time.time_ns = lambda: int(time.time() * 1e9)
for line in sys.stdin:
    given = json.loads(line)
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.setsid()
            output = os.open(given["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            for descriptor in (1, 2):
                os.dup2(output, descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.nice(5)  # whoever is to kill it must not be slower
            os.chdir(given["folder"])
            if given["memory"]:
                resource.setrlimit(resource.RLIMIT_AS, (given["memory"],) * 2)
            if "TORTURE_CLOCK" in os.environ:  # half a second after the start
                jump(float(os.environ["TORTURE_CLOCK"]))
            sys.argv = ["babelcap", *given["arguments"]]
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


class Forge:
    """Runs babelcap's commands, one after the other."""

    def __init__(self, *modules: str, log: Path, environment: Mapping[str, str] = os.environ) -> None:
        """`modules` are imported once for all runs."""
        self.log = log
        paths = [str(ROOT), str(ROOT / "tests"), *filter(None, sys.path)]
        given = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-W", "ignore", "-c", PARENT, *modules]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**environment, **given}
        )

    def start(self, arguments: Sequence[str], folder: Path | None = None, *, memory: int = 0) -> int:
        """The process's number, which is that of its group too."""
        assert self.process.stdin is not None
        given = {"arguments": list(arguments), "folder": str(folder or self.log.parent), "log": str(self.log)}
        self.process.stdin.write(json.dumps(given | {"memory": memory}) + "\n")
        self.process.stdin.flush()
        return int(self._line())

    def end(self) -> int:
        """The exit status, as `waitpid` gives it."""
        return int(self._line())

    def run(self, arguments: Sequence[str], folder: Path | None = None, *, memory: int = 0) -> int:
        """The exit code of a command that is left alone; -9 where something else has killed it, or where it hangs."""
        pid, until = self.start(arguments, folder, memory=memory), time.monotonic() + HANGS_SECONDS
        while is_alive(pid) and time.monotonic() < until:
            time.sleep(0.01)
        if is_alive(pid):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self.end()
            raise RuntimeError(f"{' '.join(arguments)}: it had not ended after {HANGS_SECONDS} s: {self.said()[-800:]}")
        return os.waitstatus_to_exitcode(self.end())

    def said(self) -> str:
        """What the commands since the last call have written."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        self.log.unlink(missing_ok=True)
        return text

    def close(self) -> None:
        self.process.communicate()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process that starts commands has ended")
        return line


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/task").exists()


def wait_alive(pid: int, seconds: float) -> bool:
    """Whether it is still there after so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not is_alive(pid):
            return False
        time.sleep(min(0.002, max(0.0, until - time.monotonic())))
    return is_alive(pid)


def workers_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
