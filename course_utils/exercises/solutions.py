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


def available(exercise: Exercise) -> bool:
    """Whether this copy of the course holds the reference."""
    return _spec(exercise) is not None


def reference(exercise: Exercise) -> Any:
    """The reference answer itself: a function or a value."""
    _require(exercise)
    module = importlib.import_module(_module_name(exercise))
    if not hasattr(module, exercise.name):
        raise ExerciseError(
            f"{_module_name(exercise)} defines no {exercise.name}, which {exercise.id} needs."
        )
    return getattr(module, exercise.name)


def reference_source(exercise_id: str) -> str:
    """The reference as source that stands alone: its imports, then helpers that it uses, then the answer."""
    exercise = find(exercise_id)
    _require(exercise)
    text = Path(_spec(exercise).origin).read_text(encoding="utf-8")
    chosen = _needed(ast.parse(text), exercise)
    imports = [_segment(text, node) for node in chosen if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [_segment(text, node) for node in chosen if not isinstance(node, ast.Import | ast.ImportFrom)]
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


def _needed(tree, exercise):
    """The top-level statements that the answer needs, itself included, in the order of the file."""
    defines = {name: node for node in tree.body for name in _names_bound(node)}
    if exercise.name not in defines:
        raise ExerciseError(
            f"{_module_name(exercise)} defines no {exercise.name}, which {exercise.id} needs."
        )
    needed, open_names = [], [exercise.name]
    while open_names:
        node = defines.get(open_names.pop())
        if node is not None and node not in needed:
            needed.append(node)
            open_names += [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    return sorted(needed, key=lambda node: node.lineno)


def _names_bound(node):
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return []


def _segment(text, node):
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
