"""`python -m tests.benchmarks.launch_faults 50 [seed]`: jobs under `course launch` that meet a random fault.

Each trains with `examples/train.py` on two workers, and something goes wrong: a worker is killed, halted,
raises, or leaves with exit code 0; a port is taken, for a while or for good; the disk with the checkpoints is
full. It has to end within the limit: finished, with the weights of an undisturbed run, or with an error that
names what was wrong. No process, no port, no file may stay behind.
"""

import contextlib
import faulthandler
import io
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from rich.table import Table

from course_utils.cluster import folders, pool, ports
from course_utils.cluster.launcher import Launch, launch

from .measure import console

SCRIPT = Path(__file__).parents[2] / "examples" / "train.py"
STEPS, SAVE_EVERY, WORKERS, RESTARTS = 60, 10, 2, 2
LIMIT = 240  # seconds for a job with all its attempts
TOLERANCE = 1e-6  # largest difference to the weights of the undisturbed run
KINDS = ("kill", "stop", "exception", "exit 0", "port", "disk")
DISKS = ("300k", "1200k", "2000k", "3000k")  # all too small for the checkpoints that are kept
FILE_LIMIT = 400_000  # bytes, where no disk may be made

LIMITED = f"""
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({FILE_LIMIT}, {FILE_LIMIT}))
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


@dataclass(frozen=True)
class Case:
    """One fault: what happens to which worker at which step; `lasts` (of a taken port) until the end."""

    kind: str
    worker: int
    step: int
    delay: float
    lasts: bool
    disk: str
    pool: bool

    def __str__(self) -> str:
        where = f"worker {self.worker}"
        if self.kind == "port":
            return f"port of {where} taken {'for good' if self.lasts else 'for a moment'}"
        if self.kind == "disk":
            return f"disk of {self.disk}"
        return f"{self.kind} {where} at step {self.step}" + (f" + {self.delay:.2f} s" if self.delay else "")

    @property
    def faults(self) -> tuple[str, ...]:
        """What the launcher is told to let happen."""
        if self.kind in ("port", "disk"):
            return ()
        delay = f"+{self.delay:.3f}s" if self.delay else ""
        return (f"{self.kind.split()[0]} worker:{self.worker}@step:{self.step}{delay}",)

    @property
    def error(self) -> str | None:
        """The words of the error with which it has to end; None where it has to finish."""
        if self.kind == "disk":
            return "No space left on device|File too large"
        if self.kind == "port" and self.lasts:
            return rf"Port \d+, where worker {self.worker} is to listen, is taken by"
        return None


@dataclass(frozen=True)
class Result:
    """How a case ended: the launcher's exit code and words, and what is wrong with that, if anything is."""

    case: Case
    code: int
    said: str
    difference: float | None
    seconds: float
    left: list[str]

    @property
    def restarts(self) -> int:
        """How often the job started again."""
        return self.said.count("[launch] Restart ")

    @property
    def wrong(self) -> str:
        """A sentence if it ended otherwise than it has to; else empty."""
        if self.left:
            return f"left behind: {', '.join(self.left)}"
        if self.case.error:
            told = self.code and re.search(self.case.error, self.said)
            return "" if told else f"no clear error, exit code {self.code}"
        if self.code:
            return f"did not finish, exit code {self.code}"
        if self.difference is None:
            return "finished without weights"
        return "" if self.difference <= TOLERANCE else f"weights differ by {self.difference}"


def random_case(rng: random.Random, kind: str | None = None) -> Case:
    """A case drawn at random, of one kind or of any."""
    kind = kind or rng.choice(KINDS)
    delay = rng.choice([0, rng.uniform(0, 0.1)]) if kind != "exception" else 0
    step, worker = rng.randint(1, STEPS), rng.randrange(WORKERS)
    lasts, disk, pooled = rng.random() < 0.5, rng.choice(DISKS), rng.random() < 0.75
    return Case(kind, worker, step, delay, lasts, disk, pooled)


def undisturbed(folder: Path) -> list[np.ndarray]:
    """The weights of a job in which nothing goes wrong."""
    code, said = _launch(SCRIPT, folder / "checkpoints", folder / "out.npz")
    assert code == 0, said
    return _weights(folder / "out.npz")


def run(case: Case, reference: list[np.ndarray], folder: Path) -> Result:
    """How a job ended that met the fault of the case. What it left is gone."""
    before, begin = _Traces(), time.monotonic()
    out, script = folder / "out.npz", SCRIPT
    with contextlib.ExitStack() as stack:
        port, checkpoints = None, folder / "checkpoints"
        if case.kind == "port":
            port = stack.enter_context(_taken_port(case))
        if case.kind == "disk":
            checkpoints = stack.enter_context(_small_disk(folder, case.disk)) / "checkpoints"
            script = SCRIPT if os.path.ismount(checkpoints.parent) else folder / "limited.py"
            script.is_file() or script.write_text(LIMITED)
        code, said = _launch(script, checkpoints, out, faults=case.faults, port=port, pool=case.pool)
        left = before.left(folder / "checkpoints" if code == 0 else None)
    seconds = time.monotonic() - begin
    difference = _difference(_weights(out), reference) if out.exists() else None
    return Result(case, code, said, difference, seconds, left)


def main(count: int, seed: int) -> int:
    """0 if every case ended as it has to, else 1; prints a line a case, and a table."""
    rng = random.Random(seed)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        folders.RUNS = Path(folder, "runs")
        (start := Path(folder, "undisturbed")).mkdir()
        reference = undisturbed(start)
        for number in range(1, count + 1):
            (place := Path(folder, f"case-{number}")).mkdir()
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            results.append(run(random_case(rng), reference, place))
            faulthandler.cancel_dump_traceback_later()
            _print(number, results[-1])
    _print_table(results, seed)
    return any(result.wrong for result in results)


def _launch(script: Path, checkpoints: Path, out: Path, **options) -> tuple[int, str]:
    """The exit code of the launcher, and all that it wrote."""
    arguments = ["--steps", STEPS, "--save-every", SAVE_EVERY, "--checkpoints", checkpoints, "--out", out]
    job = Launch(
        script,
        tuple(map(str, arguments)),
        workers=WORKERS,
        max_restarts=RESTARTS,
        backoff=0.5,
        timeout=LIMIT / 2,
        **options,
    )
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = launch(job)
    return code, said.getvalue()


@contextlib.contextmanager
def _taken_port(case: Case) -> Iterator[int]:
    """The first port of a job; that of the case's worker is taken, for a moment or until the end."""
    first = _free_ports()
    thief = socket.socket()
    thief.bind(("127.0.0.1", first + case.worker))
    thief.listen()
    timer = threading.Timer(0.3 + case.delay, thief.close)
    if not case.lasts:
        timer.start()
    try:
        yield first
    finally:
        timer.cancel()
        thief.close()


def _free_ports() -> int:
    """A port after which as many as there are workers are free."""
    while True:
        with contextlib.closing(socket.socket()) as trial:
            trial.bind(("127.0.0.1", 0))
            first = trial.getsockname()[1]
        wanted = range(first, first + WORKERS)
        if wanted[-1] < 65536 and not any(ports.holder(port) for port in wanted):
            return first


@contextlib.contextmanager
def _small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk in memory inside the folder; an ordinary folder where none may be mounted."""
    (place := folder / "disk").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield place
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=True)


class _Traces:
    """What there is before a job, to tell what it has left afterwards."""

    def __init__(self):
        self.files, self.folders = len(_open_files()), _run_folders()
        self.processes = _processes()  # such as multiprocessing's tracker, which stays once it is started

    def left(self, checkpoints: Path | None) -> list[str]:
        """What is there now and was not before: processes, open files and sockets, folders."""
        found = [f"process {process.pid}" for process in _processes() if process not in self.processes]
        found += ["an open file or socket"] * (len(_open_files()) > self.files + 1)  # one: the warm process
        found += [str(folder) for folder in _run_folders() - self.folders]
        if checkpoints:
            found += [str(path) for path in checkpoints.parent.rglob("*temp*")]
        return found


def _processes() -> list[psutil.Process]:
    """Those that this one has started, without the warm process."""
    warm = {each.process.pid for each in pool._pools.values()}
    return [child for child in psutil.Process().children(recursive=True) if child.pid not in warm]


def _open_files() -> list[str]:
    return os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []


def _run_folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob(f"course-run-{os.getpid()}-*"))


def _weights(file: Path) -> list[np.ndarray]:
    with np.load(file) as stored:
        return [stored[name] for name in stored.files]


def _difference(these: list[np.ndarray], those: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(these, those, strict=True))


def _print(number: int, result: Result) -> None:
    case = result.case
    ended = "clear error" if case.error else f"finished, difference {result.difference}"
    way = "pool" if case.pool else "new Python"
    words = f"{result.wrong or ended}, {result.restarts} restarts, {result.seconds:.0f} s"
    console.print(f"{number:3}  {case!s:44} {way:10} {words}", soft_wrap=True)
    if result.wrong:
        console.print(result.said, markup=False)


def _print_table(results: list[Result], seed: int) -> None:
    table = Table(title=f"{len(results)} jobs with a random fault, seed {seed}", title_justify="left")
    for heading in ("fault", "jobs", "finished, equal", "clear error", "wrong", "restarts", "longest"):
        table.add_column(heading, justify="left" if heading == "fault" else "right")
    for kind in [kind for kind in KINDS if any(result.case.kind == kind for result in results)]:
        mine = [result for result in results if result.case.kind == kind]
        finished = sum(not r.wrong and r.code == 0 for r in mine)
        errors = sum(not r.wrong and r.code != 0 for r in mine)
        wrong, longest = len(mine) - finished - errors, max(r.seconds for r in mine)
        counts = len(mine), finished, errors, wrong, sum(r.restarts for r in mine)
        table.add_row(kind, *map(str, counts), f"{longest:.0f} s")
    console.print(table)
    right = sum(not result.wrong for result in results)
    console.print(f"{right} of {len(results)} ended as they have to.")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]] or [50]
    sys.exit(main(given[0], given[1] if len(given) > 1 else random.randrange(10_000)))
