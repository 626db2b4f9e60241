"""One run of a cluster: start the workers, follow them, decide how it ends, and leave nothing behind."""

import contextlib
import json
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path

from course_utils.cluster import cells, diagnosis, ports, travel
from course_utils.cluster.config import Task, check_tf_configs
from course_utils.cluster.errors import ClusterTimeout, WorkerDied, WorkerError
from course_utils.cluster.output import Log
from course_utils.cluster.pool import END_DEADLINE
from course_utils.cluster.worker import Job, RemoteError
from course_utils.errors import ClusterError, CourseError

TICK = 0.02  # seconds between two looks at output, processes and ports
START_DEADLINE = 120  # seconds from the process to the function: an import of TensorFlow where it is spawned
CAUSE_GRACE = 1.5  # seconds in which a worker that caused another's error can report its own
JOIN_GRACE = 1.0  # seconds that a worker may wait for one that has ended without joining
STUCK_AFTER = 5.0  # idle seconds in TensorFlow, after which a worker waits in vain for one that has finished


@dataclass
class Worker:
    """What the caller knows about one worker."""

    task: Task
    job: Job
    log: Log
    port: int | None
    held: ports.HeldPort | None = None
    process: object = None
    channel: connection.Connection | None = None
    stages: dict[str, float] = field(default_factory=dict)
    seen_config: str | None = None
    making_strategy: bool = False
    result: str | None = None  # the file that holds it
    error: RemoteError | None = None
    stack: list | None = None
    idle: diagnosis.Idle = field(default_factory=diagnosis.Idle)

    @property
    def name(self) -> str:
        return str(self.task)

    @property
    def finished(self) -> bool:
        return self.result is not None

    @property
    def connecting(self) -> bool:
        return self.making_strategy and "connected" not in self.stages

    @property
    def died(self) -> bool:
        return (
            self.process is not None
            and self.process.exit_code is not None
            and not (self.finished or self.error)
        )


class Run:
    """Start `workers`, return their results in order; a CourseError says why there are none."""

    def __init__(self, workers: list[Worker], start: Callable, display, timeout: float, kept: Path):
        self.workers, self.start, self.display, self.timeout = workers, start, display, timeout
        self.kept = kept  # where the logs go if the run fails
        self.began = time.monotonic()
        self.as_written: Callable[[str | None], str | None] = lambda text: text
        self.first_error_at: float | None = None
        self.done = False

    @property
    def failed(self) -> bool:
        """Whether somebody will want to read the logs."""
        return not self.done

    def results(self) -> list:
        try:
            self._launch()
            while not self._over():
                self._wait()
                self._look()
                self._judge()
            self._read_output(last=True)
            results = self._results()
            self.done = True
            return results
        finally:
            self._end()

    def _launch(self) -> None:
        for worker in self.workers:
            worker.process, worker.channel = self.start(worker.log.file.fileno())
        for worker in self.workers:
            with contextlib.suppress(OSError):  # it is dead already; noticed below
                worker.channel.send(("job", worker.job))

    def _over(self) -> bool:
        return all(worker.finished for worker in self._needed())

    def _wait(self) -> None:
        channels = [worker.channel for worker in self.workers if worker.channel]
        if channels:
            connection.wait(channels, TICK)
        else:
            time.sleep(TICK)

    def _needed(self) -> list[Worker]:
        """Those whose results end the run; parameter servers, and workers of a coordinator, only serve."""
        types = {worker.task.type for worker in self.workers}
        servers = {"ps"} | ({"worker"} if {"ps", "chief"} <= types else set())
        return [worker for worker in self.workers if worker.task.type not in servers]

    def _look(self) -> None:
        for worker in self.workers:
            worker.process.poll()
            self._receive(worker)  # after the poll: the last message of one that has ended counts
            if worker.process.exit_code is not None:
                worker.stages.setdefault("exit", self._now())
            self._look_for_server(worker)
        self._read_output()

    def _receive(self, worker: Worker) -> None:
        try:
            while worker.channel and worker.channel.poll():
                self._note(worker, *worker.channel.recv())
        except (EOFError, OSError, pickle.UnpicklingError):
            worker.channel.close()
            worker.channel = None

    def _note(self, worker: Worker, kind: str, *content) -> None:
        if kind == "stage":
            name, at = content
            worker.stages[name] = at - self.began
        elif kind == "strategy":
            worker.making_strategy, worker.seen_config = True, content[0]
        elif kind == "stacks":
            worker.stack = content[0]
        elif kind == "report":
            self.display.report(self.workers.index(worker), json.loads(content[0]))
        elif kind == "result":
            worker.result = content[0]
            worker.stages["exit"] = self._now()
        elif kind == "error":
            worker.error = content[0]
            worker.stages["exit"] = self._now()
            self.first_error_at = self.first_error_at or time.monotonic()

    def _look_for_server(self, worker: Worker) -> None:
        if (
            worker.port
            and "start" in worker.stages
            and "server up" not in worker.stages
            and ports.listens(worker.port)
        ):
            worker.stages["server up"] = self._now()
            if worker.held:
                worker.held.release()

    def _read_output(self, last: bool = False) -> None:
        for number, worker in enumerate(self.workers):
            self.display.show(number, worker.log.read(last))

    def _now(self) -> float:
        return time.monotonic() - self.began

    def _judge(self) -> None:
        """Raise what ends the run, if anything does."""
        self._judge_configurations()
        self._judge_ports()
        self._judge_errors()
        self._judge_deaths()
        self._judge_starts()
        self._judge_consequences()
        self._judge_joining()
        self._judge_stuck()
        self._judge_time()

    def _judge_configurations(self) -> None:
        """Each was checked before the start; a function may have set another one since."""
        for worker in self.workers:
            if worker.error and worker.error.ours:
                raise pickle.loads(worker.error.pickled)
        if any(w.seen_config not in (None, w.job.tf_config) for w in self.workers):
            seen = [self.as_written(w.seen_config or w.job.tf_config) for w in self.workers]
            if self.workers[0].job.alone_is_wrong:
                check_tf_configs(seen)

    def _judge_ports(self) -> None:
        for worker in self.workers:
            if worker.error and "Could not start gRPC server" in worker.error.message:
                raise ports.taken(worker.port, worker.name)

    def _judge_errors(self) -> None:
        for worker in sorted(self.workers, key=lambda w: w.stages.get("exit", 0)):
            if worker.error and not worker.error.consequence:
                raise self._worker_error(worker)

    def _judge_deaths(self) -> None:
        for worker in self.workers:
            if worker.died:
                raise self._death(worker)

    def _judge_starts(self) -> None:
        for worker in self.workers:
            if not {"start", "exit"} & set(worker.stages) and self._now() > START_DEADLINE:
                raise WorkerDied(f"{worker.name.capitalize()} did not start within {START_DEADLINE} s.")

    def _judge_consequences(self) -> None:
        """An error that only says that another worker has gone: give that one a moment to say why."""
        if self.first_error_at is None or time.monotonic() - self.first_error_at < CAUSE_GRACE:
            return
        victim = min((w for w in self.workers if w.error), key=lambda w: w.stages["exit"])
        raise self._worker_error(victim, cause=diagnosis.who_left(self.workers))

    def _judge_joining(self) -> None:
        waiting = [w for w in self.workers if w.connecting]
        gone = [w for w in self.workers if w.finished and not w.making_strategy and w.job.alone_is_wrong]
        if waiting and gone and self._now() - max(w.stages["exit"] for w in gone) > JOIN_GRACE:
            raise WorkerDied(
                f"{_names(gone).capitalize()} ended without making a strategy; {_names(waiting)} would wait "
                "for ever.",
                cure="Let every worker make MultiWorkerMirroredStrategy().",
            )

    def _judge_stuck(self) -> None:
        left, running = self._left_and_running()
        if self._wait_in_vain(left, running, STUCK_AFTER):
            raise self._timeout(diagnosis.left_behind(left, running))

    def _wait_in_vain(self, left: list[Worker], running: list[Worker], seconds: float) -> bool:
        """Whether all that run have been idle in TensorFlow for so long, when others have left."""
        if not left or not running or not all("connected" in w.stages for w in running):
            return False
        if not all([w.idle.seconds(w.process.pid) > seconds for w in running]):
            return False
        self._ask_for_stacks()
        if all(diagnosis.in_tensorflow(w.stack) for w in running):
            return True
        for worker in running:
            worker.idle = diagnosis.Idle()
        return False

    def _left_and_running(self) -> tuple[list[Worker], list[Worker]]:
        """Those that joined and have returned, and those that run."""
        left = [w for w in self._needed() if w.finished and "connected" in w.stages]
        return left, [w for w in self._needed() if not w.finished]

    def _judge_time(self) -> None:
        if self._time_is_up():
            self._ask_for_stacks()
            raise self._timeout(f"The cluster did not finish within {self.timeout:g} s: ")

    def _time_is_up(self) -> bool:
        """Whether all have started, and that was as long ago as they may run."""
        started = [w.stages.get("start", w.stages.get("exit")) for w in self.workers]
        return None not in started and self._now() - max(started) > self.timeout

    def _timeout(self, seen: str) -> ClusterTimeout:
        left, running = self._left_and_running()
        alone = left and any(diagnosis.in_tensorflow(w.stack) for w in running)
        cure = f"{diagnosis.EVERYONE_MEETS} {self._where_logs()}" if alone else self._where_logs()
        error = ClusterTimeout(seen + diagnosis.waits(self.workers), cure=cure)
        error.stacks = {w.name: diagnosis.stack_text(w.stack) for w in self.workers if w.stack}
        return error

    def _ask_for_stacks(self) -> None:
        # One that is connecting cannot answer: TensorFlow holds the interpreter until all are there.
        asked = [w for w in self.workers if w.channel and not (w.finished or w.connecting)]
        for worker in asked:
            worker.stack = None
            with contextlib.suppress(OSError):
                worker.channel.send(("stacks",))
        end = time.monotonic() + 1
        while any(w.stack is None and w.channel for w in asked) and time.monotonic() < end:
            connection.wait([w.channel for w in asked if w.channel], TICK)
            self._look()

    def _death(self, worker: Worker) -> WorkerDied:
        cause = diagnosis.likely_cause_of_death(worker)
        return WorkerDied(diagnosis.death(worker), cause=cause, cure=self._where_logs())

    def _worker_error(self, worker: Worker, cause: str = "") -> CourseError:
        remote = worker.error
        error = WorkerError(
            diagnosis.what_it_raised(worker),
            cause=cause or diagnosis.likely_cause_of_error(remote.message),
            cure=f"The workers' output is kept in {self.kept}.",
        )
        error.task, error.remote_traceback = worker.name, cells.readable(remote.traceback)
        with contextlib.suppress(Exception):  # what cannot be put together again here stays None
            error.original = pickle.loads(remote.pickled) if remote.pickled else None
        return error

    def _where_logs(self) -> str:
        return f"Read the workers' output, kept in {self.kept}."

    def _results(self) -> list:
        return [self._result(worker) for worker in self.workers]

    def _result(self, worker: Worker):
        if worker.result is None:
            return None
        try:
            data = Path(worker.result).read_bytes()
        except OSError as error:
            raise ClusterError(f"What {worker.name} returned cannot be read: {error}.") from None
        return travel.unpack_result(data, worker.name)

    def _end(self) -> None:
        """No process, no port, no open file."""
        try:
            self._end_processes()
        except KeyboardInterrupt:  # pressed twice: still nothing may stay behind
            self._end_processes()
            raise
        finally:
            with contextlib.suppress(Exception):
                self._read_output(last=True)
                self.display.close()
            for worker in self.workers:
                for thing in (worker.channel, worker.log):
                    if thing:
                        thing.close()
                if worker.held:
                    worker.held.release()

    def _end_processes(self) -> None:
        started = [worker.process for worker in self.workers if worker.process]
        for process in started:
            process.kill()
        for process in started:
            process.wait(END_DEADLINE)


def _names(workers: list[Worker]) -> str:
    return " and ".join(worker.name for worker in workers)
