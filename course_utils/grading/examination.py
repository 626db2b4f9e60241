"""Answers examined side by side, each once: kept results are taken from the store, new ones are put there.

What times out is examined once more when all others are done, alone and with twice the time: on a machine
that has too much to do, an honest answer must not be taken for one without an end.
"""

import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol

import psutil

from course_utils.errors import GradingError
from course_utils.exercises import catalogue
from course_utils.exercises.model import Outcome
from course_utils.grading.model import UNGRADED, Answer, Result
from course_utils.grading.options import Options
from course_utils.grading.store import Store, Terms

Watch = Callable[[int, int], None]
"""Called with how many answers are examined, and how many are to be; also while nothing changes."""
TICK = 0.5  # seconds

Wanted = tuple[str, Answer | None]


class Examiner(Protocol):
    """What examines answers: a `desk.Desk`."""

    def examine(self, exercise_id: str, answer: Answer | None, alone: bool = False) -> Result:
        """The verdict; None stands for nothing handed in. `alone`: a second look, with twice the time."""


class Stopped(GradingError):
    """The instructor stopped the batch; what was done is kept."""


@dataclass
class Faults:
    """What went wrong in our own code, for the instructor: tracebacks by place."""

    told: dict[str, str] = field(default_factory=dict)

    def add(self, place: str, error: BaseException) -> str:
        """What happened, in a line; the traceback is kept."""
        self.told[place] = "".join(traceback.format_exception(error))
        return f"{type(error).__name__}: {error}".partition("\n")[0][:300]

    def text(self) -> str:
        """All of them."""
        return "\n".join(f"{place}\n{trace}" for place, trace in sorted(self.told.items()))


class Examination:
    """The results of answers; a context manager, since the desk is opened when it is first needed."""

    def __init__(self, store: Store, terms: Terms, regrade, open_desk, options: Options, watch=None):
        self.store, self.terms, self.options = store, terms, options
        self.faults, self.memory = Faults(), 0
        self._regrade, self._open_desk, self._watch = regrade, open_desk, watch or (lambda done, all: None)
        self._desk: Examiner | None = None
        self._open = ExitStack()
        self._results: dict[str, Result] = {}
        self._stopped = threading.Event()
        self._measured = 0.0

    def __enter__(self) -> "Examination":
        return self

    def __exit__(self, *_):
        self._open.close()

    def result(self, exercise_id: str, answer: Answer | None) -> Result:
        """The result of an answer that was examined."""
        return self._results[self._key(exercise_id, answer)]

    def examine(self, wanted: Iterable[Wanted]) -> None:
        """Have results of all these, equal ones once. Raises Stopped on Ctrl-C; what is done is kept."""
        new = {}
        for exercise_id, answer in wanted:
            key = self._key(exercise_id, answer)
            if key not in self._results and not self._take(exercise_id, key):
                new[key] = (exercise_id, answer)
        if new:
            self._examine_new(new)

    def _key(self, exercise_id, answer):
        return self.terms.key(exercise_id, answer or Answer(exercise_id, ""))

    def _take(self, exercise_id, key):
        """Whether the store had it."""
        kept = None if exercise_id in self._regrade else self.store.read(exercise_id, key)
        if kept is not None and kept.exercise_id == exercise_id:
            self._results[key] = kept
        return key in self._results

    def _examine_new(self, new: dict[str, Wanted]) -> None:
        try:
            self._examine_side_by_side(new, self.options.jobs)
            slow = {key: wanted for key, wanted in new.items() if key not in self._results}
            if slow:
                self._examine_side_by_side(slow, 1, alone=True)
        except KeyboardInterrupt:
            kept = sum(key in self._results for key in new)
            raise Stopped(f"Stopped: {kept} of {len(new)} answers are graded, and kept.") from None

    def _examine_side_by_side(self, new: dict[str, Wanted], jobs: int, alone: bool = False) -> None:
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="grading")
        done: queue.SimpleQueue[Future] = queue.SimpleQueue()
        try:
            self._desk = self._desk or self._open.enter_context(self._open_desk(self.terms, self.options))
            for key, wanted in new.items():
                pool.submit(self._examined, key, *wanted, alone).add_done_callback(done.put)
            self._follow(done, len(new))
        except BaseException:
            self._stop(pool)
            raise
        pool.shutdown()

    def _follow(self, done, total):
        """Wait until all are done; raises what went wrong with keeping one, such as a full disk."""
        finished = 0
        while finished < total:
            self._watch(finished, total)
            self._measure()
            try:
                done.get(timeout=TICK).result()  # a wait without an end could not be interrupted on Windows
                finished += 1
            except queue.Empty:
                continue
        self._watch(finished, total)

    def _stop(self, pool):
        """Begin nothing more, and end what runs; what it still gives is not worth keeping."""
        self._stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        self._open.close()
        pool.shutdown()

    def _examined(self, key: str, exercise_id: str, answer: Answer | None, alone: bool) -> None:
        """None; a result is kept whatever happens, unless all is stopped, or it is to have a second look."""
        if self._stopped.is_set():
            return
        try:
            # Notes are on one student's notebook; the result is of all that gave this answer.
            result = self._desk.examine(exercise_id, answer and replace(answer, notes=()), alone)
        except BaseException as error:
            result = self._fault(exercise_id, answer, error)
        if self._stopped.is_set() or (result.outcome == Outcome.TIMED_OUT and not alone):
            return
        if result.outcome != UNGRADED:
            self.store.write(key, result)
        self._results[key] = result

    def _fault(self, exercise_id, answer, error):
        exercise = catalogue.find(exercise_id)
        told = self.faults.add(f"{exercise_id}\n{answer.source if answer else ''}", error)
        return Result(
            exercise_id,
            exercise.title,
            UNGRADED,
            points=0.0,
            possible=float(exercise.points),
            message="This answer could not be graded. The fault is in the grader, not in the answer.",
            try_this="You need not do anything: your instructor has been told.",
            source=answer.source if answer else "",
            look=(f"A fault of the grader: {told} (see faults.txt). Run it again, or give points by hand.",),
        )

    def _measure(self):
        """Note what this process and all that it started hold in memory, at most once in a second."""
        if time.monotonic() - self._measured > 1:
            self.memory = max(self.memory, _memory())
            self._measured = time.monotonic()


def _memory():
    """Bytes of this process and its descendants; what they share is counted once, where the system tells."""
    us = psutil.Process()
    return sum(_share(process) for process in [us, *us.children(recursive=True)])


def _share(process):
    try:
        return getattr(process.memory_full_info(), "pss", 0) or process.memory_info().rss
    except psutil.AccessDenied:
        return _resident(process)
    except psutil.Error:
        return 0


def _resident(process):
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0
