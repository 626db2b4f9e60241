"""An exercise without all that knows the right result, to be loaded beside a learner's code.

A lesson's file of exercises holds the right result, the known wrong answers and the hints. None of that is
loaded here: of the file's statements, only those that `observe` needs are compiled at all.
"""

import ast
import functools
import importlib.util
import linecache
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cloudpickle

from course_utils.errors import ExerciseError
from course_utils.exercises import observing
from course_utils.exercises.model import Exercise, lazy, one_empty_case
from course_utils.exercises.needs import Statement, names_used, needed, statements

LESSONS = "course_utils.exercises.lesson_"


def stripped(exercise_id: str, seed: int) -> Exercise:
    """The exercise with the cases of this seed and what `observe` needs; nothing else of its file is loaded.

    Raises ExerciseError where the lesson's file holds no such exercise.
    """
    name = f"{LESSONS}{exercise_id[:2]}"
    parts = _keywords(name, exercise_id)
    cases = _cases(name, parts, seed)
    observe = _evaluated(name, parts["observe"], "observing")
    _load_lazy_modules(observe)
    _statements.cache_clear()
    return _exercise(parts, cases=lambda random: cases, observe=observe)


def _cases(name, parts, seed) -> list[dict]:
    make = _evaluated(name, parts["cases"], "cases") if "cases" in parts else one_empty_case
    cases = observing.cases_of(_exercise(parts, cases=make, observe=_nothing), seed)
    for module in [module for module in sys.modules if module.endswith(" for cases")]:
        del sys.modules[module]
    return cases


def _nothing(*_: Any) -> None:
    """What stands where the right result stood."""


def _exercise(parts, **loaded):
    kept = ("id", "title", "points", "length", "signature", "stub", "tolerance", "time_limit")
    told = {key: ast.literal_eval(parts[key]) for key in kept if key in parts}
    return Exercise(**told, **loaded, hints=("", ""), expected=_nothing, mistakes=())


def _keywords(name, exercise_id) -> dict[str, ast.expr]:
    """The arguments of the call that makes the exercise, as they are written."""
    for node in ast.walk(ast.parse(_text(name))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Exercise":
            parts = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
            if isinstance(parts.get("id"), ast.Constant) and parts["id"].value == exercise_id:
                return parts
    raise ExerciseError(
        f"No exercise {exercise_id!r} is written down in {name.rpartition('.')[2]}.py.",
        expected='A call Exercise(id="…", …) at the top level, with the id as plain text.',
    )


def _evaluated(name, expression: ast.expr, purpose: str) -> Any:
    """What the expression gives, in a module of its own which holds only what it needs."""
    module = _module(name, names_used(ast.unparse(expression)), purpose)
    return eval(compile(ast.Expression(expression), module.__file__, "eval"), module.__dict__)


def _module(name: str, names: Iterable[str], purpose: str) -> types.ModuleType:
    """A module with those of the file's names, and what they need.

    It has another name than the file: nobody who imports the lesson gets hold of it. Dataclasses, AutoGraph
    and the workers of a cluster look for it all the same, so it is known under that other name.
    """
    chosen = needed(_statements(name), names)
    module = types.ModuleType(f"{name.rpartition('.')[2]} for {purpose}")
    module.__file__ = _file(name)
    _show_lines(name, chosen)
    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)
    for statement in chosen:
        _run(statement, module, purpose)
    return module


def _run(statement: Statement, module, purpose) -> None:
    node = statement.node
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(LESSONS):
        other = _module(node.module, [alias.name for alias in node.names], purpose)
        vars(module).update({alias.asname or alias.name: vars(other)[alias.name] for alias in node.names})
    else:
        exec(compile(ast.Module([node], []), module.__file__, "exec"), module.__dict__)


@functools.cache
def _statements(name: str) -> list[Statement]:
    return statements(_text(name))


def _show_lines(name, chosen: list[Statement]) -> None:
    """AutoGraph and tracebacks read the lines of what was loaded, and an empty line for any other."""
    file, text = _file(name), _text(name)
    shown = {number for statement in chosen for number in statement.lines}
    shown |= {
        number for number, line in enumerate(linecache.cache.get(file, (0, 0, []))[2], 1) if line.strip()
    }
    lines = [line if n in shown else "\n" for n, line in enumerate(text.splitlines(keepends=True), 1)]
    linecache.cache[file] = (len(text), None, lines, file)


def _load_lazy_modules(observe) -> None:
    """Import what the lesson uses now: later its files cannot be seen."""
    for value in list(getattr(observe, "__globals__", {}).values()):
        if isinstance(value, lazy):
            value.load()


def _text(name: str) -> str:
    return Path(_file(name)).read_text(encoding="utf-8")


def _file(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ExerciseError(f"There is no file of exercises {name}.")
    return spec.origin
