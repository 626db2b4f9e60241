"""`course launch`: one script on every worker of a job on this machine, followed to its end.

Each process gets its TF_CONFIG; apart from that it is the script as `python script.py` would run it: as
`__main__`, with its own arguments, its own folder first on the search path, its exit code. On Linux it is
forked from the warm process, which saves the import of TensorFlow; with `pool=False` it is a new Python.

The first worker that fails ends the job, since all others would wait for it, and the job starts again from
its checkpoints as often as it may. Nothing is asked of the script but that it restores its newest checkpoint
when it begins. Where it calls `faults.step`, the launcher also knows how far each worker has got.
"""

import os
import shutil
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from course_utils.cluster import faults, folders, output, pool, ports, travel
from course_utils.cluster.config import ClusterConfig, Task
from course_utils.cluster.launch import script as scripts
from course_utils.cluster.launch.attempt import Attempt, Ending
from course_utils.cluster.launch.console import Console
from course_utils.cluster.launch.member import Member
from course_utils.cluster.worker import IN_WORKER, Job
from course_utils.errors import ConfigError


@dataclass(frozen=True)
class Launch:
    """What `course launch` is told.

    workers, chief, ps, evaluator: the tasks. devices: replicas in each. max_restarts: how often a job that
    failed starts again. log_dir: where each worker's output is written; else it is kept only of failed jobs.
    pool=False: each worker is a new Python. timeout: seconds for an attempt. heartbeat: seconds without any
    sign of life, after which a job counts as hanging. grace: seconds between SIGTERM and SIGKILL. port: that
    of the first task, the others take the next ones; None: free ones. faults: what is to go wrong on purpose.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    workers: int = 1
    chief: bool = False
    ps: int = 0
    evaluator: bool = False
    devices: int = 1
    max_restarts: int = 0
    log_dir: Path | None = None
    pool: bool = True
    timeout: float | None = None
    heartbeat: float = 300
    grace: float = 30
    port: int | None = None
    faults: tuple[str, ...] = ()

    @property
    def tasks(self) -> list[Task]:
        """Every task, chief first."""
        return self.config([f"x:{number + 1}" for number in range(self.size)]).tasks

    @property
    def size(self) -> int:
        """How many processes there are."""
        return self.workers + self.chief + self.ps + self.evaluator

    def config(self, addresses: list[str]) -> ClusterConfig:
        """The cluster on these addresses."""
        counts = {"chief": self.chief, "worker": self.workers, "ps": self.ps, "evaluator": self.evaluator}
        left = iter(addresses)
        return ClusterConfig(**{kind: [next(left) for _ in range(n)] for kind, n in counts.items()})


def launch(options: Launch) -> int:
    """The exit code of a job: 0 when it is done, else that of the worker that failed first, the last time.

    Lines of the workers go to standard output, each with its name; what the launcher has to say goes to
    standard error. SIGTERM and Ctrl-C reach the workers as SIGTERM. Raises ConfigError, and starts nothing,
    for what cannot work.
    """
    _check(options)
    names = [str(task) for task in options.tasks]
    console = Console(names)
    folder = folders.temporary()
    job = _Job(options, console, folder)
    try:
        with _signals(job.signals):
            ending = job.run()
        job.tell(ending)
        return ending.code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Job:
    """The attempts of one launch."""

    options: Launch
    console: Console
    folder: Path  # temporary: payload, progress and fired faults; the logs, unless they have a folder
    signals: list[int] = field(default_factory=list)
    attempts: list[Ending] = field(default_factory=list)

    def run(self) -> Ending:
        arguments = (str(self.options.script.resolve()), list(self.options.arguments))
        (self.folder / "payload.pickle").write_bytes(travel.pack_call(scripts.run_as_main, arguments, {}))
        if self.options.pool and pool.default_method() == "fork":
            pool.the_pool(_log_level())
        ending = self.attempt()
        return ending

    def attempt(self) -> Ending:
        """How the next attempt ended."""
        held = _ports(self.options)
        try:
            members = self.members([port.address for port in held])
            start = self.start
            ending = Attempt(members, start, self.console, self.signals, self.options).run()
        finally:
            for port in held:
                port.release()
        self.attempts.append(ending)
        return ending

    def start(self, member: Member) -> None:
        """Start one process."""
        command = None
        if not self.options.pool:
            command = [sys.executable, str(self.options.script), *self.options.arguments]
        member.start(command, _log_level())

    def members(self, addresses: list[str]) -> list[Member]:
        """The processes of an attempt, not started yet."""
        number = len(self.attempts)
        logs = (self.options.log_dir or self.folder) / f"attempt-{number}"
        logs.mkdir(parents=True, exist_ok=True)
        config = self.options.config(addresses)
        training = sum(task.type in ("chief", "worker") for task in config.tasks)
        return [
            self.member(index, task, config.tf_config(task.type, task.index), training, logs)
            for index, task in enumerate(config.tasks)
        ]

    def member(self, index: int, task: Task, tf_config: str, training: int, logs: Path) -> Member:
        name = str(task).replace(" ", "-")
        progress = self.folder / f"{logs.name}-{name}.progress"
        threads = max(1, _cores() // training)
        job = Job(
            task=str(task),
            tf_config=tf_config,
            alone_is_wrong=training > 1 and task.type in ("chief", "worker"),
            folder=str(self.folder),
            number=index,
            workers=training,
            devices=self.options.devices,
            threads=threads,
            environment=self.environment(index, task, tf_config, threads) | {faults.PROGRESS: str(progress)},
            directory=os.getcwd(),
            path=_search_path(self.options.script),
            sources={},
            progress=str(progress),
            ends_on_error=True,
        )
        log = output.Log(logs / f"{name}.log", _log_level() != "2")
        return Member(task, job, log, progress)

    def environment(self, index: int, task: Task, tf_config: str, threads: int) -> dict[str, str]:
        """The variables of one process: the caller's, and what makes it this task."""
        ours = {
            "TF_CONFIG": tf_config,
            IN_WORKER: str(task),
            "PYTHONFAULTHANDLER": "1",  # an aborted process says where it stood
            "TF_NUM_INTRAOP_THREADS": str(threads),
            "OMP_NUM_THREADS": str(threads),
            faults.FIRED: str(self.folder),
            faults.PLAN: ",".join(self.options.faults),
        }
        return ours | pool.worker_environment(_log_level()) | ours

    def tell(self, ending: Ending) -> None:
        """Say how the job ended, and where its output is."""
        if ending.details:
            self.console.say(f"Where they stood:\n{ending.details.rstrip()}")
        if ending.seen:
            cause = f" Likely cause: {ending.cause}" if ending.cause else ""
            self.console.say(f"{ending.seen}{cause}")
        if ending.code == 0:
            return
        if self.options.log_dir is None:
            kept = folders.for_logs(None) / folders.kept_name(self.folder)
            folders.keep(self.folder, kept)
            self.console.say(f"The workers' output is kept in {kept}.")
        else:
            self.console.say(f"The workers' output is in {self.options.log_dir}.")


@contextmanager
def _signals(received: list[int]):
    """SIGINT, SIGTERM and SIGHUP are noted instead of obeyed, where that can be set: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, lambda n, _: received.append(n)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check(options: Launch) -> None:
    """None; ConfigError for what cannot work."""
    if os.environ.get(IN_WORKER):
        raise ConfigError(
            f"This is {os.environ[IN_WORKER]} of a cluster already, and a worker cannot launch another.",
            cure="Run `course launch` from a shell.",
        )
    if not options.script.is_file():
        raise ConfigError(f"There is no script {str(options.script)!r}.", cure="Give the path of a .py file.")
    for text in options.faults:
        for fault in faults.parse_all(text):
            if str(Task(fault.task, fault.index)) not in map(str, options.tasks):
                raise ConfigError(
                    f"{text!r} is meant for {Task(fault.task, fault.index)}, which this job does not have.",
                    expected=f"one of {', '.join(map(str, options.tasks))}.",
                )


def _ports(options: Launch) -> list[ports.HeldPort]:
    return [ports.HeldPort() for _ in range(options.size)]


def _search_path(script: Path) -> list[str]:
    """The search path as `python script.py` would have it: the script's folder, then what is installed."""
    ours = {"", str(Path(sys.argv[0]).parent.resolve())}  # of the command `course`
    return [str(script.parent.resolve()), *(entry for entry in sys.path if entry not in ours)]


def _log_level() -> str:
    """Of TensorFlow's own messages: 2, unless more are asked for. (Importing the course sets it to 3.)"""
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")
    return level if level in ("0", "1") else "2"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
