"""The processes of a job, as the launcher sees them: how each is started, and what it shows of itself."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from multiprocessing import connection

from course_utils.cluster import diagnosis, faults, output, pool
from course_utils.cluster.config import Task
from course_utils.cluster.launch import traces
from course_utils.cluster.worker import Job
from course_utils.cluster.zygote import die_with_parent

ABORT_DEADLINE = 5  # seconds in which an aborted process writes its stack


@dataclass(eq=False)
class Member:
    """A task, its process, and what is known of it. `process` has pid, poll, kill, wait and exit_code."""

    task: Task
    job: Job
    log: output.Log
    port: int
    command: list[str] | None = None  # of a new Python; None: a worker of the pool
    process: object = None
    channel: connection.Connection | None = None
    guard: "Guard | None" = None  # of a new Python; a worker of the pool sees to its children itself
    stages: dict[str, float] = field(default_factory=dict)  # what a worker of the pool reports
    meets_all: bool = False  # whether its strategy is one with all workers of the job, none of its own
    ended_at: float | None = None
    alive_at: float = 0.0  # the last sign of life
    stack: list | None = None
    idle: diagnosis.Idle = field(default_factory=diagnosis.Idle)

    @property
    def name(self) -> str:
        return str(self.task)

    @property
    def running(self) -> bool:
        return self.process.exit_code is None

    @property
    def failed(self) -> bool:
        return not self.running and not self.finished

    @property
    def finished(self) -> bool:
        return self.process.exit_code == 0 and not self.vanished

    @property
    def vanished(self) -> bool:
        """Whether it ended with exit code 0 in the middle of its script, as far as that can be known."""
        return self.process.exit_code == 0 and self.progress is not None and not self.progress.left

    @property
    def joining(self) -> bool:
        """Whether it waits until all workers of the job have made their strategy."""
        return self.running and self.meets_all and "connected" not in self.stages

    @property
    def error(self) -> traces.LastError | None:
        """The exception with which it ended, as its output tells."""
        return traces.last_error(list(self.log.lines)) if self.failed else None

    @property
    def progress(self) -> faults.Progress | None:
        """The last step that it reported with `faults.step`."""
        return faults.Progress.read(self.job.progress)

    def start(self) -> None:
        """Start its process: its command, or a worker of the pool that takes its job."""
        if self.command:
            self.process = start_plain(self.command, self.job, self.log.file.fileno())
            self.guard = Guard(self.process.pid) if os.name == "posix" else None
        else:
            start = pool.start_forked if pool.default_method() == "fork" else pool.start_spawned
            self.process, self.channel = start(self.log.file.fileno(), log_level())
            with contextlib.suppress(OSError):  # it is dead already, which is noticed soon enough
                self.channel.send(("job", self.job))
        self.alive_at = time.monotonic()

    def look(self) -> list[str]:
        """The lines that it has written since the last look; notes its end and its signs of life."""
        self.process.poll()
        self._receive()
        ended = not self.running
        lines = self.log.read(last=ended)
        if ended and self.ended_at is None:
            self.ended_at = time.monotonic()
        self._note_life(lines)
        return lines

    def ask_to_stop(self) -> None:
        """SIGTERM: time to write a checkpoint."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)

    def abort(self) -> None:
        """End it so that Python writes where it stood. A halted process cannot."""
        if os.name == "posix" and self.running and not diagnosis.is_stopped(self):
            _no_core_file(self.process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGABRT)

    def read_stack(self) -> list[str]:
        """What it had written before it was aborted and was not read yet; `stack` is where it stood."""
        lines = self.log.read(last=True)
        self.stack = traces.main_stack(list(self.log.lines))
        return traces.without_dump(lines)

    def close(self) -> None:
        """Let go of everything; the process must have ended."""
        for thing in (self.channel, self.guard, self.log):
            if thing:
                thing.close()

    def _receive(self) -> None:
        try:
            while self.channel and self.channel.poll():
                kind, *content = self.channel.recv()
                if kind in ("stage", "strategy"):
                    self.stages[content[0] if kind == "stage" else kind] = time.monotonic()
                if kind == "strategy":
                    self.meets_all = content[0] == self.job.tf_config
        except (EOFError, OSError):
            self.channel.close()
            self.channel = None

    def _note_life(self, lines: list[str]) -> None:
        """A line, a step; and processor time as long as it has reported no step."""
        if lines:
            self.alive_at = time.monotonic()
        if progress := self.progress:
            self.alive_at = max(self.alive_at, progress.at)
        elif self.running:
            self.alive_at = max(self.alive_at, time.monotonic() - self.idle.seconds(self.process.pid))


def log_level() -> str:
    """Of TensorFlow's own messages: 2, unless more are asked for. (Importing the course sets it to 3.)"""
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")
    return level if level in ("0", "1") else "2"


def start_plain(command: list[str], job: Job, log: int) -> pool.SpawnedWorker:
    """A program of its own, with the environment, the folder and the output of the job."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=job.directory,
        env=job.environment,
        start_new_session=True,  # Ctrl-C reaches the launcher alone, which then asks all to stop
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )
    return pool.SpawnedWorker(process)


class Guard:
    """Ends a process and all that it has started, when the launcher is gone without having done so.

    A shell that reads from a pipe whose other end only the launcher has: the system closes that, whatever
    happens to the launcher.
    """

    def __init__(self, group: int):
        command = ["sh", "-c", 'read -r _; kill -9 -"$0"', str(group)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """Let it go: the group has ended, and its number may be another's."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


def _no_core_file(pid: int) -> None:
    if sys.platform == "linux":
        import resource

        with contextlib.suppress(OSError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, hard))
