"""The warm process: it has imported TensorFlow and Keras, touches no device, and forks workers on demand.

Why not `multiprocessing`'s forkserver: its children import the caller's main module again, they hold the pipe
that keeps the server alive (so one stopped worker keeps the whole family after the notebook has been killed),
and an interrupt of the notebook reaches it. Linux only; elsewhere workers are spawned.

What a fork does is up to its entry, a function named "module:function": being a worker of a cluster, or, for
grading, running an answer.

Talk: the caller sends `fork` with three file descriptors over the control socket. The *lifeline* answers with
the worker's pid and later its exit code; when the caller says `kill` on it or is gone, the worker's whole
process group is killed. The *channel* belongs to caller and worker. The *log* takes the worker's output.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

NUMBER = struct.Struct("q")
READY, FORK, KILL = b"ready", b"fork", b"kill"
WORKER = "course_utils.cluster.worker:main_forked"
GONE_DEADLINE = 2  # seconds for a killed caller to be gone
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main(control_fd: int, preload: list[str], entry: str = WORKER) -> None:
    """Serve until the caller is gone; never returns."""
    parent = os.getppid()
    for name in preload:
        __import__(name)
    with socket.socket(fileno=control_fd) as control:
        serve(control, parent, entry)
    os._exit(0)


def serve(control: socket.socket, parent: int, entry: str = WORKER) -> None:
    """Fork on demand, as the warm process of the caller `parent`, until that one is gone."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a worker leaves behind becomes our child, so that we can end it
    gc.collect()
    gc.freeze()  # the collector of a worker need not touch (and so copy) the memory that it shares
    control.send(READY)
    Zygote(control, parent, entry).serve()


def die_with_parent() -> None:
    """From now on the kernel kills this process when its parent ends, even if it is stopped (Linux)."""
    prctl(PR_SET_PDEATHSIG, 9)


def start_as_leader(log_fd: int, zygote: int) -> bool:
    """Whether the zygote still lives; its fork now leads a session, dies with it, and writes to the log."""
    os.setsid()
    die_with_parent()
    if os.getppid() != zygote:
        return False
    for target in (1, 2):
        os.dup2(log_fd, target)
    os.close(log_fd)
    return True


def prctl(option: int, value: int) -> None:
    """Set a property of this process, where there is such a thing (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Zygote:
    """The warm process at work: takes orders, forks, watches its workers, and ends them."""

    def __init__(self, control: socket.socket, parent: int, entry: str = WORKER):
        self.control, self.parent, self.entry = control, parent, entry
        self.workers: dict[int, socket.socket] = {}  # pid -> lifeline
        self.wake_read, self.wake_write = os.pipe()
        for fd in (self.wake_read, self.wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self.wake_write)
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ)
        self.selector.register(self.wake_read, selectors.EVENT_READ)

    def serve(self) -> None:
        # The parent's death closes the control socket, unless the parent was forked while we ran.
        while os.getppid() == self.parent:
            ready = [key.fileobj for key, _ in self.selector.select(timeout=1)]
            if self.control in ready and not self.accept():
                break
            for pid, lifeline in list(self.workers.items()):
                if lifeline in ready:
                    self.hang_up(pid, lifeline)
            self.reap()
        self.end_everything()
        self.remove_folders()

    def accept(self) -> bool:
        """Fork one worker as the caller asked; False when the caller is gone."""
        message, fds, _, _ = socket.recv_fds(self.control, len(FORK), 3)
        if message != FORK:
            return False
        pid = os.fork()
        if pid == 0:
            self.become_worker(*fds)
        lifeline_fd, *others = fds
        for fd in others:
            os.close(fd)
        lifeline = socket.socket(fileno=lifeline_fd)
        lifeline.setblocking(False)
        self.workers[pid] = lifeline
        self.selector.register(lifeline, selectors.EVENT_READ)
        tell(lifeline, pid)
        return True

    def become_worker(self, lifeline_fd: int, channel_fd: int, log_fd: int) -> None:
        """In the child: let go of everything of the zygote's, then be a worker."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.selector.close()
            for fd in (lifeline_fd, self.wake_read, self.wake_write, self.control.fileno()):
                os.close(fd)
            for lifeline in self.workers.values():
                lifeline.close()
            code = function_named(self.entry)(channel_fd, log_fd, zygote=os.getppid())
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def hang_up(self, pid: int, lifeline: socket.socket) -> None:
        """The caller asks for the end of this worker, or is gone."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            said = lifeline.recv(len(KILL))
            kill_group(pid)
            if not said:
                self.selector.unregister(lifeline)

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake_read, 4096)
        while ended := self.next_ended():
            if ended in self.workers:
                kill_group(ended)  # its children, before its number can belong to anyone else
            _, status = os.waitpid(ended, 0)
            if ended in self.workers:
                self.report_end(ended, os.waitstatus_to_exitcode(status))

    def next_ended(self) -> int:
        with contextlib.suppress(ChildProcessError):
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return ended.si_pid if ended else 0
        return 0

    def report_end(self, pid: int, code: int) -> None:
        lifeline = self.workers.pop(pid)
        if not self.workers:
            self.end_strays()
        tell(lifeline, code)
        with contextlib.suppress(KeyError):
            self.selector.unregister(lifeline)
        lifeline.close()

    def end_strays(self) -> None:
        """Kill what workers have put into sessions of their own: orphans come to us, their subreaper."""
        while strays := [pid for pid in children_of(os.getpid()) if pid not in self.workers]:
            for pid in strays:  # those that they leave come to us in turn
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def end_everything(self) -> None:
        for pid in self.workers:
            kill_group(pid)
        for pid in list(self.workers):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.workers.clear()
        self.end_strays()

    def remove_folders(self) -> None:
        """Remove those of the runs that the caller could not end itself, once it is really gone."""
        folders = list(Path(tempfile.gettempdir()).glob(f"course-run-{self.parent}-*"))
        end = time.monotonic() + GONE_DEADLINE
        while folders and os.getppid() == self.parent and time.monotonic() < end:
            time.sleep(0.01)  # a killed process closes its sockets shortly before its end
        if os.getppid() != self.parent:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)


def children_of(pid: int) -> list[int]:
    """The process ids of the children of a process; none where the system does not tell (not Linux)."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def function_named(entry: str) -> Callable:
    """The function that "module:function" names."""
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


def kill_group(pid: int) -> None:
    """Kill a worker and its children: the group it leads, or it alone if it does not lead one yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def tell(lifeline: socket.socket, number: int) -> None:
    """None; the number goes to whoever holds the other end, if anybody still does."""
    with contextlib.suppress(OSError):  # the caller has gone in between
        lifeline.send(NUMBER.pack(number))
