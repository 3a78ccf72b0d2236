"""`make torture`: kills, faults of the machine, flipped bits and fuzzing of all that reads or writes.

python -m torture [--long] [--only kills faults flips fuzz] [--jobs N] [--seed N] [--kills N] [--cases N]. Says what it
does as it goes; ends with RESULTS.md and results.json, and with exit code 1 where anything was lost.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
warnings.simplefilter("ignore")

from torture import faults, fuzz, subjects  # noqa: E402
from torture.fault_servers import ServerFaults  # noqa: E402
from torture.flips import FLIPPED, flip_target  # noqa: E402
from torture.flips_corpus import PARTS, flip_bits, make_attacked  # noqa: E402
from torture.kill_servers import MODULES as SERVER_MODULES  # noqa: E402
from torture.kill_servers import ServerKills  # noqa: E402
from torture.killing import Forge  # noqa: E402
from torture.kills import Kills, Lost  # noqa: E402
from torture.summary import Summary  # noqa: E402

# What runs in a process of its own, so many at once: the longest first.
PARTS_OF = {
    "kills": ("training", "pipeline", "predict", "servers", "study"),
    "faults": ("study", "training", "pipeline", "predict", "servers"),
    "flips": ("files",),
    "fuzz": ("guided", "readers"),
}
SHARES = {"training": 0.3, "pipeline": 0.22, "predict": 0.2, "study": 0.06, "servers": 0.22}  # of the kills
FULL = 210, 100_000  # kills and fuzz cases of a long run
DISKS_KIB = {"training": [8, 60, 200], "pipeline": [8, 40, 120], "predict": [4, 16, 24], "study": [40, 400]}
OUTPUTS = {"training": "run", "pipeline": "build/work", "predict": "out", "study": "study/runs"}
MEMORY_MIB = [700]


class Chamber:
    """One run of everything that was asked for."""

    def __init__(self, options: argparse.Namespace, root: Path) -> None:
        self.options, self.root = options, root
        self.summary = Summary({"seed": options.seed, "kills asked for": options.kills, "cases": options.cases})
        self.begin = time.monotonic()

    def say(self, line: str) -> None:
        print(f"[{time.monotonic() - self.begin:6.0f} s] {line}", flush=True)

    @contextmanager
    def may_be_lost(self, what: str) -> Iterator[None]:
        """The rest is tried all the same."""
        try:
            yield
        except faults.Skipped as reason:
            self.say(f"{what}: skipped, {reason}")
            self.summary.faults.append({"fault": what, "command": "", "number": 0, "ended": f"skipped: {reason}"})
        except Exception as error:
            told = str(error) if isinstance(error, Lost) else "".join(traceback.format_exception(error))[-1500:]
            self.summary.lost.append(f"{what}: {' '.join(told.split())[:900]}")
            self.say(f"LOST {what}: {told}")

    def forge(self, name: str, *modules: str, **environment: str) -> Forge:
        (self.root / name).mkdir(parents=True, exist_ok=True)
        log = self.root / name / "log.txt"
        return Forge(*(modules or subjects.MODULES), log=log, environment=os.environ | environment)

    def kills(self, name: str) -> None:
        if name == "servers":
            self.kill_servers()
            return
        forge, kills = self.forge(name), None
        with self.may_be_lost(f"kills of {name}"):
            draw = random.Random(f"{self.options.seed}/{name}")
            kills = Kills(subjects.SUBJECTS[name](self.root / name), forge, draw, self.say)
            kills.run(max(1, round(SHARES[name] * self.options.kills)))
        if kills is not None:
            self.count_kills(kills.subject.name, kills.hits, kills.num_compared, len(kills.whole))
        forge.close()

    def kill_servers(self) -> None:
        forge, number = (
            self.forge("servers", *SERVER_MODULES),
            max(1, round(SHARES["servers"] * self.options.kills / 2)),
        )
        for command in ("serve", "app"):
            with self.may_be_lost(f"kills of {command}"):
                draw = random.Random(f"{self.options.seed}/{command}")
                server = ServerKills(command, self.root / command, forge, draw)
                try:
                    server.run(number, self.say)
                finally:
                    self.count_kills(f"babelcap {command}", server.hits, server.num_compared, len(server.model_files))
        forge.close()

    def count_kills(self, name: str, hits: dict[str, int], num_compared: int, num_files: int) -> None:
        how = ", ".join(f"{kind} {number}" for kind, number in sorted(hits.items()))
        row = {"command": name, "kills": sum(hits.values()), "hit": how}
        self.summary.kills.append(row | {"outcomes compared": num_compared, "files of each": num_files})
        self.say(f"{name}: {row['kills']} kills ({how}), {num_compared} outcomes compared")

    def faults(self, name: str) -> None:
        if name == "servers":
            self.server_faults()
            return
        (self.root / "faults" / name).mkdir(parents=True)
        forges = [self.forge(f"faults/{name}"), self.forge(f"faults/{name}-second")]
        with self.may_be_lost(f"faults of {name}"):
            self.faults_of(name, *forges)
        for forge in forges:
            forge.close()

    def faults_of(self, name: str, forge: Forge, second: Forge) -> None:
        folder, draw = self.root / "faults" / name, random.Random(f"{self.options.seed}/faults/{name}")
        start = time.monotonic()
        # What a study is made from is made once: its steps are met by the faults.
        subject = subjects.study(folder, whole_every=100) if name == "study" else subjects.SUBJECTS[name](folder)
        fault = faults.Fault(subject, forge)
        seconds, place = time.monotonic() - start, folder / OUTPUTS[name]

        def fake(environment: dict[str, str]) -> Forge:
            return self.forge(f"faults/{name}-clock", *subjects.MODULES, **environment)

        tried: dict[str, Callable[[], int]] = {
            "full disk": lambda: faults.full_disk(fault, place, DISKS_KIB[name]),
            "read-only disk": lambda: faults.read_only(fault, place),
            "out of memory": lambda: faults.out_of_memory(fault, MEMORY_MIB),
            "clock jumps by 400 days": lambda: faults.jumping_clock(fault, fake, draw, seconds),
            "two at once": lambda: faults.two_at_once(fault, second, draw, seconds),
        }
        if name == "training":
            tried["damaged checkpoint"] = lambda: faults.damaged_checkpoint(fault, place, draw)
        self.meet(tried, fault.subject.name, "in one line; then as undisturbed")

    def server_faults(self) -> None:
        for command in ("serve", "app"):
            (self.root / "faults" / f"{command}-second").mkdir(parents=True)

            def make_forge(environment: dict[str, str], command: str = command) -> Forge:
                return self.forge(f"faults/{command}-log", *SERVER_MODULES, **environment)

            second = self.forge(f"faults/{command}-second", *SERVER_MODULES)
            with self.may_be_lost(f"faults of {command}"):
                met = ServerFaults(command, self.root / "faults" / command, make_forge)
                self.meet(met.every(second), f"babelcap {command}", "answers as undisturbed; a second one in one line")
                met.forge.close()
            second.close()

    def meet(self, tried: dict[str, Callable[[], int]], command: str, ended: str) -> None:
        for what, run in tried.items():
            with self.may_be_lost(f"{what}, {command}"):
                self.summary.faults.append({"fault": what, "command": command, "number": run(), "ended": ended})
                self.say(f"{what}, {command}: as it should be")

    def flips(self, _: str) -> None:
        world = make_attacked(self.root / "flipped-world")
        number = self.options.flips
        runs: dict[str, Callable[[], dict[str, int]]] = {
            f"corpus: {part}": lambda part=part: flip_bits(world, part, number, self.options.seed)  # type: ignore[misc]
            for part in PARTS
        }
        for place, (what, make) in enumerate(FLIPPED.items()):
            folder = self.root / f"flipped-{place}"
            folder.mkdir()
            runs[what] = lambda make=make, folder=folder: flip_target(make, folder, number, self.options.seed)  # type: ignore[misc]
        for what, run in runs.items():
            with self.may_be_lost(f"flipped bits of {what}"), fuzz.quiet():
                ended = run()
                how = ", ".join(f"{kind}: {count:,}" for kind, count in ended.items())
                self.summary.flips.append({"what": what, "flips": sum(ended.values()), "ended": how})
            self.say(f"flipped bits of {what}")

    def fuzz(self, name: str) -> None:
        """As many cases as were asked for without those that atheris leads, which come on top."""
        cases, seed = self.options.cases, self.options.seed
        if name == "guided":
            self.fuzz_guided()
            return
        each = max(10, round(0.9 * cases / len(fuzz.EVERY)))
        for reader in fuzz.EVERY:
            number = max(5, each // fuzz.SLOWER) if reader in fuzz.SLOW else each
            self.add(fuzz.fuzz_damaged(reader, number, seed))
            self.add(fuzz.fuzz_structured(reader, max(5, number // 6), seed))
        for row in fuzz.fuzz_configs(max(5, round(0.002 * cases)), seed):
            self.add(row)
        turn = 1
        while self.summary.num_cases < cases:  # hypothesis may try fewer than it was asked for
            lost = {row.reader for row in self.summary.fuzz if row.lost}
            readers = [reader for reader in fuzz.EVERY if reader not in fuzz.SLOW and reader not in lost]
            for reader in readers:
                if self.summary.num_cases < cases:
                    self.add(fuzz.fuzz_damaged(reader, max(5, each // 8), seed + 1000 * turn))
            turn += 1
            if not readers:
                break

    def fuzz_guided(self) -> None:
        if not fuzz.HAS_ATHERIS:
            self.say("atheris is not installed: no fuzzing led by coverage (pip install 'babelcap[torture]')")
            return
        number = max(200, round(0.25 * self.options.cases / len(fuzz.GUIDED_GROUPS)))
        for row in fuzz.fuzz_guided(fuzz.GUIDED_GROUPS, number, self.options.seconds, self.options.seed):
            self.add(row)

    def add(self, row: "fuzz.Tried | None") -> None:
        if row is None:
            return
        self.summary.fuzz.append(row)
        counts = f"{row.number:,}, {row.num_refused:,} refused ({self.summary.num_cases:,} in all)"
        self.say(f"{row.reader}, {row.way}: {counts}")
        if row.lost:
            self.summary.lost.append(f"{row.reader}, {row.way}: {' '.join(row.lost.split())[:900]}")
            self.say(f"LOST {row.reader}: {row.lost}")


def run_parts(parts: list[str], options: argparse.Namespace, chamber: Chamber) -> None:
    """Each part in a process of its own, whose lines are passed on; what it found is added as it ends."""
    again = [f"--{name}={getattr(options, name)}" for name in ("seed", "kills", "cases", "flips", "seconds")]

    def run(part: str) -> None:
        output = chamber.root / part.replace(":", "-")
        command = [sys.executable, "-W", "ignore", "-m", "torture", "--part", part, f"--output={output}", *again]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
        assert process.stdout is not None
        for line in process.stdout:
            chamber.say(f"{part}: {line.rstrip()}")
        code = process.wait()
        if (output / "results.json").is_file():
            chamber.summary.add(output)
        else:
            chamber.summary.lost.append(f"{part}: it ended with {code} and without a result")
        chamber.summary.write(options.output)  # so far: a long run can be looked at

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, parts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help=f"{FULL[0]} kills and {FULL[1]:,} fuzz cases")
    parser.add_argument("--only", nargs="+", choices=PARTS_OF, default=list(PARTS_OF))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="parts at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--cases", type=int, help="of fuzzing")
    parser.add_argument("--flips", type=int, help="of each kind of file")
    parser.add_argument("--seconds", type=int, help="at most, of atheris for each group of readers")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder of RESULTS.md, results.json")
    parser.add_argument("--part", help="one part alone, in this process: kills:training")
    options = parser.parse_args()
    options.kills = options.kills or (FULL[0] if options.long else 24)
    options.cases = options.cases or (FULL[1] if options.long else 5_000)
    options.flips = options.flips or (120 if options.long else 20)
    options.seconds = options.seconds or (25 if options.long else 10)
    options.output.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="babelcap-torture-"))
    chamber = Chamber(options, root)
    if options.part:
        room, name = options.part.split(":")
        with chamber.may_be_lost(options.part):
            getattr(chamber, room)(name)
    else:
        run_parts([f"{room}:{name}" for room in options.only for name in PARTS_OF[room]], options, chamber)
    chamber.summary.write(options.output)
    if not options.part:
        chamber.say(f"{options.output / 'RESULTS.md'}: {chamber.summary.page().split('**')[1]}")
        print(*chamber.summary.lost, sep="\n")
    if chamber.summary.lost:
        chamber.say(f"what is left of it lies in {root}")
        return 1
    shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
