"""A job that outlives its workers: when one fails, all are started again, up to a limit.

All, and not only the one that died: the others wait in a collective that can never be completed, their
processes know a cluster with that very worker in it, and they are a few steps further than any checkpoint.
So an attempt is a whole run, with fresh processes on fresh ports; what it goes on from, the function reads
from its checkpoints.
"""

import itertools
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from course_utils.cluster import diagnosis, faults, folders
from course_utils.cluster.errors import plain
from course_utils.cluster.local import LocalCluster, warn_of_faults
from course_utils.cluster.outcomes import Outcome, ToTheEnd
from course_utils.cluster.supervisor import CAUSE_GRACE, Worker
from course_utils.cluster.words import shortened
from course_utils.errors import ClusterError, ConfigError

PREEMPTED = 42  # the exit code of tf.distribute's PreemptionCheckpointHandler after it has saved
LEAVE_GRACE = 10.0  # seconds that the others have to save and leave as well


@dataclass(frozen=True)
class Ending:
    """How an attempt ended: `how` is "finished", "crashed", "hung" or "preempted".

    Crashed: a process ended or raised. Hung: all were alive and nothing moved. Preempted: a worker was asked
    to go, saved, and left. `reason` is a sentence, `culprit` the task where it began, both empty after a
    finish; `outcomes` has every worker's own end.
    """

    how: str
    reason: str = ""
    culprit: str = ""
    outcomes: Sequence[Outcome] = ()


@dataclass(frozen=True)
class Attempt:
    """One try of a job, from `start` to `end` in seconds since the first one began; numbered from 1."""

    number: int
    start: float
    end: float
    ending: Ending
    timeline: Sequence[Sequence[tuple[str, float]]] = ()  # of each worker, in seconds since `start`

    def __str__(self) -> str:
        took = f"attempt {self.number}: {self.ending.how} after {self.end - self.start:.1f} s"
        return f"{took}. {self.ending.reason}".rstrip(". ") + "."


@dataclass(frozen=True)
class Restarts:
    """How often a job may be started again, and the wait before: `backoff` seconds, doubled every time."""

    limit: int = 3
    backoff: float = 0.5
    longest: float = 60.0

    def __post_init__(self):
        if type(self.limit) is not int or self.limit < 0:
            raise ConfigError(f"{self.limit!r} restarts cannot be.", expected="a whole number from 0.")
        if not self.backoff >= 0:
            raise ConfigError(f"A back-off of {self.backoff!r} cannot be.", expected="seconds, 0 or more.")

    def wait_before(self, restart: int) -> float:
        """Seconds to wait before the restart of that number, counted from 1."""
        return min(self.longest, self.backoff * 2 ** (restart - 1))


class GaveUp(ClusterError):
    """The job failed once more than it may be restarted. `attempts` has all, `ending` the last end."""

    attempts: Sequence[Attempt] = ()

    @property
    def ending(self) -> Ending:
        return self.attempts[-1].ending


def keep_trying(
    attempt: Callable[[int], Ending],
    restarts: Restarts,
    on_end: Callable[[Attempt], None] = lambda attempt: None,
    wait: Callable[[float], None] = time.sleep,
) -> list[Attempt]:
    """All attempts, the last of which finished. Raises GaveUp when there were too many.

    `attempt(number)` starts everything anew, waits for its end and says how it was; nothing of it may be left
    running. `on_end` hears of each attempt as it ends.
    """
    began = time.monotonic()
    attempts: list[Attempt] = []
    for number in itertools.count(1):
        start = time.monotonic() - began
        ending = attempt(number)
        attempts.append(Attempt(number, start, time.monotonic() - began, ending))
        on_end(attempts[-1])
        if ending.how == "finished":
            return attempts
        if number > restarts.limit:
            raise _gave_up(attempts)
        wait(restarts.wait_before(number))


@dataclass
class Supervisor:
    """Runs a function on all workers of a cluster, and again on all of them when one fails.

    max_restarts: how often at most. backoff: seconds before the first restart, doubled every time.
    hang_after: seconds in which no worker reports a step, after at least one did, before the job counts as
    hung; the function reports with `faults.step` or `faults.callback()`. Without reports, only the cluster's
    time limit, which holds for each attempt, ends a hang.

    Each restart counts, whatever it was for. `attempts` has what happened. A fault of the cluster's `faults`
    fires once over all attempts.
    """

    cluster: LocalCluster
    max_restarts: int = 3
    backoff: float = 0.5
    hang_after: float = 60.0
    attempts: list[Attempt] = field(default_factory=list, init=False)

    def __post_init__(self):
        if not isinstance(self.cluster, LocalCluster):
            raise ConfigError(
                f"Supervisor({shortened(repr(self.cluster), 80)}) has no cluster to watch.",
                expected="a LocalCluster.",
                cure="Supervisor(LocalCluster(workers=2)).run(fn) runs fn on 2 workers.",
            )
        self.restarts = Restarts(self.max_restarts, self.backoff)
        if not self.hang_after > 0:
            raise ConfigError(
                f"hang_after={self.hang_after!r} cannot be.", expected="a number of seconds above 0."
            )

    def run(self, fn: Callable, /, *args, **kwargs) -> list:
        """What the function returned on each task in the attempt that finished, as `LocalCluster.run`.

        Raises GaveUp when the limit is reached, and at once what no restart can mend: ConfigError.
        """
        self.attempts = []
        self.cluster.warm_up()  # which is no part of the first attempt
        fired = folders.temporary()

        def attempt(number: int) -> Ending:
            return self.cluster._run_on_new_ports(self._watched, fn, args, kwargs, str(fired))

        try:
            keep_trying(attempt, self.restarts, self._note)
            warn_of_faults(self.cluster.faults, fired, self._last_steps(), depth=1)
        except GaveUp as error:
            error.attempts = self.attempts
            raise plain(error) from None
        finally:
            shutil.rmtree(fired, ignore_errors=True)
        return [outcome.value for outcome in self.attempts[-1].ending.outcomes]

    def _last_steps(self) -> dict[str, list[int | None]]:
        outcomes = [outcome for attempt in self.attempts for outcome in attempt.ending.outcomes]
        return {task: [o.step for o in outcomes if o.task == task] for task in self.cluster.tasks}

    def _watched(self, *arguments) -> "UntilFailure":
        return UntilFailure(*arguments, hang_after=self.hang_after)

    def _note(self, attempt: Attempt) -> None:
        timeline = self.cluster.timeline
        self.attempts.append(Attempt(attempt.number, attempt.start, attempt.end, attempt.ending, timeline))
        if self.cluster.output != "quiet" and attempt.ending.how != "finished":
            print(attempt)


class UntilFailure(ToTheEnd):
    """A run that ends with its first failure, or when nothing moves any more; `results` gives an Ending."""

    def __init__(self, *arguments, hang_after: float):
        super().__init__(*arguments)
        self.hang_after = hang_after
        self.hung = ""

    def _results(self) -> Ending:
        outcomes = super()._results()
        by_task = dict(zip([worker.name for worker in self.workers], outcomes, strict=True))
        if not self.failed:
            return Ending("finished", outcomes=outcomes)
        if self.hung and self._running():
            return Ending("hung", self.hung, self._stuck().name, outcomes)
        culprit = self._culprit()
        error = by_task[culprit.name].error
        return Ending("preempted" if _left(culprit) else "crashed", error.seen, culprit.name, outcomes)

    def _over(self) -> bool:
        running, causes = self._running(), self._causes()
        if not running:
            return True
        if causes:
            since = self._now() - causes[0].stages["exit"]
            return not all(map(_left, causes)) or since > LEAVE_GRACE
        if self.first_error_at and time.monotonic() - self.first_error_at > CAUSE_GRACE:
            return self._halted() is None or self._hangs("Others gave up waiting: ")
        if self._time_is_up():
            return self._hangs(f"The attempt did not finish within {self.timeout:g} s: ")
        if self._stalled():
            return self._hangs(f"No worker has finished a step for {self.hang_after:g} s: ")
        return False

    def _causes(self) -> list[Worker]:
        """Those that failed by themselves, the first of them first."""
        # A coordinator lives on without one of its workers, but not without a parameter server.
        vital = self._needed() + [w for w in self.workers if w.task.type == "ps"]
        causes = [w for w in vital if w.died or (w.error and not w.error.consequence)]
        return sorted(causes, key=lambda worker: worker.stages["exit"])

    def _culprit(self) -> Worker:
        victims = sorted((w for w in self.workers if w.error), key=lambda worker: worker.stages["exit"])
        return (self._causes() + victims)[0]

    def _stalled(self) -> bool:
        said = [progress.at for w in self.workers if (progress := faults.Progress.read(w.job.progress))]
        return bool(said) and time.monotonic() - max(said) > self.hang_after

    def _hangs(self, seen: str) -> bool:
        self._ask_for_stacks()
        self.hung = seen + diagnosis.waits(self.workers)
        return True

    def _halted(self) -> Worker | None:
        return next((worker for worker in self._running() if diagnosis.is_stopped(worker)), None)

    def _stuck(self) -> Worker:
        """The one that keeps the others waiting: halted, or not in TensorFlow, or the furthest behind."""
        running = self._running()
        elsewhere = [w for w in running if w.stack and not diagnosis.in_tensorflow(w.stack)]
        return self._halted() or min(elsewhere or running, key=self._steps)

    def _steps(self, worker: Worker) -> int:
        progress = faults.Progress.read(worker.job.progress)
        return progress.step if progress else -1


def _left(worker: Worker) -> bool:
    """Whether it saved and went because it was asked to."""
    error = worker.error
    return bool(error) and error.kind == "SystemExit" and error.message == f"sys.exit({PREEMPTED})"


def _gave_up(attempts: list[Attempt]) -> GaveUp:
    ending = attempts[-1].ending
    tries = "once" if len(attempts) == 1 else f"{len(attempts)} times"
    how = "was preempted" if ending.how == "preempted" else ending.how
    error = GaveUp(
        f"The job was tried {tries} and never finished. The last time it {how}: {ending.reason}",
        cure="Mend the cause; a job that fails at the same step every time will not finish by restarts.",
    )
    error.attempts = attempts
    return error
