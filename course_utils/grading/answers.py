"""From an answer as it was handed in to the program that is run for it, and to what is shown of it.

Only the answer's own cells are run. Names that they use without defining them are taken from the notebook's
own import statements, then from the cells of the released lesson, and last from helpers that the learner
wrote into another cell. So a released cell that was edited or deleted costs nothing and gains nothing.
"""

import ast
import functools
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from course_utils.exercises.needs import (
    BUILT_IN,
    UNREADABLE,
    Statement,
    names_bound,
    names_used,
    needed,
    statements,
)
from course_utils.grading.looking import look
from course_utils.grading.magics import python_of
from course_utils.grading.model import Answer, Result
from course_utils.notebooks import sources

ELSEWHERE = "# Run before it, from other cells of the notebook:"


@dataclass(frozen=True)
class Program:
    """What is run for an answer: `before`, then `source`. `missing` are names that neither defines.

    `own` is what of `before` the learner wrote.
    """

    source: str
    before: str = ""
    missing: tuple[str, ...] = ()
    own: str = ""

    @property
    def shown(self) -> str:
        """All that is run of the learner's: first the answer, so that the lines keep their numbers."""
        return f"{self.source.rstrip()}\n\n{ELSEWHERE}\n{self.own}\n" if self.own else self.source

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def program(answer: Answer, cells: Iterable[str]) -> Program:
    """The program for an answer, given the code cells of the released lesson, answers left out.

    Never raises for what was handed in: text that Python cannot read is run as it is, and fails there.
    """
    try:
        bound = {name for node in ast.parse(answer.source).body for name in _all_bound(node)}
        wanted = names_used(answer.source) - bound - BUILT_IN
    except UNREADABLE:
        return Program(answer.source)
    imports = _readable(answer.imports)
    cells = tuple(cells)
    release = _without(_release_statements(cells), _bound_by(imports))
    helpers = _without(_readable(answer.helpers), _bound_by([*imports, *release]))
    chosen = needed([*imports, *release, *helpers], wanted)
    missing = (_used_by(chosen) | wanted) - _bound_by(chosen) - BUILT_IN
    stars = [statement for statement in imports if missing and "*" in statement.binds]
    run = [*stars, *chosen]
    released = {statement.text for statement in _release_statements(cells)}
    own = [s for s in run if s not in release and s.text not in released]
    unknown = () if stars else tuple(sorted(missing & wanted))
    return Program(answer.source, _as_text(run), unknown, _as_text(own))


@functools.cache
def release_cells(lesson: str, folder: Path = sources.FOLDER) -> tuple[str, ...]:
    """The code cells of a lesson, given by its two digits, without the answer cells.

    From the lesson's source; where that was left out of this copy of the course, from its notebook.
    """
    texts = next(iter(sorted((folder / "source").glob(f"{lesson}_*.py"))), None)
    if texts is not None:
        cells = sources.read(texts).cells
        return tuple(c.text for c in cells if c.kind == "code" and c.exercise_id is None)
    notebook = next(iter(sorted(folder.glob(f"{lesson}_*.ipynb"))), None)
    import nbformat  # takes seconds to import

    cells = nbformat.read(notebook, as_version=4).cells if notebook else []
    return tuple(c.source for c in cells if c.cell_type == "code" and "exercise_id" not in c.metadata)


def flagged(result: Result, ran: Program) -> Result:
    """The result with all that was run of the learner's, and what an instructor should look at in it."""
    return replace(result, source=ran.shown, look=(*result.look, *look(ran.shown)))


def _readable(source: str) -> list[Statement]:
    try:
        return statements(source)
    except UNREADABLE:
        return []


@functools.lru_cache(maxsize=64)
def _release_statements(cells: tuple[str, ...]) -> tuple[Statement, ...]:
    return tuple(statement for cell in cells for statement in _readable(python_of(cell)[0]))


def _as_text(run: Iterable[Statement]) -> str:
    return "\n".join(statement.text for statement in run)


def _without(among: Iterable[Statement], bound: set[str]) -> list[Statement]:
    """Those that define something which is not bound already."""
    return [statement for statement in among if not statement.binds <= bound]


def _used_by(among: Iterable[Statement]) -> set[str]:
    return {name for statement in among for name in statement.uses}


def _bound_by(among: Iterable[Statement]) -> set[str]:
    return {name for statement in among for name in statement.binds}


def _all_bound(node: ast.stmt) -> Iterable[str]:
    """What a top-level statement may bind, those inside `if`, `for`, `with` and `try` included."""
    yield from names_bound(node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif isinstance(inner, ast.stmt) and inner is not node:
            yield from names_bound(inner)
        elif isinstance(inner, ast.ExceptHandler) and inner.name:
            yield inner.name
