"""All exercises, read from the lesson files beside this one when they are asked for."""

import difflib
import importlib
import pkgutil
import re

from course_utils.errors import ExerciseError
from course_utils.exercises.model import Exercise


def all_exercises() -> list[Exercise]:
    """Every exercise of the course, in lesson order and, inside a lesson, in the order of its file."""
    return [exercise for lesson in lessons() for exercise in exercises_of(lesson)]


def lessons() -> list[str]:
    """The two digits of each lesson that has exercises."""
    folder = importlib.import_module("course_utils.exercises").__path__
    found = (re.fullmatch(r"lesson_(\d\d)", module.name) for module in pkgutil.iter_modules(folder))
    return sorted(match[1] for match in found if match)


def exercises_of(lesson: str) -> list[Exercise]:
    """The exercises of one lesson, given by its two digits."""
    return list(importlib.import_module(f"course_utils.exercises.lesson_{lesson}").EXERCISES)


def find(exercise_id: str) -> Exercise:
    """The exercise of that id. Raises ExerciseError, with the nearest id, if there is none."""
    if not isinstance(exercise_id, str):
        raise ExerciseError(
            f"The id of an exercise is text, but this is a {type(exercise_id).__name__}.",
            expected='Something like "04.compute_loss".',
        )
    if exercise_id[:2] in lessons():
        for exercise in exercises_of(exercise_id[:2]):
            if exercise.id == exercise_id:
                return exercise
    raise ExerciseError(f"There is no exercise {exercise_id!r}.", cure=_nearest(exercise_id))


def _nearest(exercise_id):
    known = {exercise.id: exercise for exercise in all_exercises()}
    names = {exercise.name: exercise.id for exercise in known.values()}
    close = difflib.get_close_matches(exercise_id, known, n=1, cutoff=0.5)
    close = close or [names[n] for n in difflib.get_close_matches(exercise_id, names, n=1, cutoff=0.6)]
    if close:
        return f'Did you mean "{close[0]}"?'
    return "The ids are: " + ", ".join(known) + "."
