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
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from course_utils.cluster import faults, folders, pool, ports, supervise
from course_utils.cluster.config import Task
from course_utils.cluster.launch import tasks
from course_utils.cluster.launch.attempt import SIGNALLED, Ending, Following
from course_utils.cluster.launch.console import Console
from course_utils.cluster.launch.members import log_level
from course_utils.cluster.launch.options import Launch
from course_utils.cluster.worker import IN_WORKER
from course_utils.errors import ConfigError

TICK = 0.05  # seconds between two looks for a signal, while the job waits for its restart


def launch(options: Launch) -> int:
    """The exit code of a job: 0 when it is done, else that of the worker that failed first, the last time.

    Lines of the workers go to standard output, each with its name; what the launcher has to say goes to
    standard error. SIGTERM and Ctrl-C reach the workers as SIGTERM. Raises ConfigError, and starts nothing,
    for what cannot work.
    """
    _check(options)
    folder = folders.temporary()
    job = _Job(options, folder, Console([str(task) for task in options.tasks]))
    try:
        with _noting_signals(job.signals):
            ending = job.run()
        job.tell(ending)
        return ending.code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Stopped(Exception):
    """Somebody has asked the launcher to stop; `ending` is that of the job."""

    def __init__(self, ending: Ending):
        self.ending = ending


@dataclass
class _Job:
    """The attempts of one launch."""

    options: Launch
    folder: Path  # temporary: payload, progress and fired faults; the logs too, unless they have a folder
    console: Console
    signals: list[int] = field(default_factory=list)
    restarts: int = 0

    def run(self) -> Ending:
        """How the last attempt ended."""
        tasks.write_payload(self.options, self.folder)
        limits = supervise.Restarts(self.options.max_restarts, self.options.backoff)
        try:
            attempts = supervise.keep_trying(self.attempt, limits, self.note, self.pause)
            return attempts[-1].ending
        except supervise.GaveUp as error:
            return error.ending
        except _Stopped as stopped:
            return stopped.ending

    def attempt(self, number: int) -> Ending:
        """How the attempt of that number ended."""
        self.stop_if_asked()
        held: list[ports.HeldPort] = []
        try:
            hold_ports(self.options, held)
            self.warm_up()
            processes = tasks.make(self.options, self.folder, number, [port.address for port in held])
            ending = Following(processes, self.console, self.signals, self.options).run()
        except ConfigError as error:  # a port that is taken may be free the next time
            return Ending("crashed", str(error), code=1)
        finally:
            for port in held:
                port.release()
        if ending.how == "stopped":
            raise _Stopped(ending)
        return ending

    def warm_up(self) -> None:
        """Have the process ready that imports TensorFlow for all; that of an earlier attempt may be gone."""
        if self.options.pool and pool.default_method() == "fork":
            pool.the_pool(log_level())

    def note(self, attempt: supervise.Attempt) -> None:
        """Say how an attempt ended, and what comes next."""
        if attempt.ending.how == "finished":
            return
        self.say(attempt.ending)
        if attempt.number <= self.options.max_restarts:
            self.restarts = attempt.number
            limits = supervise.Restarts(self.options.max_restarts, self.options.backoff)
            wait = limits.wait_before(attempt.number)
            self.console.say(f"Restart {attempt.number} of {self.options.max_restarts} in {wait:g} s.")

    def pause(self, seconds: float) -> None:
        """Wait, unless somebody asks the job to stop."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.stop_if_asked()
            time.sleep(min(TICK, seconds))

    def stop_if_asked(self) -> None:
        """Nothing runs here that could be asked to stop."""
        if self.signals:
            raise _Stopped(
                Ending("stopped", "Stopped between two attempts.", code=SIGNALLED + self.signals[0])
            )

    def say(self, ending: Ending) -> None:
        """Write the sentences of an ending."""
        if ending.stacks:
            self.console.say(f"Where it stood:\n{ending.stacks.rstrip()}")
        cause = f" Likely cause: {ending.cause}" if ending.cause else ""
        self.console.say(f"{ending.reason}{cause}")

    def tell(self, ending: Ending) -> None:
        """Say what there is to say about the whole job, and where its output is."""
        if ending.how != "stopped":
            self.tell_of_faults()
        if ending.how == "stopped" or (ending.how == "finished" and ending.reason):
            self.say(ending)
        if ending.how == "finished":
            if self.restarts:
                self.console.say(f"Finished after {self.restarts} of {self.options.max_restarts} restarts.")
            return
        if self.restarts:
            self.console.say(f"The job was tried {self.restarts + 1} times and did not finish.")
        where = self.options.log_dir
        if where is None:
            where = folders.for_logs(None) / folders.kept_name(self.folder)
            folders.keep(self.folder, where)
        self.console.say(f"The workers' output is kept in {where}.")

    def tell_of_faults(self) -> None:
        """Say which planned faults have not struck: the job was not put to that test."""
        for sentence in faults.not_struck(",".join(self.options.faults), self.folder, self.last_steps):
            self.console.say(sentence)

    def last_steps(self, task: str) -> list[int]:
        """The last step that a task has reported, in each attempt with one."""
        files = self.folder.glob(f"attempt-*-{tasks.file_name(task)}.progress")
        return [progress.step for file in files if (progress := faults.Progress.read(file))]


@contextmanager
def _noting_signals(received: list[int]):
    """Signals that ask for an end are noted instead of obeyed; only the main thread can have it so."""
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
    if not options.workers + options.chief:
        raise ConfigError("A job needs a worker or a chief.", cure="Write --workers 2.")
    if options.port and (last := options.port + options.size - 1) > 65535:
        raise ConfigError(
            f"There is no port {last} for {options.tasks[-1]}: ports end at 65535.",
            cause=f"the {options.size} tasks of the job take the ports from {options.port} on.",
            cure="Choose a lower --port.",
        )
    if not options.pool:
        tasks.check_plain(options)
    folders.for_logs(options.log_dir)
    _check_faults(options)


def _check_faults(options: Launch) -> None:
    names = [str(task) for task in options.tasks]
    for fault in faults.parse_all(",".join(options.faults)):
        if (task := str(Task(fault.task, fault.index))) not in names:
            raise ConfigError(
                f"{str(fault)!r} is meant for {task}, which this job does not have.",
                expected=f"one of {', '.join(names)}.",
            )


def hold_ports(options: Launch, held: list[ports.HeldPort]) -> None:
    """Fill `held` with a port for each task; ConfigError when one that was asked for is taken."""
    for number, task in enumerate(options.tasks):
        wanted = options.port + number if options.port else 0
        if wanted and ports.holder(wanted):
            raise ports.taken(wanted, str(task))
        held.append(ports.HeldPort(wanted))
