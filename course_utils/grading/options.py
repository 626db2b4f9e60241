"""What a run of `course grade` is told, and how its words are read."""

import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from course_utils.errors import GradingError
from course_utils.exercises import catalogue
from course_utils.exercises.observing import LEARNER_SEED

GIB = 1024**3
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}


@dataclass(frozen=True)
class Options:
    """What a run is told. Ids and lessons are checked by `exercises`, the rest where it is read."""

    jobs: int = 2
    timeout: float | None = None  # seconds an exercise, in place of its own limit
    memory: int = 2 * GIB  # bytes an answer, all its processes together
    seed: int | None = None  # None: that of the last run into the same folder, else a new one
    only: tuple[str, ...] = ()  # ids of exercises, lessons
    lessons: tuple[str, ...] = ()
    regrade: tuple[str, ...] = ()  # the same, or "all"
    overrides: Path | None = None  # None: that of the last run, else overrides.csv in the output folder
    late_policy: str = ""
    due: datetime | None = None
    junit: Path | None = None
    assignment: str = ""  # its name in Canvas


def words(told: Iterable[str]) -> tuple[str, ...]:
    """The words of an option that may be given often, each time several: "04,05" or "04 05"."""
    return tuple(word for text in told for word in re.split(r"[\s,]+", text) if word)


def size(text: str) -> int:
    """Bytes from text such as "2GiB", "512 MiB", "1.5g"; raises GradingError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip().lower())
    if not found or float(found[1]) == 0:
        raise GradingError(f"{text!r} is no amount of memory.", expected='Something like "2GiB" or "512MiB".')
    return int(float(found[1]) * _UNITS[found[2] or ""])


def exercises(options: Options, found: Iterable[str]) -> tuple[str, ...]:
    """The ids of the exercises that count, in the order of the course.

    Those of `options.lessons`, else of the lessons `found` in the submissions, less what `options.only`
    leaves out. Raises GradingError for a lesson, ExerciseError for an exercise, that does not exist.
    """
    only = selected(options.only)
    if options.lessons:
        lessons = {_lesson(word) for word in options.lessons}
    else:
        lessons = {exercise_id[:2] for exercise_id in only} if only else {*found} & {*catalogue.lessons()}
    ids = tuple(e.id for lesson in sorted(lessons) for e in catalogue.exercises_of(lesson))
    return tuple(exercise_id for exercise_id in ids if not options.only or exercise_id in only)


def selected(told: Iterable[str]) -> frozenset[str]:
    """The ids that ids, lessons and "all" mean."""
    ids: set[str] = set()
    for word in told:
        if word == "all":
            ids.update(exercise.id for exercise in catalogue.all_exercises())
        elif "." in word:
            ids.add(catalogue.find(word).id)
        else:
            ids.update(exercise.id for exercise in catalogue.exercises_of(_lesson(word)))
    return frozenset(ids)


def check_seed(seed: int | None) -> None:
    """None; raises GradingError for the learners' own seed, whose results they have seen."""
    if seed == LEARNER_SEED:
        raise GradingError(
            f"Seed {LEARNER_SEED} is the learners' own: they know its results.",
            cure="Take another one, or none: then one is drawn, and kept for the next run.",
        )


def new_seed() -> int:
    """A seed that no learner can know."""
    return secrets.randbelow(2**31 - 1) + 1


def cores() -> int:
    """How many answers to examine side by side, where nobody says."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, len(affinity(0)) if affinity else os.cpu_count() or 1)


def _lesson(word):
    """Two digits from "04", "4" or "04_loss_scaling"."""
    found = re.match(r"(\d{1,2})(?:_|$)", word)
    lesson = f"{int(found[1]):02}" if found else word
    if lesson not in catalogue.lessons():
        raise GradingError(
            f"There is no lesson {word!r} with exercises.",
            expected=f"One or more of {' '.join(catalogue.lessons())}.",
        )
    return lesson
