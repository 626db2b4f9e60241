"""The desk where answers are examined: each in a sandbox, side by side; judged here, one after the other."""

import secrets
import threading
from collections.abc import Iterable
from typing import Protocol

from course_utils.exercises import catalogue
from course_utils.exercises.model import Exercise
from course_utils.grading import answers, verdicts
from course_utils.grading.model import Answer, Raw, Result

ENTRY = "course_utils.grading.examining:prepare"
PATIENCE = 1.5  # times the learner's time limit: several answers share the machine
OVERHEAD = 20  # seconds for what is not the answer's: the process, the lesson's code, a last grace
ALONE = 2  # times as long for a second look, while nothing else of ours runs
DEVICES = 4  # as in the sandbox


class Runs(Protocol):
    """What runs a job in a sandbox: `runner.Runner` with `ENTRY`."""

    def run(self, job: dict, seconds: float | None = None) -> Raw:
        """What came out."""


class Desk:
    """Examines answers, from several threads at once.

    `seed` makes the cases; with `timeout`, that many seconds stand in place of every exercise's own limit.
    `cells` are the code cells of the released lesson by its two digits; without it, those of this course.
    """

    def __init__(
        self,
        runner: Runs,
        seed: int,
        timeout: float | None = None,
        cells: dict[str, Iterable[str]] | None = None,
    ):
        self.runner, self.seed, self.timeout = runner, seed, timeout
        self.cells = cells or {}

    def examine(self, exercise_id: str, answer: Answer | None, alone: bool = False) -> Result:
        """The result; None stands for nothing handed in. Raises ExerciseError for an unknown id.

        `alone` is for a second look at what has timed out while others ran: it gives twice the time.
        """
        exercise = catalogue.find(exercise_id)
        if answer is None:
            return verdicts.not_attempted(exercise)
        cells = self.cells.get(exercise.lesson) or answers.release_cells(exercise.lesson)
        program = answers.program(answer, cells)
        token, seconds = secrets.token_hex(16), self.timeout or PATIENCE * exercise.time_limit
        seconds *= ALONE if alone else 1
        job = {"exercise": exercise_id, "seed": self.seed, "token": token, "seconds": seconds}
        raw = self.runner.run({**job, "program": program.to_json()}, seconds + OVERHEAD)
        return answers.flagged(self.judged(exercise, answer, raw, token, program.missing), program)

    def judged(self, exercise: Exercise, answer: Answer, raw: Raw, token: str, missing=()) -> Result:
        """The result, from what a job with that token gave back; one at a time over all threads."""
        with _judging:
            _get_ready()
            return verdicts.verdict(exercise, answer, raw, self.seed, token, missing)


_judging = threading.Lock()  # known wrong answers run in this process, and TensorFlow is one for all


def _get_ready() -> None:
    """None; this process has as many devices as one in which an answer runs."""
    from course_utils import devices

    devices.simulate(DEVICES)
