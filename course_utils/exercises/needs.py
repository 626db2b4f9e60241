"""Which top-level statements of Python text a piece of code needs: by names, followed to their definitions.

Used for a reference that has to stand alone, and in grading on both sides of an answer: of the lesson's
exercises, only what observes an answer is loaded; of the released notebook, only what an answer uses is run.
"""

import ast
import builtins
import symtable
from collections.abc import Iterable
from dataclasses import dataclass

BUILT_IN = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "display", "get_ipython"}
# What Python raises for text that is no program, or that is nested so deep that it cannot be read.
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Statement:
    """One top-level statement, and the names that it binds and uses."""

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]

    @property
    def text(self) -> str:
        """The statement as Python text, without its comments."""
        return ast.unparse(self.node)

    @property
    def lines(self) -> range:
        """The lines that it takes in its source, counted from 1, decorators included."""
        return _lines(self.node)


def statements(source: str) -> list[Statement]:
    """The top-level statements of Python text that define something: imports, functions, classes, values.

    Raises one of `UNREADABLE` when the text cannot be read.
    """
    lines = source.split("\n")
    return [_statement(node, lines) for node in ast.parse(source).body if names_bound(node)]


def needed(among: Iterable[Statement], names: Iterable[str]) -> list[Statement]:
    """Those of the statements that define the names, and what these use in turn, in the order given.

    Where a name is defined twice, the later definition counts.
    """
    among = list(among)
    defines = {name: index for index, statement in enumerate(among) for name in statement.binds}
    chosen: set[int] = set()
    open_names = list(names)
    while open_names:
        index = defines.get(open_names.pop())
        if index is not None and index not in chosen:
            chosen.add(index)
            open_names += among[index].uses
    return [among[index] for index in sorted(chosen)]


def names_used(source: str) -> set[str]:
    """Names that Python text uses and takes from outside any function: those that it binds itself included.

    Parameters and local variables do not count, however they are called.
    """
    return set(_globals_of(symtable.symtable(source, "<names>", "exec")))


def names_bound(node: ast.stmt) -> list[str]:
    """The names that an import, a definition or an assignment binds; none for any other statement."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [n for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
        return [n.id for n in names if isinstance(n.ctx, ast.Store)]
    return []


def _statement(node, lines):
    its_own = _lines(node)
    try:
        used = names_used("\n".join(lines[its_own.start - 1 : its_own.stop - 1]))
    except SyntaxError:  # it shares a line with a longer one
        used = names_used(ast.unparse(node))
    return Statement(node, frozenset(names_bound(node)), frozenset(used))


def _lines(node):
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    return range(first, node.end_lineno + 1)


def _globals_of(table):
    at_top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (at_top or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals_of(child)
