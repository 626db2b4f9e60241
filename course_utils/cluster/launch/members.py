"""The processes of a job, as the launcher sees them: how each is started, and what it shows of itself."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path

from course_utils.cluster import diagnosis, faults, output, pool, travel
from course_utils.cluster.config import Task
from course_utils.cluster.launch import traces
from course_utils.cluster.launch.script import run_as_main
from course_utils.cluster.worker import IN_WORKER, Job
from course_utils.cluster.zygote import die_with_parent
from course_utils.errors import ConfigError

ABORT_DEADLINE = 5  # seconds in which an aborted process writes its stack
GPUS = Path("/proc/driver/nvidia/gpus")


def write_payload(options, folder: Path) -> None:
    """None; what the workers of the pool are to call lies in the run's folder."""
    call = travel.pack_call(run_as_main, (str(options.script.resolve()), list(options.arguments)), {})
    (folder / "payload.pickle").write_bytes(call)


def make(options, folder: Path, attempt: int, addresses: list[str]) -> "list[Member]":
    """The processes of an attempt, in the order of the tasks, not started yet."""
    config = options.config(addresses)
    logs = (options.log_dir or folder) / f"attempt-{attempt}"
    logs.mkdir(parents=True, exist_ok=True)
    command = None if options.pool else [sys.executable, str(options.script), *options.arguments]
    found = []
    for number, task in enumerate(config.tasks):
        name = str(task).replace(" ", "-")
        job = _job(options, folder, config, number, folder / f"attempt-{attempt}-{name}.progress")
        log = output.Log(logs / f"{name}.log", log_level() != "2")
        port = int(addresses[number].rpartition(":")[2])
        found.append(Member(task, job, log, port, command))
    return found


def _job(options, folder: Path, config, number: int, progress: Path) -> Job:
    task = config.tasks[number]
    training = sum(task.type in ("chief", "worker") for task in config.tasks)
    threads = max(1, _cores() // training)
    tf_config = config.tf_config(task.type, task.index)
    return Job(
        task=str(task),
        tf_config=tf_config,
        alone_is_wrong=training > 1 and task.type in ("chief", "worker"),
        folder=str(folder),
        number=number,
        workers=training,
        devices=options.devices,
        threads=threads,
        environment=_environment(options, threads, number)
        | {
            "TF_CONFIG": tf_config,
            IN_WORKER: str(task),
            faults.FIRED: str(folder),
            faults.PROGRESS: str(progress),
        },
        directory=os.getcwd(),
        path=_search_path(options.script),
        sources={},
        progress=str(progress),
        ends_on_error=True,
    )


def _environment(options, threads: int, number: int) -> dict[str, str]:
    """The caller's variables, its share of the machine for this process, and what goes wrong on purpose."""
    share = {"TF_NUM_INTRAOP_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    if not options.pool and (gpus := _gpu_share(number, options)):
        share["CUDA_VISIBLE_DEVICES"] = gpus
    # An aborted process writes where it stood.
    ours = {"PYTHONFAULTHANDLER": "1"} | ({faults.PLAN: ",".join(options.faults)} if options.faults else {})
    return share | pool.worker_environment(log_level()) | ours


def check_plain(options) -> None:
    """None; ConfigError where a plain Python cannot have as many devices as it should."""
    if options.devices > 1 and len(_gpus()) < options.size * options.devices:
        raise ConfigError(
            f"A new Python has one device, its CPU, where there are no {options.devices} GPUs for each.",
            cure="Leave out --no-pool: in the warm process a CPU can be several devices.",
        )


def _gpu_share(number: int, options) -> str:
    """The GPUs of one process, as CUDA_VISIBLE_DEVICES; empty where there are not enough for all."""
    gpus, n = _gpus(), options.devices
    return ",".join(gpus[number * n : (number + 1) * n]) if len(gpus) >= options.size * n else ""


def _gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu for gpu in visible.split(",") if gpu]
    return [str(number) for number, _ in enumerate(GPUS.glob("*"))]


def log_level() -> str:
    """Of TensorFlow's own messages: 2, unless more are asked for. (Importing the course sets it to 3.)"""
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")
    return level if level in ("0", "1") else "2"


def _search_path(script: Path) -> list[str]:
    """The search path as `python script.py` would have it: the script's folder, then what is installed."""
    ours = {"", str(Path(sys.argv[0]).parent.resolve())}  # of the command `course`
    return [str(script.parent.resolve()), *(entry for entry in sys.path if entry not in ours)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    stages: dict[str, float] = field(default_factory=dict)  # what a worker of the pool reports
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
        for thing in (self.channel, self.log):
            if thing:
                thing.close()

    def _receive(self) -> None:
        try:
            while self.channel and self.channel.poll():
                kind, *content = self.channel.recv()
                if kind in ("stage", "strategy"):
                    self.stages[content[0] if kind == "stage" else kind] = time.monotonic()
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


def _no_core_file(pid: int) -> None:
    if sys.platform == "linux":
        import resource

        with contextlib.suppress(OSError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, hard))
