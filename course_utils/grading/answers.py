"""From an answer as it was handed in to the program that is run for it, and to what a teacher should look at.

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

from course_utils.grading.magics import python_of
from course_utils.grading.model import Answer, Result
from course_utils.grading.needs import (
    BUILT_IN,
    UNREADABLE,
    Statement,
    names_bound,
    names_used,
    needed,
    statements,
)
from course_utils.notebooks import sources


@dataclass(frozen=True)
class Program:
    """What is run for an answer: `before`, then `source`. `missing` are names that neither defines."""

    source: str
    before: str = ""
    missing: tuple[str, ...] = ()

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
    release = _without(_release_statements(tuple(cells)), _bound_by(imports))
    helpers = _without(_readable(answer.helpers), _bound_by([*imports, *release]))
    chosen = needed([*imports, *release, *helpers], wanted)
    missing = (_used_by(chosen) | wanted) - _bound_by(chosen) - BUILT_IN
    stars = [statement for statement in imports if missing and "*" in statement.binds]
    before = "\n".join(statement.text for statement in [*stars, *chosen])
    return Program(answer.source, before, () if stars else tuple(sorted(missing & wanted)))


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


def look(source: str) -> tuple[str, ...]:
    """What an instructor should look at, a sentence each: what no honest answer needs. Never a verdict."""
    try:
        tree = ast.parse(source)
    except UNREADABLE:
        return ()
    found = [sentence for node in ast.walk(tree) for sentence in _odd(node)]
    return tuple(dict.fromkeys(found))


def flagged(result: Result) -> Result:
    """The result with what an instructor should look at in its source."""
    return replace(result, look=(*result.look, *look(result.source)))


def _readable(source: str) -> list[Statement]:
    try:
        return statements(source)
    except UNREADABLE:
        return []


@functools.lru_cache(maxsize=64)
def _release_statements(cells: tuple[str, ...]) -> tuple[Statement, ...]:
    return tuple(statement for cell in cells for statement in _readable(python_of(cell)[0]))


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


# --- what an instructor should look at

_MODULES = {
    "ctypes": "reaches into Python's own memory",
    "gc": "asks for the objects in memory",
    "inspect": "looks at code and at the call stack",
    "subprocess": "starts other programs",
    "multiprocessing": "starts other processes",
    "socket": "opens connections",
    "importlib": "imports modules by roundabout ways",
    "builtins": "changes or calls what Python itself is made of",
}
_OURS = ("course_utils.exercises", "course_utils.solutions", "course_utils.grading")
_NAMES = {
    "_getframe": "looks at the call stack",
    "_current_frames": "looks at the call stack",
    "f_back": "looks at the call stack",
    "f_locals": "looks at the call stack",
    "f_globals": "looks at the call stack",
    "tb_frame": "looks at the call stack",
    "__globals__": "reaches into other functions",
    "__closure__": "reaches into other functions",
    "__code__": "reaches into other functions",
    "__subclasses__": "asks for all classes in memory",
}
_CALLS = {
    "exec": "runs text as code",
    "eval": "runs text as code",
    "compile": "runs text as code",
    "__import__": "imports modules by roundabout ways",
}
_OF_OS = {
    **dict.fromkeys(
        ("write", "pwrite", "writev", "sendfile", "dup", "dup2", "fdopen"), "writes to open files by number"
    ),
    **dict.fromkeys(("fork", "forkpty", "popen", "system", "posix_spawn"), "starts other processes"),
    **dict.fromkeys(("kill", "killpg", "abort", "_exit"), "ends processes"),
}
_LIBRARIES = {"cu", "course_utils", "np", "numpy", "tf", "tensorflow", "keras"}


def _odd(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from _odd_import(node)
    elif isinstance(node, ast.Attribute):
        yield from _odd_attribute(node)
    elif isinstance(node, ast.Call):
        yield from _odd_call(node)
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
        yield from _patched(node)


def _odd_import(node):
    start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    for module in (f"{start}{alias.name}" for alias in node.names):
        if module.startswith(_OURS) and not module.endswith((".check", ".hint", ".progress", ".solution")):
            yield from [_line(node, f"imports {module}, which holds how answers are judged")]
        elif module.partition(".")[0] in _MODULES:
            root = module.partition(".")[0]
            yield _line(node, f"imports {root}, which {_MODULES[root]}")


def _odd_attribute(node):
    if node.attr in _NAMES:
        yield _line(node, f"{_NAMES[node.attr]} ({node.attr})")
    if node.attr == "modules" and _root(node) == "sys":
        yield _line(node, "looks at the modules that are loaded (sys.modules)")
    if node.attr in {"exercises", "solutions", "grading"} and _root(node) in {"cu", "course_utils"}:
        yield _line(node, f"reaches into course_utils.{node.attr}, which holds how answers are judged")


def _odd_call(node):
    called = node.func
    if isinstance(called, ast.Name) and called.id in _CALLS:
        yield _line(node, f"{_CALLS[called.id]} ({called.id})")
    if (
        isinstance(called, ast.Name)
        and called.id == "setattr"
        and node.args
        and _root(node.args[0]) in _LIBRARIES
    ):
        yield _line(node, f"changes a part of {ast.unparse(node.args[0])}")
    if isinstance(called, ast.Attribute) and called.attr in _OF_OS and _root(called) == "os":
        yield _line(node, f"{_OF_OS[called.attr]} (os.{called.attr})")


def _patched(node):
    targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
    for target in targets:
        for part in ast.walk(target):
            written = isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load)
            if written and _root(part) in _LIBRARIES:
                yield _line(node, f"changes {ast.unparse(part)[:60]}")


def _root(node: ast.AST) -> str:
    """The name that `a.b.c[0]` begins with; empty for anything that begins otherwise."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _line(node, what: str) -> str:
    return f"Line {node.lineno} {what}."
