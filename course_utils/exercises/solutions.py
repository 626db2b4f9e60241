"""The references: found by the exercise's name in `course_utils/solutions/lesson_NN.py`, if they are "
"there."""

import ast
import importlib
import importlib.util
from pathlib import Path
from typing import Any

from course_utils.errors import ExerciseError
from course_utils.exercises.catalogue import find
from course_utils.exercises.model import Exercise
from course_utils.exercises.needs import Statement, needed, statements


def available(exercise: Exercise) -> bool:
    """Whether this copy of the course holds the reference."""
    return _spec(exercise) is not None


def reference(exercise: Exercise) -> Any:
    """The reference answer itself: a function or a value."""
    _require(exercise)
    module = importlib.import_module(_module_name(exercise))
    if not hasattr(module, exercise.name):
        raise _lacks(exercise)
    return getattr(module, exercise.name)


def reference_source(exercise_id: str) -> str:
    """The reference as source that stands alone: its imports, then helpers that it uses, then the answer."""
    exercise = find(exercise_id)
    _require(exercise)
    text = Path(_spec(exercise).origin).read_text(encoding="utf-8")
    lines = text.splitlines()
    imports, others = [], []
    for statement in _needed(text, exercise):
        kind = imports if isinstance(statement.node, ast.Import | ast.ImportFrom) else others
        kind.append("\n".join(lines[statement.lines.start - 1 : statement.lines.stop - 1]))
    return "\n\n\n".join(["\n".join(imports)] * bool(imports) + others) + "\n"


def _module_name(exercise):
    return f"course_utils.solutions.lesson_{exercise.lesson}"


def _spec(exercise):
    try:
        return importlib.util.find_spec(_module_name(exercise))
    except ModuleNotFoundError:  # the whole folder is missing
        return None


def _require(exercise):
    if not available(exercise):
        raise ExerciseError(
            f"This copy of the course holds no solution for {exercise.id}.",
            cause="Solutions are left out of the copies that learners get.",
            cure=f'cu.hint("{exercise.id}") helps; your instructor has the solutions.',
        )


def _needed(text, exercise) -> list[Statement]:
    """The top-level statements that the answer needs, itself included, in the order of the file."""
    every = statements(text)
    if not any(exercise.name in statement.binds for statement in every):
        raise _lacks(exercise)
    return needed(every, [exercise.name])


def _lacks(exercise):
    return ExerciseError(f"{_module_name(exercise)} defines no {exercise.name}, which {exercise.id} needs.")
