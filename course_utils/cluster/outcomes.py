"""How a run ended on each worker, where the first failure does not end it for the others.

`run` stops everybody when one worker fails, because nothing good can come any more. Who wants to know what
the survivors notice, and after how long, lets them go on: `LocalCluster.outcomes`.
"""

from dataclasses import dataclass, field
from typing import Any

from course_utils.cluster import diagnosis, faults
from course_utils.cluster.errors import ClusterTimeout, WorkerDied
from course_utils.cluster.supervisor import Run, Worker
from course_utils.errors import CourseError

LEFT_BEHIND = 15.0  # idle seconds: TensorFlow, which tells of a lost process after 10, will not tell any more
ALL_STOPPED = 1.0  # seconds after which nobody waits any more for workers that are all halted


@dataclass(frozen=True, eq=False)
class Outcome:
    """How one worker ended.

    `status`: "returned" (with `value`), "raised", "killed" (by a signal), "exited" (without returning),
    "stopped" (halted by SIGSTOP) or "cut off" (it still ran when the time was up). `error` says it in a
    sentence: WorkerError with the exception as `original`, WorkerDied, ClusterTimeout; None where it
    returned. `seconds` passed from the start of the run until then. `step` is the last that it reported
    with `faults.step`, `first_step` the first; None if it reported none. `struck`: when, in seconds from the
    start of the run, the first fault that was planned for it struck, None if none did.
    """

    task: str
    status: str
    value: Any = field(repr=False)  # weights, perhaps
    error: CourseError | None
    seconds: float
    step: int | None = None
    first_step: int | None = None
    struck: float | None = None

    def __str__(self) -> str:
        told = self.error.seen if self.error else f"{self.task.capitalize()} returned."
        at = "" if self.step is None else f" Its last step: {self.step}."
        return f"{self.seconds:6.2f} s  {told}{at}"


class ToTheEnd(Run):
    """A run that ends when all have returned or failed, or when its time is up; the results are Outcomes.

    It ends sooner where those that run wait in vain for one that has left, of which nothing can tell them.
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.all_stopped_since: float | None = None

    @property
    def failed(self) -> bool:
        return not all(worker.finished for worker in self._needed())

    def _judge(self) -> None:
        """Raise only what leaves nothing to look at."""
        self._judge_configurations()
        self._judge_ports()
        self._judge_starts()

    def _over(self) -> bool:
        running = self._running()
        if running and (self._time_is_up() or self._only_stopped(running)):
            self._ask_for_stacks()
            return True
        gone = [w for w in self._needed() if w not in running and "connected" in w.stages]
        return not running or self._wait_in_vain(gone, running, LEFT_BEHIND)

    def _running(self) -> list[Worker]:
        return [w for w in self._needed() if not (w.finished or w.error or w.died)]

    def _only_stopped(self, running: list[Worker]) -> bool:
        """Whether those that run are halted by a signal, and have been for a moment."""
        if not all(diagnosis.is_stopped(worker) for worker in running):
            self.all_stopped_since = None
            return False
        if self.all_stopped_since is None:
            self.all_stopped_since = self._now()
        return self._now() - self.all_stopped_since > ALL_STOPPED

    def _result(self, worker: Worker) -> Outcome:
        status, error = self._ending(worker)
        value = super()._result(worker) if worker.finished else None
        seconds = worker.stages.get("exit", self._now())
        progress = faults.Progress.read(worker.job.progress)
        steps = (progress.step, progress.first) if progress else (None, None)
        return Outcome(worker.name, status, value, error, seconds, *steps, self._struck(worker))

    def _struck(self, worker: Worker) -> float | None:
        fired = faults.fired(worker.job.environment[faults.FIRED])
        moments = [
            at - self.began for text, at in fired.items() if faults.Fault.parse(text).name == worker.name
        ]
        return min((moment for moment in moments if moment >= 0), default=None)  # below 0: an earlier attempt

    def _ending(self, worker: Worker) -> tuple[str, CourseError | None]:
        if worker.finished and "sys.exit" in worker.stages:
            return "exited", WorkerDied(f"{worker.name.capitalize()} called sys.exit() and did not return.")
        if worker.finished:
            return "returned", None
        if worker.error:
            return "raised", self._worker_error(worker)
        if worker.died:
            return "killed" if worker.process.exit_code < 0 else "exited", self._death(worker)
        if diagnosis.is_stopped(worker):
            return "stopped", ClusterTimeout(f"{worker.name.capitalize()} was stopped by SIGSTOP.")
        if worker not in self._needed():
            return "cut off", ClusterTimeout(f"{worker.name.capitalize()} served until the run was over.")
        state = diagnosis.waits([worker]).removesuffix(".")
        error = ClusterTimeout(
            f"{state[0].upper()}{state[1:]}, when it was cut off.",
            cause=diagnosis.who_left(self.workers),
            cure=self._where_logs(),
        )
        error.stacks = {worker.name: diagnosis.stack_text(worker.stack)} if worker.stack else {}
        return "cut off", error
