"""Runs jobs in sandboxes, forked from one process that has imported TensorFlow: no import for each answer."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from multiprocessing import connection

from course_utils.cluster.pool import ForkedWorker, Pool, SpawnedWorker, default_method
from course_utils.errors import ClusterError
from course_utils.grading import sandbox
from course_utils.grading.keeper import SETUP_DEADLINE
from course_utils.grading.model import Ended, Raw
from course_utils.grading.sandbox import Limits

PREPARE = "course_utils.grading.examining:prepare"
KEEPER = "course_utils.grading.keeper:main_forked"
PRELOAD = ["course_utils.cluster.warm", "course_utils.grading.keeper"]
GRACE = 30  # seconds for a keeper to say what it has seen
TRIES = 2


class Runner:
    """Use as a context manager; `run` may be called from many threads, of which `jobs` go on at a time.

    entry: the function "module:function" that is called with a job before the sandbox is closed, and returns
    the function without arguments that is called inside and returns the text that comes back. It may not use
    a device. kind: one of sandbox.KINDS, instead of the strongest that this machine offers. start_method:
    "fork" or "spawn", as for clusters. `means` says in words what answers are kept apart by.
    """

    def __init__(
        self,
        jobs: int = 2,
        limits: Limits | None = None,
        entry: str = PREPARE,
        kind: str | None = None,
        start_method: str | None = None,
    ):
        self.limits, self.entry, self.kind, self.means = limits or Limits(), entry, kind, kind or ""
        self.start_method = start_method or default_method()
        self.preload = PRELOAD  # what the warm process imports
        self._at_once = threading.BoundedSemaphore(jobs)
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._closed = False

    def __enter__(self) -> "Runner":
        self._closed = False
        if self.kind is None:
            self.kind, self.means = sandbox.strongest()
        if self.start_method == "fork":
            self._warm_process()
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End the warm process, and with it what still runs: its `run` then returns, with BROKEN."""
        with self._lock:
            self._closed = True
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    def run(self, job: dict, seconds: float | None = None) -> Raw:
        """What came of the job, plain JSON data; `seconds` of wall time instead of those of the limits.

        Never raises for anything that an answer does. ClusterError where the warm process does not start.
        """
        limits = replace(self.limits, seconds=seconds or self.limits.seconds)
        order = {"entry": self.entry, "job": job, "limits": asdict(limits), "kind": self.kind}
        order["grader"] = os.getpid()
        with self._at_once:
            for _ in range(TRIES):
                raw = self._try(json.dumps(order).encode(), limits.seconds)
                if raw is not None:
                    return raw
                if self._closed:
                    break
        return Raw(Ended.BROKEN, printed="The keeper of the sandbox died.", means=self.means)

    def _try(self, order: bytes, seconds: float) -> Raw | None:
        """None when the keeper died without a word: killed by somebody, or by a machine short of memory."""
        ours, theirs = socket.socketpair()
        with theirs:
            keeper = self._keeper(theirs)
        if keeper is None:
            ours.close()
            return None
        with connection.Connection(ours.detach()) as channel:
            try:
                return _talk(channel, order, seconds)
            finally:
                keeper.kill()
                keeper.wait(GRACE)

    def _keeper(self, channel: socket.socket) -> ForkedWorker | SpawnedWorker | None:
        if self.start_method == "spawn":
            return _spawn(channel)
        try:
            pool = self._warm_process()
        except ClusterError:
            if self._closed:
                return None
            raise
        with open(os.devnull, "w") as log, contextlib.suppress(ClusterError):
            return pool.fork(channel, log.fileno())
        return None

    def _warm_process(self) -> Pool:
        with self._lock:
            if self._closed:
                raise ClusterError("The runner is closed.")
            if self._pool is None or not self._pool.usable():
                if self._pool is not None:
                    self._pool.close()
                # The entry's own imports too: else every answer would pay for them.
                preload = [*self.preload, self.entry.partition(":")[0]]
                self._pool = Pool(sandbox.warm_environment(), preload, KEEPER)
            self._pool.wait_until_warm()
            return self._pool


def _spawn(channel: socket.socket) -> SpawnedWorker:
    """A keeper that is a program of its own: where fork is not safe, each answer imports TensorFlow."""
    return SpawnedWorker(
        subprocess.Popen(
            [sys.executable, "-c", _KEEP, json.dumps(sys.path), str(channel.fileno())],
            pass_fds=[channel.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=sandbox.warm_environment(),
        )
    )


_KEEP = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from course_utils.grading import keeper
keeper.serve(int(sys.argv[2]))
"""


def _talk(channel: connection.Connection, order: bytes, seconds: float) -> Raw | None:
    with contextlib.suppress(OSError, EOFError):
        channel.send_bytes(order)
        if channel.poll(SETUP_DEADLINE + seconds + GRACE):
            said = json.loads(channel.recv_bytes())
            return Raw(**{**said, "ended": Ended(said["ended"])})
    return None
