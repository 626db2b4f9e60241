"""The exercises of the course: `check`, `hint`, `solution`, `progress`, and what tools need of them.

How an exercise is written down: the docstring of `course_utils.exercises.model`.
"""

from course_utils.exercises.catalogue import all_exercises, find
from course_utils.exercises.model import Exercise, Mistake, Outcome
from course_utils.exercises.solutions import reference_source
from course_utils.exercises.verbs import check, hint, progress, solution

__all__ = [
    "Exercise",
    "Mistake",
    "Outcome",
    "all_exercises",
    "check",
    "find",
    "hint",
    "progress",
    "reference_source",
    "solution",
]
