"""A desk without a sandbox, for tests of what surrounds it: answers are words, not code."""

import threading
from contextlib import contextmanager

from course_utils.exercises import catalogue
from course_utils.grading.model import Answer, Notebook, Result, Submission


class FakeDesk:
    """An answer "right" passes, "" is not attempted, "bug" raises, anything else fails; calls are counted.

    "endless" times out; so does "slow", unless it is examined alone.
    """

    means = "no sandbox"

    def __init__(self):
        self.examined: list[tuple[str, str]] = []
        self.alone: list[tuple[str, str]] = []  # those of them that were a second look
        self.opened = 0
        self.lock = threading.Lock()
        self.before = lambda exercise_id, source: None

    @contextmanager
    def open(self, program, options):
        self.opened += 1
        yield self

    def examine(self, exercise_id: str, answer: Answer | None, alone: bool = False) -> Result:
        source = answer.source if answer else ""
        self.before(exercise_id, source)
        with self.lock:
            self.examined.append((exercise_id, source))
            self.alone += [(exercise_id, source)] if alone else []
        if source == "bug":
            raise ZeroDivisionError("in the grader itself")
        exercise = catalogue.find(exercise_id)
        outcome = {"right": "passed", "": "not attempted", "endless": "timed out"}.get(source, "failed")
        if source == "slow":
            outcome = "passed" if alone else "timed out"
        return Result(
            exercise_id,
            exercise.title,
            outcome,
            points=float(exercise.points) if outcome == "passed" else 0.0,
            possible=float(exercise.points),
            mistake="a mistake" if outcome == "failed" else None,
            message=f"You wrote {source!r}.",
            source=source,
            notes=answer.notes if answer else (),
        )


def handed_in(key: str, answers: dict[str, str], student: str = "", name: str = "", **more) -> Submission:
    """A submission of one notebook with these answers, by exercise."""
    notebook = Notebook(
        name=name or f"{key}.ipynb",
        lesson="04",
        answers={exercise_id: Answer(exercise_id, source) for exercise_id, source in answers.items()},
    )
    return Submission(key, student or key.title(), (notebook,), **more)
