"""The process beside each answer: starts it, watches what it uses, ends it with all its kin, and reports.

A fork of the warm process, outside of the namespaces that the answer is in. What it reads from the answer is
bytes, handed on as they are. When it dies, the kernel kills what it keeps.
"""

import contextlib
import itertools
import json
import math
import os
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from multiprocessing import connection
from pathlib import Path

import psutil

from course_utils.cluster.zygote import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    children_of,
    die_with_parent,
    function_named,
    prctl,
    start_as_leader,
)
from course_utils.grading import sandbox
from course_utils.grading.model import Ended, Raw
from course_utils.grading.sandbox import NAMESPACES, NO_PROC, RULES, Ends, Limits

TICK = 0.02  # seconds between two looks
SETUP_DEADLINE = 60  # seconds until an answer is sealed in, on a very busy machine
PRINTED = 20_000  # bytes of what is printed that are kept
CHUNK = 1 << 20
FILES = 20_000  # that an answer may have, as in the sandbox's own file system
DISK_EVERY = 0.25  # seconds between two looks at least
IMPORTED = 650 << 20  # bytes that TensorFlow takes in a process which has only imported it


def main_forked(channel_fd: int, log_fd: int, zygote: int) -> int:
    """Be the keeper that the warm process has just forked; returns the exit code."""
    if not start_as_leader(log_fd, zygote):
        return 1
    serve(channel_fd)
    return 0


def serve(channel_fd: int) -> None:
    """Take one order over the channel, keep its answer, report."""
    with connection.Connection(channel_fd) as channel:
        order = json.loads(channel.recv_bytes())
        raw = keep(order, channel.fileno())
        with contextlib.suppress(OSError):
            channel.send_bytes(json.dumps(asdict(raw)).encode())


def keep(order: dict, caller: int) -> Raw:
    """What became of the job in `order`; ends it when the connection to the `caller` breaks."""
    limits = Limits(**order["limits"])
    kind = order["kind"]
    try:
        sys.modules["__main__"] = type(sys)("__main__")
        function = function_named(order["entry"])(order["job"])
        _one_thread()
        cell = (_Namespaces if kind in (NAMESPACES, NO_PROC) else _Group)(
            function, limits, kind, order["grader"]
        )
    except BaseException:
        return Raw(Ended.BROKEN, printed=traceback.format_exc()[-PRINTED:], means=kind)
    try:
        return _Watch(cell, limits, caller).raw()
    finally:
        cell.clear_away()


def trial(kind: str) -> int:
    """The exit code that says whether a job that does nothing comes to its end; prints what was met."""
    caller, kept = os.pipe()
    order = {
        "entry": f"{__name__}:nothing",
        "job": {},
        "limits": asdict(Limits()),
        "kind": kind,
        "grader": os.getpid(),
    }
    raw = keep(order, caller)
    os.close(kept)
    print(raw.means if raw.ended is Ended.FINISHED else raw.printed)
    return 0 if raw.ended is Ended.FINISHED else 1


def nothing(job: dict):
    """The job of a trial."""
    return str


def _one_thread() -> None:
    """Only a process of one thread can be forked and sealed in; raises RuntimeError else."""
    tasks = Path("/proc/self/task")
    if tasks.is_dir() and len(list(tasks.iterdir())) > 1:
        raise RuntimeError("What prepares an answer has started threads: it must not use a device.")


class _Pipes:
    """Four pipes: the keeper's ends, and the far ones until they are let go."""

    def __init__(self):
        self.orders_read, self.orders = os.pipe()
        self.status, self.status_write = os.pipe()
        self.printed, self.printed_write = os.pipe()
        self.result, self.result_write = os.pipe()
        for fd in (self.status, self.printed, self.result):
            os.set_blocking(fd, False)
        self.far = Ends(self.orders_read, self.status_write, self.printed_write, self.result_write)

    def let_go(self) -> None:
        for fd in (self.orders_read, self.status_write, self.printed_write, self.result_write):
            os.close(fd)


class _Namespaces:
    """An answer in namespaces of its own: its first process dies, and all are dead."""

    words = "namespaces of its own for users, processes, files and network"
    imported = 0  # bytes of each process that are no memory of its own, beside what it shares with us

    def __init__(self, function, limits: Limits, kind: str, grader: int):
        self.pipes = _Pipes()
        self.has_proc, self.proc = kind == NAMESPACES, None
        if not self.has_proc:
            self.words += ", without /proc"
        user = sandbox.new_namespaces()
        die_with_parent()
        self.pid = sandbox.start_init(function, self.pipes.far, limits, user, self.has_proc)
        self.pipes.let_go()

    def built(self) -> None:
        """Its root stands: look through its own table of processes from now on."""
        if self.has_proc:
            table = Path("/proc", str(self.pid), "root", "proc")
            self.proc = os.open(table, os.O_RDONLY | os.O_DIRECTORY)

    def processes(self) -> list["_Process"]:
        """All but the first."""
        if self.proc is not None:
            names = [name for name in os.listdir(self.proc) if name.isdigit() and name != "1"]
            return [_Process(name, self.proc) for name in names]
        return [_Process(f"/proc/{pid}") for pid in _descendants(self.pid)]

    def fills_disk(self, most: int) -> bool:
        """Never: its file system is of that size."""
        return False

    def exit_code(self) -> int | None:
        """Unknown from here; the first process says it."""

    def end(self) -> None:
        """Kill everything and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def clear_away(self) -> None:
        """Nothing: the folder was in memory."""


class _Group:
    """An answer without namespaces. It is found by descent, for on Linux orphans become our children."""

    words = "a process group and a folder of its own; without namespaces, the network can be reached"

    def __init__(self, function, limits: Limits, kind: str, grader: int):
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, 0)  # only we can end them all: we go when the grader has gone, and after that
        self.kin = _descendants if kind == RULES else _Kin()
        self.imported = 0 if kind == RULES else IMPORTED
        self.pipes = _Pipes()
        self.folder = tempfile.mkdtemp(prefix=f"course-run-{grader}-")
        user = sandbox.user_without_namespaces()
        if user != os.geteuid():
            os.chown(self.folder, user, user)
        self.code = None
        self.pid = sandbox.start_alone(function, self.pipes.far, limits, user, self.folder, kind == RULES)
        self.pipes.let_go()

    def built(self) -> None:
        """Nothing to see."""

    def processes(self) -> list["_Process"]:
        return [_Process(f"/proc/{pid}") for pid in self.kin(os.getpid())]

    def fills_disk(self, most: int) -> bool:
        """Whether its folder has more than `most` bytes or FILES files, with those deleted but still open."""
        sizes = itertools.chain(_sizes(self.folder), _deleted(process.folder for process in self.processes()))
        total = 0
        for count, size in enumerate(sizes, 1):
            total += size
            if total > most or count > FILES:
                return True
        return False

    def exit_code(self) -> int | None:
        """That of the answer's first process, None while it runs."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == self.pid:
                    self.code = os.waitstatus_to_exitcode(status)
                if not pid:
                    break
        return self.code

    def end(self) -> None:
        """Stop all, then kill all, until none is left: new ones may come meanwhile."""
        while pids := self.kin(os.getpid()):
            for sent in (signal.SIGSTOP, signal.SIGKILL):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, sent)
            self.exit_code()

    def clear_away(self) -> None:
        for folder, inside, _ in os.walk(self.folder):
            for path in (os.path.join(folder, name) for name in inside):
                if not os.path.islink(path):
                    with contextlib.suppress(OSError):
                        os.chmod(path, 0o700)  # what an answer has locked could not be deleted
        shutil.rmtree(self.folder, ignore_errors=True)


def _sizes(folder: str) -> Iterator[float]:
    """Bytes on disk of each file; infinite for a folder that is locked, for who knows what it holds."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    yield entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        yield from _sizes(entry.path)
    except FileNotFoundError:
        pass
    except OSError:
        yield math.inf


def _deleted(processes: Iterable[str]) -> Iterator[int]:
    """Bytes on disk of files that have no name any more and are open in these, by their folders in /proc."""
    seen = set()
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended, or cannot be looked at; or there is no /proc
            for number in os.listdir(f"{process}/fd"):
                with contextlib.suppress(OSError):
                    file = os.stat(f"{process}/fd/{number}")
                    if stat.S_ISREG(file.st_mode) and not file.st_nlink and file.st_ino not in seen:
                        seen.add(file.st_ino)
                        yield file.st_blocks * 512


class _Process:
    """What is known of a process, by its folder in /proc."""

    def __init__(self, folder: str, table: int | None = None):
        self.folder, self.table = folder, table

    def resident(self) -> int:
        """Bytes, with what it shares with the warm process; 0 when it has ended."""
        if sys.platform != "linux":
            return _resident_elsewhere(int(self.folder.rpartition("/")[2]))
        with contextlib.suppress(OSError, IndexError):
            return int(self._read("statm").split()[1]) * PAGE
        return 0

    def exact(self) -> int:
        """Bytes, what it shares divided by those that share it; takes some milliseconds."""
        with contextlib.suppress(OSError):
            for line in self._read("smaps_rollup").splitlines():
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
        return self.resident()  # one that does not let itself be measured

    def _read(self, file: str) -> str:
        fd = os.open(f"{self.folder}/{file}", os.O_RDONLY, dir_fd=self.table)
        with open(fd) as text:
            return text.read()


def _descendants(pid: int) -> list[int]:
    found = children_of(pid)
    for child in found:  # the list grows as it is read
        found += children_of(child)
    return found


class _Kin:
    """The descendants of a process, where the system keeps no list of them: also those seen earlier."""

    def __init__(self):
        self.seen: dict[int, psutil.Process] = {}

    def __call__(self, pid: int) -> list[int]:
        everybody = list(psutil.process_iter(["ppid"]))
        ours = {pid} | {seen.pid for seen in self.seen.values() if _lives(seen)}
        before = 0
        while before != len(ours):
            before = len(ours)
            ours |= {process.pid for process in everybody if process.info["ppid"] in ours}
        self.seen = {process.pid: process for process in everybody if process.pid in ours - {pid}}
        self.seen = {number: process for number, process in self.seen.items() if _lives(process)}
        return list(self.seen)


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _resident_elsewhere(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).memory_info().rss
    return 0


class _Watch:
    """From the start of an answer to its end, whichever way it takes."""

    def __init__(self, cell, limits: Limits, caller: int):
        self.cell, self.limits, self.caller, self.pipes = cell, limits, caller, cell.pipes
        self.open = {self.pipes.status, self.pipes.printed, self.pipes.result}
        self.text, self.printed, self.lines = bytearray(), bytearray(), b""
        self.stopped: Ended | None = None  # by us, and why
        self.code: int | None = None
        self.broken = self.held_by = ""
        self.peak, self.shared = 0, max(cell.imported, _Process(f"/proc/{os.getpid()}").resident())
        self.began, self.started = time.monotonic(), None
        self.next_look = self.next_measure = self.next_disk = 0.0

    def raw(self) -> Raw:
        """What became of it, once nothing of it is left."""
        try:
            while self.stopped is None and self.code is None:
                self._listen()
                self._look()
        finally:
            self.cell.end()
        seconds = time.monotonic() - (self.started or self.began)
        while any([self._read(fd) for fd in list(self.open)]):
            pass
        ended = self._ended()
        return Raw(
            ended,
            text=self.text[sandbox.SIZE.size :].decode(errors="replace") if ended is Ended.FINISHED else "",
            printed=self.broken if ended is Ended.BROKEN else self.printed.decode(errors="replace"),
            code=None if self.stopped else self.code,
            seconds=seconds,
            memory=self.peak,
            means=f"{self.cell.words}; {self.held_by}",
        )

    def _listen(self) -> None:
        ready, _, _ = select.select([*self.open, self.caller], [], [], TICK)
        for fd in ready:
            if fd == self.caller:  # it says nothing while we work: it is gone
                self.stopped = Ended.BROKEN
            else:
                self._read(fd)

    def _read(self, fd: int) -> bool:
        """Whether there was anything."""
        try:
            data = os.read(fd, CHUNK)
        except OSError:
            return False
        if fd == self.pipes.printed:
            self.printed += data[: PRINTED - len(self.printed)]
        elif fd == self.pipes.result:
            self.text += data[: max(0, self._most() - len(self.text))]
        else:
            self._told(data)
        if not data:
            self.open.discard(fd)
        return bool(data)

    def _most(self) -> int:
        return self.limits.output + sandbox.SIZE.size + 1

    def _told(self, data: bytes) -> None:
        """The lines of the status pipe; only our own code holds the other end."""
        *lines, self.lines = (self.lines + data).split(b"\n")
        for line in lines:
            what, _, rest = line.decode(errors="replace").partition(" ")
            if what in ("here", "built"):
                if what == "built":
                    self.cell.built()
                os.write(self.pipes.orders, b"!")
            elif what == "started":
                self.started, self.held_by = time.monotonic(), rest
            elif what == "ended":
                self.code = int(rest)
            elif what == "broken":
                self.broken, self.stopped = rest, Ended.BROKEN
        if not data and self.code is None:
            self.code = self.cell.exit_code()

    def _look(self) -> None:
        now = time.monotonic()
        if self.stopped or now < self.next_look:
            return
        self.next_look = now + TICK
        self.code = self.cell.exit_code() if self.code is None else self.code
        if self.started is None:
            if now - self.began > SETUP_DEADLINE:
                self.stopped, self.broken = Ended.BROKEN, "The sandbox was not ready in time."
            return
        self.stopped = self._limit_passed(now)

    def _limit_passed(self, now: float) -> Ended | None:
        if self._too_long():
            return Ended.OUTPUT
        if now - self.started > self.limits.seconds:
            return Ended.TIME
        processes = self.cell.processes()
        if len(processes) > self.limits.processes:
            return Ended.PROCESSES
        if now >= self.next_disk and self._fills_disk():
            return Ended.DISK
        return Ended.MEMORY if self._memory(processes, now) > self.limits.memory else None

    def _too_long(self) -> bool:
        announced = sandbox.SIZE.unpack(self.text[: sandbox.SIZE.size])[0] if len(self.text) >= 8 else 0
        return max(announced, len(self.text) - sandbox.SIZE.size) > self.limits.output

    def _fills_disk(self) -> bool:
        """To look through many files takes a while: the more, the rarer."""
        began = time.monotonic()
        filled = self.cell.fills_disk(self.limits.disk)
        now = time.monotonic()
        self.next_disk = now + max(DISK_EVERY, 5 * (now - began))
        return filled

    def _memory(self, processes: list, now: float) -> int:
        """Bytes of all together, exactly where it matters: to know them exactly takes a while."""
        resident = [process.resident() for process in processes]
        least = sum(max(0, size - self.shared) for size in resident)
        if least > self.limits.memory or len(resident) == 1:
            total = max(least, resident[0])
        elif now < self.next_measure or self.cell.imported:
            total = least
        else:
            total = sum(process.exact() for process in processes)
            took = time.monotonic() - now
            crowded = sum(resident) > self.limits.memory
            self.next_measure = now + took + (5 * took if crowded else 0.25)
        self.peak = max(self.peak, total)
        return total

    def _ended(self) -> Ended:
        if self.stopped:
            return self.stopped
        if self.code is None or self.code < 0:
            return Ended.CRASHED if self.started else Ended.BROKEN
        if self._too_long():
            return Ended.OUTPUT
        size = sandbox.SIZE.size
        complete = (
            len(self.text) >= size and sandbox.SIZE.unpack(self.text[:size])[0] == len(self.text) - size
        )
        return Ended.FINISHED if self.code == 0 and complete else Ended.EXITED


PAGE = os.sysconf("SC_PAGE_SIZE")
